"""Gemini CLI transcripts: `~/.gemini/tmp/<project>/chats/session-<time>-<id8>.json` or `.jsonl` -> turns.

Old versions write one JSON document, rewritten at each message: `emit` makes lines of it. New ones write lines,
repeating a message under the same id when its tool calls finish, and `{"$set": ...}` patches. Either way the last
line of an id wins, within a run here and across runs by native id. Calls carry their results, so one turn has both.
A patch restates the whole history at each resumption; what it says has lines of its own, but for the summary of a
compaction. Sub-agents write beside, in a folder named by their session.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import PurePath
from typing import Any

import msgspec

from perdure.capture.gemini import SUMMARY_REPLY
from perdure.formats.blocks import add_call, images_of, text_of
from perdure.formats.documents import compacted, encoded, parsed_object, raw_list
from perdure.formats.heads import document, nameless
from perdure.formats.lines import Draft, Gathered, compact, feed
from perdure.formats.speech import is_machine, spoken
from perdure.formats.stamps import clean_id, instant, total, words
from perdure.types import Json, Line, Origin, ParsedLines, Part

HEADER_KEYS = ("sessionId", "projectHash", "startTime", "kind", "directories")  # keys that never change in a session
_SPEAKERS = ("user", "gemini")


class _GeminiRow(msgspec.Struct, gc=False, rename="camel"):
    """A message, a header or a patch."""

    type: Any = None
    id: Any = None
    timestamp: Any = None
    content: Any = None
    thoughts: Any = None
    tool_calls: Any = None
    tokens: Any = None
    model: Any = None
    session_id: Any = None
    kind: Any = None
    summary: Any = None
    patch: Any = msgspec.field(default=None, name="$set")


_row = msgspec.json.Decoder(_GeminiRow)


@dataclass(slots=True)
class _GeminiRun:
    """What is known while the lines of one run go by."""

    gathered: Gathered
    spawned: bool
    by_id: dict[str, Draft] = field(default_factory=dict)


def identify(head: bytes, path: str) -> Origin:
    """Return the session that the header, or the document, names; a sub-agent's folder names its spawner."""
    header = document(head)
    if header is None:
        header = document(head.split(b"\n", 1)[0])
    header = header if isinstance(header, dict) else {}
    session = clean_id(header.get("sessionId")) or nameless(head)
    spawner = clean_id(PurePath(path).parent.name) if header.get("kind") == "subagent" else ""
    return Origin("gemini-cli", session, spawner or session, parent_session=spawner or None)


def emit(data: bytes, path: str) -> list[tuple[Origin, list[bytes]]]:
    """Split a chat document into a header line, one line per message and, where it has a title, a patch line."""
    whole = parsed_object(data)
    header = {key: whole[key] for key in HEADER_KEYS if key in whole}
    lines = [encoded(header), *map(compacted, raw_list(whole.get("messages")))]
    if "summary" in whole:
        lines.append(encoded({"$set": {"summary": whole["summary"]}}))
    return [(identify(lines[0], path), lines)]


def parse(lines: Iterable[Line], *, spawned: bool = False) -> ParsedLines:
    """Return the turns of one run. spawned: the source is a sub-agent's, so nobody typed into it."""
    run = _GeminiRun(Gathered(), spawned)
    feed(lines, partial(_take, run), run.gathered)
    return run.gathered.parsed()


def _take(run: _GeminiRun, line: Line, raw: bytes) -> None:
    """Read one line."""
    row = _row.decode(raw)
    if row.type in _SPEAKERS:
        _message(run, line, row)
    elif isinstance(row.patch, dict):
        _patch(run, line, row.patch)
    elif row.type is None and row.session_id is not None:
        run.spawned = run.spawned or row.kind == "subagent"
        run.gathered.title = words(row.summary) or run.gathered.title
        run.gathered.skip("header")
    else:
        run.gathered.skip(row.type)


def _message(run: _GeminiRun, line: Line, row: _GeminiRow) -> None:
    """Make a turn of a message, or replace what an earlier line of this id said."""
    key = clean_id(row.id)
    draft = run.by_id.get(key) if key else None
    if draft is None:
        draft = Draft("user", "machine", [], native_id=key or None)
        run.gathered.drafts.append(draft)
        if key:
            run.by_id[key] = draft
    draft.lines.append(line.span)
    draft.stated_at = instant(row.timestamp)
    draft.parts, draft.files, draft.skills = [], (), ()
    if row.type == "user":
        _asked(run, draft, row)
    else:
        _answer(run, draft, row)


def _asked(run: _GeminiRun, draft: Draft, row: _GeminiRow) -> None:
    """Fill a turn in the user's place; hook text that the client put behind the prompt counts as pasted."""
    draft.role, text = "user", text_of(row.content)
    pictures = images_of(row.content)
    typed = not run.spawned and not (is_machine(text) if text else not pictures)
    draft.author = "person" if typed else "machine"
    draft.parts = [*(spoken(text) if typed else [Part("text", text)]), *pictures]


def _answer(run: _GeminiRun, draft: Draft, row: _GeminiRow) -> None:
    """Fill the agent's turn: thoughts, words, calls with their results."""
    draft.role, draft.author, draft.model = "assistant", "agent", words(row.model)
    draft.n_tokens = total(row.tokens.get("total")) if isinstance(row.tokens, dict) else 0
    for thought in _objects(row.thoughts):
        text = ": ".join(filter(None, (words(thought.get("subject")), words(thought.get("description")))))
        draft.parts += [Part("thinking", text)] if text else []
    if text := text_of(row.content):
        draft.parts.append(Part("text", text))
    for call in _objects(row.tool_calls):
        name, call_id = words(call.get("name")), words(call.get("id"))
        add_call(draft, run.gathered.tools, name, call_id, call.get("args"))
        if "result" in call or "resultDisplay" in call:
            draft.parts += _result(call, name, call_id)


def _objects(value: Any) -> list[Json]:
    """Return the objects of a list; nothing for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _result(call: Json, name: str, call_id: str) -> list[Part]:
    """Return a call's result: the function's response, and any picture beside it."""
    texts, pictures = [], []
    result = call.get("result")
    for piece in [result] if isinstance(result, str) else _objects(result):
        response = piece.get("functionResponse") if isinstance(piece, dict) else None
        if isinstance(piece, str):
            texts.append(piece)
        elif isinstance(response, dict):
            texts.append(_response(response.get("response")))
        else:
            texts.append(text_of(piece))
            pictures += images_of([piece], call_id)
    text = "\n".join(filter(None, texts)) or words(call.get("resultDisplay"))
    failed = call.get("status") in ("error", "cancelled")
    return [Part("result", text, name, call_id, failed), *pictures]


def _response(response: Any) -> str:
    """Return the words of a function response: its only string where there is one, else all of it as JSON."""
    if isinstance(response, dict) and len(response) == 1:
        only = next(iter(response.values()))
        return only if isinstance(only, str) else compact(response)
    return words(response) or ("" if response is None else compact(response))


def _patch(run: _GeminiRun, line: Line, patch: Json) -> None:
    """Take the title of a patch; of a history that it restates, the summary of a compaction, once."""
    run.gathered.title = words(patch.get("summary")) or run.gathered.title
    said = [
        (clean_id(message.get("id")), text_of(message.get("content"))) for message in _objects(patch.get("messages"))
    ]
    key, text = next((old for old, new in pairwise(said) if new[1] == SUMMARY_REPLY), ("", ""))
    if not text or key in run.by_id:
        run.gathered.skip("$set")
        return
    draft = Draft("system", "machine", [line.span], native_id=key or None, is_summary=True)
    draft.parts = [Part("text", text)]
    run.gathered.drafts.append(draft)
    run.by_id[key] = draft  # a resumption repeats it under its id
