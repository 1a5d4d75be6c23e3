"""The queue of the work in the background, in the Postgres of the index, for any number of processes of one home.

An item names a piece of work (what, and of which user), never content. What there is to do is computed from the archive
and the index, so the queue is no truth: delete it, and the next look of a worker fills it again. Each item waits in
it at most once, and no two workers do one at the same time. The item of a worker that was killed is given to another
when the dead one has sent no sign of life for STALLED_S.

Knows no work by name. The one file that imports procrastinate, whose workers are asynchronous; the work is not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

from perdure.config import IndexConfig
from perdure.errors import IndexUnreachable, PackageMissing

try:
    import procrastinate
    import psycopg
    from procrastinate import exceptions
    from psycopg import sql
except ModuleNotFoundError as missing:
    raise PackageMissing("workers.enabled needs procrastinate: pip install 'perdure[workers]'") from missing

from perdure.index.index_database import read_password  # it needs psycopg, too

Slot = Literal["capture", "embed", "job"]
SLOTS: tuple[Slot, ...] = (
    "capture",
    "embed",
    "job",
)  # each worker has a thread for each, so that none waits for another
HEARTBEAT_S, STALLED_S = 2.0, 12.0
_SETTLE_S = 3.0  # between two looks for items of dead workers
_POLL_S = 5.0  # between two looks for items, if no notification comes
_STOP_S = 20.0  # an item that runs has so long to end when the process stops
_STOP_POLL_S = 0.1
_TASK = "work"


class WorkItem(NamedTuple):
    """A piece of work. Two with equal fields, `note` left out, are one."""

    slot: Slot
    kind: str
    name: str = ""  # of the user or job
    note: str = ""  # a word of whoever put it in


class SlotCounts(NamedTuple):
    """The items of one slot."""

    n_waiting: int
    n_running: int


class WorkQueue:
    """The queue of one home. Any thread may use it; close it."""

    def __init__(self, config: IndexConfig) -> None:
        """Connect, and make the tables of the queue where they are missing. Raises IndexUnreachable, ConfigFault."""
        logging.getLogger("procrastinate").setLevel(logging.CRITICAL)  # run/log.jsonl says what a person needs
        logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
        self.schema = f"{config.schema}_queue"
        self._arguments: dict[str, Any] = {
            "conninfo": config.address,
            "kwargs": {"options": f"-c search_path={self.schema}", "connect_timeout": 5}
            | ({"password": password} if (password := read_password(config)) else {}),
            "timeout": 5.0,
        }
        with self._map_errors():
            self._prepare()
            self._app = procrastinate.App(
                connector=procrastinate.SyncPsycopgConnector(min_size=1, max_size=2, **self._arguments)
            )
            self._app.open()

    def _prepare(self) -> None:
        """Make the schema and its tables, once."""
        connect_arguments = self._arguments["kwargs"]
        with psycopg.connect(self._arguments["conninfo"], **connect_arguments) as connection:
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('perdure.queue'))")
            connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self.schema)))
            row = connection.execute("SELECT to_regclass('procrastinate_jobs') IS NULL").fetchone()
            if row and row[0]:
                connection.execute(procrastinate.schema.SchemaManager.get_schema().encode())

    def close(self) -> None:
        """Release the connections."""
        self._app.close()

    @contextlib.contextmanager
    def _map_errors(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.OperationalError, psycopg.InterfaceError, exceptions.ConnectorException) as error:
            cause = error.__cause__ or error
            raise IndexUnreachable(f"the queue {self.schema} ({str(cause).strip().partition(chr(10))[0]})") from error

    def put(self, item: WorkItem, *, after_s: float = 0.0) -> bool:
        """Put an item in; return False if it waits already. Raises IndexUnreachable."""
        key = f"{item.kind}:{item.name}"
        start_at = datetime.now(UTC) + timedelta(seconds=after_s) if after_s else None
        task = self._app.configure_task(
            _TASK, queue=item.slot, lock=key, queueing_lock=key, schedule_at=start_at, allow_unknown=True
        )
        try:
            with self._map_errors():
                task.defer(**item._asdict())
        except exceptions.AlreadyEnqueued:
            return False
        return True

    def count_items(self) -> dict[str, SlotCounts]:
        """Count the items of each slot. Raises IndexUnreachable."""
        with self._map_errors():
            rows = {row["name"]: row for row in self._app.job_manager.list_queues()}
        return {slot: SlotCounts(*(rows.get(slot, {}).get(name, 0) for name in ("todo", "doing"))) for slot in SLOTS}

    def work(self, carry_out: Callable[[WorkItem], None], stop_event: threading.Event) -> None:
        """Carry out items until stopped, in a thread for each slot. carry_out: raises nothing.

        Raises IndexUnreachable where the server goes away; call it again.
        """
        threads = {slot: _SlotThread(slot) for slot in SLOTS}
        try:
            with self._map_errors():
                asyncio.run(self._work(carry_out, threads, stop_event))
        finally:
            for thread in threads.values():
                thread.close()

    async def _work(
        self, carry_out: Callable[[WorkItem], None], threads: dict[Slot, _SlotThread], stop_event: threading.Event
    ) -> None:
        connector = procrastinate.PsycopgConnector(min_size=1, max_size=2 * len(SLOTS) + 2, **self._arguments)
        app = procrastinate.App(connector=connector)

        @app.task(name=_TASK)
        async def work(**fields: str) -> None:
            item = WorkItem(**fields)  # type: ignore[arg-type]
            await asyncio.wrap_future(threads[item.slot].submit(lambda: carry_out(item)))

        async with app.open_async():
            tasks = [
                asyncio.create_task(task) for task in (*(_run_slot(app, slot) for slot in SLOTS), _settle_stalled(app))
            ]
            stop = asyncio.create_task(_wait_for(stop_event))
            try:
                await asyncio.wait([*tasks, stop], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            if not stop_event.is_set():  # the server went away
                stop.cancel()
                faults = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
                raise faults[0] if faults else IndexUnreachable(f"the queue {self.schema} gives no answer")


async def _wait_for(stop_event: threading.Event) -> None:
    while not stop_event.is_set():
        await asyncio.sleep(_STOP_POLL_S)


async def _run_slot(app: procrastinate.App, slot: Slot) -> None:
    """Take and carry out the items of one slot, one at a time, until cancelled."""
    await app.run_worker_async(
        queues=[slot], name=slot, concurrency=1, install_signal_handlers=False, delete_jobs="always",
        fetch_job_polling_interval=_POLL_S, update_heartbeat_interval=HEARTBEAT_S,
        stalled_worker_timeout=10 * STALLED_S, shutdown_graceful_timeout=_STOP_S,
    )  # fmt: skip


async def _settle_stalled(app: procrastinate.App) -> None:
    """Give the items of workers that are gone to others."""
    while True:
        for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=STALLED_S):
            try:
                await app.job_manager.retry_job(job)
            except exceptions.UniqueViolation:  # it waits once more already
                await app.job_manager.finish_job(job, status=procrastinate.jobs.Status.FAILED, delete_job=True)
        await asyncio.sleep(_SETTLE_S)


class _SlotThread:
    """One thread that does one thing after another: a home object stays in its thread."""

    def __init__(self, slot: Slot) -> None:
        self._tasks: queue.SimpleQueue[tuple[Callable[[], None], Future[None]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=f"perdure-{slot}", daemon=True).start()

    def submit(self, task: Callable[[], None]) -> Future[None]:
        future: Future[None] = Future()
        self._tasks.put((task, future))
        return future

    def close(self) -> None:
        self._tasks.put(None)

    def _run(self) -> None:
        while (work := self._tasks.get()) is not None:
            task, future = work
            if not future.set_running_or_notify_cancel():
                continue
            try:
                task()
                future.set_result(None)
            except BaseException as error:  # noqa: BLE001 - raised where the result is awaited
                future.set_exception(error)


def describe_counts(counts: dict[str, SlotCounts]) -> Sequence[str]:
    """Return a line for each slot that has items.

    >>> describe_counts({"embed": SlotCounts(2, 1), "job": SlotCounts(0, 0)})
    ['embed: 2 wait, 1 runs']
    """
    return [
        f"{slot}: {n_waiting} wait, {n_running} run{'s' if n_running == 1 else ''}"
        for slot, (n_waiting, n_running) in counts.items()
        if n_waiting or n_running
    ]
