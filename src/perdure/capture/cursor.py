"""Where the last capture of a transcript ended, kept by the client so that it sends only what is new.

A cursor is a convenience, never a truth: the archive knows what it holds. It is trusted only while the bytes in
front of it are those that were sent; a transcript that was rewritten or cut short starts again at 0, and the
archive answers what it lacks. Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import NamedTuple

from perdure.capture.files import make_folder, replace

_WITNESS_BYTES = 4096  # as many bytes in front of the cursor are remembered by their hash


class Cursor(NamedTuple):
    """The end of what was sent."""

    offset: int  # bytes from the start of the transcript
    witness: str  # hash of the bytes just before it


def read(folder: Path, path: Path) -> int:
    """The offset from which this transcript is to be sent: 0 when there is no cursor, or none to be trusted."""
    try:
        body = json.loads(_place(folder, path).read_bytes())
        known = Cursor(int(body["offset"]), str(body["witness"]))
        found = _before(path, known.offset)
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    return known.offset if found == known.witness else 0


def write(folder: Path, path: Path, offset: int) -> None:
    """Note that everything before `offset` was sent. Call it after the bytes are durable, never before.

    Not synced itself: a power cut leaves an older cursor or none, and bytes that are sent twice are kept once.
    """
    make_folder(folder)
    body = {"offset": offset, "witness": _before(path, offset), "path": str(path)}
    replace(_place(folder, path), json.dumps(body).encode(), sync=False)


def know(folder: Path, session: str, path: Path) -> None:
    """Note that a sub-agent of this session writes that transcript, for clients whose files do not say so."""
    make_folder(folder)
    if path not in known(folder, session):
        with _agents(folder, session).open("ab") as file:
            file.write(os.fsencode(path) + b"\n")


def known(folder: Path, session: str) -> list[Path]:
    """The transcripts of the session's sub-agents that were noted."""
    try:
        rows = _agents(folder, session).read_bytes().splitlines()
    except OSError:
        return []
    return [Path(os.fsdecode(row)) for row in dict.fromkeys(rows)]


def _agents(folder: Path, session: str) -> Path:
    name = hashlib.sha256(session.encode("utf-8", "replace")).hexdigest()[:32]
    return folder / f"{name}.agents"


def _place(folder: Path, path: Path) -> Path:
    return folder / (hashlib.sha256(str(path.absolute()).encode("utf-8", "surrogateescape")).hexdigest()[:32] + ".json")


def _before(path: Path, offset: int) -> str:
    with path.open("rb") as file:
        file.seek(max(0, offset - _WITNESS_BYTES))
        return _witness(file.read(min(offset, _WITNESS_BYTES)), offset)


def _witness(data: bytes, offset: int) -> str:
    return hashlib.sha256(data + str(offset).encode()).hexdigest()[:32]
