"""A memory's path is a name, never a place on a disk."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.archive import memory_events
from perdure.archive.memory_events import MAX_PATH_BYTES, check_path, fold_path
from perdure.errors import UsageError


def test_the_examples_in_docstrings_are_true() -> None:
    assert doctest.testmod(memory_events).failed == 0


@pytest.mark.parametrize(
    "path",
    [
        "user/preferences/editor",
        "Mara/Job",
        "staging-server/port",
        "用户/编辑器",
        "user/likes/café au lait",
        "a",
        "..a/b..",
    ],
)
def test_plain_path_stays_unchanged(path: str) -> None:
    assert check_path(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "", ".md", "/etc/passwd", "../secret", "a/../../b", "a/./b", "a//b", "a/", "C:/x", "c:x", "a\\b", "\\\\host\\x",
        "a\nb", "a\x00b", "a\x1b[31m", "a/\u202eb", "a/\u200b", "\ud800", " a/b", "a /b", "a/ .. /b", "...md",
        "a/...md", "x" * (MAX_PATH_BYTES + 1), "界" * (MAX_PATH_BYTES // 3 + 1),
    ],
)  # fmt: skip
def test_invalid_path_is_refused_with_advice(path: str) -> None:
    with pytest.raises(UsageError, match=r"the memory path .*: (write|shorten|name|remove)"):
        check_path(path)


def test_suffix_is_dropped_and_paths_ignore_case() -> None:
    assert check_path("user/preferences/editor.MD") == "user/preferences/editor"
    assert fold_path("User/Editor") == fold_path("user/editor") != fold_path("user/editors")


@given(st.text(max_size=300))
def test_accepted_path_is_relative_and_accepted_again(path: str) -> None:
    try:
        kept = check_path(path)
    except UsageError as fault:
        assert str(fault).isprintable()
        return
    assert check_path(kept) == kept or kept.lower().endswith(".md")
    assert len(kept.encode()) <= MAX_PATH_BYTES and not kept.startswith("/") and ".." not in kept.split("/")


def test_project_has_the_length_limit_of_a_path():
    assert memory_events.check_project("x" * 256) == "x" * 256 and memory_events.check_project(None) is None
    with pytest.raises(UsageError, match="longer than 256 bytes"):
        memory_events.check_project("é" * 129)
