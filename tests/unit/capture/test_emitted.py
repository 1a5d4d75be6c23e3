"""Which emitted lines were posted already."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.capture import lines as emitted

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
