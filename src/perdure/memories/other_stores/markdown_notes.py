"""Read folders of Markdown notes: an agent's MEMORY.md, a folder of Obsidian, any notes. One record a statement.

The statements are those of `memories.markdown`; the paths are those of `perdure memories import`, so that a statement
that came in one way is known the other way.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from perdure.access.redact import mask
from perdure.errors import UsageError
from perdure.memories import markdown
from perdure.memories.markdown_io import FileRefusal, find_repository, iter_files, read_text, split_page_path
from perdure.memories.other_stores.records import StoreContents, StoreRecord


class NoteFile(NamedTuple):
    """A Markdown file: its place, its text, and when it was changed."""

    path: Path
    text: str
    changed_at: datetime


def read(path: Path, contents: StoreContents) -> None:
    """Add the statements of the Markdown files at and below a path."""
    for note in iter_notes([path], contents):
        if markdown.is_memory_page(note.text):
            contents.refusals.append(
                FileRefusal(str(note.path), "is an exported memory: `perdure memories import` takes it under its id")
            )
            continue
        parsed = markdown.parse_notes(markdown.strip_header(note.text))
        contents.left_out.update(parsed.left_out)
        for item in parsed.items:
            contents.add(
                StoreRecord(
                    item.text,
                    markdown.make_page_path(map(mask, split_page_path(note.path))),
                    item.headings,
                    stated_at=note.changed_at,
                    project=find_repository(note.path) or "",
                    label=str(note.path),
                    is_note=True,
                )
            )


def iter_notes(paths: Iterable[Path], contents: StoreContents) -> Iterable[NoteFile]:
    """Yield the readable Markdown files at and below these paths; refuse the others by name."""
    contents.has_own_pages = True
    for file in iter_files(paths, contents.refusals):
        try:
            text, changed_at = read_text(file), datetime.fromtimestamp(file.stat().st_mtime, UTC)
        except UsageError as error:
            contents.refusals.append(FileRefusal(str(file), error.detail))
        except OSError as error:
            contents.refusals.append(FileRefusal(str(file), error.strerror or str(error)))
        else:
            contents.changed_at = max(contents.changed_at or changed_at, changed_at)
            yield NoteFile(file, text, changed_at)
