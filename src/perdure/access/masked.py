"""What a grantee sees of a captured run: its lines, its turns and what capture knew, every secret masked. Pure.

The owner's bytes stay as they are and go to the owner alone.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from perdure.access.redact import MAX_NAME_CHARS, kind_of_name, mask
from perdure.regex import lazy_re
from perdure.types import ParsedLines, Part, Run, Turn

WITHHELD = b'{"masked": "a line that holds a secret which cannot be taken out of it"}'
_MAX_DEPTH = 8  # rounds of escaping that a text may have
_ESCAPE = lazy_re(r"\\(?:u([0-9a-fA-F]{4})|(u|[\"\\/]))")
_MASK = lazy_re(r"\[secret:[a-z-]+\]")


def lines(raw: bytes) -> bytes:
    """Captured lines with every secret masked, a line for each line.

    >>> lines(b'{"to": "postgres://ada:tr0ub4dor@host/x"}\\n')
    b'{"to":"postgres://ada:[secret:password]@host/x"}\\n'
    """
    return b"\n".join(map(_line, raw.split(b"\n")))


def _line(raw: bytes) -> bytes:
    plain = raw.decode("utf-8", "replace").removeprefix("\ufeff")
    try:
        found = _value(_read(plain))  # also halves of characters, which msgspec refuses
        return _whole(json.dumps(found, ensure_ascii=not _is_whole(plain), separators=(",", ":")))
    except RecursionError:
        return WITHHELD
    except ValueError:
        return _unread(plain)


def _read(plain: str) -> Any:
    """What a line says; numbers as strings where one has more digits than Python reads."""
    try:
        return json.loads(plain)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return json.loads(plain, parse_int=str)


def _unread(plain: str) -> bytes:
    """A line that is no JSON, masked; nothing of it where more comes to light behind its escapes."""
    masked = opened = mask(plain)
    for _ in range(_MAX_DEPTH):
        if "\\u" not in opened:
            return masked.encode() if mask(opened) is opened else WITHHELD
        opened = _ESCAPE.sub(_meant, opened)
    return WITHHELD


def _meant(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16)) if escape[1] else escape[2]


def _is_whole(plain: str) -> bool:
    """Whether a line names no half of a character, which could not be written as it is."""
    return "\\ud" not in plain.lower()


def _value(value: Any, kind: str | None = None) -> Any:
    """A JSON value with every string masked, names of fields included; withheld is all below a name of that kind."""
    if isinstance(value, str):
        return _string(value, kind)
    if isinstance(value, list):
        return [_value(item, kind or _kind_after(value, n)) for n, item in enumerate(value)]
    if isinstance(value, dict):
        return {mask(name): _value(item, kind or _kind_at(value, name)) for name, item in value.items()}
    if kind == "password" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"[secret:{kind}]"
    return value


def _string(text: str, kind: str | None = None) -> str:
    if kind:
        return text if not text or _MASK.fullmatch(text) else f"[secret:{kind}]"
    return mask(_nested(text) if text.startswith(("{", "[")) else text)


def _nested(text: str) -> str:
    """JSON inside a string, masked as such; the text itself where it is none, or holds no secret."""
    try:
        inner = json.loads(text)
        masked = _value(inner)
        return text if masked == inner else json.dumps(masked, ensure_ascii=False, separators=(",", ":"))
    except ValueError:
        return text
    except RecursionError:
        return WITHHELD.decode()


def _kind_at(fields: dict[str, Any], name: str) -> str | None:
    """The kind of secret that stands in a field, by its name or by that beside it: `{"name": "TOKEN", "value": …}`."""
    beside = (fields.get("name") or fields.get("key")) if name == "value" else None
    return _kind(beside) or _kind(name)


def _kind_after(items: list[Any], n: int) -> str | None:
    """The kind of secret that an item is by the one before it: `"--password", …`, `["x-api-key", …]`."""
    before = items[n - 1] if n else None
    if not isinstance(before, str):
        return None
    is_pair = len(items) == 2 and isinstance(items[1], str) and any(map(str.isdigit, items[1]))
    return _kind(before) if is_pair or before.startswith("-") else None


def _kind(name: Any) -> str | None:
    return kind_of_name(name) if isinstance(name, str) and len(name) <= MAX_NAME_CHARS else None


def _whole(line: str) -> bytes:
    """A line masked once more as it is written: a field's name may say that its value is a secret."""
    masked = mask(line)
    try:
        json.loads(masked)
    except ValueError:  # the secret spans the quotes or brackets of its value
        return WITHHELD
    return masked.encode()


def run(run: Run) -> Run:
    """What capture knew of a run, with its native places masked."""
    return replace(
        run,
        tags=tuple(map(mask, run.tags)),
        readable_by=(),
        conversation=mask(run.conversation),
        project=_or_none(run.project),
        path=_or_none(run.path),
        cwd=_or_none(run.cwd),
        parent_session=_or_none(run.parent_session),
        parent_run_id=None,
        sha256="",
        stored_sha256=None,
    )


def parsed(parsed: ParsedLines) -> ParsedLines:
    """What a run says."""
    return replace(parsed, title=mask(parsed.title), turns=tuple(map(_turn, parsed.turns)))


def _turn(turn: Turn) -> Turn:
    return turn._replace(
        parts=tuple(map(_part, turn.parts)), files=tuple(map(mask, turn.files)), skills=tuple(map(mask, turn.skills))
    )


def _part(part: Part) -> Part:
    return part._replace(text=_string(part.text), name=mask(part.name))


def _or_none(text: str | None) -> str | None:
    return None if text is None else mask(text)
