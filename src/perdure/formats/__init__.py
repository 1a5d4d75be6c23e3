"""Bytes of agent transcripts -> turns. Pure, but for `emit` reading a database it is given the path of.

Four questions about a source: which program wrote it (`detect`), whether its bytes can be captured as they are
(`is_append_only`) or as lines made of them (`emit`), whose it is (`identify`), and what was said (`parse`).
Formats are judged by content and read by whitelist; nothing is left out silently, and no input raises in `parse`.
Importing this loads none of them: who only searches, or says what is remembered, reads no transcript.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from perdure.errors import FormatFault
from perdure.formats.branches import abandoned
from perdure.types import RUNTIMES, Line, Origin, ParsedLines

__all__ = ["abandoned", "anew", "detect", "emit", "emit_session", "identify", "is_append_only", "parse"]

Emitted = list[tuple[Origin, list[bytes]]]


class _Format(Protocol):
    """What the module of a format has; `emit` where sources are rewritten, `emit_session` where one holds many."""

    def identify(self, head: bytes, path: str) -> Origin: ...
    def parse(self, lines: Iterable[Line], *, spawned: bool = False) -> ParsedLines: ...
    def emit(self, data: Any, path: str) -> Emitted: ...
    def emit_session(self, path: Path, session: str) -> Emitted: ...


_MODULES = {name: name.removesuffix("-cli").replace("-", "_") for name in RUNTIMES}
_EMITTED = ("gemini-cli", "messages", "notes", "opencode")


def _format(runtime: str) -> _Format:
    """Return the module of a runtime, loaded by its first transcript. FormatFault for an unknown runtime."""
    if runtime not in _MODULES:
        raise FormatFault(runtime)
    return cast(_Format, import_module(f"perdure.formats.{_MODULES[runtime]}"))


def detect(head: bytes, name: str = "") -> str | None:
    """Return the runtime of a transcript, one of RUNTIMES, or None when nothing fits.

    head: its first bytes, 64 KB are enough; the last line may be cut. name: its file name or path.
    """
    from perdure.formats import detection

    return detection.detect(head, name)


def is_append_only(runtime: str, head: bytes) -> bool:
    """Say whether a source of this runtime only grows, by whole lines, so that its bytes can be captured as they are.

    False for documents that are rewritten: those are captured as the lines that `emit` makes of them.
    """
    from perdure.formats import detection

    return detection.is_append_only(runtime, head)


def identify(runtime: str, head: bytes, path: str) -> Origin:
    """Return what a source's first bytes and its path say about its session. FormatFault for an unknown runtime.

    The ids come from the file and are never to be used as paths.
    """
    return _format(runtime).identify(head, path)


def parse(runtime: str, lines: Iterable[Line], *, spawned: bool = False) -> ParsedLines:
    """Return the turns of one run, and the account of every line that is none. FormatFault for an unknown runtime.

    lines: any range of a source. spawned: the source belongs to a sub-agent (its `Origin.parent_session` spawned it),
    so that nobody typed into it; needed where only the first line of the source would say so (Codex, pi, messages).
    """
    return _format(runtime).parse(lines, spawned=spawned)


def emit(runtime: str, data: bytes | Path, *, path: str = "") -> Emitted:
    """Return each session of a document as its origin and its lines, the header first. FormatFault if it is none.

    data: its bytes, or where it lies (a database is read in place). path: where the bytes came from; it names a note.
    The same document yields the same lines; a message that changed yields a new line with the same native id.
    """
    path = path or (str(data) if isinstance(data, Path) else "")
    if runtime not in _EMITTED:
        raise FormatFault(f"{runtime} is captured as it is")
    if isinstance(data, Path) and runtime != "opencode":
        data = data.read_bytes()
    return _format(runtime).emit(data, path)


def emit_session(runtime: str, path: Path, session: str) -> Emitted:
    """Return what `emit` says of one session of a database, and of those spawned below it; nothing for an unknown one.

    For a capture at the end of a turn: what other sessions wrote is not read. FormatFault if it is no database.
    """
    return _format(runtime).emit_session(path, session)


def anew(runtime: str, stored: Iterable[bytes], lines: Iterable[bytes], *, is_live: bool) -> list[bytes]:
    """Return the lines that a source lacks, in order: what `emit` says against what is stored.

    is_live: they say what stands now. Of a database then also the states that returned; a document may be old.
    """
    if runtime == "opencode":
        from perdure.formats import opencode

        return opencode.anew(stored, lines, is_live=is_live)
    known = set(stored)
    return [line for line in dict.fromkeys(lines) if line not in known]
