"""Prompt histories of clients -> turns: the words that a person typed, without the answers.

A client deletes old transcripts and keeps its prompt history, so for a deleted session these prompts are all that
is left. One file holds the prompts of all sessions; `emit` gives each session its lines, as they are written.

Claude Code, `~/.claude/history.jsonl` (2.0 of September 2025 to 2.1.330): `display`, `pastedContents`, `timestamp` in
ms, `project`; `sessionId` came later, so older prompts become one session for each project and day. A pasted text of
at most 1,024 characters is in `pastedContents`; of a longer one only a hash, and the words are not there.
https://github.com/anthropics/claude-code/issues/41263
Codex, `~/.codex/history.jsonl` (to 0.169.0): `session_id`, `ts` in seconds, `text`. It knows no folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import msgspec

from perdure.capture.events import is_command
from perdure.capture.lines import Line
from perdure.formats.json_text import decode_json, read_objects
from perdure.formats.parsing import TurnCollector, TurnDraft, feed_lines
from perdure.formats.prompt_text import BUILT_IN_COMMANDS, is_machine_text, split_typed_text
from perdure.formats.values import clean_id, hash_to_id, parse_instant, text_or_empty
from perdure.regex import lazy_re
from perdure.types import OTHER_LINES, PROMPTS_ONLY, Author, Json, Origin, ParsedLines, Part

CLAUDE_RUNTIME, CODEX_RUNTIME = "claude-code" + PROMPTS_ONLY, "codex" + PROMPTS_ONLY
_PASTED_MARK = lazy_re(r"\[Pasted text #(\d{1,6})[^\]\n]{0,80}\]")


class _Entry(msgspec.Struct, gc=False):
    """A line of either history."""

    display: Any = None
    pasted: Any = msgspec.field(default=None, name="pastedContents")
    timestamp: Any = None
    text: Any = None
    ts: Any = None


_entry_decoder = msgspec.json.Decoder(_Entry)


def is_claude_prompt(line: Json) -> bool:
    """Return True if Claude Code wrote this line into its prompt history."""
    return "display" in line and "timestamp" in line and ("project" in line or "pastedContents" in line)


def is_codex_prompt(line: Json) -> bool:
    """Return True if Codex wrote this line into its prompt history."""
    return {"session_id", "ts", "text"} <= line.keys()


def identify(first_bytes: bytes, path: str) -> Origin:  # noqa: ARG001 - every format is asked alike
    """Return the session of the first prompt."""
    return _find_session(next(read_objects(first_bytes), {}), CLAUDE_RUNTIME)


def emit(data: bytes, path: str) -> list[tuple[Origin, list[bytes]]]:  # noqa: ARG001
    """Return the lines of each session, in the order of the file. An unfinished last line waits until it is whole."""
    sessions: dict[tuple[str, str], tuple[Origin, list[bytes]]] = {}
    runtime = identify(data, "").runtime
    *rows, last_row = data.split(b"\n")
    for raw in [*rows, *([last_row] if decode_json(last_row) is not None else [])]:
        if raw.strip():
            value = decode_json(raw)
            origin = _find_session(value if isinstance(value, dict) else {}, runtime)
            sessions.setdefault((origin.runtime, origin.session), (origin, []))[1].append(raw)
    return list(sessions.values())


def _find_session(line: Json, default_runtime: str) -> Origin:
    """Return the session of a line."""
    if is_codex_prompt(line):
        session = clean_id(line["session_id"]) or OTHER_LINES
        return Origin(CODEX_RUNTIME, session, session)
    if not is_claude_prompt(line):
        return Origin(default_runtime, OTHER_LINES, OTHER_LINES)
    folder, said_at = text_or_empty(line.get("project")).replace("\0", ""), parse_instant(line["timestamp"])
    day = f"{said_at:%Y-%m-%d}-{hash_to_id(folder.encode('utf-8', 'replace'))[7:]}" if said_at else OTHER_LINES
    session = clean_id(line.get("sessionId")) or day
    return Origin(CLAUDE_RUNTIME, session, session, cwd=folder or None)


def parse(lines: Iterable[Line], *, spawned: bool = False) -> ParsedLines:  # noqa: ARG001
    """Return one turn for each prompt."""
    collector = TurnCollector()
    feed_lines(lines, partial(_read_line, collector), collector)
    return collector.to_parsed_lines()


def _read_line(collector: TurnCollector, line: Line, raw: bytes) -> None:
    entry = _entry_decoder.decode(raw)
    prompt = text_or_empty(entry.display) or text_or_empty(entry.text)
    if not prompt.strip():
        collector.skip("no prompt")
        return
    is_for_client = is_command(prompt) and BUILT_IN_COMMANDS.fullmatch(prompt.split()[0][1:])
    author: Author = "machine" if is_for_client or is_machine_text(prompt) else "person"
    draft = TurnDraft("user", author, [line.span], stated_at=parse_instant(entry.timestamp or entry.ts))
    draft.native_id = hash_to_id(raw)
    pasted_texts = entry.pasted if isinstance(entry.pasted, dict) else {}
    draft.parts = list(_add_pasted(split_typed_text(prompt), pasted_texts))
    collector.drafts.append(draft)


def _add_pasted(parts: Iterable[Part], pasted_texts: Json) -> Iterator[Part]:
    """Yield the parts of a prompt; a mark for a pasted text is followed by the words, where the history has them."""
    for part in parts:
        yield part
        marks: list[re.Match[str]] = list(_PASTED_MARK.finditer(part.text)) if part.kind == "pasted" else []
        for mark in marks:
            pasted = pasted_texts.get(mark[1])
            words = text_or_empty(pasted.get("content")) if isinstance(pasted, dict) else ""
            if words.strip():
                yield Part("pasted", words)
