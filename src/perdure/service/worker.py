"""The worker threads of the resident home.

A query worker answers requests with a home object of its own that only reads, so that no capture delays
an answer. The ingest worker archives the outbox, brings the index up to date and embeds new captures. It
works in slices, so its health proof never stops for long. A failure counts against health and is tried
again in the next round; no capture depends on it. In each round every user gets a turn of the same
length. While the index is behind, a round takes only as many users as a slice holds, and the next round
goes on with the next user: a capture must be found before anything is made from it.

Work for a user is done by a home object of that user, with their memories, floor and journal; no user
sees another's. A failure for one user costs no other user their turn.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

import perdure
from perdure import log, tool_turn, turn
from perdure.archive.injections import ToldFacts
from perdure.archive.store import Ledger
from perdure.capture.events import TOOL_KINDS, HookEvent
from perdure.errors import Busy, PerdureError, ServiceFault, UsageError
from perdure.home import Home
from perdure.index.catchup import CatchUpResult, ProjectedRun
from perdure.jobs import JobResult, UserJobResult, sum_user_results
from perdure.memories.stated import build_mark
from perdure.service.builtin_jobs import BuiltinJob, StopCheck
from perdure.service.first_free_queue import FirstFreeQueue
from perdure.service.health import HealthState
from perdure.types import Identity

_WARM_UP_QUERY = "which words would warm a model"


@dataclass
class QueryRequest:
    """A request that needs the home, and its deadline."""

    request: dict[str, Any]
    deadline: turn.ReplyDeadline
    answer: Future[dict[str, Any]] = field(default_factory=Future)


class QueryWorker:
    """A queue of requests and the threads that answer them."""

    def __init__(self, open_home: Callable[[], Home], health_state: HealthState, *, prove_s: float) -> None:
        """Set up the queue.

        open_home: opens a home object for a thread. prove_s: after so long without a request, a search proves
        that it works.
        """
        self._open_home = open_home
        self._health_state = health_state
        self._prove_s = prove_s
        self._is_warm = threading.Event()
        self._told_facts: ToldFacts | None = None  # shared by all threads
        self._queue: FirstFreeQueue[QueryRequest | None] = FirstFreeQueue()  # None: check the stop event

    @property
    def n_waiting(self) -> int:
        """Requests that no thread has taken yet."""
        return self._queue.qsize()

    @property
    def is_warm(self) -> bool:
        """True if the model is loaded; until then answers come from keywords alone."""
        return self._is_warm.is_set()

    def submit(self, query_request: QueryRequest) -> None:
        """Queue a request; its future holds the answer."""
        self._queue.put(query_request)

    def wake(self) -> None:
        """Let one thread check if it must stop."""
        self._queue.put(None)

    def run(self, stop_event: threading.Event, place: int = 0) -> None:
        """Answer requests until stopped. Requests that nobody waits for any more are skipped.

        place: of this thread among those of the queue; the first one that is free answers.
        """
        with self._open_home() as home:
            while not stop_event.is_set():
                try:
                    query_request = self._queue.get(place, timeout_s=self._prove_s)
                except queue.Empty:
                    self._prove_search(home)
                    continue
                if query_request is not None and query_request.deadline.left_s > 0:
                    self._answer_request(home, query_request)

    def warm_up(self, stop_event: threading.Event) -> None:  # noqa: ARG002 - called like the other loops, but runs once
        """Load the model; until then answers come from keywords alone, so that nobody waits for it."""
        try:
            with self._open_home() as home:
                home.recall(_WARM_UP_QUERY)
                home.floor.find_injections(_WARM_UP_QUERY)
        except PerdureError as error:
            self._health_state.failure_codes["read"] = error.code
        finally:
            self._is_warm.set()

    def _prove_search(self, home: Home) -> None:
        """Prove that reading works, by a real search."""
        try:
            result = home.search(_WARM_UP_QUERY, limit=1, mode="keyword")
        except (PerdureError, OSError) as error:
            self._health_state.failure_codes["read"] = getattr(error, "code", type(error).__name__)
            return
        if "index" in result.degraded:
            self._health_state.failure_codes["read"] = "no index"
        else:
            self._health_state.record_proof("read")

    def _answer_request(self, home: Home, query_request: QueryRequest) -> None:
        try:
            home.refresh_live_settings()
            self._told_facts = self._told_facts or ToldFacts(home.journal())
            answer = _answer_query(home, query_request, self._told_facts, is_warm=self.is_warm)
            self._health_state.record_proof("read")
        except PerdureError as error:
            answer = {"error": {"code": error.code, "message": str(error)}}
        except Exception as error:  # noqa: BLE001 - one bad request must not end the thread that all others need
            answer = {"error": {"code": type(error).__name__, "message": "see run/log.jsonl"}}
            turn.record_failure(home.path, HookEvent("resident", "prompt", ""), error)
        query_request.answer.set_result(answer)


def _answer_query(home: Home, query_request: QueryRequest, told_facts: ToldFacts, *, is_warm: bool) -> dict[str, Any]:
    """Answer one request. Raises UsageError for an invalid one."""
    request, deadline, mode = query_request.request, query_request.deadline, None if is_warm else "keyword"
    if request.get("op") == "event":
        event = _parse_event(request.get("event"))
        if event.kind in TOOL_KINDS:
            return {"text": tool_turn.answer_tool_event(home, event, told_facts, deadline=deadline).text, "notice": ""}
        reply = turn.answer_event(home, event, limit_ms=int(deadline.left_s * 1000), mode=mode, deadline=deadline)
        return {"text": reply.text, "notice": reply.notice}
    message = request.get("message")
    if not isinstance(message, str):
        raise UsageError("a recall needs a message")
    if request.get("user", home.user) != home.user:
        raise UsageError(f"this home is served for {home.user}")
    options: dict[str, Any] = {"mode": mode, "now": _parse_now(request.get("now"))}
    options |= {name: request[name] for name in ("cwd", "all_projects", "mode", "explain") if name in request}
    recalled = home.recall(message, **options)
    answer: dict[str, Any] = msgspec.to_builtins(recalled, str_keys=True)
    return {**answer, "version": perdure.__version__, "is_warm": is_warm}


def _parse_now(raw_now: object) -> datetime | None:
    """Return the time in a request; None if it names none. Raises UsageError."""
    try:
        return None if raw_now is None else msgspec.convert(raw_now, datetime)
    except msgspec.ValidationError as error:
        raise UsageError(f"not a valid time: {error}") from error


def _parse_event(fields: object) -> HookEvent:
    """Return the event of a request. Raises UsageError."""
    try:
        return msgspec.convert(fields, HookEvent) if isinstance(fields, list) else _event_from_fields(fields)
    except (msgspec.ValidationError, TypeError) as error:
        raise UsageError(f"not a valid event: {error}") from error


def _event_from_fields(fields: object) -> HookEvent:
    """Return the event of an object; fields that this version does not know are ignored."""
    if not isinstance(fields, dict):
        raise TypeError("it must be an object")
    event = HookEvent(**{name: value for name, value in fields.items() if name in HookEvent._fields})
    return msgspec.convert(list(event), HookEvent)


MAX_OPEN_HOMES = 16  # homes kept open besides the first; each holds an index, a ledger and up to three slabs


class UserHomes:
    """One home's users, for one thread. Close it; the home it was made from stays open."""

    def __init__(self, home: Home, *, max_open: int = 0) -> None:
        """Start with the home of the user who comes first. max_open: homes of others to keep open; 0: the maximum."""
        self._home, self._max_open = home, max_open or MAX_OPEN_HOMES
        self._open_homes: OrderedDict[str, Home] = OrderedDict()  # least recently used first

    def __enter__(self) -> UserHomes:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the homes of the other users."""
        while self._open_homes:
            self._open_homes.popitem()[1].close()

    def list_users(self) -> list[str]:
        """List the home's own user, then the others by name."""
        own_user = self._home.user
        return [own_user, *(user for user in self._home.sharing.users() if user != own_user)]

    def open_as_user(self, user: str) -> Home:
        """Return the home as one of its users. It stays open until the homes of many other users are opened."""
        if user == self._home.user:
            return self._home
        user_home = self._open_homes.pop(user, None) or self._home.clone_for_thread(
            identity=Identity(user, self._home.config.machine, "")
        )
        self._open_homes[user] = user_home
        if len(self._open_homes) > self._max_open:
            self._open_homes.popitem(last=False)[1].close()
        return user_home


def run_for_users(job: BuiltinJob, home: Home, stop: StopCheck) -> JobResult:
    """Run a job: once, or for each user with an equal share of the time; unused time goes to the next users."""
    if not job.for_each_user:
        return job.work(home, stop)
    results: dict[str, UserJobResult] = {}
    ends_s = time.monotonic() + job.max_s
    with UserHomes(home) as user_homes:
        users = user_homes.list_users()
        for n_done, user in enumerate(users):
            if stop():
                break
            left_s = (ends_s - time.monotonic()) / (len(users) - n_done) if job.max_s else None
            user_stop = _limit_time(stop, left_s)
            results[user] = run_for_user(lambda: job.work(user_homes.open_as_user(user), user_stop))  # noqa: B023 - called at once
    return sum_user_results(results)


def run_for_user(work: Callable[[], JobResult]) -> UserJobResult:
    """Run a job for one user and return the result."""
    try:
        result = work()
    except (PerdureError, OSError) as error:
        return UserJobResult("failed", f"{getattr(error, 'code', type(error).__name__)}: {error}")
    return UserJobResult("done" if result.did_work else "nothing", result.why, result.counts)


def _limit_time(stop: StopCheck, left_s: float | None) -> StopCheck:
    """Return a check that is true if `stop` is, or after so many seconds."""
    if left_s is None:
        return stop
    ends_s = time.monotonic() + left_s
    return lambda: stop() or time.monotonic() >= ends_s


SLICE_S = 2.0  # longest time for one step of a round, except for its last item


class StatementProgress:
    """How far the statement rules have read the captures of each user."""

    def __init__(self) -> None:
        self._upto_by_user: dict[str, int] = {}  # user -> number of the last checked change in the ledger
        self._epoch: str | None = None

    def list_waiting_users(self, ledger: Ledger, users: Sequence[str]) -> list[str]:
        """Return the users whose newest captures the rules have not read yet."""
        if ledger.get_meta("epoch") != self._epoch:  # the ledger was rebuilt and counts again
            self._upto_by_user, self._epoch = {}, ledger.get_meta("epoch")
        last_change = ledger.get_last_change()
        waiting_users = []
        for user in users:
            checked_upto = max(self._upto_by_user.get(user, 0), int(ledger.get_meta(build_mark(user)) or 0))
            if ledger.list_changes(checked_upto, limit=1, user=user):
                waiting_users.append(user)
            else:
                self._upto_by_user[user] = last_change
        return waiting_users


def log_capture(home: Home, projected: ProjectedRun) -> None:
    """Log one capture, in numbers."""
    run = projected.run
    log.append_entry(
        home.path,
        "captured" if projected.n_turns else "empty",
        run_id=run.run_id,
        user=run.source.user,
        machine=run.machine,
        runtime=run.source.runtime,
        format=run.source.runtime,
        turn_count=projected.n_turns,
        chunk_count=projected.n_chunks,
        chunk_errors=projected.n_malformed,
        bytes=run.n_bytes,
        duration_ms=round(projected.took_ms, 1),
    )


class IngestWorker:
    """The ingest thread: one home object of its own, and a loop."""

    def __init__(
        self,
        home_path: Path,
        open_home: Callable[[], Home],
        health_state: HealthState,
        *,
        round_s: float,
        prove_s: float,
        slice_s: float = SLICE_S,
        request_embedding: Callable[[], object] = lambda: None,
    ) -> None:
        """Set up the loop.

        open_home: opens a home object for this thread. round_s: pause between two rounds. prove_s: pause between
        two test writes. request_embedding: called when there is more new text than a round embeds, as after an
        import.
        """
        self._open_home = open_home
        self._health_state = health_state
        self._round_s = round_s
        self._prove_s = prove_s
        self._slice_s = slice_s
        self._request_embedding = request_embedding
        self._embedding_requested_upto = 0  # number of a chunk
        self._wake = threading.Event()
        self._outbox = home_path / "outbox"
        self._catch_up_lock = threading.Lock()
        self._readers_home: Home | None = None  # used under the lock, in the threads of those who wait
        self._proved_write_s = 0.0
        self._last_change = ""
        self._statement_progress = StatementProgress()
        self._last_user_by_step: dict[str, str] = {}  # step -> the last user it was done for

    def wake(self) -> None:
        """Start the next round at once, because something was captured."""
        self._wake.set()

    def report(self, home: Home) -> dict[str, Any]:  # noqa: ARG002
        """Return nothing: no other process works."""
        return {}

    def find_overload(self, home: Home, user: str) -> int:  # noqa: ARG002
        """Return 0: this process alone indexes, and reads no more from the disk than it can."""
        return 0

    def catch_up_for_reader(self, reader: Home, limit_s: float) -> None:  # noqa: ARG002 - works for all at once
        """Archive and index what waits, newest first, for at most so many seconds, in the thread of a reader.

        A round would take longer: it also embeds, and may load the model for that.
        """
        ends_s = time.monotonic() + limit_s
        if not (self._catch_up_lock.locked() or any(self._outbox.glob("*.delta"))):
            return
        if self._catch_up_lock.acquire(timeout=limit_s):
            try:
                self._readers_home = self._readers_home or self._open_home()
                self._catch_up(self._readers_home, ends_s - time.monotonic(), newest_first=True)
            except Exception as error:  # noqa: BLE001 - the next round meets it, too; health says what it was
                self._health_state.failure_codes["keeper"] = str(getattr(error, "code", type(error).__name__))
            finally:
                self._catch_up_lock.release()

    def run(self, stop_event: threading.Event) -> None:
        """Run rounds until stopped."""
        with self._open_home() as home, UserHomes(home) as user_homes:
            while not stop_event.is_set():
                if not self.run_round(home, user_homes):
                    self._wake.wait(self._round_s)
                self._wake.clear()
        with self._catch_up_lock:
            if self._readers_home is not None:
                self._readers_home.close()

    def run_round(self, home: Home, user_homes: UserHomes) -> bool:
        """Run one round; return True if work is left over.

        A failure counts against health; the next round tries again.
        """
        try:
            has_more = self._run_steps(home, user_homes)
            self._health_state.record_proof("keeper")
            return has_more
        except Exception as error:  # noqa: BLE001 - the next round tries again; health says what it was
            code = str(getattr(error, "code", type(error).__name__))
            if self._health_state.failure_codes.get("keeper") != code:
                log.append_entry(home.path, "failed", client="keeper", kind="round", code=code)
            self._health_state.failure_codes["keeper"] = code
            self._health_state.counts["failed-rounds"] += 1
            return False

    def _catch_up(self, home: Home, limit_s: float, *, newest_first: bool = False) -> CatchUpResult:
        """Archive and index what was captured. Called under the lock."""
        self._health_state.counts["drained"] += home.captures.drain(limit_s=limit_s, newest_first=newest_first)
        self._health_state.record_proof("keeper")
        return home.upkeep.catch_up(limit_s=limit_s, note=lambda run: self._note_capture(home, run), everyone=True)

    def _run_steps(self, home: Home, user_homes: UserHomes) -> bool:
        with self._catch_up_lock:
            catch_up_result = self._catch_up(home, self._slice_s)
        self._health_state.n_behind = catch_up_result.n_behind
        self._health_state.record_proof("keeper")
        if time.monotonic() - self._proved_write_s >= self._prove_s:
            self._prove_write(home)
        users = user_homes.list_users()
        is_behind = catch_up_result.n_behind > 0
        if home.config.memories.stated:
            waiting_users = self._statement_progress.list_waiting_users(
                home.archive.ledger, users[1:]
            )  # the first user's are stored by now
            self._store_statements(user_homes, waiting_users, is_behind=is_behind)
        for user in self._take_turns("embed", users, is_behind=is_behind):
            home.upkeep.embed_new(user)
            self._health_state.record_proof("keeper")
        newest_chunk = 0 if is_behind else max(map(home.upkeep.find_newest_unembedded, users))
        if newest_chunk > self._embedding_requested_upto:
            self._embedding_requested_upto = newest_chunk
            self._request_embedding()
        return is_behind and catch_up_result.n_runs > 0

    def _take_turns(self, step: str, users: Sequence[str], *, is_behind: bool) -> Iterator[str]:
        """Yield each user, beginning after the one who came last.

        While the index is behind, stop after a slice: indexing comes first, and the next round goes on with the
        next user.
        """
        ends_s, last_user = time.monotonic() + self._slice_s, self._last_user_by_step.get(step, "")
        for user in sorted(users, key=lambda user: (user <= last_user, user)):
            self._last_user_by_step[step] = user
            yield user
            if is_behind and time.monotonic() >= ends_s:
                return

    def _store_statements(self, user_homes: UserHomes, waiting_users: Sequence[str], *, is_behind: bool) -> None:
        """Store the statements in other users' new captures.

        A user who fails is tried again, after everyone else's turn.

        Raises the first failure.
        """
        failures = []
        for user in self._take_turns("stated", waiting_users, is_behind=is_behind):
            try:
                user_homes.open_as_user(user).memories.keep_stated(limit_s=self._slice_s / len(waiting_users))
            except Busy:  # the other process finishes it
                continue
            except (PerdureError, OSError) as error:
                failures.append(error)
            self._health_state.record_proof("keeper")
        if failures:
            raise failures[0]

    def _note_capture(self, home: Home, projected: ProjectedRun) -> None:
        self._health_state.record_proof("keeper")
        self._health_state.counts["runs"] += 1
        log_capture(home, projected)

    def _prove_write(self, home: Home) -> None:
        """Write into the index and read it back. If another process holds the write lock, its progress is the proof."""
        index, stamp = home.index(create=True), datetime.now(UTC).isoformat()
        try:
            with index.begin_write():
                index.set_meta(probe=stamp)
            if index.get_meta("probe") != stamp:
                raise ServiceFault("data written to the index could not be read back")
        except Busy:
            self._health_state.failure_codes["write"] = "busy"
            if (index.get_meta("change") or "") == self._last_change:
                return
        self._last_change = index.get_meta("change") or ""
        self._proved_write_s = time.monotonic()
        self._health_state.record_proof("write")
