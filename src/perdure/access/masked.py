"""What a grantee sees of a captured run: its lines, its turns and what capture knew, every secret masked. Pure.

The owner's bytes stay as they are and go to the owner alone.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from perdure.access.redact import mask
from perdure.types import Parsed, Part, Run, Turn

WITHHELD = b'{"masked": "a line that holds a secret which cannot be taken out of it"}'


def lines(raw: bytes) -> bytes:
    """Captured lines with every secret masked, a line for each line.

    >>> lines(b'{"to": "postgres://ada:tr0ub4dor@host/x"}\\n')
    b'{"to":"postgres://ada:[secret:password]@host/x"}\\n'
    """
    return b"\n".join(map(_line, raw.split(b"\n")))


def _line(raw: bytes) -> bytes:
    plain = raw.decode("utf-8", "replace")
    try:
        found = _value(json.loads(plain))  # half characters included, which msgspec refuses
    except (ValueError, RecursionError):
        return mask(plain).encode()
    return _whole(json.dumps(found, ensure_ascii=not _is_whole(plain), separators=(",", ":")))


def _is_whole(plain: str) -> bool:
    """Whether a line names no half of a character, which could not be written as it is."""
    return "\\ud" not in plain.lower()


def _value(value: Any) -> Any:
    """A JSON value with every string masked, names of fields included."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, list):
        return [_value(item) for item in value]
    if isinstance(value, dict):
        return {mask(name): _value(item) for name, item in value.items()}
    return value


def _whole(line: str) -> bytes:
    """A line masked once more as it is written: a field's name may say that its value is a secret."""
    masked = mask(line)
    try:
        json.loads(masked)
    except ValueError:  # the secret runs across what makes it a value
        return WITHHELD
    return masked.encode()


def run(run: Run) -> Run:
    """What capture knew of a run, with its native places masked."""
    return replace(
        run, tags=tuple(map(mask, run.tags)), readable_by=(), conversation=mask(run.conversation),
        project=_or_none(run.project), path=_or_none(run.path), cwd=_or_none(run.cwd),
        parent_session=_or_none(run.parent_session), parent_run_id=None,
        sha256="", stored_sha256=None,
    )  # fmt: skip


def parsed(parsed: Parsed) -> Parsed:
    """What a run says."""
    return replace(parsed, title=mask(parsed.title), turns=tuple(map(_turn, parsed.turns)))


def _turn(turn: Turn) -> Turn:
    return turn._replace(
        parts=tuple(map(_part, turn.parts)), files=tuple(map(mask, turn.files)), skills=tuple(map(mask, turn.skills))
    )


def _part(part: Part) -> Part:
    return part._replace(text=mask(part.text), name=mask(part.name))


def _or_none(text: str | None) -> str | None:
    return None if text is None else mask(text)
