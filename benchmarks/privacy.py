"""Random worlds of users who share some of what they have, each asked everything that reads, against an oracle.

Every answer is searched for marks and ids of what the asker may not read, and for what is refused although it may be
read (`rig.worlds`). In every tenth home the same is asked once more where all that may not be read says
something else: apart from recall, which chooses by scores, the answers name the same turns, runs and memories.

    python -m benchmarks.privacy --worlds 10000
    python -m benchmarks.privacy --worlds 250 --seed 7
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path

from benchmarks.common import save, scratch, table
from rig.worlds import Maker, World, answers, build, identifiers, leaks

PER_HOME = 250
TWICE = 10  # of so many homes one is asked twice


def measure(n_worlds: int, seed: int) -> dict[str, object]:
    counts: Counter[str] = Counter()
    started = time.perf_counter()
    for number, low in enumerate(range(0, n_worlds, PER_HOME)):
        maker = Maker(seed + number)
        worlds = [maker.world() for _ in range(min(PER_HOME, n_worlds - low))]
        with scratch() as place:
            bad = asked(place, worlds, counts, is_twice=number % TWICE == 0)
        counts["leaks"] += len(bad)
        print(
            f"{low + len(worlds):,} worlds, {counts['leaks']} leaks, {time.perf_counter() - started:.0f} s", flush=True
        )
        for line in bad[:10]:
            print(f"  seed {seed + number}: {line}", flush=True)
    return {**counts, "s": round(time.perf_counter() - started)}


def asked(place: Path, worlds: list[World], counts: Counter[str], *, is_twice: bool) -> list[str]:
    """What is wrong with the answers to these worlds' readers."""
    bad = []
    told = {}
    with build(place / "home", worlds) as home:
        for number, world in enumerate(worlds):
            found = list(answers(home, world))
            bad += leaks(world, found)
            told[number] = {name: identifiers(answer) for name, answer in found} if is_twice else {}
            count(counts, world, len(found))
    if is_twice:
        with build(place / "other", [world.hidden() for world in worlds]) as home:
            for number, world in enumerate(worlds):
                for name, answer in answers(home, world):
                    counts["answers compared"] += not name.startswith("recall")
                    if not name.startswith("recall") and identifiers(answer) != told[number][name]:
                        bad.append(f"changes with what is hidden: {name}")
    return bad


def count(counts: Counter[str], world: World, n_answers: int) -> None:
    mine = world.reader.user
    counts.update({
        "worlds": 1, "answers": n_answers, "runs": len(world.runs), "memories": len(world.memories),
        "grants": len(world.reader.granted), "readers with a grant in force": bool(world.granted()),
        "runs of others that may be read": sum(run.user != mine for run in world.readable_runs()),
        "memories of others that may be read": sum(user != mine for user, _, _ in world.readable_memories()),
    })  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found = measure(options.worlds, options.seed)
    table("who may read what", [found])
    save(f"privacy-{options.worlds}", found)


if __name__ == "__main__":
    main()
