"""Files are read, written and edited without surprises."""

from __future__ import annotations

import pytest

from perdure.agent.folders import ProjectFolders
from perdure.agent.tools.files import edit_file, read_file, view_image, write_file
from perdure.errors import ToolError


def put(folders: ProjectFolders, name: str, data: bytes) -> str:
    (folders.root / name).write_bytes(data)
    return name


def test_a_very_long_line_is_cut(folders: ProjectFolders) -> None:
    put(folders, "a.js", b"x" * 300_000 + b"\nend\n")
    text = read_file(folders, "a.js", 1, 2000).text
    assert text.endswith("[The beginning of line 1 of 2, which has more than 50 KB. Go on with offset=2.]")
    assert read_file(folders, "a.js", 2, 2000).text == "end"


def test_whole_lines_are_read_to_50_kb(folders: ProjectFolders) -> None:
    """Lines of 1,024 bytes with their end: 50 have room in 51,200 bytes."""
    put(folders, "a.txt", (b"y" * 1023 + b"\n") * 60)
    lines = read_file(folders, "a.txt", 1, 2000).text.split("\n")
    assert lines[49] == "y" * 1023
    assert lines[50:] == ["", "[Lines 1 to 50 of 60. Read on with offset=51.]"]


@pytest.mark.parametrize(("data", "expected"), [
    (b"", "[a.txt is empty.]"), (b"a", "a"), (b"a\n", "a"), (b"a\r\nb\r\n", "a\nb"), (b"\xef\xbb\xbfa\n", "a"),
    (b"\xff\xfea", "��a"), (b"\n\n", "\n"),
])  # fmt: skip
def test_a_small_file_is_read(data: bytes, expected: str, folders: ProjectFolders) -> None:
    assert read_file(folders, put(folders, "a.txt", data), 1, 2000).text == expected


@pytest.mark.parametrize(("data", "old", "new", "expected"), [
    (b"a\r\nb\r\nc\r\n", "b", "x\ny", b"a\r\nx\r\ny\r\nc\r\n"),
    (b"a\r\nb\r\n", "a\nb", "x", b"x\r\n"),
    (b"\xef\xbb\xbfa b\n", "a b", "c", b"\xef\xbb\xbfc\n"),
    (b"\xff\xfe a b", "a", "c", b"\xff\xfe c b"),
    ("“a” – untouched – “b”\n".encode(), '"b"', "c", "“a” – untouched – c\n".encode()),
    (b"a  \nb\t\nc  \n", "a\nb", "x", b"x\t\nc  \n"),
    (b"no line end", "end", "break", b"no line break"),
])  # fmt: skip
def test_an_edit_changes_its_place_and_nothing_else(
    data: bytes, old: str, new: str, expected: bytes, folders: ProjectFolders
) -> None:
    edit_file(folders, put(folders, "a.txt", data), old, new)
    assert (folders.root / "a.txt").read_bytes() == expected


@pytest.mark.parametrize(("old", "new", "message"), [
    ("z", "y", "does not stand"), ("a", "b", "stands 2 times"), ("a b", "a b", "the same"),
])  # fmt: skip
def test_an_edit_that_is_not_clear_changes_nothing(old: str, new: str, message: str, folders: ProjectFolders) -> None:
    put(folders, "a.txt", b"a b a\n")
    with pytest.raises(ToolError, match=message):
        edit_file(folders, "a.txt", old, new)
    assert (folders.root / "a.txt").read_bytes() == b"a b a\n"


def test_an_edit_says_the_first_changed_line(folders: ProjectFolders) -> None:
    put(folders, "a.txt", b"1\n2\n3\n4\n")
    assert "first changed line 3" in edit_file(folders, "a.txt", "2\n3", "2\nx").text


def test_a_large_or_binary_file_is_not_edited(folders: ProjectFolders) -> None:
    put(folders, "a.bin", b"a\0b")
    with pytest.raises(ToolError, match="binary"):
        edit_file(folders, "a.bin", "a", "b")
    with (folders.root / "large.txt").open("wb") as file:
        file.truncate(10_000_001)
    with pytest.raises(ToolError, match="10,000,000"):
        edit_file(folders, "large.txt", "a", "b")


def test_half_characters_of_a_model_do_not_break_a_write(folders: ProjectFolders) -> None:
    write_file(folders, "a.txt", "a\ud800b")
    assert (folders.root / "a.txt").read_bytes() == b"a\xed\xa0\x80b"


def test_a_text_is_no_image(folders: ProjectFolders) -> None:
    with pytest.raises(ToolError, match="no image"):
        view_image(folders, "Makefile")
