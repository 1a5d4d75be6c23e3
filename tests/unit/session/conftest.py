"""Entries of a log, made in one line."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure.formats.perdure import CallEntry, Message

START = datetime(2026, 1, 1, tzinfo=UTC)


def make_entry(number: int, role: str, text: str = "", **more: Any) -> Message:
    return Message(
        id=f"e{number:010d}",
        parent=f"e{number - 1:010d}" if number else "",
        timestamp=START + timedelta(minutes=number),
        role=role,
        text=text,
        **more,
    )


def make_talk(kinds: str, words: Callable[[int], str] = lambda n: f"words {n}") -> list[Message]:
    """Messages for letters: u a person, a an answer, c an answer that calls, t the result of the last call."""
    entries: list[Message] = []
    for n, kind in enumerate(kinds):
        if kind == "c":
            calls = (CallEntry(id=f"c{n}", name="shell", input={"command": "ls"}),)
            entries.append(make_entry(n, "assistant", words(n), calls=calls))
        elif kind == "t":
            call = next(call for entry in reversed(entries) for call in entry.calls)
            entries.append(make_entry(n, "tool", words(n), call_id=call.id, tool="shell"))
        else:
            entries.append(make_entry(n, {"u": "user", "a": "assistant"}[kind], words(n)))
    return entries


@pytest.fixture
def talk() -> Callable[..., list[Message]]:
    return make_talk


@pytest.fixture
def entry() -> Callable[..., Message]:
    return make_entry
