"""What a client's own model would be asked about after real sessions; nothing is asked.

python -m benchmarks.candidates                     # on the transcripts that come with Perdure
python -m benchmarks.candidates --transcripts DIR   # on others; --show prints the lines
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

import perdure
from benchmarks.common import machine, scratch, table
from perdure.access.fence import make_nonce
from perdure.home import Home
from perdure.memories import host_question
from perdure.memories.host_question import HostCandidate
from perdure.text import tokens

SAMPLES = Path(perdure.__file__).parent / "samples"


class SessionRow(NamedTuple):
    """The candidates of one session."""

    conversation: str
    candidates: list[HostCandidate]
    n_tokens: int  # of the question; 0 without one
    took_ms: float  # with nothing cached


def main() -> None:
    """Print how many sessions have candidates, how many, what a question costs, and how long the choice takes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transcripts", type=Path, default=SAMPLES)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    with scratch() as folder, perdure.open(folder / "home", user="bench") as home:
        home.import_files([options.transcripts])
        rows = [row for name in list_conversations(home) if (row := measure(home, name)) is not None]
    print(machine())
    table("what a client's own model would be asked about", summarise(rows))
    for row in rows if options.show else ():
        for candidate in row.candidates:
            print(f"{row.conversation[:8]}  {candidate.score:.1f}  {candidate.quote[:150]}")


def list_conversations(home: Home) -> list[str]:
    """Return the conversations of a home, in order."""
    query = "SELECT DISTINCT value FROM run JOIN name ON name.id = run.conversation ORDER BY value"
    return [str(row[0]) for row in home.index().select(query)]


def measure(home: Home, conversation: str) -> SessionRow | None:
    """Return the candidates of one conversation; None if it has no turn of its own."""
    miner = home.memories.host_miner()
    started_s = time.perf_counter()
    turns, known_ids = miner._read_conversation(conversation)
    candidates = host_question.choose_candidates(turns, known_ids)
    question, _ = host_question.build_question(candidates, make_nonce())
    took_ms = (time.perf_counter() - started_s) * 1000
    return SessionRow(conversation, candidates, tokens(question) if question else 0, took_ms) if turns else None


def summarise(rows: list[SessionRow]) -> list[dict[str, Any]]:
    """Return the figures as rows of a table."""
    asked = [row for row in rows if row.n_tokens]
    counts = [len(row.candidates) for row in asked] or [0]
    sizes = [row.n_tokens for row in asked] or [0]
    times = [row.took_ms for row in rows] or [0.0]
    return [
        {
            "sessions": len(rows),
            "without candidates": f"{len(rows) - len(asked)} ({(len(rows) - len(asked)) / max(1, len(rows)):.0%})",
            "candidates p50": statistics.median(counts),
            "most": max(counts),
            "tokens p50": statistics.median(sizes),
            "tokens max": max(sizes),
            "ms p50": round(statistics.median(times)),
            "ms max": round(max(times)),
        }
    ]


if __name__ == "__main__":
    main()
