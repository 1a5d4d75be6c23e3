"""A memory as a Markdown file: a head of fields between two lines of `---`, then its words. Pure.

The head is YAML that any editor of notes reads. Of YAML it reads what such editors write: a value on a line, a list in
brackets or with dashes. A head that says anything else is refused, and never half understood.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from perdure.errors import UsageError
from perdure.memories.paths import folded
from perdure.patterns import late
from perdure.types import Memory, Span

MAX_HEAD_LINES = 400  # with the dashes; longer ones are no head of ours
_MAX_NAME_BYTES = 200  # of a file or folder; common file systems take 255
_PLAIN = late(r"[A-Za-z][A-Za-z0-9 _./-]*[A-Za-z0-9]\Z")
_RESERVED = frozenset(("true", "false", "null", "yes", "no", "on", "off"))  # that YAML reads as something else
_FIELD = late(r"([A-Za-z_][A-Za-z0-9_-]*):(?:[ \t]+(.*?))?[ \t]*\Z")
_ITEM = late(r"[ \t]*-[ \t]+(.*?)[ \t]*\Z")
_SPAN = late(r"(\S{1,64}) (\d{1,15})-(\d{1,15})\Z")

Value = str | list[str]


@dataclass(frozen=True)
class Page:
    """A Markdown file: the fields of its head, and what follows."""

    fields: Mapping[str, Value]
    body: str

    def one(self, name: str) -> str:
        """A field with one value; "" when there is none."""
        found = self.fields.get(name, "")
        return found if isinstance(found, str) else ""

    def several(self, name: str) -> list[str]:
        """A field with any number of values."""
        found = self.fields.get(name, [])
        return [found] * bool(found) if isinstance(found, str) else found


def render(memory: Memory) -> str:
    """Return a memory as a file."""
    head = "".join(f"{name}: {_written(value)}\n" for name, value in _fields(memory).items() if value)
    return f"---\n{head}---\n\n{memory.text}\n"


def _fields(memory: Memory) -> dict[str, Any]:
    """What a head says, in its order; what is empty is left out."""
    return {
        "id": memory.memory_id, "path": memory.path, "kind": memory.kind, "stated_at": memory.stated_at.isoformat(),
        "trust": memory.trust, "how": memory.how, "agent": memory.agent, "project": memory.project,
        "valid_from": memory.valid_from.isoformat() if memory.valid_from else "",
        "valid_until": memory.valid_until.isoformat() if memory.valid_until else "",
        "pinned": "true" if memory.pinned else "", "retired": "true" if memory.retired else "",
        "superseded_by": memory.superseded_by, "confidence": f"{memory.confidence:g}" if memory.confidence < 1 else "",
        "entities": list(memory.entities), "made_from": list(memory.made_from),
        "sources": [f"{span.run_id} {span.from_offset}-{span.to_offset}" for span in memory.sources],
    }  # fmt: skip


def _written(value: str | list[str]) -> str:
    """A value as YAML: plain where it is safe, otherwise as JSON, which is YAML too."""
    if isinstance(value, str) and (value == "true" or (_PLAIN.match(value) and value.lower() not in _RESERVED)):
        return value
    return json.dumps(value, ensure_ascii=False)


def read(said: str) -> Page:
    """Return a file as its fields and its body; without a head all of it is body. Raises UsageError for a strange head.

    >>> read("---\\nkind: fact\\nentities:\\n- Mira\\n---\\nMira answers by mail.\\n")
    Page(fields={'kind': 'fact', 'entities': ['Mira']}, body='Mira answers by mail.')
    """
    lines = said.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != "---":
        return Page({}, "\n".join(lines).strip())
    end = next((n for n, line in enumerate(lines[1:MAX_HEAD_LINES], 1) if line.rstrip() in ("---", "...")), None)
    if end is None:
        return Page({}, "\n".join(lines).strip())
    return Page(_head(lines[1:end]), "\n".join(lines[end + 1 :]).strip())


def is_memory(said: str) -> bool:
    """Whether a file claims to be an exported memory."""
    head = said.removeprefix("\ufeff").replace("\r\n", "\n")[:4096]
    return head.startswith("---\n") and any(
        line.startswith(("id: mem-", 'id: "mem-', "id: 'mem-")) for line in head.split("\n")[1:]
    )


def body(said: str) -> str:
    """What follows the head of a file, whatever that says."""
    lines = said.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() == "---":
        for n, line in enumerate(lines[1:MAX_HEAD_LINES], 1):
            if line.rstrip() in ("---", "..."):
                return "\n".join(lines[n + 1 :])
    return "\n".join(lines)


def _head(lines: Iterable[str]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    name = ""
    for n, line in enumerate(lines, 2):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if name and (item := _ITEM.match(line)):
            known = found[name]
            found[name] = [*(known if isinstance(known, list) else []), _scalar(item[1])]
        elif field := _FIELD.match(line):
            name, raw = field[1], field[2] or ""
            found[name] = _value(raw)
            name = name if not raw else ""
        else:
            raise UsageError(f"line {n} of its head is not understood; write `name: value` or `name: [one, two]`")
    return found


def _value(raw: str) -> Value:
    if not raw.startswith("["):
        return _scalar(raw)
    try:
        return [str(item) for item in json.loads(raw)]
    except ValueError:
        return [_scalar(item.strip()) for item in raw.strip("[]").split(",") if item.strip()]


def _scalar(raw: str) -> str:
    if raw.startswith('"') and raw.endswith('"') and len(raw) > 1:
        try:
            return str(json.loads(raw))
        except ValueError:
            return raw[1:-1]
    if raw.startswith("'") and raw.endswith("'") and len(raw) > 1:
        return raw[1:-1].replace("''", "'")
    return raw


def spans(found: Iterable[str]) -> tuple[Span, ...]:
    """Return the sources that a head names. Raises UsageError for one that is none."""
    matches = [(raw, _SPAN.match(raw)) for raw in found]
    bad = [raw for raw, match in matches if not match]
    if bad:
        raise UsageError(f"source {bad[0][:60]!r} is none; write the run's id and its bytes: 01m4x8… 0-120")
    return tuple(Span(match[1], int(match[2]), int(match[3])) for _, match in matches if match)


# names of files -----------------------------------------------------------------------------------------------


def files(memories: Iterable[Memory]) -> dict[str, Memory]:
    """Return which file holds which memory, relative and with `/`: its path, with the id where that alone is taken.

    No two names differ only in case, and none is also a folder's. Of several memories at one path the first that is
    current and belongs to no project gets the plain name.
    """
    every = sorted(memories, key=lambda m: (not m.is_current, m.project or "", m.agent, m.memory_id))
    places = {memory.memory_id: "/".join(map(_name, memory.path.split("/"))) for memory in every}
    folders = {_same(above) for place in places.values() for above in _above(place)}
    taken: dict[str, str] = {}
    found = {}
    for memory in every:
        place = places[memory.memory_id]
        plain = f"{place}.md"
        name = plain if _same(plain) not in taken and _same(plain) not in folders else f"{place}.{memory.memory_id}.md"
        taken[_same(name)] = name
        found[name] = memory
    return dict(sorted(found.items()))


def _above(place: str) -> Iterable[str]:
    parts = place.split("/")
    return ("/".join(parts[:n]) for n in range(1, len(parts)))


def _same(name: str) -> str:
    return folded(name)


def _name(part: str) -> str:
    """A part of a path as the name of a file or folder: never hidden, never too long."""
    safe = "_" + part if part.startswith(".") else part
    safe = "".join("_" if c in '<>:"|?*' else c for c in unicodedata.normalize("NFC", safe))
    return safe.encode()[:_MAX_NAME_BYTES].decode("utf-8", "ignore").rstrip(" .") or "_"
