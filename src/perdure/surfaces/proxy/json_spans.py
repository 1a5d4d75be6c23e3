"""Find where values stand in a JSON text, so that a text can be added at one place and all other bytes stay. Pure.

Every function raises ValueError for a text that is no such JSON value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

_SPACE = re.compile(r"[ \t\n\r]*")
_scan_value: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


class PlacedValue(NamedTuple):
    """A value, and where its text begins and ends."""

    value: Any
    start: int  # characters from the start of the text
    end: int


def read_value(text: str, start: int) -> PlacedValue:
    """Return the value at `start`, behind white space.

    >>> read_value(' [1]', 0)
    PlacedValue(value=[1], start=1, end=4)
    """
    start = _skip_space(text, start)
    try:
        value, end = _scan_value(text, start)
    except (StopIteration, RecursionError) as error:
        raise ValueError(f"no JSON value at {start}") from error
    return PlacedValue(value, start, end)


def read_fields(text: str, start: int = 0, *, placed_lists: Collection[str] = ()) -> dict[str, PlacedValue]:
    """Return the fields of the object at `start`. A name that occurs twice is an error: readers differ about it.

    placed_lists: names of fields whose items are wanted with their places.

    >>> read_fields('{"a": 1, "b": [2]}', placed_lists=("b",))["b"].value
    [PlacedValue(value=2, start=15, end=16)]
    """
    placed_values: dict[str, PlacedValue] = {}
    offset, is_open = _open_brackets(text, start, "{}")
    while is_open:
        name = read_value(text, offset)
        if not isinstance(name.value, str) or name.value in placed_values:
            raise ValueError(f"no new name at {offset}")
        value_start = _skip_space(text, _expect(text, _skip_space(text, name.end), ":"))
        is_list = name.value in placed_lists and text.startswith("[", value_start)
        field = read_items(text, value_start) if is_list else read_value(text, value_start)
        placed_values[name.value] = field
        offset, is_open = _go_on(text, field.end, "}")
    return placed_values


def read_items(text: str, start: int) -> PlacedValue:
    """Return the list at `start`; its value is the list of its placed items."""
    items: list[PlacedValue] = []
    start = _skip_space(text, start)
    offset, is_open = _open_brackets(text, start, "[]")
    while is_open:
        items.append(read_value(text, offset))
        offset, is_open = _go_on(text, items[-1].end, "]")
    return PlacedValue(items, start, offset)


def _open_brackets(text: str, start: int, brackets: str) -> tuple[int, bool]:
    """Return (where the first item begins, True), or (the end, False) if there is none."""
    offset = _skip_space(text, _expect(text, _skip_space(text, start), brackets[0]))
    return (offset + 1, False) if text.startswith(brackets[1], offset) else (offset, True)


def _go_on(text: str, end: int, bracket: str) -> tuple[int, bool]:
    """Return (where the next item begins, True), or (the end, False) after the last."""
    offset = _skip_space(text, end)
    return (offset + 1, False) if text.startswith(bracket, offset) else (_expect(text, offset, ","), True)


def _expect(text: str, offset: int, character: str) -> int:
    if not text.startswith(character, offset):
        raise ValueError(f"no {character!r} at {offset}")
    return offset + 1


def _skip_space(text: str, start: int) -> int:
    match = _SPACE.match(text, start)
    assert match is not None
    return match.end()
