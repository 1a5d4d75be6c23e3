"""Rounds of random worlds, each in homes of its own: what a round said is kept, so that another call goes on behind it.

A seed makes the same worlds and questions on every machine; the number of a round is its seed. A line of the file of
rounds names the seed, the engine and the commit, and everything that was wrong.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rig.postgres import PostgresServer
from rig.worlds import Maker, World, answers, build, identifiers, leaks

TWICE = 10  # worlds of each round are asked again where what may not be read says something else


@dataclass(frozen=True)
class Round:
    """What the worlds of one seed said."""

    seed: int
    engine: str
    n_worlds: int
    commit: str = ""
    cpu_s: float = 0.0  # of this process: making, asking and judging; a server's own is not in it
    counts: dict[str, int] = field(default_factory=dict)
    wrong: tuple[str, ...] = ()


def ask_round(
    place: Path, seed: int, n_worlds: int, *, server: PostgresServer | None = None, commit: str = ""
) -> Round:
    """Make the worlds of a seed, ask them everything that reads, and judge the answers. server: of the index."""
    started_s, maker = time.process_time(), Maker(seed)
    worlds = [maker.world() for _ in range(n_worlds)]
    counts: Counter[str] = Counter()
    index = server.get_settings(server.create_database()) if server else ""
    told: dict[int, dict[str, set[str]]] = {}
    wrong: list[str] = []
    with build(place / "home", worlds, index=index) as home:
        for number, world in enumerate(worlds):
            answered = list(answers(home, world))
            wrong += leaks(world, answered)
            told[number] = {name: identifiers(answer) for name, answer in answered} if number < TWICE else {}
            _count(counts, world, len(answered))
    index = server.get_settings(server.create_database()) if server else ""
    with build(place / "hidden", [world.hidden() for world in worlds[:TWICE]], index=index) as home:
        for number, world in enumerate(worlds[:TWICE]):
            for name, answer in answers(home, world):
                if not name.startswith("recall"):  # which chooses by scores
                    counts["answers compared"] += 1
                    if identifiers(answer) != told[number][name]:
                        wrong.append(f"changes with what is hidden: {name}")
    engine, cpu_s = "postgres" if server else "sqlite", round(time.process_time() - started_s, 1)
    return Round(seed, engine, n_worlds, commit, cpu_s, dict(counts), tuple(wrong))


def _count(counts: Counter[str], world: World, n_answers: int) -> None:
    mine = world.reader.user
    counts.update({
        "worlds": 1, "answers": n_answers, "runs": len(world.runs), "memories": len(world.memories),
        "grants": len(world.reader.granted), "readers with a grant in force": bool(world.granted()),
        "runs of others that may be read": sum(run.user != mine for run in world.readable_runs()),
        "memories of others that may be read": sum(user != mine for user, _, _ in world.readable_memories()),
    })  # fmt: skip


def read_rounds(path: Path) -> list[Round]:
    """Return the rounds of a file; a last line that was torn is none."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    records = [json.loads(line) for line in lines if line.endswith("\n")]
    return [Round(**{**record, "wrong": tuple(record["wrong"])}) for record in records]


def ask_rounds(
    path: Path, seeds: range, n_worlds: int, *, server: PostgresServer | None = None, commit: str = ""
) -> Iterator[Round]:
    """Ask the rounds of these seeds that the file does not have, and add each to the file as soon as it is done."""
    engine = "postgres" if server else "sqlite"
    known = {one.seed for one in read_rounds(path) if (one.engine, one.n_worlds) == (engine, n_worlds)}
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and (lines := path.read_bytes()) and not lines.endswith(b"\n"):
        os.truncate(path, lines.rfind(b"\n") + 1)
    for seed in (seed for seed in seeds if seed not in known):
        with tempfile.TemporaryDirectory(prefix="perdure-worlds-") as folder:
            result = ask_round(Path(folder), seed, n_worlds, server=server, commit=commit)
        with path.open("a") as file:
            file.write(json.dumps(asdict(result), ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        yield result
