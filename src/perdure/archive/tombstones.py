"""What was forgotten, and which lines that concerns. Pure.

A tombstone holds the byte ranges that were forgotten and, for each turn, keyed hashes of its normalised texts and
of its native id: enough to recognise a copy, never enough to read it back. A line is forgotten when its range is
named, when it belongs to a turn whose native id is, when it restates a message of that id (a client that resumes may
write the whole history again), or when it carries a forgotten text said at that time.
Short texts ("yes") are recognised only by place and native id: they say nothing about who copied whom.
"""

from __future__ import annotations

import hashlib
import hmac
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from perdure.archive.journal import Event
from perdure.capture.lines import first_stamp
from perdure.identity import turn_id
from perdure.text import normalised
from perdure.types import Line, Source, Turn

TYPE = "forgotten"
KEY_TYPE = "tombstone-key"
_MIN_CHARS = 16  # a shorter normalised text is common property and is not hashed
_MIN_RESULT_CHARS = 200  # tools say "Todos have been modified successfully" to everyone
_NEAR_S = 120  # copies of one message carry time stamps at most so far apart
_MAX_DEPTH = 64


def keyed(key: bytes, text: str) -> str:
    """HMAC-SHA256 of a text, 32 hex digits."""
    return hmac.digest(key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hex()[:32]


def keyed_line(key: bytes, raw: bytes) -> str:
    """HMAC-SHA256 of a whole line, 32 hex digits."""
    return hmac.digest(key, b"line\0" + raw, hashlib.sha256).hex()[:32]


def keyed_memory(key: bytes, text: str) -> str:
    """HMAC-SHA256 of a memory's normalised words, 32 hex digits."""
    return hmac.digest(key, b"memory\0" + normalised(text).encode("utf-8", "surrogatepass"), hashlib.sha256).hex()[:32]


def texts_of(turn: Turn) -> Iterator[str]:
    """The normalised texts by which copies of this turn are recognised."""
    said = {turn.text("text", "pasted"), *(part.text for part in turn.parts if part.kind in ("text", "thinking"))}
    returned = {part.text for part in turn.parts if part.kind == "result"}
    for texts, least in ((said, _MIN_CHARS), (returned - said, _MIN_RESULT_CHARS)):
        yield from (plain for text in sorted(texts) if len(plain := normalised(text)) >= least)


def describe(source: Source, turn: Turn, key: bytes) -> dict[str, Any]:
    """What a tombstone records of one turn: no text, only place, time and keyed hashes."""
    return {
        "turn": turn_id(source, turn.offset),
        "source": [source.runtime, source.session, source.generation],
        "ranges": [list(pair) for pair in turn.lines],
        "at": int(turn.stated_at.timestamp()) if turn.stated_at else None,
        "native": keyed(key, f"{source.runtime}\0{turn.native_id}") if turn.native_id else None,
        "hashes": sorted(keyed(key, text) for text in texts_of(turn)),
    }


@dataclass
class Tombstones:
    """All tombstones of one user, ready to be asked."""

    keys: list[bytes] = field(default_factory=list)
    ranges: dict[tuple[str, str, int], list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    natives: dict[str, str] = field(default_factory=dict)  # keyed native id → turn id
    hashes: dict[str, list[tuple[int | None, str]]] = field(default_factory=lambda: defaultdict(list))
    lines: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))  # that were no turns
    memories: set[str] = field(default_factory=set)  # ids
    memory_texts: dict[str, str] = field(default_factory=dict)  # keyed text of a memory → when it was last forgotten
    span_s: tuple[int, int] | None = None  # when everything forgotten was said; None when some time is unknown

    def __bool__(self) -> bool:
        return bool(self.ranges or self.memories)

    def was_memory(self, text: str, stated_at: datetime) -> bool:
        """Whether a memory of these words was forgotten after that was said: said again later, it may come back."""
        found = [self.memory_texts.get(keyed_memory(key, text), "") for key in self.keys]
        return any(at and stated_at <= datetime.fromisoformat(at.partition("#")[0]) for at in found)

    def doomed(self, source: Source, lines: Sequence[tuple[Line, int]], turns: Iterable[Turn]) -> dict[int, str]:
        """The offsets of lines to forget, each with the id of the turn that goes with it.

        lines: the bytes of one run with the end of each; turns: what the run's format made of them.
        """
        found: dict[int, str] = {}
        owner = {low: turn for turn in turns for low, _ in turn.lines}
        for line, end in lines:
            turn = owner.get(line.offset)
            if self._in_range(source, line.offset, end) or self._is_copy(line, turn, source):
                named = turn.offset if turn else line.offset
                found[line.offset] = turn_id(source, named)
        for turn in owner.values():  # a turn goes as a whole
            if any(low in found for low, _ in turn.lines):
                found.update((low, turn_id(source, turn.offset)) for low, _ in turn.lines)
        return found

    def holds_line(self, source: Source, raw: bytes) -> bool:
        """Whether a line that was no turn of this session was forgotten; documents emit theirs again and again."""
        known = self.lines.get((source.runtime, source.session), set())
        return bool(known) and any(keyed_line(key, raw) in known for key in self.keys)

    def _in_range(self, source: Source, low: int, high: int) -> bool:
        ranges = self.ranges.get((source.runtime, source.session, source.generation), [])
        place = bisect_right(ranges, (high - 1, 1 << 62))  # sorted and disjoint: only the last that begins before
        return place > 0 and ranges[place - 1][1] > low

    def _is_copy(self, line: Line, turn: Turn | None, source: Source) -> bool:
        if self.natives and any(self._is_native(name, source) for name in _restated(line.raw)):
            return True
        if turn is not None:
            if turn.native_id and self._is_native(turn.native_id, source):
                return True
            return any(self._was_said(text, turn.stated_at) for text in texts_of(turn))
        at = first_stamp(line.raw)
        return any(self._was_said(text, at) for text in _leaves(line.raw))

    def _is_native(self, name: str, source: Source) -> bool:
        return any(keyed(key, f"{source.runtime}\0{name}") in self.natives for key in self.keys)

    def _was_said(self, text: str, at: datetime | None) -> bool:
        for key in self.keys:
            for said_s, _ in self.hashes.get(keyed(key, text), ()):
                if said_s is None or at is None or abs(at.timestamp() - said_s) <= _NEAR_S:
                    return True
        return False


def _restated(raw: bytes) -> Iterator[str]:
    """The ids of the messages in a patch that writes a history again."""
    if not raw.startswith(b'{"$set":{"messages":'):
        return
    try:
        messages = msgspec.json.decode(raw)["$set"]["messages"]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, dict) and isinstance(message.get("id"), str):
            yield message["id"]


def _leaves(raw: bytes) -> Iterator[str]:
    """The normalised strings inside a line of JSON that are long enough to tell a copy by."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    stack: list[tuple[Any, int]] = [(value, 0)]
    while stack:
        item, depth = stack.pop()
        if isinstance(item, str):
            plain = normalised(item)
            if len(plain) >= _MIN_CHARS:
                yield plain
        elif depth < _MAX_DEPTH:
            inner = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
            stack.extend((value, depth + 1) for value in inner)


def collect(events: Iterable[Event]) -> Tombstones:
    """The tombstones that these journal events (keys and forgettings) add up to."""
    found = Tombstones()
    times: list[int | None] = []
    for event in events:
        if event.type == KEY_TYPE:
            found.keys.append(bytes.fromhex(event.data["key"]))
        elif event.type == TYPE:
            for name, digest in event.data.get("memories", ()):
                found.memories.add(name)
                found.memory_texts[digest] = max(found.memory_texts.get(digest, ""), event.at)
            for item in event.data["turns"]:
                _add(found, item)
                if item["hashes"] or item["native"]:  # only these can have copies elsewhere
                    times.append(item["at"])
    for key, ranges in found.ranges.items():
        found.ranges[key] = _disjoint(ranges)
    known = [at for at in times if at is not None]
    if len(known) == len(times):
        found.span_s = (min(known, default=0) - _NEAR_S, max(known, default=0) + _NEAR_S)
    return found


def _add(found: Tombstones, item: dict[str, Any]) -> None:
    runtime, session, generation = item["source"]
    found.ranges[(runtime, session, generation)] += [(low, high) for low, high in item["ranges"]]
    if item["native"]:
        found.natives[item["native"]] = item["turn"]
    found.lines[runtime, session].update(item.get("lines", ()))
    for digest in item["hashes"]:
        found.hashes[digest].append((item["at"], item["turn"]))


def _disjoint(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same bytes as sorted ranges that neither overlap nor touch."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged
