"""Ask the probes of a home, keep how each ended, and tell whether recall became worse, and since which change.

One event of the journal per run: ids and numbers, the settings that steer recall, and never a word of the history. It
cannot be measured again once Perdure or the home has changed, so it belongs to the archive. Two runs are compared by
the probes that both asked: a fall counts if chance alone would rarely give it.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import perdure
from perdure.archive import memory_events
from perdure.archive.journal import JournalEvent
from perdure.home import Home
from perdure.index import known_values, statistics
from perdure.index.injections import Injection
from perdure.index.store import SCHEMA
from perdure.memories.consolidate import CONSOLIDATION_AUTHOR
from perdure.memories.cue_use import UseJudge
from perdure.recall.pack import render_cue
from perdure.report.chance import PairedChange, compare_pairs
from perdure.report.probes import Probe, list_probes
from perdure.text import tokens
from perdure.types import Live

EVENT_TYPE = "probed"
BASELINE_AGE = timedelta(days=6, hours=12)  # a run is compared with the newest one that is about a week older
KEPT_TIME = timedelta(days=120)  # runs that are read
TIDIED_TIME = timedelta(days=30)  # a memory that a tidying-up retired stays a source of probes so long
N_PLACEBO = 60  # newest recalls whose answers are judged by a placebo
_MAX_PAUSE_S = 0.05  # between two probes, so that a message is not kept waiting
_STEERING_SECTIONS = ("search", "live", "memories")  # of the settings: what they hold is no secret
_STEERING_ROLES = ("provider", "model", "kind", "dimension", "shorten_to", "query_prefix", "document_prefix")


@dataclass(frozen=True, slots=True)
class ProbeRun:
    """One run: the answer of each probe, and the state of the home in which it was given."""

    at: datetime
    answers: Mapping[str, str]  # probe -> the turn or memory that held its answer; "" if none did
    version: str  # of Perdure
    model: str  # whose vectors were compared; "" for none
    schema: int  # of the index
    settings: Mapping[str, str]  # that steer recall
    n_turns: int
    n_memories: int
    n_stored_tokens: int  # of current memories
    n_silent: int  # probes at which recall said nothing
    n_left: int  # probes that the time did not allow
    took_ms: float  # of one probe, on average
    placebo: tuple[int, int] = (0, 0)  # (answers judged by texts chosen by lot, those that "used" one)

    @property
    def n_answered(self) -> int:
        """How many probes were answered."""
        return sum(map(bool, self.answers.values()))

    @property
    def share(self) -> float:
        """The share of the probes that were answered; 0.0 without any."""
        return self.n_answered / len(self.answers) if self.answers else 0.0


@dataclass(frozen=True, slots=True)
class Drift:
    """The last run beside one about a week older."""

    before: ProbeRun
    after: ProbeRun
    change: PairedChange
    causes: tuple[str, ...]  # in words, the likeliest first; empty if nothing is known to have changed
    lost: tuple[str, ...]  # probes that lost their answer


# asking -------------------------------------------------------------------------------------------------------


def run_probes(
    home: Home, *, now: datetime, limit_s: float, stop: Callable[[], bool] = lambda: False
) -> ProbeRun | None:
    """Ask every probe once and keep the result; None if the history states nothing that can be asked.

    limit_s: no further probe is asked after so many seconds; a run that was stopped is kept with what it has.
    """
    home.upkeep.index_all()
    runs = read_runs(home, now)
    tidied_ids = _list_tidied(home, now - TIDIED_TIME)
    probes = list_probes(home, tuple(runs[-1].answers) if runs else (), tidied_ids)
    if not probes:
        return None
    began_s = time.monotonic()
    answers: dict[str, str] = {}
    n_silent, spent_s = 0, 0.0
    for probe in probes:
        if stop() or time.monotonic() - began_s > limit_s:
            break
        asked_s = time.perf_counter()
        answers[probe.probe_id], is_silent = _ask_probe(home, probe, now)
        took_s = time.perf_counter() - asked_s
        n_silent, spent_s = n_silent + is_silent, spent_s + took_s
        time.sleep(min(took_s, _MAX_PAUSE_S))
    if not answers:
        return None
    run = _describe_home(home, answers, now, n_silent, len(probes) - len(answers), 1000 * spent_s / len(answers))
    home.journal().append(EVENT_TYPE, _to_data(run), now=now)
    return run


def _ask_probe(home: Home, probe: Probe, now: datetime) -> tuple[str, bool]:
    """Return (the turn or memory that holds the answer or "", whether recall was silent)."""
    session = Live(probe.conversation) if probe.conversation else None
    is_turn = not probe.source.startswith("mem-")
    recalled = home.recall(
        probe.question,
        now=now,
        cwd=probe.project,
        session=session,
        already=(probe.source,) if is_turn else (),  # it must be found where it was said again
        catch_up_s=0.0,
    )
    holder = next((cue.turn_id for cue in recalled.cues if probe.is_answered_by(render_cue(cue))), "")
    return holder, not recalled.cues


def _list_tidied(home: Home, since_at: datetime) -> set[str]:
    """Return the memories that a tidying-up retired since then."""
    events = home.journal().read_since(since_at, memory_events.EVENT_TYPE)
    return memory_events.list_retired(event.data for event in events if event.data.get("by") == CONSOLIDATION_AUTHOR)


def _describe_home(
    home: Home, answers: Mapping[str, str], now: datetime, n_silent: int, n_left: int, took_ms: float
) -> ProbeRun:
    memories = home.memories.list_memories()
    return ProbeRun(
        at=now,
        answers=answers,
        version=perdure.__version__,
        model=str(home.connections.vectors().tag or ""),
        schema=SCHEMA,
        settings=list_steering_settings(home.config),
        n_turns=statistics.measure_size(home.index()).n_turns,
        n_memories=len(memories),
        n_stored_tokens=sum(tokens(memory.text) for memory in memories),
        n_silent=n_silent,
        n_left=n_left,
        took_ms=round(took_ms, 1),
        placebo=count_placebo_use(home),
    )


def list_steering_settings(config: Any) -> dict[str, str]:
    """Return the settings that steer what recall finds, by their names; no address, no key and no path is among them.

    >>> from perdure.config import Config
    >>> list_steering_settings(Config())["search.vector_weight"]
    '0.5'
    """
    values = {f"{section}.{name}": str(value) for section in _STEERING_SECTIONS for name, value in _list_fields(
        getattr(config, section)
    )}  # fmt: skip
    models = {"embedder": config.models.embedder, **dict(_list_fields(config.models.roles))}
    values |= {
        f"models.{role}.{name}": str(value)
        for role, settings in models.items()
        for name, value in _list_fields(settings)
        if name in _STEERING_ROLES
    }
    return {name: Path(value).name for name, value in values.items()}


def _list_fields(settings: Any) -> list[tuple[str, Any]]:
    return list(settings._asdict().items()) if hasattr(settings, "_fields") else []


def count_placebo_use(home: Home) -> tuple[int, int]:
    """Return (answers judged, those that "use" a placebo): what chance gives.

    Each of the newest judged answers is judged once more by as many other texts as were recalled for it: turns of other
    sessions of the same project, said before, chosen by lot. An answer takes up words of any text about its work, and
    this share is what real recalls must beat. The lot depends on the recall alone, so a second run draws the same.
    """
    judge = UseJudge(home.user, home.journal(), home.index())
    n = n_used = 0
    for injection in home.memories.injections.list_newest(limit=N_PLACEBO):
        if injection.used is None or not injection.session:
            continue
        exchange = home.runs.exchange(injection.runtime, injection.source_session, injection.at)
        cues = [reason.cue for reason in injection.reasons]
        placebo = _draw_placebo(home, injection, cues)
        if exchange is not None and len(placebo) == len(cues) > 0:
            n += 1
            n_used += any(judge.takes_up(exchange, turn_id) for turn_id in placebo)
    return n, n_used


def _draw_placebo(home: Home, injection: Injection, cues: Sequence[str]) -> list[str]:
    """Draw as many turns as were recalled, of other sessions of the project; fewer if it has no more."""
    project = next((hits[0].project for hits in home.runs.first_chunks(cues).values() if hits), None)
    turn_ids = known_values.list_other_turns(home.index(), home.user, project, injection.session, injection.at)
    lots = {
        name: hashlib.blake2b((injection.nonce + name).encode()).digest() for name in set(turn_ids).difference(cues)
    }
    return sorted(lots, key=lots.__getitem__)[: len(cues)]


# keeping ------------------------------------------------------------------------------------------------------


def _to_data(run: ProbeRun) -> dict[str, Any]:
    values = {item.name: getattr(run, item.name) for item in fields(run) if item.name != "at"}
    return {**values, "answers": dict(run.answers), "settings": dict(run.settings), "placebo": list(run.placebo)}


def read_runs(home: Home, now: datetime) -> list[ProbeRun]:
    """Return the runs of the last months, oldest first."""
    return list(map(_from_event, home.journal().read_since(now - KEPT_TIME, EVENT_TYPE)))


def _from_event(event: JournalEvent) -> ProbeRun:
    values = {item.name: event.data[item.name] for item in fields(ProbeRun) if item.name in event.data}
    return ProbeRun(event.happened_at, **{**values, "placebo": tuple(event.data.get("placebo", (0, 0)))})


# comparing ----------------------------------------------------------------------------------------------------


def find_drift(home: Home, runs: Sequence[ProbeRun]) -> Drift | None:
    """Compare the last run with the newest one that is about a week older, or with the first; None below two runs."""
    if len(runs) < 2:
        return None
    after = runs[-1]
    older = [run for run in runs[:-1] if after.at - run.at >= BASELINE_AGE]
    before = older[-1] if older else runs[0]
    shared = [name for name in after.answers if name in before.answers]
    lost = tuple(name for name in shared if before.answers[name] and not after.answers[name])
    n_gained = sum(bool(after.answers[name]) and not before.answers[name] for name in shared)
    change = compare_pairs(len(shared), len(lost), n_gained)
    return Drift(before, after, change, tuple(_list_causes(home, before, after, lost)), lost)


def _list_causes(home: Home, before: ProbeRun, after: ProbeRun, lost: Sequence[str]) -> Iterator[str]:
    """Yield what changed between two runs: first what took answers away, then what may have."""
    holders = Counter(before.answers[name] for name in lost)
    yield from _list_lost_holders(home, holders)
    pairs = (("Perdure", before.version, after.version), ("the vectors' model", before.model, after.model),
             ("the index's version", str(before.schema), str(after.schema)))  # fmt: skip
    yield from (f"{name}: {old or 'none'} → {new or 'none'}" for name, old, new in pairs if old != new)
    for name in sorted({*before.settings, *after.settings}):
        old, new = before.settings.get(name), after.settings.get(name)
        if old != new:
            yield f"{name}: {old} → {new}"
    if lost and after.n_turns > before.n_turns:
        n_new = after.n_turns - before.n_turns
        yield f"{n_new:,} new turns ({before.n_turns:,} before)"


def _list_lost_holders(home: Home, holders: Mapping[str, int]) -> Iterator[str]:
    memory_ids = [holder for holder in holders if holder.startswith("mem-")]
    memories = {memory.memory_id: memory for memory in home.memories.get_many(memory_ids)}
    turns = home.runs.first_chunks([holder for holder in holders if holder not in memory_ids])
    by_fate: dict[str, list[str]] = {}
    for holder in holders:
        memory = memories.get(holder)
        is_there = holder in turns or (memory is not None and memory.is_current)
        fate = "retired" if memory and memory.retired else "superseded" if memory else "forgotten"
        if not is_there:
            by_fate.setdefault(fate, []).append(holder)
    for fate, ids in sorted(by_fate.items(), key=lambda item: -len(item[1])):
        n = sum(holders[holder] for holder in ids)
        names = ", ".join(ids[:3]) + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")
        shown = "" if fate == "forgotten" else f" ({names})"
        yield f"{n} of the lost answers stood in what was {fate} since{shown}"


def find_warning(drift: Drift | None) -> str:
    """Return one line about a fall that is more than chance; "" without one."""
    if drift is None or not drift.change.is_fall:
        return ""
    change = drift.change
    cause = f" Since then: {'; '.join(drift.causes[:3])}." if drift.causes else ""
    return (
        f"recall answers {change.n_lost - change.n_gained} fewer of {change.n} questions from your history than on "
        f"{drift.before.at:%Y-%m-%d} (p = {change.p:.3f}).{cause}"
    )
