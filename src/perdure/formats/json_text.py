"""Read JSON text as clients store it: first bytes cut anywhere, and documents saved as a whole. Pure.

Cut JSON counts as far as its values are complete. A document becomes lines that only ever grow: a
message's line is its own JSON without white space, so capturing the document again yields the same lines.
A value that changes with every save (`lastUpdated`) must stay out of the lines. No value is changed or
checked here: `values` does that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from perdure.errors import FormatFault
from perdure.formats.parsing import UNREADABLE_ERRORS, repair_json
from perdure.formats.values import hash_to_id
from perdure.regex import lazy_re
from perdure.types import Json

# first bytes --------------------------------------------------------------------------------------------------

MAX_HEAD_BYTES = 65_536  # at most this much is read
MAX_HEAD_LINES = 40
_BOM = b"\xef\xbb\xbf"
_TOKEN = lazy_re(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[{}\[\],]', re.DOTALL)
_CLOSER = {"{": "}", "[": "]"}
_MAX_DEPTH = 200


def read_objects(first_bytes: bytes) -> Iterator[Json]:
    """Yield the JSON objects of the first lines. A cut last line counts as far as it goes; other lines are skipped."""
    rows = first_bytes[:MAX_HEAD_BYTES].removeprefix(_BOM).split(b"\n", MAX_HEAD_LINES)
    for i, row in enumerate(rows[:MAX_HEAD_LINES]):
        if not row.strip():
            continue
        value = decode_json(row)
        if value is None and i == len(rows) - 1:
            value = complete_json(row)
        if isinstance(value, dict):
            yield value


def read_document(first_bytes: bytes) -> Any:
    """Return the JSON value that the bytes begin with, as far as it goes; None when there is none."""
    data = first_bytes[:MAX_HEAD_BYTES].removeprefix(_BOM)
    value = decode_json(data)
    return complete_json(data) if value is None else value


def decode_json(raw: bytes) -> Any:
    """Return a decoded JSON value, or None."""
    try:
        return msgspec.json.decode(raw)
    except UNREADABLE_ERRORS:
        pass
    try:
        return msgspec.json.decode(repair_json(raw))
    except UNREADABLE_ERRORS:
        return None


def complete_json(raw: bytes) -> Any:
    """Return the part of cut JSON up to its last whole value, with open brackets closed; None if there is none.

    >>> complete_json(b'{"a": {"b": 1, "c": "tru')
    {'a': {'b': 1}}
    """
    text = raw.decode("utf-8", "ignore").lstrip()
    if not text.startswith(("{", "[")):
        return None
    closers: list[str] = []
    end, closing = 0, ""
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
        end, closing = (match.start() if token == "," else match.end()), "".join(reversed(closers))
    return decode_json((text[:end] + closing).encode("utf-8", "replace"))


def get_first_line(first_bytes: bytes) -> bytes:
    """Return the first line that is not empty, without its newline."""
    for row in first_bytes.split(b"\n"):
        if row.strip():
            return row
    return b""


def make_session_id(first_bytes: bytes) -> str:
    """Make the session id of a source that names none, from its first line."""
    return hash_to_id(get_first_line(first_bytes))


# documents ----------------------------------------------------------------------------------------------------

_object_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list_decoder = msgspec.json.Decoder(list[msgspec.Raw])

RawObject = dict[str, msgspec.Raw]


def parse_object(data: bytes) -> RawObject:
    """Return the fields of a JSON object with their values undecoded. Raises FormatFault when it is no object."""
    raw = data.removeprefix(_BOM)
    try:
        return _object_decoder.decode(raw)
    except UNREADABLE_ERRORS:
        pass
    try:
        return _object_decoder.decode(repair_json(raw))
    except UNREADABLE_ERRORS as error:
        raise FormatFault(f"not a JSON object ({error})") from error


def list_items(raw: msgspec.Raw | bytes | None) -> list[msgspec.Raw]:
    """Return the items of a JSON array, undecoded; an empty list for anything else."""
    try:
        return _list_decoder.decode(raw) if raw is not None else []
    except UNREADABLE_ERRORS:
        return []


def list_fields(raw: msgspec.Raw | bytes | None) -> RawObject:
    """Return the fields of a JSON object, undecoded; an empty dict for anything else."""
    try:
        return _object_decoder.decode(raw) if raw is not None else {}
    except UNREADABLE_ERRORS:
        return {}


def decode_raw(raw: msgspec.Raw | None) -> Any:
    """Return the decoded value, or None."""
    try:
        return msgspec.json.decode(raw) if raw is not None else None
    except UNREADABLE_ERRORS:
        return None


def compact_line(raw: msgspec.Raw | bytes) -> bytes:
    """Return JSON on one line, without white space between tokens. Unreadable JSON only loses its newlines."""
    data = bytes(raw)
    try:
        return msgspec.json.format(data, indent=-1)
    except UNREADABLE_ERRORS:
        return data.replace(b"\r", b" ").replace(b"\n", b" ")


def encode_object(fields: dict[str, Any]) -> bytes:
    """Return an object as one compact line; undecoded values in it stay as they are written."""
    return compact_line(msgspec.json.encode(fields))
