"""What a warm recall costs over real transcripts, asked the coding questions in all projects, embedding included.

`benchmarks.latency` has more chunks, but made ones, without tool calls and with short texts. To compare two versions,
run it with the sources of each, in turns, and keep a home for each: another version may make the index again.

    python -m benchmarks.transcripts                            # about 2 minutes, most of them to embed
    python -m benchmarks.transcripts --data DIR --keep HOME     # other transcripts; the next run uses the home again
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import perdure
from benchmarks.common import machine, save, spread, table
from benchmarks.parse import SHARED
from benchmarks.search import folder

QUESTIONS = Path(__file__).parent / "questions" / "coding.jsonl"
N_WARM = 20  # recalls before the first that is measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED, help="folder of transcripts")
    parser.add_argument("--keep", type=Path, help="folder for the home, reused by the next run")
    options = parser.parse_args()
    if not options.data.exists():
        parser.exit(0, f"skipped: there are no transcripts in {options.data}\n")
    questions = [json.loads(row)["question"] for row in QUESTIONS.read_text(encoding="utf-8").splitlines()]
    walls_ms, cpus_ms, n_spoken = [], [], 0
    with folder(options.keep) as place, perdure.open(place / "home") as home:
        home.import_files([options.data])
        home.upkeep.embed()
        with home.clone_for_thread(read_only=True) as reader:
            for question in questions[:N_WARM]:
                reader.recall(question, all_projects=True)
            for question in questions:
                wall_s, cpu_s = time.perf_counter(), time.process_time()
                n_spoken += bool(reader.recall(question, all_projects=True).cues)
                walls_ms.append((time.perf_counter() - wall_s) * 1000)
                cpus_ms.append((time.process_time() - cpu_s) * 1000)
    wall_ms, cpu_ms = spread(walls_ms), spread(cpus_ms)
    row = {
        "wall p50": wall_ms["p50"], "wall p95": wall_ms["p95"], "cpu p50": cpu_ms["p50"], "cpu p95": cpu_ms["p95"],
        "spoke": f"{n_spoken}/{len(questions)}",
    }  # fmt: skip
    table(f"recall over real transcripts, ms; {machine()['cpu']}, load {machine()['load'][0]}", [row])
    save("transcripts", row)


if __name__ == "__main__":
    main()
