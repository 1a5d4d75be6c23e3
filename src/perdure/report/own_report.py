"""The report of one's own memory: what it told, what became of that, what it missed, what it cost, and what to do.

Everything is derived from what the home holds; making it writes nothing and asks no model. Each row names the turn or
the memory that it is about. `keep_report` stores the counts of a report in the journal, by the job `report` each week,
as the log that they are partly made from is bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from typing import Any, Literal

from perdure.access.redact import mask
from perdure.archive import injections as injection_events
from perdure.archive import memory_events
from perdure.archive.journal import JournalEvent
from perdure.home import Home
from perdure.memories.staleness import describe_changes
from perdure.models.cost_meter import Meter, Spending
from perdure.report import probe_runs
from perdure.report.answers import AnswerLogEntry, find_quantile, read_answers
from perdure.report.chance import ALPHA, compute_fisher_p, find_share_bounds
from perdure.report.cue_outcomes import OUTCOMES, CueOutcome, RecallWindow, read_window
from perdure.report.probe_runs import Drift, ProbeRun
from perdure.report.repeated_errors import ErrorCounts, count_errors
from perdure.report.silence import MissedRecall, find_missed
from perdure.text import tokens
from perdure.types import Memory

EVENT_TYPE = "reported"
WEEK = timedelta(days=7)
MIN_JUDGED = 10  # recalls whose answer was judged, below which nothing can be said
MAX_RECALLS = 2_000  # newest ones of the time that are looked at
_MAX_STALE = 100  # told memories whose files are looked at
_CHANCE_RECALLS, _CHANCE_USED = 200, 12  # where the home has not measured its own: docs/evaluation/use.md
_MAX_ADVICE = 20  # memories that are named
KEPT_TIME = timedelta(days=190)  # kept reports that are read

Verdict = Literal["earns its place", "does harm", "does not show its worth", "not known yet"]


@dataclass(frozen=True, slots=True)
class CostCounts:
    """What the memory cost."""

    n_recall_tokens: int  # of blocks beside messages, and of what tools answered
    n_used_tokens: int  # of these, in texts that an answer used
    n_fact_tokens: int  # at tool calls
    n_floor_chars: int  # at the start of sessions
    n_answers: int  # messages that recall was asked about
    n_silent: int
    p50_ms: float | None  # a message waited so long
    p95_ms: float | None
    n_model_tokens: int  # of models that Perdure asked, for all users of the home; 0 unless this one is an admin
    money: float


@dataclass(frozen=True, slots=True)
class GrowthFigures:
    """How the home grew in the time, and what it holds."""

    n_new: int  # memories made
    n_superseded: int  # of all memories, those whose place another took in the time
    n_retired: int
    n_memories: int  # current ones, now
    n_stored_tokens: int  # of these
    n_turns: int  # captured, of all times


@dataclass(frozen=True, slots=True)
class RetirementAdvice:
    """A memory that may be retired, and why."""

    memory_id: str
    text: str
    why: str


@dataclass(frozen=True, slots=True)
class VerdictCounts:
    """The verdict on the memory, and the numbers that it rests on: recalls, not single texts."""

    verdict: Verdict
    n_judged: int  # recalls whose answer was judged
    n_used: int  # of these, with a text that the answer used
    n_chance: int  # answers that were judged by texts chosen by lot
    n_chance_used: int
    p: float  # how often chance gives so much use or more
    low: float  # of the share of recalls that were used, 95 %
    high: float


@dataclass(frozen=True, slots=True)
class OwnReport:
    """The report of one time."""

    since_at: datetime
    until_at: datetime
    verdict: VerdictCounts
    outcomes: tuple[CueOutcome, ...]
    n_facts: int  # told at tool calls
    errors: ErrorCounts
    missed: tuple[MissedRecall, ...]
    costs: CostCounts
    growth: GrowthFigures
    advice: tuple[RetirementAdvice, ...]
    probe_runs: tuple[ProbeRun, ...]
    drift: Drift | None
    earlier: tuple[Mapping[str, Any], ...]  # counts of the reports that were kept, oldest first

    @property
    def counts(self) -> dict[str, int]:
        """The number of texts by outcome."""
        n_by_outcome = Counter(cue_outcome.outcome for cue_outcome in self.outcomes)
        return {outcome: n_by_outcome[outcome] for outcome in OUTCOMES}

    @property
    def by_day(self) -> dict[date, Counter[str]]:
        """The number of texts by day (UTC) and outcome, oldest first, without gaps."""
        n_days = (self.until_at.date() - self.since_at.date()).days
        days = {self.since_at.date() + timedelta(days=n): Counter[str]() for n in range(n_days + 1)}
        for cue_outcome in self.outcomes:
            days[cue_outcome.at.date()][cue_outcome.outcome] += 1
        return days

    @property
    def n_recalls(self) -> int:
        """Messages beside which something was told that still exists."""
        return len({cue_outcome.nonce for cue_outcome in self.outcomes})

    @property
    def warning(self) -> str:
        """What is worse than chance explains, in one line; "" if nothing is."""
        return probe_runs.find_warning(self.drift)

    @property
    def hits_per_1000_tokens(self) -> float | None:
        """Probes answered for a thousand tokens of stored memories; None below so many."""
        if not self.probe_runs or self.growth.n_stored_tokens < 1000:
            return None
        return 1000 * self.probe_runs[-1].n_answered / self.growth.n_stored_tokens


def make_report(home: Home, *, now: datetime, since_at: datetime | None = None) -> OwnReport:
    """Make the report of the time from a moment (a week ago, unless given) until now."""
    since_at = since_at or now - WEEK
    window = read_window(home, home.memories.injections.list_window(since_at=since_at, until_at=now, limit=MAX_RECALLS))
    outcomes = tuple(window.iter_outcomes())
    is_admin = home.user in home.config.admins
    log_entries = read_answers(home.path, home.user, since_at=since_at, is_admin=is_admin)
    answers = [answer for answer in log_entries if answer.answered_at <= now]
    facts, floors = (
        injection_events.list_of_kind(home.journal(), kind, since_at=since_at)
        for kind in (injection_events.ACTION, injection_events.FLOOR)
    )
    spending = Meter(home.path, now=lambda: now).read_spending_since(since_at) if is_admin else Spending()
    runs = tuple(probe_runs.read_runs(home, now))
    memories = home.memories.list_memories(every=True)
    return OwnReport(
        since_at,
        now,
        judge(outcomes, runs[-1].placebo if runs else (0, 0)),
        outcomes,
        len(facts),
        count_errors(home, facts, since_at=since_at, until_at=now),
        tuple(find_missed(home, window, answers, since_at=since_at, until_at=now)),
        _count_costs(window, outcomes, facts, floors, answers, spending),
        _count_growth(home, memories, since_at),
        tuple(list_advice(memories, outcomes)),
        runs,
        probe_runs.find_drift(home, runs),
        tuple(event.data for event in read_reports(home, now)),
    )


# the verdict --------------------------------------------------------------------------------------------------


def judge(outcomes: Sequence[CueOutcome], chance: tuple[int, int]) -> VerdictCounts:
    """Judge by the recalls that were checked: are more of them used than a placebo, and are more right than wrong?

    chance: (answers judged by texts chosen by lot, those that "used" one); (0, 0) if not measured.
    """
    recalls: dict[str, list[CueOutcome]] = {}
    for cue_outcome in outcomes:
        if cue_outcome.was_used is not None:
            recalls.setdefault(cue_outcome.nonce, []).append(cue_outcome)
    n = len(recalls)
    n_used = sum(any(cue.was_used and cue.outcome != "wrong" for cue in cues) for cues in recalls.values())
    n_wrong = sum(any(cue.outcome == "wrong" for cue in cues) for cues in recalls.values())
    n_chance, n_chance_used = chance if chance[0] else (_CHANCE_RECALLS, _CHANCE_USED)
    p = compute_fisher_p(n_used, n, n_chance_used, n_chance)
    verdict: Verdict = "does not show its worth"
    if n < MIN_JUDGED:
        verdict = "not known yet"
    elif n_wrong > n_used:
        verdict = "does harm"
    elif p < ALPHA:
        verdict = "earns its place"
    return VerdictCounts(verdict, n, n_used, n_chance, n_chance_used, p, *find_share_bounds(n_used, n))


# counting -----------------------------------------------------------------------------------------------------


def _count_costs(
    window: RecallWindow,
    outcomes: Sequence[CueOutcome],
    facts: Sequence[JournalEvent],
    floors: Sequence[JournalEvent],
    answers: Sequence[AnswerLogEntry],
    spending: Spending,
) -> CostCounts:
    asked = [answer for answer in answers if answer.outcome in ("injected", "shadow", "silent")]
    took_ms = sorted(answer.took_ms for answer in asked)
    return CostCounts(
        sum(injection.n_tokens for injection in window.injections),
        sum(cue_outcome.n_tokens for cue_outcome in outcomes if cue_outcome.was_used),
        sum(event.data.get("n_tokens", 0) for event in facts),
        sum(event.data.get("n_chars", 0) for event in floors),
        len(asked),
        sum(answer.is_silent for answer in asked),
        find_quantile(took_ms, 0.5),
        find_quantile(took_ms, 0.95),
        spending.n_tokens,
        spending.money,
    )


def _count_growth(home: Home, memories: Sequence[Memory], since_at: datetime) -> GrowthFigures:
    current = [memory for memory in memories if memory.is_current]
    ended = [memory for memory in memories if memory.ended_at is not None and memory.ended_at >= since_at]
    events = home.journal().read_since(since_at, memory_events.EVENT_TYPE)
    retired_ids = memory_events.list_retired(event.data for event in events)
    return GrowthFigures(
        sum(memory.recorded_at >= since_at for memory in memories),
        sum(memory.superseded_by is not None for memory in ended),
        sum(memory.retired and memory.memory_id in retired_ids for memory in memories),
        len(current),
        sum(tokens(memory.text) for memory in current),
        sum(month.n_turns for month in home.runs.growth().months),
    )


def list_advice(memories: Sequence[Memory], outcomes: Sequence[CueOutcome]) -> list[RetirementAdvice]:
    """Return the memories that may be retired: marked wrong, or overtaken by their files.

    That one was never used says nothing (docs/decisions/067-use-decides-nothing-unasked.md).
    """
    why_wrong = {cue_outcome.cue: cue_outcome.why for cue_outcome in outcomes if cue_outcome.outcome == "wrong"}
    told_cues = {cue_outcome.cue for cue_outcome in outcomes}
    reasons: dict[str, str] = {}
    candidates = [memory for memory in memories if memory.is_current and not memory.pinned]
    for memory in candidates:
        if memory.memory_id in why_wrong:
            reasons[memory.memory_id] = f"wrong: {why_wrong[memory.memory_id]}"
    told = [memory for memory in candidates if memory.memory_id in told_cues and memory.memory_id not in reasons]
    for memory in told[:_MAX_STALE]:
        if change := describe_changes(memory.text, memory.project, memory.stated_at):
            reasons[memory.memory_id] = change
    by_id = {memory.memory_id: memory for memory in candidates}
    advice = [RetirementAdvice(memory_id, mask(by_id[memory_id].text), why) for memory_id, why in reasons.items()]
    return advice[:_MAX_ADVICE]


# keeping ------------------------------------------------------------------------------------------------------


def keep_report(home: Home, report: OwnReport) -> None:
    """Store the counts of a report as an event of the journal."""
    home.journal().append(EVENT_TYPE, to_counts(report), now=report.until_at)


def read_reports(home: Home, now: datetime) -> list[JournalEvent]:
    """Return the counts that were kept in the last half year, oldest first."""
    return home.journal().read_since(now - KEPT_TIME, EVENT_TYPE)


def to_counts(report: OwnReport) -> dict[str, Any]:
    """Return the numbers of a report, without any words or ids."""
    run = report.probe_runs[-1] if report.probe_runs else None
    return {
        "since": report.since_at.isoformat(),
        "until": report.until_at.isoformat(),
        "verdict": asdict(report.verdict),
        "texts": report.counts,
        "facts": report.n_facts,
        "errors": {
            "failed": report.errors.n_failed,
            "repeated": len(report.errors.repeated),
            "answer_known": report.errors.n_known,
            "told": report.errors.n_told,
        },
        "missed": len(report.missed),
        "costs": asdict(report.costs),
        "growth": asdict(report.growth),
        "probes": {"asked": len(run.answers), "answered": run.n_answered, "took_ms": run.took_ms} if run else None,
        "hits_per_1000_tokens": report.hits_per_1000_tokens,
    }
