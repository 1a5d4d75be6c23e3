"""Readers of other products' stores: every content is records or a refusal, and never an exception of another kind."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.capture.transcripts import PATH_RUNTIMES
from perdure.errors import UsageError
from perdure.memories.other_stores import export
from perdure.memories.other_stores.records import StoreContents, make_page, name_subject
from perdure.memories.other_stores.take_in import READERS
from perdure.types import EXTERNAL_RUNTIMES, STORE_RUNTIMES

KEYS = st.sampled_from([
    "type", "entity", "relation", "name", "observations", "from", "to", "relationType", "results", "memories", "memory",
    "id", "user_id", "metadata", "category", "created_at", "entities", "relations",
])  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | KEYS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def read(store: str, path: Path) -> StoreContents:
    contents = StoreContents(str(path))
    try:
        READERS[store].read(path, contents)
    except UsageError:
        pass
    assert all(record.text.strip() and record.page for record in contents.records)
    assert all(make_page("x", record.page) for record in contents.records)
    return contents


@pytest.mark.parametrize(("store", "name"), [("memory-server", "m.jsonl"), ("mem0", "m.json")])
@settings(max_examples=150, deadline=None)
@given(values=st.lists(VALUES, max_size=4))
def test_any_json_is_records_or_a_refusal(store: str, name: str, folder: Path, values) -> None:
    (folder / name).write_text("\n".join(json.dumps(value) for value in values))
    read(store, folder / name)


@pytest.mark.parametrize("store", STORE_RUNTIMES)
@settings(max_examples=60, deadline=None)
@given(raw=st.binary(max_size=200))
def test_any_bytes_are_records_or_a_refusal(store: str, folder: Path, raw: bytes) -> None:
    for name in ("any.md", "any.json", "any.db", "any"):
        (folder / name).write_bytes(raw)
        read(store, folder / name)


@settings(max_examples=60, deadline=None)
@given(
    text=st.text(alphabet="[]()#- \"'\nabc:|`>x", max_size=120), header=st.text(alphabet="abc:[]{}-\n &*!", max_size=40)
)
def test_any_note_of_basic_memory_is_read(folder: Path, text: str, header: str) -> None:
    (folder / "note.md").write_text(f"---\n{header}\n---\n{text}")
    read("basic-memory", folder / "note.md")


ODD = [None, 7, 1.5, b"\xff\x00", "x" * 100_000, "9" * 400, '["a", 3, null]', "[" * 3000, "2026-99-99", "-1", "²"]


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_any_value_of_a_database_is_read(value, tmp_path: Path) -> None:
    """Columns of a version that is not known, with values of the wrong type."""
    for store, table, columns in (
        ("claude-mem", "observations", ("id", "title", "facts", "created_at_epoch", "project", "type")),
        ("mem0", "history", ("memory_id", "new_memory", "event", "created_at")),
    ):
        path = tmp_path / f"{store}.db"
        with sqlite3.connect(path) as connection:
            connection.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
            marks = ", ".join("?" * len(columns))
            connection.execute(f"INSERT INTO {table} VALUES ({marks})", [value] * len(columns))
        connection.close()
        read(store, path)


def test_every_store_has_a_reader_and_its_sessions_are_paths() -> None:
    assert set(READERS) == set(STORE_RUNTIMES)
    assert set(EXTERNAL_RUNTIMES) < set(PATH_RUNTIMES), "capture, which may not load the types, names them again"
    assert set(export.FORMS) <= {*STORE_RUNTIMES, "claude"}


@pytest.mark.parametrize(
    ("subject", "statement", "named"),
    [
        ("", "Opens at nine", "Opens at nine"),
        ("Mira_Okafor", "mira okafor plays chess", "mira okafor plays chess"),
        ("shop", "Opens at nine", "shop: Opens at nine"),
        ("Ann", "Is planning the move", "Ann: Is planning the move"),
        ("Al", "Always early", "Al: Always early"),
        ("Ann", "The plan is Ann's", "The plan is Ann's"),
        ("C++", "c++ is compiled here", "c++ is compiled here"),
    ],
)
def test_a_statement_names_its_subject_once(subject: str, statement: str, named: str) -> None:
    assert name_subject(subject, statement) == named
