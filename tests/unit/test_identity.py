"""Ids are computed, never assigned; no name out of a transcript becomes a path as it is."""

import subprocess
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import UsageError
from perdure.identity import (
    check_user,
    find_project,
    get_run_month,
    is_run_id,
    make_run_id,
    make_turn_id,
    to_base32,
    to_path_component,
)
from perdure.types import Source

SOURCE = Source("ada", "pi", "s")


def test_base32_is_worked_out_by_hand():
    """33 = 1 × 32 + 1 → "11"; 31 → "z"; 1023 = 31 × 32 + 31 → "zz"; only the lowest bits are kept."""
    assert (to_base32(33, 2), to_base32(31, 1), to_base32(1023, 2), to_base32(1024, 2)) == ("11", "z", "zz", "00")


def test_run_id_begins_with_the_time():
    """2026-01-01 is 1,767,225,600,000 ms = in base 32, by division: 1 13 23 26 20 1 24 16 0 → 0 1 d q t m 1 r g 0
    (10 characters, the first of them 0).
    """
    ms, digits = 1_767_225_600_000, []
    for _ in range(10):
        ms, digit = divmod(ms, 32)
        digits.insert(0, "0123456789abcdefghjkmnpqrstvwxyz"[digit])
    assert make_run_id(SOURCE, 0, datetime(2026, 1, 1, tzinfo=UTC))[:10] == "".join(digits)
    assert make_run_id(SOURCE, 0, None)[:10] == "0000000000"


@given(st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2200, 1, 1)), st.integers(0, 2**50))
def test_run_ids_are_paths_and_know_their_month(at, offset):
    identifier = make_run_id(SOURCE, offset, at.replace(tzinfo=UTC))
    assert is_run_id(identifier) and len(identifier) == 26
    assert get_run_month(identifier) == f"{at:%Y-%m}"


def test_run_ids_sort_by_time():
    ids = [make_run_id(SOURCE, 9 - n, datetime(2000 + 11 * n, 1, 1, tzinfo=UTC)) for n in range(10)]
    assert ids == sorted(ids)


def test_ids_differ_by_every_part_of_the_source_and_by_offset():
    sources = [SOURCE, Source("bob", "pi", "s"), Source("ada", "codex", "s"), Source("ada", "pi", "t"),
               Source("ada", "pi", "s", 1)]  # fmt: skip
    assert len({make_turn_id(source, offset) for source in sources for offset in (0, 1)}) == 10
    assert len({make_run_id(source, offset, None) for source in sources for offset in (0, 1)}) == 10
    assert make_turn_id(SOURCE, 5) == make_turn_id(SOURCE, 5) and len(make_turn_id(SOURCE, 5)) == 17


@pytest.mark.parametrize("bad", ["", "x" * 26 + "\n", "x" * 25, "../../etc/passwd/etc/passwd", "U" * 26, "é" * 26])
def test_invalid_run_id_is_no_path(bad):
    assert not is_run_id(bad)
    with pytest.raises(UsageError):
        get_run_month(bad)


def test_run_id_of_the_far_future_has_a_month():
    assert get_run_month("z" * 26) == "9999-12"


@pytest.mark.parametrize("bad", ["", ".", "..", ".ssh", "a/b", "a\\b", "a\0b", "a\n", "-x", "é", "a" * 65, "a b"])
def test_users_that_cannot_be_folders(bad):
    with pytest.raises(UsageError):
        check_user(bad)


def test_valid_users_are_accepted():
    assert [check_user(name) for name in ("ada", "_www", "a.b@c-d+e", "A" * 64, "0")]


@given(st.text())
def test_components_are_safe(name):
    safe = to_path_component(name)
    assert safe == to_path_component(name)
    assert "/" not in safe and "\0" not in safe and not safe.startswith(".") and 0 < len(safe) <= 100
    assert safe == name or safe.startswith("x-")


def test_components_do_not_collide():
    assert to_path_component("a/b") != to_path_component("a_b") != to_path_component("a:b")
    assert to_path_component("\ud800") != to_path_component("\ud801")


def test_project_is_the_root_of_the_repository(tmp_path):
    repository = tmp_path / "repo"
    (repository / "src" / "deep").mkdir(parents=True)
    (repository / ".git").mkdir()
    assert find_project(str(repository / "src" / "deep")) == str(repository)
    assert find_project(str(tmp_path / "plain")) == str(tmp_path / "plain")
    assert find_project("C:\\work") == "C:\\work"
    assert find_project(None) is find_project("") is find_project("/a\0b") is None


def test_worktree_belongs_to_its_main_repository(tmp_path):
    def git(*words):
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@y", "-C", tmp_path / "main", *words],
                       check=True, capture_output=True)  # fmt: skip

    (tmp_path / "main").mkdir()
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "x")
    git("worktree", "add", "-q", str(tmp_path / "side"))
    assert find_project(str(tmp_path / "side")) == str(tmp_path / "main")


def test_invalid_git_file_is_ignored(tmp_path):
    for junk in (b"", b"gitdir:", b"\xff\xfe", b"gitdir: a\0b", b"x" * 9000):
        (tmp_path / ".git").write_bytes(junk)
        assert find_project(str(tmp_path)) == str(tmp_path)


@given(st.text(max_size=60))
def test_project_of_never_raises(text):
    assert find_project("/nonexistent/" + text) is None or True


def test_a_folder_name_that_the_system_refuses():
    assert find_project("/" + "x" * 5000) == "/" + "x" * 5000
