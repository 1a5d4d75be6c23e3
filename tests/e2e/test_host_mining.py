"""A real client's own model settles what the session before was worth, without a key of Perdure's."""

from __future__ import annotations

import json
import os
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

import perdure
from perdure.archive import host_questions
from rig.clients import kept_prefix, main_requests
from rig.model_server import Answer

QUEUE = "We decided to keep the job queue in Redis 7, because the team knows it."
KEPT = "The job queue is in Redis 7."
SETTINGS = '[live]\nask_host = "start"\n[memories]\nstated = false\n[hooks]\nlimit_ms = 4000\n'
SHELLS = {
    "claude-code": ("Bash", lambda line: {"command": line, "description": "settle"}),
    "codex": ("exec_command", lambda line: {"cmd": line}),
}


@pytest.mark.parametrize("name", SHELLS)
def test_the_model_of_the_next_session_keeps_a_statement(name, client, home: Path, model, place: Path, serving) -> None:
    program = install_program(place)
    tested = client(name, more_environment={"PERDURE_HOME": str(home)})
    (home / "config.toml").write_text(SETTINGS)
    serving(home)
    assert "First." in tested.say(f"{QUEUE}\n@say First.").out
    (code, *others), asked = asked_codes(tested, model, "Which day is it?\n@say Second.")
    assert not others and "data, not orders" in asked and asked.count("perdure memories settle keep") == 1
    tool, to_fields = SHELLS[name]
    line = f'{program} memories settle keep {code} --as "{KEPT}" && {program} memories settle none'
    model.answers += [Answer(calls=[(tool, to_fields(line))]), Answer("Third.")]
    done = tested.say("Go on.")
    assert "Third." in done.out, done
    assert "Kept: " in json.dumps(main_requests(model.requests)[-1])
    with perdure.open(home, user="tester") as opened:
        opened.captures.drain()
        opened.upkeep.catch_up()
        (memory,) = opened.memories.list_memories()
        assert (memory.text, memory.trust) == (KEPT, "agent")
        ((_, turn_id),) = opened.memories.sources(memory.memory_id)
        assert turn_id.startswith(code)
        assert host_questions.read_settled(opened.journal(), datetime.now(UTC)) == {turn_id: "keep"}
        hits = opened.search("job queue Redis", mode="keyword").hits
        assert not [hit for hit in hits if "data, not orders" in hit.text]  # the question is no turn


def asked_codes(tested, model, prompt: str) -> tuple[list[str], str]:
    """The short ids that a new session was asked about, and the request that holds them."""
    n_before = len(model.requests)
    assert "Second." in tested.say(prompt).out
    body = json.dumps(main_requests(model.requests[n_before:])[0])
    return re.findall(r"(?:\\n|\\\\n)(t[0-9a-z]{4,}): ", body), body


def install_program(place: Path) -> Path:
    """The `perdure` of this checkout as a program; a login shell of Codex resets the path."""
    script = place / "perdure"
    paths = os.pathsep.join(sys.path)
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{paths}" exec "{sys.executable}" -m perdure.surfaces.cli "$@"\n')
    script.chmod(0o755)
    return script


def test_the_question_keeps_the_prompt_cache(client, home: Path, model, serving) -> None:
    tested = client("claude-code", model="claude-sonnet-4-5")
    (home / "config.toml").write_text(SETTINGS)
    serving(home)
    tested.say(f"{QUEUE}\n@say First.")
    n_before = len(main_requests(model.requests))
    session = json.loads(tested.say("Which day is it?\n@say Second.").out)["session_id"]
    tested.say("And the month?\n@say Third.", "--resume", session)
    first, second = main_requests(model.requests)[n_before:]
    assert "memories settle" in json.dumps(first) and kept_prefix(first, second)[0] == kept_prefix(first, second)[1]
    assert json.dumps(second).count("memories settle keep") == 1


TOOLS = {
    "claude-code": ("mcp__perdure__settle", ["--allowedTools", "mcp__perdure"]),
    "codex": ("mcp__perdure/settle", []),
}


@pytest.mark.parametrize("name", TOOLS)
def test_the_model_settles_by_the_tool(name, client, home: Path, model, serving) -> None:
    pytest.importorskip("mcp")
    tested = client(name)
    assert tested.perdure("install", name, "--mcp", home=home).status == 0
    if name == "codex":  # so that its one request waits for the server
        settings = tested.user_home / ".codex" / "config.toml"
        settings.write_text(
            settings.read_text().replace("[mcp_servers.perdure]\n", "[mcp_servers.perdure]\nrequired = true\n")
        )
    (home / "config.toml").write_text(SETTINGS)
    serving(home)
    tested.say(f"{QUEUE}\n@say First.")
    (code,), _ = asked_codes(tested, model, "Which day is it?\n@say Second.")
    tool, flags = TOOLS[name]
    tested.flags += flags
    model.answers += [Answer(calls=[(tool, {"keep": [{"ids": [code], "text": KEPT}], "none": True})]), Answer("Third.")]
    assert "Third." in tested.say("Go on.").out
    assert "Kept as mem-" in json.dumps(main_requests(model.requests)[-1])
    with perdure.open(home, user="tester") as opened:
        (memory,) = opened.memories.list_memories()
        assert (memory.text, memory.trust) == (KEPT, "agent")


def test_the_slash_command_asks_the_model(client, home: Path, model, place: Path) -> None:
    tested = client("claude-code", setup=False, more_environment={"PERDURE_HOME": str(home)})
    root = Path(__file__).parents[2]
    for words in (("plugin", "marketplace", "add", str(root)), ("plugin", "install", "perdure@perdure")):
        done = tested.run(*words)
        assert done.status == 0, done.out + done.err
    model.answers += [Answer("I settled nothing.")]
    assert "I settled nothing." in tested.say("/perdure:settle").out
    body = json.dumps(main_requests(model.requests)[0])
    assert "perdure memories settle keep" in body and "quotes: data, not orders" in body.replace("\\n", " ")
