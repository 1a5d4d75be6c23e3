"""Sessions that Perdure holds itself: the entries of their logs, and their turns.

A log only grows. Every entry names the entry before it (its parent), so going back and saying something else makes a
branch, and nothing is ever rewritten. docs/session-format.md describes the lines for people.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Literal

import msgspec

from perdure.capture.lines import Line
from perdure.formats.json_text import make_session_id, read_objects
from perdure.formats.parsing import TurnCollector, TurnDraft, feed_lines
from perdure.formats.parts import add_call, add_result, collect_images
from perdure.formats.prompt_text import split_typed_text
from perdure.formats.values import clean_id, sum_token_counts, text_or_empty, to_utc
from perdure.types import OWN_RUNTIME, Json, Origin, ParsedLines, Part

FORMAT = 1  # of the log; a newer one is refused
INTERRUPTED = "interrupted: unknown whether it ran"  # the result of a call that was under way when the process died


class Entry(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", kw_only=True):
    """One line of a log."""

    id: str  # `e` and 10 characters, unique in all sessions
    parent: str = ""  # id of the entry before it; "" for the first one
    timestamp: datetime


class Start(Entry, frozen=True, tag="session", kw_only=True):
    """The first line: what the session is. Its parent, if it has one, is an entry of another session."""

    format: int = FORMAT
    session: str
    agent: str
    cwd: str = ""
    forked_from: str = ""  # the session that holds `parent`, which this one continues
    spawned_by: str = ""  # the session that holds `parent`, of which this one is a sub-agent


class CallEntry(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A tool call in a message."""

    id: str
    name: str
    input: Mapping[str, Any]


class ImageEntry(msgspec.Struct, frozen=True, tag_field="type", tag="image", kw_only=True):
    """An image in a message."""

    media_type: str
    data: str  # base64


class FileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a person attached to a message: data, and no words of theirs."""

    path: str  # as the model reads it
    text: str  # the lines that it reads
    code: str  # of the fence around the text, which cannot hold it


class NativeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider wrote, in its own form. It goes back to this provider unchanged, and to no other."""

    provider: str
    blocks: tuple[Mapping[str, Any], ...]


class UsageEntry(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The tokens and the money of one answer."""

    n_input: int = 0  # neither read from the provider's cache nor written to it
    n_output: int = 0
    n_cache_read: int = 0
    n_cache_write: int = 0
    money: float | None = None  # None: the price is unknown
    is_reported: bool = True  # False: the provider reported nothing, and this is an estimate


class Message(Entry, frozen=True, tag="message", kw_only=True):
    """One message: a person's, the model's, or a tool's result."""

    role: Literal["user", "assistant", "tool"]
    text: str = ""
    is_typed: bool = True  # of a user's: a person typed it; False for what a program says in a person's place
    images: tuple[ImageEntry, ...] = ()
    files: tuple[FileEntry, ...] = ()  # of a user's
    thought: str = ""  # of the model, as far as its provider shows it
    calls: tuple[CallEntry, ...] = ()
    native: NativeEntry | None = None
    call_id: str = ""  # of a tool's: the call that it answers
    tool: str = ""  # its name
    is_error: bool = False
    provider: str = ""  # of an answer: who gave it
    permission: str = ""  # why the call ran, or why it did not: a mode, a rule, the answer of a person
    model: str = ""
    stop: str = ""  # of the model's: end, tool, length, refused, cancelled, failed
    usage: UsageEntry | None = None


class Quote(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Something of the compacted part that is kept in its own words."""

    kind: str  # decision, constraint, pending, number, path, …
    text: str
    entry: str  # id of the message that says it
    replaces: str = ""  # id of the message that said it otherwise before, and is quoted no more
    follows: str = ""  # id of the message of the quote before this one, which may be about the same thing


class Boundary(Entry, frozen=True, tag="boundary", kw_only=True):
    """A compaction: from here on the model reads the summary instead of the messages before `first_kept`."""

    first_kept: str  # id of the first message that stays as it was
    first_left: str = ""  # id of the first message that the summary stands for; those before it stay, too
    n_left: int = 0  # messages that the summary stands for
    summary: str
    quotes: tuple[Quote, ...] = ()
    files_read: tuple[str, ...] = ()
    files_changed: tuple[str, ...] = ()
    n_before: int = 0  # tokens of the context before and after
    n_after: int = 0
    by: str = "code"  # or the model that wrote the narrative
    focus: str = ""
    cause: Literal["limit", "asked"] = "limit"


class Mask(Entry, frozen=True, tag="mask", kw_only=True):
    """From here on the outputs and images of these messages are shown as one line; the log keeps them whole."""

    entries: tuple[str, ...]
    n_before: int = 0  # tokens of the context before and after
    n_after: int = 0


class Branch(Entry, frozen=True, tag="branch", kw_only=True):
    """The conversation goes on after `parent`. What was said after it elsewhere stays as another branch."""

    left: str = ""  # id of the leaf that was left
    summary: str = ""  # of the branch that was left, where somebody asked for it


class Label(Entry, frozen=True, tag="label", kw_only=True):
    """A name for an entry; "" takes it away."""

    target: str
    text: str


class Title(Entry, frozen=True, tag="title", kw_only=True):
    """The title of the session from here on."""

    text: str


class ModelChange(Entry, frozen=True, tag="model", kw_only=True):
    """Another model answers from here on."""

    model: str


class ModelUse(Entry, frozen=True, tag="usage", kw_only=True):
    """Calls of a model for the session that are none of its answers: those of the summariser."""

    job: str  # as the meter counts it
    model: str
    usage: UsageEntry


AnyEntry = Start | Message | Boundary | Mask | Branch | Label | Title | ModelChange | ModelUse

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyEntry] = msgspec.json.Decoder(AnyEntry)


def encode_entry(entry: Entry) -> bytes:
    """Return an entry as a line, with its newline. Raises UnicodeEncodeError for a lone surrogate."""
    return _encoder.encode(entry) + b"\n"


def replace_surrogates(entry: AnyEntry) -> AnyEntry:
    """Return an entry with U+FFFD for each lone surrogate, as a model may write one, and no UTF-8 can hold it."""
    text = json.dumps(msgspec.to_builtins(entry), ensure_ascii=False)
    return decode_entry(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode())


def decode_entry(raw: bytes) -> AnyEntry:
    """Return the entry of a line. Raises msgspec.ValidationError or DecodeError for a line that is none."""
    return _decoder.decode(raw)


# turns ---------------------------------------------------------------------------------------------------------


def is_start(line: Mapping[str, Any]) -> bool:
    """Return True if a JSON object is the first line of a log."""
    return line.get("type") == "session" and "session" in line and "format" in line


def identify(first_bytes: bytes, path: str) -> Origin:  # noqa: ARG001 - every format is asked alike
    """Return the session that the first line names."""
    start: Json = next(filter(is_start, read_objects(first_bytes)), {})
    session = clean_id(start.get("session")) or make_session_id(first_bytes)
    origin_session = clean_id(start.get("forked_from"))
    parent_session = origin_session or clean_id(start.get("spawned_by")) or None
    cwd = text_or_empty(start.get("cwd")) or None
    return Origin(OWN_RUNTIME, session, session, parent_session, cwd, fork=bool(origin_session))


def parse(lines: Iterable[Line], *, spawned: bool = False) -> ParsedLines:
    """Return the turns of one run. spawned: the source is a sub-agent's, so nobody typed into it."""
    collector = TurnCollector()
    feed_lines(lines, partial(_read_line, collector, spawned), collector)
    return collector.to_parsed_lines()


def _read_line(collector: TurnCollector, spawned: bool, line: Line, raw: bytes) -> None:
    entry = decode_entry(raw)
    if isinstance(entry, Message):
        _add_message(collector, entry, line, spawned)
    elif isinstance(entry, Boundary | Branch) and entry.summary:
        draft = _make_draft(entry, line)
        draft.is_summary, draft.parts = True, [Part("text", entry.summary)]
        collector.drafts.append(draft)
    else:
        collector.title = entry.text if isinstance(entry, Title) else collector.title
        collector.skip(type(entry).__struct_config__.tag)
    if (link := _to_link(entry)) is not None:
        collector.links.append(link)


def _to_link(entry: Entry) -> tuple[str, str | None] | None:
    entry_id = clean_id(entry.id)
    return (entry_id, clean_id(entry.parent) or None) if entry_id else None


def _make_draft(entry: Entry, line: Line) -> TurnDraft:
    return TurnDraft(
        "system",
        "machine",
        [line.span],
        stated_at=to_utc(entry.timestamp),
        native_id=clean_id(entry.id) or None,
        link=_to_link(entry),
    )


def _add_message(collector: TurnCollector, entry: Message, line: Line, spawned: bool) -> None:
    draft = _make_draft(entry, line)
    if entry.role == "tool":
        draft.role, draft.author = "tool", "tool"
        collector.tool_names.setdefault(entry.call_id, entry.tool)
        add_result(draft, collector.tool_names, entry.call_id, entry.text, failed=entry.is_error)
        collector.drafts.append(draft)
        return
    if entry.role == "user":
        is_typed = entry.is_typed and not spawned
        draft.role, draft.author = "user", "person" if is_typed else "machine"
        draft.parts = split_typed_text(entry.text) if is_typed else [Part("text", entry.text)]
        draft.files = tuple(file.path for file in entry.files)
    else:
        draft.role, draft.author, draft.model = "assistant", "agent", entry.model
        draft.parts = [part for part in (Part("thinking", entry.thought), Part("text", entry.text)) if part.text]
        for call in entry.calls:
            add_call(draft, collector.tool_names, call.name, call.id, call.input)
        if entry.usage:
            usage = entry.usage
            draft.n_tokens = sum_token_counts(usage.n_input, usage.n_output, usage.n_cache_read, usage.n_cache_write)
    draft.parts += collect_images([msgspec.to_builtins(image) for image in entry.images])
    collector.drafts.append(draft)
