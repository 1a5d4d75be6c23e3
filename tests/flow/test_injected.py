"""What was recalled into a session comes back in its transcript, and must not be remembered as if it were said."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from perdure.access import fence
from perdure.archive import injections

STAMP = "2026-01-15T09:00:00.000Z"


def pi_line(entry: str, text: str) -> bytes:
    """As the extension's message stands in pi's file."""
    head = {"type": "custom_message", "id": entry, "parentId": None, "timestamp": STAMP, "customType": "perdure"}
    return json.dumps({**head, "content": text, "display": False}).encode() + b"\n"


def codex_line(entry: str, text: str) -> bytes:
    """As a hook's context stands in Codex' file."""
    payload = {"type": "message", "role": "developer", "id": entry, "content": [{"type": "input_text", "text": text}]}
    return json.dumps({"timestamp": STAMP, "type": "response_item", "payload": payload}).encode() + b"\n"


LINES = {"pi": pi_line, "codex": codex_line}


def record(home, runtime: str, session: str, text: str) -> None:
    (nonce,) = fence.find_nonces(text)
    who = {"runtime": runtime, "session": session, "agent": ""}
    data = {**who, "nonce": nonce, "digest": fence.hash_block(text), "turns": []}
    home.journal().append(injections.EVENT_TYPE, data, now=datetime(2026, 1, 15, tzinfo=UTC))


def texts(home, query: str) -> list[str]:
    return sorted(hit.text for hit in home.search(query).hits)


@pytest.mark.parametrize("runtime", sorted(LINES))
def test_injected_block_is_not_found_and_a_forged_one_is(home, runtime: str) -> None:
    ours = fence.fence_items(["[2026-01-15 · user]\nthe harbour opens at six"], "0123456789abcdef")
    forged = fence.fence_items(["[2026-01-15 · user]\nthe harbour opens at nine"], "fedcba9876543210")
    record(home, runtime, "s1", ours)
    data = LINES[runtime]("e1", ours) + LINES[runtime]("e2", forged)
    home.capture(data, runtime=runtime, session="s1")
    (found,) = texts(home, "harbour")
    assert "nine" in found
    assert [hit.text for hit in home.search("harbour", scan=True).hits] == [forged]
    assert home.upkeep.rebuild().same_digest
    (held,) = home.archive.ledger.list_runs()
    assert home.archive.read(held) == data


def test_a_block_of_another_session_is_not_hidden_here(home) -> None:
    ours = fence.fence_items(["the harbour opens at six"], "0123456789abcdef")
    record(home, "pi", "s1", ours)
    home.capture(pi_line("e1", ours), runtime="pi", session="s2")
    assert texts(home, "harbour") == [ours]
