"""Shapes of answers that are made of the project's own nouns: their fields, and where each thing is read.

The fields are read off the nouns, so that a document that is made of these shapes says what is sent.
"""

from __future__ import annotations

import typing
from typing import Any

from msgspec import UNSET, Struct, UnsetType, defstruct

from perdure.floor.state import Card
from perdure.surfaces.http.shapes import Action, Envelope, Listed
from perdure.types import Memory, RunView


def _linked(noun: type, name: str, says: str) -> type[Struct]:
    """The shape of a noun inside of a list: its fields, and its links."""
    fields: list[tuple[str, Any]] = [*typing.get_type_hints(noun).items(), ("links", dict[str, str])]
    return defstruct(name, fields, frozen=True, rename={"links": "_links"}, namespace={"__doc__": says})


RunSaid = _linked(RunView, "RunSaid", "A run with everything that is derived of it.")
MemorySaid = _linked(Memory, "MemorySaid", "A memory.")
CardSaid = _linked(Card, "CardSaid", "A rolling context card.")


def _whole(item: type[Struct], name: str, says: str, **more: Any) -> type[Struct]:
    """The shape of one thing that is answered by itself."""
    fields = [*more.items(), ("next_actions", list[Action])]
    return defstruct(name, fields, bases=(item,), frozen=True, kw_only=True, namespace={"__doc__": says})


def _page(item: Any, name: str, says: str) -> type[Struct]:
    """The shape of a page of a list."""
    return defstruct(name, [("items", list[item])], bases=(Listed,), frozen=True, namespace={"__doc__": says})


class Turned(Struct, frozen=True, rename={"links": "_links"}):
    """A turn behind a memory."""

    run_id: str
    from_offset: int
    to_offset: int
    turn_id: str | None
    text: str | None
    links: dict[str, str]


class Branch(Struct, frozen=True):
    """A run in its tree: with what is below it, or, in a flat list, with its depth."""

    run: RunSaid  # type: ignore[valid-type]
    children: list[Branch] | UnsetType = UNSET
    depth: int | UnsetType = UNSET


OneRun = _whole(RunSaid, "OneRun", "One run.")
Runs = _page(RunSaid, "Runs", "Runs.")
Forest = _page(Branch, "ForestSaid", "The newest runs as trees.")
OneMemory = _whole(
    MemorySaid, "OneMemory", "One memory, what was said before it, and the turns behind it.",
    history=list[MemorySaid], turns=list[Turned],  # type: ignore[valid-type]
)  # fmt: skip
Memories = _page(MemorySaid, "Memories", "Memories.")
OneCard = _whole(CardSaid, "OneCard", "One card.")
Cards = _page(CardSaid, "Cards", "Cards.")


class LayerSaid(Struct, frozen=True):
    """A layer of the floor."""

    name: str
    source: str
    text: str
    n_tokens: int
    n_rows: int
    n_left: int
    alerts: list[str]


class FloorSaid(Envelope, frozen=True):
    """What a session that begins now has before it."""

    layers: list[LayerSaid]
    pages: list[dict[str, Any]]


class VersionSaid(Struct, frozen=True):
    """One state of a page."""

    event: str
    at: str  # hybrid time
    by: str
    why: str
    unseen: bool


class PageSaid(Envelope, frozen=True):
    """A page of the floor as it stands, and who changed it when."""

    name: str
    text: str
    versions: list[VersionSaid]


class ContextSaid(Envelope, frozen=True):
    """What a model is to read for a message, in the format of its provider, and what each part costs."""

    format: str
    messages: list[dict[str, Any]]
    parts: list[dict[str, Any]]
    n_tokens: int
