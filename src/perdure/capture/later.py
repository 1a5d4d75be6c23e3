"""What is to be said with the next message of a session: kept in the home until then. Standard library only.

For a client that loses what is said at a start (Gemini CLI, when the session is resumed). A text is given once; one
that no message ever came for goes after a day.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from pathlib import Path

from perdure.capture.files import make_folder, replace

_KEPT_S = 86_400


def put(home: Path, client: str, session: str, text: str) -> None:
    """Keep a text for the next message of this session, in the place of one that is there already."""
    folder = home / "run" / "later"
    make_folder(folder)
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # taken meanwhile
            if time.time() - path.stat().st_mtime > _KEPT_S:
                path.unlink()
    replace(_place(home, client, session), text.encode("utf-8", "surrogatepass"), sync=False)


def take(home: Path, client: str, session: str) -> str:
    """What was kept for this session, which it then is no longer; "" for nothing."""
    try:
        text = _place(home, client, session).read_bytes()
        _place(home, client, session).unlink()
    except FileNotFoundError:
        return ""
    return text.decode("utf-8", "surrogatepass")


def drop(home: Path) -> None:
    """Keep nothing of it any longer: something in it may have been forgotten. Such a session goes on without it."""
    for path in (home / "run" / "later").glob("*"):
        path.unlink(missing_ok=True)


def _place(home: Path, client: str, session: str) -> Path:
    name = hashlib.sha256(f"{client}\0{session}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return home / "run" / "later" / name
