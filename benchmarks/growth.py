"""How cost grows: recall by chunks, conversations and memories; import, index and pack by runs; drawn as curves.

Each point is a run of `latency` or `million` in a process of its own; a point whose result is there already is not
measured again, so that a long one can be made alone.

    python -m benchmarks.growth                     # about an hour on two cores, 20 GB of disk
    python -m benchmarks.growth --most 100000 --most-runs 100000       # without the millions: about 15 minutes
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.common import OUT, plot, table

PICTURES = Path(__file__).parents[1] / "docs/evaluation/growth"
SIZES = (10_000, 100_000, 1_000_000)
CONVERSATIONS = (1, 50, 1_000)
MEMORIES = (0, 1_000, 20_000)


def read_result(name: str, *words: str) -> dict[str, Any]:
    """The result of one measurement, which is made if it is not there."""
    path = OUT / f"{name}.json"
    if not path.exists():
        subprocess.run([sys.executable, "-m", f"benchmarks.{words[0]}", *words[1:]], check=True)
    return json.loads(path.read_bytes())


def describe_recall(label: str, result: dict[str, Any]) -> dict[str, Any]:
    """A row of the table: the mix of messages with vectors and by words alone, and the memory of the process."""
    hybrid, words = (
        next(row for row in result["scopes"] if row["visible"] == name) for name in ("everything", "by words alone")
    )
    return {
        "size": label, "p50": hybrid["wall p50"], "p95": hybrid["wall p95"], "words p50": words["wall p50"],
        "words p95": words["wall p95"], "floor of the scan": result["floor"]["read once"],
        "resident MB": result["resident MB"],
    }  # fmt: skip


def measure_recall(name: str, labels: list[str], results: list[dict[str, Any]]) -> None:
    """Print the rows of one curve, and draw it."""
    rows = [describe_recall(label, result) for label, result in zip(labels, results, strict=True)]
    table(f"recall, ms, by {name}", rows)
    columns = ("p50", "p95", "words p50", "words p95")
    lines = {column: [row[column] for row in rows] for column in columns}
    draw(f"recall-by-{name}", f"A recall, ms, by {name}", labels, lines)


def measure_runs(sizes: list[int]) -> None:
    """Print what each step costs a run, and draw it."""
    results = [read_result(f"million-{size}", "million", "--runs", str(size)) for size in sizes]
    steps = {"import (archive)": "archive", "index": "index", "pack": "pack", "rebuild": "rebuild"}
    lines = {
        name: [next(row["µs a run"] for row in result["rows"] if row["step"] == step) for result in results]
        for step, name in steps.items()
    }
    labels = [f"{size:,}" for size in sizes]
    table("µs a run", [{"runs": label, **{k: v[n] for k, v in lines.items()}} for n, label in enumerate(labels)])
    draw("runs", "Import of single-turn runs, µs a run, by their number", labels, lines)


def draw(name: str, title: str, labels: list[str], lines: dict[str, list[float]]) -> None:
    """Write one picture."""
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / f"{name}.svg").write_text(plot(title, labels, lines, from_zero=True), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=SIZES[-1], help="chunks of the largest point")
    parser.add_argument("--most-runs", type=int, default=SIZES[-1], help="runs of the largest point")
    options = parser.parse_args()
    sizes = [size for size in SIZES if size <= options.most]
    chunks = ["latency", "--chunks"]
    by_size = [read_result(f"latency-{size}", *chunks, str(size)) for size in sizes]
    measure_recall("chunks", [f"{size:,}" for size in sizes], by_size)
    by_talks = [
        read_result(f"latency-100000-c{n}", *chunks, "100000", "--conversations", str(n)) for n in CONVERSATIONS
    ]
    measure_recall("conversations", [f"{n:,}" for n in CONVERSATIONS], by_talks)
    by_memories = [
        read_result(f"latency-100000-{n}" if n else "latency-100000", *chunks, "100000", "--memories", str(n))
        for n in MEMORIES
    ]
    measure_recall("memories", [f"{n:,}" for n in MEMORIES], by_memories)
    measure_runs([size for size in SIZES if size <= options.most_runs])


if __name__ == "__main__":
    main()
