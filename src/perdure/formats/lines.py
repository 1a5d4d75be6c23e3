"""The loop that every line format shares: bytes of one run in, turns and a full account of the rest out.

A format gives `take`, which reads one line and adds to what was gathered. It decodes before it changes
anything, so that a line it cannot read can be repaired and offered once more. Nothing is dropped silently:
a line ends in a turn, in `skipped` under its type, in `malformed` by its offset, or as a forgotten marker.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from perdure.types import Author, Line, ParsedLines, Part, Role, Turn

UNREADABLE = (ValueError, RecursionError)  # every msgspec and Unicode error is a ValueError
MAX_LABEL_CHARS = 64  # a line type longer than this is not one
_MARKER = b'{"forgotten"'
_marker = msgspec.json.Decoder(dict[str, str])
_encode = msgspec.json.Encoder().encode


# Makes a Part from a tuple of its five fields: half the price of `Part(...)`, for the code that makes most parts.
part = partial(tuple.__new__, Part)


class Draft(msgspec.Struct, gc=False):
    """A turn while its lines are still coming. A struct, because a dataclass costs three times as much to make."""

    role: Role
    author: Author
    lines: list[tuple[int, int]]
    parts: list[Part] = []  # a new list for each, as msgspec makes them
    stated_at: datetime | None = None
    native_id: str | None = None
    thread: str = ""
    model: str = ""
    n_tokens: int = 0
    files: tuple[str, ...] = ()  # may repeat
    skills: tuple[str, ...] = ()  # may repeat
    is_summary: bool = False
    link: tuple[str, str | None] | None = None

    def turn(self) -> Turn:
        """Return it as a finished turn, its files and skills without repeats."""
        fields = (
            self.role,
            self.author,
            tuple(self.lines),
            tuple(self.parts),
            self.stated_at,
            self.native_id,
            self.thread,
            self.model,
            self.n_tokens,
            tuple(dict.fromkeys(self.files)) if self.files else (),
            tuple(dict.fromkeys(self.skills)) if self.skills else (),
            self.is_summary,
            self.link,
        )
        return tuple.__new__(Turn, fields)


@dataclass(slots=True)
class Gathered:
    """What was made of the lines so far."""

    drafts: list[Draft] = field(default_factory=list)  # in the order of their first lines
    links: list[tuple[str, str | None]] = field(default_factory=list)
    title: str = ""
    skipped: dict[str, int] = field(default_factory=dict)
    malformed: list[int] = field(default_factory=list)
    n_forgotten: int = 0
    tools: dict[str, str] = field(default_factory=dict)  # call id -> tool name, to name results

    def skip(self, kind: Any, subtype: Any = None) -> None:
        """Count a line left out on purpose under its type, e.g. `event_msg:token_count`."""
        label = kind if isinstance(kind, str) and kind else "untyped"
        if isinstance(subtype, str) and subtype:
            label = f"{label}:{subtype}"
        label = label[:MAX_LABEL_CHARS]
        self.skipped[label] = self.skipped.get(label, 0) + 1

    def parsed(self) -> ParsedLines:
        """Return the account of the run."""
        return ParsedLines(
            turns=tuple(draft.turn() for draft in self.drafts),
            links=tuple(self.links),
            title=self.title,
            skipped=self.skipped,
            malformed=tuple(self.malformed),
            n_forgotten=self.n_forgotten,
        )


def feed(lines: Iterable[Line], take: Callable[[Line, bytes], None], gathered: Gathered) -> None:
    """Offer each line that is not empty or forgotten to `take`; note as malformed what it cannot read."""
    for line in lines:
        raw = line.raw
        if raw.startswith(_MARKER) and is_forgotten(raw):
            gathered.n_forgotten += 1
            continue
        try:
            take(line, raw)
        except UNREADABLE:
            if raw and not raw.isspace():
                _retake(line, take, gathered)


def _retake(line: Line, take: Callable[[Line, bytes], None], gathered: Gathered) -> None:
    """Offer the repaired line once more, or note it as malformed."""
    try:
        take(line, repaired(line.raw))
    except UNREADABLE:
        gathered.malformed.append(line.offset)


def is_forgotten(raw: bytes) -> bool:
    """Say whether a line is Perdure's own marker: an object of exactly the key `forgotten` with a string."""
    try:
        return list(_marker.decode(raw)) == ["forgotten"]
    except UNREADABLE:
        return False


def repaired(raw: bytes) -> bytes:
    """Return valid JSON with U+FFFD or "?" for bytes and escapes that are no characters; ValueError if hopeless."""
    value = json.loads(raw.decode("utf-8", "replace").removeprefix("\ufeff"))
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def compact(value: Any) -> str:
    """Return a decoded JSON value as compact JSON text."""
    return _encode(value).decode()
