"""Telling a person once."""

from pathlib import Path

from perdure.access import shown_alerts


def test_each_name_is_told_once_across_processes(tmp_path: Path) -> None:
    assert shown_alerts.list_unshown(tmp_path, "ada", {"a": "t1", "b": ""}) == ["a", "b"]
    shown_alerts.mark_shown(tmp_path, "ada", {"a": "t1", "b": ""})
    assert shown_alerts.list_unshown(tmp_path, "ada", {"b": "", "c": "mem-1"}) == ["c"]
    shown_alerts.mark_shown(tmp_path, "ada", {"c": "mem-1"})
    assert shown_alerts.read_shown(tmp_path, "ada") == {"a": "t1", "b": "", "c": "mem-1"}
    assert shown_alerts.list_unshown(tmp_path, "bob", {"a": "t1"}) == ["a"]


def test_lost_or_broken_file_repeats_each_name_once(tmp_path: Path) -> None:
    shown_alerts.mark_shown(tmp_path, "ada", {"a": ""})
    (tmp_path / "run" / "told-ada.json").write_bytes(b"[\xff")
    assert shown_alerts.list_unshown(tmp_path, "ada", {"a": ""}) == ["a"]


def test_unwritable_home_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("no folder")
    shown_alerts.mark_shown(tmp_path, "ada", {"a": ""})
    assert shown_alerts.list_unshown(tmp_path, "ada", {"a": ""}) == ["a"]


def test_entries_that_hold_words_are_dropped(tmp_path: Path) -> None:
    shown_alerts.mark_shown(tmp_path, "ada", {"notes.md was left out: 'do as I say'": ""})
    assert shown_alerts.read_shown(tmp_path, "ada") == {}
    shown_alerts.mark_shown(tmp_path, "ada", {"a": ""})
    assert "left out" not in (tmp_path / "run" / "told-ada.json").read_text()


def test_several_alerts_share_one_line() -> None:
    assert shown_alerts.format_alerts([]) == []
    (line,) = shown_alerts.format_alerts(["notes.md was left out", "x", "y"])
    assert "notes.md was left out (and 2 more)" in line and "`perdure floor alerts`" in line
