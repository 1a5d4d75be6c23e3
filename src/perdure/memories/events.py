"""The journal's events about memories: their shapes, written and read in one place. Pure.

One event is one change that happens as a whole or not at all. Three operations are enough: `create`, `reinforce`
(it was said again) and `change` (of anything but the words: a new wording is a new memory on the same path).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from perdure.types import Memory, Span

TYPE = "memories"
USED = "used"  # injected cues that the answer rests on
FILE = "file"  # how the memory of what a file of the memory tool says came to be
INJECTED = "injected"  # as archive.injected has it
CHANGEABLE = ("path", "kind", "pinned", "retired", "valid_from", "valid_until", "entities", "project")
_TIMES = ("valid_from", "valid_until")

Op = dict[str, Any]


class Batch(NamedTuple):
    """The stretch of a source that was mined."""

    source: str  # runtime, session and generation
    from_offset: int
    to_offset: int


def create(memory: Memory) -> Op:
    """The operation that makes a memory. Only what is not the default is written."""
    op: Op = {
        "op": "create", "id": memory.memory_id, "text": memory.text, "kind": memory.kind, "path": memory.path,
        "agent": memory.agent, "stated_at": _iso(memory.stated_at), "trust": memory.trust, "how": memory.how,
    }  # fmt: skip
    more = {
        "project": memory.project, "sources": spans(memory.sources), "made_from": list(memory.made_from),
        "entities": list(memory.entities), "runtime": memory.runtime, "conversation": memory.conversation,
        "valid_from": _iso(memory.valid_from), "valid_until": _iso(memory.valid_until), "pinned": memory.pinned,
    }  # fmt: skip
    op |= {name: value for name, value in more.items() if value}
    return op if memory.confidence == 1.0 else {**op, "confidence": memory.confidence}


def reinforce(memory_id: str, *, stated_at: datetime, sources: Sequence[Span] = ()) -> Op:
    """The operation that notes that a memory was said again."""
    return {"op": "reinforce", "id": memory_id, "stated_at": _iso(stated_at), "sources": spans(sources)}


def change(memory_id: str, **fields: Any) -> Op:
    """The operation that changes fields of CHANGEABLE."""
    values = {name: _iso(value) if isinstance(value, datetime) else value for name, value in fields.items()}
    return {"op": "change", "id": memory_id, **values}


def data(
    ops: Sequence[Op], *, by: str, batch: Batch | None = None, why: str = "", undoes: str = "",
    proposals: Sequence[Sequence[str]] = (),
) -> dict[str, Any]:  # fmt: skip
    """The data of an event. by: owner, agent, rules, miner, consolidation or import. why: never words of a memory,
    which could not be forgotten there. undoes: the event that it sets back. proposals: (id, kind) of what it applies.
    """
    found: dict[str, Any] = {"by": by, "ops": list(ops)}
    if batch is not None:
        found["batch"] = list(batch)
    more = {"why": why, "undoes": undoes, "proposals": list(map(list, proposals))}
    return found | {name: value for name, value in more.items() if value}


def made(op: Mapping[str, Any], *, recorded_at: datetime, order: str) -> Memory:
    """The memory that a `create` makes."""
    return Memory(
        memory_id=op["id"], text=op["text"], kind=op["kind"], path=op["path"], agent=op["agent"],
        project=op.get("project"), stated_at=_at(op["stated_at"]) or recorded_at, recorded_at=recorded_at,
        trust=op["trust"], how=op["how"], sources=_spans(op.get("sources", ())),
        made_from=tuple(op.get("made_from", ())), entities=tuple(op.get("entities", ())),
        runtime=op.get("runtime", ""), conversation=op.get("conversation", ""), valid_from=_at(op.get("valid_from")),
        valid_until=_at(op.get("valid_until")), pinned=bool(op.get("pinned")), confidence=op.get("confidence", 1.0),
        order=order,
    )  # fmt: skip


def changed_fields(op: Mapping[str, Any]) -> dict[str, Any]:
    """What a `change` sets, as the values of a memory's fields."""
    found = {name: op[name] for name in CHANGEABLE if name in op}
    found |= {name: _at(found[name]) for name in _TIMES if name in found}
    return found | ({"entities": tuple(found["entities"])} if "entities" in found else {})


def used(injection: str, cues: Sequence[str], *, at: datetime, **who: str) -> dict[str, Any]:
    """The data of a `used` event: what of an injection was used, if anything. injection: its nonce, judged once."""
    return {**who, "nonce": injection, "used_at": _iso(at), "cues": list(cues), "by": "answer"}


def used_at(noted: Mapping[str, Any]) -> datetime | None:
    """When what a `used` event says happened, where it says so."""
    return _at(noted.get("used_at"))


def stated_at(op: Mapping[str, Any]) -> datetime | None:
    """When what an operation notes was said."""
    return _at(op.get("stated_at"))


def sources(op: Mapping[str, Any]) -> tuple[Span, ...]:
    """The turns behind an operation."""
    return _spans(op.get("sources", ()))


def spans(found: Sequence[Span]) -> list[list[Any]]:
    """Spans as JSON has them."""
    return [list(span) for span in found]


def _spans(raw: Sequence[Sequence[Any]]) -> tuple[Span, ...]:
    return tuple(Span(str(run), int(low), int(high)) for run, low, high in raw)


def _iso(at: datetime | None) -> str | None:
    return at.isoformat() if at is not None else None


def _at(raw: str | None) -> datetime | None:
    return datetime.fromisoformat(raw) if raw else None
