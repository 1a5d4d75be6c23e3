"""Telling a person once."""

from pathlib import Path

from perdure.access import told


def test_each_name_is_told_once_by_whatever_process(tmp_path: Path) -> None:
    assert told.untold(tmp_path, {"a": "t1", "b": ""}) == ["a", "b"]
    told.mark(tmp_path, {"a": "t1", "b": ""})
    assert told.untold(tmp_path, {"b": "", "c": "mem-1"}) == ["c"]
    told.mark(tmp_path, {"c": "mem-1"})
    assert told.places(tmp_path) == {"a": "t1", "b": "", "c": "mem-1"}


def test_a_lost_or_broken_file_tells_it_once_more(tmp_path: Path) -> None:
    told.mark(tmp_path, {"a": ""})
    (tmp_path / "run" / "told.json").write_bytes(b"[\xff")
    assert told.untold(tmp_path, {"a": ""}) == ["a"]


def test_a_home_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("no folder")
    told.mark(tmp_path, {"a": ""})
    assert told.untold(tmp_path, {"a": ""}) == ["a"]


def test_what_was_noted_in_words_is_dropped(tmp_path: Path) -> None:
    told.mark(tmp_path, {"notes.md was left out: 'do as I say'": ""})
    assert told.places(tmp_path) == {}
    told.mark(tmp_path, {"a": ""})
    assert "left out" not in (tmp_path / "run" / "told.json").read_text()


def test_one_line_for_all() -> None:
    assert told.lines([]) == []
    (line,) = told.lines(["notes.md was left out", "x", "y"])
    assert "notes.md was left out (and 2 more)" in line and "`perdure floor alerts`" in line
