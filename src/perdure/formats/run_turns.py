"""Parse a captured run: choose its format, use its metadata, and remove the text that Perdure injected. Pure.

Memory never feeds on itself: a block goes if the session received it. A block that only looks like one
stays, because anyone may have typed it. Lines and digests are arguments; no file is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from perdure import formats
from perdure.access import fence
from perdure.capture.lines import Line
from perdure.types import RUNTIMES, ParsedLines, Run, Turn


def parse_run(run: Run, lines: Iterable[Line]) -> ParsedLines:
    """Return the turns of a run's lines. A runtime of the caller's own is read as plain messages."""
    runtime = run.source.runtime if run.source.runtime in RUNTIMES else "messages"
    spawned = run.parent_session is not None and not run.fork
    return formats.parse(runtime, lines, spawned=spawned)


def remove_injected(parsed: ParsedLines, read_injected: Callable[[], Mapping[str, str]]) -> ParsedLines:
    """Remove the text that was recalled into a run, so that memory never feeds on itself.

    read_injected: returns code -> digest of the blocks that the session received; called only when some text
    looks like a block. A turn that held nothing else stays, without text.
    """
    if not any(fence.FENCE_NAME in part.text for turn in parsed.turns for part in turn.parts):
        return parsed
    digests = read_injected()
    return (
        replace(parsed, turns=tuple(_remove_from_turn(turn, digests) for turn in parsed.turns)) if digests else parsed
    )


def _remove_from_turn(turn: Turn, digests: Mapping[str, str]) -> Turn:
    if not any(fence.FENCE_NAME in part.text for part in turn.parts):
        return turn
    texts = fence.remove_blocks_from_pieces([part.text for part in turn.parts], digests)
    parts = tuple(part._replace(text=text) for part, text in zip(turn.parts, texts, strict=True))
    remaining_parts = tuple(new for new, old in zip(parts, turn.parts, strict=True) if new.text or not old.text)
    return turn._replace(parts=remaining_parts)
