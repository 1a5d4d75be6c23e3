"""Measure how fast Perdure is, each part in a process of its own, and say what missed its target.

python -m benchmarks             # the table of docs/evaluation/speed.md: under 20 minutes on two quiet cores
python -m benchmarks --full      # everything, a million chunks and random worlds too: hours, 20 GB of disk
python -m benchmarks --quick     # a tenth of everything, to see that it works
"""

from __future__ import annotations

import argparse
import compileall
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import perdure
from benchmarks.common import OUT, SCRATCH, machine, table, timed

CHUNKS = "100000"  # of the table


def list_commands(scale: str, keep: Path) -> list[list[str]]:
    kept = ["--keep", str(keep), "--chunks"]
    if scale == "default":
        return [["ingest"], ["speed", *kept, CHUNKS], ["latency", *kept, CHUNKS], ["lanes", "--recall", *kept, CHUNKS]]
    is_quick = scale == "quick"
    few = ["--mb", "2"] if is_quick else []
    chunks = ["10000"] if is_quick else [CHUNKS, "1000000"]
    return [
        ["parse", *few],
        ["ingest", *few],
        ["hook", *(["--runs", "30"] if is_quick else [])],
        ["messages", "--messages", *(["1000"] if is_quick else ["10000", "100000"])],
        *(["search", "--sweep", *kept, n] for n in chunks),
        ["search", "--chars", "1500", "--chunks", "10000" if is_quick else CHUNKS],
        ["opening", *kept, *(["10000", "--rebuild-mb", "2"] if is_quick else [CHUNKS, "500000", "1000000"])],
        ["speed", *kept, chunks[0], *(["--runs", "10", "--mb", "2"] if is_quick else [])],
        ["start", *(["--rounds", "3"] if is_quick else [*kept, chunks[0]])],
        *(["visible", *kept, n] for n in chunks),
        *(["latency", *kept, n] for n in chunks),
        ["latency", "--chunks", "2000", "--memories", "500", "--helper"],
        ["lanes", "--recall", *kept, chunks[0]],
        ["million", "--runs", "2000" if is_quick else "1000000"],
        ["resident", *(["--captures", "200", "--seconds", "9"] if is_quick else [])],
        ["tokens"],
        ["proxy", *(["--rounds", "20", "--streams", "20", "--messages", "200"] if is_quick else [])],
        ["floor", *kept, chunks[0], "--memories", "2000" if is_quick else "20000"],
        ["page", *kept, chunks[0], *(["--memories", "2000", "--rounds", "5"] if is_quick else [])],
        ["soak", *(["--machines", "5", "--readers", "2", "--backlog-mb", "0.5"] if is_quick else [])],
        ["scanner"],
        ["recall", "--quick"],
        ["privacy", "--worlds", "20" if is_quick else "200"],
        ["exchange", "--worlds", "5" if is_quick else "60"],
        ["soak", "--kill-every", "5", *(["--machines", "5"] if is_quick else ["--machines", "20"]),
         "--backlog-mb", "0.5" if is_quick else "2"],
        ["mining", *(["--scripted"] if is_quick else [])],
        ["scale", *(["--size", "tiny"] if is_quick else [])],
        ["tiers", *(["--turns", "50"] if is_quick else [])],
        ["quality", *([] if is_quick else ["--vary"])],
    ]  # fmt: skip


def list_targets() -> list[dict[str, Any]]:
    """The rows of the table, read from the results of this run: what was measured, and what it should be at most."""
    results = {
        name: json.loads((OUT / f"{name}.json").read_text())
        for name in ("ingest", "speed", "lanes", f"latency-{CHUNKS}")
    }
    speed, latency = results["speed"], results[f"latency-{CHUNKS}"]
    processes = {row["process"]: row for row in speed["processes"]}
    asked = {row["messages"]: row for row in latency["kinds"]}
    idle, busy = results["lanes"]["recall"]
    first = speed["import"]
    measured = (
        ("a recall, ms, p95: one question", asked["question"]["wall p95"], 12),
        ("the mix of messages", latency["scopes"][0]["wall p95"], 15),
        ("more while texts are embedded", round(busy["wall p95"] - idle["wall p95"], 1), 15),
        ("a hook at a message, whole process, ms, p95", processes["hook, prompt"]["wall p95"], 60),
        ("against a bare interpreter, x", processes["hook, prompt"]["x bare"], 2),
        ("recall in a shell, ms, p95", processes["perdure recall"]["wall p95"], 350),
        ("with a resident home", processes["perdure recall, resident home"]["wall p95"], 150),
        (f"{first['MB']} MB of transcripts searchable, s", first["searchable, wall s"], 2.5),
        ("people's words embedded, s of processor", first["people embedded, CPU s"], 60),
        ("memory of the resident home, MB", speed["memory"]["resident"], 180),
        ("bytes of the index for a byte of transcripts", results["ingest"]["rows"][-1]["index bytes/byte"], 0.45),
    )
    return [
        {"what": what, "measured": value, "at most": target, "": "reached" if value <= target else "missed"}
        for what, value, target in measured
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--full", action="store_const", const="full", dest="scale", default="default")
    size.add_argument("--quick", action="store_const", const="quick", dest="scale")
    options = parser.parse_args()
    print(", ".join(f"{key}: {value}" for key, value in machine().items()))
    compileall.compile_dir(Path(perdure.__file__).parent, quiet=1)  # an installed package has its bytecode, too
    failed = []
    with tempfile.TemporaryDirectory(prefix="perdure-bench-", dir=SCRATCH) as keep:
        for command in list_commands(options.scale, Path(keep)):
            print(f"\n== {' '.join(command)}", flush=True)
            with timed() as clock:
                line = [sys.executable, "-m", f"benchmarks.{command[0]}", *command[1:]]
                code = subprocess.run(line, check=False).returncode
            print(f"  ({clock.wall_s:.0f} s)", flush=True)
            failed += [command[0]] if code else []
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    elif options.scale == "default":
        table(f"the table, {CHUNKS} chunks", list_targets())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
