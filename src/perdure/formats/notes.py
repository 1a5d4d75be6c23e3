"""Markdown notes -> turns: one per section, in the words of the person who keeps them.

A note is rewritten at will, so `emit` makes one line per section. Its native id is made of the note's path, the
headings above it and its content: an edited section comes as a new turn, an untouched one stays the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from posixpath import normpath
from typing import Any

import msgspec

from perdure.formats.documents import encoded
from perdure.formats.lines import Draft, Gathered, feed
from perdure.formats.speech import spoken
from perdure.formats.stamps import hash_to_id, instant, words
from perdure.regex import lazy_re
from perdure.types import Line, Origin, ParsedLines

_HEADING = lazy_re(r" {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*\r?")
_FENCE = lazy_re(r" {0,3}(```|~~~)")
_DATE = lazy_re(r"\b(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?))?\b")
_FRONT_KEY = lazy_re(r"^(title|date|created|updated):[ \t]*[\"']?(.*?)[\"']?[ \t]*$", re.M)


class _NoteRow(msgspec.Struct, gc=False):
    """A header or a section."""

    id: Any = None
    heading: Any = None
    text: Any = None
    at: Any = None
    note: Any = None
    title: Any = None


_row = msgspec.json.Decoder(_NoteRow)


def identify(head: bytes, path: str) -> Origin:
    """Return the note's session: its normalised path, or an id made from its content when it has no path."""
    session = note_of(path) or hash_to_id(head)
    return Origin("notes", session, session)


def note_of(path: str) -> str:
    """Return a path as a name: forward slashes, no `.` and `..` steps, no control characters.

    >>> note_of("notes/./a/../Ideas.md")
    'notes/Ideas.md'
    """
    clean = "".join(c for c in path if c.isprintable()).replace("\\", "/").strip()
    return normpath(clean) if clean else ""


def emit(data: bytes, path: str) -> list[tuple[Origin, list[bytes]]]:
    """Split a note into a header line and one line per section that says something."""
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    origin = identify(data, path)
    front, body = _front_matter(text)
    lines = [encoded({"note": origin.session})]
    if front.get("title"):
        lines.append(encoded({"title": front["title"]}))
    day = front.get("date") or front.get("created") or ""
    seen = set()
    for headings, section in _sections(body):
        key = _section_id(origin.session, headings, section)
        at = next((at for h in reversed(headings) if (at := _date(h))), _date(day))
        if key not in seen:
            seen.add(key)
            lines.append(encoded({"id": key, "heading": headings, "at": at, "text": section}))
    return [(origin, lines)]


def _section_id(session: str, headings: list[str], section: str) -> str:
    """Return the id of a section: it changes with its place among the headings and with its content."""
    place = "\0".join([session, *headings])
    return f"{hash_to_id(place.encode())}@{hash_to_id(section.encode())[7:]}"


def _front_matter(text: str) -> tuple[dict[str, str], str]:
    """Return the title and dates between leading `---` lines, and the text behind them."""
    if not text.startswith("---\n"):
        return {}, text
    end = text.find("\n---", 3)
    if end < 0:
        return {}, text
    return dict(_FRONT_KEY.findall(text[4:end])), text[end + 4 :].partition("\n")[2]


def _sections(body: str) -> Iterator[tuple[list[str], str]]:
    """Yield (headings from the top, text with its own heading) of each section; headings in code fences are none."""
    path: list[tuple[int, str]] = []
    rows: list[str] = []
    fence = ""
    for row in body.split("\n"):
        mark = _FENCE.match(row)
        if mark and (not fence or fence == mark[1]):
            fence = "" if fence else mark[1]
        heading = None if fence else _HEADING.fullmatch(row)
        if heading:
            yield from _section(path, rows)
            level = len(heading[1])
            path = [*(p for p in path if p[0] < level), (level, heading[2])]
            rows = []
        rows.append(row)
    yield from _section(path, rows)


def _section(path: list[tuple[int, str]], rows: list[str]) -> Iterator[tuple[list[str], str]]:
    """Yield a section unless it is empty or a heading alone."""
    text = "\n".join(rows).strip()
    said = text.partition("\n")[2].strip() if path else text
    if said:
        yield [title for _, title in path], text


def _date(text: str) -> str | None:
    """Return the first date in a heading or a front matter value, in ISO form."""
    match = _DATE.search(text)
    return "T".join(filter(None, match.groups())) if match else None


def parse(lines: Iterable[Line], *, spawned: bool = False) -> ParsedLines:  # noqa: ARG001 - every format is asked alike
    """Return the turns of one run of emitted lines."""
    gathered = Gathered()
    feed(lines, partial(_take, gathered), gathered)
    return gathered.parsed()


def _take(gathered: Gathered, line: Line, raw: bytes) -> None:
    """Read one line."""
    row = _row.decode(raw)
    if not isinstance(row.text, str):
        gathered.title = words(row.title) or gathered.title
        gathered.skip("header" if row.note is not None else "title" if row.title is not None else "")
        return
    draft = Draft("user", "person", [line.span], stated_at=instant(row.at))
    draft.native_id = words(row.id).replace("\0", "") or None
    draft.parts = spoken(row.text)
    gathered.drafts.append(draft)
