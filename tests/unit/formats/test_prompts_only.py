"""Prompt histories of Claude Code and Codex."""

import json

import pytest

from perdure import formats
from perdure.formats.prompts_only import CLAUDE_RUNTIME, CODEX_RUNTIME

SESSION = "b9949969-80c9-4a1a-866b-8c88692b6ac1"


def type_prompt(display, session=SESSION, at=1763681581544, **fields):
    line = {"display": display, "pastedContents": {}, "timestamp": at, "project": "/w/app", "sessionId": session}
    return json.dumps(line | fields).encode()


def read(as_lines, *raws, runtime=CLAUDE_RUNTIME):
    return formats.parse(runtime, as_lines(*raws)).turns


@pytest.mark.parametrize(
    ("raw", "runtime"),
    [
        (type_prompt("why?"), CLAUDE_RUNTIME),
        (b'{"display":"why?","pastedContents":{},"timestamp":1760299086653}', CLAUDE_RUNTIME),
        (b'{"session_id":"s","ts":1763681581,"text":"why?"}', CODEX_RUNTIME),
    ],
)
def test_a_prompt_history_is_recognised(raw, runtime):
    assert formats.detect(raw + b"\n", "history.jsonl") == runtime
    assert not formats.is_append_only(runtime, raw)


def test_each_session_gets_its_lines_as_written():
    raws = [type_prompt("one"), type_prompt("two", "s2"), type_prompt("three", new_field=[1])]
    emitted = formats.emit(CLAUDE_RUNTIME, b"\n".join(raws))
    assert [(origin.session, origin.cwd, lines) for origin, lines in emitted] == [
        (SESSION, "/w/app", [raws[0], raws[2]]),
        ("s2", "/w/app", [raws[1]]),
    ]


def test_prompts_without_a_session_are_one_a_project_and_day():
    old = {"display": "x", "pastedContents": {}}
    entries = [("/w/a", 1760299086653), ("/w/b", 1760299086653), ("/w/a", 1760299090000), ("/w/a", 1760399086653)]
    data = b"\n".join(json.dumps(old | {"project": folder, "timestamp": at}).encode() for folder, at in entries)
    sessions = [(origin.session[:10], origin.cwd, len(lines)) for origin, lines in formats.emit(CLAUDE_RUNTIME, data)]
    assert sessions == [("2025-10-12", "/w/a", 2), ("2025-10-12", "/w/b", 1), ("2025-10-13", "/w/a", 1)]


def test_an_unfinished_line_waits_and_an_unreadable_one_stays():
    whole = type_prompt("one")
    emitted = formats.emit(CLAUDE_RUNTIME, whole + b"\nnot json\n" + whole[:40])
    assert [(origin.session, lines) for origin, lines in emitted] == [
        (SESSION, [whole]),
        ("other-lines", [b"not json"]),
    ]


def test_a_prompt_is_a_turn_of_the_person(as_lines):
    (turn,) = read(as_lines, type_prompt("Always use tabs"))
    assert (turn.role, turn.author, turn.text()) == ("user", "person", "Always use tabs")
    assert turn.stated_at.isoformat() == "2025-11-20T23:33:01.544000+00:00"
    (turn,) = read(as_lines, b'{"session_id":"s","ts":1763681581,"text":"why?"}', runtime=CODEX_RUNTIME)
    assert (turn.author, turn.text(), turn.stated_at.second) == ("person", "why?", 1)


def test_a_command_of_the_client_is_no_words_of_the_person(as_lines):
    assert [turn.author for turn in read(as_lines, type_prompt("/clear"), type_prompt("/review the tests"))] == [
        "machine",
        "person",
    ]


def test_pasted_words_follow_their_mark(as_lines):
    pasted = {"1": {"id": 1, "type": "text", "content": "boom"}, "2": {"id": 2, "type": "text", "contentHash": "ab"}}
    raw = type_prompt("fix [Pasted text #1 +3 lines] and [Pasted text #2 +90 lines]", pastedContents=pasted)
    (turn,) = read(as_lines, raw)
    assert [(part.kind, part.text.strip()) for part in turn.parts] == [
        ("text", "fix"),
        ("pasted", "[Pasted text #1 +3 lines]"),
        ("pasted", "boom"),
        ("text", "and"),
        ("pasted", "[Pasted text #2 +90 lines]"),
    ]
