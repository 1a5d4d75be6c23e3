"""The protocol's own conformance suite against Perdure over HTTP: the scenarios that concern any server."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from rig.clients import Missing, program

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
    """A served home. The suite sends no credential: what stands before the door adds it."""
    from perdure.service.server import HomeServer
    from perdure.sharing.machines import LocalAuthority
    from perdure.surfaces.http.host_check import HostCheck
    from perdure.surfaces.http.server import HttpServer

    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / "config.toml").write_text('[server]\nhttp = "127.0.0.1:0"\n')
    home = perdure.open(tmp_path / "home")
    _, secret = home.sharing.machines.register(home.user, "suite")
    served = HttpServer(HomeServer(home), LocalAuthority(home.path, ()))
    application = HostCheck(served.application, ())  # as the server puts it before everything

    async def with_credential(scope, receive, send):
        if scope["type"] == "http":
            scope = {**scope, "headers": [*scope["headers"], (b"authorization", f"Bearer {secret}".encode())]}
        await application(scope, receive, send)

    server = uvicorn.Server(uvicorn.Config(with_credential, host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/mcp"
    server.should_exit = True
    thread.join(timeout=10)
    served.stop()
    home.close()


def test_the_general_scenarios_pass(suite: list[str], url: str, tmp_path: Path) -> None:
    failed = {}
    for scenario in SCENARIOS:
        words = [*suite, "server", "--url", url, "--scenario", scenario]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode or "0 failed" not in done.stdout:
            failed[scenario] = done.stdout[-800:] + done.stderr[-400:]
    assert not failed
