"""Select the turns of a session that one page shows, and find what belongs beside them. Reads only.

A slice begins and ends between turns, and never between a call and the results that follow it, so that
both can be shown together. However long the session is, only the slice is read.

Transcripts read a moment ago are cached, so that the next slice of a long one does not read all of it
again. A cache key contains the ledger's change counter, which moves whenever the bytes change, so
nothing stale is ever returned. The cache is small, and an entry is dropped a minute after it was last
used, even if nobody asks for anything any more: what was forgotten, or is no longer shared, stays in
the memory of a server for that long and no longer.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from perdure.errors import NotFound
from perdure.home import Home
from perdure.index.injections import Injection
from perdure.index.session_turns import MAX_TIME_GAP
from perdure.index.threads import THREAD_START, SessionThread, SpawnedAgent, ThreadPosition, ThreadTurn
from perdure.surfaces.web.transcript import LocatedTurn
from perdure.types import RunView, Turn

MAX_CACHE_BYTES = 48_000_000  # of captured transcripts; their turns take about as much again
MAX_AGE_S = 60.0  # since the last use

TurnsByOffset = Mapping[int, Turn]  # by offset of its first line
_CacheKey = tuple[str, str, str, int | None]


@dataclass
class _CachedTranscript:
    turns: TurnsByOffset
    n_bytes: int
    asked_s: float


class TranscriptCache:
    """A cache of the turns of transcripts, by the user who reads them."""

    def __init__(self, *, max_bytes: int = MAX_CACHE_BYTES, max_age_s: float = MAX_AGE_S) -> None:
        self._max_bytes, self._max_age_s = max_bytes, max_age_s
        self._entries: OrderedDict[_CacheKey, _CachedTranscript] = OrderedDict()
        self._n_bytes = 0
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None  # runs while the cache is not empty

    def get_turns(self, home: Home, run_id: str, *, now_s: float | None = None) -> TurnsByOffset:
        """Return the turns of a captured run. Raises NotFound, DamagedRun."""
        now_s = time.monotonic() if now_s is None else now_s
        ledger_row = home.archive.get_entry(run_id)
        if ledger_row.user != home.user:  # permission is checked each time: home.run raises NotFound
            home.runs.get(run_id)
        key = (str(home.path), home.user, run_id, ledger_row.change)
        with self._lock:
            self._evict(now_s)
            if (entry := self._entries.get(key)) is not None:
                entry.asked_s = now_s
                self._entries.move_to_end(key)
                return entry.turns
        turns = {turn.offset: turn for turn in home.runs.transcript(run_id).parsed.turns}
        with self._lock:
            if key not in self._entries:
                self._entries[key] = _CachedTranscript(turns, ledger_row.to_offset - ledger_row.from_offset, now_s)
                self._n_bytes += self._entries[key].n_bytes
            self._evict(now_s)
            self._schedule_check(self._max_age_s)
        return turns

    def _schedule_check(self, wait_s: float) -> None:
        """Schedule the next check, unless one is scheduled."""
        if self._timer is None and self._entries:
            self._timer = threading.Timer(wait_s, self._check_expiry)
            self._timer.daemon = True
            self._timer.start()

    def _check_expiry(self) -> None:
        """Drop old entries, and schedule the next check for the next entry to expire."""
        now_s = time.monotonic()
        with self._lock:
            self._timer = None
            self._evict(now_s)
            if self._entries:
                self._schedule_check(next(iter(self._entries.values())).asked_s + self._max_age_s - now_s)

    def _evict(self, now_s: float) -> None:
        """Drop entries that are too old or exceed the size limit; always keep the newest within the size limit."""
        while self._entries:
            key, oldest = next(iter(self._entries.items()))
            is_too_much = self._n_bytes > self._max_bytes and len(self._entries) > 1
            if not is_too_much and now_s - oldest.asked_s < self._max_age_s:
                return
            self._n_bytes -= oldest.n_bytes
            del self._entries[key]


SLICE_TURNS = 40  # of one slice
_MAX_RESULTS = 20  # turns added after them because they hold results of their calls
_LEAD_TURNS = 6  # turns shown before the requested one
_TRANSCRIPTS = TranscriptCache()


@dataclass(frozen=True, slots=True)
class SliceRequest:
    """The turns that an address asks for: at most one of the three counts, in this order."""

    since: str = ""  # the slice begins with this turn
    until: str = ""  # the slice ends before this turn
    at: str = ""  # the slice contains this turn
    shown: str = ""  # one of index.talk.SHOWN


@dataclass(frozen=True, slots=True)
class TranscriptSlice:
    """Consecutive turns of a session."""

    turns: tuple[ThreadTurn, ...]
    n_before: int  # turns of the session before the first one, including those filtered out
    has_earlier: bool
    following: ThreadTurn | None  # the first turn after the slice
    is_lost: bool = False  # the requested turn is not in the session


def select_slice(thread: SessionThread, request: SliceRequest) -> TranscriptSlice:
    """Return the turns that an address asks for.

    If it names a turn that is gone, return those from the beginning of the run.
    """
    try:
        return _find_slice(thread, request)
    except NotFound:
        return _cut_around(thread, thread.start, request.shown, lead=0, is_lost=True)


def _find_slice(thread: SessionThread, request: SliceRequest) -> TranscriptSlice:
    if request.since:
        return _cut_around(thread, thread.find_position(request.since), request.shown, lead=0)
    if request.until:
        end = thread.find_position(request.until)
        turns = _extend_to_call(thread.list_before(end, SLICE_TURNS + _MAX_RESULTS, request.shown))
        return _make_slice(thread, turns, request.shown, next(iter(thread.list_from(end, 1, request.shown)), None))
    if request.at:
        return _cut_around(thread, thread.find_position(request.at), request.shown, lead=_LEAD_TURNS)
    return _cut_around(thread, thread.start, request.shown, lead=0)


def _cut_around(
    thread: SessionThread, position: ThreadPosition, shown: str, *, lead: int, is_lost: bool = False
) -> TranscriptSlice:
    before = thread.list_before(position, lead + _MAX_RESULTS, shown) if lead else []
    n_lead = len(_extend_to_call(before, lead))
    later_turns = thread.list_from(position, SLICE_TURNS + _MAX_RESULTS + 1, shown)
    n = _count_with_results(later_turns)
    turns = [*before[len(before) - n_lead :], *later_turns[:n]]
    return _make_slice(thread, turns, shown, later_turns[n] if n < len(later_turns) else None, is_lost=is_lost)


def _count_with_results(turns: Sequence[ThreadTurn]) -> int:
    """Return how many of these turns make a slice: SLICE_TURNS, and the results behind them."""
    n = min(SLICE_TURNS, len(turns))
    while n < min(len(turns), SLICE_TURNS + _MAX_RESULTS) and turns[n].role == "tool":
        n += 1
    return n


def _extend_to_call(before: Sequence[ThreadTurn], k: int = SLICE_TURNS) -> list[ThreadTurn]:
    """Return the last k of these turns, with the turns before them whose calls they answer."""
    start = max(0, len(before) - k)
    while start and before[start].role == "tool":
        start -= 1
    return list(before[start:])


def _make_slice(
    thread: SessionThread,
    turns: Sequence[ThreadTurn],
    shown: str,
    following: ThreadTurn | None,
    *,
    is_lost: bool = False,
) -> TranscriptSlice:
    first = turns[0].position if turns else following.position if following else THREAD_START
    has_earlier = bool(thread.list_before(first, 1, shown))
    return TranscriptSlice(tuple(turns), thread.count_before(first), has_earlier, following, is_lost)


# what belongs beside --------------------------------------------------------------------------------------------


def read_turns(home: Home, turns: Sequence[ThreadTurn]) -> list[LocatedTurn]:
    """Return these turns with their words; without words if the run that holds them is not shared."""
    return [LocatedTurn(entry, _read_turn(home, entry)) for entry in turns]


def _read_turn(home: Home, entry: ThreadTurn) -> Turn:
    try:
        turn = _TRANSCRIPTS.get_turns(home, entry.captured_in).get(entry.offset)
    except NotFound:
        turn = None
    author = entry.author
    return turn or Turn(entry.role, author, ((entry.offset, entry.offset),), (), entry.stated_at)  # type: ignore[arg-type]


def list_with_results(thread: SessionThread, turn_id: str) -> list[ThreadTurn]:
    """Return a turn, and those behind it that hold results of its calls. Raises NotFound."""
    first, *later_turns = thread.list_from(thread.find_position(turn_id), 1 + _MAX_RESULTS)
    return [first, *takewhile(lambda turn: turn.role == "tool", later_turns)]


def find_spawned(thread: SessionThread, turn_slice: TranscriptSlice) -> dict[str, list[SpawnedAgent]]:
    """Map each turn to the sub-agents that began in it: by the clock, while it was the agent's last turn."""
    spawned_runs = thread.list_spawned()
    agents = [turn for turn in turn_slice.turns if turn.role == "assistant" and turn.stated_at] if spawned_runs else []
    until = turn_slice.following.stated_at if turn_slice.following else None
    spawned_by_turn: defaultdict[str, list[SpawnedAgent]] = defaultdict(list)
    for spawned in spawned_runs:
        started_at = spawned.started_at
        earlier_turns = [
            turn
            for turn in agents
            if started_at is not None and turn.stated_at is not None and turn.stated_at <= started_at
        ]
        if earlier_turns and not (until is not None and started_at is not None and started_at >= until):
            spawned_by_turn[earlier_turns[-1].turn_id].append(spawned)
    return spawned_by_turn


def find_injections(home: Home, view: RunView, turns: Sequence[ThreadTurn]) -> Mapping[str, list[Injection]]:
    """Map each turn to the reader's own injections beside it.

    An injection belongs to the user message that is nearest to it in time; one that a person typed comes first.
    """
    prompts = [(turn, turn.stated_at) for turn in turns if turn.role == "user" and turn.stated_at is not None]
    injections_by_turn: defaultdict[str, list[Injection]] = defaultdict(list)
    if not prompts or view.user != home.user:
        return injections_by_turn
    session, _, agent = view.session.partition("/")
    since_at, until_at = (pick(stated_at for _, stated_at in prompts) for pick in (min, max))
    for injection in home.memories.injections.list_between(
        session, since_at=since_at - MAX_TIME_GAP, until_at=until_at + MAX_TIME_GAP
    ):
        near_turns = [(turn, gap) for turn, at in prompts if (gap := abs(at - injection.at)) <= MAX_TIME_GAP]
        if near_turns and (injection.runtime, injection.agent) == (view.runtime, agent):
            turn, _ = min(near_turns, key=lambda near: (near[0].author != "person", near[1]))
            injections_by_turn[turn.turn_id].append(injection)
    return injections_by_turn


def find_copied_turn(home: Home, thread: SessionThread, view: RunView, turn_slice: TranscriptSlice) -> str | None:
    """Return the turn before the first one, if this session begins with a copy of another, as a fork does.

    A copied turn is shown once for both sessions, in the one that it was copied from.
    """
    if turn_slice.has_earlier:
        return None
    first = turn_slice.turns[0] if turn_slice.turns else None
    captured = first.captured_in if first else str(view.parent_run_id) if view.sidechain else view.run_id
    all_turns = _TRANSCRIPTS.get_turns(home, captured).values()  # in order of their first lines
    turns = list(takewhile(lambda turn: turn.offset < first.offset, all_turns) if first else all_turns)
    copied_id = next((turn.native_id for turn in reversed(turns) if turn.native_id), None)
    return thread.find_copy(view.user, view.runtime, copied_id) if copied_id else None


def find_turn(home: Home, turn_id: str) -> tuple[ThreadTurn, Turn]:
    """Return a turn and its location. Raises NotFound."""
    thread = home.runs.thread(turn_id)
    (entry,) = thread.list_from(thread.find_position(turn_id), 1)
    return entry, _read_turn(home, entry)
