"""Whether a value has the form that a JSON schema asks for. Pure.

The part of JSON Schema that is written here, and no more: a word that is not known is an error of whoever wrote the
schema, because a rule that is silently left out is a rule that does not hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from perdure.errors import UsageError

Schema = Mapping[str, Any]

_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int or (type(value) is float and value.is_integer()),
    "number": lambda value: type(value) in (int, float),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}
_LIMITS: Mapping[str, tuple[type | tuple[type, ...], Callable[[Any, Any], bool], str]] = {
    "minLength": (str, lambda value, limit: len(value) >= limit, "shorter than"),
    "maxLength": (str, lambda value, limit: len(value) <= limit, "longer than"),
    "minItems": (list, lambda value, limit: len(value) >= limit, "fewer items than"),
    "maxItems": (list, lambda value, limit: len(value) <= limit, "more items than"),
    "minimum": ((int, float), lambda value, limit: value >= limit, "less than"),
    "maximum": ((int, float), lambda value, limit: value <= limit, "more than"),
    "pattern": (str, lambda value, limit: re.search(limit, value) is not None, "not of the form"),
}
_SAID = ("title", "description", "default", "examples", "$schema")  # words about a value, not rules for it
_RULES = {"type", "enum", "const", "properties", "required", "additionalProperties", "items", "anyOf", *_LIMITS}


def violation(value: Any, schema: Schema, *, at: str = "answer") -> str:
    """Return where and how a value breaks a schema, or "" when it keeps it. Raises UsageError for an unknown rule.

    >>> violation({"port": "80"}, {"type": "object", "properties": {"port": {"type": "integer"}}})
    'answer.port is not of type integer'
    """
    unknown = sorted(set(schema) - _RULES - set(_SAID))
    if unknown:
        raise UsageError(f"the schema of {at} has {unknown[0]!r} (known: {', '.join(sorted(_RULES))})")
    return (
        _of_type(value, schema, at)
        or _of_choice(value, schema, at)
        or _in_limits(value, schema, at)
        or (_fields(value, schema, at) if isinstance(value, dict) else "")
        or (_items(value, schema, at) if isinstance(value, list) else "")
    )


def _of_type(value: Any, schema: Schema, at: str) -> str:
    wanted = schema.get("type")
    names = [wanted] if isinstance(wanted, str) else wanted or []
    return (
        "" if not names or any(_TYPES[name](value) for name in names) else f"{at} is not of type {' or '.join(names)}"
    )


def _of_choice(value: Any, schema: Schema, at: str) -> str:
    if "const" in schema and not _same(value, schema["const"]):
        return f"{at} is not {schema['const']!r}"
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        return f"{at} is none of {', '.join(map(repr, schema['enum']))}"
    if "anyOf" not in schema:
        return ""
    broken = [violation(value, one, at=at) for one in schema["anyOf"]]
    return broken[0] if all(broken) else ""


def _same(value: Any, wanted: Any) -> bool:
    """Whether two values are equal, where true is no 1."""
    return bool(value == wanted) and isinstance(value, bool) == isinstance(wanted, bool)


def _in_limits(value: Any, schema: Schema, at: str) -> str:
    for name, (kind, keeps, said) in _LIMITS.items():
        limited = isinstance(value, kind) and not isinstance(value, bool)
        if name in schema and limited and not keeps(value, schema[name]):
            return f"{at} is {said} {schema[name]}"
    return ""


def _fields(value: dict[str, Any], schema: Schema, at: str) -> str:
    properties = schema.get("properties", {})
    missing = [name for name in schema.get("required", ()) if name not in value]
    if missing:
        return f"{at}.{missing[0]} is missing"
    others = schema.get("additionalProperties", True)
    for name, item in value.items():
        if name not in properties and others is False:
            return f"{at}.{name} was not asked for"
        rule = properties.get(name, others)
        if isinstance(rule, dict) and (broken := violation(item, rule, at=f"{at}.{name}")):
            return broken
    return ""


def _items(value: list[Any], schema: Schema, at: str) -> str:
    rule = schema.get("items")
    found = (violation(item, rule, at=f"{at}[{n}]") for n, item in enumerate(value)) if isinstance(rule, dict) else ()
    return next(filter(None, found), "")


def is_closed(schema: Schema) -> bool:
    """Return whether every object in a schema requires exactly the fields it lists, as "strict" decoders ask for."""
    if "properties" in schema and (
        schema.get("additionalProperties") is not False or set(schema.get("required", ())) != set(schema["properties"])
    ):
        return False
    below = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    return all(map(is_closed, [*below, schema["items"]] if "items" in schema else below))
