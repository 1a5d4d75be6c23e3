"""Random worlds of users who share some of what they have, each asked everything that reads, against an oracle.

Every answer is searched for marks and ids of what the asker may not read, and for what is refused although it may be
read (`rig.worlds`). The first worlds of each round are asked once more where all that may not be read says something
else: apart from recall, which chooses by scores, the answers name the same turns, runs and memories.

What each round of 50 worlds said is kept in a file; another call goes on behind it, after an interruption, too.

    python -m benchmarks.privacy --worlds 10000
    python -m benchmarks.privacy --worlds 10000 --engine postgres
    python -m benchmarks.privacy --worlds 250 --seed 7 --rounds /tmp/rounds.jsonl
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from benchmarks.common import OUT, find_commit, save, table
from rig.postgres import PostgresServer
from rig.world_rounds import ask_rounds, read_rounds

PER_ROUND = 50  # worlds; an interruption loses fewer


def measure(path: Path, seeds: range, engine: str) -> dict[str, object]:
    """Ask the rounds that are not in the file yet; return the sums over all of these seeds."""
    server = PostgresServer() if engine == "postgres" else None
    try:
        for one in ask_rounds(path, seeds, PER_ROUND, server=server, commit=find_commit()):
            print(f"seed {one.seed}: {one.n_worlds} worlds, {len(one.wrong)} wrong, {one.cpu_s} s", flush=True)
    finally:
        if server is not None:
            server.close()
    rounds = [one for one in read_rounds(path) if one.engine == engine and one.seed in seeds]
    counts = sum((Counter(one.counts) for one in rounds), Counter())
    wrong = [f"seed {one.seed}: {line}" for one in rounds for line in one.wrong]
    return {
        "engine": engine, "seeds": f"{seeds.start} to {seeds.stop - 1}", **counts, "wrong": len(wrong),
        "cpu_s": round(sum(one.cpu_s for one in rounds)), "commits": sorted({one.commit for one in rounds}),
        "first_wrong": wrong[:20],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=10_000, help=f"rounded up to rounds of {PER_ROUND}")
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    parser.add_argument("--engine", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--rounds", type=Path, default=OUT / "privacy-rounds.jsonl", help="file of what was asked")
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + -(-options.worlds // PER_ROUND))
    result = measure(options.rounds, seeds, options.engine)
    table("who may read what", [{name: value for name, value in result.items() if name != "first_wrong"}])
    for line in result["first_wrong"]:
        print(f"  {line}")
    save(f"privacy-{options.engine}", result)
    sys.exit(1 if result["wrong"] else 0)


if __name__ == "__main__":
    main()
