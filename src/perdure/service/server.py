"""The process of `perdure serve`: its lock, its socket, its threads. Ending it in any way loses nothing.

A thread for each connection reads one request and writes one answer. The query workers do whatever takes
long; a client gets an empty answer when its time is over. The ingest worker and the clock have home
objects of their own.
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
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import log, turn
from perdure.agent.queue_runner import QueueRunner
from perdure.agent_queue import count_runs
from perdure.capture import alert, enqueue, events, hook
from perdure.disk import make_folder
from perdure.environ import local_now
from perdure.errors import AlreadyServing, HomeNotPrivate, PerdureError
from perdure.home import Home
from perdure.report import answers
from perdure.service import health, lock, unit
from perdure.service.clock import JobClock
from perdure.service.store_worker import StoreWorker
from perdure.service.worker import IngestWorker, QueryRequest, QueryWorker
from perdure.types import Identity

if TYPE_CHECKING:
    from perdure.service.queue_feeder import QueueFeeder

SWITCH_S = 0.001  # thread switch interval: a recall must not wait until indexing is done
_MAX_LIMIT_MS = 60_000
_RETRY_S = 0.1  # pause after a failed accept
_DEFAULT_LIMIT_MS = 10_000  # for a request without a limit
_STAND_IN_S = 1.0  # between two looks whether another process still answers the hooks of this machine
_TOOL_PROVE_S = 3600.0  # between two searches of the thread for tool calls while nobody asks it
_ANSWER_WINDOW = timedelta(days=1)  # health counts the answers of this period


@dataclass(frozen=True)
class Intervals:
    """How often each part works; tests use short times."""

    round_s: float = 2.0  # between two ingest rounds when nothing happens
    prove_s: float = 10.0  # between two proofs that writing and searching work
    tick_s: float = 5.0  # between two looks at the clock
    stale_s: float = health.STALE_S
    alive_s: float = 30.0  # between two signs of life to the service manager
    hung_s: float = 120.0  # without a search that returned there is no sign of life
    n_query_workers: int = 2
    max_connections: int = 128


class HomeServer:
    """A home that is being served."""

    def __init__(
        self, home: Home, *, intervals: Intervals | None = None, now: Callable[[], datetime] = local_now
    ) -> None:  # fmt: skip
        """Set up the workers. home: this object alone uses it until it is done. now: tells the jobs the time."""
        self.home = home
        self.intervals = intervals or Intervals()
        self.stop_event = threading.Event()
        self.http_address = ""  # its HTTP address; "" without HTTP
        self.page_link: Callable[[], str] | None = None  # makes a link to the web page that admits one visitor
        self.health_state = health.HealthState(datetime.now(UTC))
        home.connections.vectors()  # one model for all threads
        self.query_worker = QueryWorker(
            partial(self.clone_home, read_only=True), self.health_state, prove_s=self.intervals.prove_s
        )
        self.tool_worker = QueryWorker(  # a tool call must not wait behind recalls; its health proves nothing of theirs
            partial(self.clone_home, read_only=True),
            health.HealthState(datetime.now(UTC)),
            prove_s=_TOOL_PROVE_S,
        )
        self.clock = JobClock(self.clone_home, home, tick_s=self.intervals.tick_s, now=now)
        self.ingest_worker: IngestWorker | QueueFeeder = self._make_ingest_worker()
        self.queue_runner = QueueRunner(home.path, home.config.agents)
        self._clone_lock = threading.Lock()
        self._connection_slots = threading.BoundedSemaphore(self.intervals.max_connections)

    def _make_ingest_worker(self) -> IngestWorker | QueueFeeder:
        if self.home.config.workers.enabled:
            from perdure.service.queue_feeder import QueueFeeder  # its packages are those of an extra

            return QueueFeeder(self.clone_home, self.health_state, round_s=self.intervals.round_s)
        return IngestWorker(
            self.home.path,
            self.clone_home,
            self.health_state,
            round_s=self.intervals.round_s,
            prove_s=self.intervals.prove_s,
            request_embedding=partial(self.clock.request, "embed"),
        )

    def clone_home(self, *, read_only: bool = False, identity: Identity | None = None) -> Home:
        """Open the home once more, for another thread; as this identity, if one is given."""
        with self._clone_lock:
            clone = self.home.clone_for_thread(read_only=read_only, identity=identity)
        if read_only or self.home.config.workers.enabled:
            clone.connections.catch_up_elsewhere = partial(self.ingest_worker.catch_up_for_reader, clone)
        return clone

    def run(self, *, on_ready: Callable[[], None] = lambda: None) -> None:
        """Serve until stopped.

        on_ready: called when this process holds the serve lock, before it takes a request. Raises AlreadyServing,
        and whatever `on_ready` raises.
        """
        sys.setswitchinterval(SWITCH_S)
        health.raise_file_limit()
        health.share_memory_arenas()
        if self.home.config.workers.enabled:  # any number of these processes
            self._serve(on_ready, self._hold_socket)
        else:
            with self._open_locked_socket() as listener:
                self._serve(on_ready, lambda _: self._accept_connections(listener))

    def _serve(self, on_ready: Callable[[], None], answer_hooks: Callable[[threading.Event], None]) -> None:
        on_ready()
        log.append_entry(self.home.path, "serving")
        threads = [
            threading.Thread(target=loop, args=(self.stop_event,), name=f"perdure-{name}", daemon=True)
            for name, loop in self._list_loops()
        ]
        accepting = threading.Thread(
            target=answer_hooks, args=(self.stop_event,), name="perdure-accept", daemon=True
        )  # fmt: skip
        for thread in (*threads, accepting):
            thread.start()
        while not self.stop_event.wait(self.intervals.alive_s):
            if self.health_state.measure_ages_s()["read"] < self.intervals.hung_s:
                unit.report_alive()
        self.ingest_worker.wake()
        self.queue_runner.wake()
        for _ in range(self.intervals.n_query_workers):
            self.query_worker.wake()
        self.tool_worker.wake()
        for thread in threads:
            thread.join(timeout=5)
        log.append_entry(self.home.path, "stopped")

    @contextlib.contextmanager
    def _open_locked_socket(self) -> Iterator[socket.socket]:
        with (
            lock.hold_lock(self.home.path, now=self.health_state.started_at),
            open_socket(events.to_socket_path(self.home.path)) as listener,
        ):
            yield listener

    def _hold_socket(self, stop_event: threading.Event) -> None:
        """Answer this machine's hooks whenever no other process does: the one that did may be killed."""
        while not stop_event.is_set():
            with contextlib.suppress(AlreadyServing), self._open_locked_socket() as listener:
                threading.Thread(target=self._accept_connections, args=(listener,), daemon=True).start()
                stop_event.wait()
            stop_event.wait(_STAND_IN_S)

    def _list_loops(self) -> list[tuple[str, Callable[[threading.Event], None]]]:
        places = range(self.intervals.n_query_workers)
        query_loops = [(f"asker-{place}", partial(self.query_worker.run, place=place)) for place in places]
        return [
            *query_loops,
            ("tools", self.tool_worker.run),
            ("warm", self.query_worker.warm_up),
            ("keeper", self.ingest_worker.run),
            *([] if self.home.config.workers.enabled else self._list_own_work()),
        ]

    def _list_own_work(self) -> list[tuple[str, Callable[[threading.Event], None]]]:
        """List the loops that worker processes have instead, where there are some."""
        return [
            ("clock", self.clock.run),
            ("agents", self.queue_runner.run),
            *([("store", StoreWorker(self.clone_home).run)] if self.home.config.archive.store else []),
        ]

    # the socket -------------------------------------------------------------------------------------------

    def _accept_connections(self, listener: socket.socket) -> None:
        while not self.stop_event.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                if listener.fileno() < 0:  # closed: the process ends
                    return
                self.stop_event.wait(_RETRY_S)  # too many open files, for example
                continue
            if not self._connection_slots.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._serve_connection, args=(connection,), daemon=True).start()

    def _serve_connection(self, connection: socket.socket) -> None:
        """Read one request and write one answer."""
        try:
            with connection:
                connection.settimeout(_MAX_LIMIT_MS / 1000)
                request = read_request(connection)
                if request is not None and request.get("op") == "hook":
                    parts = hook.serve_event(request, ask_home=self._answer_request, wake=self.ingest_worker.wake)
                    for part in parts:
                        connection.sendall(part)
                    return
                answer = self._answer_request(request) if request is not None else {"error": {"code": "no-request"}}
                connection.sendall(json.dumps(answer, default=str).encode() + b"\n")
        except OSError:  # the client is gone
            pass
        finally:
            self._connection_slots.release()

    def _answer_request(self, request: dict[str, Any]) -> dict[str, Any]:
        operation = request.get("op")
        if operation in ("event", "recall"):
            return self._ask_worker(request)
        if operation == "health":
            return self.report_health()
        if operation == "wake":
            self.ingest_worker.wake()
            return {"ok": True}
        if operation == "agents":
            self.queue_runner.wake(expect=True)
            return {"ok": True}
        if operation == "proxy":
            return self._record_proxy(request.get("report"))
        if operation == "page" and self.page_link is not None:
            return _answer_page(self.page_link)
        if operation == "stop":
            self.stop_event.set()
            return {"ok": True}
        return {"error": {"code": "usage-error", "message": f"there is no {operation!r}"}}

    def _record_proxy(self, fields: object) -> dict[str, Any]:
        try:
            self.health_state.record_proxy(msgspec.convert(fields, health.ProxyReport))
        except msgspec.ValidationError as error:
            return {"error": {"code": "usage-error", "message": str(error)}}
        return {"ok": True}

    def _ask_worker(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of a query worker within the limit; after that an empty answer."""
        margin_ms = request.get("margin_ms")
        margin_ms = margin_ms if isinstance(margin_ms, int) and 0 <= margin_ms < turn.MARGIN_MS else turn.MARGIN_MS
        query_request = QueryRequest(request, turn.ReplyDeadline(_read_limit_ms(request), margin_ms=margin_ms))
        if _is_tool_event(request):
            self.tool_worker.submit(query_request)
        else:
            self.query_worker.submit(query_request)
            if request["op"] == "event":
                self.ingest_worker.wake()
        try:
            return query_request.answer.result(timeout=query_request.deadline.left_s)
        except Late:
            if not query_request.deadline.give_up():  # it is being given right now
                with contextlib.suppress(Late):
                    return query_request.answer.result(timeout=turn.MARGIN_MS / 1000)
            self.health_state.counts["late"] += 1
            log.append_entry(
                self.home.path, "late", limit_ms=_read_limit_ms(request), n_waiting=self.query_worker.n_waiting
            )
            return {"text": "", "notice": ""}

    def report_health(self) -> dict[str, Any]:
        """Report the health in numbers; `problems` is empty if all is well. Asks no thread that could be stuck."""
        path, now = self.home.path, datetime.now(UTC)
        backlog = enqueue.measure_backlog(path / "outbox")
        outbox_s = (now - backlog.oldest_at).total_seconds() if backlog.oldest_at else 0.0
        ages_s, proxies = self.health_state.measure_ages_s(), self.health_state.list_proxies()
        problems = health.list_problems(
            ages_s,
            dict(self.health_state.failure_codes),
            outbox_age_s=outbox_s,
            failure_code=turn.read_failure(path),
            stale_s=self.intervals.stale_s,
            proxies=proxies,
        )
        if backlog.n_bytes > self.home.config.capture.outbox_alarm_bytes:
            problems.append(f"{backlog.n_bytes} bytes wait in the outbox")
        return {
            "healthy": not problems,
            "problems": problems,
            "alert": list(alert.read_problems(path)),
            "pid": os.getpid(),
            "http": self.http_address,
            "proxies": proxies,
            "since_at": self.health_state.started_at.isoformat(),
            "proven_s_ago": ages_s,
            "rss_bytes": health.read_rss_bytes(),
            "behind": self.health_state.n_behind,
            "questions_waiting": self.query_worker.n_waiting,
            "outbox": {"files": backlog.n_files, "bytes": backlog.n_bytes, "oldest_s": round(outbox_s, 1)},
            "embedding": self.home.connections.vectors().count_waiting(),
            "agents": count_runs(path, now=now),
            **self.ingest_worker.report(self.home),
            "counts": dict(self.health_state.counts),
            "answers": answers.summarise_answers(
                log.read_entries(path, entry_type="answered", since_at=now - _ANSWER_WINDOW)
            ),
        }


def _is_tool_event(request: dict[str, Any]) -> bool:
    """Return True if a request is the event of a tool: nothing was captured before it."""
    fields = request.get("event")
    return isinstance(fields, dict) and fields.get("kind") in events.TOOL_KINDS


def _answer_page(link: Callable[[], str]) -> dict[str, Any]:
    """Return the address of the web page, or the error."""
    try:
        return {"page": link()}
    except PerdureError as error:
        return {"error": {"code": error.code, "detail": error.detail or str(error)}}


def _read_limit_ms(request: dict[str, Any]) -> int:
    limit = request.get("limit_ms")
    return max(1, min(_MAX_LIMIT_MS, int(limit))) if isinstance(limit, (int, float)) else _DEFAULT_LIMIT_MS


def read_request(connection: socket.socket) -> dict[str, Any] | None:
    """Read one line of JSON; None if it is no object."""
    raw = bytearray()
    while not raw.endswith(b"\n"):
        received = connection.recv(1 << 16)
        raw += received
        if not received or len(raw) > events.MAX_LINE_BYTES:
            return None
    try:
        request = json.loads(raw)
    except ValueError:
        return None
    return request if isinstance(request, dict) else None


@contextlib.contextmanager
def open_socket(address: Path) -> Iterator[socket.socket]:
    """Open a socket at this address that only its owner may use; replace the socket of a dead process."""
    make_folder(address.parent)
    status = address.parent.lstat()
    if status.st_uid != os.geteuid() or not stat.S_ISDIR(status.st_mode):
        raise HomeNotPrivate(str(address.parent))
    address.parent.chmod(0o700)
    address.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(address))
        address.chmod(0o600)
        listener.listen(256)
        try:
            yield listener
        finally:
            address.unlink(missing_ok=True)
