"""The vector leg by size and filter, beside what reading the same bytes costs; opening, appending, deleting.

Slabs are filled through the real write path (index.embed.write) with synthetic vectors (clustered, length 1) of
synthetic chunks; words and archive are left out. Milliseconds of one warm process, wall and CPU, k = 24: the whole of
`vector.near` (filter, scan, ordering in float). "floor" is one pass over the mapped int8 rows that are visible.

    python -m benchmarks.vector --chunks 100000
    python -m benchmarks.vector --chunks 1000000 --keep /var/tmp/bench        # reuses what it finds there
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import save, scratch, size_of, spread, table, timed
from perdure.index import embed, store, vector_search
from perdure.index import slab as scan
from perdure.index.embed import PendingChunk
from perdure.index.slab import ChunkFields
from perdure.models.embedder import to_unit_length
from perdure.types import Filters

DIMENSION = 384
K = 24
N_QUERIES = 60
_BATCH = 16_384
PROJECTS = (("/w/one-percent", 0.01), ("/w/forty-percent", 0.40), ("/w/rest", 0.59))
FILTERS = (
    ("all visible", Filters()),
    ("project of 40 %", Filters(projects=("/w/forty-percent",))),
    ("project of 1 %", Filters(projects=("/w/one-percent",))),
    ("role user (50 %)", Filters(roles=("user",))),
)


def vectors(dice: np.random.Generator, centres: np.ndarray, n: int) -> np.ndarray:
    return to_unit_length(
        centres[dice.integers(0, len(centres), n)] + dice.normal(size=(n, DIMENSION)).astype(np.float32)
    )


def build(home: Path, n_chunks: int, centres: np.ndarray) -> dict[str, Any]:
    """An index with one owner's chunks and their vectors; returns what appending took."""
    index, shelf, dice = store.open_current(home, writable=True, create=True), vector_search.SlabFiles(home), _dice(1)
    with index.begin_write() as db:
        user, kind = index.add_name("user", "ada"), index.add_name("kind", "text")
        names = {role: index.add_name("role", role) for role in ("user", "assistant")}
        other = [index.add_name(dimension, "x") for dimension in ("conversation", "runtime", "machine", "agent")]
        projects = [index.add_name("project", path) for path, _ in PROJECTS]
        db.execute("UPDATE name SET n_chunks = ? WHERE id = ?", (n_chunks, user))
        slot = vector_search.find_or_add_slab(index, user, f"synthetic@{DIMENSION}#0", DIMENSION)
    wall_s = cpu_s = 0.0
    for first in range(1, n_chunks + 1, _BATCH):
        n = min(_BATCH, n_chunks + 1 - first)
        chosen = dice.choice(projects, n, p=[share for _, share in PROJECTS]).tolist()
        waiting = []
        with index.begin_write() as db:
            for key, project in zip(range(first, first + n), chosen, strict=True):
                role = names["user" if key % 2 else "assistant"]
                row = (key, key, 0, key * 7919 % 2**31, user, 1, project, *other, role, kind, key)
                db.execute("INSERT INTO chunk VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)", row)
                waiting.append(PendingChunk(ChunkFields(key, row[3], key, (1, project, *other, role, kind)), ""))
        made = vectors(dice, centres, n)
        with timed() as clock:
            embed.write_vectors(index, shelf, slot, waiting, made, last_listed=first + n - 1, n_left=0)
        wall_s, cpu_s = wall_s + clock.wall_s, cpu_s + clock.cpu_s
    index.checkpoint()
    index.close()
    per = 1e6 / n_chunks
    return {"append_us_wall": round(wall_s * per, 2), "append_us_cpu": round(cpu_s * per, 2)}


def _dice(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def measured(ask: Callable[[int], object], n: int = N_QUERIES) -> dict[str, Any]:
    walls, cpus = [], []
    for number in range(5):
        ask(number)
    for number in range(n):
        wall, cpu = time.perf_counter(), time.process_time()
        ask(number)
        walls.append((time.perf_counter() - wall) * 1000)
        cpus.append((time.process_time() - cpu) * 1000)
    wall_spread, cpu_spread = spread(walls), spread(cpus)
    return {
        "wall p50": wall_spread["p50"], "wall p95": wall_spread["p95"], "wall min": round(min(walls), 2),
        "cpu p50": cpu_spread["p50"], "cpu p95": cpu_spread["p95"],
    }  # fmt: skip


def searches(home: Path, centres: np.ndarray) -> list[dict[str, Any]]:
    """One row a filter, number of queries and kernel."""
    index, shelf = store.open_current(home, writable=False), vector_search.SlabFiles(home)
    (slot,) = vector_search.list_slabs(index)
    slab = shelf.open_slab(index, slot)
    queries = vectors(_dice(9), centres, N_QUERIES * 4)
    segments = list(slab.iter_segments(slot.n_rows))
    floor = measured(lambda _: [s.values.view(np.int64).sum() for s in segments], 15)
    rows = [{"": "floor: one pass over all int8 rows", "kernel": "numpy sum", "queries": "", **floor}]
    fastest = scan.choose_fastest_kernel()
    kernels = [("numpy", scan.multiply_with_numpy)] + (
        [("simsimd", fastest)] if fastest is not scan.multiply_with_numpy else []
    )
    for name, kernel in kernels:
        with _kernel(kernel):
            for label, filters in FILTERS:
                for n in (1, 4) if filters == Filters() else (1,):

                    def ask(number: int, filters: Filters = filters, n: int = n) -> object:
                        some = queries[number * n : number * n + n]
                        return vector_search.find_nearest(index, slab, slot, some, filters=filters, k=K)

                    rows.append({"": label, "kernel": name, "queries": n, **measured(ask)})
    index.close()
    return rows


@contextlib.contextmanager
def _kernel(kernel: scan.Kernel) -> Iterator[None]:
    before = scan.choose_fastest_kernel
    scan.choose_fastest_kernel = lambda: kernel
    try:
        yield
    finally:
        scan.choose_fastest_kernel = before


_OPENING = """
import time, sys, numpy as np, resource
clock = time.process_time if sys.argv[2] == "cpu" else time.perf_counter
begin = clock()
from pathlib import Path
from perdure.index import store, vector_search
from perdure.types import Filters
loaded = clock()
home = Path(sys.argv[1])
index, shelf = store.open_current(home, writable=False), vector_search.SlabFiles(home)
(slot,) = vector_search.list_slabs(index)
slab = shelf.open_slab(index, slot)
list(slab.iter_segments(slot.n_rows))
opened = clock()
query = np.zeros((1, slot.dimension), np.float32); query[0, 0] = 1
vector_search.find_nearest(index, slab, slot, query, filters=Filters(), k=24)
print((loaded - begin) * 1000, (opened - loaded) * 1000, (clock() - opened) * 1000,
      resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def opening(home: Path, clock: str) -> dict[str, Any]:
    """A fresh process, the file's pages in memory: wall or CPU milliseconds of imports (numpy before them), of
    opening and mapping everything, and of the first scan; the median of seven.
    """
    found = []
    for _ in range(7):
        done = subprocess.run(
            [sys.executable, "-c", _OPENING, str(home), clock], capture_output=True, text=True, check=True
        )
        found.append([float(value) for value in done.stdout.split()])
    best = [sorted(column)[len(column) // 2] for column in zip(*found, strict=True)]
    names = ("import ms", "open and map ms", "first scan ms", "peak RSS MB")
    return {name: round(value, 1) for name, value in zip(names, best, strict=True)}


def changes(home: Path, centres: np.ndarray) -> dict[str, Any]:
    """Small appends, as captures make them, and deletions as forgetting makes them; milliseconds with their fsync."""
    index, shelf = store.open_current(home, writable=True), vector_search.SlabFiles(home)
    (slot,) = vector_search.list_slabs(index)
    last, _ = index.select("SELECT max(id), count(*) FROM chunk")[0]
    made = vectors(_dice(4), centres, 20)
    with index.begin_write() as db:
        for i in range(1, 21):
            db.execute("INSERT INTO chunk SELECT ?, turn, n, tie, user, run, project, conversation, runtime, machine, "
                       "agent, role, kind, stated_ms FROM chunk WHERE id = 1", (last + i,))  # fmt: skip

    def append(i: int) -> None:
        item = PendingChunk(ChunkFields(last + i, i, 0, (1,) * 8), "")
        embed.write_vectors(index, shelf, slot, [item], made[i - 1 : i], last_listed=last + i, n_left=0)

    appended = []
    for i in range(1, 21):
        with timed() as clock:
            append(i)
        appended.append(clock.wall_s * 1000)
    wiped = []
    for i in range(1, 21):
        with timed() as clock:
            with index.begin_write() as db:
                db.execute("INSERT INTO hole(slab, row) SELECT slab, row FROM vector WHERE chunk = ?", (last + i,))
                db.execute("DELETE FROM vector WHERE chunk = ?", (last + i,))
                db.execute("DELETE FROM chunk WHERE id = ?", (last + i,))
            embed.wipe_removed(index, shelf)
        wiped.append(clock.wall_s * 1000)
    index.checkpoint()
    index.close()
    return {"append 1, ms": spread(appended), "delete and wipe 1, ms": spread(wiped)}


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--keep", type=Path, help="build here, and reuse what is here")
    options = parser.parse_args()
    centres = _dice(0).normal(size=(500, DIMENSION)).astype(np.float32)
    with contextlib.ExitStack() as stack:
        home = (options.keep / f"vector-{options.chunks}") if options.keep else stack.enter_context(scratch())
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        built = {} if store.find_current_file(home) else build(home, options.chunks, centres)
        rows = searches(home, centres)
        table(f"{options.chunks:,} chunks of {DIMENSION} numbers, k = {K}; milliseconds", rows)
        result = {"build": built, "searches": rows, "fresh process, wall": opening(home, "wall"),
                  "fresh process, cpu": opening(home, "cpu"), "changes": changes(home, centres),
                  "slab_bytes": size_of(home / "vectors")}  # fmt: skip
        for name in ("build", "fresh process, wall", "fresh process, cpu", "changes", "slab_bytes"):
            print(f"  {name}: {result[name]}")
        save(f"vector-{options.chunks}", result)


if __name__ == "__main__":
    main()
