"""Read, write and edit files of the project, and look at images in it."""

from __future__ import annotations

import base64
import difflib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

from perdure.agent.folders import ProjectFolders
from perdure.agent.image_size import IMAGE_TYPES, find_image_type, read_image_size
from perdure.agent.tools.find_text import find_spans
from perdure.agent.tools.output import MAX_BYTES, MAX_LINES, clip_bytes, count_lines, take_first
from perdure.errors import ToolError
from perdure.formats.perdure import ImageEntry
from perdure.models.chat import ToolSpec
from perdure.session.calls import Tool, ToolOutput

MAX_IMAGE_BYTES = 5_000_000  # providers refuse larger ones
MAX_COUNT_BYTES = 200_000_000  # to this size the lines of a file are counted to its end
_PROBE_BYTES = 8192  # a file with a zero byte in them is binary
_DIFF_CONTEXT = 3
_PATH = {"type": "string", "minLength": 1, "description": "relative to the project, or absolute"}


def build_tools(folders: ProjectFolders) -> list[Tool]:
    """Return read_file, write_file, edit_file and view_image."""
    return [
        Tool(
            ToolSpec(
                "read_file",
                f"Read a text file, at most {MAX_LINES:,} lines or {MAX_BYTES // 1024} KB; it says how to go on.",
                _object(
                    path=_PATH,
                    offset={"type": "integer", "minimum": 1, "description": "first line, counted from 1"},
                    limit={"type": "integer", "minimum": 1, "description": "number of lines"},
                    required=["path"],
                ),
            ),
            lambda given, _: read_file(folders, given["path"], given.get("offset", 1), given.get("limit", MAX_LINES)),
        ),
        Tool(
            ToolSpec(
                "write_file",
                "Write a whole text file; missing folders are made. Use edit_file to change a part of one.",
                _object(path=_PATH, text={"type": "string"}, required=["path", "text"]),
            ),
            lambda given, _: write_file(folders, given["path"], given["text"]),
            is_alone=_is_true,
        ),
        Tool(
            ToolSpec(
                "edit_file",
                "Replace one piece of a text file. `old` stands in it exactly once, blanks and line breaks included.",
                _object(
                    path=_PATH,
                    old={"type": "string", "minLength": 1, "description": "the text as it stands in the file"},
                    new={"type": "string", "description": "what stands there afterwards"},
                    required=["path", "old", "new"],
                ),
            ),
            lambda given, _: edit_file(folders, given["path"], given["old"], given["new"]),
            is_alone=_is_true,
        ),
        Tool(
            ToolSpec("view_image", "Look at a PNG, JPEG, GIF or WebP file.", _object(path=_PATH, required=["path"])),
            lambda given, _: view_image(folders, given["path"]),
        ),
    ]  # fmt: skip


def _object(*, required: list[str], **properties: Any) -> Mapping[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _is_true(_: Mapping[str, Any]) -> bool:
    return True


def read_file(
    folders: ProjectFolders, path: str, offset: int = 1, limit: int = MAX_LINES, *, max_bytes: int = MAX_BYTES
) -> ToolOutput:  # fmt: skip
    """Return lines of a text file, from `offset` on. Raises ToolError."""
    resolved = folders.check(path)
    shown = folders.show(resolved)
    with os.fdopen(folders.open_file(resolved), "rb") as file:
        n_bytes = os.fstat(file.fileno()).st_size
        probe = file.peek(_PROBE_BYTES)[:_PROBE_BYTES]
        if b"\0" in probe:
            raise ToolError(_describe_binary(shown, probe, n_bytes))
        lines = _iter_lines(file)
        n_skipped = sum(1 for _, _ in zip(range(offset - 1), lines, strict=False))
        cut = take_first((_decode(raw) for raw in lines), max_lines=min(limit, MAX_LINES), max_bytes=max_bytes)
        last = n_skipped + len(cut.lines)
        if not cut.lines:
            if n_bytes == 0:
                return ToolOutput(f"[{shown} is empty.]")
            raise ToolError(f"offset {offset} is behind the end: {shown} has {n_skipped} lines")
        if not cut.is_cut:
            return ToolOutput("\n".join(cut.lines))
        n_lines = _count_all(file, n_bytes)
    total = f" of {n_lines:,}" if n_lines else ""
    note = f"[Lines {offset:,} to {last:,}{total}. Read on with offset={last + 1}.]"
    if len(cut.lines) == 1 and len(cut.lines[0].encode()) >= max_bytes - 4:
        note = f"[The beginning of line {offset:,}{total}, which has more than {max_bytes // 1024} KB. Go on with offset={last + 1}.]"  # fmt: skip  # noqa: E501
    return ToolOutput("\n".join([*cut.lines, "", note]))


def _iter_lines(file: BufferedReader) -> Iterator[bytes]:
    """Yield the lines; of a very long one only its beginning, so that no line fills the memory."""
    while raw := file.readline(2 * MAX_BYTES):
        piece = raw
        while piece and not piece.endswith(b"\n"):
            piece = file.readline(1_000_000)
        yield raw


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").removeprefix("\ufeff").rstrip("\n").removesuffix("\r")


def _count_all(file: BufferedReader, n_bytes: int) -> int:
    """Return how many lines a file has; 0 for one that is too large to be counted."""
    if n_bytes > MAX_COUNT_BYTES:
        return 0
    file.seek(0)
    n_lines, last = 0, b"\n"
    while block := file.read(1_000_000):
        n_lines, last = n_lines + block.count(b"\n"), block[-1:]
    return n_lines + (last != b"\n")


def _describe_binary(shown: str, probe: bytes, n_bytes: int) -> str:
    kind = find_image_type(probe)
    if kind:
        return f"{shown} is an image ({kind}, {n_bytes:,} bytes): view_image shows it"
    return f"{shown} is a binary file ({n_bytes:,} bytes), no text. shell can tell more: file, strings, xxd"


@dataclass(frozen=True)
class FileChange:
    """A change of one text file, made or to be made."""

    path: Path  # absolute and resolved
    shown: str  # as a model reads it: relative to where commands run, where it can be
    old: str | None  # the whole text before; None for a new file
    new: str

    @property
    def diff(self) -> str:
        """The unified diff; "" if nothing changes."""
        return make_diff(self.old or "", self.new, self.shown)


def preview_change(folders: ProjectFolders, tool: str, given: Mapping[str, Any]) -> FileChange | None:
    """Return what a call of write_file or edit_file would change now; nothing is written.

    None for another tool, for a file that is no text, and for a call that cannot work: its error is the tool's to tell.
    """
    try:
        if tool == "write_file":
            return _preview_write(folders, given["path"], given["text"])
        if tool == "edit_file":
            edit = compute_edit(folders, given["path"], given["old"], given["new"])
            return FileChange(edit.path, folders.show(edit.path), _to_unicode(edit.old), _to_unicode(edit.new))
    except (ToolError, OSError):
        return None
    return None


def _preview_write(folders: ProjectFolders, path: str, text: str) -> FileChange | None:
    resolved = folders.check(path, is_write=True)
    old = folders.read_whole(resolved) if resolved.exists() else None
    if old is not None and b"\0" in old[:_PROBE_BYTES]:
        return None
    before = None if old is None else old.decode("utf-8", "replace")
    return FileChange(resolved, folders.show(resolved), before, _to_unicode(text))


def _to_unicode(text: str) -> str:
    """Return a text without the lone surrogates that stand for bytes which are no UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def write_file(folders: ProjectFolders, path: str, text: str) -> ToolOutput:
    """Write a whole file. Raises ToolError."""
    resolved = folders.check(path, is_write=True)
    old = None
    if resolved.is_file():
        with os.fdopen(folders.open_file(resolved), "rb") as file:
            old = file.read(MAX_BYTES)
    is_new = folders.replace(resolved, text.encode("utf-8", "surrogatepass"))
    shown, n_lines = folders.show(resolved), count_lines(text)
    size = f"{n_lines:,} {'line' if n_lines == 1 else 'lines'}, {len(text.encode('utf-8', 'surrogatepass')):,} bytes"
    if is_new or old is None or len(old) == MAX_BYTES or b"\0" in old:
        return ToolOutput(f"{'Wrote the new file' if is_new else 'Replaced'} {shown}: {size}.")
    diff = make_diff(old.decode("utf-8", "replace"), text, shown)
    return ToolOutput(f"Replaced {shown}: {size}.\n{diff}" if diff else f"{shown} has this text already: {size}.")


def edit_file(folders: ProjectFolders, path: str, old: str, new: str) -> ToolOutput:
    """Replace the one place where a text stands. Raises ToolError.

    Bytes that are no UTF-8, the byte order mark and line endings stay as they are.
    """
    edit = compute_edit(folders, path, old, new)
    folders.replace(edit.path, edit.new.encode("utf-8", "surrogateescape"))
    how = "" if edit.is_exact else " (found by its letters: quotes, blanks or line ends differed)"
    shown = folders.show(edit.path)
    diff = make_diff(edit.old, edit.new, shown)
    return ToolOutput(f"Edited {shown}, first changed line {edit.first_line}{how}.\n{diff}")


class Edit(NamedTuple):
    """What edit_file makes of a file. Its texts hold bytes that are no UTF-8 as lone surrogates."""

    path: Path
    old: str  # the whole text before
    new: str
    first_line: int  # that changes, counted from 1
    is_exact: bool  # False: the text was found by its letters


def compute_edit(folders: ProjectFolders, path: str, old: str, new: str) -> Edit:
    """Return a file with `new` in the one place where `old` stands; nothing is written. Raises ToolError."""
    resolved = folders.check(path, is_write=True)
    shown, data = folders.show(resolved), folders.read_whole(resolved)
    if b"\0" in data[:_PROBE_BYTES]:
        raise ToolError(_describe_binary(shown, data[:_PROBE_BYTES], len(data)))
    text = data.decode("utf-8", "surrogateescape")
    if old == new:
        raise ToolError("`old` and `new` are the same: nothing to change")
    spans = find_spans(text, old.removeprefix("\ufeff"))
    if not spans.places:
        raise ToolError(
            f"`old` does not stand in {shown}. Read the file again and copy the text exactly{_hint(text, old)}"
        )
    if len(spans.places) > 1:
        numbers = ", ".join(str(text.count("\n", 0, start) + 1) for start, _ in spans.places[:10])
        raise ToolError(f"`old` stands {len(spans.places)} times in {shown} (lines {numbers}): add lines around it")
    start, end = spans.places[0]
    is_crlf = "\r\n" in text and text.count("\r\n") * 2 > text.count("\n")
    inserted = new.replace("\r\n", "\n").replace("\n", "\r\n") if is_crlf else new
    first_line = text.count("\n", 0, start) + 1 + _count_same_lines(text[start:end], inserted)
    return Edit(resolved, text, text[:start] + inserted + text[end:], first_line, spans.is_exact)


def _count_same_lines(old: str, new: str) -> int:
    """Return how many whole lines are the same at the beginning of two texts."""
    pairs = zip(old.splitlines(keepends=True), new.splitlines(keepends=True), strict=False)
    n_same = 0
    for before, after in pairs:
        if before != after:
            break
        n_same += 1
    return n_same


def _hint(text: str, old: str) -> str:
    """Name the line that is most like the first line of a text that was not found."""
    first = next((line.strip() for line in old.splitlines() if line.strip()), "")
    lines = text.splitlines()[:20_000]
    similar = difflib.get_close_matches(first, [line.strip() for line in lines], n=1, cutoff=0.75) if first else []
    if not similar:
        return ""
    number = next(n for n, line in enumerate(lines, start=1) if line.strip() == similar[0])
    return f". Line {number} is like its first line: {clip_bytes(similar[0], 200)}"


def make_diff(old: str, new: str, shown: str) -> str:
    """Return what changed, as a unified diff; "" if nothing did. Its last line says how many lines are not shown."""
    lines = list(
        difflib.unified_diff(
            _show_lines(old), _show_lines(new), f"a/{shown}", f"b/{shown}", n=_DIFF_CONTEXT, lineterm=""
        )
    )
    cut = take_first(lines)
    n_more = len(lines) - len(cut.lines)
    return "\n".join([*cut.lines, *([f"[{n_more:,} more lines of the diff are not shown.]"] if cut.is_cut else [])])


def _show_lines(text: str) -> list[str]:
    """Return the lines without their ends; a missing last one is told."""
    shown = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").removeprefix("\ufeff")
    lines = shown.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else [*lines[:-1], lines[-1] + "\n\\ No newline at end of file"]


def view_image(folders: ProjectFolders, path: str) -> ToolOutput:
    """Return an image to the model. Raises ToolError."""
    resolved = folders.check(path)
    data, shown = folders.read_whole(resolved), folders.show(resolved)
    kind = find_image_type(data)
    if not kind:
        raise ToolError(f"{shown} is no image that models read ({', '.join(IMAGE_TYPES)})")
    if len(data) > MAX_IMAGE_BYTES:
        raise ToolError(f"{shown} has {len(data):,} bytes; the maximum is {MAX_IMAGE_BYTES:,}. Make it smaller first")
    size = read_image_size(data)
    label = f"{shown}: {kind}, {f'{size[0]} × {size[1]}, ' if size else ''}{len(data):,} bytes"
    return ToolOutput(label, images=(ImageEntry(media_type=kind, data=base64.b64encode(data).decode()),))
