"""Connect to the other home: a folder of this machine, or a command at the end of an ssh connection."""

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
from perdure.service.sync_link import SyncLink
from perdure.service.sync_protocol import answer_requests

_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@%-]*\Z|[A-Za-z0-9_.-]*@?\[[0-9A-Fa-f:.%A-Za-z]+\]\Z")
_EXIT_WAIT_S = 20.0  # time for the other side to exit after the last message
_EXIT_REASONS = {
    127: "there is no `perdure` in the PATH of its shell: set it with --remote",
    255: "ssh could not connect",
    2: "its Perdure has no `sync` command: upgrade it",
}


class SshTarget(NamedTuple):
    """A home on another machine."""

    host: str  # as ssh knows it, with the user if one is named
    path: str = ""  # of the home on that machine; "": the default home there


def parse_target(target: str) -> SshTarget | Path:
    """Parse a target: a folder if it exists or is written as a path, else `HOST` or `HOST:PATH` as in scp.

    >>> parse_target("me@laptop:/data/home"), parse_target("./old")
    (SshTarget(host='me@laptop', path='/data/home'), PosixPath('old'))
    """
    if not target:
        raise UsageError("give the other home: `perdure sync DIR` or `perdure sync HOST[:PATH]`")
    before_slash = target.partition("/")[0]
    if ("/" in target and ":" not in before_slash) or target.startswith((".", "~")) or Path(target).is_dir():
        return Path(target).expanduser()
    host, _, path = target.partition(":") if "[" not in before_slash else _split_bracketed(target)
    if not _HOST.match(host) or "\0" in path or "\n" in path:
        raise UsageError(f"{target!r} is neither a folder nor HOST[:PATH]")
    return SshTarget(host, path)


def _split_bracketed(target: str) -> tuple[str, str, str]:
    """Return (host, colon, path) of a target whose host is an address in brackets."""
    host, bracket, remainder = target.partition("]")
    return host + bracket, remainder[:1], remainder[1:]


@contextlib.contextmanager
def connect_folder(home: Home, folder: Path) -> Iterator[SyncLink]:
    """Connect to a home of this machine; a thread answers for it."""
    if not (folder / "archive" / "FORMAT").is_file():
        raise HomeMissing(str(folder))
    if folder.resolve() == home.path.resolve():
        raise UsageError(f"{folder}: both are the same home")
    with _open_pipe() as (their_reader, our_writer), _open_pipe() as (our_reader, their_writer):
        answering_thread = threading.Thread(
            target=_answer_for_folder, args=(home, folder, their_reader, their_writer), daemon=True
        )
        answering_thread.start()
        try:
            yield SyncLink(our_reader, our_writer, str(folder))
        finally:
            our_reader.close()  # first: a side that still writes then stops, and reads the rest of what was sent to it
            with contextlib.suppress(OSError):
                our_writer.close()
            answering_thread.join()


@contextlib.contextmanager
def _open_pipe() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    read_descriptor, write_descriptor = os.pipe()
    with os.fdopen(read_descriptor, "rb") as reader:
        writer = os.fdopen(write_descriptor, "wb")
        yield reader, writer
        with contextlib.suppress(OSError):
            writer.close()


def _answer_for_folder(home: Home, folder: Path, reader: IO[bytes], writer: IO[bytes]) -> None:
    """Answer for a home of this machine until the other side is done or gone."""
    with contextlib.suppress(OSError), writer, reader:
        serve(folder, reader, writer, asking_home=home)


def serve(path: Path | None, reader: IO[bytes], writer: IO[bytes], *, asking_home: Home | None = None) -> None:
    """Answer for a home over a pair of streams. Errors are reported to the other side.

    asking_home: the home of this machine that asks; if the settings of both name one owner, its principal is
    used.
    """
    link = SyncLink(reader, writer, "the asking home")
    link.announce()
    try:
        with open_home(path, create=False) as opened_home:
            if (
                asking_home
                and opened_home.config.user == asking_home.config.user
                and opened_home.user != asking_home.user
            ):
                with open_home(path, create=False, user=asking_home.user) as owner_home:
                    answer_requests(owner_home, link)
            else:
                answer_requests(opened_home, link)
    except PerdureError as error:
        link.send_error(error)
        if asking_home is None:
            raise


@contextlib.contextmanager
def connect_ssh(
    target: SshTarget, *, ssh: Sequence[str] = ("ssh",), remote: Sequence[str] = ("perdure",)
) -> Iterator[SyncLink]:
    """Connect to a home of another machine, where `perdure sync --stdio` answers."""
    command = shlex.join([*remote, "sync", "--stdio", *(["--home", target.path] if target.path else [])])
    try:
        process = subprocess.Popen([*ssh, target.host, command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    except OSError as error:
        raise SyncFault(f"{ssh[0]} cannot be run ({error.strerror})") from error
    assert process.stdin and process.stdout
    link = SyncLink(process.stdout, process.stdin, target.host)
    link.explain_end = lambda: _explain_exit(process)
    try:
        yield link
    finally:
        _end_process(process)


def _explain_exit(process: subprocess.Popen[bytes]) -> str:
    """Return what the other side's exit status means."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        status = process.wait(timeout=_EXIT_WAIT_S)
        return _EXIT_REASONS.get(status, f"exit status {status}")
    return ""


def _end_process(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin and process.stdout
    with contextlib.suppress(OSError):
        process.stdin.close()
    process.stdout.close()
    try:
        process.wait(timeout=_EXIT_WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
