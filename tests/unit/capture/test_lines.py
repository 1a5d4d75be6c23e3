"""Lines, offsets and time stamps of raw bytes, and which emitted lines were posted already."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.capture import lines as emitted
from perdure.capture.lines import find_first_stamp, find_last_stamp, split_lines
from perdure.capture.transcripts import count_complete_bytes


@pytest.mark.parametrize(
    ("data", "n_bytes"),
    [
        (b"", 0),
        (b"\n", 1),
        (b'{"a":1}\n', 8),
        (b'{"a":1}\n{"b":2}', 15),  # 8 + 7: a whole object needs no newline
        (b'{"a":1}\n{"b":', 8),  # torn: waits
        (b'{"a":1}\n{"b":{"c":2}', 8),  # ends with a brace, and is torn all the same
        (b'{"a":1}\n[1]', 8),  # only objects count as whole: a number could still grow
        (b'{"a":1}\n12', 8),
        (b'{"a":1}\r\n{"b":2}\r\n', 18),  # 9 + 9 bytes with CRLF
        (b'{"a":1}\r\n{"b":2}\r', 9),  # half of a CRLF: waits for the other half
        (b'{"a":"caf\xc3', 0),  # cut inside of a two-byte character
        (b'{"a":"caf\xc3\xa9"}', 13),
        (b'{"a":"\xff\xfe"}\n', 11),  # bytes that are no UTF-8 are bytes
        (b'{"a":"\xff"}', 0),  # without its newline an unreadable last line waits
        (b"\xef\xbb\xbf{}\n", 6),
    ],
)
def test_complete(data, n_bytes):
    assert count_complete_bytes(data) == n_bytes


def test_complete_survives_deep_nesting():
    assert count_complete_bytes(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}") in (0, 200_006)


@given(st.binary(max_size=200))
def test_complete_ends_at_a_line_or_at_the_end(data):
    cut = count_complete_bytes(data)
    assert cut == len(data) or data[:cut].endswith(b"\n") or cut == 0
    assert b"\n" not in data[cut:]


@given(st.binary(max_size=200), st.integers(0, 10**9))
def test_split_covers_every_byte_once(data, start):
    lines = list(split_lines(data, from_offset=start))
    assert b"\n".join(line.raw for line in lines) == data.removesuffix(b"\n") or data == b"\n"
    at = start
    for line in lines:
        assert line.offset == at
        at = line.end
    assert at in (start + len(data), start + len(data) + 1)


def test_split_keeps_carriage_returns():
    assert [(line.offset, line.raw) for line in split_lines(b"a\r\n\rb\n")] == [(0, b"a\r"), (3, b"\rb")]


def test_stamps_under_the_names_that_clients_use():
    """1767225600 s is 2026-01-01T00:00:00Z; the same in ms has three zeros more."""
    newyear = datetime(2026, 1, 1, tzinfo=UTC)
    assert find_first_stamp(b'{"timestamp":"2026-01-01T00:00:00Z"}') == newyear
    assert find_first_stamp(b'{"createdAt" : "2026-01-01T01:00:00+01:00"}') == newyear
    assert find_first_stamp(b'{"time":1767225600}') == newyear
    assert find_first_stamp(b'{"created":1767225600000}') == newyear
    assert find_first_stamp(b'{"ts":"2026-01-01T00:00:00"}') == newyear  # without a zone: UTC


def test_first_and_last_stamp_skip_implausible_ones():
    data = (
        b'{"timestamp":"0001-01-01T00:00:00Z"}\n{"time":9999999999999}\n{"timestamp":"yesterday"}\n{"ts":1767225600}\n'
    )
    data += b'{"timestamp":"2026-01-02T00:00:00Z"}\n{"timestamp":"9998-01-01T00:00:00Z"}\n'
    assert find_first_stamp(data) == datetime(2026, 1, 1, tzinfo=UTC)
    assert find_last_stamp(data) == datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    "stamp", ["0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+23:59"]
)
def test_stamp_outside_the_calendar_in_utc_is_none(stamp):
    data = b'{"timestamp":"%s"}\n{"ts":1767225600}\n' % stamp.encode()
    assert find_first_stamp(data) == find_last_stamp(data) == datetime(2026, 1, 1, tzinfo=UTC)


def test_last_stamp_is_found_before_a_long_tail_without_one():
    data = b'{"timestamp":"2026-01-01T00:00:00Z"}\n' + b'{"x":"' + b"y" * 600_000 + b'"}\n'
    assert find_last_stamp(data) == datetime(2026, 1, 1, tzinfo=UTC)


def test_no_stamp():
    assert find_first_stamp(b'{"text":"at 2026-01-01"}') is None
    assert find_last_stamp(b"") is None


LINES = st.lists(st.binary(max_size=4), max_size=8)


@settings(max_examples=60)
@given(st.lists(LINES, max_size=6))
def test_each_line_is_fresh_once(tmp_path_factory, captures: list[list[bytes]]) -> None:
    """Whatever is noted in whatever pieces: what is fresh is exactly what was never noted, in order."""
    folder, seen = tmp_path_factory.mktemp("c"), set()
    for lines in captures:
        fresh = emitted.select_unposted_lines(folder, "opencode\0s", lines)
        assert fresh == [line for line in dict.fromkeys(lines) if line not in seen]
        emitted.mark_lines_posted(folder, "opencode\0s", fresh)
        seen |= set(fresh)
    assert emitted.select_unposted_lines(folder, "opencode\0other", [b"x"]) == [b"x"]


def test_half_a_note_is_mended(tmp_path: Path) -> None:
    """A process that ended while it noted: its line counts as fresh, and those after it as noted."""
    emitted.mark_lines_posted(tmp_path, "s", [b"one"])
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes() + b"half")
    emitted.mark_lines_posted(tmp_path, "s", [b"two"])
    assert emitted.select_unposted_lines(tmp_path, "s", [b"one", b"two", b"three"]) == [b"three"]
