"""Bytes of agent transcripts -> turns. Pure, but for `emit` reading a database it is given the path of.

Four questions about a source: which program wrote it (`detect`), whether its bytes can be captured as they are
(`is_append_only`) or as lines made of them (`emit`), whose it is (`identify`), and what was said (`parse`).
Formats are judged by content and read by whitelist; nothing is left out silently, and no input raises in `parse`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from perdure.errors import FormatFault
from perdure.formats import claude_code, codex, copilot, gemini, messages, notes, opencode, pi
from perdure.formats.detect import detect, is_append_only
from perdure.formats.pi import abandoned
from perdure.types import Line, Origin, Parsed

__all__ = ["abandoned", "detect", "emit", "identify", "is_append_only", "parse"]

Emitted = list[tuple[Origin, list[bytes]]]


class _Parse(Protocol):
    def __call__(self, lines: Iterable[Line], *, spawned: bool = False) -> Parsed: ...


_IDENTIFY: dict[str, Callable[[bytes, str], Origin]] = {
    "claude-code": claude_code.identify,
    "codex": codex.identify,
    "copilot-cli": copilot.identify,
    "gemini-cli": gemini.identify,
    "messages": messages.identify,
    "notes": notes.identify,
    "opencode": opencode.identify,
    "pi": pi.identify,
}
_PARSE: dict[str, _Parse] = {
    "claude-code": claude_code.parse,
    "codex": codex.parse,
    "copilot-cli": copilot.parse,
    "gemini-cli": gemini.parse,
    "messages": messages.parse,
    "notes": notes.parse,
    "opencode": opencode.parse,
    "pi": pi.parse,
}
_EMIT: dict[str, Callable[[bytes, str], Emitted]] = {
    "gemini-cli": gemini.emit,
    "messages": messages.emit,
    "notes": notes.emit,
}


def identify(runtime: str, head: bytes, path: str) -> Origin:
    """Return what a source's first bytes and its path say about its session. FormatFault for an unknown runtime.

    The ids come from the file and are never to be used as paths.
    """
    if runtime not in _IDENTIFY:
        raise FormatFault(runtime)
    return _IDENTIFY[runtime](head, path)


def parse(runtime: str, lines: Iterable[Line], *, spawned: bool = False) -> Parsed:
    """Return the turns of one run, and the account of every line that is none. FormatFault for an unknown runtime.

    lines: any range of a source. spawned: the source belongs to a sub-agent (its `Origin.parent_session` spawned it),
    so that nobody typed into it; needed where only the first line of the source would say so (Codex, pi, messages).
    """
    if runtime not in _PARSE:
        raise FormatFault(runtime)
    return _PARSE[runtime](lines, spawned=spawned)


def emit(runtime: str, data: bytes | Path, *, path: str = "") -> Emitted:
    """Return each session of a document as its origin and its lines, the header first. FormatFault if it is none.

    data: its bytes, or where it lies (a database is read in place). path: where the bytes came from; it names a note.
    The same document yields the same lines; a message that changed yields a new line with the same native id.
    """
    path = path or (str(data) if isinstance(data, Path) else "")
    if runtime == "opencode":
        return opencode.emit(data, path)
    if runtime not in _EMIT:
        raise FormatFault(f"{runtime} is captured as it is")
    return _EMIT[runtime](data.read_bytes() if isinstance(data, Path) else data, path)
