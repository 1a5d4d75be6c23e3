"""Make JSON values safe to use: objects as typed structs, times, ids, strings and token counts. Pure.

Transcripts come from strangers, so a value of the wrong type or size gives None, "" or 0, never an
exception. A line is decoded once, strictly, so its reader need not check types again. If a value has
another type than its field, the object is read once more: that value counts as absent and the others
stay.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import MAXYEAR, MINYEAR, UTC, datetime
from typing import Annotated, Any, TypeVar, get_args

import msgspec

from perdure.capture.transcripts import MAX_ID_CHARS, clean_id, hash_to_id

__all__ = ["MAX_ID_CHARS", "clean_id", "hash_to_id", "parse_instant", "sum_token_counts", "text_or_empty", "to_utc"]

MAX_TOKENS = 10**9  # no client reports more for one response
_MIN_EPOCH_MS = 100_000_000_000  # 1973 in milliseconds; smaller numbers are taken for seconds (until the year 5138)


# single values ------------------------------------------------------------------------------------------------


def parse_instant(value: Any) -> datetime | None:
    """Return the UTC time of an ISO 8601 string or of epoch seconds or milliseconds; None if the value is neither.

    A string without an offset is taken for UTC.

    >>> parse_instant(1763681581544)
    datetime.datetime(2025, 11, 20, 23, 33, 1, 544000, tzinfo=datetime.timezone.utc)
    """
    try:
        if isinstance(value, str):
            return to_utc(datetime.fromisoformat(value))
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            return to_utc(datetime.fromtimestamp(value / 1000 if value >= _MIN_EPOCH_MS else value, UTC))
    except (ValueError, OverflowError, OSError):
        return None
    return None


def to_utc(moment: datetime | None) -> datetime | None:
    """Return a time in UTC; without an offset it is taken for UTC. None in the calendar's first and last year.

    There a time zone would leave the calendar: such a clock is wrong, and no reader's time zone can show it.
    """
    if moment is None or not MINYEAR < moment.year < MAXYEAR:
        return None
    if moment.tzinfo is UTC:
        return moment
    moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    return moment if MINYEAR < moment.year < MAXYEAR else None


def text_or_empty(value: Any) -> str:
    """Return the value if it is a string, else ""."""
    return value if isinstance(value, str) else ""


def sum_token_counts(*values: Any) -> int:
    """Return the sum of token counts; a value that is no whole number from 0 to a billion counts as 0."""
    n_tokens = 0
    for value in values:
        if type(value) is int and 0 <= value <= MAX_TOKENS:
            n_tokens += value
    return n_tokens


# typed objects ------------------------------------------------------------------------------------------------

StructType = TypeVar("StructType", bound=msgspec.Struct)

Tokens = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]  # a plausible count


def make_reader(shape: type[StructType]) -> Callable[[bytes], StructType]:
    """Return a function that reads one line into a struct of this shape; it raises ValueError for no JSON object."""
    decode_strictly = msgspec.json.Decoder(shape).decode

    def read(raw: bytes) -> StructType:
        try:
            return decode_strictly(raw)
        except msgspec.ValidationError:
            return fit_object(msgspec.json.decode(raw), shape)

    return read


def fit_object(value: Any, shape: type[StructType]) -> StructType:
    """Return an object as a struct, without values of another type than their field; ValidationError for no object.

    Objects in a field, alone or in a list, are fitted in the same way. A list with any item that is no object
    is left out as a whole: half of a message would pass for the whole.
    """
    if not isinstance(value, dict):
        raise msgspec.ValidationError("not an object")
    field_values = {}
    for field in msgspec.structs.fields(shape):
        if field.encode_name in value:
            try:
                field_values[field.name] = _fit_value(value[field.encode_name], field.type)
            except msgspec.ValidationError:
                pass
    return shape(**field_values)


def _fit_value(value: Any, field_type: Any) -> Any:
    """Return one value as the type of its field. Raises ValidationError when it cannot be converted."""
    allowed_types = get_args(field_type) or (field_type,)
    if datetime in allowed_types:
        return parse_instant(value)
    struct_type = next((c for c in allowed_types if isinstance(c, type) and issubclass(c, msgspec.Struct)), None)
    if struct_type and isinstance(value, dict):
        return fit_object(value, struct_type)
    item_type = next((get_args(c)[0] for c in allowed_types if getattr(c, "__origin__", None) is list), None)
    if item_type and isinstance(value, list):
        return [_fit_value(item, item_type) for item in value]
    return msgspec.convert(value, field_type)
