"""The view of a captured run for a grantee: its lines, turns and metadata, with every secret masked. Pure.

The owner's bytes do not change, and only the owner receives them.
"""

from __future__ import annotations

import json
import re
from typing import Any

from msgspec.structs import replace

from perdure.access.redact import MAX_NAME_CHARS, classify_name, mask
from perdure.regex import lazy_re
from perdure.types import ParsedLines, Part, Run, Turn

WITHHELD_LINE = b'{"masked": "a line that holds a secret which cannot be taken out of it"}'
_MAX_DEPTH = 8  # rounds of escaping that a text may have
_ESCAPE = lazy_re(r"\\(?:u([0-9a-fA-F]{4})|(u|[\"\\/]))")
_MASK = lazy_re(r"\[secret:[a-z-]+\]")


def mask_lines(raw: bytes) -> bytes:
    r"""Mask every secret in captured lines; each line gives one line.

    >>> mask_lines(b'{"to": "postgres://ada:tr0ub4dor@host/x"}\n')
    b'{"to":"postgres://ada:[secret:password]@host/x"}\n'
    """
    return b"\n".join(map(_mask_line, raw.split(b"\n")))


def _mask_line(raw: bytes) -> bytes:
    text = raw.decode("utf-8", "replace").removeprefix("\ufeff")
    try:
        masked = _mask_value(_read_json(text))  # also halves of characters, which msgspec refuses
        return _mask_written_line(
            json.dumps(masked, ensure_ascii=not _has_whole_characters(text), separators=(",", ":"))
        )
    except RecursionError:
        return WITHHELD_LINE
    except ValueError:
        return _mask_unreadable(text)


def _read_json(text: str) -> Any:
    """Decode a JSON line; numbers become strings if one has more digits than Python reads."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return json.loads(text, parse_int=str)


def _mask_unreadable(text: str) -> bytes:
    """Mask a line that is no JSON; withhold it if its escapes hide more secrets."""
    masked = unescaped = mask(text)
    for _ in range(_MAX_DEPTH):
        if "\\u" not in unescaped:
            return masked.encode() if mask(unescaped) is unescaped else WITHHELD_LINE
        unescaped = _ESCAPE.sub(_unescape, unescaped)
    return WITHHELD_LINE


def _unescape(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16)) if escape[1] else escape[2]


def _has_whole_characters(text: str) -> bool:
    """Return True if a line names no half of a character (a surrogate), which could not be written unescaped."""
    return "\\ud" not in text.lower()


def _mask_value(value: Any, kind: str | None = None) -> Any:
    """Mask every string of a JSON value, also field names. kind: withhold everything below a name of that kind."""
    if isinstance(value, str):
        return _mask_string(value, kind)
    if isinstance(value, list):
        return [_mask_value(item, kind or _find_kind_by_previous(value, index)) for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {mask(name): _mask_value(item, kind or _find_kind_by_field(value, name)) for name, item in value.items()}
    if kind == "password" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"[secret:{kind}]"
    return value


def _mask_string(text: str, kind: str | None = None) -> str:
    if kind:
        return text if not text or _MASK.fullmatch(text) else f"[secret:{kind}]"
    return mask(_mask_nested_json(text) if text.startswith(("{", "[")) else text)


def _mask_nested_json(text: str) -> str:
    """Mask JSON inside a string as JSON; return the text itself if it is no JSON or holds no secret."""
    try:
        nested = json.loads(text)
        masked = _mask_value(nested)
        return text if masked == nested else json.dumps(masked, ensure_ascii=False, separators=(",", ":"))
    except ValueError:
        return text
    except RecursionError:
        return WITHHELD_LINE.decode()


def _find_kind_by_field(fields: dict[str, Any], name: str) -> str | None:
    """Return the kind of secret in a field, by its name or by a sibling field: `{"name": "TOKEN", "value": …}`."""
    sibling_name = (fields.get("name") or fields.get("key")) if name == "value" else None
    return _classify_short_name(sibling_name) or _classify_short_name(name)


def _find_kind_by_previous(items: list[Any], index: int) -> str | None:
    """Return the kind of secret of an item, by the item before it: `"--password", …`, `["x-api-key", …]`."""
    previous = items[index - 1] if index else None
    if not isinstance(previous, str):
        return None
    is_pair = len(items) == 2 and isinstance(items[1], str) and any(map(str.isdigit, items[1]))
    return _classify_short_name(previous) if is_pair or previous.startswith("-") else None


def _classify_short_name(name: Any) -> str | None:
    return classify_name(name) if isinstance(name, str) and len(name) <= MAX_NAME_CHARS else None


def _mask_written_line(line: str) -> bytes:
    """Mask a line once more in its written form: a field's name may say that its value is a secret."""
    masked = mask(line)
    try:
        json.loads(masked)
    except ValueError:  # the secret spans the quotes or brackets of its value
        return WITHHELD_LINE
    return masked.encode()


def mask_run(run: Run) -> Run:
    """Mask the metadata of a run: its tags, its native paths and its conversation."""
    return replace(
        run,
        tags=tuple(map(mask, run.tags)),
        readable_by=(),
        conversation=mask(run.conversation),
        project=_mask_optional(run.project),
        path=_mask_optional(run.path),
        cwd=_mask_optional(run.cwd),
        parent_session=_mask_optional(run.parent_session),
        parent_run_id=None,
        sha256="",
        stored_sha256=None,
    )


def mask_parsed_lines(parsed: ParsedLines) -> ParsedLines:
    """Mask the title and the turns of a run."""
    return replace(parsed, title=mask(parsed.title), turns=tuple(map(_mask_turn, parsed.turns)))


def _mask_turn(turn: Turn) -> Turn:
    return turn._replace(
        parts=tuple(map(_mask_part, turn.parts)),
        files=tuple(map(mask, turn.files)),
        skills=tuple(map(mask, turn.skills)),
    )


def _mask_part(part: Part) -> Part:
    return part._replace(text=_mask_string(part.text), name=mask(part.name))


def _mask_optional(text: str | None) -> str | None:
    return None if text is None else mask(text)
