"""The protocol's own conformance suite against Perdure over HTTP: the scenarios that concern any server."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.testing.clients import Missing, program

pytest.importorskip("mcp")
uvicorn = pytest.importorskip("uvicorn")

SCENARIOS = (
    "server-initialize", "ping", "tools-list", "resources-list", "prompts-list", "server-sse-multiple-streams",
    "dns-rebinding-protection",
)  # fmt: skip


@pytest.fixture
def suite() -> list[str]:
    """The command of the suite; skipped, and said so, where it is not to be had."""
    try:
        return [str(program("node")), str(program("mcp-conformance"))]
    except Missing as missing:
        pytest.skip(f"the conformance suite was not run: {missing}")


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A served home. The suite sends no credential: what stands before the guard adds it."""
    from perdure.surfaces.mcp import http
    from perdure.surfaces.mcp.desk import Desk

    perdure.open(tmp_path / "home").close()
    secret = http.new_credential(tmp_path / "home")
    desk = Desk(lambda: perdure.open(tmp_path / "home"))
    guarded = http.app(desk, tmp_path / "home", host="127.0.0.1")

    async def with_credential(scope, receive, send):
        if scope["type"] == "http":
            scope = {**scope, "headers": [*scope["headers"], (b"authorization", f"Bearer {secret}".encode())]}
        await guarded(scope, receive, send)

    server = uvicorn.Server(uvicorn.Config(with_credential, host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/mcp"
    server.should_exit = True
    thread.join(timeout=10)
    desk.close()


def test_the_general_scenarios_pass(suite: list[str], url: str, tmp_path: Path) -> None:
    failed = {}
    for scenario in SCENARIOS:
        words = [*suite, "server", "--url", url, "--scenario", scenario]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode or "0 failed" not in done.stdout:
            failed[scenario] = done.stdout[-800:] + done.stderr[-400:]
    assert not failed
