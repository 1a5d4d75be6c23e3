"""Very many single-turn runs: import, index, open, ask, pack; each per run, so that what is superlinear shows.

The sessions are deltas handed to the archive in batches of 512, as an import does; reading as many files beforehand
is left out. Conversations hold 20 sessions each. Beside it: creating as many pairs of files, without fsync.

    python -m benchmarks.million                     # 100,000
    python -m benchmarks.million --runs 1000000
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import perdure
from benchmarks import corpus
from benchmarks.common import save, scratch, size_of, table, timed
from perdure.archive.archive import Delta
from perdure.types import Origin

BATCH = 512
PER_CONVERSATION = 20
_OPEN = """import time; wall = time.perf_counter()
import perdure
with perdure.open({home!r}, user="ada") as home:
    opened = time.perf_counter()
    found = home.search({query!r})
    print(opened - wall, time.perf_counter() - opened, len(found.hits), found.n_behind)
"""


def deltas(n: int) -> Iterator[list[Delta]]:
    made, rng = corpus.make(), random.Random(6)
    batch: list[Delta] = []
    for number in range(n):
        at = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=30 * number)
        words = f"{rng.choice(made.sentences)} {made.word(rng)} {made.word(rng)} run{number}"
        line = json.dumps({"role": "user", "content": words, "timestamp": at.isoformat()}).encode() + b"\n"
        conversation = f"c{number // PER_CONVERSATION}"
        batch.append(
            Delta(Origin("messages", f"s{number}", conversation), "ada", "bench", line, project=f"/work/p{number % 40}")
        )
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def opened(home: Path, query: str) -> tuple[float, float]:
    """Seconds to open a home and to the first answer, in a new process (imports included in the first)."""
    command = [sys.executable, "-c", _OPEN.format(home=str(home), query=query)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert int(answer[2]) > 0 and int(answer[3]) == 0, answer
    return float(answer[0]), float(answer[1])


def files(place: Path, n: int) -> float:
    """Seconds to create so many pairs of files in one folder: the floor of an archive of files."""
    place.mkdir()
    with timed() as clock:
        for number in range(n):
            for suffix in ("jsonl", "metadata.json"):
                (place / f"{number}.{suffix}").write_bytes(b"x" * 200)
    return clock.wall_s


def measure(n: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []

    def note(step: str, seconds: float, **more: Any) -> None:
        rows.append({"step": step, "s": round(seconds, 2), "µs a run": round(seconds / n * 1e6, 1), **more})
        table(f"{n:,} single-turn runs", rows[-1:])

    with scratch() as place:
        floor_n = min(n, 20_000)
        note("create as many pairs of files", files(place / "floor", floor_n) * n / floor_n)
        with perdure.open(place / "home", user="ada") as home:
            spent, slowest = 0.0, []
            for batch in deltas(n):
                started = time.perf_counter()
                home.archive.store(batch, now=datetime.now(UTC), tombstones={})
                slowest.append(time.perf_counter() - started)
                spent += slowest[-1]
            tenth = max(1, len(slowest) // 10)
            grows = sum(slowest[-tenth:]) / sum(slowest[:tenth])
            note("import (archive)", spent, note=f"last tenth / first tenth: {grows:.2f}")
            with timed() as clock:
                home.upkeep.catch_up()
            note("index", clock.wall_s, note=f"CPU {clock.cpu_s:.1f} s")
            home.index().db.pragma("wal_checkpoint(TRUNCATE)")
            size = home.index().path.stat().st_size
        open_s, answer_s = opened(place / "home", f"run{n // 2}")
        more = f"first answer after {answer_s * 1000:.1f} ms more; index {size / 1e6:.0f} MB"
        note("open in a new process", open_s, note=more)
        with perdure.open(place / "home", user="ada") as home:
            with timed() as clock:
                home.capture(b'{"role": "user", "content": "one delta more"}\n', runtime="messages", session="new")
                assert home.search("one delta more").hits
            note("one delta more, archived and found", clock.wall_s)
            with timed() as clock:
                n_packs, n_packed = home.upkeep.pack(idle_days=0)
            note("pack", clock.wall_s, note=f"{n_packed} runs into {n_packs} packs; CPU {clock.cpu_s:.1f} s")
            with timed() as clock:
                home.upkeep.pack(idle_days=0)
            note("pack again (nothing to do)", clock.wall_s)
            with timed() as clock:
                home.archive.read(home.archive.get_entry(next(iter(home.archive.ledger.list_runs())).run_id))
            note("read a packed run", clock.wall_s)
            with timed() as clock:
                home.upkeep.rebuild()
            note("rebuild", clock.wall_s, note=f"from the packs; CPU {clock.cpu_s:.1f} s")
        note("(size of the packed archive)", 0, note=f"{size_of(place / 'home' / 'archive') / 1e6:.0f} MB")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100_000)
    options = parser.parse_args()
    rows = measure(options.runs)
    table(f"{options.runs:,} single-turn runs, {PER_CONVERSATION} to a conversation", rows)
    save(f"million-{options.runs}", {"rows": rows})


if __name__ == "__main__":
    main()
