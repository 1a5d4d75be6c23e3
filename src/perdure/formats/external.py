"""Records of other memory products, and documents of MCP servers -> turns: one a record or a paragraph.

An import makes the lines with `make_lines`; `formats.host_memory` parses them. The last line of a version says which
records or paragraphs it holds, so that the others count as left. They are turns of an agent, as in a host's files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from perdure.errors import FormatFault
from perdure.formats import host_memory
from perdure.types import Origin

__all__ = ["ExternalRow", "emit", "identify", "make_lines", "make_row_line", "parse"]

parse = host_memory.parse


class ExternalRow(NamedTuple):
    """One record of a store, or one paragraph of a document."""

    text: str
    headings: tuple[str, ...] = ()  # above it, outermost first
    record_id: str = ""  # its name in the store
    stated_at: datetime | None = None


_EMPTY_ROW = ExternalRow("#")  # a heading without words is no turn, but a version must name something to leave the rest


def identify(first_bytes: bytes, path: str) -> Origin:  # noqa: ARG001 - every format is asked alike
    """Return the document that a path names. The lines themselves are made by an import, never found in a file."""
    name = path.replace("\0", "")
    return Origin("markdown", name, name)


def emit(data: Any, path: str) -> list[tuple[Origin, list[bytes]]]:  # noqa: ARG001
    """Raise FormatFault: no file holds these lines."""
    raise FormatFault(f"{path}: take it in with `perdure import --from NAME`")


def _make_row_id(name: str, row: ExternalRow) -> str:
    """Return the id of a row: the same for the same words of the same record."""
    raw = "\0".join((name, row.record_id, *row.headings, row.text)).encode("utf-8", "replace")
    return hashlib.sha256(raw).hexdigest()[:16]


def make_lines(name: str, rows: Iterable[ExternalRow], *, changed_at: datetime | None) -> list[bytes]:
    """Return a header, a line for each row, and one for the version, which lists the rows in order.

    name: the path of the store or the address of the document. Equal rows give equal lines.
    """
    lines = {_make_row_id(name, row): make_row_line(name, row) for row in list(rows) or [_EMPTY_ROW]}
    version = hashlib.sha256("\0".join(lines).encode()).hexdigest()[:16]
    last_line = {"version": version, "at": changed_at.isoformat() if changed_at else None, "paragraphs": list(lines)}
    return [_encode_line({"file": name}), *lines.values(), _encode_line(last_line)]


def make_row_line(name: str, row: ExternalRow) -> bytes:
    """Return the line of one row."""
    line: dict[str, Any] = {"id": _make_row_id(name, row), "headings": list(row.headings), "text": row.text}
    line |= {"record": row.record_id} if row.record_id else {}
    line |= {"at": row.stated_at.isoformat()} if row.stated_at else {}
    return _encode_line(line)


def _encode_line(line: dict[str, Any]) -> bytes:
    return json.dumps(line, ensure_ascii=False).encode("utf-8", "replace")
