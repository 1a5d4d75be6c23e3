"""`perdure review`: what was recorded in shadow, beside its message, and the person's answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner

from perdure import turn
from perdure.archive.memory_events import RIGHT, WRONG
from perdure.capture.events import HookEvent
from perdure.surfaces.cli import cli

SHADOW = 'user = "ada"\n[live]\nshadow = true  # for a week\n'
PORT = "Which port does the staging server listen on?"
DAY = "On which day do we deploy the tide?"


def run(home, *words, keys=None, status=0):
    result = CliRunner().invoke(cli, [*words, "--home", str(home.path)], input=keys)
    assert result.exit_code == status, result.output
    return result.output


def read(home, *words) -> dict[str, Any]:
    return json.loads(run(home, "review", "--json", *words))["result"]


@pytest.fixture
def shadow(opened, message):
    """A home in which two messages were recorded in shadow, the first of them captured."""
    home = opened()
    (home.path / "config.toml").write_text(SHADOW)
    home.close()
    home = opened()
    lines = message("user", "The staging server listens on port 8642.", 0)
    home.capture(lines + message("user", "We deploy the tide on Thursdays.", 1), runtime="messages", session="old")
    home.upkeep.catch_up()
    for session, prompt in (("s1", PORT), ("s2", DAY)):
        event = HookEvent("messages", "prompt", session, prompt=prompt)
        reply = turn.answer_event(home, event, limit_ms=30_000, mode="keyword")
        assert (reply.text, reply.notice) == ("", "")
        if session == "s1":
            at = home.journal().read(type_="shadow")[0].happened_at
            asked = json.dumps({"role": "user", "content": prompt, "timestamp": at.isoformat()}).encode() + b"\n"
            home.capture(asked, runtime="messages", session=session)
    home.close()
    return home


def test_message_and_block_stand_beside_each_other(shadow) -> None:
    newest, oldest = read(shadow)["blocks"]
    assert oldest["message"] == PORT and any("port 8642" in text for text in oldest["block"])
    assert newest["message"] is None and any("Thursdays" in text for text in newest["block"])
    assert oldest["answer"] is None and oldest["judged_for"] == "words" and oldest["spoke_by"]
    assert oldest["relevance"] >= oldest["threshold"] or oldest["spoke_by"] == "coverage"
    shown = run(shadow, "review")
    row = next(line for line in shown.splitlines() if "Which port" in line)
    assert row.index("Which port") < row.index("[")  # the block is to the right of the message
    assert "(the message is not captured)" in shown and "2 of 20 messages recorded: 0 yes, 0 no" in shown


def test_answers_are_kept_as_labels_and_can_change(shadow, opened) -> None:
    newest, oldest = read(shadow)["blocks"]
    answered = read(shadow, "--yes", oldest["id"], "--no", newest["id"][:10])
    assert answered["answers"] == {"yes": 1, "no": 1, "open": 0} and answered["blocks"] == []
    home = opened()
    labels = {block.injection.nonce: block.label for block in home.memories.list_shadow_blocks()}
    assert labels == {oldest["id"]: RIGHT, newest["id"]: WRONG}
    home.close()
    assert "0 yes, 2 no" in run(shadow, "review", "--no", oldest["id"])
    assert [one["answer"] for one in read(shadow, "--all")["blocks"]] == ["no", "no"]


def test_unknown_id_keeps_no_answer(shadow) -> None:
    known = read(shadow)["blocks"][0]["id"]
    assert "ffff" in run(shadow, "review", "--yes", known, "--no", "ffff", status=4)
    assert read(shadow)["answers"]["open"] == 2


def type_keys(home, keys: str, *words: str) -> None:
    """Run the command with a terminal as its input."""
    terminal, its_side = os.openpty()
    program = [sys.executable, "-m", "perdure.surfaces.cli", *words, "--home", str(home.path)]
    os.write(terminal, keys.encode())
    try:
        subprocess.run(program, stdin=its_side, capture_output=True, check=True, timeout=60)
    finally:
        os.close(its_side)
        os.close(terminal)


def test_terminal_asks_about_each_block(shadow) -> None:
    type_keys(shadow, "s\nn\n", "review")
    assert [one["answer"] for one in read(shadow, "--all")["blocks"]] == [None, "no"]
    type_keys(shadow, "q\n", "review")
    assert read(shadow)["answers"] == {"yes": 0, "no": 1, "open": 1}


def record_more(opened, relevances: list[float]) -> list[str]:
    """Record blocks of the first message's cues with these relevances; return their ids."""
    with opened() as home:
        data = home.journal().read(type_="shadow")[0].data
        numbers = {"coverage": 0.0, "spoke_by": "relevance", "judged_for": "words"}
        for number, relevance in enumerate(relevances):
            event = {**data, **numbers, "nonce": f"{number:016x}", "relevance": relevance}
            home.journal().append("shadow", event, now=datetime.now(UTC))
    return [f"{number:016x}" for number in range(len(relevances))]


def test_answers_set_the_limits_and_recall_speaks(shadow, opened) -> None:
    """Unwanted at 0.1, wanted from 0.2 on: half-way is 0.15."""
    ids = record_more(opened, [0.1] * 4 + [0.2 + n / 10 for n in range(8)])
    words = [*(word for name in ids[:4] for word in ("--no", name)), *(w for name in ids[4:] for w in ("--yes", name))]
    result = json.loads(run(shadow, "review", *words, "--speak", "--json"))["result"]
    assert result["limits"]["words"] == {
        "relevance": 0.15, "coverage": 0.6, "n_wanted": 8, "n_unwanted": 4, "n_wanted_told": 8, "n_unwanted_told": 0
    }  # fmt: skip
    text = (shadow.path / "config.toml").read_text()
    assert text == SHADOW.replace("shadow = true", "shadow = false") + (
        "\n[live.limits.words]\nrelevance = 0.15\ncoverage = 0.6\n"
    )
    with opened() as home:
        assert home.recall(PORT, mode="keyword").threshold == 0.15
        event = HookEvent("messages", "prompt", "s1", prompt=PORT)
        reply = turn.answer_event(home, event, limit_ms=30_000, mode="keyword")
        assert "port 8642" in reply.text and reply.notice


def test_few_answers_let_recall_speak_with_the_built_in_limits(shadow, opened) -> None:
    block = read(shadow)["blocks"][0]["id"]
    shown = run(shadow, "review", "--yes", block, "--speak")
    assert "words: limits unchanged, 1 of 10 answers." in shown and "perdure start --shadow" in shown
    assert (shadow.path / "config.toml").read_text() == SHADOW.replace("shadow = true", "shadow = false")


def test_wanted_blocks_leave_the_built_in_limits(shadow, opened) -> None:
    """Limits of an earlier review go when newer answers want every block."""
    (shadow.path / "config.toml").write_text(SHADOW + "\n[live.limits.words]\nrelevance = 0.3\n")
    ids = record_more(opened, [0.2] * 10)
    run(shadow, "review", *(word for name in ids for word in ("--yes", name)), "--speak")
    assert (shadow.path / "config.toml").read_text() == SHADOW.replace("shadow = true", "shadow = false")


def test_status_counts_the_recorded_messages(shadow, opened) -> None:
    assert "2 of 20 messages recorded; then: perdure review" in run(shadow, "status")
    record_more(opened, [0.2] * 20)
    assert "22 messages recorded; next: perdure review" in run(shadow, "status")
    (shadow.path / "config.toml").write_text('user = "ada"\n')
    assert "recorded" not in run(shadow, "status")


def test_home_without_a_record_says_how_to_begin(opened) -> None:
    assert "perdure start --shadow" in run(opened(), "review")
