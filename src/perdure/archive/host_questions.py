"""The questions that a host's own model was asked about candidates, and what was settled, as events of the journal.

A question names turns by id, never their words. It is recorded before it is given, with the digest of its block, so
that no candidate is asked about twice and the block is not captured as if somebody had said it. What an answer settled
stands in the event of the memories that it made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct

from perdure.archive import memory_events
from perdure.archive.journal import Journal, JournalEvent, decode_event, find_lines

EVENT_TYPE = "question"
KEEP, NONE = "keep", "none"  # what an answer settles about a turn
KEPT = timedelta(days=90)  # that a question takes an answer
_SETTLED_NEEDLE = b'"settled":'


class HostQuestion(Struct, frozen=True):
    """The candidates of one session that a host's model was asked about."""

    runtime: str  # of the session that the question is about
    conversation: str
    until_at: datetime | None  # time of its last turn then: a later question begins after it
    asked: Mapping[str, str]  # id of each turn -> kind of candidate


def build_data(
    question: HostQuestion, receiver: Mapping[str, str], *, nonce: str = "", digest: str = "", n_chars: int = 0
) -> dict[str, Any]:
    """Build the data of an event. receiver: runtime, session and agent of the model that is asked; nonce, digest,
    n_chars: of its block.
    """
    return {
        **receiver,
        "nonce": nonce,
        "digest": digest,
        "n_chars": n_chars,
        "about": [question.runtime, question.conversation],
        "until_at": question.until_at.isoformat() if question.until_at else None,
        "asked": [list(pair) for pair in question.asked.items()],
    }


def read_questions(journal: Journal, now: datetime) -> list[HostQuestion]:
    """Return the questions that were asked in the last KEPT days, newest first: an older one takes no answer."""
    return [_read_question(event.data) for event in reversed(journal.read_since(now - KEPT, EVENT_TYPE))]


def _read_question(data: Mapping[str, Any]) -> HostQuestion:
    runtime, conversation = data["about"]
    until_at = datetime.fromisoformat(data["until_at"]) if data.get("until_at") else None
    return HostQuestion(runtime, conversation, until_at, dict(data["asked"]))


def read_settled(journal: Journal, now: datetime) -> dict[str, str]:
    """Return the turns of these questions that an answer settled: id -> KEEP or NONE. The first answer counts."""
    outcomes: dict[str, str] = {}
    month = f"{(now - KEPT).astimezone(UTC):%Y-%m}"
    events = [
        event
        for path in journal.list_files()
        if path.stem >= month
        for line in find_lines(path, _SETTLED_NEEDLE)
        if isinstance(event := decode_event(line), JournalEvent) and event.type == memory_events.EVENT_TYPE
    ]
    for event in sorted(events, key=lambda event: event.order):
        for turn_id, outcome in event.data.get("settled", ()):
            outcomes.setdefault(turn_id, outcome)
    return outcomes


def find_last_time(questions: Sequence[HostQuestion], runtime: str, conversation: str) -> datetime | None:
    """Return the time up to which a conversation was asked about; None if it was not."""
    times = [q.until_at for q in questions if (q.runtime, q.conversation) == (runtime, conversation) and q.until_at]
    return max(times, default=None)
