"""Files that a host's model or a person wrote for a host -> turns of the agent: one a paragraph.

Claude Code's `projects/*/memory/*.md`, `CLAUDE.md`, Codex's `memories/*` and `AGENTS.md`, `GEMINI.md`, and the rules of
Copilot and Cursor. `capture.host_memories` makes the lines; a version's line says which paragraphs the file holds, so
that the others count as left, like the turns on an abandoned branch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from perdure.capture import host_memories
from perdure.capture.lines import Line
from perdure.formats.json_text import decode_json
from perdure.formats.notes import normalize_note_path
from perdure.formats.parsing import TurnCollector, TurnDraft, feed_lines
from perdure.formats.passing import find_passing_sign, is_task_name, lacks_rule
from perdure.formats.values import parse_instant, text_or_empty
from perdure.regex import lazy_re
from perdure.types import Author, Origin, ParsedLines, Part

_HEADING = lazy_re(r" {0,3}#{1,6}(?:[ \t]|$)")
_TEAM_NOTES = "/.perdure/notes/"
_TYPE = lazy_re(r"^\s*type:[ \t]*[\"']?(\w+)", re.M)  # of a note, in its front matter
_DATE = lazy_re(r"\W*(?:\w+\W+)?\d{4}-\d\d-\d\d\W*")  # of a note: "**Date:** 2026-02-08"


class _HostLine(msgspec.Struct, gc=False):
    """A header, a paragraph or a version."""

    file: Any = None
    id: Any = None
    headings: Any = None
    text: Any = None
    version: Any = None
    at: Any = None
    paragraphs: Any = None


class _FileReader(msgspec.Struct):
    """What is known of a file while its lines are read."""

    collector: TurnCollector
    note_type: str = ""  # from its newest front matter


_line_decoder = msgspec.json.Decoder(_HostLine)


def identify(first_bytes: bytes, path: str) -> Origin:  # noqa: ARG001 - every format is asked alike
    """Return the session of a host file: its path."""
    return Origin(**host_memories.make_origin(normalize_note_path(path)))


def emit(data: bytes, path: str) -> list[tuple[Origin, list[bytes]]]:
    """Return the lines of the file's present version."""
    origin = identify(data, path)
    return [(origin, host_memories.make_lines(data, origin.session, host_memories.read_changed_at(Path(path))))]


def list_new_lines(stored_lines: Iterable[bytes], lines: Iterable[bytes]) -> list[bytes]:
    """Return the lines that a source lacks; none if its last version is this one, even if paragraphs were forgotten."""
    stored, new_lines = list(stored_lines), list(dict.fromkeys(lines))
    last_version = next(filter(None, map(_read_version, reversed(stored))), "")
    versions = [version for version in map(_read_version, new_lines) if version]
    if versions and versions[-1] == last_version:
        return []
    stored_set = set(stored)
    return [line for line in new_lines if line not in stored_set or _read_version(line)]


def _read_version(raw: bytes) -> str:
    value = decode_json(raw) if b'"version"' in raw else None
    return text_or_empty(value.get("version")) if isinstance(value, dict) else ""


def parse(lines: Iterable[Line], *, spawned: bool = False) -> ParsedLines:  # noqa: ARG001
    """Return one turn for each paragraph, and as links the paragraphs of each version in order.

    Headings, a date alone, and lines that only introduce a list are no turns. A paragraph that says nothing that lasts
    is a turn of a machine: it is found, and nobody vouches for it.
    """
    reader = _FileReader(TurnCollector())
    feed_lines(lines, partial(_read_line, reader), reader.collector)
    return reader.collector.to_parsed_lines()


def _read_line(reader: _FileReader, line: Line, raw: bytes) -> None:
    collector = reader.collector
    row = _line_decoder.decode(raw)
    if isinstance(row.text, str):
        identifier = text_or_empty(row.id).replace("\0", "")
        headings = [text_or_empty(heading) for heading in row.headings] if isinstance(row.headings, list) else []
        is_heading = row.text.lstrip().startswith("#")
        above = headings[:-1] if is_heading else headings
        words = "\n".join(filter(None, [" > ".join(above), row.text.strip()]))
        has_words = any(row_text.strip() and not _HEADING.match(row_text) for row_text in row.text.splitlines())
        if not has_words or host_memories.find_lead_in(row.text) or _DATE.fullmatch(row.text):
            collector.skip("heading")  # it stands above the words of each paragraph below it
            return
        if row.text.startswith("---") and row.text.rstrip().endswith("\n---"):
            note_type = _TYPE.search(row.text)
            reader.note_type = note_type[1] if note_type else ""
        author: Author = "machine" if _is_passing(reader, headings, row.text) else "agent"
        draft = TurnDraft("assistant", author, [line.span], [Part("text", words)], native_id=identifier or None)
        draft.stated_at = parse_instant(row.at)
        draft.link = (identifier, None) if identifier else None
        collector.drafts.append(draft)
    elif isinstance(row.version, str):
        changed_at, before = parse_instant(row.at), None
        for draft in collector.drafts:
            draft.stated_at = draft.stated_at or changed_at
        for identifier in row.paragraphs if isinstance(row.paragraphs, list) else ():
            if isinstance(identifier, str) and identifier != before:
                collector.links.append((identifier, before))
                before = identifier
        collector.skip("version")
    else:
        collector.title = text_or_empty(row.file) or collector.title
        collector.skip("header" if row.file is not None else "")


def _is_passing(reader: _FileReader, headings: list[str], paragraph: str) -> bool:
    """Return True if a paragraph of a host file says nothing that lasts. A team has reviewed each line of its notes.

    A note that tells of a project lasts where it carries a rule.
    """
    path = reader.collector.title
    runtime = host_memories.find_runtime(path)
    if not runtime or _TEAM_NOTES in path:
        return False
    if runtime != host_memories.MEMORY_RUNTIME:
        return bool(find_passing_sign(headings, paragraph, is_note=False))
    name = _read_title(path)
    sign = is_task_name(name) or find_passing_sign([name, *headings], paragraph)
    return bool(sign) or lacks_rule(reader.note_type, paragraph)


def _read_title(path: str) -> str:
    """Return the title that the name of a note is.

    >>> _read_title("/h/memory/LAST_SESSION.md")
    'LAST SESSION'
    """
    return Path(path).stem.replace("_", " ").replace("-", " ")
