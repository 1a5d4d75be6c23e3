"""Read the memories of mem0 (open source, 1 and 2): its history database, or `Memory.get_all()` saved as JSON.

Its vector stores are not read: a local one of Qdrant or FAISS holds pickles, which can run code when they are loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perdure.access.redact import mask
from perdure.environ import find_user_home, read_variable
from perdure.errors import UsageError
from perdure.formats.values import parse_instant, text_or_empty
from perdure.memories.markdown_io import FileRefusal
from perdure.memories.other_stores.records import (
    StoreContents,
    StoreRecord,
    find_first,
    iter_json_lines,
    list_texts,
    name_subject,
    parse_json,
    read_file,
    to_kind,
)
from perdure.memories.other_stores.store import Row, list_columns, open_copy, select_rows

NAME = "mem0"
FILE = "history.db"
_COLUMNS = ("memory_id", "new_memory", "event", "created_at", "updated_at", "is_deleted")
_OWNER_KEYS = ("user_id", "agent_id", "app_id")
_NO_PICKLES = (
    "holds pickles, which are never loaded: name history.db (by default in ~/.mem0), or save Memory.get_all() as JSON"
)


def find_store() -> Path | None:
    """Return the history database of this user."""
    return find_first([Path(read_variable("MEM0_DIR") or find_user_home() / ".mem0") / FILE])


def read(path: Path, contents: StoreContents) -> None:
    """Add the memories of a history database, or of a JSON file. Raises UsageError for another file."""
    if path.suffix.lower() == ".pkl" or path.name == "storage.sqlite":
        raise UsageError(f"{path} {_NO_PICKLES}")
    if path.suffix.lower() in (".json", ".jsonl"):
        _read_export(path, contents)
    else:
        _read_history(path, contents)


def _read_history(path: Path, contents: StoreContents) -> None:
    """Add the last text of each memory that was not deleted."""
    with open_copy(path) as connection:
        if not {"memory_id", "new_memory", "event"} <= list_columns(connection, "history"):
            raise UsageError(f"{path} is no history of mem0: it has no table with memory_id, new_memory and event")
        last_rows: dict[str, Row] = {}
        for row in select_rows(connection, "history", _COLUMNS):
            last_rows[row["memory_id"]] = row
    for memory_id, row in last_rows.items():
        if row["event"].upper() == "DELETE" or row["is_deleted"] == "1":
            contents.left_out["deleted"] += 1
            continue
        stated_at = parse_instant(row["updated_at"]) or parse_instant(row["created_at"])
        contents.add(_build_record(memory_id, row["new_memory"])._replace(stated_at=stated_at))


def _read_export(path: Path, contents: StoreContents) -> None:
    entries = _list_entries(path, contents)
    owners = {owner for _, item in entries if isinstance(item, dict) and (owner := _get_owner(item))}
    for place, item in entries:
        if isinstance(item, dict) and (words := _get_text(item)):
            contents.add(_build_exported(item, words, is_named=len(owners) > 1))
        else:
            contents.refusals.append(FileRefusal(place, "is no memory: it has no `memory`"))


def _list_entries(path: Path, contents: StoreContents) -> list[tuple[str, Any]]:
    """Return (place, value) of each memory of a list, or of a file with one a line."""
    text = read_file(path)
    try:
        value = parse_json(text)
    except ValueError as error:
        if path.suffix.lower() == ".jsonl":
            return [(f"{path}:{number}", item) for number, item in iter_json_lines(text, contents)]
        raise UsageError(f"{path} is no JSON: {error}") from error
    if isinstance(value, dict):
        lists = (value[key] for key in ("results", "memories") if key in value)
        value = next(lists, [value] if _get_text(value) else None)
    if not isinstance(value, list):
        raise UsageError(f"{path} is no export of mem0: expected a list of memories, or one in `results`")
    return [(f"{path}[{number}]", item) for number, item in enumerate(value)]


def _get_owner(item: Mapping[str, Any]) -> str:
    return mask(next((owner for key in _OWNER_KEYS if (owner := text_or_empty(item.get(key)))), ""))


def _get_text(item: Mapping[str, Any]) -> str:
    return next((words for key in ("memory", "text", "data") if (words := text_or_empty(item.get(key)).strip())), "")


def _build_exported(item: Mapping[str, Any], words: str, *, is_named: bool) -> StoreRecord:
    """Build the record of an exported memory. is_named: the words must say whose memory it is."""
    owner, metadata = _get_owner(item), item.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    categories = [text_or_empty(metadata.get("category")), *list_texts(item.get("categories"))]
    return _build_record(text_or_empty(item.get("id")), name_subject(owner, words) if is_named else words)._replace(
        kind=next((kind for category in categories if (kind := to_kind(category))), None),
        stated_at=parse_instant(item.get("updated_at")) or parse_instant(item.get("created_at")),
        entities=(owner,) if owner else (),
    )


def _build_record(memory_id: str, words: str) -> StoreRecord:
    return StoreRecord(words, NAME, record_id=memory_id, label=memory_id)
