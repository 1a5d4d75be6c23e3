"""Tombstones: what was forgotten, and which lines that affects. Pure.

A tombstone holds the byte ranges that were forgotten and, for each turn, keyed hashes of its normalised
texts and of its native id: enough to recognise a copy, never enough to read it back. A line is forgotten
when its range is named, when it belongs to a turn whose native id is, when it repeats a message of that id
(a client that resumes may write the whole history again), or when it carries a forgotten text with the
same time. Short texts ("yes") are recognised only by range and native id: they do not show who copied
whom.
"""

from __future__ import annotations

import hashlib
import hmac
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from perdure.archive.journal import JournalEvent
from perdure.capture.lines import Line, find_first_stamp
from perdure.identity import make_turn_id
from perdure.text import normalise
from perdure.types import Source, Turn

EVENT_TYPE = "forgotten"
KEY_EVENT_TYPE = "tombstone-key"
_MIN_CHARS = 16  # a shorter normalised text is too common, so it is not hashed
_MIN_RESULT_CHARS = 200  # tools say "Todos have been modified successfully" to everyone
_NEAR_S = 120  # the time stamps of copies of one message differ by at most this much
_MAX_DEPTH = 64


def hash_with_key(key: bytes, text: str) -> str:
    """Return the HMAC-SHA256 of a text, 32 hex digits."""
    return hmac.digest(key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hex()[:32]


def hash_line_with_key(key: bytes, raw: bytes) -> str:
    """Return the HMAC-SHA256 of a whole line, 32 hex digits."""
    return hmac.digest(key, b"line\0" + raw, hashlib.sha256).hex()[:32]


def hash_memory_with_key(key: bytes, text: str) -> str:
    """Return the HMAC-SHA256 of a memory's normalised words, 32 hex digits."""
    return hmac.digest(key, b"memory\0" + normalise(text).encode("utf-8", "surrogatepass"), hashlib.sha256).hex()[:32]


def list_texts(turn: Turn) -> Iterator[str]:
    """Yield the normalised texts by which copies of this turn are recognised."""
    spoken_texts = {
        turn.text("text", "pasted"),
        *(part.text for part in turn.parts if part.kind in ("text", "thinking")),
    }
    result_texts = {part.text for part in turn.parts if part.kind == "result"}
    for texts, min_chars in ((spoken_texts, _MIN_CHARS), (result_texts - spoken_texts, _MIN_RESULT_CHARS)):
        yield from (normalised_text for text in sorted(texts) if len(normalised_text := normalise(text)) >= min_chars)


def describe_turn(source: Source, turn: Turn, key: bytes) -> dict[str, Any]:
    """Return what a tombstone records of one turn: no text, only range, time and keyed hashes."""
    return {
        "turn": make_turn_id(source, turn.offset),
        "source": [source.runtime, source.session, source.generation],
        "ranges": [list(pair) for pair in turn.lines],
        "at": int(turn.stated_at.timestamp()) if turn.stated_at else None,
        "native": hash_with_key(key, f"{source.runtime}\0{turn.native_id}") if turn.native_id else None,
        "hashes": sorted(hash_with_key(key, text) for text in list_texts(turn)),
    }


class Tombstones(msgspec.Struct):
    """All tombstones of one user, in a form that can be queried."""

    keys: list[bytes] = []
    ranges: dict[tuple[str, str, int], list[tuple[int, int]]] = msgspec.field(default_factory=lambda: defaultdict(list))
    turn_by_native_id: dict[str, str] = {}  # keyed native id → turn id
    hashes: dict[str, list[tuple[int | None, str]]] = msgspec.field(default_factory=lambda: defaultdict(list))
    line_hashes: dict[tuple[str, str], set[str]] = msgspec.field(default_factory=lambda: defaultdict(set))  # of no turn
    memories: set[str] = set()  # ids
    memory_texts: dict[str, str] = {}  # keyed text of a memory → when it was last forgotten
    span_s: tuple[int, int] | None = None  # first to last forgotten message; None when some time is unknown

    def __bool__(self) -> bool:
        return bool(self.ranges or self.memories)

    def is_forgotten_memory(self, text: str, stated_at: datetime) -> bool:
        """Return True if a memory of these words was forgotten after this time. Stated again later, it may return."""
        forgotten_times = [self.memory_texts.get(hash_memory_with_key(key, text), "") for key in self.keys]
        return any(
            hybrid_time and stated_at <= datetime.fromisoformat(hybrid_time.partition("#")[0])
            for hybrid_time in forgotten_times
        )

    def find_forgotten_turn(self, runtime: str, native_id: str) -> str | None:
        """Return the id of the forgotten turn whose message had this id in its client; None if none had."""
        hashes = (hash_with_key(key, f"{runtime}\0{native_id}") for key in self.keys)
        return next((self.turn_by_native_id[digest] for digest in hashes if digest in self.turn_by_native_id), None)

    def find_forgotten_lines(
        self, source: Source, lines: Sequence[tuple[Line, int]], turns: Iterable[Turn]
    ) -> dict[int, str]:
        """Return the offsets of the lines to forget, each with the id of the turn that it is forgotten with.

        lines: the bytes of one run with the end of each; turns: the run's turns, as its format parses them.
        """
        turn_by_offset: dict[int, str] = {}
        turn_of_line = {low: turn for turn in turns for low, _ in turn.lines}
        for line, end in lines:
            turn = turn_of_line.get(line.offset)
            if self._is_in_range(source, line.offset, end) or self._is_copy(line, turn, source):
                turn_offset = turn.offset if turn else line.offset
                turn_by_offset[line.offset] = make_turn_id(source, turn_offset)
        for turn in turn_of_line.values():  # a turn is forgotten as a whole
            if any(low in turn_by_offset for low, _ in turn.lines):
                turn_by_offset.update((low, make_turn_id(source, turn.offset)) for low, _ in turn.lines)
        return turn_by_offset

    def has_forgotten_line(self, source: Source, raw: bytes) -> bool:
        """Return True if this line was forgotten and was no turn of its session; documents emit such lines again
        and again.
        """
        known_hashes = self.line_hashes.get((source.runtime, source.session), set())
        return bool(known_hashes) and any(hash_line_with_key(key, raw) in known_hashes for key in self.keys)

    def _is_in_range(self, source: Source, low: int, high: int) -> bool:
        ranges = self.ranges.get((source.runtime, source.session, source.generation), [])
        position = bisect_right(ranges, (high - 1, 1 << 62))  # sorted and disjoint: only the last before it can match
        return position > 0 and ranges[position - 1][1] > low

    def _is_copy(self, line: Line, turn: Turn | None, source: Source) -> bool:
        if self.turn_by_native_id and any(
            self._is_forgotten_id(native_id, source) for native_id in _list_restated_ids(line.raw)
        ):
            return True
        if turn is not None:
            if turn.native_id and self._is_forgotten_id(turn.native_id, source):
                return True
            return any(self._is_forgotten_text(text, turn.stated_at) for text in list_texts(turn))
        stated_at = find_first_stamp(line.raw)
        return any(self._is_forgotten_text(text, stated_at) for text in _list_long_strings(line.raw))

    def _is_forgotten_id(self, native_id: str, source: Source) -> bool:
        return any(hash_with_key(key, f"{source.runtime}\0{native_id}") in self.turn_by_native_id for key in self.keys)

    def _is_forgotten_text(self, text: str, stated_at: datetime | None) -> bool:
        for key in self.keys:
            for said_s, _ in self.hashes.get(hash_with_key(key, text), ()):
                if said_s is None or stated_at is None or abs(stated_at.timestamp() - said_s) <= _NEAR_S:
                    return True
        return False


def _list_restated_ids(raw: bytes) -> Iterator[str]:
    """Yield the ids of the messages in a patch that writes a history again."""
    if not raw.startswith(b'{"$set":{"messages":'):
        return
    try:
        messages = msgspec.json.decode(raw)["$set"]["messages"]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, dict) and isinstance(message.get("id"), str):
            yield message["id"]


def _list_long_strings(raw: bytes) -> Iterator[str]:
    """Yield the normalised strings inside a line of JSON that are long enough to recognise a copy by."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    stack: list[tuple[Any, int]] = [(value, 0)]
    while stack:
        item, depth = stack.pop()
        if isinstance(item, str):
            normalised_text = normalise(item)
            if len(normalised_text) >= _MIN_CHARS:
                yield normalised_text
        elif depth < _MAX_DEPTH:
            children = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
            stack.extend((value, depth + 1) for value in children)


def collect(events: Iterable[JournalEvent]) -> Tombstones:
    """Collect the tombstones from these journal events (keys and forgettings)."""
    tombstones = Tombstones()
    times: list[int | None] = []
    for event in events:
        if event.type == KEY_EVENT_TYPE:
            tombstones.keys.append(bytes.fromhex(event.data["key"]))
        elif event.type == EVENT_TYPE:
            for memory_id, digest in event.data.get("memories", ()):
                tombstones.memories.add(memory_id)
                tombstones.memory_texts[digest] = max(tombstones.memory_texts.get(digest, ""), event.at)
            for item in event.data["turns"]:
                _add_turn(tombstones, item)
                if item["hashes"] or item["native"]:  # only these can have copies elsewhere
                    times.append(item["at"])
    for key, ranges in tombstones.ranges.items():
        tombstones.ranges[key] = _merge_ranges(ranges)
    known_times = [said_s for said_s in times if said_s is not None]
    if len(known_times) == len(times):
        tombstones.span_s = (min(known_times, default=0) - _NEAR_S, max(known_times, default=0) + _NEAR_S)
    return tombstones


def _add_turn(tombstones: Tombstones, item: dict[str, Any]) -> None:
    runtime, session, generation = item["source"]
    tombstones.ranges[(runtime, session, generation)] += [(low, high) for low, high in item["ranges"]]
    if item["native"]:
        tombstones.turn_by_native_id[item["native"]] = item["turn"]
    tombstones.line_hashes[runtime, session].update(item.get("lines", ()))
    for digest in item["hashes"]:
        tombstones.hashes[digest].append((item["at"], item["turn"]))


def _merge_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the same bytes as sorted ranges that neither overlap nor touch."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged
