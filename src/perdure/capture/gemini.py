"""What only the transcripts of Gemini CLI need. Standard library only.

They name no folder: it is noted beside them. A compaction is said to no hook: the transcript then restates the history,
with a summary in front. A session that is resumed restates its history, too, once behind a header of its own; that is
no compaction. And until a resumed session is loaded, a file of its own with nothing in it stands for it, which stays.
"""

from __future__ import annotations

from pathlib import Path

_HEADER = b'{"sessionId":'
_PATCH = b'{"$set":'
_RESTATED = b'{"$set":{"messages":'
_LOADED = b'{"$set":{"sessionId":'  # a session goes on, resumed or compacted
ACCEPTED = "Got it. Thanks for the additional context!"  # what the client has the model say to its summary
_NOTED_CHARS = 4096  # no path is longer
_MOST_BLANK_BYTES = 1 << 20  # a file in which nothing is said is a few kilobytes


def folder(path: Path) -> str | None:
    """The folder in which the session of a transcript works, where it is noted."""
    for above in path.parents[1:3]:  # of tmp/<project>/chats/<session>.jsonl, and of a sub-agent's one deeper
        try:
            with (above / ".project_root").open(encoding="utf-8", errors="surrogateescape") as file:
                return file.read(_NOTED_CHARS).strip() or None
        except OSError:
            continue
    return None


def is_blank(path: Path) -> bool:
    """Whether nothing was said in a transcript: it holds headers and patches alone. Raises OSError."""
    if path.stat().st_size > _MOST_BLANK_BYTES:
        return False
    return all(line.startswith((_HEADER, _PATCH)) for line in path.read_bytes().splitlines() if line)


def compacted(gained: bytes, *, before: bytes = b"") -> bool:
    """Whether a compaction is among the gained lines. before: the end of what was there, up to a whole line."""
    n_before, n_left = before.count(b"\n"), 0  # lines of a resumption that are still to come
    for n, line in enumerate((before + gained).split(b"\n")):
        if line.startswith(_HEADER):
            n_left = 2
        elif line.startswith(_LOADED):
            n_left = 1 if n_left == 2 else 0
        elif line.startswith(_RESTATED):
            if not n_left and n >= n_before and ACCEPTED.encode() in line:
                return True
            n_left = 0 if n_left == 1 else n_left
        elif line and not line.startswith(_PATCH):
            n_left = 0
    return False
