"""The journal's events about the floor: their shapes, written and read in one place. Pure.

One event type holds all: what a page says now (its full new text), a card, an edit that waits for approval and what
became of it, a text that its owner allows although the scanner suspects it, and the files of the memory tool.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from perdure.identity import memory_id
from perdure.types import Span

TYPE = "floor"
OWNERS = ("owner", "hand")  # who writes: they by a command or in the file itself; else agent, rules or model


class Piece(NamedTuple):
    """A line that was added to a page, and what stands behind it: so it can be found again when that is forgotten."""

    line: str
    memory: str = ""  # its id, where the line says what a memory says
    sources: tuple[Span, ...] = ()  # the turns


def sha(text: str) -> str:
    """The name of a text: 32 hex digits of its sha256.

    >>> sha("a")
    'ca978112ca1bbdcafac231b39a23dc4d'
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def written(
    agent: str, name: str, text: str, *, by: str, was: str, why: str = "", pieces: Sequence[Piece] = (),
    sources: Sequence[Span] = (), cursor: Any = None,
) -> dict[str, Any]:  # fmt: skip
    """A page got a new text; "" says that its owner removed it.

    was: name of the text that the writer had read. pieces: the lines that were added, where it is only that. sources:
    the turns behind the whole text. cursor: how far a job had read when it wrote this.
    """
    found: dict[str, Any] = {"op": "write", "agent": agent, "name": name, "text": text, "by": by, "was": was}
    named = [[one.line, one.memory, spans(one.sources)] for one in pieces]
    more = {"why": why, "pieces": named, "sources": spans(sources), "cursor": cursor}
    return found | {key: value for key, value in more.items() if value}


def approved(agent: str, identifier: str, name: str, text: str, *, was: str, why: str) -> dict[str, Any]:
    """A page got the text that was proposed, and its owner approved that: one event, so no crash comes between."""
    return written(agent, name, text, by="owner", was=was, why=why) | {"approves": identifier}


def pieces_of(data: Mapping[str, Any]) -> list[Piece]:
    """The lines that an event says it added."""
    return [Piece(line, memory, _spans(raw)) for line, memory, raw in data.get("pieces", ())]


def sources(data: Mapping[str, Any]) -> tuple[Span, ...]:
    """The turns behind what an event holds."""
    return _spans(data.get("sources", ()))


def spans(found: Sequence[Span]) -> list[list[Any]]:
    """Spans as JSON has them."""
    return [list(span) for span in found]


def _spans(raw: Sequence[Sequence[Any]]) -> tuple[Span, ...]:
    return tuple(Span(str(run), int(low), int(high)) for run, low, high in raw)


def card(
    agent: str, identifier: str, text: str, *, by: str, project: str | None = None, sources: Sequence[Span] = ()
) -> dict[str, Any]:
    """A card got a new text; "" takes it away."""
    found: dict[str, Any] = {"op": "card", "agent": agent, "id": identifier, "text": text, "by": by}
    more = {"project": project, "sources": spans(sources)}
    return found | {key: value for key, value in more.items() if value}


def proposed(agent: str, identifier: str, name: str, text: str, *, by: str, was: str, why: str) -> dict[str, Any]:
    """Somebody wants a page to say something else, and asks its owner."""
    return {
        "op": "propose", "agent": agent, "id": identifier, "name": name, "text": text, "by": by, "was": was, "why": why,
    }  # fmt: skip


def decided(agent: str, identifier: str, *, approved: bool) -> dict[str, Any]:
    """What the owner said to a proposal."""
    return {"op": "decide", "agent": agent, "id": identifier, "approved": approved}


def allowed(agent: str, digest: str, *, where: str) -> dict[str, Any]:
    """The owner lets a suspected text through. digest: its name by the scanner."""
    return {"op": "allow", "agent": agent, "digest": digest, "where": where}


def filed(agent: str, path: str, text: str | None, *, was: str = "") -> dict[str, Any]:
    """A file of the memory tool got a new text; None takes it away, or a folder with all that is in it.

    path: relative to the tool's root, never a place on a disk. was: key of the event that made the text before this.
    """
    found: dict[str, Any] = {"op": "file", "agent": agent, "path": path, "text": text}
    return found | ({"was": was} if was else {})


def moved(agent: str, path: str, to: str, *, was: str = "") -> dict[str, Any]:
    """A file of the memory tool, or a folder with all that is in it, got another path."""
    found: dict[str, Any] = {"op": "file", "agent": agent, "path": path, "to": to}
    return found | ({"was": was} if was else {})


def unfiled(agent: str, *, was: str = "") -> dict[str, Any]:
    """What is left of an event about a file that was forgotten."""
    found: dict[str, Any] = {"op": "file", "agent": agent, "forgotten": True}
    return found | ({"was": was} if was else {})


def memory_of(event: str, at: str) -> str:
    """The id of the memory of what a file said after an event: the same in every home.

    >>> memory_of("0a1b2c3d", "2026-03-01T09:30:00.000Z#0000")
    'mem-20260301-093000-0a1b2c'
    """
    return memory_id(datetime.fromisoformat(at.partition("#")[0]), bytes.fromhex(event[:6]))
