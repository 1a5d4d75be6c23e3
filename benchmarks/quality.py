"""How good keyword search is, through the whole path: capture, parse, project, index, search with a filter.

Each document becomes one message of its group's conversation; a query searches that conversation; the hits are
mapped back to documents by their turn ids, and scored by the functions of the sets' own score.py, beside its
baselines. Without the sets (they do not ship with the project) it says so and does nothing.

    python -m benchmarks.quality                     # the default configuration beside the baselines
    python -m benchmarks.quality --vary              # and what each choice costs or brings
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import perdure
from benchmarks.common import save, scratch, table, timed
from perdure import text
from perdure.identity import make_turn_id
from perdure.index import keyword, projection
from perdure.index.match_plan import MatchPlan, plan_match
from perdure.types import Filters, Source

DATA = Path(__file__).parents[2] / "shared" / "data" / "retrieval"
SETS = ("locomo_dev", "beam_dev", "memdaily_zh_dev")
BASELINES = ("fts5-porter", "fts5-trigram", "random")
SHOWN = ("R@5", "R@10", "All@10", "MRR", "nDCG@10")
APART = {"locomo_dev": ("5-adversarial",)}  # questions without an answer: a test of staying silent
K = 20
_FORMATS = ("%I:%M %p on %d %B, %Y", "%B-%d-%Y", "%Y年%m月%d日 %H:%M")


@dataclass(frozen=True)
class Retrieval:
    """One set: documents in groups, and questions to a group."""

    name: str
    docs: list[dict[str, Any]]
    queries: list[dict[str, Any]]


def load(place: Path, name: str) -> Retrieval:
    return Retrieval(name, _rows(place / name / "docs.jsonl"), _rows(place / name / "queries.jsonl"))


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def scorer(place: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("perdure_bench_score", place / "score.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fill(home: perdure.Home, data: Retrieval) -> dict[str, str]:
    """Capture every group as one conversation; returns turn id → document id."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for doc in data.docs:
        groups.setdefault(doc["group"], []).append(doc)
    ids: dict[str, str] = {}
    for group, docs in groups.items():
        source = Source(home.user, "messages", group)
        body = bytearray()
        for doc in docs:
            ids[make_turn_id(source, len(body))] = doc["id"]
            body += _line(doc)
        home.capture(bytes(body), runtime="messages", session=group)
    home.upkeep.catch_up()
    return ids


def _line(doc: dict[str, Any]) -> bytes:
    """One message: who spoke is its role, or stands in the text as it does in the set; when it was said is its time."""
    role = doc["speaker"] if doc["speaker"] in ("user", "assistant") else "user"
    message = {"role": role, "content": doc["text"].removeprefix(f"{role}: ")}
    stated_at = _instant(doc["ts"])
    if stated_at:
        message["timestamp"] = stated_at
    return json.dumps(message, ensure_ascii=False).encode() + b"\n"


def _instant(stamp: str) -> str | None:
    plain = re.sub(r" 周\S+", "", stamp)
    for form in _FORMATS:
        with contextlib.suppress(ValueError):
            return datetime.strptime(plain, form).isoformat() + "Z"
    return None


def ranking(home: perdure.Home, data: Retrieval, ids: dict[str, str], *, filtered: bool = True) -> list[dict[str, Any]]:
    """The documents found for each question, best first."""
    found = []
    for query in data.queries:
        filters = Filters(conversations=(query["group"],)) if filtered else Filters()
        hits = home.search(query["query"], filters=filters, limit=K).hits
        found.append({"qid": query["qid"], "ranked": [ids[hit.turn_id] for hit in hits]})
    return found


def scores(score: ModuleType, run: list[dict[str, Any]], data: Retrieval) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = score.score(run, data.queries, exclude=APART.get(data.name, ()))[0]
    apart = [q for q in data.queries if q["category"] in APART.get(data.name, ())]
    if apart:
        found.update({k: v for k, v in score.score(run, apart)[0].items() if k != "ALL"})
    return found


def row(label: str, measured: dict[str, float]) -> dict[str, Any]:
    return {"": label, "n": measured["n"], **{name: f"{measured[name] * 100:.1f}" for name in SHOWN}}


@contextlib.contextmanager
def changed(place: Any, **values: Any) -> Iterator[None]:
    """Names of a module set to other values, for one variant of the experiment."""
    with contextlib.ExitStack() as stack:
        for name, value in values.items():
            stack.enter_context(mock.patch.object(place, name, value))
        yield


def _all_terms(terms: Any) -> tuple[str, ...]:
    return tuple(terms)


VARIANTS: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "default": contextlib.nullcontext,
    "stop words kept": lambda: changed(text, without_stopwords=_all_terms),
    "chunks of 500 characters": lambda: changed(projection, CHUNK_CHARS=500, OVERLAP_CHARS=50),
    "chunks of 1000 characters": lambda: changed(projection, CHUNK_CHARS=1000, OVERLAP_CHARS=100),
    "chunks of 4000 characters": lambda: changed(projection, CHUNK_CHARS=4000, OVERLAP_CHARS=400),
    "whole turns": lambda: changed(projection, CHUNK_CHARS=1_000_000, OVERLAP_CHARS=0),
}
BUDGETS = (1.0, 0.1, 0.04, 0.02, 0.01)


@contextlib.contextmanager
def rarest_only(share: float) -> Iterator[None]:
    """What was tried first: the rarest terms that the budget allows, at least one; the others count nowhere."""

    def chosen(counts: dict[str, int], *, budget: float, n_chunks: int) -> MatchPlan:
        found = plan_match(counts, budget=budget, n_chunks=n_chunks)
        rest = (*found.common, *found.dropped)
        return found if not rest else MatchPlan(found.rare or rest[:1], (), rest)

    with changed(keyword, BUDGET_SHARE=share, BUDGET_MIN=1, plan_match=chosen):
        yield


def measure(score: ModuleType, data: Retrieval, *, filtered: bool = True) -> dict[str, dict[str, float]]:
    with scratch() as place, perdure.open(place / "home") as home:
        ids = fill(home, data)
        return scores(score, ranking(home, data, ids, filtered=filtered), data)


def baselines(score: ModuleType, place: Path, data: Retrieval) -> dict[str, dict[str, dict[str, float]]]:
    found = {}
    for engine in BASELINES:
        run, _ = score.baseline(str(place / data.name), engine, K)
        found[engine] = scores(score, run, data)
    return found


def vary(score: ModuleType, data: Retrieval) -> dict[str, dict[str, dict[str, float]]]:
    """The same questions with one choice changed at a time, among all groups' documents where that is harder."""
    found = {}
    for name, variant in VARIANTS.items():
        with variant():
            found[name] = measure(score, data)
    with scratch() as place, perdure.open(place / "home") as home:
        ids = fill(home, data)
        for share in BUDGETS:
            with changed(keyword, BUDGET_SHARE=share, BUDGET_MIN=1):
                run = ranking(home, data, ids, filtered=False)
                found[f"no filter, budget {share:.1%}"] = scores(score, run, data)
            with rarest_only(share):
                run = ranking(home, data, ids, filtered=False)
                found[f"no filter, budget {share:.1%}, other words dropped"] = scores(score, run, data)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with the sets and score.py")
    parser.add_argument("--vary", action="store_true", help="measure what each choice costs or brings")
    options = parser.parse_args()
    if not (options.data / "score.py").exists():
        print(f"quality: skipped, there is no {options.data}/score.py")
        return
    score = scorer(options.data)
    result: dict[str, Any] = {}
    for name in SETS:
        data = load(options.data, name)
        with timed() as clock:
            ours = measure(score, data)
        others = baselines(score, options.data, data)
        rows = [row("perdure", ours["ALL"])] + [row(engine, found["ALL"]) for engine, found in others.items()]
        table(f"{name}: {len(data.docs)} documents, all categories ({clock.wall_s:.1f} s)", rows)
        table(f"{name}: by category", [row(c, ours[c]) for c in sorted(ours) if c != "ALL"])
        result[name] = {"perdure": ours, **others}
        if options.vary:
            varied = vary(score, data)
            table(f"{name}: one choice changed", [row(label, found["ALL"]) for label, found in varied.items()])
            result[name]["varied"] = varied
    save("quality", result)


if __name__ == "__main__":
    main()
