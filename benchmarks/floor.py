"""What the floor and the context of a turn cost: in a warm process, and in a fresh one as at a session's start.

A home with an index of synthetic messages, memories in its journal, and a floor of the usual size (109 cards of 191
tokens on average, two diary pages, notes and recent.md as long as they may be). Its vectors are random: their number
and length decide the time. Then `home.layers()` alone by the number of cards, by the history of a page, and by the
length of the journal that it does not have to read again.

    python -m benchmarks.floor --chunks 100000 --memories 20000
    python -m benchmarks.floor --chunks 100000 --memories 20000 --keep /var/tmp/bench     # reuses the home
    python -m benchmarks.floor --alone                                                     # the floor without recall
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import perdure
from benchmarks import corpus, latency
from benchmarks.common import save, scratch, spread, table, timed
from benchmarks.search import build, folder
from perdure.archive import memory_events
from perdure.archive.journal import encode_event
from perdure.config import EmbedderConfig
from perdure.home import Home
from perdure.index.vector_search import SlabFiles
from perdure.models.local_embedders import choose_embedder
from perdure.types import Memory

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)
N_CARDS, CARD_WORDS = 109, 110  # the corpus of the feature list: 109 cards, 191 tokens on average
N_CHARS = 300  # of an average chunk
ROUNDS = 20
TIMES = (1, 10, 100, 1000)
BASE_BYTES = 100_000  # of a journal, times 1 to 1,000
_FRESH = """
import json, sys, time
began_s, cpu_s = time.perf_counter(), time.process_time()
import perdure
with perdure.open(sys.argv[1], user="ada") as home:
    opened_s, opened_cpu_s = time.perf_counter(), time.process_time()
    found = home.floor.layers()
    done_s, done_cpu_s = time.perf_counter(), time.process_time()
print(json.dumps([(done_s - opened_s) * 1000, (done_cpu_s - opened_cpu_s) * 1000, (done_cpu_s - cpu_s) * 1000,
                  found.n_tokens, "numpy" in sys.modules, "yaml" in sys.modules]))
"""
_IMPORTS = """
import sys
import perdure.home
before = set(sys.modules)
import perdure.floor.floor, perdure.floor.layers, perdure.context
print(" ".join(sorted(set(sys.modules) - before)))
print(" ".join(name for name in ("numpy", "yaml", "onnxruntime") if name in sys.modules))
"""


def filled(home: Home, made: corpus.Corpus, *, n_cards: int = N_CARDS) -> None:
    """A floor of the usual size."""
    rng = random.Random(5)

    def prose(n_words: int) -> str:
        words = [made.word(rng) for _ in range(n_words)]
        return "\n\n".join(" ".join(words[at : at + 60]) + "." for at in range(0, n_words, 60))

    floor = home.floor
    floor.write("system", prose(400))
    floor.write("profile", prose(150))
    floor.write("core", prose(250))
    floor.write("notes", "\n".join(f"- {line}" for line in prose(2400).split("\n\n")))
    floor.write("recent", prose(2600))
    for day in (NOW - timedelta(days=1), NOW):
        floor.write(f"diary/{day.date()}", prose(900))
    folder_ = home.journal()
    for n in range(n_cards):
        data = {"op": "card", "agent": "default", "id": f"card-{n:08x}", "by": "agent", "text": prose(CARD_WORDS)}
        folder_.append("floor", data, now=NOW)


def made_home(place: Path, made: corpus.Corpus, n_chunks: int, n_memories: int) -> Path:
    """A home of so many memories, with an index of so many chunks beside that no archive stands behind."""
    path = place / f"floor-{n_chunks}-{n_memories}"
    if path.exists():
        return path
    path.mkdir(mode=0o700)
    (path / "config.toml").write_text("[memories]\nstated = false\n")
    with perdure.open(path, user="ada") as home:
        build(path / "index-1.db", made, n_chunks, N_CHARS, (("ada", 1.0),))
        (path / "index.db").symlink_to("index-1.db")
        with timed() as clock:
            remember(home, corpus.queries(made, "question", n_memories, seed=9))
            assert len(home.memories.list_memories(every=True)) == n_memories
        filled(home, made)
        chosen = choose_embedder(EmbedderConfig()).embedder
        assert chosen is not None
        latency.fill(home.index(), SlabFiles(path), chosen.tag.dimension, chosen.tag.key)
        home.index().db.pragma("wal_checkpoint(TRUNCATE)")
    print(f"  {n_memories} memories in {clock.wall_s:.0f} s")
    return path


def remember(home: Home, said: Sequence[str]) -> None:
    """A memory of each, every second one superseding another, as a writer that is not this home wrote them."""
    n = len(said)
    path = home.journal().root / "wbench" / "2025-12.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for at, words in enumerate(said):
            stated = NOW - timedelta(minutes=n - at + 10_000)
            memory = Memory(
                f"mem-{stated:%Y%m%d-%H%M%S}-{at % 2**24:06x}", words.rstrip("?") + ".", "fact", f"topic-{at // 2}/is",
                "default", None, stated, stated, "owner", "stated",
            )  # fmt: skip
            hybrid = f"{stated:%Y-%m-%dT%H:%M:%S}.000Z#{at % 10_000:04d}"
            data = memory_events.build_event_data([memory_events.build_create_op(memory)], by="rules")
            file.write(encode_event(hybrid, "wbench", at + 1, memory_events.EVENT_TYPE, data) + b"\n")


def took(work: Callable[[str], object], asked: Sequence[str]) -> dict[str, Any]:
    """Milliseconds of one call each, after a few to warm up."""
    walls, cpus = [], []
    for n, message in enumerate([*asked[:5], *asked]):
        wall, cpu = time.perf_counter(), time.process_time()
        work(message)
        if n >= 5:
            walls.append((time.perf_counter() - wall) * 1000)
            cpus.append((time.process_time() - cpu) * 1000)
    wall_ms, cpu_ms = spread(walls), spread(cpus)
    return {"wall p50": wall_ms["p50"], "wall p95": wall_ms["p95"], "cpu p50": cpu_ms["p50"], "cpu p95": cpu_ms["p95"]}


def in_context(path: Path, made: corpus.Corpus) -> list[dict[str, Any]]:
    """What a turn costs in a warm process, and its parts."""
    kinds = latency.messages(made)
    mix = [message for asked in kinds.values() for message in asked]
    with perdure.open(path, user="ada") as home:
        home.recall("which words would warm a model")
        session = home.floor.layers(now=NOW)
        rows: list[dict[str, Any]] = [
            {"what": "layers alone", **took(lambda _: home.floor.layers(now=NOW), mix[:100])},
            {"what": "recall by words", **took(lambda m: home.recall(m, now=NOW, mode="keyword"), mix)},
            {"what": "context by words", **took(lambda m: home.context(m, now=NOW, mode="keyword"), mix)},
            {"what": "context by words, within a session",
             **took(lambda m: home.context(m, now=NOW, mode="keyword", floor=session), mix)},
            {"what": "context with vectors", **took(lambda m: home.context(m, now=NOW), mix)},
            {"what": "context with vectors, within a session",
             **took(lambda m: home.context(m, now=NOW, floor=session), mix)},
        ]  # fmt: skip
        for kind, asked in kinds.items():
            rows.append({"what": f"context by words: {kind}",
                         **took(lambda m: home.context(m, now=NOW, mode="keyword"), asked)})  # fmt: skip
        print(f"  C₀ has {session.n_tokens} tokens")
    return rows


def written() -> dict[str, str]:
    """The environment of a process that writes bytecode, as in an installation."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def fresh(path: Path, n_rounds: int = 5) -> dict[str, Any]:
    """`home.layers()` in fresh processes: the first reads the journal, the others what it kept."""
    for kept in (path / "run").glob("floor-*.json"):
        kept.unlink()
    found = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", _FRESH, str(path)], capture_output=True, check=True, env=written()
            ).stdout
        )
        for _ in range(n_rounds + 1)
    ]
    assert not any(one[4] or one[5] for one in found), "numpy or yaml was loaded"
    (kept,) = (path / "run").glob("floor-*.json")
    middle = sorted(found[1:], key=lambda one: one[1])[n_rounds // 2]  # by processor time
    return {
        "first ms": round(found[0][0], 1), "then wall ms": round(middle[0], 1), "then cpu ms": round(middle[1], 1),
        "process cpu ms": round(middle[2], 1), "tokens": middle[3], "kept kB": round(kept.stat().st_size / 1000),
    }  # fmt: skip


def by_size(made: corpus.Corpus) -> list[dict[str, Any]]:
    """The floor alone: by its cards, by the journal around it, by the history of its pages."""
    rows = []
    for n_cards in (1, 100, 10_000):
        with scratch() as place, perdure.open(place / "home", user="ada") as home:
            bulk(home, [card(n, made) for n in range(n_cards)])
            rows.append({"what": f"{n_cards} cards", **journal_mb(home), **fresh(home.path)})
    for times in TIMES:
        with scratch() as place, perdure.open(place / "home", user="ada") as home:
            filled(home, made, n_cards=20)
            bulk(
                home,
                [
                    ("injected", {"conversation": f"s{n}", "cues": ["x" * 900]})
                    for n in range(times * BASE_BYTES // 1100)
                ],
            )
            rows.append({"what": f"a journal {times} times as long", **journal_mb(home), **fresh(home.path)})
    for n_versions in (1_000, 10_000):
        with scratch() as place, perdure.open(place / "home", user="ada") as home:
            bulk(home, [version(n, made) for n in range(n_versions)])
            rows.append({"what": f"{n_versions} versions of recent.md", **journal_mb(home), **fresh(home.path)})
    return rows


def card(n: int, made: corpus.Corpus) -> tuple[str, dict[str, Any]]:
    said = " ".join(made.words[(n * 37 + at * 101) % 5000] for at in range(CARD_WORDS))
    return "floor", {"op": "card", "agent": "default", "id": f"card-{n:08x}", "by": "agent", "text": said}


def version(n: int, made: corpus.Corpus) -> tuple[str, dict[str, Any]]:
    said = f"{n} " + " ".join(made.words[(n * 37 + at * 101) % 5000] for at in range(1500)) + "\n"
    return "floor", {"op": "write", "agent": "default", "name": "recent.md", "text": said, "by": "model", "was": ""}


def bulk(home: Home, told: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Events of another writer, without an fsync for each."""
    path = home.journal().root / "wbulk" / "2026-01.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        for n, (kind, data) in enumerate(told):
            at = NOW + timedelta(milliseconds=n)
            stamp = f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z#0000"
            file.write(encode_event(stamp, "wbulk", n + 1, kind, data) + b"\n")


def journal_mb(home: Home) -> dict[str, float]:
    return {"journal MB": round(sum(path.stat().st_size for path in home.journal().list_files()) / 1e6, 2)}


def imports() -> list[dict[str, Any]]:
    """What the floor adds to a process that has a home."""
    said = subprocess.run(
        [sys.executable, "-c", _IMPORTS], capture_output=True, text=True, check=True, env=written()
    ).stdout
    added, heavy = said.split("\n")[:2]
    rows = []
    for what, code in (
        ("perdure.home", "import perdure.home"),
        ("and the floor", f"import perdure.home, {', '.join(FLOOR)}"),
    ):
        cpus = [_cpu_ms(code) for _ in range(ROUNDS)]
        rows.append({"what": what, "cpu p50": spread(cpus)["p50"], "cpu least": round(min(cpus), 1)})
    print(f"  the floor loads {added}; heavy: {heavy or 'nothing'}")
    return rows


FLOOR = ("perdure.floor.floor", "perdure.floor.layers", "perdure.context")


def _cpu_ms(code: str) -> float:
    before = os.times()
    subprocess.run([sys.executable, "-c", code], check=True, env=written())
    after = os.times()
    return (after.children_user + after.children_system - before.children_user - before.children_system) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--memories", type=int, default=20_000)
    parser.add_argument("--alone", action="store_true", help="only the floor, without a home of messages")
    parser.add_argument("--keep", type=Path, help="folder for the home, reused by the next run")
    options = parser.parse_args()
    made = corpus.make()
    result: dict[str, Any] = {}
    if not options.alone:
        with folder(options.keep) as place:
            path = made_home(place, made, options.chunks, options.memories)
            result["context"] = in_context(path, made)
            table(f"ms, {options.chunks:,} messages, {options.memories:,} memories (target p95 60)", result["context"])
    result["alone"] = by_size(made)
    table("layers() alone, in fresh processes: ms of the first, then of those that find what it kept", result["alone"])
    result["imports"] = imports()
    table("a fresh process, ms of processor", result["imports"])
    save("floor", result)


if __name__ == "__main__":
    main()
