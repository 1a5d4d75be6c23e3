"""Keyword search by size, kind of query and filter; and what the budget for frequent words costs and brings.

The index is filled through the real projection and write path (index.project, index.write) with synthetic runs;
only the archive in front of it is left out. Figures are milliseconds of one warm process, CPU and wall, beside a
plain FTS5 query (stop words dropped, all other terms joined by OR) of the same words on the same file.

    python -m benchmarks.search --chunks 100000
    python -m benchmarks.search --chunks 1000000 --chars 300 --keep /var/tmp/bench     # reuses what it finds there
    python -m benchmarks.search --chunks 1000000 --sweep                               # the budget
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import corpus
from benchmarks.common import save, scratch, spread, table, timed
from perdure import text
from perdure.index import keyword, store
from perdure.index.projection import project_run
from perdure.index.write import write_run
from perdure.types import Filters, Principal

ADA = Principal("ada")
N_QUERIES = 60
_BATCH_CHUNKS = 10_000
FILTERS = (
    ("none", Filters()),
    ("project of 1 %", Filters(projects=("/work/p1",))),
    ("project of 40 %", Filters(projects=("/work/p0",))),
    ("one conversation", Filters(conversations=("s3",))),
    ("role user (50 %)", Filters(roles=("user",))),
    ("agent (all)", Filters(agents=("default",))),
)
BUDGETS = (0.005, 0.01, 0.02, 0.03, 0.04, 0.08, 0.16, 1.0)


def build(
    place: Path,
    made: corpus.Corpus,
    n_chunks: int,
    n_chars: int,
    owners: tuple[tuple[str, float], ...],
    n_conversations: int = 0,
) -> dict[str, Any]:
    """Fill an index file with so many chunks; returns what that took. n_conversations: as for `corpus.runs`."""
    index = store.IndexConnection(place, create=True)
    source = corpus.runs(made, n_chunks, n_chars, owners=owners, n_conversations=n_conversations)
    n_done = n_input = 0
    spent = {"project": 0.0, "write": 0.0}
    while n_done < n_chunks:
        batch = []
        n_batch = 0
        while n_batch < _BATCH_CHUNKS and (item := next(source, None)):
            batch.append(item)
            n_batch += len(item[1].turns)
        n_input += sum(len(turn.parts[0].text.encode()) for _, parsed in batch for turn in parsed.turns)
        with timed() as clock:
            rows = [project_run(run, parsed) for run, parsed in batch]
        spent["project"] += clock.cpu_s
        with timed() as clock, index.begin_write():
            n_done += sum(write_run(index, run, parsed, row) for (run, parsed), row in zip(batch, rows, strict=True))
        spent["write"] += clock.cpu_s
    with timed() as clock:  # as the job `pack` does at night
        index.merge_words()
    spent["merge"] = clock.cpu_s
    index.db.pragma("wal_checkpoint(TRUNCATE)")
    index.close()
    n_bytes = place.stat().st_size
    return {
        "chunks": n_done, "input_bytes": n_input, "index_bytes": n_bytes, "ratio": round(n_bytes / n_input, 3),
        "project_cpu_s": round(spent["project"], 1), "write_cpu_s": round(spent["write"], 1),
        "merge_cpu_s": round(spent["merge"], 1),
    }  # fmt: skip


def measured(queries: Sequence[str], ask: Callable[[str], object]) -> dict[str, Any]:
    """Milliseconds of one query each, CPU and wall, after one round to warm up."""
    walls, cpus = [], []
    for query in queries[:5]:
        ask(query)
    for query in queries:
        wall, cpu = time.perf_counter(), time.process_time()
        ask(query)
        walls.append((time.perf_counter() - wall) * 1000)
        cpus.append((time.process_time() - cpu) * 1000)
    cpu_ms, wall_ms = spread(cpus), spread(walls)
    return {
        "cpu p50": cpu_ms["p50"], "cpu p95": cpu_ms["p95"], "cpu max": cpu_ms["max"],
        "wall p50": wall_ms["p50"], "wall p95": wall_ms["p95"], "wall max": wall_ms["max"],
    }  # fmt: skip


def plain(index: store.IndexConnection, query: str, limit: int = 20) -> list[Any]:
    """The baseline: every word that is no stop word, joined by OR, ranked by FTS5 alone."""
    terms = text.without_stopwords(text.query_terms(query))
    match = " OR ".join(map(text.fts_quote, terms))
    number = index.find_name("user", ADA.user)
    words = f'"words_{number}"'
    return index.select(f"SELECT rowid FROM {words} WHERE {words} MATCH ? ORDER BY bm25({words}) LIMIT {limit}", match)


def by_kind(index: store.IndexConnection, made: corpus.Corpus) -> list[dict[str, Any]]:
    found, everything = [], []
    for kind in corpus.QUERIES:
        asked = corpus.queries(made, kind, N_QUERIES)
        everything += asked
        ours = measured(asked, lambda q: keyword.search(index, ADA, q, filters=Filters(), limit=20))
        base = measured(asked, lambda q: plain(index, q))
        n_dropped = sum(bool(keyword.search(index, ADA, q, filters=Filters(), limit=20).dropped) for q in asked)
        found.append({"queries": kind, **ours, "plain p50": base["cpu p50"], "plain p95": base["cpu p95"],
                      "with words dropped": f"{n_dropped / len(asked):.0%}"})  # fmt: skip
    ours = measured(everything, lambda q: keyword.search(index, ADA, q, filters=Filters(), limit=20))
    base = measured(everything, lambda q: plain(index, q))
    return [*found, {"queries": "all of these", **ours, "plain p50": base["cpu p50"], "plain p95": base["cpu p95"]}]


def by_filter(index: store.IndexConnection, made: corpus.Corpus) -> list[dict[str, Any]]:
    asked = [q for kind in ("2-3 words", "question", "frequent words") for q in corpus.queries(made, kind, 30)]
    rows = []
    for name, filters in FILTERS:
        rows.append({"filter": name, **measured(
            asked, lambda q, f=filters: keyword.search(index, ADA, q, filters=f, limit=20))})  # fmt: skip
    rows.append({"filter": "project of 1 %, no words", **measured(
        ["", " "] * 10, lambda q: keyword.search(index, ADA, q, filters=FILTERS[1][1], limit=20))})  # fmt: skip
    return rows


def by_owner(made: corpus.Corpus, n_chunks: int, n_chars: int) -> list[dict[str, Any]]:
    """The same corpus shared by three owners of 59, 40 and 1 %."""
    asked = [q for kind in ("2-3 words", "question", "frequent words") for q in corpus.queries(made, kind, 30)]
    rows = []
    with scratch() as place:
        build(place / "index-1.db", made, n_chunks, n_chars, (("ada", 0.59), ("bob", 0.4), ("eve", 0.01)))
        index = store.IndexConnection(place / "index-1.db")
        for name, share in (("eve", "1 %"), ("bob", "40 %"), ("ada", "59 %")):
            principal = Principal(name)
            rows.append({"owner holds": share, **measured(
                asked, lambda q, p=principal: keyword.search(index, p, q, filters=Filters(), limit=20))})  # fmt: skip
        index.close()
    return rows


def sweep(index: store.IndexConnection, made: corpus.Corpus) -> list[dict[str, Any]]:
    """Time by budget, and how much of the exact top 10 (no budget) remains."""
    asked = [q for kind in ("2-3 words", "question", "frequent words") for q in corpus.queries(made, kind, 30)]
    before = keyword.BUDGET_SHARE, keyword.BUDGET_MIN
    exact: dict[str, set[str]] = {}
    rows = []
    try:
        for share in reversed(BUDGETS):
            keyword.BUDGET_SHARE, keyword.BUDGET_MIN = share, 1
            top = {
                q: {h.turn_id for h in keyword.search(index, ADA, q, filters=Filters(), limit=10).hits} for q in asked
            }
            exact = exact or top
            kept = [len(top[q] & exact[q]) / max(1, len(exact[q])) for q in asked]
            took = measured(asked, lambda q: keyword.search(index, ADA, q, filters=Filters(), limit=20))
            rows.append({"budget": f"{share:.1%}", **took, "of the exact top 10": f"{sum(kept) / len(kept):.1%}"})
    finally:
        keyword.BUDGET_SHARE, keyword.BUDGET_MIN = before
    return rows


@contextlib.contextmanager
def folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with scratch() as place:
            yield place
    else:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--chars", type=int, default=300, help="of an average chunk")
    parser.add_argument("--sweep", action="store_true", help="vary the budget for frequent words")
    parser.add_argument("--keep", type=Path, help="folder for the index, reused by the next run")
    options = parser.parse_args()
    made = corpus.make()
    result: dict[str, Any] = {}
    with folder(options.keep) as place:
        path = place / f"search-{options.chunks}-{options.chars}.db"
        if not path.exists():
            result["build"] = build(path, made, options.chunks, options.chars, (("ada", 1.0),))
            table("build (synthetic runs through index.project and index.write)", [result["build"]])
        index = store.IndexConnection(path)
        size = f"{options.chunks:,} chunks of {options.chars} characters"
        result["kinds"] = by_kind(index, made)
        table(f"keyword search, ms, {size}; plain: FTS5 alone, CPU", result["kinds"])
        result["filters"] = by_filter(index, made)
        table(f"with filters, ms, {size}", result["filters"])
        if options.sweep:
            result["sweep"] = sweep(index, made)
            table("budget for frequent words, ms", result["sweep"])
        index.close()
    if options.chunks <= 100_000:
        result["owners"] = by_owner(made, options.chunks, options.chars)
        table(f"by owner, ms, {size}", result["owners"])
    save(f"search-{options.chunks}-{options.chars}", result)


if __name__ == "__main__":
    main()
