"""Whose transcript a file is, read off its name and its first line. Standard library only.

Says the same as `formats.identify` does for the clients that have hooks (a test holds the two together), so that a
live capture and an import of the same file are one source. Names come out of files that anyone may have written:
they are cleaned here, and never used as paths.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

MAX_ID_CHARS = 200  # native ids are at most about 60 characters; a longer one is hashed
NAME_CHARS = 400  # longer session ids and folders are cut
_SAFE = re.compile(rf"[A-Za-z0-9_.:@-]{{0,{MAX_ID_CHARS}}}")  # what nearly all ids are made of
_UNSAFE = re.compile(r"[\x00-\x1f\x7f/\\]")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.I)
_HEAD_LINES = 40  # of a Claude Code transcript, among which the first to name a folder is looked for
_HEAD_BYTES = 65_536
_LINE_BYTES = 4_000_000  # a first line that is longer is not read

Fields = dict[str, Any]  # those of `types.Origin`


def ident(value: Any) -> str:
    """A native id as one clean segment: no control characters, no slashes, at most MAX_ID_CHARS; else ""."""
    if not isinstance(value, str):
        return ""
    if _SAFE.fullmatch(value):
        return value
    clean = _UNSAFE.sub("_", value.replace("\0", "")).strip()
    return clean if len(clean) <= MAX_ID_CHARS else digest(clean.encode())


def digest(data: bytes) -> str:
    """The id of something without one: "sha256-" and the first 16 hexadecimal digits."""
    return "sha256-" + hashlib.sha256(data).hexdigest()[:16]


def escaped(text: str) -> str:
    """A text that is printable: what is not, is written as an escape."""
    return text if text.isprintable() else text.encode("unicode_escape", "surrogatepass").decode("ascii")


def plain(text: str) -> str:
    """A printable name of bearable length: no NUL, no lone surrogates; every file name, table and terminal holds it."""
    return escaped(text)[:NAME_CHARS]


def clean(origin: Fields) -> Fields:
    """The origin with its names made plain."""
    return {name: plain(value) if isinstance(value, str) else value for name, value in origin.items()}


def read(client: str, path: Path, *, session: str, cwd: str) -> Fields:
    """The origin of a client's transcript; `session` and `cwd` are what its hook said, for what the file leaves out."""
    with path.open("rb") as file:
        head = file.readline(_LINE_BYTES)
        head += file.read(max(0, _HEAD_BYTES - len(head)))
    return _READ[client]([*_objects(head)], path, session, cwd or None)


def _objects(head: bytes) -> list[Fields]:
    """The JSON objects among the first lines."""
    found = []
    for row in head.split(b"\n", _HEAD_LINES)[:_HEAD_LINES]:
        try:
            value = json.loads(row)
        except (ValueError, RecursionError):
            continue
        found += [value] if isinstance(value, dict) else []
    return found


def _origin(client: str, session: str, cwd: str | None, **more: Any) -> Fields:
    plain_run = {"conversation": session, "parent_session": None, "fork": False}
    return {"runtime": client, "session": session, "cwd": cwd, **plain_run, **more}


def _claude_code(lines: list[Fields], path: Path, session: str, cwd: str | None) -> Fields:
    cwd = _first(lines, "cwd") or cwd
    stem = path.name.removesuffix(".jsonl")
    if _UUID.fullmatch(stem):
        return _origin("claude-code", stem, cwd)
    named = ident(_first(lines, "sessionId")) or session
    agent = ident(stem.removeprefix("agent-")) if stem.startswith("agent-") else ""
    if not agent:
        return _origin("claude-code", named, cwd)
    return _origin("claude-code", f"{named}/{agent}", cwd, conversation=named, parent_session=named)


def _first(lines: list[Fields], name: str) -> str:
    """The field of the first line that has it, when it is a string."""
    value = next((line[name] for line in lines if name in line), "")
    return value if isinstance(value, str) else ""


def _codex(lines: list[Fields], path: Path, session: str, cwd: str | None) -> Fields:  # noqa: ARG001
    payloads = (line.get("payload") for line in lines if line.get("type") == "session_meta")
    meta = next((payload for payload in payloads if isinstance(payload, dict) and "id" in payload), {})
    named = ident(meta.get("id")) or session
    cwd = meta["cwd"] if isinstance(meta.get("cwd"), str) else cwd
    spawner = ident(meta.get("parent_thread_id")) or ident(_spawn(meta).get("parent_thread_id"))
    if spawner:
        root = ident(meta.get("session_id"))
        top = root if root and root != named else spawner
        return _origin("codex", named, cwd, conversation=top, parent_session=spawner)
    fork = ident(meta.get("forked_from_id"))
    return _origin("codex", named, cwd, parent_session=fork or None, fork=bool(fork))


def _spawn(meta: Fields) -> Fields:
    found: Any = meta
    for key in ("source", "subagent", "thread_spawn"):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _pi(lines: list[Fields], path: Path, session: str, cwd: str | None) -> Fields:  # noqa: ARG001
    header: Fields = next((line for line in lines if line.get("type") == "session"), {})
    parent = header.get("parentSession") or header.get("branchedFrom")
    fork = ident(_named(parent)) if isinstance(parent, str) else ""
    cwd = header["cwd"] if isinstance(header.get("cwd"), str) else cwd
    return _origin("pi", ident(header.get("id")) or session, cwd, parent_session=fork or None, fork=bool(fork))


def _named(path: str) -> str:
    """The session id in the name of a session file, `<time>_<id>.jsonl`; a bare id is kept."""
    stem = path.replace("\\", "/").rpartition("/")[2].removesuffix(".jsonl")
    return stem.partition("_")[2] or stem


def _gemini(lines: list[Fields], path: Path, session: str, cwd: str | None) -> Fields:
    from perdure.capture import gemini

    header: Fields = next((line for line in lines if "sessionId" in line), {})
    named, spawner = ident(header.get("sessionId")) or session, ident(path.parent.name)
    cwd = gemini.folder(path) or cwd
    if header.get("kind") != "subagent" or not spawner:
        return _origin("gemini-cli", named, cwd)
    return _origin("gemini-cli", named, cwd, conversation=spawner, parent_session=spawner)


_READ = {"claude-code": _claude_code, "codex": _codex, "pi": _pi, "gemini-cli": _gemini}
