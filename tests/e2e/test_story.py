"""The whole of it: held in one client, found by a search, recalled in another, with a resident home that is killed."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from rig.clients import main_requests

FACT = "The staging harbour listens on port 48642 since the move to Tallinn."
CHATTER = (
    "Rename the parser module.", "Write a test for leap years.", "Why is the build slow on Mondays?",
    "Sort the imports, please.", "Which fonts does the poster need?", "Translate the menu into Finnish.",
)  # fmt: skip
WITHIN_S = 30.0
STARTS_S = {"opencode": 60.0}  # so long may it take to make itself at home
STORIES = [("claude-code", "codex"), ("codex", "pi"), ("pi", "claude-code"), ("gemini-cli", "opencode")]


@pytest.mark.parametrize(("first", "second"), STORIES)
def test_held_in_one_client_and_recalled_in_another(
    first: str, second: str, client, home: Path, model, serving
) -> None:
    told, asked = client(first), client(second)
    for words in CHATTER:
        told.say(f"{words}\n@say Noted.")
    serving(home)
    assert "Understood." in told.say(f"{FACT}\n@say Understood.").out
    ended_s = time.monotonic()
    found = told.perdure("search", "staging harbour port", "--json", home=home)
    assert FACT in found.out
    os.kill(serving.pid, signal.SIGKILL)  # and started again, as a service manager would
    serving(home)
    n_before = len(model.requests)
    assert asked.say("On which port does the staging harbour listen?\n@say There.").status == 0
    assert time.monotonic() - ended_s < WITHIN_S + STARTS_S.get(second, 0)
    sent = json.dumps(main_requests(model.requests[n_before:])[0])
    assert "48642" in sent and "perdure-recall" in sent and "untrusted data" in sent
    why = told.perdure("why", home=home)
    assert why.status == 0 and "48642" in why.out, why
