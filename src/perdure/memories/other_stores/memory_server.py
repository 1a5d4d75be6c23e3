"""Read the knowledge graph of the MCP memory server (npm `@modelcontextprotocol/server-memory`, 0.6).

Its file has one JSON object a line: entities with observations, and relations between entities. It names no times, so
the time of a record is that of the file. An answer of its tool `read_graph`, one JSON object, is read too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from perdure.access.redact import mask
from perdure.environ import find_user_home, read_variable
from perdure.errors import UsageError
from perdure.formats.values import text_or_empty
from perdure.memories.markdown_io import FileRefusal
from perdure.memories.other_stores.records import (
    StoreContents,
    StoreRecord,
    iter_json_lines,
    list_texts,
    make_page,
    name_subject,
    parse_json,
    read_file,
    to_kind,
)

NAME = "memory-server"
_PACKAGE = "node_modules/@modelcontextprotocol/server-memory/dist"


def find_store() -> Path | None:
    """Return the file of this user: that of MEMORY_FILE_PATH, or the newest one that `npx` keeps."""
    if path := read_variable("MEMORY_FILE_PATH"):
        return Path(path)
    patterns = (f".npm/_npx/*/{_PACKAGE}/memory.jsonl", f".npm/_npx/*/{_PACKAGE}/memory.json")
    paths = [path for pattern in patterns for path in find_user_home().glob(pattern) if path.is_file()]
    return max(paths, key=lambda path: path.stat().st_mtime, default=None)


def read(path: Path, contents: StoreContents) -> None:
    """Add the records of a graph: one for each observation and each relation. Raises UsageError for another file."""
    text = read_file(path)
    entries = list(_iter_entries(text, contents))
    if text.strip() and not entries and not any("is no JSON:" in item.why for item in contents.refusals):
        raise UsageError(f"{path} holds no entities and relations of the MCP memory server")
    for place, entry in entries:
        if entry.get("type") == "entity":
            _add_entity(entry, place, contents)
        elif entry.get("type") == "relation":
            _add_relation(entry, place, contents)
        else:
            contents.left_out["unknown type"] += 1


def _iter_entries(text: str, contents: StoreContents) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (place, entity or relation) of a file of either form."""
    try:
        graph = parse_json(text) if text.lstrip().startswith("{") else None
    except ValueError:  # several objects: one a line
        graph = None
    if isinstance(graph, dict) and "type" not in graph:
        for name, type_ in (("entities", "entity"), ("relations", "relation")):
            items = graph.get(name)
            for number, item in enumerate(items if isinstance(items, list) else ()):
                if isinstance(item, dict):
                    yield f"{contents.path}:{name}[{number}]", {**item, "type": type_}
                else:
                    contents.refusals.append(FileRefusal(f"{contents.path}:{name}[{number}]", "is no JSON object"))
        return
    for number, value in iter_json_lines(text, contents):
        if "type" in value:
            yield f"{contents.path}:{number}", value
        else:
            contents.refusals.append(FileRefusal(f"{contents.path}:{number}", "has no type"))


def _add_entity(entry: Mapping[str, Any], place: str, contents: StoreContents) -> None:
    name = mask(text_or_empty(entry.get("name")))
    if not name:
        contents.refusals.append(FileRefusal(place, "is an entity without a name"))
        return
    observations = list_texts(entry.get("observations"))
    contents.left_out["entity without observations"] += not observations
    for observation in observations:
        contents.add(
            StoreRecord(
                name_subject(name, observation),
                make_page(NAME, name),
                kind=to_kind(text_or_empty(entry.get("entityType"))),
                entities=(name.replace("_", " "),),
                name=name.replace("_", " "),
                label=place,
            )
        )


def _add_relation(entry: Mapping[str, Any], place: str, contents: StoreContents) -> None:
    ends = [mask(text_or_empty(entry.get(key))).replace("_", " ") for key in ("from", "to")]
    verb = mask(text_or_empty(entry.get("relationType"))).replace("_", " ")
    if not (all(ends) and verb):
        contents.refusals.append(FileRefusal(place, "is a relation without from, to or relationType"))
        return
    page = make_page(NAME, text_or_empty(entry.get("from")))
    contents.add(StoreRecord(f"{ends[0]} {verb} {ends[1]}", page, ("relations",), entities=tuple(ends), label=place))
