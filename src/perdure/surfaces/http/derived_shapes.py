"""Shapes of answers that are derived from the project's own types: run, memory, card, floor and context.

Their fields are read from those types, so that the OpenAPI document always says what is sent.
"""

from __future__ import annotations

import typing
from typing import Any

from msgspec import UNSET, Struct, UnsetType, defstruct

from perdure.floor.state import FloorCard
from perdure.surfaces.http.shapes import AnswerEnvelope, ListEnvelope, NextAction
from perdure.types import Memory, RunView


def _define_list_item(noun: type, name: str, doc: str) -> type[Struct]:
    """Define the shape of a type inside a list: its fields and its links."""
    fields: list[tuple[str, Any]] = [*typing.get_type_hints(noun).items(), ("links", dict[str, str])]
    return defstruct(name, fields, frozen=True, rename={"links": "_links"}, namespace={"__doc__": doc})


RunJson = _define_list_item(RunView, "RunJson", "A run with everything that is derived from it.")
MemoryJson = _define_list_item(Memory, "MemoryJson", "A memory.")
CardJson = _define_list_item(FloorCard, "CardJson", "A rolling context card.")


def _define_item(item: type[Struct], name: str, doc: str, **extra_fields: Any) -> type[Struct]:
    """Define the shape of one item that is returned alone."""
    fields = [*extra_fields.items(), ("next_actions", list[NextAction])]
    return defstruct(name, fields, bases=(item,), frozen=True, kw_only=True, namespace={"__doc__": doc})


def _define_list(item: Any, name: str, doc: str) -> type[Struct]:
    """Define the shape of a page of a list."""
    return defstruct(name, [("items", list[item])], bases=(ListEnvelope,), frozen=True, namespace={"__doc__": doc})


class SourceTurnJson(Struct, frozen=True, rename={"links": "_links"}):
    """A source turn of a memory."""

    run_id: str
    from_offset: int
    to_offset: int
    turn_id: str | None
    text: str | None
    links: dict[str, str]


class RunBranchJson(Struct, frozen=True):
    """A run in its tree: with its children, or, in a flat list, with its depth."""

    run: RunJson  # type: ignore[valid-type]
    children: list[RunBranchJson] | UnsetType = UNSET
    depth: int | UnsetType = UNSET


RunDetailJson = _define_item(RunJson, "RunDetailJson", "One run.")
RunListJson = _define_list(RunJson, "RunListJson", "A list of runs.")
RunForestJson = _define_list(RunBranchJson, "RunForestJson", "The newest runs as trees.")
MemoryDetailJson = _define_item(
    MemoryJson, "MemoryDetailJson", "One memory, with its history and its source turns.",
    history=list[MemoryJson], turns=list[SourceTurnJson],  # type: ignore[valid-type]
)  # fmt: skip
MemoryListJson = _define_list(MemoryJson, "MemoryListJson", "A list of memories.")
CardDetailJson = _define_item(CardJson, "CardDetailJson", "One card.")
CardListJson = _define_list(CardJson, "CardListJson", "A list of cards.")


class FloorLayerJson(Struct, frozen=True):
    """A layer of the floor."""

    name: str
    source: str
    text: str
    n_tokens: int
    n_rows: int
    n_left: int
    alerts: list[str]


class FloorJson(AnswerEnvelope, frozen=True):
    """The floor that a session gets if it begins now."""

    layers: list[FloorLayerJson]
    pages: list[dict[str, Any]]


class PageVersionJson(Struct, frozen=True):
    """One version of a page."""

    event: str
    at: str  # hybrid time
    by: str
    why: str
    unseen: bool


class FloorPageJson(AnswerEnvelope, frozen=True):
    """The current text of a floor page, with its versions: who changed it and when."""

    name: str
    text: str
    versions: list[PageVersionJson]


class ContextJson(AnswerEnvelope, frozen=True):
    """The text that a model is to read for a message, in its provider's format, with the cost of each part."""

    format: str
    messages: list[dict[str, Any]]
    parts: list[dict[str, Any]]
    n_tokens: int
