"""Lines of transcripts from Python values, for every test here."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from perdure.capture.lines import Line


def rows_to_lines(*rows: Any) -> list[Line]:
    lines, offset = [], 0
    for row in rows:
        raw = row if isinstance(row, bytes) else json.dumps(row, ensure_ascii=False).encode()
        lines.append(Line(offset, raw))
        offset += len(raw) + 1
    return lines


@pytest.fixture
def as_lines() -> Callable[..., list[Line]]:
    """Turn JSON values or raw bytes into the lines of one run that starts at offset 0."""
    return rows_to_lines


@pytest.fixture
def as_head() -> Callable[..., bytes]:
    """Turn JSON values or raw bytes into the first bytes of a file."""
    return lambda *rows: b"".join(line.raw + b"\n" for line in rows_to_lines(*rows))
