"""Markdown notes -> turns: one per section, in the words of the person who wrote them.

A note is rewritten freely, so `emit` makes one line per section. Its native id is made from the note's
path, the headings above it and its content: an edited section becomes a new turn, an unchanged one stays
the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from posixpath import normpath
from typing import Any

import msgspec

from perdure.capture.lines import Line
from perdure.formats.json_text import encode_object
from perdure.formats.parsing import TurnCollector, TurnDraft, feed_lines
from perdure.formats.prompt_text import split_typed_text
from perdure.formats.values import hash_to_id, parse_instant, text_or_empty
from perdure.regex import lazy_re
from perdure.types import Origin, ParsedLines

_HEADING = lazy_re(r" {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*\r?")
_FENCE = lazy_re(r" {0,3}(```|~~~)")
_DATE = lazy_re(r"\b(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?))?\b")
_FRONT_KEY = lazy_re(r"^(title|date|created|updated):[ \t]*[\"']?(.*?)[\"']?[ \t]*$", re.M)


class _NoteLine(msgspec.Struct, gc=False):
    """A header or a section."""

    id: Any = None
    heading: Any = None
    text: Any = None
    at: Any = None
    note: Any = None
    title: Any = None


_line_decoder = msgspec.json.Decoder(_NoteLine)


def identify(first_bytes: bytes, path: str) -> Origin:
    """Return the note's session: its normalised path, or an id made from its content when it has no path."""
    session = normalize_note_path(path) or hash_to_id(first_bytes)
    return Origin("notes", session, session)


def normalize_note_path(path: str) -> str:
    """Return a path as a name: forward slashes, no `.` and `..` steps, no control characters.

    >>> normalize_note_path("notes/./a/../Ideas.md")
    'notes/Ideas.md'
    """
    printable = "".join(c for c in path if c.isprintable()).replace("\\", "/").strip()
    return normpath(printable) if printable else ""


def emit(data: bytes, path: str) -> list[tuple[Origin, list[bytes]]]:
    """Split a note into a header line and one line per section that has content."""
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    origin = identify(data, path)
    front_matter, body = _split_front_matter(text)
    lines = [encode_object({"note": origin.session})]
    if front_matter.get("title"):
        lines.append(encode_object({"title": front_matter["title"]}))
    note_date = front_matter.get("date") or front_matter.get("created") or ""
    section_ids = set()
    for headings, section in _split_sections(body):
        section_id = _make_section_id(origin.session, headings, section)
        stated_date = next(
            (stated_date for h in reversed(headings) if (stated_date := _find_date(h))), _find_date(note_date)
        )
        if section_id not in section_ids:
            section_ids.add(section_id)
            lines.append(encode_object({"id": section_id, "heading": headings, "at": stated_date, "text": section}))
    return [(origin, lines)]


def _make_section_id(session: str, headings: list[str], section: str) -> str:
    """Return the id of a section: it changes with the headings above it and with its content."""
    heading_path = "\0".join([session, *headings])
    return f"{hash_to_id(heading_path.encode())}@{hash_to_id(section.encode())[7:]}"


def _split_front_matter(text: str) -> tuple[dict[str, str], str]:
    """Return the title and dates between leading `---` lines, and the text after them."""
    if not text.startswith("---\n"):
        return {}, text
    end = text.find("\n---", 3)
    if end < 0:
        return {}, text
    return dict(_FRONT_KEY.findall(text[4:end])), text[end + 4 :].partition("\n")[2]


def _split_sections(body: str) -> Iterator[tuple[list[str], str]]:
    """Yield (headings from the top, text with its own heading) of each section; code fences hold no headings."""
    heading_path: list[tuple[int, str]] = []
    rows: list[str] = []
    fence = ""
    for row in body.split("\n"):
        mark = _FENCE.match(row)
        if mark and (not fence or fence == mark[1]):
            fence = "" if fence else mark[1]
        heading = None if fence else _HEADING.fullmatch(row)
        if heading:
            yield from _finish_section(heading_path, rows)
            level = len(heading[1])
            heading_path = [*(p for p in heading_path if p[0] < level), (level, heading[2])]
            rows = []
        rows.append(row)
    yield from _finish_section(heading_path, rows)


def _finish_section(heading_path: list[tuple[int, str]], rows: list[str]) -> Iterator[tuple[list[str], str]]:
    """Yield a section unless it is empty or only a heading."""
    text = "\n".join(rows).strip()
    content = text.partition("\n")[2].strip() if heading_path else text
    if content:
        yield [title for _, title in heading_path], text


def _find_date(text: str) -> str | None:
    """Return the first date in a heading or a front matter value, in ISO form."""
    match = _DATE.search(text)
    return "T".join(filter(None, match.groups())) if match else None


def parse(lines: Iterable[Line], *, spawned: bool = False) -> ParsedLines:  # noqa: ARG001 - every format is asked alike
    """Return the turns of one run of emitted lines."""
    collector = TurnCollector()
    feed_lines(lines, partial(_read_line, collector), collector)
    return collector.to_parsed_lines()


def _read_line(collector: TurnCollector, line: Line, raw: bytes) -> None:
    """Read one line."""
    row = _line_decoder.decode(raw)
    if not isinstance(row.text, str):
        collector.title = text_or_empty(row.title) or collector.title
        collector.skip("header" if row.note is not None else "title" if row.title is not None else "")
        return
    draft = TurnDraft("user", "person", [line.span], stated_at=parse_instant(row.at))
    draft.native_id = text_or_empty(row.id).replace("\0", "") or None
    draft.parts = split_typed_text(row.text)
    collector.drafts.append(draft)
