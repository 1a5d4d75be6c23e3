"""Read the notes of basic-memory (0.24): Markdown with observations and relations as list items.

`- [category] text #tag (context)` is an observation, `- relation [[Note]] (context)` a relation. Other list items and
short paragraphs are statements, as in any notes. A note's time is `modified` or `created` of its front matter, or else
that of its file.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

from perdure.access.redact import mask
from perdure.environ import find_user_home, read_variable
from perdure.errors import UsageError
from perdure.formats.values import text_or_empty
from perdure.memories import markdown
from perdure.memories.markdown import MarkdownPage, NoteItem
from perdure.memories.markdown_io import FileRefusal
from perdure.memories.other_stores.markdown_notes import NoteFile, iter_notes
from perdure.memories.other_stores.records import (
    StoreContents,
    StoreRecord,
    find_first,
    make_page,
    name_subject,
    read_file,
    to_kind,
)
from perdure.regex import lazy_re

NAME = "basic-memory"
_PAGE_PARTS = 3  # of a permalink in a path; the innermost ones
_OBSERVATION = lazy_re(r"\[([^\[\]()]{1,80})\]\s+(\S.*)", re.DOTALL)
_TASK = lazy_re(r"\[[ xX\-/>?!]\]\s")
_VERB = r"""(?:"([^"\[\]]{1,80})"|'([^'\[\]]{1,80})'|([^\s\[\]]{1,80}))"""
_RELATION = lazy_re(rf"{_VERB}\s+\[\[([^\[\]]{{1,200}})\]\]\s*(\(.*\))?")


def find_store() -> Path | None:
    """Return the folder of this user's default project."""
    candidates = [Path(folder) for folder in (read_variable("BASIC_MEMORY_HOME"), _read_default_project()) if folder]
    return find_first([*candidates, find_user_home() / "basic-memory"])


def _read_default_project() -> str:
    """Return the folder of the default project in the settings; "" if they do not say it."""
    try:
        settings = json.loads(read_file(find_user_home() / ".basic-memory" / "config.json"))
        project = settings["projects"][settings["default_project"]]
    except (UsageError, ValueError, LookupError, TypeError):
        return ""
    return text_or_empty(project.get("path") if isinstance(project, dict) else project)


def read(path: Path, contents: StoreContents) -> None:
    """Add the statements of the notes at and below a path."""
    for note in iter_notes([path], contents):
        page = _parse_page(note, contents)
        parsed = markdown.parse_notes(page.body)
        contents.left_out.update(parsed.left_out)
        for item in parsed.items:
            if _TASK.match(item.text):
                contents.left_out["task"] += 1
            else:
                contents.add(_build_record(note, page, item))


def _parse_page(note: NoteFile, contents: StoreContents) -> MarkdownPage:
    """Return a note's front matter and body; a header that cannot be read costs only itself."""
    try:
        return markdown.parse_page(note.text)
    except UsageError as error:
        contents.refusals.append(FileRefusal(str(note.path), f"was read without its front matter: {error.detail}"))
        return MarkdownPage({}, markdown.strip_header(note.text))


def _build_record(note: NoteFile, page: MarkdownPage, item: NoteItem) -> StoreRecord:
    title = mask(page.get_value("title") or note.path.stem)
    permalink = page.get_value("permalink") or note.path.stem
    record = StoreRecord(
        name_subject(title, item.text),
        make_page(NAME, *permalink.strip("/").split("/")[-_PAGE_PARTS:]),
        item.headings,
        stated_at=_parse_time(page.get_value("modified")) or _parse_time(page.get_value("created")) or note.changed_at,
        entities=(title,),
        name=title,
        label=str(note.path),
    )
    if relation := _RELATION.fullmatch(item.text):
        verb, target = mask(relation[1] or relation[2] or relation[3]), mask(relation[4].strip())
        words = f"{title} {verb.replace('_', ' ')} {target} {relation[5] or ''}".strip()
        return record._replace(text=words, entities=(title, target))
    if observation := _OBSERVATION.fullmatch(item.text):
        return record._replace(text=name_subject(title, observation[2]), kind=to_kind(observation[1]))
    return record


def _parse_time(value: str) -> datetime | None:
    """Return a time of a front matter, local unless it has an offset; None if it is none."""
    try:
        return datetime.fromisoformat(value).astimezone(UTC) if value else None
    except (ValueError, OverflowError):
        return None
