"""A process that has loaded what a run of an agent needs, and forks a process for each run.

Loading takes a second or more, forking some milliseconds. The process holds no home, no connection and no second
thread, so a fork of it is safe. It reads the ids of runs from standard input, a line each, and says "ended" for each
process that has ended. It ends when its input is closed: then whoever started it is gone, and the runs go on.

    python -m perdure.agent.fork_server HOME
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from perdure import config
from perdure.agent.carry_out import carry_out
from perdure.errors import PerdureError
from perdure.memories.explicit import find_statements

# What a run imports when it is used. A module that is not installed is left out, and so is another provider's.
_LATER = (
    "apsw", "yaml", "perdure.context", "perdure.queries", "perdure.floor.recent", "perdure.floor.room",
    "perdure.memories.stated", "perdure.recall.index_candidates",
)  # fmt: skip
_HTTP = ("httpx2", "httpcore2", "h11", "truststore", "perdure.models.sdk_calls")
_SDKS = {
    "anthropic": ("perdure.models.anthropic_chat", "anthropic.resources.messages", "anthropic.lib.streaming", *_HTTP),
    "openai": ("perdure.models.openai_chat", "openai.resources.chat", "openai.lib.streaming.chat", *_HTTP),
}
_STATEMENT = "We decided to use tabs."  # the forms of statements compile when they are first used


def serve(home: Path) -> None:
    """Fork a process for each run that standard input names, until it is closed."""
    _load(home)
    wake_reader, wake_writer = os.pipe()
    os.set_blocking(wake_writer, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_writer)
    for run_id in _read_lines(wake_reader):
        if os.fork() == 0:
            signal.set_wakeup_fd(-1)
            _become_worker(home, run_id, (wake_reader, wake_writer))


def _read_lines(wake_reader: int) -> Iterator[str]:
    """Yield the lines of standard input, and meanwhile tell of each process that has ended."""
    unread = b""
    while True:
        ready, _, _ = select.select([0, wake_reader], [], [])
        if wake_reader in ready:
            os.read(wake_reader, 4096)
            _tell_ends()
        if 0 in ready:
            block = os.read(0, 4096)
            if not block:
                return
            *lines, unread = (unread + block).split(b"\n")
            yield from (line.decode() for line in lines)


def _tell_ends() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            with contextlib.suppress(BrokenPipeError):  # nobody listens any more
                os.write(1, b"ended\n")


def _become_worker(home: Path, run_id: str, descriptors: tuple[int, ...]) -> None:
    """Carry out a run in a process that was just forked, and end it."""
    try:
        for number in (signal.SIGCHLD, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        for descriptor in descriptors:
            os.close(descriptor)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.close(null)
        carry_out(home, run_id)
    except BaseException:  # noqa: BLE001 - nothing of the process that forked may go on in this one
        traceback.print_exc()
    finally:
        os._exit(0)


def _load(home: Path) -> None:
    """Import what runs need, and keep it out of the way of the garbage collector, so that it stays shared."""
    with contextlib.suppress(PerdureError):
        sdks = _SDKS.get(config.load(home).models.roles.resident.provider, ())
        for name in (*_LATER, *sdks):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    find_statements(_STATEMENT)
    gc.freeze()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
