"""Find commands that failed as they had failed before in another session, and whether the home knew what helps.

An earlier answer is what ended the earlier failure (`recall.action`), as far as it was stated before the new one. A
failure was told about if the session got a fact about the same failure before it happened again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from perdure.archive.journal import JournalEvent
from perdure.home import Home
from perdure.index.facts import FactRecord, IndexedFacts, RepeatedFailure, list_repeated_failures
from perdure.recall.action import find_mend
from perdure.types import Live

_N_AFTER = 24  # facts after a failure among which its end is looked for, as in recall.action


@dataclass(frozen=True, slots=True)
class RepeatedError:
    """A command that failed again."""

    turn_id: str
    command: str  # masked, as the index has it
    at: datetime
    earlier_turn: str  # where it had failed before
    answer: str  # what helped then: a command, or files; "" if that is not known
    answer_turn: str
    was_told: bool  # the session was told before it failed


@dataclass(frozen=True, slots=True)
class ErrorCounts:
    """The failed commands of a time."""

    n_failed: int
    repeated: tuple[RepeatedError, ...]  # those that had failed so in an earlier session, oldest first

    @property
    def n_known(self) -> int:
        """How many of the repeated ones the home knew what helps for."""
        return sum(bool(error.answer) for error in self.repeated)

    @property
    def n_told(self) -> int:
        """How many of the repeated ones the session had been told about."""
        return sum(error.was_told for error in self.repeated)


def count_errors(
    home: Home, told_facts: Sequence[JournalEvent], *, since_at: datetime, until_at: datetime
) -> ErrorCounts:
    """Count the commands that failed between two moments. told_facts: what sessions were told at tool calls."""
    index, principal = home.index(), home.principal
    n_failed, failures = list_repeated_failures(index, principal, since_at, until_at)
    told = [(event.data["session"], event.happened_at, event.data["fact"]) for event in told_facts]
    errors = []
    for failure in failures:
        source = IndexedFacts(index, principal, failure.project or None, session=Live(failure.session))
        answer, answer_turn = _find_answer(failure, source.list_after(failure.earlier, _N_AFTER))
        at = failure.record.stated_at or since_at
        was_told = any(
            session == failure.session and told_at <= at and failure.earlier.turn_id in fact
            for session, told_at, fact in told
        )
        errors.append(
            RepeatedError(
                failure.record.turn_id, failure.record.text, at, failure.earlier.turn_id, answer, answer_turn, was_told
            )
        )
    return ErrorCounts(n_failed, tuple(errors))


def _find_answer(failure: RepeatedFailure, following: Sequence[FactRecord]) -> tuple[str, str]:
    """Return (what ended the earlier failure, its turn), if it was stated before the new one; ("", "") otherwise."""
    failed_at = failure.record.stated_at
    known = [record for record in following if record.stated_at and failed_at and record.stated_at < failed_at]
    mend = find_mend(failure.earlier, known)
    return (", ".join(mend.texts), mend.record.turn_id) if mend else ("", "")
