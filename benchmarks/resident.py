"""The resident home: its memory after many captures, what a question takes while it embeds, and twenty sessions at once
while it is killed again and again.

A real `perdure serve` in a process of its own; clients are threads here. Questions are events over the socket, with the
limit that hooks have; what is measured is what a hook waits.

    python -m benchmarks.resident
    python -m benchmarks.resident --captures 500 --seconds 10
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import perdure
from benchmarks import corpus
from benchmarks.common import save, scratch, spread, table
from perdure import log
from perdure.archive import injections
from perdure.capture import events
from perdure.home import Home
from perdure.types import Origin, Source

LIMIT_S = 1.0  # what a hook waits at most
SESSIONS = 20
KILL_S = 3.0  # between two kills
CHECKPOINTS = 8


class Process:
    """`perdure serve` for a home."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.start()

    def start(self) -> None:
        words = [sys.executable, "-m", "perdure.surfaces.cli", "serve", "--home", str(self.home)]
        self.child = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        while True:
            try:
                if self.health()["pid"] == self.child.pid:
                    return
            except (OSError, ValueError):
                time.sleep(0.05)

    def health(self) -> dict[str, Any]:
        return events.ask_resident(self.home, {"op": "health"}, timeout_s=10)

    def kill(self) -> None:
        self.child.kill()
        self.child.wait()


def asked(home: Path, session: str, words: str) -> tuple[float, str]:
    """(milliseconds, "text", "nothing" or the name of the error) of one message."""
    event = events.HookEvent("messages", "prompt", session, prompt=words)
    before = time.perf_counter()
    try:
        request = {"op": "event", "event": event._asdict(), "limit_ms": int(LIMIT_S * 1000)}
        outcome = "text" if events.ask_resident(home, request, timeout_s=LIMIT_S).get("text") else "nothing"
    except (OSError, ValueError) as error:
        outcome = type(error).__name__
    return (time.perf_counter() - before) * 1000, outcome


def line(words: str) -> bytes:
    said = {"role": "user", "content": words, "timestamp": datetime.now(UTC).isoformat()}
    return json.dumps(said).encode() + b"\n"


def settled(process: Process) -> dict[str, Any]:
    """Its health when nothing waits any more."""
    while True:
        found = process.health()
        if not found["outbox"]["files"] and not found["behind"]:
            return found
        time.sleep(0.2)


def memory(process: Process, made: corpus.Corpus, n_captures: int) -> list[dict[str, Any]]:
    """Resident memory while captures come in, with a question after every tenth."""
    dice = random.Random(3)
    rows = [{"captures": 0, "MB": round(settled(process)["rss_bytes"] / 1e6, 1)}]
    offsets: Counter[str] = Counter()
    with perdure.open(process.home) as home:
        for n in range(1, n_captures + 1):
            session = f"m{n % 50}"
            data = line(corpus.message(made, dice, made.words[500 + n % 50 : 520 + n % 50], 4000))
            home.captures.enqueue(Origin("messages", session, session), data, from_offset=offsets[session], path=None)
            offsets[session] += len(data)
            if n % 10 == 0:
                asked(process.home, f"q{n}", corpus.queries(made, "question", 1, seed=n)[0])
            if n % max(1, n_captures // CHECKPOINTS) == 0:
                rows.append({"captures": n, "MB": round(settled(process)["rss_bytes"] / 1e6, 1)})
    return rows


def waits(process: Process, words: list[str], while_: Callable[[], bool]) -> dict[str, Any]:
    """What messages wait for, asked one after another while something holds; of it, the embedding of the message."""
    took, outcomes, since_at = [], Counter[str](), datetime.now(UTC)
    for n, message in enumerate(words):
        if not while_():
            break
        ms, outcome = asked(process.home, f"w{time.monotonic_ns()}-{n}", message)
        took.append(ms)
        outcomes[outcome] += 1
        time.sleep(0.05)
    steps = [found["timings_ms"] for found in log.read_entries(process.home, entry_type="answered", since_at=since_at)]
    parts = {
        f"{name} p95": spread([step[name] for step in steps if name in step])["p95"]
        for name in ("queued", "compute")
        if any(name in step for step in steps)
    }
    return {"n": len(took), **spread(took or [0.0]), **parts, **outcomes}


def latency(process: Process, made: corpus.Corpus) -> list[dict[str, Any]]:
    """Idle, and while its own job embeds everything captured, by the bulk lane."""
    words = corpus.queries(made, "question", 400, seed=9)
    rows = [{"while": "nothing else, no vectors", **waits(process, words[:100], lambda: True)}]
    process.kill()
    (process.home / "config.toml").write_text('[jobs]\nembed = "* * * * *"\n')
    process.start()
    embedding = partial(bulk, process)
    until(embedding)
    time.sleep(3)  # until the first part has its vectors, so that messages are embedded, too
    rows.append({"while": f"it embeds, {bulk(process)} in bulk", **waits(process, words, embedding)})
    return rows


def bulk(process: Process) -> int:
    found = process.health()
    return int(found["embedding"]["bulk"] + found["embedding"]["ingest"])


def until(holds: Callable[[], Any]) -> None:
    while not holds():
        time.sleep(0.2)


def killed(process: Process, place: Path, seconds: float) -> dict[str, Any]:
    """Twenty sessions write, capture and ask, and the resident home is killed every few seconds."""
    over, took, outcomes = threading.Event(), list[float](), Counter[str]()

    def client(number: int) -> None:
        path, n = place / f"k{number}.jsonl", 0
        with perdure.open(process.home) as home:
            while not over.is_set():
                n += 1
                with path.open("ab") as file:
                    file.write(line(f"Session {number} notes buoy {n}, harbour log {number}x{n}."))
                home.captures.enqueue_file(Origin("messages", path.stem, path.stem), path)
                ms, outcome = asked(process.home, path.stem, f"what does the harbour log say of buoy {n - 1}?")
                took.append(ms)
                outcomes[outcome] += 1
                over.wait(0.5)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(SESSIONS)]
    for thread in threads:
        thread.start()
    (process.home / "config.toml").unlink()
    n_kills, ends_s = 0, time.monotonic() + seconds
    while time.monotonic() < ends_s:
        time.sleep(KILL_S)
        process.kill()
        n_kills += 1
        process.start()
    over.set()
    for thread in threads:
        thread.join()
    process.kill()
    with perdure.open(process.home) as home:
        home.captures.drain()
        return {"kills": n_kills, **proven(home, place), "asked": len(took), **spread(took), **outcomes}


def proven(home: Home, place: Path) -> dict[str, Any]:
    """Sessions whose bytes are archived once and whole, and turns that a session was given twice."""
    n_whole = 0
    for number in range(SESSIONS):
        helds = home.archive.ledger.list_source_runs(Source(home.user, "messages", f"k{number}"))
        one = home.archive.ledger.get_generation(home.user, "messages", f"k{number}") == 0
        stored = b"".join(map(home.archive.read, helds))
        n_whole += one and stored == (place / f"k{number}.jsonl").read_bytes()
    events = home.journal().read(type_=injections.EVENT_TYPE)
    given = Counter((event.data["session"], turn) for event in events for turn in event.data["turns"])
    return {
        "sessions": SESSIONS, "whole": n_whole, "given twice": sum(n > 1 for n in given.values()),
        "verify": "ok" if home.upkeep.verify().ok else "DAMAGED",
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captures", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    made = corpus.make()
    with scratch() as place:
        perdure.open(place / "home").close()
        process = Process(place / "home")
        try:
            result: dict[str, Any] = {"memory": memory(process, made, options.captures)}
            table("memory of the resident home", result["memory"])
            result["latency"] = latency(process, made)
            table("milliseconds from event to answer", result["latency"])
            result["killed"] = killed(process, place, options.seconds)
            table("twenty sessions, kill -9 every few seconds", [result["killed"]])
        finally:
            process.kill()
    save("resident", result)


if __name__ == "__main__":
    main()
