"""JSON objects -> structs that name what is read of them and of which type it is. Pure.

A line is decoded once, strictly, so that what reads it need not ask again what type anything has. Where a value
has another type than its field, the object is read once more: that value counts as absent and the rest stands.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, TypeVar, get_args

import msgspec

from perdure.formats.stamps import MAX_TOKENS, instant

T = TypeVar("T", bound=msgspec.Struct)

Tokens = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]  # a plausible count


def reader(shape: type[T]) -> Callable[[bytes], T]:
    """Return what reads one line into a struct of this shape; it raises ValueError for what is no JSON object."""
    strict = msgspec.json.Decoder(shape).decode

    def read(raw: bytes) -> T:
        try:
            return strict(raw)
        except msgspec.ValidationError:
            return fitted(msgspec.json.decode(raw), shape)

    return read


def fitted(value: Any, shape: type[T]) -> T:
    """Return an object as a struct, less the values that are not of their field's type; ValidationError for no object.

    Objects in a field, alone or in a list, are fitted in the same way. A list in which anything is no object is left
    out as a whole: half of a message would pass for the whole.
    """
    if not isinstance(value, dict):
        raise msgspec.ValidationError("not an object")
    found = {}
    for field in msgspec.structs.fields(shape):
        if field.encode_name in value:
            try:
                found[field.name] = _fitted(value[field.encode_name], field.type)
            except msgspec.ValidationError:
                pass
    return shape(**found)


def _fitted(value: Any, wanted: Any) -> Any:
    """Return one value as the type of its field; ValidationError when it cannot be."""
    choices = get_args(wanted) or (wanted,)
    if datetime in choices:
        return instant(value)
    inner = next((c for c in choices if isinstance(c, type) and issubclass(c, msgspec.Struct)), None)
    if inner and isinstance(value, dict):
        return fitted(value, inner)
    items = next((get_args(c)[0] for c in choices if getattr(c, "__origin__", None) is list), None)
    if items and isinstance(value, list):
        return [_fitted(item, items) for item in value]
    return msgspec.convert(value, wanted)
