"""acpx, a client of another project: its own implementation of the protocol, in JavaScript, against `perdure acp`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import perdure
from rig.clients import Missing, program
from rig.editor import make_environment
from rig.model_server import Answer, ModelServer

pytestmark = pytest.mark.slow

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def project(place: Path) -> Path:
    (place / "shop" / ".git").mkdir(parents=True)
    (place / "shop" / "cart.py").write_text("limit = 5\n")
    return place / "shop"


@pytest.fixture
def acpx(place: Path, home: Path, project: Path, model: ModelServer) -> Run:
    try:
        node, client = program("node"), program("acpx")
    except Missing as missing:
        pytest.skip(f"acpx was not driven: {missing}")
    home.mkdir(mode=0o700)
    role = f'provider = "openai"\nmodel = "scripted"\nurl = "{model.url}/v1"\nwindow_tokens = 128000\n'
    (home / "config.toml").write_text(f'[models.roles.resident]\n{role}[models.embedder]\nkind = "off"\n')
    agent = place / "perdure"
    agent.write_text(f'#!/bin/sh\nexec {sys.executable} -m perdure.surfaces.cli "$@"\n')
    agent.chmod(0o755)
    environment = make_environment(home)
    environment["PATH"] = f"{place}:{environment['PATH']}"

    def run(*words: str, flags: tuple[str, ...] = (), status: int = 0) -> subprocess.CompletedProcess[str]:
        line = [str(node), str(client), *flags, "--agent", "perdure acp", *words]
        options: dict[str, Any] = {"cwd": project, "env": environment, "timeout": 120, "stdin": subprocess.DEVNULL}
        done = subprocess.run(line, capture_output=True, text=True, check=False, **options)
        assert done.returncode == status, f"{done.stdout}\n{done.stderr}"
        return done

    return run


def test_acpx_reads_edits_and_is_refused(acpx: Run, project: Path, model: ModelServer) -> None:
    edit = {"path": "cart.py", "old": "limit = 5", "new": "limit = 9"}
    model.answers = [
        Answer(calls=[("read_file", {"path": "cart.py"})], thoughts=[{"reasoning_content": "I look."}]),
        Answer("The limit is 5."),
    ]
    out = acpx("exec", "what is the limit?").stdout
    assert "[thinking] I look." in out and "[tool] Read `cart.py` (completed)" in out
    assert "The limit is 5.\n\n[done] end_turn" in out
    model.answers = [Answer(calls=[("edit_file", edit)]), Answer("Raised.")]
    lines = acpx("exec", "raise it", flags=("--approve-all", "--format", "json")).stdout.splitlines()
    updates = [
        message["params"]["update"] for line in lines if "update" in (message := json.loads(line)).get("params", {})
    ]
    states = [update["status"] for update in updates if update["sessionUpdate"].startswith("tool_call")]
    assert states == ["pending", "in_progress", "completed"]
    assert (project / "cart.py").read_text() == "limit = 9\n"
    model.answers = [Answer(calls=[("write_file", {"path": "b.txt", "text": "x"})]), Answer("I could not.")]
    denied = acpx("exec", "write b", flags=("--deny-all",), status=5).stdout  # acpx's status for what it denied
    assert "Write `b.txt` (failed)" in denied and "I could not." in denied
    assert not (project / "b.txt").exists()


def test_acpx_holds_a_session_over_several_processes(acpx: Run, home: Path, model: ModelServer) -> None:
    model.answers = [Answer("Hello."), Answer("Hello again.")]
    acpx("sessions", "new")
    try:
        assert "Hello.\n\n[done] end_turn" in acpx("hello").stdout
        assert "Hello again." in acpx("and again").stdout
        assert "hello" in json.dumps(model.requests[1].body["messages"])
        assert "cost in total: " in acpx("/cost").stdout
        assert "mode set: edits" in acpx("set-mode", "edits").stdout
        assert "hello" in acpx("sessions", "list").stdout
    finally:
        acpx("sessions", "close")
    with perdure.open(home, user="ada") as opened:
        opened.upkeep.catch_up()
        assert opened.search("hello").hits
