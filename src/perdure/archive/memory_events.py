"""The journal's events about memories, and the paths of memories: their shapes and checks in one place. Pure.

One event is one change that happens as a whole or not at all. Three operations are enough: `create`,
`reinforce` (it was stated again) and `change` (of anything but the words: a new wording is a new memory on
the same path).

A path is a pseudo-hierarchy such as `user/preferences/editor`; it never names a file on disk. It keeps the
spelling in which it was given; two paths are the same when `fold_path` returns the same for both.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from perdure.errors import UsageError
from perdure.regex import lazy_re
from perdure.types import Memory, Span

EVENT_TYPE = "memories"
USED = "used"  # event type: the injected cues that the answer used
FILE = "file"  # origin of a memory that holds a file of the memory tool
STORED = "stored"  # origin of a memory by which a value in a program's store is found
LABELLED = "labelled"  # event type: a person said whether a cue, or a whole block in shadow, belonged to its message
WRONG, RIGHT = "wrong", "right"  # the labels; "" takes one back. A cue is only ever wrong
INJECTED = "injected"  # event type, as in archive.injections
CHANGEABLE = ("path", "kind", "pinned", "retired", "in_review", "valid_from", "valid_until", "entities", "project")
_TIMES = ("valid_from", "valid_until")

Op = dict[str, Any]


class MinedRange(NamedTuple):
    """The range of a source that was mined."""

    source: str  # runtime, session and generation
    from_offset: int
    to_offset: int


def build_create_op(memory: Memory) -> Op:
    """Build the operation that creates a memory. Writes only what differs from the defaults."""
    op: Op = {
        "op": "create",
        "id": memory.memory_id,
        "text": memory.text,
        "kind": memory.kind,
        "path": memory.path,
        "agent": memory.agent,
        "stated_at": _to_iso(memory.stated_at),
        "trust": memory.trust,
        "how": memory.how,
    }
    optional_fields = {
        "project": memory.project,
        "sources": spans_to_json(memory.sources),
        "made_from": list(memory.made_from),
        "entities": list(memory.entities),
        "runtime": memory.runtime,
        "conversation": memory.conversation,
        "valid_from": _to_iso(memory.valid_from),
        "valid_until": _to_iso(memory.valid_until),
        "pinned": memory.pinned,
        "in_review": memory.in_review,
    }
    op |= {name: value for name, value in optional_fields.items() if value}
    return op if memory.confidence == 1.0 else {**op, "confidence": memory.confidence}


def build_reinforce_op(memory_id: str, *, stated_at: datetime, sources: Sequence[Span] = ()) -> Op:
    """Build the operation that records that a memory was stated again."""
    return {"op": "reinforce", "id": memory_id, "stated_at": _to_iso(stated_at), "sources": spans_to_json(sources)}


def build_change_op(memory_id: str, **fields: Any) -> Op:
    """Build the operation that changes fields of CHANGEABLE."""
    values = {name: _to_iso(value) if isinstance(value, datetime) else value for name, value in fields.items()}
    return {"op": "change", "id": memory_id, **values}


def build_event_data(
    ops: Sequence[Op], *, by: str, batch: MinedRange | None = None, why: str = "", undoes: str = "",
    proposals: Sequence[Sequence[str]] = (), discards: Sequence[Sequence[str]] = (),
    settled: Sequence[Sequence[str]] = (),
) -> dict[str, Any]:  # fmt: skip
    """Build the data of an event.

    by: owner, agent, rules, miner, consolidation, import or store (what another product's model wrote). why: never the
    words of a memory, which could not be forgotten there. undoes: the event that it reverts. proposals: (id, kind) of
    what it applies. discards: (reason, time of the statement) of each text that the write gate kept out. settled: (id
    of a turn, "keep" or "none") of each candidate that a host's model settled.
    """
    event_data: dict[str, Any] = {"by": by, "ops": list(ops)}
    if batch is not None:
        event_data["batch"] = list(batch)
    optional_fields = {"why": why, "undoes": undoes, "proposals": list(map(list, proposals))}
    optional_fields |= {"discards": list(map(list, discards)), "settled": list(map(list, settled))}
    return event_data | {name: value for name, value in optional_fields.items() if value}


def build_memory(op: Mapping[str, Any], *, recorded_at: datetime, order: str) -> Memory:
    """Build the memory that a `create` operation makes."""
    return Memory(
        memory_id=op["id"],
        text=op["text"],
        kind=op["kind"],
        path=op["path"],
        agent=op["agent"],
        project=op.get("project"),
        stated_at=_from_iso(op["stated_at"]) or recorded_at,
        recorded_at=recorded_at,
        trust=op["trust"],
        how=op["how"],
        sources=_spans_from_json(op.get("sources", ())),
        made_from=tuple(op.get("made_from", ())),
        entities=tuple(op.get("entities", ())),
        runtime=op.get("runtime", ""),
        conversation=op.get("conversation", ""),
        valid_from=_from_iso(op.get("valid_from")),
        valid_until=_from_iso(op.get("valid_until")),
        pinned=bool(op.get("pinned")),
        confidence=op.get("confidence", 1.0),
        retired=bool(op.get("in_review")),
        in_review=bool(op.get("in_review")),
        order=order,
    )


def list_retired(event_data: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the ids of the memories that events retire. event_data: of each event."""
    return {op["id"] for data in event_data for op in data["ops"] if op.get("retired") is True}


def read_changed_fields(op: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a `change` operation sets, as the values of a memory's fields. What is recalled is not in review."""
    fields = {name: op[name] for name in CHANGEABLE if name in op}
    fields |= {"in_review": False} if fields.get("retired") is False else {}
    fields |= {name: _from_iso(fields[name]) for name in _TIMES if name in fields}
    return fields | ({"entities": tuple(fields["entities"])} if "entities" in fields else {})


def build_used_data(injection: str, cues: Sequence[str], *, used_at: datetime, **session_fields: str) -> dict[str, Any]:
    """Build the data of a `used` event: the cues of an injection that were used, if any.

    injection: its nonce, judged once.
    """
    return {**session_fields, "nonce": injection, "used_at": _to_iso(used_at), "cues": list(cues), "by": "answer"}


def read_used_at(event_data: Mapping[str, Any]) -> datetime | None:
    """Return the time at which the cues of a `used` event were used, if the event says it."""
    return _from_iso(event_data.get("used_at"))


def read_stated_at(op: Mapping[str, Any]) -> datetime | None:
    """Return the time at which the content of an operation was stated."""
    return _from_iso(op.get("stated_at"))


def read_sources(op: Mapping[str, Any]) -> tuple[Span, ...]:
    """Return the turns behind an operation."""
    return _spans_from_json(op.get("sources", ()))


def spans_to_json(spans: Sequence[Span]) -> list[list[Any]]:
    """Convert spans to lists for JSON."""
    return [list(span) for span in spans]


def _spans_from_json(json_spans: Sequence[Sequence[Any]]) -> tuple[Span, ...]:
    return tuple(Span(str(run_id), int(low), int(high)) for run_id, low, high in json_spans)


def _to_iso(instant: datetime | None) -> str | None:
    return instant.isoformat() if instant is not None else None


def _from_iso(raw: str | None) -> datetime | None:
    return datetime.fromisoformat(raw) if raw else None


MAX_PATH_BYTES = 256  # in UTF-8; an export may use a path as a file name, and common file systems allow 255
_CONTROL_CATEGORIES = frozenset(
    ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
)  # also what turns or hides text: U+202E, U+200B
_DRIVE = lazy_re(r"[A-Za-z]:")


def check_path(path: str) -> str:
    """Return the path without its optional `.md` suffix, or raise UsageError that says what to change.

    >>> check_path("user/preferences/editor.md")
    'user/preferences/editor'
    """
    fault = _find_path_fault(path)
    if fault:
        raise UsageError(f"the memory path {_quote_path(path)} {fault}")
    return path[:-3] if path.lower().endswith(".md") else path


def check_project(project: str | None) -> str | None:
    """Return the project of a memory unchanged. Raises UsageError if it is longer than a path may be."""
    if project is not None and len(project.encode("utf-8", "surrogatepass")) > MAX_PATH_BYTES:
        raise UsageError(
            f"the project {_quote_path(project)} is longer than {MAX_PATH_BYTES} bytes: name a folder above it"
        )
    return project


def fold_path(path: str) -> str:
    """Return the form in which paths are compared: composed and without case.

    >>> fold_path("User/Café") == fold_path("user/cafe\\u0301")
    True
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def is_unscoped(path: str, kind: str) -> bool:
    """Return True if a memory belongs to no project unless one is named: it is about the person, not about the work.

    >>> is_unscoped("user/name", "fact"), is_unscoped("staging-server/port", "fact")
    (True, False)
    """
    return kind == "preference" or fold_path(path).startswith("user/")


def _find_path_fault(path: str) -> str:
    """Return what is wrong with a path and what to do about it; empty when nothing is."""
    if any(unicodedata.category(c) in _CONTROL_CATEGORIES for c in path):
        return "holds a control character: write it with letters, digits, - and /"
    if len(path.encode()) > MAX_PATH_BYTES:
        return f"is longer than {MAX_PATH_BYTES} bytes: shorten it"
    if path.startswith("/") or "\\" in path or _DRIVE.match(path):
        return "looks like a path on a disk: write it relative, with / between its parts, e.g. user/preferences/editor"
    parts = (path[:-3] if path.lower().endswith(".md") else path).split("/")
    if any(part.strip() in ("", ".", "..") for part in parts):
        return "has an empty part, . or ..: name every part, e.g. user/preferences/editor"
    if any(part != part.strip() for part in parts):
        return "has a space at the edge of a part: remove it"
    return ""


def _quote_path(path: str) -> str:
    """Return a path in a form that is safe in an error: quoted, without control characters for a terminal,
    never long.
    """
    return ascii(path if len(path) <= 80 else path[:79] + "…")
