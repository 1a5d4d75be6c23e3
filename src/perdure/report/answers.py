"""The answers to messages, as the log of a home holds them: what recall did, why it was silent, how long it took.

The log is bounded: the newest ten to twenty thousand answers are in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from perdure import log


class AnswerLogEntry(msgspec.Struct, frozen=True):
    """An answer to a client's event, as the log holds it."""

    what: str
    at: str
    kind: str = ""
    outcome: str = ""
    took_ms: float = 0.0
    user: str | None = None  # None: logged by an earlier version
    client: str = ""
    session: str = ""
    why: str = ""  # why recall was silent, or was not asked

    @property
    def is_silent(self) -> bool:
        """True if recall was asked and found nothing to say; a floor may have been given."""
        return to_recall_outcome(self.outcome, self.why) == "silent"

    @property
    def answered_at(self) -> datetime:
        """The time of the answer."""
        return datetime.fromisoformat(self.at)


def read_answers(
    home: Path, user: str, *, since_at: datetime | None = None, is_admin: bool = False
) -> Iterator[AnswerLogEntry]:
    """Yield the answers to a user's messages (since then), oldest first.

    Answers logged without a user go to the admin.
    """
    for raw_line in log.read_raw_lines(home, entry_type="answered", since_at=since_at):
        try:
            entry = _decoder.decode(raw_line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
        if (
            entry.what == "answered"
            and entry.kind == "prompt"
            and (entry.user == user or (is_admin and not entry.user))
        ):
            yield entry


_decoder = msgspec.json.Decoder(AnswerLogEntry)


def to_recall_outcome(outcome: str, why: str) -> str:
    """Return an answer's outcome for recall: one that gave a floor and a reason for no recall counts as silent.

    >>> to_recall_outcome("injected", ""), to_recall_outcome("injected", "nothing fits")
    ('injected', 'silent')
    >>> to_recall_outcome("skipped", "a command")
    'skipped'
    """
    return "silent" if outcome == "injected" and why else outcome


def summarise_answers(lines: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Count the answers to messages by outcome, with their median and 95th percentile of time.

    lines: the "answered" lines of the log. Silence is an outcome; a skipped message asked for nothing.
    """
    prompt_lines = [line for line in lines if line.get("kind") == "prompt"]
    durations_ms = sorted(
        float(line.get("took_ms", 0))
        for line in prompt_lines
        if line.get("outcome") in ("injected", "shadow", "silent")
    )
    outcomes = Counter(to_recall_outcome(str(line.get("outcome")), str(line.get("why") or "")) for line in prompt_lines)
    return {
        "outcomes": dict(sorted(outcomes.items())),
        "p50_ms": find_quantile(durations_ms, 0.5),
        "p95_ms": find_quantile(durations_ms, 0.95),
    }


def find_quantile(sorted_values: Sequence[float], share: float) -> float | None:
    """Return the value below which a share of the values lies; None if there are no values.

    >>> find_quantile([1, 2, 3, 4], 0.5), find_quantile([], 0.5)
    (2, None)
    """
    return (
        sorted_values[min(len(sorted_values) - 1, max(0, round(share * len(sorted_values)) - 1))]
        if sorted_values
        else None
    )
