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

import contextlib
import http.client
import itertools
import json
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
from urllib.parse import urlsplit

import perdure
from benchmarks import corpus, floor, latency
from benchmarks.common import timed
from perdure.archive import injected
from perdure.archive.journal import encode
from perdure.capture.wire import Event
from perdure.config import EmbedderConfig
from perdure.home import Home
from perdure.index.vector import Shelf
from perdure.live import answer
from perdure.memories import events
from perdure.models.choose import choose
from perdure.types import Origin

BYTES_PER_CHUNK = 1170  # of these transcripts, measured
LONG_BYTES = 10_000_000
LONG = "00000000-0000-4000-8000-00000000010b"  # the session of the long conversation
N_RECALLS = 5_000  # noted in the journal, as in some months
N_ASKED = 20  # of them, real ones whose notes are copied
SETTINGS = '[memories]\nstated = false\n[server]\nhttp = "127.0.0.1:0"\nrequests_per_minute = 1000000\n'
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
        home.catch_up()
        dice = random.Random(9)
        floor.remember(home, [f"{dice.choice(made.sentences)} {made.word(dice)}" for _ in range(n_memories)])
        floor.filled(home, made)
        home.memories.listed()
        chosen = choose(EmbedderConfig()).embedder
        assert chosen is not None
        latency.fill(home.index(), Shelf(path), chosen.tag.dimension, chosen.tag.key)
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
    for path in [*paths, long]:
        home.post_file(Origin("claude-code", path.stem, path.stem), path)
        path.unlink()
    home.drain()


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
        answer(home, Event("claude-code", "prompt", f"asked-{n}", prompt=words), limit_ms=20_000, mode="keyword")
    real = [event.data for event in home.journal().read(type_=injected.TYPE) if event.data.get("turns")]
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
        yield f"{at:%Y-%m}", encode(f"{stamp}#0000", "wrecall", next(sequence), injected.TYPE, data) + b"\n"
        if n % 3 == 0:
            who = {name: data[name] for name in ("runtime", "session", "agent")}
            used = events.used(data["nonce"], data["turns"][:1], at=at, **who)
            yield f"{at:%Y-%m}", encode(f"{stamp}#0001", "wrecall", next(sequence), injected.USED, used) + b"\n"


# asking ---------------------------------------------------------------------------------------------------------


@dataclass
class Visitor:
    """A browser without a screen: one kept connection, and the cookie of a session."""

    line: http.client.HTTPConnection
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


@contextlib.contextmanager
def visiting(home: Path) -> Iterator[Visitor]:
    """Somebody who looks at a home that is served for as long."""
    command(home, "serve", "--detach")
    try:
        link = urlsplit(command(home, "page")["page"])
        visitor = Visitor(http.client.HTTPConnection(link.netloc, timeout=60))
        assert visitor.get(link.path)[0] == 303
        yield visitor
    finally:
        command(home, "serve", "--stop")
