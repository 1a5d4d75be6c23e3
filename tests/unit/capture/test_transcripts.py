"""Transcripts of clients: where a session works, whether it was compacted, what its next message gets."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from perdure.capture import transcripts
from perdure.errors import UsageError

HEADER = {"sessionId": "s1", "projectHash": "h", "startTime": "2026-01-15T09:00:00.000Z", "kind": "main"}
CONTEXT = {"$set": {"messages": [{"id": "m0", "type": "user", "content": "<session_context>"}]}}
LOADED = {"$set": {"sessionId": "s1"}}
SAID = {"id": "m1", "type": "user", "content": "hi"}
STAMP = {"$set": {"lastUpdated": "2026-01-15T09:00:01.000Z"}}
WHOLE = {"$set": {"messages": [SAID]}}
SHORT = {"$set": {"messages": [SAID, {"id": "m2", "type": "gemini", "content": [{"text": transcripts.SUMMARY_REPLY}]}]}}
FRESH = [HEADER, CONTEXT, SAID, STAMP]


def lines(*rows: object) -> bytes:
    return b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows)


@pytest.mark.parametrize(
    ("before", "gained", "is_one"),
    [
        ([], FRESH, False),
        (FRESH, [LOADED, SHORT], True),  # in the middle of a session
        ([], [*FRESH, LOADED, SHORT, SAID], True),
        (FRESH, [HEADER, CONTEXT, LOADED, WHOLE, SAID, STAMP], False),  # resumed
        ([*FRESH, LOADED, SHORT, SAID], [HEADER, CONTEXT, LOADED, SHORT, SAID], False),  # resumed after a compaction
        ([*FRESH, LOADED, SHORT, SAID, HEADER, CONTEXT], [LOADED, SHORT], False),  # and seen in two parts
        (FRESH, [HEADER, CONTEXT, LOADED, WHOLE, LOADED, SHORT], True),  # resumed, and compacted at once
        ([*FRESH, HEADER, CONTEXT, LOADED, WHOLE], [LOADED, SHORT], True),
        ([*FRESH, LOADED, SHORT], [SAID, STAMP], False),  # seen before
        (FRESH, [LOADED, WHOLE], False),  # a rolled back turn, outputs left out: nothing is summed up
    ],
)
def test_compaction_is_told_from_a_resumption(before: list, gained: list, is_one: bool) -> None:
    assert transcripts.has_compaction(lines(*gained), earlier_bytes=lines(*before)) is is_one


@pytest.mark.parametrize(
    ("session", "runtime", "fault"),
    [
        ("5f0c2a1b-0000-4000-8000-000000000000", "claude-code", ""),
        ("", "", ""),
        ("5f0c2a1b/a1", "claude-code", ""),  # a sub-agent's session
        ("ses_1~4f2a", "opencode", ""),
        ("日记.md", "messages", ""),
        ("/home/ada/notes/Ideas.md", "notes", ""),
        ("../x", "claude-code", "path"),
        ("..", "codex", "path"),
        ("/etc", "codex", "path"),
        ("a/", "codex", "path"),
        ("a/b/c", "codex", "path"),
        ("a\\b", "codex", "path"),
        ("a\0b", "codex", "printed"),
        ("a\nb", "notes", "printed"),
        ("a\u202eb", "codex", "printed"),
        ("\ud800", "codex", "printed"),
        ("x" * 201, "codex", "200 characters"),
        ("x" * 200, "codex", ""),
    ],
)
def test_session_id_is_one_plain_segment(session: str, runtime: str, fault: str) -> None:
    found = transcripts.find_session_fault(session, runtime)
    assert fault in found and bool(fault) is bool(found)


def test_refusal_of_a_session_id_names_it_and_the_reason() -> None:
    with pytest.raises(UsageError, match=r"'\.\./x' is refused: it looks like a path"):
        transcripts.check_session("../x")


def test_half_a_line_at_the_start_is_ignored() -> None:
    assert transcripts.has_compaction(lines(LOADED, SHORT), earlier_bytes=lines(*FRESH)[70:])


def test_file_without_messages_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    for rows, blank in (([HEADER, CONTEXT], True), ([HEADER, CONTEXT, LOADED], True), (FRESH, False)):
        path.write_bytes(lines(*rows))
        assert transcripts.is_blank(path) is blank


def test_folder_is_recorded_beside_the_transcript(tmp_path: Path) -> None:
    path = tmp_path / "tmp" / "p" / "chats" / "t.jsonl"
    assert transcripts.read_session_folder(path) is None
    path.parent.mkdir(parents=True)
    (tmp_path / "tmp" / "p" / ".project_root").write_text("/w/harbour\n")
    assert (
        transcripts.read_session_folder(path)
        == transcripts.read_session_folder(path.parent / "s1" / "a1.jsonl")
        == "/w/harbour"
    )


def test_text_is_given_once_and_only_to_its_session(tmp_path: Path) -> None:
    assert transcripts.take_pending_text(tmp_path, "gemini-cli", "s1") == ""
    transcripts.store_pending_text(tmp_path, "gemini-cli", "s1", "old")
    transcripts.store_pending_text(tmp_path, "gemini-cli", "s1", "Grüße \ud800")
    assert (
        transcripts.take_pending_text(tmp_path, "gemini-cli", "s2")
        == transcripts.take_pending_text(tmp_path, "codex", "s1")
        == ""
    )
    assert transcripts.take_pending_text(tmp_path, "gemini-cli", "s1") == "Grüße \ud800"
    assert transcripts.take_pending_text(tmp_path, "gemini-cli", "s1") == ""


def test_waiting_text_expires_in_a_day_and_stays_in_its_session(tmp_path: Path) -> None:
    transcripts.store_pending_text(tmp_path, "gemini-cli", "../s1", "the floor")
    (path,) = (tmp_path / "run" / "later").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    os.utime(path, (0, 0))
    transcripts.store_pending_text(tmp_path, "gemini-cli", "s2", "another")
    assert not path.exists() and transcripts.take_pending_text(tmp_path, "gemini-cli", "s2") == "another"
