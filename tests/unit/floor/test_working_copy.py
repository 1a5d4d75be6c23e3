"""Working copies: put in one step, never half of one, and what stood there before is still in our hands."""

import os
import time

import pytest

from perdure.floor import working_copy


def kept(path):
    return sorted(copy.text for copy in working_copy.read_displaced(path))


def test_missing_page_is_created(tmp_path):
    path = tmp_path / "agents/default/diary/2026-11-21.md"
    working_copy.put_text(path, "Dear next one\n")
    assert path.read_text() == "Dear next one\n" and kept(path) == []
    assert {found.name for found in path.parent.iterdir()} == {path.name, f".{path.name}.noted"}
    assert path.stat().st_mode & 0o077 == 0


def test_replaced_text_is_kept_for_a_while(tmp_path):
    path = tmp_path / "notes.md"
    working_copy.put_text(path, "one\n")
    path.write_text("an edit of the last moment\n")
    working_copy.put_text(path, "two\n")
    assert path.read_text() == "two\n" and kept(path) == ["an edit of the last moment\n"]
    working_copy.remove_copy(path)
    assert not path.exists() and kept(path) == ["an edit of the last moment\n", "two\n"]


def test_without_a_swap_the_same_in_two_steps(tmp_path):
    path, new = tmp_path / "notes.md", tmp_path / ".notes.md.1.ab.displaced"
    path.write_text("one\n")
    new.write_text("two\n")
    working_copy._replace_and_keep_old(new, path)
    assert path.read_text() == "two\n" and kept(path) == ["one\n"]


def test_an_editor_that_holds_the_old_file_open_is_not_lost(tmp_path):
    path = tmp_path / "notes.md"
    working_copy.put_text(path, "one\n")
    with path.open("a") as editor:
        working_copy.put_text(path, "two\n")
        editor.write("late\n")
    assert path.read_text() == "two\n" and kept(path) == ["one\nlate\n"]


def test_displaced_copies_belong_to_one_page(tmp_path):
    for name in ("notes.md", "core.md", ".notes.md"):
        working_copy.put_text(tmp_path / name, "one\n")
        working_copy.put_text(tmp_path / name, f"{name}\n")
    assert len(kept(tmp_path / "notes.md")) == 1


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"one\r\ntwo\n", "one\ntwo\n"), (b"\xef\xbb\xbfone\n", "one\n"), (b"", None), (b" \n\t\n", None),
        (b"a\0b", None), (b"\xff\xfe", None), ("märz\n".encode(), "märz\n"),
    ],
)  # fmt: skip
def test_the_text_of_a_file(tmp_path, raw, text):
    path = tmp_path / "notes.md"
    path.write_bytes(raw)
    found = working_copy.read_copy(path)
    assert found is not None and found.text == text and bool(found.why) == (text is None)


def test_path_that_is_no_file_has_no_text(tmp_path):
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "gone.md").symlink_to(tmp_path / "nowhere")
    (tmp_path / "lost.md").symlink_to(tmp_path / "no/where")
    for name in ("none.md", "gone.md"):
        assert working_copy.read_copy(tmp_path / name) is None
    for name in ("folder.md", "file/notes.md", "lost.md"):
        found = working_copy.read_copy(tmp_path / name)
        assert found.text is None and found.is_foreign and found.why


def test_file_set_aside_is_complete_and_overwrites_nothing(tmp_path):
    path = tmp_path / "notes.md"
    path.write_bytes(b"\xff\0")
    copy = working_copy.read_copy(path)
    first, second = working_copy.set_aside(copy), working_copy.set_aside(copy)
    assert first != second and first.read_bytes() == second.read_bytes() == path.read_bytes() == b"\xff\0"


def test_copy_is_fresh_shortly_after_a_change(tmp_path):
    path = tmp_path / "notes.md"
    path.write_text("one\n")
    assert working_copy.read_copy(path).is_fresh
    old = time.time() - working_copy.SETTLED_S - 1
    os.utime(path, (old, old))
    assert not working_copy.read_copy(path).is_fresh


def test_before_is_by_the_time_of_an_event(tmp_path):
    """A file changed at 2026-01-01 00:00:10 UTC (1767225610 s) was changed before an event of second 11, not of 9."""
    path = tmp_path / "notes.md"
    path.write_text("one\n")
    os.utime(path, (1767225610, 1767225610))
    copy = working_copy.read_copy(path)
    assert copy.is_before("2026-01-01T00:00:11.000+00:00#0000")
    assert not copy.is_before("2026-01-01T00:00:09.000+00:00#0000")
