"""Documents that are rewritten as a whole -> lines that only ever grow. Pure.

Values inside a message are never touched: a message's line is its own JSON without blank space. What changes with
every save (`lastUpdated`) stays out of the lines, so that capturing a document again yields the same lines.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.errors import FormatFault
from perdure.formats.lines import UNREADABLE, repaired

_BOM = b"\xef\xbb\xbf"
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list = msgspec.json.Decoder(list[msgspec.Raw])

RawObject = dict[str, msgspec.Raw]


def parsed_object(data: bytes) -> RawObject:
    """Return a JSON object with its values as they are written; FormatFault when it is none."""
    raw = data.removeprefix(_BOM)
    try:
        return _object.decode(raw)
    except UNREADABLE:
        pass
    try:
        return _object.decode(repaired(raw))
    except UNREADABLE as error:
        raise FormatFault(f"not a JSON object ({error})") from error


def raw_list(raw: msgspec.Raw | bytes | None) -> list[msgspec.Raw]:
    """Return the items of a JSON array as they are written; nothing for anything else."""
    try:
        return _list.decode(raw) if raw is not None else []
    except UNREADABLE:
        return []


def raw_object(raw: msgspec.Raw | bytes | None) -> RawObject:
    """Return the fields of a JSON object as they are written; nothing for anything else."""
    try:
        return _object.decode(raw) if raw is not None else {}
    except UNREADABLE:
        return {}


def value(raw: msgspec.Raw | None) -> Any:
    """Return the decoded value, or None."""
    try:
        return msgspec.json.decode(raw) if raw is not None else None
    except UNREADABLE:
        return None


def compacted(raw: msgspec.Raw | bytes) -> bytes:
    """Return JSON without blank space between its tokens, on one line; what cannot be read as one repaired line."""
    data = bytes(raw)
    try:
        return msgspec.json.format(data, indent=-1)
    except UNREADABLE:
        return data.replace(b"\r", b" ").replace(b"\n", b" ")


def encoded(fields: dict[str, Any]) -> bytes:
    """Return an object as one compact line; raw values in it stay as they are written."""
    return compacted(msgspec.json.encode(fields))
