"""Sessions in which a person wants no recall: `/perdure:quiet` begins that, `/perdure:speak` ends it.

A file in the home says so, on the machine of the client. A session that ends takes its file with it. Capture goes
on. Standard library only.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from pathlib import Path

from perdure.capture.events import TOOL_KINDS, HookEvent
from perdure.disk import make_folder

_QUIET, _SPEAK = "perdure:quiet", "perdure:speak"  # without the slash, too: a client may refuse unknown commands
_MAX_AGE_S = 30 * 86_400  # of the file of a session whose end nobody reported
_QUIET_NOTICE = "Perdure is quiet in this session: it captures, and recalls nothing. /perdure:speak ends this."
_SPEAK_NOTICE = "Perdure recalls again in this session."


def follow_command(home: Path, event: HookEvent) -> str:
    """Begin or end the silence of a session, if its event says so; return the line for the person, or ""."""
    path = _to_path(home, event)
    if event.kind == "session-end":
        path.unlink(missing_ok=True)
        return ""
    command = event.prompt.strip().removeprefix("/") if event.kind == "prompt" and not event.agent else ""
    if command == _QUIET:
        make_folder(path.parent)
        _delete_old_files(path.parent)
        path.touch(mode=0o600)
        return _QUIET_NOTICE
    if command == _SPEAK:
        path.unlink(missing_ok=True)
        return _SPEAK_NOTICE
    return ""


def is_quiet(home: Path, event: HookEvent) -> bool:
    """Return True if the session of an event shall get no recall."""
    return event.kind in ("prompt", *TOOL_KINDS) and _to_path(home, event).exists()


def _delete_old_files(folder: Path) -> None:
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # its session ended meanwhile
            if time.time() - path.stat().st_mtime > _MAX_AGE_S:
                path.unlink()


def _to_path(home: Path, event: HookEvent) -> Path:
    name = hashlib.sha256(f"{event.client}\0{event.session}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return home / "run" / "quiet" / name
