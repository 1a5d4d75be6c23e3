"""The process: its post, its socket, its threads. Ending it in any way loses nothing, because it holds nothing.

A thread for each connection reads one request and writes one answer; whatever takes long goes to the askers, and who
asked gets an empty answer when their time is over. The keeper and the clock have homes of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from perdure import live
from perdure.capture import alert, log, outbox, wire
from perdure.capture.files import make_folder
from perdure.errors import HomeNotPrivate, PerdureError
from perdure.home import Home
from perdure.jobs import post
from perdure.resident import health
from perdure.resident.asker import Asker, Question
from perdure.resident.clock import Clock
from perdure.resident.keeper import Keeper
from perdure.types import Identity

SWITCH_S = 0.001  # a thread gives way to another after so long: a recall waits behind projecting, not for it
_MAX_LIMIT_MS = 60_000
_AGAIN_S = 0.1  # a connection that could not be taken is tried again after so long
_LIMIT_MS = 10_000  # for a request that names no limit
_COUNTED = timedelta(days=1)  # answers of so long are counted in health


@dataclass(frozen=True)
class Pace:
    """How often what happens; tests are in a hurry."""

    round_s: float = 2.0  # between two rounds of the keeper when nothing happens
    prove_s: float = 10.0  # between two proofs that writing and searching work
    tick_s: float = 5.0  # between two looks at the clock
    stale_s: float = health.STALE_S
    n_askers: int = 2
    most_connections: int = 128


class Serving:
    """A home that is being served."""

    def __init__(self, home: Home, *, pace: Pace | None = None) -> None:
        """home: used by this object alone until it is done."""
        self.home = home
        self.pace = pace or Pace()
        self.stopped = threading.Event()
        self.http = ""  # the address at which it answers over HTTP, where it does
        self.page: Callable[[], str] | None = None  # what gives an address of the page that lets one visitor in
        self.vitals = health.Vitals(datetime.now(UTC))
        home.vectors()  # one model for all threads
        self.asker = Asker(partial(self.beside, read_only=True), self.vitals, prove_s=self.pace.prove_s)
        self.keeper = Keeper(self.beside, self.vitals, round_s=self.pace.round_s, prove_s=self.pace.prove_s)
        self.clock = Clock(self.beside, home, tick_s=self.pace.tick_s)
        self._making = threading.Lock()
        self._room = threading.BoundedSemaphore(self.pace.most_connections)

    def beside(self, *, read_only: bool = False, identity: Identity | None = None) -> Home:
        """The home once more, for one more thread; as that of an identity where one is given."""
        with self._making:
            return self.home.beside(read_only=read_only, identity=identity)

    def run(self, *, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until stopped. ready: called when this process has the post, before it takes a question. Raises
        AlreadyServing, and what ready raises.
        """
        sys.setswitchinterval(SWITCH_S)
        health.allow_files()
        with post.held(self.home.path, now=self.vitals.started_at), listening(wire.address(self.home.path)) as line:
            ready()
            log.note(self.home.path, "serving")
            threads = [
                threading.Thread(target=target, args=(self.stopped,), name=f"perdure-{name}", daemon=True)
                for name, target in self._loops()
            ]
            for thread in threads:
                thread.start()
            accepting = threading.Thread(target=self._accept, args=(line,), name="perdure-accept", daemon=True)
            accepting.start()
            self.stopped.wait()
            self.keeper.wake()
            for _ in range(self.pace.n_askers):
                self.asker.wake()
            for thread in threads:
                thread.join(timeout=5)
            log.note(self.home.path, "stopped")

    def _loops(self) -> list[tuple[str, Callable[[threading.Event], None]]]:
        askers = [(f"asker-{n}", self.asker.run) for n in range(self.pace.n_askers)]
        return [*askers, ("warm", self.asker.warm), ("keeper", self.keeper.run), ("clock", self.clock.run)]

    # the socket -------------------------------------------------------------------------------------------

    def _accept(self, line: socket.socket) -> None:
        while not self.stopped.is_set():
            try:
                connection, _ = line.accept()
            except OSError:
                if line.fileno() < 0:  # closed: the process ends
                    return
                self.stopped.wait(_AGAIN_S)  # there are too many files open, say
                continue
            if not self._room.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        """One request, one answer."""
        try:
            with connection:
                connection.settimeout(_MAX_LIMIT_MS / 1000)
                request = read_request(connection)
                answer = self._answer(request) if request is not None else {"error": {"code": "no-request"}}
                connection.sendall(json.dumps(answer, default=str).encode() + b"\n")
        except OSError:  # who asked is gone
            pass
        finally:
            self._room.release()

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        op = request.get("op")
        if op in ("event", "recall"):
            return self._asked(request)
        if op == "health":
            return self.health()
        if op == "wake":
            self.keeper.wake()
            return {"ok": True}
        if op == "page" and self.page is not None:
            return _page(self.page)
        if op == "stop":
            self.stopped.set()
            return {"ok": True}
        return {"error": {"code": "usage-error", "message": f"there is no {op!r}"}}

    def _asked(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer of an asker within the limit; an empty one after it."""
        question = Question(request, live.Slot(_limit_ms(request)))
        self.asker.ask(question)
        if request["op"] == "event":
            self.keeper.wake()
        try:
            return question.answer.result(timeout=question.slot.left_s)
        except Late:
            if not question.slot.give_up():  # it is being given at this moment
                with contextlib.suppress(Late):
                    return question.answer.result(timeout=live.MARGIN_MS / 1000)
            self.vitals.counts["late"] += 1
            log.note(self.home.path, "late", limit_ms=_limit_ms(request), n_waiting=self.asker.n_waiting)
            return {"text": "", "notice": ""}

    def health(self) -> dict[str, Any]:
        """How it is, in numbers; `problems` is empty when all is well. Asks no thread that could be stuck."""
        path, now = self.home.path, datetime.now(UTC)
        waiting = outbox.backlog(path / "outbox")
        outbox_s = (now - waiting.oldest_at).total_seconds() if waiting.oldest_at else 0.0
        ages_s = self.vitals.ages_s()
        problems = health.problems(
            ages_s, dict(self.vitals.trouble), outbox_age_s=outbox_s, failing=live.failing(path),
            stale_s=self.pace.stale_s,
        )  # fmt: skip
        if waiting.n_bytes > self.home.config.capture.outbox_alarm_bytes:
            problems.append(f"{waiting.n_bytes} bytes wait in the outbox")
        return {
            "healthy": not problems, "problems": problems, "alert": list(alert.current(path)), "pid": os.getpid(),
            "http": self.http, "since_at": self.vitals.started_at.isoformat(),
            "proven_s_ago": ages_s, "rss_bytes": health.rss_bytes(),
            "behind": self.vitals.n_behind, "questions_waiting": self.asker.n_waiting,
            "outbox": {"files": waiting.n_files, "bytes": waiting.n_bytes, "oldest_s": round(outbox_s, 1)},
            "embedding": self.home.vectors().waiting(), "counts": dict(self.vitals.counts),
            "answers": health.summary(log.read(path, what="answered", since_at=now - _COUNTED)),
        }  # fmt: skip


def _page(link: Callable[[], str]) -> dict[str, Any]:
    """An address of the page, or why there is none."""
    try:
        return {"page": link()}
    except PerdureError as error:
        return {"error": {"code": error.code, "detail": error.detail or str(error)}}


def _limit_ms(request: dict[str, Any]) -> int:
    limit = request.get("limit_ms")
    return max(1, min(_MAX_LIMIT_MS, int(limit))) if isinstance(limit, (int, float)) else _LIMIT_MS


def read_request(connection: socket.socket) -> dict[str, Any] | None:
    """One line of JSON that is an object, or None."""
    raw = bytearray()
    while not raw.endswith(b"\n"):
        part = connection.recv(1 << 16)
        if not part or len(raw) > wire.MAX_LINE:
            return None
        raw += part
    try:
        request = json.loads(raw)
    except ValueError:
        return None
    return request if isinstance(request, dict) else None


@contextlib.contextmanager
def listening(address: Path) -> Iterator[socket.socket]:
    """A socket at this address that its owner alone may open; one that a dead process left is replaced."""
    make_folder(address.parent)
    found = address.parent.lstat()
    if found.st_uid != os.geteuid() or not stat.S_ISDIR(found.st_mode):
        raise HomeNotPrivate(str(address.parent))
    address.parent.chmod(0o700)
    address.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.bind(str(address))
        address.chmod(0o600)
        line.listen(256)
        try:
            yield line
        finally:
            address.unlink(missing_ok=True)


def state(home: Path, *, timeout_s: float = 2.0) -> dict[str, Any] | None:
    """How the resident home of a home is, by its own word; what is wrong when it does not answer; None without one."""
    who = post.resident(home)
    if who is None:
        return None
    try:
        return wire.ask(home, {"op": "health"}, timeout_s=timeout_s)
    except (OSError, ValueError, PerdureError) as error:
        problem = f"process {who.pid} holds the post and does not answer ({type(error).__name__})"
        return {"healthy": False, "problems": [problem], "pid": who.pid}
