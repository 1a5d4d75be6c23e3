"""OpenCode sessions: `~/.local/share/opencode/opencode.db`, or the output of `opencode export <id>` -> turns.

Neither is append-only, so `emit` makes lines: a header per session, then `{"info", "parts"}` per message
as the export writes it. A message that changed is a new line with the same native id, even if it returns
to an earlier state: the last line counts. Sub-agents are sessions with a parent; each of their lines says
so, because text in the user's place there is a machine's. A fork copies messages under new ids without
naming its origin: a line from a database names the message that it is a copy of.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from perdure.capture.lines import Line
from perdure.formats.json_text import (
    RawObject,
    compact_line,
    complete_json,
    decode_json,
    decode_raw,
    encode_object,
    list_fields,
    list_items,
    make_session_id,
    parse_object,
)
from perdure.formats.parsing import UNREADABLE_ERRORS, TurnCollector, TurnDraft, feed_lines
from perdure.formats.parts import add_call, add_result, build_image_part
from perdure.formats.prompt_text import is_machine_text, split_typed_text
from perdure.formats.store import (
    SQLITE_MAGIC,
    OpenCodeSession,
    decode_text,
    find_copied_messages,
    list_messages,
    list_parts,
    list_session_tree,
    list_sessions,
    open_database,
)
from perdure.formats.values import clean_id, parse_instant, sum_token_counts, text_or_empty
from perdure.regex import lazy_re
from perdure.sqlite import apsw
from perdure.types import Json, Origin, ParsedLines, Part

_DEFAULT_TITLE = lazy_re(r"(?:New|Child) session - \d{4}-\d\d-\d\dT")  # until a model gives the session a title
_HEADER_KEYS = ("id", "parentID", "directory")  # keys that never change in a session


class _OpenCodeLine(msgspec.Struct, gc=False):
    """A header, a title or a message."""

    info: Any = None
    parts: Any = None
    spawned: Any = False
    copy_of: Any = None
    session: Any = None
    title: Any = None


class _OpenCodeLineSubject(msgspec.Struct, gc=False):
    """The fields that say which message, title or session a line is about."""

    info: Any = None
    copy_of: Any = None
    session: Any = None
    title: Any = None


_line_decoder = msgspec.json.Decoder(_OpenCodeLine)
_subject_decoder = msgspec.json.Decoder(_OpenCodeLineSubject)
_REPEAT_COUNT = re.compile(rb',"again":[0-9]+\}\Z')


def identify(first_bytes: bytes, path: str) -> Origin:  # noqa: ARG001 - every format is asked alike
    """Return the session of an export or of an emitted header; a database holds many: use the origins from `emit`."""
    first_line = first_bytes.split(b"\n", 1)[0]
    fields = decode_json(first_line) or complete_json(first_bytes)
    info = (fields.get("session") or fields.get("info")) if isinstance(fields, dict) else None
    return _make_origin(info if isinstance(info, dict) else {}, first_bytes)


def _make_origin(info: Json, first_bytes: bytes) -> Origin:
    """Return the origin of a session's own record."""
    session = clean_id(info.get("id")) or make_session_id(first_bytes)
    parent = clean_id(info.get("parentID")) or None
    cwd = text_or_empty(info.get("directory")) or None
    return Origin("opencode", session, parent or session, parent_session=parent, cwd=cwd)


def emit(data: bytes | Path, path: str) -> list[tuple[Origin, list[bytes]]]:  # noqa: ARG001 - every format is asked alike
    """Split a database, or one export, into sessions of lines, each session's oldest message first."""
    if _is_database(data):
        return list(_emit_database(data))
    fields = parse_object(data.read_bytes() if isinstance(data, Path) else data)
    return [_emit_lines(list_fields(fields.get("info")), list_items(fields.get("messages")))]


def emit_session(path: Path, session: str) -> list[tuple[Origin, list[bytes]]]:
    """Return the lines that `emit` makes for one session in a database and for the sessions spawned below it.

    An export holds one session: it is returned if it is this one.
    """
    if _is_database(path):
        return list(_emit_database(path, session))
    return [emitted for emitted in emit(path, str(path)) if emitted[0].session == session]


def _is_database(data: bytes | Path) -> bool:
    """Return True if these are the bytes, or this is the path, of an SQLite database."""
    if isinstance(data, bytes):
        return data.startswith(SQLITE_MAGIC)
    with data.open("rb") as file:
        return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC


def _emit_lines(info: RawObject, messages: Iterable[msgspec.Raw | bytes]) -> tuple[Origin, list[bytes]]:
    """Return one session as its origin and its lines."""
    header = encode_object({"session": {key: info[key] for key in _HEADER_KEYS if key in info}})
    origin = identify(header, "")
    lines = [header]
    if isinstance(title := decode_raw(info.get("title")), str):
        lines.append(encode_object({"title": title}))
    for message in messages:
        if origin.parent_session:
            lines.append(encode_object({**list_fields(message), "spawned": True}))
        else:
            lines.append(compact_line(message))
    return origin, lines


def _emit_database(data: bytes | Path, session: str | None = None) -> Iterator[tuple[Origin, list[bytes]]]:
    """Yield each session of a database, or one session and those below it."""
    with open_database(data) as connection:
        for database_session in (
            list_sessions(connection) if session is None else list_session_tree(connection, session)
        ):
            yield _emit_lines(
                _prepend_fields(database_session.fields, b"{}"), _export_messages(connection, database_session)
            )


def _export_messages(connection: apsw.Connection, session: OpenCodeSession) -> list[bytes]:
    """Return the messages of a session of a database, as an export writes them."""
    session_field = {"sessionID": decode_text(session.key)}
    parts: dict[bytes, list[RawObject]] = {}
    for message_id, key, body in list_parts(connection, session.key):
        ids = {"id": decode_text(key), "messageID": decode_text(message_id)}
        parts.setdefault(message_id, []).append(_prepend_fields(ids | session_field, body))
    originals = find_copied_messages(connection, session.key)
    return [
        encode_object(
            {"info": _prepend_fields({"id": decode_text(key)} | session_field, body), "parts": parts.get(key, [])}
            | ({"copy_of": decode_text(originals[key])} if key in originals else {})
        )
        for key, body in list_messages(connection, session.key)
    ]


def _prepend_fields(fields: dict[str, str], body: bytes | None) -> RawObject:
    """Return these fields, followed by the undecoded fields of a JSON object."""
    return {
        **{k: msgspec.Raw(msgspec.json.encode(v)) for k, v in fields.items()},
        **list_fields(decode_text(body).encode()),
    }


def list_new_lines(stored_lines: Iterable[bytes], lines: Iterable[bytes], *, is_live: bool) -> list[bytes]:
    """Return the lines that a session lacks, in order, compared with its stored lines.

    is_live: the lines are the current state. A line that is stored, but is not the last one of its subject,
    is then a state that returned: the new line counts how often. A message that was found to be a copy stays
    one after the original is gone.
    """
    n_stored: Counter[bytes] = Counter()
    last_lines: dict[str, bytes] = {}
    copy_fields: dict[str, bytes] = {}
    for line in stored_lines:
        plain_line = _REPEAT_COUNT.sub(b"}", line)
        subject, copy_of = _identify_subject(plain_line)
        last_lines[subject], copy_fields[subject] = plain_line, copy_of or copy_fields.get(subject, b"")
        n_stored[plain_line] += 1
    new_lines = []
    for line in dict.fromkeys(lines):
        subject, copy_of = _identify_subject(line)
        line = line if copy_of else line[:-1] + copy_fields[subject] + b"}" if copy_fields.get(subject) else line
        if last_lines.get(subject) != line if is_live else line not in n_stored:
            last_lines[subject] = line
            new_lines.append(line[:-1] + b',"again":%d}' % n_stored[line] if n_stored[line] else line)
    return new_lines


def _identify_subject(line: bytes) -> tuple[str, bytes]:
    """Return (subject, copy field) of a line.

    The subject is a message, the title or the session; the last line of each subject counts.
    """
    try:
        subject = _subject_decoder.decode(line)
    except UNREADABLE_ERRORS:
        return f"line {line!r}", b""
    if isinstance(subject.info, dict) and clean_id(subject.info.get("id")):
        copy_of = b',"copy_of":' + msgspec.json.encode(subject.copy_of) if subject.copy_of else b""
        return f"message {clean_id(subject.info.get('id'))}", copy_of
    return "title" if subject.title is not None else "session" if subject.session is not None else f"line {line!r}", b""


def parse(lines: Iterable[Line], *, spawned: bool = False) -> ParsedLines:
    """Return the turns of one run of emitted lines; if a message occurs twice, the later line wins."""
    collector = TurnCollector()
    feed_lines(lines, partial(_read_line, collector, {}, spawned), collector)
    return collector.to_parsed_lines()


def _read_line(
    collector: TurnCollector, drafts_by_id: dict[str, TurnDraft], spawned: bool, line: Line, raw: bytes
) -> None:
    """Read one line."""
    row = _line_decoder.decode(raw)
    if isinstance(row.info, dict) and row.info.get("role") in ("user", "assistant"):
        message_id = clean_id(row.info.get("id"))
        draft = drafts_by_id.get(message_id)
        if draft is None:
            draft = TurnDraft("user", "machine", [], native_id=clean_id(row.copy_of) or message_id or None)
            collector.drafts.append(draft)
            if message_id:
                drafts_by_id[message_id] = draft
        draft.lines.append(line.span)
        _fill_draft(collector, draft, row, spawned or row.spawned is True)
    else:
        title = text_or_empty(row.title)
        collector.title = collector.title if _DEFAULT_TITLE.match(title) else title or collector.title
        label = "header" if row.session is not None else "title" if row.title is not None else None
        collector.skip(label or "message", None if label else _read_role(row.info))


def _read_role(info: Any) -> Any:
    """Return the role of a message that is neither a user's nor an assistant's."""
    return info.get("role") if isinstance(info, dict) else None


def _fill_draft(collector: TurnCollector, draft: TurnDraft, row: _OpenCodeLine, spawned: bool) -> None:
    """Fill a turn from a message and its parts."""
    info = row.info
    times = info.get("time")
    draft.stated_at = parse_instant(times.get("created")) if isinstance(times, dict) else None
    draft.parts, draft.files, draft.skills = [], (), ()
    draft.role = info["role"]
    parts = [part for part in row.parts if isinstance(part, dict)] if isinstance(row.parts, list) else []
    if draft.role == "user":
        is_typed = not spawned and any(map(_is_typed_part, parts))
        draft.author = "person" if is_typed else "machine"
        draft.is_summary = False
        for part in parts:
            draft.parts += _convert_user_part(part, is_typed)
        return
    draft.author = "agent"
    draft.model = text_or_empty(info.get("modelID"))
    draft.is_summary = info.get("summary") is True
    draft.n_tokens = _count_tokens(info.get("tokens"))
    for part in parts:
        _add_part(collector, draft, part)


def _is_typed_part(part: Json) -> bool:
    """Return True if a part of a user message was typed, not added by the client or a plugin."""
    if part.get("type") == "file":
        return True
    text = text_or_empty(part.get("text"))
    return part.get("type") == "text" and part.get("synthetic") is not True and bool(text) and not is_machine_text(text)


def _convert_user_part(part: Json, is_typed: bool) -> list[Part]:
    """Return the parts of one part of a user message."""
    kind, text = part.get("type"), text_or_empty(part.get("text"))
    if kind == "file":
        return [_convert_file(part)]
    if kind == "subtask":
        text = text_or_empty(part.get("prompt"))
    if not text:
        return []
    if not is_typed:
        return [Part("text", text)]
    return split_typed_text(text) if kind == "subtask" or _is_typed_part(part) else [Part("pasted", text)]


def _convert_file(part: Json) -> Part:
    """Return an attached file as a part: its type, its name and its size, never its bytes."""
    media, url = text_or_empty(part.get("mime")) or "file", text_or_empty(part.get("url"))
    name = text_or_empty(part.get("filename"))
    return (
        build_image_part(media, url)
        if url.startswith("data:")
        else Part("image", f"[{media} {name or url[:500]}]", media)
    )


def _count_tokens(tokens: Any) -> int:
    """Return input + output + reasoning + cache tokens."""
    if not isinstance(tokens, dict):
        return 0
    cache = tokens.get("cache")
    n_cached = sum_token_counts(*cache.values()) if isinstance(cache, dict) else 0
    return n_cached + sum_token_counts(*map(tokens.get, ("input", "output", "reasoning")))


def _add_part(collector: TurnCollector, draft: TurnDraft, part: Json) -> None:
    """Add one part of an assistant message; steps, snapshots and patches have no text and are left out."""
    kind, text = part.get("type"), text_or_empty(part.get("text"))
    if kind == "text" and text:
        draft.parts.append(Part("text", text))
    elif kind == "reasoning" and text:
        draft.parts.append(Part("thinking", text))
    elif kind == "file":
        draft.parts.append(_convert_file(part))
    elif kind == "tool":
        name, call_id, state = text_or_empty(part.get("tool")), text_or_empty(part.get("callID")), part.get("state")
        state = state if isinstance(state, dict) else {}
        add_call(draft, collector.tool_names, name, call_id, state.get("input"))
        if state.get("status") in ("completed", "error"):
            was_refused = state["status"] == "error"
            output, metadata = state.get("error" if was_refused else "output"), state.get("metadata")
            exit_code = metadata.get("exit") if isinstance(metadata, dict) else 0
            add_result(draft, collector.tool_names, call_id, output, failed=was_refused or exit_code not in (0, None))
