"""Processes that ask, each with arrivals of its own, and the workers of the product beside them.

A worker is `perdure worker`: it indexes a backlog that lies in the archive, and makes its vectors with the real model.
Askers answer one message after another, as a web process does for its users, and only read; a message that arrives
while the asker is busy waits, and its wait counts.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import psutil

import perdure
from benchmarks.scale import texts
from perdure.archive.archive import Delta
from perdure.home import Home
from perdure.types import Origin

_SPAWN = multiprocessing.get_context("spawn")
_WARM_UP = 3  # recalls of each user before the clock starts
_START_S = 180  # a process may take so long to be ready


class Message(NamedTuple):
    """A message that a user sends, at so many seconds after the start."""

    at_s: float
    user: str
    text: str


Askers = tuple[list[int], Callable[[], "list[Answer]"]]


class Answer(NamedTuple):
    """The answer to a message."""

    user: str
    total_ms: float  # since the message arrived
    wall_ms: float  # since the asker took it
    cpu_ms: float  # of the asker
    turns: tuple[str, ...]  # that were told


def make_messages(
    users: Sequence[str], rate: float, length_s: float, *, n_sessions: int, n_made: int, seed: int
) -> list[Message]:
    """Return messages that arrive independently of each other. rate: a second, of all users together."""
    rng = random.Random(seed)
    messages, at_s = [], rng.expovariate(rate)
    while at_s < length_s:
        user = rng.choice(users)
        (text,) = ask_about(user, 1, n_sessions=n_sessions, n_made=n_made, seed=rng.randrange(10**6))
        messages.append(Message(at_s, user, text))
        at_s += rng.expovariate(rate)
    return messages


def ask_about(user: str, n: int, *, n_sessions: int, n_made: int, seed: int) -> list[str]:
    """Return questions of a user, who may be a copy: then their rare words are those of the copy."""
    copy, original = divmod(int(user[1:]) - 1, n_made)
    mark = f"qz{copy}" if copy else ""
    return texts.make_questions(original + 1, n, n_sessions=n_sessions, seed=seed, mark=mark)


def answer(home: Home, message: str) -> tuple[float, float, tuple[str, ...]]:
    """Recall; return (wall ms, processor ms, the turns told)."""
    wall, cpu = time.perf_counter(), time.process_time()
    recalled = home.recall(message)
    assert not recalled.degraded, recalled.degraded
    turns = tuple(cue.turn_id for cue in recalled.cues)
    return (time.perf_counter() - wall) * 1000, (time.process_time() - cpu) * 1000, turns


@contextlib.contextmanager
def open_homes(path: Path, users: Sequence[str]) -> Iterator[dict[str, Home]]:
    """Open a home for each user, warmed up, all with one model."""
    with contextlib.ExitStack() as stack:
        options = {"embedder": texts.open_embedder(), "read_only": True}
        homes = {user: stack.enter_context(perdure.open(path, user=user, **options)) for user in dict.fromkeys(users)}
        for user, home in homes.items():
            for question in texts.make_questions(int(user[1:]), _WARM_UP, n_sessions=5, seed=1):
                home.recall(question)
        yield homes


def _ask(path: Path, messages: Sequence[Message], barrier: Any, queue: Any) -> None:
    answers = []
    with open_homes(path, [message.user for message in messages]) as homes:
        barrier.wait(_START_S)
        began_s = time.perf_counter()
        for message in messages:
            time.sleep(max(0.0, began_s + message.at_s - time.perf_counter()))
            wall_ms, cpu_ms, turns = answer(homes[message.user], message.text)
            total_ms = (time.perf_counter() - began_s - message.at_s) * 1000
            answers.append(Answer(message.user, total_ms, wall_ms, cpu_ms, turns))
    queue.put(answers)


def add_backlog(path: Path, *, n_users: int, n_sessions: int) -> int:
    """Put sessions of users w0 … into the archive, for workers to take in; return their bytes."""
    n_bytes = 0
    with perdure.open(path, user="w0") as home:
        for number in range(n_users):
            sessions = texts.make_sessions(900 + number, n_sessions * texts.MAX_TURNS)
            deltas = [
                Delta(Origin("messages", session.name, session.name), f"w{number}", "bench", session.lines,
                      project=session.project)
                for session in itertools.islice(sessions, n_sessions)
            ]  # fmt: skip
            home.archive.store(deltas, now=datetime.now(UTC), tombstones={})
            n_bytes += sum(len(delta.data) for delta in deltas)
    return n_bytes


@contextlib.contextmanager
def run_workers(path: Path, n: int) -> Iterator[list[psutil.Popen]]:
    """Run workers, which are at work when the block begins."""
    line = [sys.executable, "-W", "ignore", "-m", "perdure.surfaces.cli", "worker", "--home", str(path), "--json"]
    workers = [psutil.Popen(line, stdout=subprocess.PIPE) for _ in range(n)]
    try:
        for worker in workers:
            assert b"working" in worker.stdout.readline()
        yield workers
    finally:
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
        for worker in workers:
            worker.communicate(timeout=60)


@contextlib.contextmanager
def run_askers(path: Path, messages: Sequence[Message], n: int) -> Iterator[Askers]:
    """Start askers; yield (their pids, what lets them begin and returns their answers), when all are ready."""
    n = n if messages else 0
    barrier, queue = _SPAWN.Barrier(n + 1), _SPAWN.Queue()
    askers = [_SPAWN.Process(target=_ask, args=(path, messages[number::n], barrier, queue)) for number in range(n)]
    for asker in askers:
        asker.start()
    while barrier.n_waiting < n:
        assert not any(asker.exitcode for asker in askers), "an asker ended early"
        time.sleep(0.1)

    def ask() -> list[Answer]:
        barrier.wait(_START_S)
        answers: list[Answer] = []
        for _ in askers:
            answers += queue.get(timeout=_START_S)
        return answers

    yield [asker.pid or 0 for asker in askers], ask
    for asker in askers:
        asker.join()


def take_in(path: Path, user: str, n_sessions: int, read_server_s: Callable[[], float]) -> dict[str, float]:
    """Take in sessions, first into archive and index, then their vectors; return bytes, chunks and processor seconds.

    read_server_s: of the server until now.
    """
    sessions = list(itertools.islice(texts.make_sessions(800, 10**9), n_sessions))
    with perdure.open(path, user=user, embedder=texts.open_embedder()) as home:
        home.upkeep.catch_up_user(limit_s=60)
        clocks, n_chunks = [(time.process_time(), read_server_s())], 0
        for session in sessions:
            delta = Delta(Origin("messages", session.name, session.name), user, "bench", session.lines)
            home.archive.store([delta], now=datetime.now(UTC), tombstones={})
            n_chunks += home.upkeep.catch_up_user(limit_s=60).n_chunks
        clocks.append((time.process_time(), read_server_s()))
        home.upkeep.embed_indexed()
        clocks.append((time.process_time(), read_server_s()))
    (worker, server), (indexed, server_indexed), (embedded, server_embedded) = clocks
    return {
        "bytes": sum(len(session.lines) for session in sessions), "chunks": n_chunks,
        "index": indexed - worker, "index, server": server_indexed - server,
        "vectors": embedded - indexed, "vectors, server": server_embedded - server_indexed,
    }  # fmt: skip
