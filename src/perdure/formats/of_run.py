"""The turns of a captured run: which format reads it, and what its metadata adds. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from perdure import formats
from perdure.types import RUNTIMES, Line, Parsed, Run


def parse_run(run: Run, lines: Iterable[Line]) -> Parsed:
    """What a run's lines say. A runtime of the caller's own is read as plain messages."""
    runtime = run.source.runtime if run.source.runtime in RUNTIMES else "messages"
    spawned = run.parent_session is not None and not run.fork
    return formats.parse(runtime, lines, spawned=spawned)
