"""Many machines and many readers at once, over HTTP: backlogs, deltas, searches; and the same while it is killed.

A real `perdure serve` in a process of its own. Each machine posts a backlog and then deltas, and sends again what was
not acknowledged; each reader searches for what its machine sent. What counts is what was acknowledged: at the end every
byte of it is read back from the archive, and every delta's mark is found by search once.

    python -m benchmarks.soak
    python -m benchmarks.soak --kill-every 5
    python -m benchmarks.soak --machines 5 --readers 2 --backlog-mb 0.5 --deltas 5
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import perdure
from benchmarks.common import save, scratch, spread, table
from perdure.sharing.grants import GrantCache
from perdure.sharing.machines import Machines
from perdure.types import Source

DELTA_BYTES = 35_000
WORDS = "harbour cable parser ledger lantern ember copper meadow signal tunnel orchard pocket rocket velvet".split()
TIMEOUT_S = 60.0
SETTINGS = """\
[server]
http = "127.0.0.1:{port}"
requests_per_minute = 1000000
"""


@dataclass
class Machine:
    """One machine: its credential, what it has to say, and how far that was acknowledged."""

    name: str
    secret: str
    lines: list[bytes]
    marks: list[str]
    acknowledged: int = 0
    took_ms: list[float] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)


def talk(name: str, n_bytes: int, seed: int) -> tuple[list[bytes], list[str]]:
    """Lines of a conversation of about so many bytes, and a mark in each that no other has."""
    rng, at = random.Random(seed), datetime(2026, 5, 1, tzinfo=UTC)
    lines: list[bytes] = []
    marks: list[str] = []
    size = 0
    while size < n_bytes:
        mark = f"{name}mark{len(lines)}"
        said = f"{mark} {' '.join(rng.choices(WORDS, k=rng.randint(20, 300)))}"
        role = "user" if len(lines) % 2 == 0 else "assistant"
        stamp = (at + timedelta(seconds=len(lines))).isoformat()
        lines.append(json.dumps({"role": role, "content": said, "timestamp": stamp}).encode() + b"\n")
        marks.append(mark)
        size += len(lines[-1])
    return lines, marks


class Server:
    """`perdure serve` for a home, and what it weighs."""

    def __init__(self, home: Path, port: int) -> None:
        self.home, self.port = home, port
        self.n_kills, self.most_rss = 0, 0
        self.start()

    def start(self) -> None:
        """Begin, and wait until it answers."""
        words = [sys.executable, "-m", "perdure.surfaces.cli", "serve", "--home", str(self.home)]
        self.child = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        ends_s = time.monotonic() + TIMEOUT_S
        while time.monotonic() < ends_s:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.05)
        raise SystemExit("the server does not answer")

    def kill(self) -> None:
        """End it as a crash would, and begin again."""
        self.child.kill()
        self.child.wait()
        self.n_kills += 1
        self.start()

    def weigh(self) -> None:
        """Note its memory if that is the most so far."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            status = Path(f"/proc/{self.child.pid}/statm").read_text().split()
            self.most_rss = max(self.most_rss, int(status[1]) * os.sysconf("SC_PAGE_SIZE"))


class Client:
    """One kept connection, with a credential."""

    def __init__(self, port: int, secret: str) -> None:
        self._port, self._secret = port, secret
        self._line: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, body: bytes = b"", kind: str = "application/json") -> tuple[int, Any]:
        """(status, answer). Raises OSError, http.client.HTTPException when the server is away."""
        if self._line is None:
            self._line = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_S)
        try:
            head = {"Authorization": f"Bearer {self._secret}", "Content-Type": kind}
            self._line.request(method, path, body=body, headers=head)
            got = self._line.getresponse()
            raw = got.read()
            return got.status, json.loads(raw or b"null")
        except (OSError, http.client.HTTPException):
            self._line.close()
            self._line = None
            raise


def post_all(machine: Machine, port: int, n_backlog: int, pause_s: float) -> None:
    """Send everything that a machine has: the backlog in one request, then deltas; again until it is acknowledged."""
    client, parts = Client(port, machine.secret), _parts(machine.lines, n_backlog)
    for part in parts:
        body = b"".join(part)
        while not _posted(machine, client, body):
            time.sleep(0.2)
        time.sleep(pause_s)


def _parts(lines: list[bytes], n_backlog: int) -> Iterator[list[bytes]]:
    yield lines[:n_backlog]
    part: list[bytes] = []
    for line in lines[n_backlog:]:
        part.append(line)
        if sum(map(len, part)) >= DELTA_BYTES:
            yield part
            part = []
    if part:
        yield part


def _posted(machine: Machine, client: Client, body: bytes) -> bool:
    query = urlencode({"runtime": "messages", "session": machine.name, "from_offset": machine.acknowledged})
    started = time.perf_counter()
    try:
        status, said = client.ask("POST", f"/api/runs?{query}", body, "application/x-ndjson")
    except (OSError, http.client.HTTPException, ValueError) as error:
        machine.refused[type(error).__name__] += 1
        return False
    if status != 202 or said["accepted_up_to"] < machine.acknowledged + len(body):
        machine.refused[str(status)] += 1
        return False
    machine.took_ms.append((time.perf_counter() - started) * 1000)
    machine.acknowledged += len(body)
    return True


def search_on(
    machine: Machine, options: argparse.Namespace, done: threading.Event, took_ms: list[float], failed: Counter[str]
) -> None:
    """Search until all is posted and indexed."""
    port, rest_s = options.port, options.rest
    client, rng = Client(port, machine.secret), random.Random(machine.name)
    while not done.is_set():
        body = json.dumps({"query": " ".join(rng.choices(WORDS, k=3)), "limit": 10}).encode()
        started = time.perf_counter()
        try:
            status, said = client.ask("POST", "/api/runs/search", body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            failed[type(error).__name__] += 1
            time.sleep(0.2)
            continue
        if status != 200:
            failed[str(status)] += 1
            time.sleep(0.2)
            continue
        if any(hit["machine"] != machine.name for hit in said["hits"]):
            failed["LEAK"] += 1
        took_ms.append((time.perf_counter() - started) * 1000)
        time.sleep(rest_s)


def prepared(home: Path, options: argparse.Namespace) -> list[Machine]:
    """A home whose machines each belong to a user of their own, and what those have to say."""
    with perdure.open(home) as opened:
        config = opened.path / "config.toml"
        config.write_text(SETTINGS.format(port=options.port))
    found, known = [], Machines(home, GrantCache(home))
    for n in range(options.machines):
        name = f"box{n}"
        size = int(options.backlog_mb * 1e6) + options.deltas * DELTA_BYTES
        lines, marks = talk(name, size, n)
        found.append(Machine(name, known.register(f"user{n}", name)[1], lines, marks))
    return found


def checked(home: Path, machines_: list[Machine]) -> dict[str, int]:
    """What of the acknowledged bytes is missing or there twice, in the archive and in the index."""
    found: Counter[str] = Counter()
    for n, machine in enumerate(machines_):
        with perdure.open(home, user=f"user{n}") as opened:
            source = Source(f"user{n}", "messages", machine.name, 0)
            held = opened.archive.ledger.list_source_runs(source)
            stored = b"".join(opened.archive.read(each) for each in sorted(held, key=lambda run: run.from_offset))
            found["bytes acknowledged"] += machine.acknowledged
            found["bytes wrong"] += stored != b"".join(machine.lines)
            rows = opened.index().select(
                "SELECT count(*), count(DISTINCT turn_id) FROM turn JOIN run ON run.id = turn.run JOIN name AS owner "
                "ON owner.id = run.user WHERE owner.value = ?", f"user{n}",
            )[0]  # fmt: skip
            found["turns sent"] += len(machine.lines)
            found["turns found"] += rows[1]
            found["turns twice"] += rows[0] - rows[1]
    return dict(found)


def run(home: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Everything at once, until all is posted and indexed."""
    fleet = prepared(home, options)
    server, done = Server(home, options.port), threading.Event()
    searched: list[float] = []
    failed: Counter[str] = Counter()
    n_backlog = [_lines_of(machine, options.backlog_mb) for machine in fleet]
    posting = [
        threading.Thread(target=post_all, args=(machine, options.port, n, options.pause), daemon=True)
        for machine, n in zip(fleet, n_backlog, strict=True)
    ]
    reading = [
        threading.Thread(target=search_on, args=(machine, options, done, searched, failed), daemon=True)
        for machine in fleet[: options.readers]
    ]
    started = time.monotonic()
    for thread in (*posting, *reading):
        thread.start()
    killed_s = started
    while any(thread.is_alive() for thread in posting):
        server.weigh()
        if options.kill_every and time.monotonic() - killed_s > options.kill_every:
            server.kill()
            killed_s = time.monotonic()
        time.sleep(0.2)
    posted_s = time.monotonic() - started
    indexed_s = settled(server, fleet, started, options.settle_s)
    done.set()
    server.child.terminate()
    server.child.wait()
    refused = sum((machine.refused for machine in fleet), Counter())
    return {
        "acknowledged_ms": spread([ms for machine in fleet for ms in machine.took_ms]),
        "search_ms": spread(searched or [0.0]), "n_posts": sum(len(m.took_ms) for m in fleet),
        "n_searches": len(searched), "posted_s": round(posted_s, 1), "indexed_s": indexed_s,
        "rss_mb": round(server.most_rss / 1e6), "kills": server.n_kills, "sent_again": dict(refused),
        "searches_failed": dict(failed), **checked(home, fleet),
    }  # fmt: skip


def _lines_of(machine: Machine, backlog_mb: float) -> int:
    size = 0
    for n, line in enumerate(machine.lines):
        size += len(line)
        if size >= backlog_mb * 1e6:
            return n + 1
    return len(machine.lines)


def settled(server: Server, fleet: list[Machine], started: float, limit_s: float) -> float | None:
    """Seconds until the last mark of every machine was found; None when that took too long."""
    left = {machine.name: machine for machine in fleet}
    ends_s = time.monotonic() + limit_s
    while left and time.monotonic() < ends_s:
        for machine in list(left.values()):
            body = json.dumps({"query": machine.marks[-1], "limit": 1, "mode": "keyword"}).encode()
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                status, said = Client(server.port, machine.secret).ask("POST", "/api/runs/search", body)
                if status == 200 and said["hits"]:
                    del left[machine.name]
        server.weigh()
        time.sleep(0.5)
    return None if left else round(time.monotonic() - started, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=50)
    parser.add_argument("--readers", type=int, default=20)
    parser.add_argument("--backlog-mb", type=float, default=4.0)
    parser.add_argument("--deltas", type=int, default=10, help="for each machine, of 35 kB")
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between two posts of a machine")
    parser.add_argument("--rest", type=float, default=0.1, help="seconds between an answer and a reader's next search")
    parser.add_argument("--kill-every", type=float, default=0.0, help="seconds between two kill -9; 0 for never")
    parser.add_argument("--settle-s", type=float, default=900.0, help="so long may the index take behind the last post")
    parser.add_argument("--port", type=int, default=_free_port())
    options = parser.parse_args()
    with scratch() as place:
        found = run(place / "home", options)
    table("soak", [{"what": key, "found": value} for key, value in found.items()])
    save("soak-kill" if options.kill_every else "soak", {"options": vars(options), **found})


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
