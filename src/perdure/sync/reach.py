"""Where the other home is: a folder of this machine, or a command at the end of an ssh connection."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from perdure.errors import HomeMissing, PerdureError, SyncFault, UsageError
from perdure.home import Home, open_home
from perdure.sync.exchange import answer
from perdure.sync.wire import Link

_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@%-]*\Z|[A-Za-z0-9_.-]*@?\[[0-9A-Fa-f:.%A-Za-z]+\]\Z")
_ENDS_S = 20.0  # so long may the other side take to end, once all is said
_WHY = {
    127: "there is no `perdure` in the PATH of its shell: name it with --remote",
    255: "ssh could not connect",
    2: "its Perdure knows no `sync`: upgrade it",
}


class Host(NamedTuple):
    """A home on another machine."""

    host: str  # as ssh knows it, with the user where one is named
    path: str = ""  # of the home there; "": the one that its Perdure uses


def place(target: str) -> Host | Path:
    """Where a target is: a folder when it exists or is written as a path, else `HOST` or `HOST:PATH` as scp has it.

    >>> place("me@laptop:/data/home"), place("./old")
    (Host(host='me@laptop', path='/data/home'), PosixPath('old'))
    """
    if not target:
        raise UsageError("name the other home: `perdure sync DIR` or `perdure sync HOST[:PATH]`")
    before_slash = target.partition("/")[0]
    if ("/" in target and ":" not in before_slash) or target.startswith((".", "~")) or Path(target).is_dir():
        return Path(target).expanduser()
    host, _, path = target.partition(":") if "[" not in before_slash else _bracketed(target)
    if not _HOST.match(host) or "\0" in path or "\n" in path:
        raise UsageError(f"{target!r} is neither a folder nor HOST[:PATH]")
    return Host(host, path)


def _bracketed(target: str) -> tuple[str, str, str]:
    """(host, colon, path) of a target whose host is an address in brackets."""
    host, bracket, rest = target.partition("]")
    return host + bracket, rest[:1], rest[1:]


@contextlib.contextmanager
def beside(home: Home, other: Path) -> Iterator[Link]:
    """A link to a home of this machine, which a thread answers for."""
    if not (other / "archive" / "FORMAT").is_file():
        raise HomeMissing(str(other))
    if other.resolve() == home.path.resolve():
        raise UsageError(f"{other}: both are the same home")
    with _pipe() as (their_reader, our_writer), _pipe() as (our_reader, their_writer):
        there = threading.Thread(target=_answer, args=(home, other, their_reader, their_writer), daemon=True)
        there.start()
        try:
            yield Link(our_reader, our_writer, str(other))
        finally:
            our_reader.close()  # first: a side that still writes then ends, and reads what is left for it
            with contextlib.suppress(OSError):
                our_writer.close()
            there.join()


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    low, high = os.pipe()
    with os.fdopen(low, "rb") as reader:
        writer = os.fdopen(high, "wb")
        yield reader, writer
        with contextlib.suppress(OSError):
            writer.close()


def _answer(home: Home, other: Path, reader: IO[bytes], writer: IO[bytes]) -> None:
    """Answer for a home of this machine, until the other side is content or gone."""
    with contextlib.suppress(OSError), writer, reader:
        serve(other, reader, writer, beside=home)


def serve(path: Path | None, reader: IO[bytes], writer: IO[bytes], *, beside: Home | None = None) -> None:
    """Answer for a home over a pair of streams. What fails the other side is told.

    beside: the home of this machine that asks; where the settings of both name one owner, its principal is used.
    """
    link = Link(reader, writer, "the asking home")
    link.announce()
    try:
        with open_home(path, create=False) as found:
            if beside and found.config.user == beside.config.user and found.user != beside.user:
                with open_home(path, create=False, user=beside.user) as same:
                    answer(same, link)
            else:
                answer(found, link)
    except PerdureError as error:
        link.send_error(error)
        if beside is None:
            raise


@contextlib.contextmanager
def over_ssh(there: Host, *, ssh: Sequence[str] = ("ssh",), remote: Sequence[str] = ("perdure",)) -> Iterator[Link]:
    """A link to a home of another machine, for which `perdure sync --stdio` answers there."""
    command = shlex.join([*remote, "sync", "--stdio", *(["--home", there.path] if there.path else [])])
    try:
        process = subprocess.Popen([*ssh, there.host, command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    except OSError as error:
        raise SyncFault(f"{ssh[0]} cannot be run ({error.strerror})") from error
    assert process.stdin and process.stdout
    link = Link(process.stdout, process.stdin, there.host)
    link.why_ended = lambda: _why(process)
    try:
        yield link
    finally:
        _end(process)


def _why(process: subprocess.Popen[bytes]) -> str:
    """What the other side's exit status says."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        status = process.wait(timeout=_ENDS_S)
        return _WHY.get(status, f"exit status {status}")
    return ""


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin and process.stdout
    with contextlib.suppress(OSError):
        process.stdin.close()
    process.stdout.close()
    try:
        process.wait(timeout=_ENDS_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
