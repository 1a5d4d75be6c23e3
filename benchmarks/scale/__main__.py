"""Measure many users on one Postgres, and model more. Each part is kept; a part of the present code is not made again.

python -m benchmarks.scale                       # all parts: about an hour on two cores, 12 GB of disk
python -m benchmarks.scale --size tiny           # to see that it works; kept nowhere
python -m benchmarks.scale --parts users-100 --again
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.common import RESULTS, describe_run, find_commit, keep_result, plot, timed
from benchmarks.scale import measure, model, vectors

PICTURES = Path(__file__).parents[2] / "docs/evaluation/scale"
MAX_PART_S = 40 * 60
Part = Callable[[], dict[str, Any]]

PARTS: dict[str, Part] = {
    "users-10": lambda: measure.measure_users(
        n_made=2, n_copies=4, n_chunks=10_000, n_asking=10, n_each=6, length_s=25, backlog=250),
    "users-100": lambda: measure.measure_users(
        n_made=5, n_copies=19, n_chunks=10_000, n_asking=20, n_each=3, length_s=25, backlog=250),
    "one-100000": lambda: measure.measure_one(n_chunks=100_000, n_copies=0, n_each=30),
    "one-300000": lambda: measure.measure_one(n_chunks=300_000, n_copies=4, n_each=30),
    "one-1000000": lambda: measure.measure_one(n_chunks=1_000_000, n_copies=4, n_each=30),
    "file-10000": lambda: measure.measure_file(n_chunks=10_000, n_each=30),
    "vectors": lambda: vectors.measure(n_users=10, n_each=5_000, n_queries=40),
    "model": model.model,
}  # fmt: skip
TINY: dict[str, Part] = {
    "users": lambda: measure.measure_users(
        n_made=2, n_copies=1, n_chunks=150, n_asking=2, n_each=2, length_s=4, backlog=10
    ),
    "one": lambda: measure.measure_one(n_chunks=300, n_copies=1, n_each=3),
    "vectors": lambda: vectors.measure(n_users=2, n_each=200, n_queries=3),
}


class _Late(Exception):
    """A part takes longer than it may."""


def run_part(part: Part) -> dict[str, Any]:
    """Run a part, at most 40 minutes; a part that is cut says so."""

    def stop(*_: object) -> None:
        raise _Late

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(MAX_PART_S)
    run = describe_run()
    try:
        with timed() as clock:
            result = part()
    except _Late:
        return {**run, "cut": f"after {MAX_PART_S // 60} minutes"}
    finally:
        signal.alarm(0)
    return {**run, "load at the end": describe_run()["machine"]["load"], "took s": round(clock.wall_s), **result}


def draw(result: dict[str, Any]) -> None:
    """Draw what the model says of a cell by its users."""
    PICTURES.mkdir(exist_ok=True)
    cells = [cell for cell in result["cells"] if cell["users"] <= 2 * result["users a cell"]]
    lines = {"recall p95": [cell["recall p95 ms"] for cell in cells],
             "recall p50": [cell["recall p50 ms"] for cell in cells]}  # fmt: skip
    title = "Modelled: a recall in the busiest hour, ms, by users of one machine"
    picture = plot(title, [str(cell["users"]) for cell in cells], lines, from_zero=True)
    (PICTURES / "cell.svg").write_text(picture, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=("full", "tiny"), default="full")
    parser.add_argument("--parts", nargs="*")
    parser.add_argument("--again", action="store_true", help="also what is of this commit already")
    options = parser.parse_args()
    parts = TINY if options.size == "tiny" else PARTS
    for name in options.parts or parts:
        path = RESULTS / "scale" / f"{name}.json"
        is_kept = options.size == "full" and path.exists()
        if is_kept and not options.again and json.loads(path.read_text())["commit"] == find_commit():
            print(f"{name}: is of this commit", flush=True)
            continue
        print(f"{name} …", flush=True)
        result = run_part(parts[name])
        if options.size == "tiny":
            print(json.dumps({key: value for key, value in result.items() if key != "machine"}), flush=True)
        else:
            keep_result(f"scale/{name}", result)
            if name == "model":
                draw(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
