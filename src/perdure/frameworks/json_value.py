"""JSON values of programs: what is read back equals what was written, or it is refused before anything is written."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from perdure.errors import UsageError

MAX_VALUE_BYTES = 64 * 1024 * 1024  # of one value as JSON; SQLite itself takes 1 GB


def to_json(value: Any, name: str) -> bytes:
    """Return a value as JSON. name: what an error calls it. A tuple becomes a list. Raises UsageError.

    >>> to_json({"a": (1, "é")}, "the value")
    b'{"a": [1, "\\xc3\\xa9"]}'
    """
    try:
        if fault := _find_fault(value, name):
            raise UsageError(fault)
        raw = json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise UsageError(f"{name} is nested too deeply, or contains itself") from error
    except UnicodeEncodeError as error:
        raise UsageError(f"{name} has text that is not UTF-8") from error
    if len(raw) > MAX_VALUE_BYTES:
        raise UsageError(f"{name} has {len(raw):,} bytes; the maximum is {MAX_VALUE_BYTES:,}: store a reference to it")
    return raw


def _find_fault(value: Any, place: str) -> str:
    """Return what in a value is not JSON; "" if all of it is."""
    if value is None or isinstance(value, str | bool | int):
        return ""
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"{place} is {value}, which JSON does not know"
    if isinstance(value, list | tuple):
        return next(filter(None, (_find_fault(part, f"{place}[{n}]") for n, part in enumerate(value))), "")
    if isinstance(value, Mapping):
        if strange := next((key for key in value if not isinstance(key, str)), None):
            return f"{place} has the key {strange!r}; the keys of JSON are strings"
        return next(filter(None, (_find_fault(part, f"{place}.{key}") for key, part in value.items())), "")
    return f"{place} is of the type {type(value).__name__}, which JSON does not know: convert it first"


def list_texts(value: Any, name: str = "") -> list[str]:
    """Return what a person would read in a value, a line for each field.

    >>> list_texts({"text": "I like tea.", "meta": {"n": 2}})
    ['text: I like tea.', 'meta.n: 2']
    """
    if isinstance(value, Mapping):
        return [line for key, part in value.items() for line in list_texts(part, f"{name}.{key}" if name else key)]
    if isinstance(value, list | tuple):
        return [line for part in value for line in list_texts(part, name)]
    if value is None or value == "":
        return []
    return [f"{name}: {value}" if name else str(value)]


def fits(value: Any, wanted: Any) -> bool:
    """Return True if a value is as a filter wants it: equal, a superset of a mapping, or by `$gt` and its kind.

    >>> fits({"a": {"n": 5, "m": 1}}, {"a": {"n": {"$gte": 5}}}), fits("x", {"$ne": "x"})
    (True, False)
    """
    if isinstance(wanted, Mapping):
        if any(key.startswith("$") for key in wanted):
            return all(_compare(value, sign, operand) for sign, operand in wanted.items())
        return isinstance(value, Mapping) and all(fits(value.get(key), part) for key, part in wanted.items())
    if isinstance(wanted, list | tuple):
        is_list = isinstance(value, list | tuple) and len(value) == len(wanted)
        return is_list and all(fits(part, wish) for part, wish in zip(value, wanted, strict=True))
    return bool(value == wanted)


def _compare(value: Any, sign: str, operand: Any) -> bool:
    if sign in ("$eq", "$ne"):
        return bool(value == operand) is (sign == "$eq")
    if sign not in _COMPARISONS:
        raise UsageError(f"the filter {sign!r} is unknown (known: $eq, $ne, {', '.join(_COMPARISONS)})")
    try:
        return _COMPARISONS[sign](float(value), float(operand))
    except (TypeError, ValueError):  # no number: neither more nor less
        return False


_COMPARISONS = {
    "$gt": float.__gt__,
    "$gte": float.__ge__,
    "$lt": float.__lt__,
    "$lte": float.__le__,
}
