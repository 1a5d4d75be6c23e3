"""Opening an index: a new process to its first answer after the last one was killed; rebuild; one delta more.

The page cache is cold where the system lets us ask for that (posix_fadvise), and warm in a second figure; the table
says which. A home around the index is made through the archive only for the rebuild and the delta.

    python -m benchmarks.opening --chunks 100000 500000
    python -m benchmarks.opening --chunks 1000000 --keep /var/tmp/bench    # reuses the index of benchmarks.search
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import perdure
from benchmarks import corpus
from benchmarks.common import drop_from_cache, save, scratch, size_of, table, timed
from benchmarks.search import build, folder
from perdure.index import store

N_RUNS = 5
_FIRST = """import time; began = time.perf_counter()
from pathlib import Path
from perdure.index import store, keyword
from perdure.types import Filters, Principal
imported = time.perf_counter()
index = store.IndexConnection(Path({path!r}))
opened = time.perf_counter()
found = keyword.search(index, Principal("ada"), {query!r}, filters=Filters(), limit=20)
answered = time.perf_counter()
print(imported - began, opened - imported, answered - opened, len(found.hits))
"""
_VICTIM = """import sys, time
from pathlib import Path
from perdure.index import store
index = store.IndexConnection(Path({path!r}))
with index.begin_write() as db:
    db.execute("INSERT OR REPLACE INTO meta VALUES ('bench', 'committed')")
index.db.execute("BEGIN IMMEDIATE")
index.db.execute("INSERT OR REPLACE INTO meta VALUES ('bench', 'lost')")
print("ready", flush=True)
time.sleep(60)
"""


def kill_a_writer(path: Path) -> None:
    """Leave the index as a process does that is killed in the middle of a transaction."""
    victim = subprocess.Popen([sys.executable, "-c", _VICTIM.format(path=str(path))], stdout=subprocess.PIPE)
    assert victim.stdout and victim.stdout.readline().strip() == b"ready"
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait()


def first_answer(path: Path, query: str) -> tuple[float, float, float]:
    """Seconds to import, to open, and to answer, in a new process."""
    code = _FIRST.format(path=str(path), query=query)
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert int(said[3]) > 0, query
    return float(said[0]), float(said[1]), float(said[2])


def open_times(path: Path, made: corpus.Corpus) -> list[dict[str, Any]]:
    query = " ".join((made.words[300], made.words[900], made.words[2500]))
    rows = []
    for cold in (True, False):
        found = []
        dropped = True
        for _ in range(N_RUNS):
            kill_a_writer(path)
            if cold:
                dropped = all([drop_from_cache(path), *map(drop_from_cache, path.parent.glob(path.name + "-wal"))])
            found.append(first_answer(path, query))
        state = "warm" if not cold else "cold" if dropped else "warm (cannot be dropped here)"
        middle = [statistics.median(run[i] for run in found) * 1000 for i in range(3)]
        rows.append({"cache": state, "import ms": round(middle[0], 1), "open ms": round(middle[1], 1),
                     "first answer ms": round(middle[2], 1), "sum ms": round(sum(middle), 1)})  # fmt: skip
    return rows


def rebuilt(n_bytes: int) -> dict[str, Any]:
    """Rebuild a home of generated transcripts, with the proof that it answers the same; and one delta more."""
    with scratch() as place:
        corpus.write_transcripts(place / "in", n_bytes=n_bytes)
        with perdure.open(place / "home") as home:
            home.import_files([place / "in"], index=False)
            with timed() as first:
                home.upkeep.catch_up()
            with timed() as again:
                result = home.upkeep.rebuild()
            assert result.same_digest and not result.differing
            with timed() as delta:
                home.capture(b'{"role": "user", "content": "one delta more"}\n', runtime="messages", session="new")
                assert home.search("one delta more").hits
            return {
                "MB": round(size_of(place / "in") / 1e6, 1), "chunks": result.n_chunks,
                "index s": round(first.wall_s, 2),
                "rebuild with proof s": round(again.wall_s, 2), "queries compared": result.n_queries,
                "capture + found ms": round(delta.wall_s * 1000, 1),
            }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, nargs="*", default=[100_000])
    parser.add_argument("--chars", type=int, default=300)
    parser.add_argument("--rebuild-mb", type=int, default=26)
    parser.add_argument("--keep", type=Path, help="folder for the index, reused by the next run")
    options = parser.parse_args()
    made = corpus.make()
    rows: list[dict[str, Any]] = []
    with folder(options.keep) as place:
        for n_chunks in options.chunks:
            path = place / f"search-{n_chunks}-{options.chars}.db"
            if not path.exists():
                build(path, made, n_chunks, options.chars, (("ada", 1.0),))
            store.IndexConnection(path).close()
            size = {"chunks": n_chunks, "index MB": round(path.stat().st_size / 1e6)}
            rows += [{**size, **row} for row in open_times(path, made)]
    table("after kill -9 of a writer: a new process to its first answer (target: 1 s at 500,000)", rows)
    again = rebuilt(options.rebuild_mb * 1_000_000)
    table("rebuild, and one delta more", [again])
    save("opening", {"open": rows, "rebuild": again})


if __name__ == "__main__":
    main()
