"""Read transcripts of agents: bytes in, turns out. Pure, except that `emit` reads a database from a given path.

Four questions about a source: which program wrote it (`detect`); can its bytes be captured as they are
(`is_append_only`), or only as lines made from them (`emit`); which session it belongs to (`identify`);
which turns it holds (`parse`). Formats are recognised by content and read by whitelist. Nothing is left
out silently, and `parse` raises for no input. Importing this package loads no format: a process that only
searches or recalls reads no transcript.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from perdure.capture.lines import Line
from perdure.errors import FormatFault
from perdure.formats.branches import find_abandoned
from perdure.types import EXTERNAL_RUNTIMES, RUNTIMES, Origin, ParsedLines

__all__ = ["detect", "emit", "emit_session", "find_abandoned", "identify", "is_append_only", "list_new_lines", "parse"]

EmittedSessions = list[tuple[Origin, list[bytes]]]


class _TranscriptFormat(Protocol):
    """Functions of a format module. Only some have `emit` (rewritten sources) and `emit_session` (many sessions)."""

    def identify(self, first_bytes: bytes, path: str) -> Origin: ...
    def parse(self, lines: Iterable[Line], *, spawned: bool = False) -> ParsedLines: ...
    def emit(self, data: Any, path: str) -> EmittedSessions: ...
    def emit_session(self, path: Path, session: str) -> EmittedSessions: ...


_MODULES = {name: name.removesuffix("-cli").replace("-", "_") for name in RUNTIMES} | {
    "claude-code-prompts-only": "prompts_only",
    "codex-prompts-only": "prompts_only",
    "instructions": "host_memory",
    **dict.fromkeys(EXTERNAL_RUNTIMES, "external"),
}
_HOST_FILES = ("host-memory", "instructions", *EXTERNAL_RUNTIMES)  # captured by versions
_EMITTED_RUNTIMES = {
    *(
        "gemini-cli",
        "messages",
        "notes",
        "opencode",
        "cline",
        "aider",
        "claude-code-prompts-only",
        "codex-prompts-only",
    ),
    *_HOST_FILES,
}


def _load_format(runtime: str) -> _TranscriptFormat:
    """Return the module of a runtime; the first transcript loads it. Raises FormatFault for an unknown runtime."""
    if runtime not in _MODULES:
        raise FormatFault(runtime)
    return cast(_TranscriptFormat, import_module(f"perdure.formats.{_MODULES[runtime]}"))


def detect(first_bytes: bytes, name: str = "") -> str | None:
    """Return the runtime of a transcript, one of RUNTIMES, or None when no format fits.

    first_bytes: the start of the file; 64 KB are enough, and the last line may be cut. name: its file name or
    path.
    """
    from perdure.formats import detection

    return detection.detect(first_bytes, name)


def is_append_only(runtime: str, first_bytes: bytes) -> bool:
    """Return True if a source of this runtime only grows, by whole lines, so its bytes can be captured as they are.

    False for documents that are rewritten: those are captured as the lines that `emit` makes from them.
    """
    from perdure.formats import detection

    return detection.is_append_only(runtime, first_bytes)


def identify(runtime: str, first_bytes: bytes, path: str) -> Origin:
    """Return the session that a source's first bytes and path name. Raises FormatFault for an unknown runtime.

    The ids come from the file; never use them as paths.
    """
    return _load_format(runtime).identify(first_bytes, path)


def parse(runtime: str, lines: Iterable[Line], *, spawned: bool = False) -> ParsedLines:
    """Return the turns of one run and a count of its other lines. Raises FormatFault for an unknown runtime.

    lines: any range of a source. spawned: the source belongs to a sub-agent (its `Origin.parent_session`
    spawned it), so nobody typed into it; needed when only the first line of the source would say so (Codex,
    pi, messages).
    """
    return _load_format(runtime).parse(lines, spawned=spawned)


def emit(runtime: str, data: bytes | Path, *, path: str = "") -> EmittedSessions:
    """Return each session of a document: its origin and its lines, header first. Raises FormatFault if it is none.

    data: its bytes, or its path (a database is read in place). path: the path the bytes came from; it names a
    note. The same document yields the same lines; a message that changed yields a new line with the same
    native id.
    """
    path = path or (str(data) if isinstance(data, Path) else "")
    if runtime not in _EMITTED_RUNTIMES:
        raise FormatFault(f"{runtime} is captured as it is")
    if isinstance(data, Path) and runtime != "opencode":
        data = data.read_bytes()
    return _load_format(runtime).emit(data, path)


def emit_session(runtime: str, path: Path, session: str) -> EmittedSessions:
    """Return the lines that `emit` makes for one session of a database and the sessions spawned below it.

    Empty for an unknown session. For a capture at the end of a turn: other sessions are not read. Raises
    FormatFault if the file is no database.
    """
    return _load_format(runtime).emit_session(path, session)


def list_new_lines(
    runtime: str, stored_lines: Iterable[bytes], lines: Iterable[bytes], *, is_live: bool
) -> list[bytes]:
    """Return the lines that a source lacks, in order: the lines from `emit` that are not stored.

    is_live: the lines are the current state. For a database, states that returned are then included; a
    document may be old.
    """
    if runtime == "opencode":
        from perdure.formats import opencode

        return opencode.list_new_lines(stored_lines, lines, is_live=is_live)
    if runtime in _HOST_FILES:
        from perdure.formats import host_memory

        return host_memory.list_new_lines(stored_lines, lines)
    stored_set = set(stored_lines)
    return [line for line in dict.fromkeys(lines) if line not in stored_set]
