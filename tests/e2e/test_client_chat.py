"""Real clients as Perdure's own model: headless, bound to a schema, capped, and invisible to capture and recall."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.memories.mine import MiningRequest
from rig.model_server import Answer
from rig.resident import ScriptedResident

CLIENTS = {"claude-code": ("claude-cli", "claude-sonnet-4-5"), "codex": ("codex-cli", "gpt-5")}
PORT = "The staging server listens on port 8443."
OPERATION = {
    "op": "create", "id": "", "path": "staging-server/port", "kind": "fact", "text": PORT, "turns": [1, 1],
    "entities": [], "valid_from": "", "valid_until": "", "confidence": 0.9, "reason": "said",
}  # fmt: skip


@pytest.fixture
def mine(client, home: Path, model, place: Path, monkeypatch):
    """A home whose miner is an installed client; the function mines what a person said there."""

    def prepare(name: str, *, caps: str = "") -> Any:
        tested = client(name, model="claude-sonnet-4-5" if name == "claude-code" else "")
        provider, model_name = CLIENTS[name]
        url = model.url if name == "claude-code" else f"{model.url}/v1"
        (home / "config.toml").write_text(
            f'[memories]\nstated = false\n[models.caps]\n{caps}\n[models.roles.miner]\nprovider = "{provider}"\n'
            f'model = "{model_name}"\nprogram = "{tested.program}"\nurl = "{url}"\nkey_env = "FAKE_KEY"\n'
            "timeout_s = 60\n"
        )
        for variable, value in {**tested.environment, "FAKE_KEY": "sk-ant-dummy"}.items():
            monkeypatch.setenv(variable, value)
        with perdure.open(home, user="tester") as opened:
            line = {"role": "user", "content": PORT, "timestamp": "2026-01-15T09:00:00+00:00"}
            opened.capture_messages([line], session="talk", cwd=str(tested.project))
        return tested

    return prepare


def to_answer(name: str, operations: list[dict[str, Any]]) -> Answer:
    """What the model says: Claude Code asks for structured output by a tool, Codex by the format of the answer."""
    value = {"operations": operations}
    return Answer(calls=[("StructuredOutput", value)]) if name == "claude-code" else Answer(json.dumps(value))


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_mines_with_its_own_subscription(name: str, mine, home: Path, model) -> None:
    tested = mine(name)
    before = list_files(tested.user_home)
    marker = tested.place / "started"
    add_server(tested, marker)
    model.answers += [to_answer(name, [OPERATION])]
    with ScriptedResident(home, "MARK-{kind}") as resident:
        with perdure.open(home, user="tester") as opened:
            result = opened.memories.mine(MiningRequest(include_active=True))
            assert result is not None and (result.n_new, result.stop_reason, result.cost) == (1, "", 0.0)
            (memory,) = opened.memories.list_memories()
            assert (memory.text, memory.trust, memory.how) == (PORT, "owner", "mined")
            (call,) = opened.connections.roles().meter.read_spending_by_job().items()
            assert call[0].model == ":".join(CLIENTS[name]) and call[1].n_tokens == result.usage.n_tokens > 500
        assert not resident.asked  # no hook of ours ran in it
    (request,) = model.requests
    body = json.dumps(request.body)
    assert PORT in body and "MARK-" not in body and "You keep the long-term memory" in body
    names = {tool.get("name") for tool in request.body.get("tools") or ()}
    assert not names & {"Bash", "Write", "Edit", "Read", "exec_command", "apply_patch", "shell"}
    assert not marker.exists() and not tested.transcripts()
    assert not [path for path in list_files(tested.user_home) - before if path.suffix == ".jsonl"]


def list_files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def add_server(tested: Any, marker: Path) -> None:
    """Put an MCP server into the client's settings that leaves a file behind when it starts."""
    if tested.name == "codex":
        settings = tested.user_home / ".codex" / "config.toml"
        settings.write_text(f'{settings.read_text()}\n[mcp_servers.spy]\ncommand = "touch"\nargs = ["{marker}"]\n')
    else:
        server = {"command": "touch", "args": [str(marker)]}
        (tested.user_home / ".claude.json").write_text(json.dumps({"mcpServers": {"spy": server}}))


@pytest.mark.parametrize("name", CLIENTS)
def test_a_limit_stops_mining_and_leaves_everything_as_it_was(name: str, mine, home: Path, model) -> None:
    mine(name)
    model.answers += [Answer("You've hit your usage limit. Try again in 2 hours.", status=429)] * 20
    with perdure.open(home, user="tester") as opened:
        for n_calls in (1, 0):  # the second time no process is started
            n_before = len(model.requests)
            result = opened.memories.mine(MiningRequest(include_active=True))
            assert result is not None and result.n_new == 0 and result.n_left == 1 and result.fault is not None
            assert (len(model.requests) > n_before) is bool(n_calls)
        assert "available again" in str(result.fault) and opened.memories.list_memories() == []


@pytest.mark.parametrize("name", CLIENTS)
def test_calls_of_a_day_are_capped(name: str, mine, home: Path, model) -> None:
    mine(name, caps="day_client_calls = 1")
    model.answers += [to_answer(name, [])]
    with perdure.open(home, user="tester") as opened:
        assert opened.memories.mine(MiningRequest(include_active=True)).n_batches == 1
        opened.capture_messages([{"role": "user", "content": "It moved to port 9000."}], session="later")
        assert "day_client_calls: 1 of 1" in opened.memories.mine(MiningRequest(include_active=True)).stop_reason
    assert len(model.requests) == 1 and os.environ["FAKE_KEY"]
