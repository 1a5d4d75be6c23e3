"""A piece of a transcript as it is shown: turns, with calls joined to their results. Pure.

What is shown is masked, whole parts before they are cut, and everything is text: what it looks like is the templates'
affair. A long part is cut, and says of how much; its address shows all of it. A page has room for so many parts and
characters, whatever turns hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from itertools import groupby, islice
from typing import Any, NamedTuple

import msgspec

from perdure.access.redact import mask
from perdure.index.talk import Spawned, Standing
from perdure.surfaces.page import diffs
from perdure.surfaces.page.diffs import Change, changes
from perdure.text import one_line
from perdure.types import Part, Turn

IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")  # what a browser shows and cannot run
PART_CHARS = 1_000_000  # of a part that has a page of its own
_WORDS_CHARS, _OUTPUT_CHARS = 16_000, 5_000  # of one part within a transcript
_OUTPUT_LINES = 40
LABEL_CHARS = 200  # of a name that others gave
PIECES = 100  # of a turn that are shown at once
_PAGE_PIECES = 600  # of a page; a turn behind them shows its first ones
_FEW_PIECES = 3
_PAGE_CHARS = 1_000_000  # of a page; parts behind them are cut to the beginning
_FEW_CHARS = 400
_GIVEN_CHARS = 300_000  # of the input of a call that is taken apart; a longer one is shown as text
_PAGE_GIVEN_CHARS = 2_000_000  # of all that are taken apart
_MOST_LEVELS = 50  # of an input that is taken apart: no client nests deeper
_FIELDS, _IMAGES = 20, 20  # of one call that are shown
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
    n_more_images: int = 0


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
    is_cut: bool = False  # its input holds more than is shown
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
    n_before: int = 0  # pieces of it before these
    n_behind: int = 0  # and behind them


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
    skipped: int = 0  # pieces of the first turn that were shown before


@dataclass(slots=True)
class _Room:
    """What is left for a page."""

    pieces: int = _PAGE_PIECES
    chars: int = _PAGE_CHARS
    given_chars: int = _PAGE_GIVEN_CHARS
    compared: diffs.Room = field(default_factory=diffs.Room)

    def cut(self, part: Part, n: int, most_chars: int, most_lines: int | None = None, label: str = "") -> Piece:
        """A part's beginning, masked, as far as there is room."""
        piece = cut(part, n, most_chars if self.chars > 0 else min(most_chars, _FEW_CHARS), most_lines, label)
        self.chars -= len(piece.text)
        return piece

    def output(self, part: Part, n: int) -> Piece:
        """What a call gave, cut to what a transcript has room for."""
        return self.cut(part, n, _OUTPUT_CHARS, _OUTPUT_LINES)

    def given(self, text: str) -> Any:
        """The input of a call, taken apart and masked; None where there is no room for that."""
        if len(text) > min(_GIVEN_CHARS, self.given_chars):
            return None
        self.given_chars -= len(text)
        return _masked(_decoded(mask(text)))


def said(read: Sequence[Read], wish: Wish) -> list[Said]:
    """The turns as they are shown, in order; one that is nothing but results of calls among them stands in those."""
    joined = _joined(read)
    taken = {at for results in joined.values() for at in results}
    shown, room = [], _Room()
    for n, item in enumerate(read):
        left = [at for at in range(len(item.turn.parts)) if _At(n, at) not in taken]
        if left or not item.turn.parts:
            shown.append(_said(read, n, left, _Beside(joined, wish, room)))
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


class _Beside(NamedTuple):
    """What turns are shown with."""

    joined: Mapping[_At, list[_At]]
    wish: Wish
    room: _Room


def _said(read: Sequence[Read], n: int, left: Sequence[int], beside: _Beside) -> Said:
    standing, turn = read[n]
    wish = beside.wish
    wanted = [at for at in left if not (wish.is_words and turn.parts[at].kind in ("call", "result", "thinking"))]
    skipped = min(wish.skipped, len(wanted)) if n == 0 else 0
    some = wanted[skipped : skipped + min(PIECES, max(_FEW_PIECES, beside.room.pieces))]
    pieces, began = _pieces(read, n, some, beside)
    results = [read[found[0].turn].standing.turn_id for at in wanted if (found := beside.joined.get(_At(n, at)))]
    inside = tuple(dict.fromkeys([standing.turn_id, *results]))
    return Said(
        standing.turn_id, standing.captured_in, turn.role, turn.author == "person", _who(turn, wish.owner),
        _local(turn.stated_at), label(turn.model), turn.n_tokens, pieces, turn.is_summary, standing.is_abandoned,
        wish.here in inside, inside, began, skipped, len(wanted) - skipped - len(some),
    )  # fmt: skip


def _pieces(
    read: Sequence[Read], n: int, some: Sequence[int], beside: _Beside
) -> tuple[tuple[Piece | Call | Output, ...], tuple[Spawned, ...]]:
    """(these parts of a turn as they are shown, the sub-agents that no call of them began)."""
    standing, turn = read[n]
    room, began = beside.room, list(beside.wish.spawned.get(standing.turn_id, ()))
    room.pieces -= len(some)
    pieces: list[Piece | Call | Output] = []
    for at in some:
        part = turn.parts[at]
        if part.kind == "call":
            call = _call(part, at, _output(read, _At(n, at), beside), beside, began)
            began = [one for one in began if one not in call.spawned]
            pieces.append(call)
        elif part.kind == "result":
            pieces.append(Output(room.output(part, at), standing.turn_id, part.is_error, None, ()))
        else:
            pieces.append(_piece(part, at, room, is_machine=turn.author == "machine" and not turn.is_summary))
    return tuple(pieces), tuple(began)


def _local(at: datetime | None) -> datetime | None:
    return at.astimezone() if at else None


def _who(turn: Turn, owner: str) -> str:
    if turn.author == "person" and owner:
        return owner
    return "System" if turn.role == "system" else _WHO[turn.author]


# parts ----------------------------------------------------------------------------------------------------------


def _piece(part: Part, n: int, room: _Room, *, is_machine: bool = False) -> Piece:
    if part.kind == "image":
        media = part.name if part.name in IMAGES and _SIZED.fullmatch(part.text) else ""
        return Piece("image", "", n, label=label(part.text.strip("[]"), 120), media=media)
    if part.kind == "pasted":
        return room.output(part, n)
    if is_machine and part.text.count("\n") >= _NOTICE_LINES:
        return replace(room.cut(part, n, _WORDS_CHARS), kind="notice")
    return room.cut(part, n, _WORDS_CHARS)


def label(said: str, n_chars: int = LABEL_CHARS) -> str:
    """A name that others gave, masked, as far as it is shown."""
    return one_line(mask(said[: n_chars + _MARGIN_CHARS]), n_chars)


def cut(part: Part, n: int, most_chars: int, most_lines: int | None = None, label: str = "") -> Piece:
    """A part's beginning, masked."""
    whole = mask(part.text[: most_chars + _MARGIN_CHARS])
    lines = whole[:most_chars].split("\n")
    shown = "\n".join(lines[:most_lines])
    is_cut = len(shown) < len(whole) or len(part.text) > most_chars + _MARGIN_CHARS
    return Piece(part.kind, shown, n, part.text.count("\n") + 1, len(part.text), is_cut, label)


def _output(read: Sequence[Read], call: _At, beside: _Beside) -> Output | None:
    """The result of a call, as it is shown in it."""
    results = beside.joined.get(call, [])
    if not results:
        return None
    item, at = read[results[0].turn], results[0].part
    part, shown = item.turn.parts[at], results[1 : _IMAGES + 1]
    images = tuple(_piece(item.turn.parts[one.part], one.part, beside.room) for one in shown)
    took_ms = _took_ms(read[call.turn].turn, item.turn) if results[0].turn != call.turn else None
    piece, n_more = beside.room.output(part, at), len(results) - 1 - len(images)
    return Output(piece, item.standing.turn_id, part.is_error, took_ms, images, n_more)


def _took_ms(before: Turn, after: Turn) -> float | None:
    if before.stated_at is None or after.stated_at is None or after.stated_at < before.stated_at:
        return None
    return (after.stated_at - before.stated_at).total_seconds() * 1000


def _call(part: Part, n: int, output: Output | None, beside: _Beside, began: Sequence[Spawned]) -> Call:
    room, wish = beside.room, beside.wish
    given = room.given(part.text)
    made = changes(part.name, given, room.compared)
    inputs, is_cut = ((), _is_cut(made)) if made else _inputs(part if given is None else given, n, room)
    about = ", ".join(change.path for change in made if change.path) or ("" if given is None else _about(given))
    if wish.folder:
        about = about.replace(wish.folder.rstrip("/") + "/", "")
    own = tuple(one for one in began if _is_task_of(one, given))
    name = label(part.name, 60) or "tool"
    return Call(name, one_line(about, _ABOUT_CHARS), n, inputs, made, output, own, is_cut)


def _is_cut(made: Sequence[Change]) -> bool:
    return any(change.n_more or change.is_cut for change in made)


def _decoded(text: str) -> Any:
    """The input of a call; its text where it is none, or nested beyond what is taken apart."""
    try:
        found = msgspec.json.decode(text) if text[:1] in "{[" else text
    except (msgspec.DecodeError, RecursionError):
        return text
    return text if _is_deep(found) else found


def _is_deep(given: Any) -> bool:
    """Whether values lie within each other deeper than _MOST_LEVELS."""
    level = [given]
    for _ in range(_MOST_LEVELS):
        inner = (item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list))
        level = [value for values in inner for value in values]
        if not level:
            return False
    return True


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


def _inputs(given: Any, n: int, room: _Room) -> tuple[tuple[Piece, ...], bool]:
    """(the fields of an input, each under its name; whether there are more). given: a part to be shown as text."""
    if isinstance(given, Part):
        return (room.output(given, n),), False
    fields = given.items() if isinstance(given, dict) else [("", given)]
    found = ((name, Part("call", _text(value))) for name, value in fields)
    shown = list(islice(((name, part) for name, part in found if part.text), _FIELDS + 1))
    pieces = tuple(room.cut(part, n, _OUTPUT_CHARS, _OUTPUT_LINES, label=label(name)) for name, part in shown[:_FIELDS])
    return pieces, len(shown) > _FIELDS


def _is_task_of(spawned: Spawned, given: Any) -> bool:
    """Whether a call gave a sub-agent its task: the words with which that one begins."""
    task = _plain(spawned.intent)[:_INTENT_CHARS]
    values = given.values() if isinstance(given, dict) else [given]
    return bool(task) and any(isinstance(value, str) and task in _plain(value[:4_000]) for value in values)


def _plain(text: str) -> str:
    return " ".join(text.split())
