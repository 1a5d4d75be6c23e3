"""OpenCode sessions: `~/.local/share/opencode/opencode.db`, or the output of `opencode export <id>` -> turns.

Neither is append-only, so `emit` makes lines: a header per session, then `{"info", "parts"}` per message as the
export writes it. A message that changed is a new line with the same native id, also where it is again what it was: the
last line stands. Sub-agents are sessions with a
parent; each of their lines says so, because what stands there in the user's place is a machine's. A fork copies
messages under new ids without naming its origin: a line from a database says of what message it is a copy.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import msgspec

from perdure.formats.blocks import add_call, add_result, image
from perdure.formats.documents import RawObject, compacted, encoded, parsed_object, raw_list, raw_object, value
from perdure.formats.heads import completed, loaded, nameless
from perdure.formats.lines import UNREADABLE, Draft, Gathered, feed
from perdure.formats.speech import is_machine, spoken
from perdure.formats.stamps import clean_id, instant, total, words
from perdure.formats.store import (
    SQLITE_MAGIC,
    Session,
    decoded,
    opencode_messages,
    opencode_originals,
    opencode_parts,
    opencode_sessions,
    opencode_tree,
    opened,
)
from perdure.types import Json, Line, Origin, ParsedLines, Part

_HEADER_KEYS = ("id", "parentID", "directory")  # keys that never change in a session


class _OpenCodeRow(msgspec.Struct, gc=False):
    """A header, a title or a message."""

    info: Any = None
    parts: Any = None
    spawned: Any = False
    copy_of: Any = None
    session: Any = None
    title: Any = None


class _OpenCodeHead(msgspec.Struct, gc=False):
    """What a line is about."""

    info: Any = None
    copy_of: Any = None
    session: Any = None
    title: Any = None


_row = msgspec.json.Decoder(_OpenCodeRow)
_head = msgspec.json.Decoder(_OpenCodeHead)
_AGAIN = re.compile(rb',"again":[0-9]+\}\Z')


def identify(head: bytes, path: str) -> Origin:  # noqa: ARG001 - every format is asked alike
    """Return the session of an export or of an emitted header; a database holds many: take `emit`'s origins."""
    row = head.split(b"\n", 1)[0]
    whole = loaded(row) or completed(head)
    info = (whole.get("session") or whole.get("info")) if isinstance(whole, dict) else None
    return _origin(info if isinstance(info, dict) else {}, head)


def _origin(info: Json, head: bytes) -> Origin:
    """Return the origin of a session's own record."""
    session = clean_id(info.get("id")) or nameless(head)
    parent = clean_id(info.get("parentID")) or None
    cwd = words(info.get("directory")) or None
    return Origin("opencode", session, parent or session, parent_session=parent, cwd=cwd)


def emit(data: bytes | Path, path: str) -> list[tuple[Origin, list[bytes]]]:  # noqa: ARG001 - every format is asked alike
    """Split a database, or one export, into sessions of lines, each session's oldest message first."""
    if _is_database(data):
        return list(_from_database(data))
    whole = parsed_object(data.read_bytes() if isinstance(data, Path) else data)
    return [_session(raw_object(whole.get("info")), raw_list(whole.get("messages")))]


def emit_session(path: Path, session: str) -> list[tuple[Origin, list[bytes]]]:
    """Return what `emit` says of one session in a database, and of those that were spawned below it.

    An export holds one session: it is returned where it is the one.
    """
    if _is_database(path):
        return list(_from_database(path, session))
    return [found for found in emit(path, str(path)) if found[0].session == session]


def _is_database(data: bytes | Path) -> bool:
    """Say whether these are the bytes, or this is the path, of an SQLite database."""
    if isinstance(data, bytes):
        return data.startswith(SQLITE_MAGIC)
    with data.open("rb") as file:
        return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC


def _session(info: RawObject, messages: Iterable[msgspec.Raw | bytes]) -> tuple[Origin, list[bytes]]:
    """Return one session as its origin and its lines."""
    header = encoded({"session": {key: info[key] for key in _HEADER_KEYS if key in info}})
    origin = identify(header, "")
    lines = [header]
    if isinstance(title := value(info.get("title")), str):
        lines.append(encoded({"title": title}))
    for message in messages:
        if origin.parent_session:
            lines.append(encoded({**raw_object(message), "spawned": True}))
        else:
            lines.append(compacted(message))
    return origin, lines


def _from_database(data: bytes | Path, session: str | None = None) -> Iterator[tuple[Origin, list[bytes]]]:
    """Yield each session of a database, or one with those below it."""
    with opened(data) as connection:
        for found in opencode_sessions(connection) if session is None else opencode_tree(connection, session):
            yield _session(_spliced(found.fields, b"{}"), _messages(connection, found))


def _messages(connection: apsw.Connection, session: Session) -> list[bytes]:
    """Return the messages of a session of a database, as an export writes them."""
    within = {"sessionID": decoded(session.key)}
    parts: dict[bytes, list[RawObject]] = {}
    for whose, key, body in opencode_parts(connection, session.key):
        ids = {"id": decoded(key), "messageID": decoded(whose)}
        parts.setdefault(whose, []).append(_spliced(ids | within, body))
    originals = opencode_originals(connection, session.key)
    return [
        encoded(
            {"info": _spliced({"id": decoded(key)} | within, body), "parts": parts.get(key, [])}
            | ({"copy_of": decoded(originals[key])} if key in originals else {})
        )
        for key, body in opencode_messages(connection, session.key)
    ]


def _spliced(fields: dict[str, str], body: bytes | None) -> RawObject:
    """Return the fields and, behind them, those of a JSON object as they are written."""
    return {**{k: msgspec.Raw(msgspec.json.encode(v)) for k, v in fields.items()}, **raw_object(decoded(body).encode())}


def anew(stored: Iterable[bytes], lines: Iterable[bytes], *, is_live: bool) -> list[bytes]:
    """Return the lines that a session lacks, in order, against what is stored of it.

    is_live: they say what stands now, so that a line which is stored, and is not what stood last, is a state that
    returned: it says for the how many-th time. What was found to be a copy stays one when its first is gone.
    """
    count: Counter[bytes] = Counter()
    last: dict[str, bytes] = {}
    copies: dict[str, bytes] = {}
    for line in stored:
        bare = _AGAIN.sub(b"}", line)
        about, copy_of = _about(bare)
        last[about], copies[about] = bare, copy_of or copies.get(about, b"")
        count[bare] += 1
    found = []
    for line in dict.fromkeys(lines):
        about, copy_of = _about(line)
        line = line if copy_of else line[:-1] + copies[about] + b"}" if copies.get(about) else line
        if last.get(about) != line if is_live else line not in count:
            last[about] = line
            found.append(line[:-1] + b',"again":%d}' % count[line] if count[line] else line)
    return found


def _about(line: bytes) -> tuple[str, bytes]:
    """Return what a line states (a message, the title or the session: of each the last line stands), and what it says
    of its being a copy.
    """
    try:
        row = _head.decode(line)
    except UNREADABLE:
        return f"line {line!r}", b""
    if isinstance(row.info, dict) and clean_id(row.info.get("id")):
        copy_of = b',"copy_of":' + msgspec.json.encode(row.copy_of) if row.copy_of else b""
        return f"message {clean_id(row.info.get('id'))}", copy_of
    return "title" if row.title is not None else "session" if row.session is not None else f"line {line!r}", b""


def parse(lines: Iterable[Line], *, spawned: bool = False) -> ParsedLines:
    """Return the turns of one run of emitted lines; of a message that occurs twice the later line wins."""
    gathered = Gathered()
    feed(lines, partial(_take, gathered, {}, spawned), gathered)
    return gathered.parsed()


def _take(gathered: Gathered, by_id: dict[str, Draft], spawned: bool, line: Line, raw: bytes) -> None:
    """Read one line."""
    row = _row.decode(raw)
    if isinstance(row.info, dict) and row.info.get("role") in ("user", "assistant"):
        key = clean_id(row.info.get("id"))
        draft = by_id.get(key)
        if draft is None:
            draft = Draft("user", "machine", [], native_id=clean_id(row.copy_of) or key or None)
            gathered.drafts.append(draft)
            if key:
                by_id[key] = draft
        draft.lines.append(line.span)
        _fill(gathered, draft, row, spawned or row.spawned is True)
    else:
        gathered.title = words(row.title) or gathered.title
        label = "header" if row.session is not None else "title" if row.title is not None else None
        gathered.skip(label or "message", None if label else _role(row.info))


def _role(info: Any) -> Any:
    """Return the role of a message that is neither a user's nor an assistant's."""
    return info.get("role") if isinstance(info, dict) else None


def _fill(gathered: Gathered, draft: Draft, row: _OpenCodeRow, spawned: bool) -> None:
    """Fill a turn from a message and its parts."""
    info = row.info
    times = info.get("time")
    draft.stated_at = instant(times.get("created")) if isinstance(times, dict) else None
    draft.parts, draft.files, draft.skills = [], (), ()
    draft.role = info["role"]
    parts = [part for part in row.parts if isinstance(part, dict)] if isinstance(row.parts, list) else []
    if draft.role == "user":
        typed = not spawned and any(map(_is_typed, parts))
        draft.author = "person" if typed else "machine"
        draft.is_summary = False
        for part in parts:
            draft.parts += _user_part(part, typed)
        return
    draft.author = "agent"
    draft.model = words(info.get("modelID"))
    draft.is_summary = info.get("summary") is True
    draft.n_tokens = _tokens(info.get("tokens"))
    for part in parts:
        _add(gathered, draft, part)


def _is_typed(part: Json) -> bool:
    """Say whether a part of a user message was typed: not put there by the client or a plugin."""
    if part.get("type") == "file":
        return True
    text = words(part.get("text"))
    return part.get("type") == "text" and part.get("synthetic") is not True and bool(text) and not is_machine(text)


def _user_part(part: Json, typed: bool) -> list[Part]:
    """Return the parts of one part of a user message."""
    kind, text = part.get("type"), words(part.get("text"))
    if kind == "file":
        return [_file(part)]
    if kind == "subtask":
        text = words(part.get("prompt"))
    if not text:
        return []
    if not typed:
        return [Part("text", text)]
    return spoken(text) if kind == "subtask" or _is_typed(part) else [Part("pasted", text)]


def _file(part: Json) -> Part:
    """Return a file that was attached: its type, its name and its size, never its bytes."""
    media, url = words(part.get("mime")) or "file", words(part.get("url"))
    name = words(part.get("filename"))
    return image(media, url) if url.startswith("data:") else Part("image", f"[{media} {name or url[:500]}]", media)


def _tokens(tokens: Any) -> int:
    """Return input + output + reasoning + cache tokens."""
    if not isinstance(tokens, dict):
        return 0
    cache = tokens.get("cache")
    cached = total(*cache.values()) if isinstance(cache, dict) else 0
    return cached + total(*map(tokens.get, ("input", "output", "reasoning")))


def _add(gathered: Gathered, draft: Draft, part: Json) -> None:
    """Add one part of an assistant message; steps, snapshots and patches say nothing and are left out."""
    kind, text = part.get("type"), words(part.get("text"))
    if kind == "text" and text:
        draft.parts.append(Part("text", text))
    elif kind == "reasoning" and text:
        draft.parts.append(Part("thinking", text))
    elif kind == "file":
        draft.parts.append(_file(part))
    elif kind == "tool":
        name, call_id, state = words(part.get("tool")), words(part.get("callID")), part.get("state")
        state = state if isinstance(state, dict) else {}
        add_call(draft, gathered.tools, name, call_id, state.get("input"))
        if state.get("status") in ("completed", "error"):
            failed = state["status"] == "error"
            add_result(draft, gathered.tools, call_id, state.get("error" if failed else "output"), failed=failed)
