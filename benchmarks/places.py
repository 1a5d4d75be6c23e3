"""Fit the weights of `recall/refine.py` that read where a text stands: last in its exchange, on the way, a question, …

A listwise logistic fit (the first choice of Plackett and Luce): of the best candidates of a question, the score is to
put one that answers first. The other numbers of recall stay. Each set weighs the same, coding in a project and in all
projects as two. What is fitted on: the half of the coding questions that may be seen, the shipped questions, the rules
that changed and sde-bench; all other sets, and the other half, only measure. The same input gives the same weights.

    python -m benchmarks.places TRANSCRIPTS [SET …]      # folders of the normalised layout, for sde_dev and to measure
    python -m benchmarks.places … --without NAME         # leave a set out of the fit
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.common import save, scratch, table
from perdure.connections import pending_rows
from perdure.eval.block_sets import BlockItem, BlockQuestion, answers, find_half, open_set
from perdure.home import Home
from perdure.index.fuse import rank_ids
from perdure.recall import plan as planning
from perdure.recall.index_candidates import IndexCandidates
from perdure.recall.rank import list_texts_to_embed, rank
from perdure.recall.refine import N_REFINED, read_features
from perdure.recall.tuning import DEFAULT
from perdure.types import Filters

ROOT = Path(__file__).parents[1]
FITTED = ("on_the_way", "concluded", "answered", "called", "questioned")
FIT_SETS = ("coding in project, dev", "coding everywhere, dev", "shipped", "amended", "sde_dev")
RIDGE = 0.02  # of the weights' squares
N_STEPS, STEP = 400, 0.015  # of Adam, which reaches the same place from any start
_FIRST, _SECOND = 0.9, 0.999  # Adam's decay of the gradient's mean and of its square


class RankedQuestion(NamedTuple):
    """The best candidates of one question."""

    given: np.ndarray  # [n] scores by the weights that stay, as shares of the best
    features: np.ndarray  # [n, len(FITTED)]
    is_answer: np.ndarray  # [n] bool


def read_question(home: Home, question: BlockQuestion, now: datetime, *, everywhere: bool) -> RankedQuestion | None:
    """Rank one question as recall does, and read the features of its best candidates; None without any."""
    plan = planning.plan(question.text, now=now)
    index, connections = home.index(), home.connections
    filters: Filters = planning.choose_filters(
        plan.message,
        project=None if everywhere else question.project,
        projects=home.runs.names("project"),
        all_projects=everywhere,
    )
    pending, _ = connections.ask_vectors(index, list_texts_to_embed(plan), None)
    vectors = pending_rows(pending)
    with index.begin_read():
        candidates = IndexCandidates(index, home.principal, filters, pending.space if pending else None)
        ranking = rank(candidates, plan, vectors, DEFAULT)
        best_ids = rank_ids(ranking.scores)[:N_REFINED]
        features = read_features(candidates, plan, ranking, best_ids)
        texts = {turn_id: detail.text for turn_id, detail in candidates.get_details(list(features)).items()}
    if not features:
        return None
    best = ranking.scores[best_ids[0]]
    given = [
        ranking.scores[turn_id] / best
        + sum(getattr(DEFAULT, name) * value for name, value in values.items() if name not in FITTED)
        for turn_id, values in features.items()
    ]
    rows = [[values.get(name, 0.0) for name in FITTED] for values in features.values()]
    is_answer = [answers(question, BlockItem(turn_id, texts[turn_id], 0)) for turn_id in features]
    return RankedQuestion(np.array(given), np.array(rows), np.array(is_answer))


def read_set(sources: Sequence[Path], folder: Path) -> Iterator[tuple[str, RankedQuestion]]:
    """Yield (name of the set, half and scope, question) for all answerable questions of one set."""
    name = sources[0].stem
    with open_set(sources, folder, vectors=True) as block_set:
        for question in block_set.questions:
            if question.deserves_silence:
                continue
            home, now = block_set.homes[question.user], block_set.asked_at.get(question.user) or datetime.now(UTC)
            scopes = {"in project": False, "everywhere": True} if question.project else {"": True}
            for scope, everywhere in scopes.items():
                ranked = read_question(home, question, now, everywhere=everywhere)
                if ranked is not None:
                    yield f"{name} {scope}, {find_half(question.text)}" if scope else name, ranked


def fit(sets: Sequence[Sequence[RankedQuestion]]) -> dict[str, float]:
    """Return the weight of each feature. The scale of all scores is fitted too, and left out."""
    questions = [
        (question, 1 / len(questions) / len(sets))
        for questions in sets
        for question in questions
        if question.is_answer.any()
    ]
    parameters = np.array([*(0.0 for _ in FITTED), np.log(5.0)])
    mean, square = np.zeros_like(parameters), np.zeros_like(parameters)
    for step in range(1, N_STEPS + 1):
        gradient = np.append(RIDGE * parameters[:-1], 0.0)
        scale = float(np.exp(parameters[-1]))
        for question, share in questions:
            scores = scale * (question.given + question.features @ parameters[:-1])
            shares = np.exp(scores - scores.max())
            shares /= shares.sum()
            wanted = shares * question.is_answer
            difference = shares - wanted / wanted.sum()
            gradient[:-1] += share * scale * (question.features.T @ difference)
            gradient[-1] += share * float(scores @ difference)
        mean = _FIRST * mean + (1 - _FIRST) * gradient
        square = _SECOND * square + (1 - _SECOND) * gradient**2
        parameters -= STEP * (mean / (1 - _FIRST**step)) / (np.sqrt(square / (1 - _SECOND**step)) + 1e-8)
    return {name: round(float(weight), 3) for name, weight in zip(FITTED, parameters[:-1], strict=True)}


def measure(questions: Sequence[RankedQuestion], weights: Mapping[str, float]) -> dict[str, float]:
    """Return in per cent how often an answer is first, among three and among eight candidates."""
    numbers = np.array([weights[name] for name in FITTED])
    places = []
    for question in questions:
        order = np.argsort(-(question.given + question.features @ numbers), kind="stable")
        hits = np.flatnonzero(question.is_answer[order])
        places.append(int(hits[0]) + 1 if len(hits) else N_REFINED + 1)
    return {f"in {k}": round(100 * sum(place <= k for place in places) / len(places), 1) for k in (1, 3, 8)}


def main() -> None:
    """Fit, and show what the weights do to every set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "transcripts", type=Path, help="the transcripts that benchmarks/questions/coding.jsonl asks about"
    )
    parser.add_argument("sets", type=Path, nargs="*", help="folders in the normalised layout")
    parser.add_argument("--without", default="", help="a set that is left out of the fit, by the beginning of its name")
    options = parser.parse_args()
    sources = [
        [ROOT / "benchmarks/questions/coding.jsonl", options.transcripts],
        [ROOT / "src/perdure/eval/shipped"],
        [ROOT / "benchmarks/questions/amended"],
        *([folder] for folder in options.sets),
    ]
    by_set: dict[str, list[RankedQuestion]] = {}
    with scratch() as folder:
        for n, names in enumerate(sources):
            (folder / str(n)).mkdir()
            for name, ranked in read_set(names, folder / str(n)):
                by_set.setdefault(name, []).append(ranked)
    chosen = [
        name for name in FIT_SETS if name in by_set and not (options.without and name.startswith(options.without))
    ]
    weights = fit([by_set[name] for name in chosen])
    ways: dict[str, Callable[[Sequence[RankedQuestion]], dict[str, float]]] = {
        "without places": lambda questions: measure(questions, dict.fromkeys(FITTED, 0.0)),
        "as they are": lambda questions: measure(questions, {name: getattr(DEFAULT, name) for name in FITTED}),
        "fitted": lambda questions: measure(questions, weights),
    }
    rows = [
        {"set": name, "n": len(questions), "weights": way, **run(questions)}
        for name, questions in by_set.items()
        for way, run in ways.items()
    ]
    table(f"fitted on {', '.join(chosen)}: {weights}", rows)
    save("places", {"fitted_on": chosen, "weights": weights, "rows": rows})


if __name__ == "__main__":
    main()
