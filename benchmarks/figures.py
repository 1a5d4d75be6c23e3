"""Measure what the README and the documents quote, and keep each result in benchmarks/results.

A result names its commit (the last one that changed what is measured), command, machine and load. One whose commit is
the present one is not made again, so that a run that ended goes on. Documents take their figures from these files
(`tests/flow/test_figures.py`): after a run, that test names every figure that is not true any more. Rows of other
products in the tables stay as they were: `python -m benchmarks.table --with … --write` makes those.

    python -m benchmarks.figures            # what is quick: some minutes
    python -m benchmarks.figures --full     # also what needs data beside this repository, or a quiet machine
    python -m benchmarks.figures --only trimming --again
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import RESULTS, describe_run, find_commit, keep_result, timed
from benchmarks.parse import SHARED
from benchmarks.peers.__main__ import DATA
from benchmarks.peers.install import ROOT

_EVAL = "perdure.surfaces.cli eval"
MODEL = ".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf"  # that `make model` fetches


class Figures(NamedTuple):
    """One measurement: a module with its words, and the result that it fills."""

    name: str  # of the result
    words: str  # what follows `python -m`
    needs: Path | None = None  # data that this repository does not hold
    is_quick: bool = True
    keeps_itself: bool = False  # else its standard output is JSON, and is kept here


MEASUREMENTS = (
    Figures("use", f"{_EVAL} --use --json"),
    Figures("recall-shipped", f"{_EVAL} --json"),
    Figures("table/shipped", "benchmarks.table --sets shipped amended --write", keeps_itself=True),
    Figures("table/conditions-unseen", "benchmarks.table --sets conditions-unseen conditions-seen --write",
            keeps_itself=True),
    Figures("trimming", f"benchmarks.trimming {SHARED} --keep", SHARED, keeps_itself=True),
    Figures("action", f"benchmarks.action {SHARED}", SHARED),
    Figures("team-block", f"benchmarks.team_block {SHARED} --keep", SHARED, is_quick=False, keeps_itself=True),
    Figures("mining", "benchmarks.mining_quality --keep", keeps_itself=True),
    Figures("summaries", "benchmarks.summaries --keep", is_quick=False, keeps_itself=True),
    Figures("store-size-shipped", "benchmarks.store_size --keep", is_quick=False, keeps_itself=True),
    Figures("shortened", "benchmarks.shortened --keep", DATA / "locomo_dev", is_quick=False, keeps_itself=True),
    Figures("execution-scripted", "benchmarks.execution --keep", is_quick=False, keeps_itself=True),
    Figures("execution-gguf", f"benchmarks.execution --model gguf:{MODEL} --halves unseen --tasks 6 --keep",
            ROOT / MODEL, is_quick=False, keeps_itself=True),
    Figures("hook", "benchmarks.hook --runs 60 --keep", is_quick=False, keeps_itself=True),
    Figures("recall-locomo_dev", f"{_EVAL} {DATA / 'locomo_dev'} --json", DATA / "locomo_dev", is_quick=False),
    Figures("recall-beam_dev", f"{_EVAL} {DATA / 'beam_dev'} --json", DATA / "beam_dev", is_quick=False),
    Figures("table/coding", "benchmarks.table --sets coding sde_dev --write", SHARED, is_quick=False,
            keeps_itself=True),
)  # fmt: skip


def measure(figures: Figures, *, again: bool) -> str:
    """Make one result unless it is of this commit already; return what happened."""
    path = RESULTS / f"{figures.name}.json"
    if figures.needs and not figures.needs.exists():
        return f"skipped: there is no {figures.needs}"
    if not again and path.exists() and json.loads(path.read_text(encoding="utf-8"))["commit"] == find_commit():
        return "is of this commit"
    run = describe_run()
    with timed() as clock, tempfile.TemporaryFile() as output:
        line = [sys.executable, "-m", *figures.words.split()]
        code = subprocess.run(line, stdout=None if figures.keeps_itself else output, check=False).returncode
        output.seek(0)
        body = output.read()
    if code:
        return f"failed with {code}"
    if not figures.keeps_itself:
        answer: dict[str, Any] = json.loads(body)
        words = (Path(word).name if word.startswith("/") else word for word in figures.words.split())
        command = " ".join(["python -m", *words]).replace("python -m perdure.surfaces.cli", "perdure")
        keep_result(figures.name, {**run, "command": command, **answer.get("result", answer)})
    return f"measured in {clock.wall_s:.0f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--again", action="store_true", help="also what is of this commit already")
    parser.add_argument("--only", nargs="*", choices=[figures.name for figures in MEASUREMENTS])
    options = parser.parse_args()
    has_failed = False
    for figures in MEASUREMENTS:
        if figures.name in options.only if options.only else options.full or figures.is_quick:
            outcome = measure(figures, again=options.again)
            has_failed = has_failed or outcome.startswith("failed")
            print(f"{figures.name}: {outcome}", flush=True)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
