"""M(I): from a plan to cues, or to silence. Reads through `Candidates`, writes nothing, decides by pure functions."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TypeAlias

from perdure.access.scan import Finding, digest
from perdure.recall import judge as judging
from perdure.recall.candidates import Candidates, Sighting
from perdure.recall.diversify import Alike, diversify
from perdure.recall.fuse import ranked
from perdure.recall.judge import Verdict, stems
from perdure.recall.pack import BEFORE_CHARS, leans, pack
from perdure.recall.rank import Embedded, Ranking, rank
from perdure.recall.truth import N_LOOKED_AT, Truth, note, truthful
from perdure.recall.tuning import DEFAULT, Tuning
from perdure.recall.why import plainly, why
from perdure.text import one_line
from perdure.types import Cue, HeldBack, Plan, Recalled, Window

N_JUDGED = 10  # best candidates whose words the judge looks at
N_DIVERSIFIED = 40  # best candidates among which the cues are chosen
N_SCANNED = 8  # times that the cues are chosen anew without those that read like orders; then there are fewer
NOTHING_ASKED = "the message asks for nothing"
Suspicious: TypeAlias = "Callable[[str], Sequence[Finding]]"  # what the scanner finds in a text that nobody allowed
Times: TypeAlias = "Mapping[str, datetime | None]"  # turn id -> when it was said
_EVER = datetime.max.replace(tzinfo=UTC)


@dataclass
class _Clock:
    """Milliseconds of each step."""

    steps: dict[str, float] = field(default_factory=dict)
    _last: float = field(default_factory=time.perf_counter)

    def mark(self, step: str) -> None:
        now = time.perf_counter()
        self.steps[step] = (now - self._last) * 1000
        self._last = now


@dataclass(frozen=True)
class Assessed:
    """A plan's candidates, ranked and judged, before any is chosen."""

    plan: Plan  # with its events as windows
    ranking: Ranking
    names: Mapping[str, Sighting]  # of the plan's names
    verdict: Verdict
    truth: Truth


def recall(
    candidates: Candidates,
    plan: Plan,
    *,
    vectors: Embedded = None,
    model: str = "",
    already: Collection[str] = (),
    explain: bool = False,
    suspicious: Suspicious | None = None,
    tuning: Tuning = DEFAULT,
) -> Recalled:
    """The cues for a plan, best first, within the budget of tokens; none when nothing is relevant. Where the latest is
    asked for, a later turn stands before an earlier one that is alike.

    vectors: a row for each text of `to_embed(plan)`, or the wait for them; None when there are none. model: the name
    of the one that made them, as `judge.THRESHOLDS` knows it. already: turns that the session holds, which are not
    said again. explain: say of every candidate why it is no cue. suspicious: what reads like an order to a model is
    left out, and the next takes its room.
    """
    if not plan.queries and not plan.windows:
        return Recalled((), plan, silent=NOTHING_ASKED)
    clock = _Clock()
    assessed = assess(candidates, plan, vectors=vectors, model=model, tuning=tuning)
    clock.mark("candidates")
    recalled = compose(candidates, assessed, already=already, suspicious=suspicious, tuning=tuning)
    clock.mark("cues")
    if explain:
        recalled = replace(recalled, passed_over=_passed_over(assessed.ranking, recalled, already, tuning))
    return replace(recalled, timings_ms=clock.steps)


def assess(
    candidates: Candidates,
    plan: Plan,
    *,
    vectors: Embedded = None,
    model: str = "",
    tuning: Tuning = DEFAULT,
) -> Assessed:
    """The candidates of a plan, ranked, and the judge's verdict on them: all that search and evaluation need."""
    plan = dated_by_events(candidates, plan)
    ranking, truth = _truthful(candidates, plan, rank(candidates, plan, vectors, tuning), tuning)
    names = candidates.names(plan.names)
    verdict = _judged(candidates, plan, ranking, names, model if ranking.cosine else "")
    return Assessed(plan, ranking, names, verdict, truth)


def _truthful(candidates: Candidates, plan: Plan, ranking: Ranking, tuning: Tuning) -> tuple[Ranking, Truth]:
    """The ranking with what is believed in it, and what there is to say of that."""
    beliefs = candidates.beliefs(ranked(ranking.scores)[:N_LOOKED_AT])
    if not beliefs:
        return ranking, Truth(dict(ranking.scores))
    turns = [name for name, made in beliefs.items() if all(each.memory.memory_id != name for each in made)]
    texts = {name: detail.text for name, detail in candidates.details(turns).items()}
    truth = truthful(ranking.scores, beliefs, texts, plan, tuning)
    fresh = [name for name in truth.scores if name not in ranking.facts]
    facts = {**ranking.facts, **candidates.facts(fresh)} if fresh else ranking.facts
    return replace(ranking, scores=truth.scores, facts=facts), truth


def compose(
    candidates: Candidates,
    assessed: Assessed,
    *,
    already: Collection[str] = (),
    suspicious: Suspicious | None = None,
    tuning: Tuning = DEFAULT,
) -> Recalled:
    """The cues of what was assessed, or silence with its reason."""
    plan, ranking = assessed.plan, assessed.ranking
    if assessed.verdict.silent:
        return Recalled((), plan, assessed.verdict.silent)
    named = {t: n for t, n in _named(assessed.names, ranking, tuning).items() if t not in set(already)}
    truth = assessed.truth
    said = set(ranking.scores) - truth.distrusted
    told = {name for name, memory in truth.repeats.items() if memory in said}
    left_out = told | truth.distrusted
    held_back: dict[str, HeldBack] = {}
    cues: list[Cue] = []
    for _ in range(N_SCANNED):
        chosen = _chosen(candidates, plan, ranking, {*already, *left_out, *held_back}, tuning)
        named = {turn: name for turn, name in named.items() if turn not in left_out and turn not in held_back}
        cues, suspected = _scanned(_cues(candidates, plan, ranking, chosen, named), suspicious)
        held_back |= suspected
        if not suspected:
            break
    cues = [_noted(cue, truth, plan.asked_at) for cue in cues]
    packed, without_room = pack(cues, judging.asked_words(plan.asked), max_tokens=tuning.max_tokens)
    why = (
        "what would answer reads like an order to a model" if held_back else "the session holds every candidate already"
    )
    return Recalled(
        packed,
        plan,
        silent="" if packed else why,
        n_tokens=sum(cue.n_tokens for cue in packed),
        without_room=without_room,
        held_back=held_back,
    )


def by_rank(found: Recalled) -> Recalled:
    """What was recalled with its scores by rank alone, where others' counts of words have a part in them."""
    return replace(
        found,
        cues=tuple(
            replace(cue, score=1 / place, legs={}, why=tuple(map(plainly, cue.why)))
            for place, cue in enumerate(found.cues, start=1)
        ),
        passed_over={name: plainly(reason) for name, reason in found.passed_over.items()},
    )


def _scanned(cues: Sequence[Cue], suspicious: Suspicious | None) -> tuple[list[Cue], dict[str, HeldBack]]:
    """(the cues that may be given, those that may not); a turn before that may not goes alone."""
    if suspicious is None:
        return list(cues), {}
    kept: list[Cue] = []
    suspected: dict[str, HeldBack] = {}
    for cue in cues:
        if found := suspicious(cue.text):
            suspected[cue.turn_id] = HeldBack(found[0].rule, digest(cue.text))
        else:
            before = one_line(cue.before, BEFORE_CHARS)
            kept.append(replace(cue, before="" if before and suspicious(before) else before))
    return kept, suspected


def _noted(cue: Cue, truth: Truth, now: datetime) -> Cue:
    """A cue with what a reader must know beside its words."""
    belief = truth.beliefs.get(cue.turn_id) or truth.olds.get(cue.turn_id)
    return replace(cue, note=note(belief, now), is_history=belief.is_over(now)) if belief else cue


def dated_by_events(candidates: Candidates, plan: Plan) -> Plan:
    """The plan with "since the release" as a window that opens when the event was last mentioned."""
    sightings = candidates.names(plan.events) if plan.events else {}
    windows = list(plan.windows)
    for event, seen in sightings.items():
        dates = [fact.stated_at for fact in candidates.facts(seen.newest).values() if fact.stated_at]
        if dates:
            windows.append(Window(max(dates), _EVER, f"since {event}"))
    return replace(plan, windows=tuple(windows))


def _judged(candidates: Candidates, plan: Plan, ranking: Ranking, names: Mapping[str, Sighting], model: str) -> Verdict:
    if not ranking.scores:
        return Verdict(0.0, 0.0, "no candidate: none of the words are known")
    if not plan.queries:
        return Verdict(1.0, 0.0)  # a time and nothing else: whatever was then is what was asked for
    best = [detail.text for detail in candidates.details(ranked(ranking.scores)[:N_JUDGED]).values()]
    found = judging.evidence(
        candidates.rarities(judging.asked_words(plan.asked)),
        names,
        texts=best,
        cosine=max(ranking.cosine.values(), default=None),
        is_in_time="time" in ranking.legs,
    )
    return judging.judge(found, model)


def _named(names: Mapping[str, Sighting], ranking: Ranking, tuning: Tuning) -> dict[str, str]:
    """Turn id -> rare name that it holds: for each name its best candidate, else the newest turn that holds it."""
    found: dict[str, str] = {}
    rare = [name for name, seen in names.items() if seen.newest and seen.rarity >= tuning.entity_rarity]
    for name in sorted(rare, key=lambda n: (-names[n].rarity, n))[: tuning.entity_hits]:
        known = [turn for turn in names[name].newest if turn not in found]
        if known:
            found[max(known, key=lambda turn: ranking.scores.get(turn, 0.0))] = name
    return found


def _chosen(
    candidates: Candidates, plan: Plan, ranking: Ranking, already: Collection[str], tuning: Tuning
) -> list[str]:
    """The cues by relevance and diversity: as many as the kind of question calls for."""
    k = tuning.k_broad if plan.intent in ("history", "overview") else tuning.k
    fresh = [name for name in ranked(ranking.scores) if name not in set(already)][:N_DIVERSIFIED]
    if not fresh:
        return []
    best = max(ranking.scores[fresh[0]], 1e-9)
    scores = {name: ranking.scores[name] / best for name in fresh}
    alike = _alike(candidates, fresh)
    chosen = diversify(scores, alike, relevance=tuning.relevance, k=k, same=tuning.same)
    likeness = {"latest": tuning.newer_first, "fact": tuning.newer_fact_first}.get(plan.intent)
    if likeness is None or plan.windows:
        return chosen
    facts = ranking.facts  # where a fact is asked for, what a person said may correct what a person said before
    times = {n: facts[n].stated_at for n in fresh if plan.intent == "latest" or facts[n].role == "user"}
    chosen += later(chosen, fresh, alike, times, n_first=tuning.corrected, from_likeness=tuning.correction)
    return newer_first(chosen, alike, times, from_likeness=likeness)


def later(
    chosen: Sequence[str], names: Sequence[str], alike: Alike, times: Times, *, n_first: int, from_likeness: float
) -> list[str]:
    """For each of the first chosen turns the one that is most like it of those said later, and not chosen yet: it may
    correct it. Diversity leaves such turns out, because they are alike.
    """
    found: list[str] = []
    for one in chosen[:n_first]:
        after = [n for n in names if n not in {*chosen, *found} and _is_later(n, one, times)]
        best = max(after, key=lambda n: alike(one, n), default=None)
        if best is not None and alike(one, best) >= from_likeness:
            found.append(best)
    return found


def _is_later(name: str, other: str, times: Times) -> bool:
    one, two = times.get(name), times.get(other)
    return one is not None and two is not None and one > two


def newer_first(chosen: Sequence[str], alike: Alike, times: Times, *, from_likeness: float) -> list[str]:
    """The same turns, each moved before the first that is as alike and was said earlier; else in their order."""
    ordered: list[str] = []
    for name in chosen:
        older = (n for n, o in enumerate(ordered) if _is_later(name, o, times) and alike(o, name) >= from_likeness)
        ordered.insert(next(older, len(ordered)), name)
    return ordered


def _alike(candidates: Candidates, names: Sequence[str]) -> Alike:
    """Likeness of two turns: the cosine of their vectors, or the share of common words where one has none."""
    held = candidates.vectors(names)
    without = [name for name in names if name not in held]
    words = {name: stems(detail.text) for name, detail in candidates.details(names if without else ()).items()}

    def alike(one: str, other: str) -> float:
        if one in held and other in held and len(held[one]) and len(held[other]):
            return max(0.0, float((held[one] @ held[other].T).max()))
        first, second = words.get(one, frozenset()), words.get(other, frozenset())
        n_both = len(first & second)
        return n_both / max(1, len(first) + len(second) - n_both)

    return alike


def _cues(
    candidates: Candidates, plan: Plan, ranking: Ranking, chosen: Sequence[str], named: Mapping[str, str]
) -> list[Cue]:
    """The chosen turns and then those found by a rare name, as cues."""
    names = [*chosen, *(name for name in named if name not in chosen)]
    details = candidates.details(names)
    facts = candidates.facts(names)
    around = candidates.around([name for name in names if name in details and leans(details[name].text)], 1)
    before = candidates.details(sorted({other for others in around.values() for other, _ in others}))
    made = []
    for name in (name for name in names if name in details):
        detail = details[name]
        beside = [before[o] for o, _ in around.get(name, ()) if o in before]
        made.append(
            Cue(
                detail.turn_id, detail.run_id, detail.conversation, detail.role, detail.stated_at, detail.machine,
                detail.runtime, detail.text, ranking.scores.get(name, 0.0),
                {leg: scores[name] for leg, scores in ranking.legs.items() if name in scores},
                why(
                    name, ranking.legs, facts[name], plan, entity=named.get(name, ""),
                    is_memory=detail.memory is not None,
                ),
                before=beside[0].text if beside else "", memory=detail.memory, user=detail.user,
                is_shared=detail.is_shared, chunk=detail.chunk,
            )
        )  # fmt: skip
    return made


def _passed_over(ranking: Ranking, recalled: Recalled, already: Collection[str], tuning: Tuning) -> dict[str, str]:
    """Why each candidate that is no cue is none."""
    packed = {cue.turn_id for cue in recalled.cues}
    order = ranked(ranking.scores)
    best = ranking.scores[order[0]] if order else 0.0
    reasons = {}
    for place, name in enumerate(order, start=1):
        if name in packed:
            continue
        where = f"candidate {place} of {len(order)} with {ranking.scores[name]:.2f} (the best has {best:.2f})"
        if name in recalled.held_back:
            reasons[name] = f"{where}, but it reads like an order to a model ({recalled.held_back[name].rule})"
        elif name in already:
            reasons[name] = f"{where}, but the session holds it already"
        elif name in recalled.without_room:
            reasons[name] = f"{where}, but it did not fit into {tuning.max_tokens} tokens"
        elif place <= N_DIVERSIFIED:
            reasons[name] = f"{where}: others were more relevant, or it repeats one of them"
        else:
            reasons[name] = f"{where}: below the {N_DIVERSIFIED} among which cues are chosen"
    return reasons
