"""Tombstones: which lines a forgetting concerns, and which it leaves alone."""

import json
from datetime import UTC, datetime, timedelta

from perdure.archive.journal import JournalEvent
from perdure.archive.tombstones import EVENT_TYPE, KEY_EVENT_TYPE, collect, describe_turn, hash_with_key
from perdure.capture.lines import Line
from perdure.types import Part, Source, Turn

KEY = bytes(range(32))
AT = datetime(2026, 1, 1, tzinfo=UTC)
SOURCE = Source("ada", "pi", "s")
LONG = "the marmalade is under the stair"


def turn(text, *lines, native=None, at=AT, kind="text"):
    return Turn("user", "person", lines or ((0, 10),), (Part(kind, text),), at, native)


def events(*turns, source=SOURCE, keys=(KEY,)):
    made = [JournalEvent(f"k{n}", "a", "w", n, KEY_EVENT_TYPE, {"key": key.hex()}) for n, key in enumerate(keys)]
    items = [describe_turn(source, one, keys[0]) for one in turns]
    return [*made, JournalEvent("t", "b", "w", 9, EVENT_TYPE, {"turns": items})]


def doomed(found, source, *lines, turns=()):
    placed = [(Line(low, raw), low + len(raw) + 1) for low, raw in lines]
    return sorted(found.find_forgotten_lines(source, placed, turns))


def test_a_tombstone_holds_no_text():
    item = describe_turn(SOURCE, turn(LONG, native="n1"), KEY)
    assert "marmalade" not in json.dumps(item) and "n1" not in json.dumps(item["native"])
    assert item["hashes"] == [hash_with_key(KEY, LONG)] and item["ranges"] == [[0, 10]]


def test_turn_is_forgotten_by_its_place():
    found = collect(events(turn("x", (10, 20), (30, 40))))
    lines = [(at, b"123456789") for at in (0, 10, 20, 30, 40)]
    assert doomed(found, SOURCE, *lines) == [10, 30]
    assert doomed(found, Source("ada", "pi", "s", 1), *lines) == []
    assert doomed(found, Source("ada", "pi", "t"), *lines) == []


def test_turn_is_forgotten_by_its_native_id_anywhere():
    found = collect(events(turn("short", native="n1")))
    other = Source("ada", "pi", "t")
    copy, stranger = turn("short", (50, 60), native="n1"), turn("short", (70, 80), native="n2")
    assert doomed(found, other, (50, b"x" * 9), (70, b"x" * 9), turns=(copy, stranger)) == [50]
    assert doomed(found, Source("ada", "codex", "t"), (50, b"x" * 9), turns=(copy,)) == []


def test_by_text_within_two_minutes():
    """120 seconds apart is a copy, 121 is not; without a time it is one; a short text never is."""
    found = collect(events(turn(LONG), turn("yes")))
    other = Source("ada", "pi", "t")
    for seconds, expected in ((120, [50]), (121, []), (-120, [50])):
        copy = turn(LONG, (50, 60), at=AT + timedelta(seconds=seconds))
        assert doomed(found, other, (50, b"x" * 9), turns=(copy,)) == expected
    assert doomed(found, other, (50, b"x" * 9), turns=(turn(LONG, (50, 60), at=None),)) == [50]
    assert doomed(found, other, (50, b"x" * 9), turns=(turn("yes", (50, 60)),)) == []


def test_spacing_and_case_hide_no_copy():
    found = collect(events(turn(LONG)))
    copy = turn("  The Marmalade\n is under   the stair ", (50, 60))
    assert doomed(found, Source("ada", "pi", "t"), (50, b"x" * 9), turns=(copy,)) == [50]


def test_json_lines_with_forgotten_words_are_forgotten():
    """A line that carries the words, however deep; one that cannot be read is left."""
    found = collect(events(turn(LONG)))
    said = json.dumps({"timestamp": "2026-01-01T00:00:30Z", "a": [{"b": {"c": LONG}}]}).encode()
    late = said.replace(b"00:00:30", b"09:00:30")
    assert doomed(found, SOURCE, (100, said), (300, late), (500, b'{"broken'), (600, b"\xff" * 20)) == [100]


def test_turn_is_forgotten_as_a_whole():
    found = collect(events(turn("x", (10, 20))))
    whole = turn("y", (0, 10), (10, 20), (20, 30))
    assert doomed(found, SOURCE, (0, b"x" * 9), (10, b"x" * 9), (20, b"x" * 9), turns=(whole,)) == [0, 10, 20]


def test_every_key_is_tried():
    """Two homes forgot under keys of their own and met: either kind of hash is recognised."""
    other_key = bytes(32)
    found = collect([*events(turn(LONG)), *events(turn("the chutney is in the cellar"), keys=(other_key,))])
    copies = turn(LONG, (50, 60)), turn("the chutney is in the cellar", (70, 80))
    assert doomed(found, Source("ada", "pi", "t"), (50, b"x" * 9), (70, b"x" * 9), turns=copies) == [50, 70]


def test_the_time_in_which_copies_can_lie():
    """From 120 s before the first to 120 s after the last; unknown where one was said at an unknown time."""
    second = int(AT.timestamp())
    assert collect(events(turn(LONG), turn(LONG, at=AT + timedelta(hours=1)))).span_s == (second - 120, second + 3720)
    assert collect(events(turn(LONG), turn(LONG, at=None))).span_s is None


def test_many_adjacent_ranges_are_one():
    found = collect(events(*(turn("x", (n * 10, n * 10 + 10)) for n in range(100))))
    assert found.ranges == {("pi", "s", 0): [(0, 1000)]}
    assert doomed(found, SOURCE, (990, b"x" * 9), (1000, b"x" * 9)) == [990]
