"""The turns of a captured run: which format reads it, what its metadata adds, what was put into it by us. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from perdure import formats
from perdure.access import fence
from perdure.types import RUNTIMES, Line, ParsedLines, Run, Turn


def parse_run(run: Run, lines: Iterable[Line]) -> ParsedLines:
    """What a run's lines say. A runtime of the caller's own is read as plain messages."""
    runtime = run.source.runtime if run.source.runtime in RUNTIMES else "messages"
    spawned = run.parent_session is not None and not run.fork
    return formats.parse(runtime, lines, spawned=spawned)


def without_injected(parsed: ParsedLines, injected: Callable[[], Mapping[str, str]]) -> ParsedLines:
    """What a run says without what was recalled into it, so that memory never feeds on itself.

    injected: gives code -> digest of the blocks that its session was given; asked only when something looks like one.
    A turn that was nothing else stays, without words.
    """
    if not any(fence.NAME in part.text for turn in parsed.turns for part in turn.parts):
        return parsed
    known = injected()
    return replace(parsed, turns=tuple(_cleaned(turn, known) for turn in parsed.turns)) if known else parsed


def _cleaned(turn: Turn, known: Mapping[str, str]) -> Turn:
    if not any(fence.NAME in part.text for part in turn.parts):
        return turn
    left = fence.without_all([part.text for part in turn.parts], known)
    parts = tuple(part._replace(text=text) for part, text in zip(turn.parts, left, strict=True))
    kept = tuple(new for new, old in zip(parts, turn.parts, strict=True) if new.text or not old.text)
    return turn._replace(parts=kept)
