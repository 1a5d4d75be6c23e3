"""What reading by a grant costs beside the owner's own reading, by the share of the chunks that the grant lets through.

One owner's index through the real projection and write path, with random vectors; a reader with nothing of their own
asks under a grant of a project of 1 %, one of 40 %, and of the agent (everything). Every round asks each of them and
the owner the same query, so that what else the machine does touches all alike. Beside it: the first question after a
change of the index, which makes the table of what may be read anew.

    python -m benchmarks.visible --chunks 100000
    python -m benchmarks.visible --chunks 1000000 --keep /var/tmp/bench      # reuses the index it finds there
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import corpus
from benchmarks.common import save, spread, table
from benchmarks.latency import fill
from benchmarks.search import ADA, build, folder
from perdure.index import keyword, store, vector_search, visibility
from perdure.types import Facets, Filters, Grant, Principal

N_QUERIES = 30
DIMENSION = 384
SCOPES = (("1 %", "project", "/work/p1"), ("40 %", "project", "/work/p0"), ("all", "agent", "default"))


def readers() -> dict[str, Principal]:
    """The owner, and readers by what they may read."""
    grants = {name: Grant(name, ADA.user, "bob", scope, value) for name, scope, value in SCOPES}  # type: ignore[arg-type]
    return {"owner": ADA, **{name: Principal("bob", (grant,)) for name, grant in grants.items()}}


def paired(asked: list[Any], ask: Callable[[Principal, Any], object]) -> list[dict[str, Any]]:
    """CPU milliseconds by reader, and the median of the ratios to the owner's same question."""
    took: dict[str, list[float]] = {name: [] for name in readers()}
    for question in asked:
        for name, principal in readers().items():
            ask(principal, question)  # makes the table, warms the pages
            began = time.process_time()
            ask(principal, question)
            took[name].append((time.process_time() - began) * 1000)
    return [
        {"may read": name, "cpu p50": spread(ms)["p50"], "cpu p95": spread(ms)["p95"],
         "times the owner's": round(statistics.median(a / b for a, b in zip(ms, took["owner"], strict=True)), 2)}
        for name, ms in took.items()
    ]  # fmt: skip


def first_questions(index: store.IndexConnection) -> list[dict[str, Any]]:
    rows = []
    for name, principal in readers().items():
        ms = []
        for _ in range(5):
            index.temp_cache = None
            began = time.process_time()
            visibility.get_read_scope(index, principal)
            ms.append((time.process_time() - began) * 1000)
        rows.append({"may read": name, "cpu p50": spread(ms)["p50"], "cpu max": spread(ms)["max"]})
    return rows


def measure(
    index: store.IndexConnection, space: vector_search.VectorSpace, made: corpus.Corpus
) -> dict[str, list[dict[str, Any]]]:
    everything = Filters()
    found: dict[str, list[dict[str, Any]]] = {}
    for kind in ("2-3 words", "question", "frequent words"):
        asked = corpus.queries(made, kind, N_QUERIES)
        found[f"words: {kind}"] = paired(
            asked, lambda who, q: keyword.search(index, who, q, filters=everything, limit=20)
        )
    found["facets"] = paired(corpus.queries(made, "2-3 words", N_QUERIES), lambda who, q: facets(index, who, q))
    rng = np.random.default_rng(3)
    vectors = rng.standard_normal((N_QUERIES, 1, DIMENSION)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)

    def near(who: Principal, query: Any) -> object:
        with index.begin_read():
            return space.find_nearest(
                index, query, filters=everything, k=96, read_scope=visibility.get_read_scope(index, who)
            )

    found["vectors"] = paired(list(vectors), near)
    found["the first question after a change"] = first_questions(index)
    return found


def facets(index: store.IndexConnection, who: Principal, query: str) -> Facets:
    return keyword.count_facets(index, who, query, filters=Filters())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--keep", type=Path, help="folder for the index, reused by the next run")
    options = parser.parse_args()
    made = corpus.make()
    with folder(options.keep) as place:
        path = place / f"visible-{options.chunks}.db"
        if not path.exists():
            build(path, made, options.chunks, 300, (("ada", 1.0),))
        index = store.IndexConnection(path)
        space = fill(index, vector_search.SlabFiles(place), DIMENSION, "random")
        result = measure(index, space, made)
        index.close()
    for name, rows in result.items():
        table(f"{name}, ms, {options.chunks:,} chunks", rows)
    save(f"visible-{options.chunks}", result)


if __name__ == "__main__":
    main()
