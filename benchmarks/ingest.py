"""From transcripts on disk to keyword-searchable, and where the time goes; beside copying the same bytes durably.

python -m benchmarks.ingest                      # 26 MB that the script makes
python -m benchmarks.ingest --data DIR           # real transcripts below a folder; the target is 4 s for 26 MB
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import perdure
from benchmarks import corpus
from benchmarks.common import save, scratch, size_of, table, timed
from benchmarks.parse import SHARED
from perdure import connections, text
from perdure.index import projection, store, write

N_RUNS = 3
STAGES = (  # (name, module, function); those indented are part of the one above
    ("parse (with reading)", connections, "parse_run"),
    ("project", projection, "project_run"),
    ("  mask secrets", projection, "mask"),
    ("  chunk", text, "split"),
    ("  entities", text, "entities"),
    ("write", write, "write_run"),
    ("  terms for the index", store, "index_terms"),
    ("  chunk rows and words (FTS5)", write, "insert_chunk"),
)


@contextlib.contextmanager
def clocks() -> Iterator[dict[str, float]]:
    """CPU seconds spent in each stage while the block runs."""
    spent: dict[str, float] = defaultdict(float)

    def clocked(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            started = time.process_time()
            try:
                return work(*args, **kwargs)
            finally:
                spent[name] += time.process_time() - started

        return run

    with contextlib.ExitStack() as stack:
        for name, module, function in STAGES:
            stack.enter_context(mock.patch.object(module, function, clocked(name, getattr(module, function))))
        yield spent


def once(folder: Path) -> dict[str, Any]:
    """One import into a new home, to the first answer."""
    with scratch() as place, timed() as whole, perdure.open(place / "home") as home:
        with timed() as capture:
            imported = home.import_files([folder], index=False)
        with timed() as index:
            done = home.upkeep.catch_up()
        assert home.search("error in the file").hits
        whole_s = capture.wall_s + index.wall_s
        archive, file = size_of(place / "home" / "archive"), home.index().path.stat().st_size
    return {
        "bytes": imported.n_bytes, "runs": imported.n_runs, "chunks": done.n_chunks, "wall_s": whole_s,
        "cpu_s": whole.cpu_s, "capture_s": capture.wall_s, "index_s": index.wall_s,
        "archive_ratio": archive / imported.n_bytes, "index_ratio": file / imported.n_bytes,
    }  # fmt: skip


def stages(folder: Path) -> dict[str, float]:
    with scratch() as place, clocks() as spent, perdure.open(place / "home") as home:
        with timed() as capture:
            home.import_files([folder], index=False)
        with timed() as index:
            home.upkeep.catch_up()
    return {"capture": capture.cpu_s, "index": index.cpu_s, **{name: spent[name] for name, _, _ in STAGES}}


def copied(folder: Path) -> float:
    """Seconds to copy the same files with fsync: what any durable import must spend."""
    with scratch() as place, timed() as clock:
        for n, path in enumerate(p for p in folder.rglob("*") if p.is_file()):
            with (place / str(n)).open("wb") as file:
                file.write(path.read_bytes())
                file.flush()
                os.fsync(file.fileno())
    return clock.wall_s


def measure(name: str, folder: Path) -> dict[str, Any]:
    found = [once(folder) for _ in range(N_RUNS)]
    middle = {key: statistics.median(run[key] for run in found) for key in found[0]}
    floor_s = copied(folder)
    row = {
        "input": name, "MB": round(middle["bytes"] / 1e6, 1), "runs": int(middle["runs"]),
        "chunks": int(middle["chunks"]),
        "wall s": round(middle["wall_s"], 2), "CPU s": round(middle["cpu_s"], 2),
        "capture s": round(middle["capture_s"], 2), "index s": round(middle["index_s"], 2),
        "MB/s": round(middle["bytes"] / 1e6 / middle["wall_s"], 1), "copy + fsync s": round(floor_s, 3),
        "archive bytes/byte": round(middle["archive_ratio"], 3), "index bytes/byte": round(middle["index_ratio"], 3),
    }  # fmt: skip
    table("import to searchable (median of 3; target 4 s for the 26 MB of real transcripts)", [row])
    spent = stages(folder)
    table("where the CPU time goes, s", [{"stage": k.ljust(32), "CPU s": f"{v:.2f}"} for k, v in spent.items()])
    return {**row, "stages": {key.strip(): round(value, 3) for key, value in spent.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED if SHARED.exists() else None)
    parser.add_argument("--mb", type=int, default=26, help="of transcripts to make")
    options = parser.parse_args()
    rows = []
    with scratch() as place:
        corpus.write_transcripts(place, n_bytes=options.mb * 1_000_000)
        rows.append(measure("generated", place))
    if options.data:
        rows.append(measure(options.data.name, options.data))
    save("ingest", {"rows": rows})


if __name__ == "__main__":
    main()
