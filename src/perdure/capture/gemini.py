"""Everything that only Gemini CLI needs. Standard library only.

Its transcripts do not name the folder of the session; the client notes it in a file beside them. No hook
reports a
compaction: the transcript then repeats the history, with a summary at its start. A resumed session also
repeats its history, once, after a header of its own; that is no compaction. Until a resumed session is
loaded, an empty file of its own stands for it, and that file stays.

A resumed session loses any text that a hook gives at its start. So the text is stored in the home, and
given once, with the next message. A text that no message came for is deleted after a day.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from pathlib import Path

from perdure.disk import make_folder, replace_file

_HEADER = b'{"sessionId":'
_PATCH = b'{"$set":'
_RESTATED_HISTORY = b'{"$set":{"messages":'
_LOADED_SESSION = b'{"$set":{"sessionId":'  # a session goes on, resumed or compacted
SUMMARY_REPLY = "Got it. Thanks for the additional context!"  # the reply to a summary, set by the client
_MAX_PATH_CHARS = 4096  # no path is longer
_MAX_BLANK_BYTES = 1 << 20  # a file without messages has a few kilobytes


def read_session_folder(path: Path) -> str | None:
    """Return the folder in which the session of a transcript works, if it is noted."""
    for parent in path.parents[1:3]:  # of tmp/<project>/chats/<session>.jsonl, and of a sub-agent's one deeper
        try:
            with (parent / ".project_root").open(encoding="utf-8", errors="surrogateescape") as file:
                return file.read(_MAX_PATH_CHARS).strip() or None
        except OSError:
            continue
    return None


def is_blank(path: Path) -> bool:
    """Return True if a transcript has no message: it holds only headers and patches. Raises OSError."""
    if path.stat().st_size > _MAX_BLANK_BYTES:
        return False
    return all(line.startswith((_HEADER, _PATCH)) for line in path.read_bytes().splitlines() if line)


def has_compaction(new_bytes: bytes, *, earlier_bytes: bytes = b"") -> bool:
    """Return True if there is a compaction in the new bytes.

    earlier_bytes: the end of the transcript before them, up to a whole line.
    """
    n_before, n_headers_left = earlier_bytes.count(b"\n"), 0  # n_left: lines that a resumed session still has to write
    for number, line in enumerate((earlier_bytes + new_bytes).split(b"\n")):
        if line.startswith(_HEADER):
            n_headers_left = 2
        elif line.startswith(_LOADED_SESSION):
            n_headers_left = 1 if n_headers_left == 2 else 0
        elif line.startswith(_RESTATED_HISTORY):
            if not n_headers_left and number >= n_before and SUMMARY_REPLY.encode() in line:
                return True
            n_headers_left = 0 if n_headers_left == 1 else n_headers_left
        elif line and not line.startswith(_PATCH):
            n_headers_left = 0
    return False


_MAX_PENDING_AGE_S = 86_400


def store_pending_text(home: Path, client: str, session: str, text: str) -> None:
    """Store a text for the next message of this session; it replaces one that is there already."""
    folder = home / "run" / "later"
    make_folder(folder)
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # another process took it meanwhile
            if time.time() - path.stat().st_mtime > _MAX_PENDING_AGE_S:
                path.unlink()
    replace_file(_to_pending_path(home, client, session), text.encode("utf-8", "surrogatepass"), sync=False)


def take_pending_text(home: Path, client: str, session: str) -> str:
    """Return the text stored for this session, and delete it; "" for none."""
    try:
        text = _to_pending_path(home, client, session).read_bytes()
        _to_pending_path(home, client, session).unlink()
    except FileNotFoundError:
        return ""
    return text.decode("utf-8", "surrogatepass")


def delete_pending_texts(home: Path) -> None:
    """Delete all stored texts, because they may hold something forgotten. Their sessions go on without them."""
    for path in (home / "run" / "later").glob("*"):
        path.unlink(missing_ok=True)


def _to_pending_path(home: Path, client: str, session: str) -> Path:
    name = hashlib.sha256(f"{client}\0{session}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return home / "run" / "later" / name
