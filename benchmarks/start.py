"""What a fresh process costs before it has answered: wall and processor time of whole processes, in turn.

Every round runs each command once, so that a busy machine is busy for all of them. On such a machine compare the
processor times: the wall is what the others leave. The home is made of the sample transcripts, or of so many synthetic
messages through the real archive and index; its vectors are then random, because their number and length decide the
time. Bytecode is written, as in an installation.

    python -m benchmarks.start
    python -m benchmarks.start --chunks 100000 --keep /var/tmp/bench
    python -m benchmarks.start --against ../other/src          # the same with another version, in the same rounds
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import perdure
from benchmarks import messages
from benchmarks.common import save, scratch, spread, table
from benchmarks.search import folder
from perdure.config import EmbedderConfig
from perdure.models.embedder import ModelTag, TextKind, Vectors
from perdure.models.local_embedders import choose_embedder

ROUNDS = 20
OWN = Path(perdure.__file__).parents[1]
SAMPLES = OWN / "perdure" / "samples"
ASKED = "which port did we give the staging server?"
_ALONE = f"""
import pathlib, sys
from perdure import turn
from perdure.capture.events import HookEvent
event = HookEvent("claude-code", "prompt", "start-benchmark", prompt={ASKED!r})
turn.answer_alone(pathlib.Path(sys.argv[1]), event, limit_ms=60_000)
"""


class Random:
    """Vectors of the real model's length, under its tag, that say nothing."""

    def __init__(self, tag: ModelTag) -> None:
        self.tag = tag
        self._rng = np.random.default_rng(1)

    def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:  # noqa: ARG002 - the socket's
        rows = self._rng.standard_normal((len(texts), self.tag.dimension)).astype(np.float32)
        found: Vectors = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return found


def made(place: Path, n_chunks: int) -> Path:
    """A home of so many synthetic messages with random vectors; of the samples with real ones when none is asked."""
    home_path = place / (f"start-{n_chunks}" if n_chunks else "start-samples")
    if home_path.exists():
        return home_path
    chosen = choose_embedder(EmbedderConfig()).embedder
    assert chosen is not None
    with perdure.open(home_path, embedder=Random(chosen.tag) if n_chunks else None) as home, scratch() as chats:
        if n_chunks:
            messages.write(chats, n_chunks)
        home.import_files([chats if n_chunks else SAMPLES])
        home.upkeep.embed()
        home.index().db.pragma("wal_checkpoint(TRUNCATE)")
    return home_path


def commands(home: Path) -> dict[str, list[str]]:
    cli = ["-m", "perdure.surfaces.cli"]
    recall = [*cli, "recall", "--all-projects", "--home", str(home)]
    return {
        "bare interpreter": ["-c", "pass"],
        "import perdure": ["-c", "import perdure"],
        "import perdure.home": ["-c", "import perdure.home"],
        "import numpy": ["-c", "import numpy"],
        "import onnxruntime": ["-c", "import onnxruntime"],
        "perdure --help": [*cli, "--help"],
        "perdure recall --mode keyword": [*recall, "--mode", "keyword", ASKED],
        "perdure recall": [*recall, ASKED],
        "live.answer_alone": ["-c", _ALONE, str(home)],
    }


def ran(source: Path, command: Sequence[str]) -> tuple[float, float]:
    """(wall, processor) milliseconds of one process with all that it waited for."""
    around = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before_s = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, *command], env=around | {"PYTHONPATH": str(source)},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stderr is not None
    said = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    wall_s = time.perf_counter() - before_s
    child.stderr.close()
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(said.decode(errors="replace"))
    return wall_s * 1000, (used.ru_utime + used.ru_stime) * 1000


def measured(sources: dict[str, Path], asked: dict[str, list[str]], n_rounds: int) -> list[dict[str, Any]]:
    """Each command of each version, in turn, after one round that writes bytecode and fills caches."""
    took: dict[tuple[str, str], list[tuple[float, float]]] = {(c, v): [] for c in asked for v in sources}
    for number in range(n_rounds + 1):
        for (command, version), found in took.items():
            one = ran(sources[version], asked[command])
            if number:
                found.append(one)
    rows = []
    for (command, version), found in took.items():
        wall, cpu = (spread([one[part] for one in found]) for part in (0, 1))
        rows.append({
            "process": command, **({"version": version} if len(sources) > 1 else {}),
            "cpu p50": cpu["p50"], "cpu p95": cpu["p95"], "cpu least": round(min(one[1] for one in found), 2),
            "wall p50": wall["p50"], "wall p95": wall["p95"], "wall least": round(min(one[0] for one in found), 2),
        })  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=0, help="synthetic messages; the samples when left out")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--against", type=Path, help="source folder of another version")
    parser.add_argument("--only", nargs="*", help="processes whose names hold one of these")
    parser.add_argument("--keep", type=Path, help="folder for the home, reused by the next run")
    options = parser.parse_args()
    with folder(options.keep) as place:
        asked = commands(made(place, options.chunks))
        if options.only:
            asked = {name: words for name, words in asked.items() if any(part in name for part in options.only)}
        sources = {"this": OWN} | ({"other": options.against.resolve()} if options.against else {})
        rows = measured(sources, asked, options.rounds)
    table(f"milliseconds of a fresh process, {options.rounds} rounds, {options.chunks or 'sample'} chunks", rows)
    save(f"start-{options.chunks or 'samples'}", {"rows": rows})


if __name__ == "__main__":
    main()
