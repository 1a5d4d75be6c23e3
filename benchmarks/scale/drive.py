"""Processes that ask and take in: askers with arrivals of their own, workers with sessions of their own.

A worker does what the resident home does with a session: into the archive, into the index, and then its vectors with
the real model. Askers answer one message after another, as a web process does for its users; a message that arrives
while the asker is busy waits, and its wait counts.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty
from typing import Any, NamedTuple

import perdure
from benchmarks.scale import texts
from perdure.archive.archive import Delta
from perdure.errors import Busy, DiskFull
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


class Answer(NamedTuple):
    """The answer to a message."""

    user: str
    total_ms: float  # since the message arrived
    wall_ms: float  # since the asker took it
    cpu_ms: float  # of the asker
    turns: tuple[str, ...]  # that were told


class Taken(NamedTuple):
    """A session that a worker took in."""

    n_bytes: int
    ended_s: float  # after the start
    index_cpu_s: float  # of the worker: archive and index
    embed_cpu_s: float
    lock_wait_s: float  # for another worker, which embeds


def make_messages(
    users: Sequence[str], rate: float, length_s: float, *, n_sessions: int, n_made: int, seed: int
) -> list[Message]:
    """Return messages that arrive independently of each other. rate: a second, of all users together."""
    rng = random.Random(seed)
    messages, at_s = [], rng.expovariate(rate)
    while at_s < length_s:
        user = rng.choice(users)
        original = (int(user[1:]) - 1) % n_made + 1  # whose texts a copy has
        (text,) = texts.make_questions(original, 1, n_sessions=n_sessions, seed=rng.randrange(10**6))
        messages.append(Message(at_s, user, text))
        at_s += rng.expovariate(rate)
    return messages


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
        homes = {user: stack.enter_context(perdure.open(path, user=user, embedder=texts.open_embedder()))
                 for user in dict.fromkeys(users)}  # fmt: skip
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


def _work(path: Path, number: int, length_s: float, with_vectors: bool, barrier: Any, queue: Any) -> None:
    user = f"w{number}"
    taken = []
    sessions = texts.make_sessions(900 + number, 10**9, first=random.randrange(10**6))
    with perdure.open(path, user=user, embedder=texts.open_embedder()) as home:
        _take_in(home, next(sessions), with_vectors)
        barrier.wait(_START_S)
        began_s = time.perf_counter()
        while time.perf_counter() - began_s < length_s:
            session = next(sessions)
            index_s, embed_s, waited_s = _take_in(home, session, with_vectors)
            ended_s = time.perf_counter() - began_s
            taken.append(Taken(len(session.lines), ended_s, index_s, embed_s, waited_s))
    queue.put(taken)


def _take_in(home: Home, session: texts.Session, with_vectors: bool) -> tuple[float, float, float]:
    began = time.process_time()
    delta = Delta(Origin("messages", session.name, session.name), home.user, "bench", session.lines,
                  project=session.project)  # fmt: skip
    home.archive.store([delta], now=datetime.now(UTC), tombstones={})
    while home.upkeep.catch_up().n_behind:
        time.sleep(0.01)
    indexed, waited_s = time.process_time(), 0.0
    while with_vectors:
        wait_began_s = time.perf_counter()
        try:
            with home.connections.index().show_all():
                home.connections.vectors().fill(home.connections.index(), home.user)
            break
        except (Busy, DiskFull):
            time.sleep(0.02)
            waited_s += time.perf_counter() - wait_began_s
    return indexed - began, time.process_time() - indexed, waited_s


@dataclass(frozen=True)
class Driven:
    """What a run of processes gave."""

    answers: list[Answer]
    taken: list[list[Taken]]  # of each worker
    length_s: float


def drive(
    path: Path,
    messages: Sequence[Message],
    *,
    n_askers: int,
    n_workers: int,
    length_s: float,
    on_start: Callable[[list[int]], AbstractContextManager[None]],
    with_vectors: bool = True,
) -> Driven:
    """Let askers answer messages while workers take in sessions. on_start: entered, with their pids, when all wait."""
    n_askers = n_askers if messages else 0
    barrier, queue = _SPAWN.Barrier(n_askers + n_workers + 1), _SPAWN.Queue()
    askers = [_SPAWN.Process(target=_ask, args=(path, messages[n::n_askers], barrier, queue)) for n in range(n_askers)]
    workers = [_SPAWN.Process(target=_work, args=(path, n, length_s, with_vectors, barrier, queue))
               for n in range(n_workers)]  # fmt: skip
    for process in (*askers, *workers):
        process.start()
    while barrier.n_waiting < len(askers) + len(workers):
        assert not any(process.exitcode for process in (*askers, *workers)), "a process ended early"
        time.sleep(0.1)
    results: list[list[Any]] = []
    with on_start([process.pid or 0 for process in (*askers, *workers)]):
        barrier.wait(_START_S)
        while len(results) < len(askers) + len(workers):
            with contextlib.suppress(Empty):
                results.append(queue.get(timeout=5))
            assert not any(process.exitcode for process in (*askers, *workers)), "a process ended early"
    for process in (*askers, *workers):
        process.join()
    answers = [item for result in results for item in result if isinstance(item, Answer)]
    taken = [result for result in results if result and isinstance(result[0], Taken)]
    return Driven(answers, taken, length_s)
