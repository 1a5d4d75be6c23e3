"""The loop that all line formats share: bytes of one run in, turns and a count of every other line out.

A format gives `read_line`, which reads one line and adds to the collector. It decodes before it changes
anything, so a line that it cannot read can be repaired and tried once more. No line is dropped silently:
it ends in a turn, in `skipped` under its type, in `malformed` by its offset, or as a forgotten marker.
No client's fields are known here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from perdure.capture.lines import Line
from perdure.types import Author, ParsedLines, Part, Role, Turn

UNREADABLE_ERRORS = (ValueError, RecursionError)  # every msgspec and Unicode error is a ValueError
MAX_LABEL_CHARS = 64  # a line type longer than this is not one
_MARKER_START = b'{"forgotten"'
_marker_decoder = msgspec.json.Decoder(dict[str, str])
_encode_json = msgspec.json.Encoder().encode


# Makes a Part from a tuple of its six fields: half the price of `Part(...)`, for the code that makes most parts.
make_part = partial(tuple.__new__, Part)


class TurnDraft(msgspec.Struct, gc=False):
    """A turn while its lines are still arriving. A struct, because a dataclass costs three times as much to make."""

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

    def to_turn(self) -> Turn:
        """Return the finished turn, its files and skills without repeats."""
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


class TurnCollector(msgspec.Struct):
    """Collects the turns, links and counts of one run while its lines are read."""

    drafts: list[TurnDraft] = []  # in the order of their first lines
    links: list[tuple[str, str | None]] = []
    title: str = ""
    skipped: dict[str, int] = {}
    malformed: list[int] = []
    n_forgotten: int = 0
    tool_names: dict[str, str] = {}  # call id -> tool name, to name results

    def skip(self, kind: Any, subtype: Any = None) -> None:
        """Count a line that is left out on purpose, under its type, e.g. `event_msg:token_count`."""
        label = kind if isinstance(kind, str) and kind else "untyped"
        if isinstance(subtype, str) and subtype:
            label = f"{label}:{subtype}"
        label = label[:MAX_LABEL_CHARS]
        self.skipped[label] = self.skipped.get(label, 0) + 1

    def to_parsed_lines(self) -> ParsedLines:
        """Return the result of the run: its turns and the counts of its other lines."""
        return ParsedLines(
            turns=tuple(draft.to_turn() for draft in self.drafts),
            links=tuple(self.links),
            title=self.title,
            skipped=self.skipped,
            malformed=tuple(self.malformed),
            n_forgotten=self.n_forgotten,
        )


# the loop -----------------------------------------------------------------------------------------------------


def feed_lines(lines: Iterable[Line], read_line: Callable[[Line, bytes], None], collector: TurnCollector) -> None:
    """Pass each line that is neither empty nor forgotten to `read_line`; note an unreadable one as malformed."""
    for line in lines:
        raw = line.raw
        if raw.startswith(_MARKER_START) and is_forgotten_marker(raw):
            collector.n_forgotten += 1
            continue
        try:
            read_line(line, raw)
        except UNREADABLE_ERRORS:
            if raw and not raw.isspace():
                _take_repaired(line, read_line, collector)


def _take_repaired(line: Line, read_line: Callable[[Line, bytes], None], collector: TurnCollector) -> None:
    """Pass the repaired line once more, or note it as malformed."""
    try:
        read_line(line, repair_json(line.raw))
    except UNREADABLE_ERRORS:
        collector.malformed.append(line.offset)


# one line -----------------------------------------------------------------------------------------------------


def is_forgotten_marker(raw: bytes) -> bool:
    """Return True if a line is Perdure's own marker: an object with exactly the key `forgotten` and a string."""
    try:
        return list(_marker_decoder.decode(raw)) == ["forgotten"]
    except UNREADABLE_ERRORS:
        return False


def repair_json(raw: bytes) -> bytes:
    """Return valid JSON, with U+FFFD or "?" for invalid bytes and escapes; ValueError if beyond repair."""
    value = json.loads(raw.decode("utf-8", "replace").removeprefix("\ufeff"))
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def to_json_text(value: Any) -> str:
    """Return a decoded JSON value as compact JSON text."""
    return _encode_json(value).decode()
