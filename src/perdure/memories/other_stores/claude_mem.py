"""Read the database of claude-mem (versions 4 to 13): observations and session summaries.

Its prompts are those of the client's transcripts, which `perdure import` takes in; they are counted and left out.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from perdure.environ import find_user_home, read_variable
from perdure.errors import UsageError
from perdure.formats.values import parse_instant
from perdure.memories.other_stores.records import (
    StoreContents,
    StoreRecord,
    find_first,
    list_texts,
    make_page,
    parse_json,
    to_kind,
)
from perdure.memories.other_stores.store import Row, count_rows, list_columns, open_copy, select_rows

NAME = "claude-mem"
FILE = "claude-mem.db"
_OBSERVATION_COLUMNS = (
    "id", "memory_session_id", "sdk_session_id", "project", "merged_into_project", "text", "type", "title", "subtitle",
    "facts", "narrative", "created_at", "created_at_epoch",
)  # fmt: skip
_SUMMARY_COLUMNS = (
    "id", "memory_session_id", "sdk_session_id", "project", "merged_into_project", "request", "learned", "completed",
    "notes", "created_at", "created_at_epoch",
)  # fmt: skip


def find_store() -> Path | None:
    """Return the database of this user."""
    folder = Path(read_variable("CLAUDE_MEM_DATA_DIR") or find_user_home() / ".claude-mem")
    return find_first([folder / FILE])


def read(path: Path, contents: StoreContents) -> None:
    """Add the records of a database. Raises UsageError for another one."""
    with open_copy(path) as connection:
        columns = list_columns(connection, "observations")
        if not columns & {"title", "text"}:
            raise UsageError(f"{path} is no database of claude-mem: it has no table of observations")
        for row in select_rows(connection, "observations", _OBSERVATION_COLUMNS):
            contents.add(_build_observation(row))
        for row in select_rows(connection, "session_summaries", _SUMMARY_COLUMNS):
            contents.add(_build_summary(row))
        contents.left_out["user prompt"] += count_rows(connection, "user_prompts")


def _build_observation(row: Row) -> StoreRecord:
    facts = _parse_list(row["facts"])
    title = ". ".join(filter(None, (row["title"].strip(), row["subtitle"].strip())))
    details = "\n".join(f"- {fact}" for fact in facts) or row["narrative"].strip() or row["text"].strip()
    page = make_page(NAME, row["project"], row["type"])
    return _place_record(StoreRecord("\n".join(filter(None, (title, details))), page), row, "observation")


def _build_summary(row: Row) -> StoreRecord:
    parts = (("Asked", row["request"]), ("Learned", row["learned"]), ("Done", row["completed"]), ("Note", row["notes"]))
    words = "\n".join(f"{name}: {part.strip()}" for name, part in parts if part.strip())
    return _place_record(StoreRecord(words, make_page(NAME, row["project"], "summary")), row, "summary")


def _place_record(record: StoreRecord, row: Row, table: str) -> StoreRecord:
    """Return a record with its name, time and project. Numbers repeat between databases, sessions do not."""
    session = row["memory_session_id"] or row["sdk_session_id"]
    epoch_ms = row["created_at_epoch"]
    return record._replace(
        record_id=f"{table[:3]}-{row['id']}-{hashlib.sha256(session.encode()).hexdigest()[:8]}",
        kind=to_kind(row.get("type") or "summary") or "fact",
        stated_at=parse_instant(int(epoch_ms) if epoch_ms.isdecimal() else row["created_at"]),
        project=row["merged_into_project"] or row["project"],
        label=f"{table} {row['id']}",
    )


def _parse_list(json_text: str) -> list[str]:
    """Return the texts of a JSON list; nothing for other text."""
    try:
        return list_texts(parse_json(json_text))
    except ValueError:
        return []
