"""What the owner and their agents said: what is new since a change of the archive, or what was said on a day.

It reads what a summary may be made of, and no more: no sub-agent's work, no miner's, nothing of a session that may not
be kept, of another agent, of a branch that was left, or that stands in another transcript already. What reads like an
injection stays away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from perdure.access.scan import Finding
from perdure.archive.archive import Archive
from perdure.archive.store import Held
from perdure.errors import DamagedRun, NotFound
from perdure.floor.shaped import MOST_CHARS, Said, Talk, newest, shaped
from perdure.formats.of_run import parse_run, without_injected
from perdure.index import mining
from perdure.index.store import Connection
from perdure.types import Origin, Run, Span, Turn

MOST_RUNS = 1000  # captures that one summary looks at, the newest first
Stop = Callable[[], bool]


@dataclass(frozen=True)
class Heard:
    """What was said, as far as it fits."""

    said: list[Said]  # oldest first
    n_left: int = 0  # older messages that were read and did not fit
    n_suspect: int = 0  # that read like an injection


@dataclass(frozen=True)
class Ear:
    """What reading needs of a home. refusal: why a session may not be kept. suspicious: what the scanner finds."""

    user: str
    agent: str
    archive: Archive
    index: Callable[[], Connection]
    refusal: Callable[[Origin], str | None]
    suspicious: Callable[[str], Sequence[Finding]]
    _refused: dict[Origin, bool] = field(default_factory=dict)

    def since(self, after: int, upto: int, *, most_chars: int = MOST_CHARS, stop: Stop) -> Heard:
        """What was captured after one change of the archive and up to another, the newest of it."""
        return self._heard(self.archive.ledger.newest(self.user, after, upto, MOST_RUNS), _always, most_chars, stop)

    def between(self, low: datetime, high: datetime, *, most_chars: int = MOST_CHARS, stop: Stop) -> Heard:
        """What was said from one moment until before another, the newest of it."""
        near = self.archive.ledger.near(self.user, int(low.timestamp()), int(high.timestamp()))
        found = [(1 << 40, held) for held in sorted(near, key=lambda held: held.run_id, reverse=True)]
        return self._heard(found, lambda said: low <= said.at < high, most_chars, stop)

    def _heard(
        self, runs: Iterable[tuple[int, Held]], wanted: Callable[[Said], bool], most_chars: int, stop: Stop
    ) -> Heard:
        """What runs say, in the order in which they end, latest first: read until what is later than any other fits
        no more.
        """
        said: list[Said] = []
        n_suspect = 0
        for ended_s, held in runs:
            ended_at = datetime.fromtimestamp(min(ended_s + 1, 1 << 37), UTC)
            if stop() or sum(len(one.text) for one in said if one.at >= ended_at) > most_chars:
                break
            for one in filter(wanted, self._said_in(held)):
                if self.suspicious(one.text):
                    n_suspect += 1
                else:
                    said.append(one)
        kept = newest(said, most_chars)
        return Heard(kept, len(said) - len(kept), n_suspect)

    def _said_in(self, held: Held) -> Iterator[Said]:
        """What a captured run says and no other did."""
        try:
            if not self._may_be_read(self.archive.run(held)):
                return
            if not (offsets := mining.said_in(self.index(), held.run_id)):
                return
            run, lines = self.archive.load(held)
        except (DamagedRun, NotFound):  # `verify` says so
            return
        talk = Talk(run.source.runtime, run.conversation, run.project)
        for turn in without_injected(parse_run(run, lines), partial(self.archive.injected, run)).turns:
            words = shaped(turn) if turn.offset in offsets else ""
            if words and turn.author in ("person", "agent"):
                span = Span(run.run_id, turn.offset, turn.lines[0][1])
                yield Said(_said_at(run, turn), "person" if turn.author == "person" else "agent", words, talk, span)

    def _may_be_read(self, run: Run) -> bool:
        """Whether a run is of a session that a summary is made of."""
        is_subagent = run.parent_session is not None and not run.fork
        if is_subagent or run.agent != self.agent or mining.TAG in run.tags:
            return False
        source = run.source
        origin = Origin(source.runtime, source.session, run.conversation, run.parent_session, run.cwd or run.project)
        if origin not in self._refused:
            self._refused[origin] = self.refusal(origin) is not None
        return not self._refused[origin]


def _always(_: Said) -> bool:
    return True


def _said_at(run: Run, turn: Turn) -> datetime:
    """When it was said: at most when it was captured."""
    return min(turn.stated_at or run.ended_at or run.captured_at, run.captured_at)
