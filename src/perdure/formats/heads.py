"""The first bytes of a source: what can be read of them although they are cut anywhere. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from perdure.formats.lines import UNREADABLE, repaired
from perdure.formats.stamps import hash_to_id
from perdure.regex import lazy_re
from perdure.types import Json

MAX_HEAD_BYTES = 65_536  # at most this much is read
MAX_HEAD_LINES = 40
_BOM = b"\xef\xbb\xbf"
_TOKEN = lazy_re(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[{}\[\],]', re.DOTALL)
_CLOSER = {"{": "}", "[": "]"}
_MAX_DEPTH = 200


def objects(head: bytes) -> Iterator[Json]:
    """Yield the JSON objects of the first lines; a cut last line as far as it goes, other lines are passed over."""
    rows = head[:MAX_HEAD_BYTES].removeprefix(_BOM).split(b"\n", MAX_HEAD_LINES)
    for i, row in enumerate(rows[:MAX_HEAD_LINES]):
        if not row.strip():
            continue
        value = loaded(row)
        if value is None and i == len(rows) - 1:
            value = completed(row)
        if isinstance(value, dict):
            yield value


def document(head: bytes) -> Any:
    """Return the JSON value that the bytes begin with, as far as it goes; None when it is none."""
    data = head[:MAX_HEAD_BYTES].removeprefix(_BOM)
    value = loaded(data)
    return completed(data) if value is None else value


def loaded(raw: bytes) -> Any:
    """Return a decoded JSON value, or None."""
    try:
        return msgspec.json.decode(raw)
    except UNREADABLE:
        pass
    try:
        return msgspec.json.decode(repaired(raw))
    except UNREADABLE:
        return None


def completed(raw: bytes) -> Any:
    """Return what stands before the last whole value of cut JSON, its open brackets closed; None if there is none.

    >>> completed(b'{"a": {"b": 1, "c": "tru')
    {'a': {'b': 1}}
    """
    text = raw.decode("utf-8", "ignore").lstrip()
    if not text.startswith(("{", "[")):
        return None
    closers: list[str] = []
    end, tail = 0, ""
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in _CLOSER:
            closers.append(_CLOSER[token])
        elif token in ("}", "]"):
            if not closers or closers.pop() != token:
                return None
        elif token != ",":
            continue
        if len(closers) > _MAX_DEPTH:
            break
        end, tail = (match.start() if token == "," else match.end()), "".join(reversed(closers))
    return loaded((text[:end] + tail).encode("utf-8", "replace"))


def first_line(head: bytes) -> bytes:
    """Return the first line that is not empty, without its newline."""
    for row in head.split(b"\n"):
        if row.strip():
            return row
    return b""


def nameless(head: bytes) -> str:
    """Return the session id of a source that names none: made from its first line."""
    return hash_to_id(first_line(head))
