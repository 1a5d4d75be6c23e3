"""Run every measurement, each in a process of its own, and say which could not be made.

python -m benchmarks             # what docs/evaluation/speed.md reports: under 20 minutes on two cores
python -m benchmarks --full      # also quality, random worlds, kills, a million chunks: hours, 20 GB of disk
python -m benchmarks --quick     # a tenth of everything, to see that it works
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.common import SCRATCH, machine, timed


def commands(scale: str, keep: Path) -> list[list[str]]:
    chunks = {"quick": ["10000"], "default": ["100000"], "full": ["100000", "1000000"]}[scale]
    opened = {"quick": ["10000"], "default": ["100000"], "full": ["100000", "500000", "1000000"]}[scale]
    n_runs = {"quick": "2000", "default": "10000", "full": "1000000"}[scale]
    few = ["--mb", "2"] if scale == "quick" else []
    messages = ["1000"] if scale == "quick" else ["10000", "100000"]
    speed = [
        ["parse", *few],
        ["ingest", *few],
        ["hook", *(["--runs", "30"] if few else [])],
        ["messages", "--messages", *messages],
        *(["search", "--sweep", "--keep", str(keep), "--chunks", n] for n in chunks),
        ["search", "--chars", "1500", "--chunks", "100000" if scale == "full" else "10000"],
        ["opening", "--keep", str(keep), "--chunks", *opened, *(["--rebuild-mb", "2"] if few else [])],
        ["speed", "--keep", str(keep), "--chunks", chunks[0], *(["--runs", "10", "--mb", "2"] if few else [])],
        ["start", *(["--rounds", "3"] if few else ["--keep", str(keep), "--chunks", chunks[0]])],
        *(["visible", "--keep", str(keep), "--chunks", n] for n in chunks),
        *(["latency", "--keep", str(keep), "--chunks", n] for n in chunks),
        ["latency", "--chunks", "2000", "--memories", "500", "--helper"],
        ["lanes", "--recall", "--keep", str(keep), "--chunks", chunks[0]],
        ["million", "--runs", n_runs],
        ["resident", *(["--captures", "200", "--seconds", "9"] if few else [])],
        ["tokens"],
        ["proxy", *(["--rounds", "20", "--streams", "20", "--messages", "200"] if few else [])],
        ["floor", "--keep", str(keep), "--chunks", chunks[0], "--memories", "2000" if few else "20000"],
        ["page", "--keep", str(keep), "--chunks", chunks[0], *(["--memories", "2000", "--rounds", "5"] if few else [])],
        ["soak", *(["--machines", "5", "--readers", "2", "--backlog-mb", "0.5"] if few else [])],
        ["scanner"],
    ]
    rest = [
        ["recall", "--quick"],
        ["privacy", "--worlds", "20" if few else "200"],
        ["exchange", "--worlds", "5" if few else "60"],
        ["soak", "--kill-every", "5", "--machines", "5" if few else "20", "--backlog-mb", "0.5" if few else "2"],
        ["mining", *(["--scripted"] if few else [])],
        ["scale", *(["--size", "tiny"] if few else [])],
        ["tiers", *(["--turns", "50"] if few else [])],
        ["quality"] if few else ["quality", "--vary"],
    ]
    return speed if scale == "default" else speed + rest


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--full", action="store_const", const="full", dest="scale", default="default")
    size.add_argument("--quick", action="store_const", const="quick", dest="scale")
    options = parser.parse_args()
    print(", ".join(f"{key}: {value}" for key, value in machine().items()))
    failed = []
    with tempfile.TemporaryDirectory(prefix="perdure-bench-", dir=SCRATCH) as keep:
        for command in commands(options.scale, Path(keep)):
            print(f"\n== {' '.join(command)}", flush=True)
            with timed() as clock:
                line = [sys.executable, "-m", f"benchmarks.{command[0]}", *command[1:]]
                code = subprocess.run(line, check=False).returncode
            print(f"  ({clock.wall_s:.0f} s)", flush=True)
            failed += [command[0]] if code else []
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
