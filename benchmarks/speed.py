"""The table of whole processes: the hook, recall in a shell, a first import, and the memory of a resident home.

Everything is measured in one run, in turns, with a bare interpreter beside it. Processor time and the ratio to the bare
interpreter hold on a busy machine; wall times only on a quiet one. The texts of the home are random, of a length as in
chats; the transcripts are generated, or those below --data.

    python -m benchmarks.speed                                   # about 10 minutes on two quiet cores
    python -m benchmarks.speed --data DIR --keep /var/tmp/bench  # real transcripts; keep the home for the next run
    python -m benchmarks.speed --chunks 10000 --runs 10 --mb 2   # a tenth, to see that it works
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import perdure
from benchmarks import corpus, hook, start
from benchmarks.common import machine, save, scratch, table, timed
from benchmarks.parse import SHARED
from benchmarks.search import folder
from perdure.capture import events

N_ASKED = 30  # recalls before the memory of the resident home is read
START_S = 60


@contextlib.contextmanager
def served(home: Path) -> Iterator[int]:
    """A resident home with its model loaded; its process id."""
    child = subprocess.Popen([sys.executable, "-m", "perdure.surfaces.cli", "serve", "--home", str(home)])
    try:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, ValueError):
                request = {"op": "recall", "message": "is it warm?", "all_projects": True, "limit_ms": 5000}
                if events.ask_resident(home, request, timeout_s=5).get("is_warm"):
                    break
            time.sleep(0.2)
        yield child.pid
    finally:
        child.terminate()
        child.wait()


def read_memory(pid: int) -> dict[str, float]:
    """Megabytes of a process: resident, its share of them (each page once), and its own, that no file backs."""
    fields = {}
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
            name, _, value = line.partition(":")
            fields[name] = int(value.split()[0]) / 1000
    names = {"resident": "Rss", "each page once": "Pss", "its own": "Pss_Anon"}
    return {label: round(fields[name], 1) for label, name in names.items() if name in fields}


def hook_rows(n_runs: int) -> list[dict[str, Any]]:
    rows = hook.measure(n_runs, cold=False)
    keys = {"p50": "wall p50", "p95": "wall p95", "cpu p50": "cpu p50", "cpu p95": "cpu p95", "x bare": "x bare"}
    return [{"process": row["what"], **{label: row[key] for key, label in keys.items()}} for row in rows]


def recall_rows(home: Path, n_runs: int) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Recall in a shell, alone and with a resident home, and the memory of that home."""
    commands = start.commands(home)
    names = ("bare interpreter", "perdure recall", "perdure recall --mode keyword")
    rows = summarise(start.measured({"this": start.OWN}, {name: commands[name] for name in names}, n_runs))
    with served(home) as pid:
        for n in range(N_ASKED):
            request = {"op": "recall", "message": f"{start.ASKED} number {n}", "all_projects": True}
            events.ask_resident(home, request | {"limit_ms": 10_000}, timeout_s=10)
        memory = read_memory(pid)
        asked = start.measured({"this": start.OWN}, {name: commands[name] for name in names[:2]}, n_runs)
    resident_row = summarise(asked)[1]
    return [*rows, {**resident_row, "process": "perdure recall, resident home"}], memory


def summarise(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    keys = ("process", "wall p50", "wall p95", "cpu p50", "cpu p95")
    return [
        {**{key: row[key] for key in keys}, "x bare": round(row["cpu p50"] / rows[0]["cpu p50"], 2)} for row in rows
    ]


def first_import(transcripts: Path) -> dict[str, Any]:
    """Seconds until transcripts are searchable by words, until what people wrote has its vectors, and until everything
    has. People's words are embedded first.
    """
    with scratch() as place, perdure.open(place / "home") as home:
        with timed() as searchable:
            imported = home.import_files([transcripts])
        count = "SELECT count(*) FROM chunk JOIN turn ON turn.id = chunk.turn WHERE author = 'person' AND kind = ?"
        index = home.connections.index()
        (n_people,) = index.select(count, index.find_name("kind", "text"))[0]
        with timed() as people:
            home.upkeep.embed(most=n_people)
        with timed() as rest:
            home.upkeep.embed()
        n_vectors = sum(slab.n_embedded for slab in home.upkeep.vector_status().slabs)
    return {
        "MB": round(imported.n_bytes / 1e6, 1), "searchable, wall s": round(searchable.wall_s, 2),
        "searchable, CPU s": round(searchable.cpu_s, 2), "vectors": n_vectors,
        "of people": n_people, "people embedded, CPU s": round(people.cpu_s, 1),
        "all embedded, wall s": round(people.wall_s + rest.wall_s, 1),
        "all embedded, CPU s": round(people.cpu_s + rest.cpu_s, 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=100, help="of each hook; a fifth of it of each command")
    help_text = "folder of transcripts; generated ones when there is none"
    parser.add_argument("--data", type=Path, default=SHARED if SHARED.exists() else None, help=help_text)
    parser.add_argument("--mb", type=int, default=26, help="of transcripts to generate")
    parser.add_argument("--keep", type=Path, help="folder for the home, reused by the next run")
    options = parser.parse_args()
    processes = hook_rows(options.runs)
    with folder(options.keep) as place:
        home = start.made(place, options.chunks)
        recall_processes, memory = recall_rows(home, max(3, options.runs // 5))
    processes += recall_processes
    with scratch() as place:
        if not options.data:
            corpus.write_transcripts(place, n_bytes=options.mb * 1_000_000)
        imported = first_import(options.data or place)
    title = "whole processes, ms (targets: hook p95 60 and 2 x bare; recall 350, with a resident home 150)"
    table(f"{title}; {machine()['cpu']}, load {machine()['load'][0]}", processes)
    table(f"resident home with {options.chunks:,} chunks, MB (target 180)", [memory])
    table("a first import (targets for 26 MB: searchable 2.5 s; people embedded 60 CPU s)", [imported])
    save("speed", {"processes": processes, "memory": memory, "import": imported})


if __name__ == "__main__":
    main()
