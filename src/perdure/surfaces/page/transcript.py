"""A piece of a transcript as it is shown: turns, with calls joined to their results. Pure.

What is shown is masked, whole parts before they are cut, and everything is text: what it looks like is the templates'
affair. A long part is cut, and says of how much; its address shows all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from perdure.access.redact import mask
from perdure.index.talk import Spawned, Standing
from perdure.surfaces.page.diffs import Change, changes
from perdure.text import one_line
from perdure.types import Part, Turn

IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")  # what a browser shows and cannot run
PART_CHARS = 1_000_000  # of a part that has a page of its own
_WORDS_CHARS, _OUTPUT_CHARS = 16_000, 5_000  # of one part within a transcript
_OUTPUT_LINES = 40
_NOTICE_LINES = 6  # of what a machine said in a person's place; longer ones are folded
_MARGIN_CHARS = 8_192  # masked beyond what is shown: no secret is cut in two where it shows
_ABOUT_CHARS = 110
_INTENT_CHARS = 60  # of a sub-agent's task, by which the call that spawned it is known
_ABOUT = (
    "description", "command", "cmd", "pattern", "query", "url", "file_path", "path", "filePath", "absolute_path",
    "notebook_path", "skill", "name", "prompt", "subagent_type",
)  # fmt: skip
_SIZED = re.compile(r"\[image/\w+ \d+ bytes\]")
_WHO = {"person": "Person", "agent": "Agent", "tool": "Tool", "machine": "Machine"}


@dataclass(frozen=True, slots=True)
class Piece:
    """One part of a turn: words, something pasted, a thought, an output, an input."""

    kind: str
    text: str  # masked, and cut
    n: int  # its number in its turn, by which its page is addressed
    n_lines: int = 1
    n_chars: int = 0
    is_cut: bool = False
    label: str = ""
    media: str = ""  # of an image that can be shown


@dataclass(frozen=True, slots=True)
class Output:
    """What a call gave."""

    piece: Piece
    turn_id: str  # of the turn that it stands in
    is_error: bool
    took_ms: float | None  # from the call's turn to this one, where both say when
    images: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call with its result."""

    name: str
    about: str  # its main argument, on one line
    n: int
    inputs: tuple[Piece, ...]
    changes: tuple[Change, ...]
    output: Output | None
    spawned: tuple[Spawned, ...] = ()
    kind: str = "call"


@dataclass(frozen=True, slots=True)
class Said:
    """A turn as it is shown."""

    turn_id: str
    run_id: str  # that holds its words
    role: str
    is_person: bool
    who: str
    at: datetime | None  # in the zone of the home
    model: str
    n_tokens: int
    pieces: tuple[Piece | Call | Output, ...]
    is_summary: bool
    is_abandoned: bool
    is_here: bool  # the one that was asked for, or its result was
    inside: tuple[str, ...] = ()  # its own id, and those of the turns that hold results of its calls
    spawned: tuple[Spawned, ...] = ()  # began in it, and no call of it says so


@dataclass(frozen=True, slots=True)
class Fold:
    """Turns that follow each other on a branch which was left, or the one turn."""

    is_left: bool
    turns: tuple[Said, ...]
    is_open: bool  # the turn that was asked for is among them
    day: date | None  # of the first of them, where those before it are of another


class Read(NamedTuple):
    """A turn with its words."""

    standing: Standing
    turn: Turn


class _At(NamedTuple):
    """A part by its place in a piece of a transcript."""

    turn: int
    part: int


@dataclass(frozen=True, slots=True)
class Wish:
    """How turns are to be shown."""

    here: str = ""  # the turn that was asked for
    owner: str = ""  # how the person is called
    folder: str = ""  # the project's: paths in it are named within it
    is_words: bool = False  # without calls, results and thoughts
    spawned: Mapping[str, Sequence[Spawned]] = field(default_factory=dict)  # turn -> what began in it


def said(read: Sequence[Read], wish: Wish) -> list[Said]:
    """The turns as they are shown, in order; one that is nothing but results of calls among them stands in those."""
    joined = _joined(read)
    taken = {at for results in joined.values() for at in results}
    shown = []
    for n, item in enumerate(read):
        left = [at for at in range(len(item.turn.parts)) if _At(n, at) not in taken]
        if left or not item.turn.parts:
            shown.append(_said(read, n, left, joined, wish))
    return shown


def folded(turns: Iterable[Said]) -> list[Fold]:
    """The turns with those of each branch that was left together."""
    found: list[Fold] = []
    last = None
    for is_left, some in groupby(turns, key=lambda turn: turn.is_abandoned):
        together = tuple(some)
        for group in [together] if is_left else [(turn,) for turn in together]:
            day = group[0].at.date() if group[0].at else last
            found.append(Fold(is_left, group, any(turn.is_here for turn in group), day if day != last else None))
            last = day
    return found


def _joined(read: Sequence[Read]) -> dict[_At, list[_At]]:
    """Call -> its result and the images with it. Of calls with one id the first that has none yet."""
    waiting: dict[str, list[_At]] = {}
    given: dict[str, _At] = {}
    found: dict[_At, list[_At]] = {}
    for n, item in enumerate(read):
        for at, part in enumerate(item.turn.parts):
            if not part.call_id:
                continue
            if part.kind == "call":
                waiting.setdefault(part.call_id, []).append(_At(n, at))
            elif part.kind == "result" and waiting.get(part.call_id):
                given[part.call_id] = waiting[part.call_id].pop(0)
                found[given[part.call_id]] = [_At(n, at)]
            elif part.kind == "image" and part.call_id in given:
                found[given[part.call_id]].append(_At(n, at))
    return found


def _said(read: Sequence[Read], n: int, left: Sequence[int], joined: Mapping[_At, list[_At]], wish: Wish) -> Said:
    standing, turn = read[n]
    began = list(wish.spawned.get(standing.turn_id, ()))
    pieces: list[Piece | Call | Output] = []
    for at in left:
        part = turn.parts[at]
        if wish.is_words and part.kind in ("call", "result", "thinking"):
            continue
        if part.kind == "call":
            output = _output(read, _At(n, at), joined.get(_At(n, at), []))
            call = _call(part, at, output, wish, began)
            began = [one for one in began if one not in call.spawned]
            pieces.append(call)
        elif part.kind == "result":
            pieces.append(Output(output_piece(part, at), standing.turn_id, part.is_error, None, ()))
        else:
            pieces.append(_piece(part, at, is_machine=turn.author == "machine" and not turn.is_summary))
    results = [one.output.turn_id for one in pieces if isinstance(one, Call) and one.output]
    inside = tuple(dict.fromkeys([standing.turn_id, *results]))
    return Said(
        standing.turn_id, standing.captured_in, turn.role, turn.author == "person", _who(turn, wish.owner),
        _local(turn.stated_at), mask(turn.model), turn.n_tokens, tuple(pieces), turn.is_summary, standing.is_abandoned,
        wish.here in inside, inside, tuple(began),
    )  # fmt: skip


def _local(at: datetime | None) -> datetime | None:
    return at.astimezone() if at else None


def _who(turn: Turn, owner: str) -> str:
    if turn.author == "person" and owner:
        return owner
    return "System" if turn.role == "system" else _WHO[turn.author]


# parts ----------------------------------------------------------------------------------------------------------


def _piece(part: Part, n: int, *, is_machine: bool = False) -> Piece:
    if part.kind == "image":
        media = part.name if part.name in IMAGES and _SIZED.fullmatch(part.text) else ""
        label = one_line(mask(part.text.strip("[]")), 120)
        return Piece("image", "", n, label=label, media=media)
    if part.kind == "pasted":
        return cut(part, n, _OUTPUT_CHARS, _OUTPUT_LINES)
    if is_machine and part.text.count("\n") >= _NOTICE_LINES:
        return replace(cut(part, n, _WORDS_CHARS), kind="notice")
    return cut(part, n, _WORDS_CHARS)


def cut(part: Part, n: int, most_chars: int, most_lines: int | None = None, label: str = "") -> Piece:
    """A part's beginning, masked."""
    whole = mask(part.text[: most_chars + _MARGIN_CHARS])
    lines = whole[:most_chars].split("\n")
    shown = "\n".join(lines[:most_lines])
    is_cut = len(shown) < len(whole) or len(part.text) > most_chars + _MARGIN_CHARS
    return Piece(part.kind, shown, n, part.text.count("\n") + 1, len(part.text), is_cut, label)


def output_piece(part: Part, n: int) -> Piece:
    """What a call gave, cut to what a transcript has room for."""
    return cut(part, n, _OUTPUT_CHARS, _OUTPUT_LINES)


def _output(read: Sequence[Read], call: _At, results: Sequence[_At]) -> Output | None:
    """The result of a call, as it is shown in it."""
    if not results:
        return None
    item, at = read[results[0].turn], results[0].part
    part = item.turn.parts[at]
    images = tuple(_piece(item.turn.parts[one.part], one.part) for one in results[1:])
    took_ms = _took_ms(read[call.turn].turn, item.turn) if results[0].turn != call.turn else None
    return Output(output_piece(part, at), item.standing.turn_id, part.is_error, took_ms, images)


def _took_ms(before: Turn, after: Turn) -> float | None:
    if before.stated_at is None or after.stated_at is None or after.stated_at < before.stated_at:
        return None
    return (after.stated_at - before.stated_at).total_seconds() * 1000


def _call(part: Part, n: int, output: Output | None, wish: Wish, began: Sequence[Spawned]) -> Call:
    text = mask(part.text)
    given = _masked(_decoded(text))
    made = changes(part.name, given)
    inputs = () if made else tuple(_inputs(given, n))
    about = ", ".join(change.path for change in made if change.path) or _about(given)
    if wish.folder:
        about = about.replace(wish.folder.rstrip("/") + "/", "")
    own = tuple(one for one in began if _is_task_of(one, given))
    return Call(one_line(mask(part.name), 60) or "tool", one_line(about, _ABOUT_CHARS), n, inputs, made, output, own)


def _decoded(text: str) -> Any:
    """The input of a call; its text where it is none."""
    try:
        return msgspec.json.decode(text) if text[:1] in "{[" else text
    except (msgspec.DecodeError, RecursionError):
        return text


def _masked(given: Any) -> Any:
    """An input whose texts are masked once more: behind escapes, a secret may look like none."""
    if isinstance(given, str):
        return mask(given)
    if isinstance(given, list):
        return [_masked(item) for item in given]
    return {name: _masked(value) for name, value in given.items()} if isinstance(given, dict) else given


def _about(given: Any) -> str:
    """What a call is about: the field that says it, or else its first text."""
    if not isinstance(given, dict):
        return given if isinstance(given, str) else _text(given)
    texts = {name: _text(value) for name, value in given.items() if _is_words(value)}
    named = next((texts[name] for name in _ABOUT if texts.get(name)), "") or next(filter(None, texts.values()), "")
    counted = (f"{len(value)} {name}" for name, value in given.items() if isinstance(value, list) and value)
    return named or next(counted, "")


def _is_words(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(item, str) for item in value))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return " ".join(value) if _is_words(value) else msgspec.json.encode(value).decode()


def _inputs(given: Any, n: int) -> Iterable[Piece]:
    """The fields of an input, each under its name."""
    fields = given.items() if isinstance(given, dict) else [("", given)]
    for name, value in fields:
        part = Part("call", _text(value))
        if part.text:
            yield cut(part, n, _OUTPUT_CHARS, _OUTPUT_LINES, label=name)


def _is_task_of(spawned: Spawned, given: Any) -> bool:
    """Whether a call gave a sub-agent its task: the words with which that one begins."""
    task = _plain(spawned.intent)[:_INTENT_CHARS]
    values = given.values() if isinstance(given, dict) else [given]
    return bool(task) and any(isinstance(value, str) and task in _plain(value[:4_000]) for value in values)


def _plain(text: str) -> str:
    return " ".join(text.split())
