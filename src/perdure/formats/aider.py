"""Aider's chat history: `.aider.chat.history.md` in a project's folder -> turns.

One Markdown file holds all sessions of a folder, one after the other, and only grows. `emit` makes lines of it: a
header per session, then one per block. A line of the person begins with `#### `, one of the client with `> `, and
both end with two spaces; all else is the model's answer. The last block may still grow: its line comes again with the
same id. The file knows only when a session began, in local time without a zone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from pathlib import PurePath
from typing import Any

import msgspec

from perdure.capture.lines import Line
from perdure.errors import FormatFault
from perdure.formats.json_text import encode_object, read_objects
from perdure.formats.parsing import TurnCollector, TurnDraft, feed_lines
from perdure.formats.prompt_text import split_typed_text
from perdure.formats.values import clean_id, hash_to_id, parse_instant, text_or_empty
from perdure.regex import lazy_re
from perdure.types import Origin, ParsedLines, Part

FILE_NAME = ".aider.chat.history.md"
_SESSION_START = lazy_re(r"^# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[ \t]*$", re.M)
_MODEL = lazy_re(r"^(?:Main model|Model): (\S+)", re.M)
_EDITED = lazy_re(r"^Applied edit to (.+)$", re.M)
_ANSWERED = lazy_re(r"\(Y\)es/\(N\)o.*\[[^\]\n]+\]: \S*$")  # a question of the client with the person's one word
_COMMAND = lazy_re(r"/([a-z-]+)(?:\s+|$)")
_SPOKEN_COMMANDS = frozenset(("ask", "architect", "code", "context", "copy-context", "help", "editor", "edit"))
_PERSON, _CLIENT = "#### ", "> "


class _AiderLine(msgspec.Struct, gc=False):
    """A header or a block."""

    session: Any = None
    id: Any = None
    by: Any = None
    text: Any = None
    at: Any = None
    model: Any = None


_line_decoder = msgspec.json.Decoder(_AiderLine)


def is_history(first_bytes: bytes, name: str) -> bool:
    """Return True if this is a chat history of Aider: by its first words, or by its name."""
    return first_bytes.lstrip().startswith(b"# aider chat started at ") or PurePath(name).name == FILE_NAME


def identify(first_bytes: bytes, path: str) -> Origin:
    """Return the first session of a history, or that of an emitted header."""
    header = next(read_objects(first_bytes), {})
    if isinstance(named := header.get("session"), str) and clean_id(named):
        return Origin("aider", clean_id(named), clean_id(named), cwd=text_or_empty(header.get("cwd")) or None)
    match = _SESSION_START.search(first_bytes.decode("utf-8", "replace"))
    return _make_origin(match[1] if match else "", path, 1)


def _make_origin(started: str, path: str, number: int) -> Origin:
    """Return a session's origin: its beginning and its folder name it; `number` tells those of one second apart."""
    folder = str(PurePath(path.replace("\0", "")).parent) if path else ""
    beginning = started.replace(" ", "T").replace(":", "-") or "unnamed"
    session = f"{beginning}-{hash_to_id(folder.encode('utf-8', 'replace'))[7:15]}"
    session += f"~{number}" if number > 1 else ""
    return Origin("aider", session, session, cwd=folder if folder.startswith("/") else None)


def emit(data: bytes, path: str) -> list[tuple[Origin, list[bytes]]]:
    """Return the lines of each session, in the order of the file. What stands before the first one belongs to none."""
    text = data[: data.rfind(b"\n") + 1].decode("utf-8", "replace").replace("\r\n", "\n")  # whole lines
    starts = list(_SESSION_START.finditer(text))
    if not starts:
        raise FormatFault(f"{path}: no history of Aider")
    ends = [match.start() for match in starts[1:]] + [len(text)]
    sessions: dict[str, tuple[Origin, list[bytes]]] = {}
    n_by_start: dict[str, int] = {}
    for start, end in zip(starts, ends, strict=True):
        n_by_start[start[1]] = n_by_start.get(start[1], 0) + 1
        origin = _make_origin(start[1], path, n_by_start[start[1]])
        header = {"session": origin.session, "at": start[1], "cwd": origin.cwd}
        blocks = _emit_blocks(text[start.end() : end], origin.session, start[1])
        sessions[origin.session] = (origin, [encode_object(header), *blocks])
    return list(sessions.values())


def _emit_blocks(text: str, session: str, started: str) -> Iterator[bytes]:
    """Yield a line for each block of a session."""
    model, has_words = "", False
    for number, (speaker, words) in enumerate(_split_blocks(text)):
        is_banner = speaker == "client" and not has_words
        has_words = has_words or speaker != "client"
        model = match[1] if speaker == "client" and (match := _MODEL.search(words)) else model
        block = {"id": f"{session}#{number}", "by": "banner" if is_banner else speaker, "text": words, "at": started}
        yield encode_object(block | ({"model": model} if speaker == "agent" and model else {}))


def _split_blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield (speaker, words) of each block: `person`, `client` or `agent`; blocks without words are left out.

    >>> list(_split_blocks("\\n#### why?  \\n\\nBecause.\\n\\n> Tokens: 1  \\n"))
    [('person', 'why?'), ('agent', 'Because.'), ('client', 'Tokens: 1')]
    """
    for speaker, rows in groupby(text.split("\n"), key=_get_speaker):
        n_mark = {"person": len(_PERSON), "client": len(_CLIENT), "agent": 0}[speaker]
        words = "\n".join(row[n_mark:].rstrip() if n_mark else row for row in rows).strip("\n")
        if words.strip():
            yield speaker, words


def _get_speaker(row: str) -> str:
    if not row.endswith("  "):
        return "agent"
    return "person" if row.startswith(_PERSON) else "client" if row.startswith(">") else "agent"


def parse(lines: Iterable[Line], *, spawned: bool = False) -> ParsedLines:
    """Return the turns of one run. spawned: nobody typed into it."""
    collector = TurnCollector()
    feed_lines(lines, partial(_read_line, collector, {}, spawned), collector)
    return collector.to_parsed_lines()


def _read_line(
    collector: TurnCollector, drafts_by_id: dict[str, TurnDraft], spawned: bool, line: Line, raw: bytes
) -> None:
    """Read one line; if a block occurs twice, the later line wins. The client's words before any prompt are counted."""
    row = _line_decoder.decode(raw)
    block_id, text = clean_id(row.id), text_or_empty(row.text)
    if row.by not in ("person", "agent", "client") or not text:
        collector.skip("header" if row.session is not None else row.by)
        return
    draft = drafts_by_id.get(block_id)
    if draft is None:
        draft = TurnDraft("user", "machine", [], native_id=block_id or None)
        collector.drafts.append(draft)
        if block_id:
            drafts_by_id[block_id] = draft
    draft.lines.append(line.span)
    draft.stated_at, draft.files = parse_instant(row.at), ()
    if row.by == "agent":
        draft.role, draft.author, draft.model = "assistant", "agent", text_or_empty(row.model)
        draft.parts = [Part("text", text)]
    elif row.by == "client":
        draft.role, draft.author, draft.parts = "tool", "tool", [Part("result", text, "aider")]
        draft.files = tuple(_EDITED.findall(text))
    else:
        is_typed = not spawned and not _is_for_client(text)
        draft.role, draft.author = "user", "person" if is_typed else "machine"
        draft.parts = split_typed_text(text) if is_typed else [Part("text", text)]


def _is_for_client(text: str) -> bool:
    """Return True for a command of the client, or for its question with the answer behind.

    >>> _is_for_client("/add a.py"), _is_for_client("/ask why is it slow?")
    (True, False)
    """
    command = _COMMAND.match(text)
    return bool(_ANSWERED.search(text)) or (command is not None and command[1] not in _SPOKEN_COMMANDS)
