"""What a hook says to the resident home, and how: one line of JSON each way over a Unix socket. Standard library only.

The socket lies inside the home, which only its owner may enter; where that path is too long for a socket, in a
folder of the owner's under the system's temporary folder. Who asks gives a time limit and gets OSError when nobody
answers within it: a missing resident home is an ordinary case, not a failure.
"""

from __future__ import annotations

import _socket as socket  # its C half: the other half is milliseconds of every hook, and nothing that is used here
import contextlib
import json
import os
import stat
import time
from pathlib import Path
from typing import Any, Literal, NamedTuple

_MAX_ADDRESS = 100  # bytes of a Unix socket's path that every system takes
MAX_LINE = 32_000_000  # bytes of a question or an answer

Kind = Literal[
    "prompt", "start", "turn-end", "session-end", "subagent-start", "subagent-end", "before-compact", "after-compact"
]


class Event(NamedTuple):
    """One thing that happened in a client, in the same words for every client."""

    client: str  # a runtime: claude-code, codex, pi, gemini-cli, opencode
    kind: Kind
    session: str  # native id of the session; with `agent` that of a sub-agent in it
    cwd: str = ""
    transcript: str = ""  # path of the file that the client writes, which may not exist yet
    prompt: str = ""  # what was typed, for kind "prompt"
    is_human: bool = True  # a person typed it; False for notifications, sub-agents and other machine turns
    agent: str = ""  # native id of the sub-agent, "" for the session itself
    cause: str = ""  # of a start: startup, resume, fork, clear, compact; of a compaction: manual, auto


def address(home: Path) -> Path:
    """Where the resident home of this home listens."""
    inside = home / "run" / "home.sock"
    if len(os.fsencode(inside)) <= _MAX_ADDRESS:
        return inside
    import hashlib  # a long path is rare, and these two cost every hook milliseconds
    import tempfile

    name = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"perdure-{os.geteuid()}" / f"{name}.sock"


def ask(home: Path, request: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
    """The resident home's answer. Raises OSError (TimeoutError, too) or ValueError when there is none."""
    ends_at = time.monotonic() + timeout_s
    place = address(home)
    found = place.stat()
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
        raise ConnectionRefusedError(f"{place} is not this user's socket")
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as line:
        line.settimeout(timeout_s)
        line.connect(str(place))
        line.sendall(json.dumps(request).encode() + b"\n")
        answer = bytearray()
        while not answer.endswith(b"\n"):
            line.settimeout(max(0.001, ends_at - time.monotonic()))
            part = line.recv(65536)
            if not part or len(answer) > MAX_LINE:
                raise ConnectionResetError("the resident home hung up")
            answer += part
    said = json.loads(answer)
    if not isinstance(said, dict):
        raise ValueError("the resident home's answer is no object")
    return said
