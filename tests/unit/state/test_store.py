"""The state file by itself: namespaces in bytes, what a second process sees, what forgetting leaves."""

import contextlib
import doctest
from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import HomeFault, NewerFormat
from perdure.state import store
from perdure.state.store import ItemPut, StateFile, decode_namespace, encode_namespace

LABELS = st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1), max_size=4)


def test_examples_hold() -> None:
    assert doctest.testmod(store).failed == 0


@given(LABELS, LABELS)
def test_bytes_of_a_namespace_begin_with_those_above_it(labels: list[str], others: list[str]) -> None:
    raw, other = encode_namespace(labels), encode_namespace(others)
    assert decode_namespace(raw) == tuple(labels)
    assert raw.startswith(other) == (labels[: len(others)] == others)
    assert (bool(other) and other <= raw < other[:-1] + b"\1") == (bool(other) and raw.startswith(other))


def test_items_of_a_prefix_are_those_in_it_and_below(tmp_path: Path) -> None:
    names = [("a",), ("a", "b"), ("a b",), ("ab",), ("b",), ("a", "\x01"), ("\uffff",)]
    with contextlib.closing(StateFile(tmp_path, "ann")) as one, contextlib.closing(StateFile(tmp_path, "ann")) as two:
        one.write_items([ItemPut(name, "k", b"1") for name in names], [], now_s=5.0)
        found = [item.namespace for item in two.list_items(("a",), now_s=5.0)]
    assert found == [("a",), ("a", "b"), ("a", "\x01")]


def test_forgetting_finds_a_text_with_quotes_and_leaves_no_bytes(tmp_path: Path) -> None:
    text = 'He said "the quokka is in the\nbox", é.'
    with contextlib.closing(StateFile(tmp_path, "ann")) as state:
        values = (b'{"t": "He said \\"the quokka is in the\\nbox\\", \xc3\xa9."}', b'{"t": "other"}')
        state.write_items([ItemPut(("a",), str(n), value) for n, value in enumerate(values)], [], now_s=5.0)
        state.forget([text])
        assert [item.key for item in state.list_items((), now_s=5.0)] == ["1"]
        assert not any(b"quokka" in path.read_bytes() for path in (tmp_path / "state").iterdir())


def test_a_newer_or_damaged_file_is_refused(tmp_path: Path) -> None:
    StateFile(tmp_path, "ann").close()
    path = store.get_path(tmp_path, "ann")
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.pragma("user_version", 99)
    with pytest.raises(NewerFormat):
        StateFile(tmp_path, "ann")
    path.write_bytes(b"no database at all, but long enough to be looked at" * 100)
    with pytest.raises(HomeFault):
        StateFile(tmp_path, "ann")
