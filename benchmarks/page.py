"""What a person waits for: every page of a large home, served by a real `perdure serve`, and a conversation of 10 MB.

The home has transcripts in its archive (sessions of 40 turns with prompts, answers, calls and results), memories of
which every second one superseded another, recalls noted in its journal, a floor of the usual size, and random vectors
(their number and length decide the time). Measured is one request after another on a kept connection, from before it
is sent until its last byte is there; the browser's own work is measured in tests/e2e/browser.

    python -m benchmarks.page
    python -m benchmarks.page --chunks 10000 --rounds 5
    python -m benchmarks.page --keep /var/tmp/bench          # reuses the home
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import os
import random
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import perdure
from benchmarks import corpus, floor, latency
from benchmarks.common import save, spread, table, timed
from benchmarks.search import folder
from perdure.archive import injections, memory_events
from perdure.archive.journal import encode_event
from perdure.capture.events import HookEvent
from perdure.config import EmbedderConfig
from perdure.home import Home
from perdure.index.vector_search import SlabFiles
from perdure.models.local_embedders import choose_embedder
from perdure.turn import answer_event
from perdure.types import Origin

BYTES_PER_CHUNK = 1000  # of these transcripts, measured
LONG_BYTES = 10_000_000
LONG = "00000000-0000-4000-8000-00000000010b"  # the session of the long conversation
N_RECALLS = 5_000  # noted in the journal, as in some months
N_ASKED = 20  # of them, real ones whose notes are copied
SETTINGS = 'user = "ada"\n[memories]\nstated = false\n[server]\nhttp = "127.0.0.1:0"\nrequests_per_minute = 1000000\n'
_TURNS = "SELECT turn_id FROM turn JOIN run ON run.id = turn.run WHERE run.run_id = ? ORDER BY turn.offset"
LIMIT_MS = 200  # within which a page is to be there, at 100,000 chunks


def made_home(place: Path, n_chunks: int, n_memories: int) -> Path:
    """A home of that size; the one that is there is reused."""
    path = place / f"page-{n_chunks}-{n_memories}"
    if (path / "made").exists():
        return path
    path.mkdir(mode=0o700)
    (path / "config.toml").write_text(SETTINGS)
    made = corpus.make()
    with perdure.open(path, user="ada") as home, timed() as clock:
        talked(home, place / "transcripts", n_chunks)
        home.upkeep.catch_up()
        dice = random.Random(9)
        floor.remember(home, [f"{dice.choice(made.sentences)} {made.word(dice)}" for _ in range(n_memories)])
        floor.filled(home, made)
        home.memories.list_memories()
        chosen = choose_embedder(EmbedderConfig()).embedder
        assert chosen is not None
        latency.fill(home.index(), SlabFiles(path), chosen.tag.dimension, chosen.tag.key)
        noted(home, made)
        home.index().db.pragma("wal_checkpoint(TRUNCATE)")
    (path / "made").touch()
    print(f"  made in {clock.wall_s:.0f} s")
    return path


def talked(home: Home, place: Path, n_chunks: int) -> None:
    """Conversations for so many chunks, and the long one."""
    paths = corpus.write_transcripts(place, n_bytes=n_chunks * BYTES_PER_CHUNK)
    long = place / f"{LONG}.jsonl"
    long.write_bytes(b"".join(long_lines(LONG_BYTES)))
    for path in paths:
        home.captures.enqueue_file(Origin("claude-code", path.stem, path.stem), path)
        path.unlink()
    home.import_files([long])  # as one run
    long.unlink()


def long_lines(n_bytes: int) -> Iterator[bytes]:
    """One conversation of Claude Code of so many bytes."""
    made, rng, written = corpus.make(), random.Random(8), 0
    for part in itertools.count():
        for line in corpus._claude_lines(made, rng, LONG, 400 + part):
            written += len(line)
            yield line
        if written >= n_bytes:
            return


def noted(home: Home, made: corpus.Corpus) -> None:
    """Recalls of some months in the journal: real ones, noted again with other codes, and what of them was used."""
    now = datetime.now(UTC)
    for n, words in enumerate(corpus.queries(made, "question", N_ASKED)):
        answer_event(
            home, HookEvent("claude-code", "prompt", f"asked-{n}", prompt=words), limit_ms=20_000, mode="keyword"
        )
    real = [event.data for event in home.journal().read(type_=injections.EVENT_TYPE) if event.data.get("turns")]
    since_at = now - timedelta(minutes=20 * N_RECALLS)
    for month, lines in itertools.groupby(again(real, since_at), key=lambda one: one[0]):
        path = home.journal().root / "wrecall" / f"{month}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(line for _, line in lines))


def again(real: list[dict[str, Any]], since_at: datetime) -> Iterator[tuple[str, bytes]]:
    """(month, line of the journal) of recalls every twenty minutes; of every third, that something was used."""
    sequence = itertools.count(1)
    for n in range(N_RECALLS):
        at, data = since_at + timedelta(minutes=20 * n), real[n % len(real)]
        data = {**data, "nonce": secrets.token_hex(8), "session": f"s{n // 5}"}
        stamp = f"{at:%Y-%m-%dT%H:%M:%S}.000Z"
        yield (
            f"{at:%Y-%m}",
            encode_event(f"{stamp}#0000", "wrecall", next(sequence), injections.EVENT_TYPE, data) + b"\n",
        )
        if n % 3 == 0:
            who = {name: data[name] for name in ("runtime", "session", "agent")}
            used = memory_events.build_used_data(data["nonce"], data["turns"][:1], used_at=at, **who)
            yield f"{at:%Y-%m}", encode_event(f"{stamp}#0001", "wrecall", next(sequence), injections.USED, used) + b"\n"


# asking ---------------------------------------------------------------------------------------------------------


@dataclass
class Visitor:
    """A browser without a screen: one kept connection, and the cookie of a session."""

    line: http.client.HTTPConnection
    pid: int = 0  # of the server
    cookie: str = ""

    def get(self, path: str) -> tuple[int, bytes, float]:
        """(status, body, milliseconds) of a page."""
        began_s = time.perf_counter()
        self.line.request("GET", path, headers={"Cookie": self.cookie})
        got = self.line.getresponse()
        body = got.read()
        took_ms = (time.perf_counter() - began_s) * 1000
        if found := got.getheader("Set-Cookie"):
            self.cookie = found.partition(";")[0]
        return got.status, body, took_ms


def command(home: Path, *words: str) -> Any:
    """What a command says to programs."""
    line = [sys.executable, "-m", "perdure.surfaces.cli", *words, "--home", str(home), "--json"]
    return json.loads(subprocess.run(line, capture_output=True, check=True).stdout)["result"]


def cpu_ms(pid: int) -> float:
    """Processor time of a process and its threads until now; 0 where nothing tells it."""
    place = Path(f"/proc/{pid}/stat")
    if not place.exists():
        return 0.0
    ticks = place.read_text().rpartition(") ")[2].split()[11:13]
    return sum(map(int, ticks)) * 1000 / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def visiting(home: Path) -> Iterator[Visitor]:
    """Somebody who looks at a home that is served for as long."""
    served = command(home, "serve", "--detach")
    try:
        link = urlsplit(command(home, "page")["page"])
        visitor = Visitor(http.client.HTTPConnection(link.netloc, timeout=60), served["pid"])
        assert visitor.get(link.path)[0] == 303
        yield visitor
    finally:
        command(home, "serve", "--stop")


# measuring ------------------------------------------------------------------------------------------------------


def ids(path: Path) -> dict[str, str]:
    """What stands for the ids in the addresses."""
    with perdure.open(path, user="ada") as home:
        (long,) = home.runs.conversation(LONG)
        turns = [turn_id for (turn_id,) in home.index().select(_TURNS, long.run_id)]
        run = next(node.run for node in home.runs.forest(limit=50) if node.run.conversation != LONG)
        memories = home.memories.list_memories(every=True)
        events = home.journal().read(type_=injections.EVENT_TYPE)
        return {
            "run": run.run_id, "long": long.run_id, "first": turns[0], "middle": turns[len(turns) // 2],
            "last": turns[-1], "current": next(one.memory_id for one in memories if one.is_current),
            "former": next(one.memory_id for one in memories if not one.is_current),
            "nonce": next(event.data["nonce"] for event in events if event.data["turns"]),
        }  # fmt: skip


def addresses(made: corpus.Corpus, n: int) -> dict[str, list[str]]:
    """A page -> addresses that are asked for in turn, with what stands for ids; searches are never the same twice."""
    asked = {kind: corpus.queries(made, kind, n) for kind in ("2-3 words", "question", "frequent words")}
    searches = {
        f"search: {kind}": [f"/search?{urlencode({'q': words})}" for words in texts] for kind, texts in asked.items()
    }
    tried = [f"/recall/try?{urlencode({'message': words})}" for words in asked["question"]]
    context = [f"/context?{urlencode({'message': words})}" for words in asked["question"]]
    found = [f"/memories?{urlencode({'q': words})}" for words in asked["2-3 words"]]
    same = {
        "home": "/", "search: filters alone": "/search?role=user&runtime=claude-code", "runs": "/runs",
        "runs, flat": "/runs?flat=1", "a run": "/runs/{run}", "10 MB: its beginning": "/runs/{long}",
        "10 MB: its middle": "/runs/{long}?at={middle}", "10 MB: its end": "/runs/{long}?at={last}",
        "a turn's place": "/turns/{middle}", "memories": "/memories", "a memory": "/memories/{current}",
        "a former memory": "/memories/{former}", "forget it": "/memories/{current}/forget", "proposals": "/proposals",
        "recalls": "/recall", "a recall": "/recall/{nonce}", "use": "/use", "floor": "/floor",
        "a page of the floor": "/floor/notes.md", "diary": "/diary", "machines": "/machines", "sharing": "/sharing",
        "jobs": "/jobs", "health": "/health", "growth": "/growth", "quality": "/quality",
    }  # fmt: skip
    return {**searches, "search memories": found, "recall tried": tried, "context": context,
            **{name: [path] * n for name, path in same.items()}}  # fmt: skip


def measured(visitor: Visitor, name: str, paths: list[str]) -> dict[str, Any]:
    """Milliseconds of one page: the first time, and then."""
    took, sizes, statuses, began_ms = [], [], set(), 0.0
    for n, path in enumerate(paths):
        if n == 1:
            began_ms = cpu_ms(visitor.pid)
        status, body, ms = visitor.get(path)
        took.append(ms)
        sizes.append(len(body))
        statuses.add(status)
    assert statuses <= {200, 303}, f"{name}: {statuses}"
    then = {**spread(took[1:]), "cpu": round((cpu_ms(visitor.pid) - began_ms) / (len(paths) - 1), 1)}
    return {"page": name, "status": "/".join(map(str, sorted(statuses))), "kB": round(max(sizes) / 1000, 1),
            "first ms": round(took[0], 1), **then, "within": then["p95"] <= LIMIT_MS}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--memories", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=40, help="requests of each page")
    parser.add_argument("--only", default="", help="pages whose name has this in it")
    parser.add_argument("--keep", type=Path, help="folder for the home, reused by the next run")
    options = parser.parse_args()
    with folder(options.keep) as place:
        path = made_home(place, options.chunks, options.memories)
        known = ids(path)
        asked = addresses(corpus.make(), options.rounds + 1)
        with visiting(path) as visitor:
            rows = [
                measured(visitor, name, [one.format(**known) for one in paths])
                for name, paths in asked.items()
                if options.only in name
            ]
    rows.sort(key=lambda row: -row["p95"])
    table(f"ms of a page, {options.chunks:,} chunks, {options.memories:,} memories, {N_RECALLS:,} recalls", rows)
    if not options.only:
        save(f"page-{options.chunks}", {"pages": rows})


if __name__ == "__main__":
    main()
