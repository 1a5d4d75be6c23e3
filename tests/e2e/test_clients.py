"""Real clients: what they write is captured, what is recalled stands in their requests, and they are never harmed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import perdure
from perdure.testing.clients import kept_prefix, main_requests
from perdure.testing.resident import ScriptedResident

CLIENTS = ("claude-code", "codex", "pi")
BLOCK = "[perdure-recall 0000000000000000 begins]\nMARK-{n}-{kind}\n[perdure-recall 0000000000000000 ends]"
TOOL = {
    "claude-code": '@call Bash {"command": "echo from-a-tool"}',
    "codex": '@call exec_command {"cmd": "echo from-a-tool"}',
    "pi": '@call bash {"command": "echo from-a-tool"}',
}


def archived(home: Path) -> dict[str, bytes]:
    """Path of a transcript -> the bytes of it that the archive holds."""
    found: dict[str, bytes] = {}
    with perdure.open(home) as opened:
        opened.drain()
        for held in opened.archive.ledger.all():
            run = opened.archive.run(held)
            assert run.path
            found[run.path] = found.get(run.path, b"") + opened.archive.read(held)
    return found


def assert_all_captured(client, home: Path) -> None:
    """Every byte that the client wrote is in the archive, once and in order."""
    kept = archived(home)
    written = {str(path): path.read_bytes() for path in client.transcripts()}
    assert written
    assert {path: len(kept.get(path, b"")) for path in written} == {path: len(raw) for path, raw in written.items()}
    assert kept == written


@pytest.mark.parametrize("name", CLIENTS)
def test_a_prompt_gets_its_recall_and_everything_is_captured(name, client, home, model) -> None:
    tested = client(name)
    with ScriptedResident(home, BLOCK) as resident:
        done = tested.say(f"What was the port?\n{TOOL[name]}\n@say It was 8642.")
    assert done.status == 0 and "It was 8642." in done.out, done
    prompts = [asked["event"] for asked in resident.asked if asked["event"]["kind"] == "prompt"]
    assert len(prompts) == 1 and prompts[0]["is_human"] and prompts[0]["prompt"].startswith("What was the port?")
    first, second = main_requests(model.requests)
    assert "MARK-" in json.dumps(first) and "from-a-tool" in json.dumps(second)
    assert kept_prefix(first, second)[0] == kept_prefix(first, second)[1]
    assert_all_captured(tested, home)
