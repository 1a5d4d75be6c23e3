"""The command `perdure worker`: one process that does the work in the background of a home, beside others."""

from __future__ import annotations

import contextlib
import signal
from typing import Any

import click
import msgspec

from perdure.environ import find_home_path
from perdure.surfaces.cli.common import Shell, command


@command(
    "worker",
    epilog="""\
  perdure worker            work in this terminal, until Ctrl-C; start as many as you want
  perdure worker --list     the workers that live, and what waits for them
  perdure worker --json     say in JSON when it begins and when it has ended""",
)
@click.option("--list", "lists", is_flag=True, help="Show the workers of this home and its queue, and start none.")
def worker_command(shell: Shell, lists: bool) -> None:
    """Do the work in the background for `perdure serve`: archive and index captures, make vectors, run jobs and agents.
    Needs `workers.enabled = true` and the index in Postgres. Any worker may be killed at any time; nothing is lost.
    """
    if lists:
        _list_workers(shell)
        return
    from perdure.service.worker_process import WorkerProcess

    with shell.open_home(create=True) as home:
        process = WorkerProcess(home)
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signal_number, lambda *_: process.stop_event.set())

        def print_ready() -> None:
            if shell.as_json:
                shell.print_json({"worker": process.file.state.name, "state": "working"})
            else:
                shell.err.print(f"working for {home.path} ({process.file.state.name})", markup=False)

        process.run(on_ready=print_ready)
        if shell.as_json:
            state = process.file.state
            shell.print_json({"worker": state.name, "state": "stopped", "done": state.n_done, "failed": state.n_failed})


def _list_workers(shell: Shell) -> None:
    from perdure import config
    from perdure.service.worker_list import list_workers
    from perdure.work_queue import WorkQueue

    path = find_home_path(shell.home)
    workers = list_workers(path)
    with contextlib.closing(WorkQueue(config.load(path).index)) as work_queue:
        counts = work_queue.count_items()
    if shell.as_json:
        rows: list[Any] = msgspec.to_builtins(workers)
        shell.print_json({"workers": rows, "queue": {slot: count._asdict() for slot, count in counts.items()}})
        return
    for worker in workers:
        doing = ", ".join(worker.doing.values()) or worker.problem or "waits"
        shell.out.print(f"{worker.name}: {doing}; {worker.n_done} done, {worker.n_failed} failed", markup=False)
    if not workers:
        shell.out.print("No worker runs.")
    for slot, count in counts.items():
        shell.out.print(f"{slot}: {count.n_waiting} waiting, {count.n_running} running")
