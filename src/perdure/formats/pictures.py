"""The bytes of images that stand in transcripts, found again by the parts that were made of them. Pure.

A part says of an image no more than its type and size; where it is looked at, its line is read once more. What bytes
are is told by the bytes, never by what the transcript calls them.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from perdure.formats.blocks import image, inline_image
from perdure.formats.lines import UNREADABLE, repaired
from perdure.types import Part

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def picture(lines: Iterable[bytes], part: Part, nth: int) -> bytes | None:
    """Return the nth image (from 0) of these lines that reads as this part; None when there is none.

    The client may have written an image twice, so equal ones count once, and the last stands for all behind it.
    """
    found = dict.fromkeys(data for raw in lines for data in _reading(raw, part))
    alike = list(found)
    return _decoded(alike[min(nth, len(alike) - 1)]) if alike else None


def media_type(body: bytes) -> str | None:
    """Return which kind of image these bytes are, of those that a browser shows and cannot run; None for all else.

    >>> media_type(b"GIF89a...")
    'image/gif'
    """
    if body[:4] == b"RIFF" and body[8:12] == b"WEBP":
        return "image/webp"
    return next((media for magic, media in _MAGIC if body.startswith(magic)), None)


def _reading(raw: bytes, part: Part) -> Iterator[str]:
    """Yield the data of each image of a line that reads as this part, in the order of the line."""
    try:
        todo: list[Any] = [_value(raw)]
    except UNREADABLE:
        return
    while todo:
        value = todo.pop()
        if isinstance(value, list):
            todo += reversed(value)
        elif isinstance(value, dict):
            inline = inline_image(value)
            if inline and image(*inline)[:3] == part[:3]:
                yield inline[1]
            todo += reversed(value.values())


def _value(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except UNREADABLE:
        return msgspec.json.decode(repaired(raw))


def _decoded(data: str) -> bytes | None:
    encoded = data.partition(",")[2] if data.startswith("data:") else data
    try:
        return base64.b64decode(encoded, validate=False)
    except (binascii.Error, ValueError):
        return None
