"""Render a piece of a transcript: turns, with calls joined to their results. Pure.

Everything shown is masked, whole parts before they are cut, and everything is text: the templates
decide how it looks. A long part is cut and says how much is missing; its address shows all of it. A
page has room for a fixed number of parts and characters, whatever the turns contain.
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
from perdure.index.threads import SpawnedAgent, ThreadTurn
from perdure.surfaces.web import diffs
from perdure.surfaces.web.diffs import FileDiff, list_changes
from perdure.text import one_line
from perdure.types import Part, Turn

IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")  # a browser shows these and cannot run them
PART_CHARS = 1_000_000  # of a part on its own page
_TEXT_CHARS, _OUTPUT_CHARS = 16_000, 5_000  # of one part within a transcript
_OUTPUT_LINES = 40
LABEL_CHARS = 200  # of a name that others chose
PIECES_PER_TURN = 100  # of one turn, shown at once
_PAGE_PIECES = 600  # of a page; later turns show only their first ones
_FEW_PIECES = 3
_PAGE_CHARS = 1_000_000  # of a page; later parts are cut short
_FEW_CHARS = 400
_INPUT_CHARS = 300_000  # of a call's input that is decoded; a longer one is shown as text
_PAGE_INPUT_CHARS = 2_000_000  # of all decoded inputs of a page
_MAX_LEVELS = 50  # of nesting in a decoded input: no client nests deeper
_MAX_FIELDS, _MAX_IMAGES = 20, 20  # of one call, shown at most
_NOTICE_LINES = 6  # of a user message written by a machine; longer ones are collapsed
_MARGIN_CHARS = 8_192  # masked beyond the shown text, so that no secret is cut in two at its end
_SUMMARY_CHARS = 110
_INTENT_CHARS = 60  # of a sub-agent's task, which identifies the call that spawned it
_SUMMARY_FIELDS = (
    "description", "command", "cmd", "pattern", "query", "url", "file_path", "path", "filePath", "absolute_path",
    "notebook_path", "skill", "name", "prompt", "subagent_type",
)  # fmt: skip
_SIZED_IMAGE = re.compile(r"\[image/\w+ \d+ bytes\]")
_SPEAKERS = {"person": "Person", "agent": "Agent", "tool": "Tool", "machine": "Machine"}


@dataclass(frozen=True, slots=True)
class TextPiece:
    """One part of a turn: words, pasted text, a thought, an output, an input."""

    kind: str
    text: str  # masked, and cut
    n: int  # index within its turn, used in the address of its page
    n_lines: int = 1
    n_chars: int = 0
    is_cut: bool = False
    label: str = ""
    media: str = ""  # media type of an image that can be shown


@dataclass(frozen=True, slots=True)
class OutputPiece:
    """The result of a call."""

    piece: TextPiece
    turn_id: str  # of the turn that contains it
    is_error: bool
    took_ms: float | None  # from the call's turn to this one, if both have a time
    images: tuple[TextPiece, ...]
    n_more_images: int = 0


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A tool call with its result."""

    name: str
    about: str  # its main argument, on one line
    n: int
    inputs: tuple[TextPiece, ...]
    changes: tuple[FileDiff, ...]
    output: OutputPiece | None
    spawned: tuple[SpawnedAgent, ...] = ()
    is_cut: bool = False  # its input is not shown completely
    kind: str = "call"


@dataclass(frozen=True, slots=True)
class TurnView:
    """A turn as it is shown."""

    turn_id: str
    run_id: str  # the run that contains its words
    role: str
    is_person: bool
    who: str
    at: datetime | None  # in the zone of the home
    model: str
    n_tokens: int
    pieces: tuple[TextPiece | CallPiece | OutputPiece, ...]
    is_summary: bool
    is_abandoned: bool
    is_here: bool  # it was requested, or one of its results was
    turn_ids: tuple[str, ...] = ()  # its own id, and those of the turns with results of its calls
    spawned: tuple[SpawnedAgent, ...] = ()  # sub-agents that began in it, without a matching call
    n_before: int = 0  # pieces of the turn before these
    n_behind: int = 0  # pieces of the turn after these


@dataclass(frozen=True, slots=True)
class TurnGroup:
    """Consecutive turns on an abandoned branch, or a single turn."""

    is_left: bool
    turns: tuple[TurnView, ...]
    is_open: bool  # it contains the requested turn
    day: date | None  # of the first turn, if the turn before has another day


class LocatedTurn(NamedTuple):
    """A turn with its words and its location."""

    location: ThreadTurn
    turn: Turn


class _PartIndex(NamedTuple):
    """The index of a part within a piece of a transcript."""

    turn: int
    part: int


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """Options for rendering turns."""

    target_id: str = ""  # the requested turn
    owner: str = ""  # name shown for the person
    folder: str = ""  # of the project: paths within it are shown relative to it
    is_words_only: bool = False  # without calls, results and thoughts
    spawned: Mapping[str, Sequence[SpawnedAgent]] = field(default_factory=dict)  # turn -> sub-agents that began in it
    n_skipped: int = 0  # pieces of the first turn that were already shown


@dataclass(slots=True)
class _TranscriptBudget:
    """The remaining budget of a page."""

    pieces: int = _PAGE_PIECES
    chars: int = _PAGE_CHARS
    input_chars: int = _PAGE_INPUT_CHARS
    diff_budget: diffs.DiffBudget = field(default_factory=diffs.DiffBudget)

    def cut(self, part: Part, n: int, max_chars: int, max_lines: int | None = None, label: str = "") -> TextPiece:
        """Return a part's beginning, masked, as far as the budget allows."""
        piece = cut_part(part, n, max_chars if self.chars > 0 else min(max_chars, _FEW_CHARS), max_lines, label)
        self.chars -= len(piece.text)
        return piece

    def cut_output(self, part: Part, n: int) -> TextPiece:
        """Return the result of a call, cut to the room that a transcript has for it."""
        return self.cut(part, n, _OUTPUT_CHARS, _OUTPUT_LINES)

    def decode_input(self, text: str) -> Any:
        """Decode and mask the input of a call; return None if the budget does not allow it."""
        if len(text) > min(_INPUT_CHARS, self.input_chars):
            return None
        self.input_chars -= len(text)
        return _mask_input(_decode_input(mask(text)))


def render_turns(turns: Sequence[LocatedTurn], options: RenderOptions) -> list[TurnView]:
    """Return the turns as they are shown, in order.

    A turn that contains only results of calls in these turns is shown within the turns of the calls.
    """
    results_by_call = _join_results(turns)
    joined_parts = {index for results in results_by_call.values() for index in results}
    views, budget = [], _TranscriptBudget()
    for n, entry in enumerate(turns):
        part_numbers = [index for index in range(len(entry.turn.parts)) if _PartIndex(n, index) not in joined_parts]
        if part_numbers or not entry.turn.parts:
            views.append(_render_turn(turns, n, part_numbers, _RenderContext(results_by_call, options, budget)))
    return views


def group_turns(turns: Iterable[TurnView]) -> list[TurnGroup]:
    """Group the turns of each abandoned branch; every other turn is a group of its own."""
    groups: list[TurnGroup] = []
    last_day = None
    for is_left, neighbours in groupby(turns, key=lambda turn: turn.is_abandoned):
        branch = tuple(neighbours)
        for group in [branch] if is_left else [(turn,) for turn in branch]:
            day = group[0].at.date() if group[0].at else last_day
            groups.append(
                TurnGroup(is_left, group, any(turn.is_here for turn in group), day if day != last_day else None)
            )
            last_day = day
    return groups


def _join_results(turns: Sequence[LocatedTurn]) -> dict[_PartIndex, list[_PartIndex]]:
    """Map each call to its result and the images with it.

    Of calls with the same id, the first without a result gets it.
    """
    open_calls: dict[str, list[_PartIndex]] = {}
    call_by_id: dict[str, _PartIndex] = {}
    results_by_call: dict[_PartIndex, list[_PartIndex]] = {}
    for n, entry in enumerate(turns):
        for number, part in enumerate(entry.turn.parts):
            if not part.call_id:
                continue
            if part.kind == "call":
                open_calls.setdefault(part.call_id, []).append(_PartIndex(n, number))
            elif part.kind == "result" and open_calls.get(part.call_id):
                call_by_id[part.call_id] = open_calls[part.call_id].pop(0)
                results_by_call[call_by_id[part.call_id]] = [_PartIndex(n, number)]
            elif part.kind == "image" and part.call_id in call_by_id:
                results_by_call[call_by_id[part.call_id]].append(_PartIndex(n, number))
    return results_by_call


class _RenderContext(NamedTuple):
    """Everything a turn is rendered with."""

    results_by_call: Mapping[_PartIndex, list[_PartIndex]]
    options: RenderOptions
    budget: _TranscriptBudget


def _render_turn(
    turns: Sequence[LocatedTurn], n: int, part_numbers: Sequence[int], context: _RenderContext
) -> TurnView:
    location, turn = turns[n]
    options = context.options
    visible_numbers = [
        number
        for number in part_numbers
        if not (options.is_words_only and turn.parts[number].kind in ("call", "result", "thinking"))
    ]
    n_skipped = min(options.n_skipped, len(visible_numbers)) if n == 0 else 0
    page_numbers = visible_numbers[
        n_skipped : n_skipped + min(PIECES_PER_TURN, max(_FEW_PIECES, context.budget.pieces))
    ]
    pieces, spawned = _render_parts(turns, n, page_numbers, context)
    result_turn_ids = [
        turns[call_results[0].turn].location.turn_id
        for number in visible_numbers
        if (call_results := context.results_by_call.get(_PartIndex(n, number)))
    ]
    turn_ids = tuple(dict.fromkeys([location.turn_id, *result_turn_ids]))
    return TurnView(
        location.turn_id,
        location.captured_in,
        turn.role,
        turn.author == "person",
        _name_speaker(turn, options.owner),
        turn.stated_at.astimezone() if turn.stated_at else None,
        to_label(turn.model),
        turn.n_tokens,
        pieces,
        turn.is_summary,
        location.is_abandoned,
        options.target_id in turn_ids,
        turn_ids,
        spawned,
        n_skipped,
        len(visible_numbers) - n_skipped - len(page_numbers),
    )


def _render_parts(
    turns: Sequence[LocatedTurn], n: int, part_numbers: Sequence[int], context: _RenderContext
) -> tuple[tuple[TextPiece | CallPiece | OutputPiece, ...], tuple[SpawnedAgent, ...]]:
    """Return (these parts of a turn as they are shown, the sub-agents that none of its calls began)."""
    location, turn = turns[n]
    budget, spawned = context.budget, list(context.options.spawned.get(location.turn_id, ()))
    budget.pieces -= len(part_numbers)
    pieces: list[TextPiece | CallPiece | OutputPiece] = []
    for number in part_numbers:
        part = turn.parts[number]
        if part.kind == "call":
            call = _render_call(part, number, _render_output(turns, _PartIndex(n, number), context), context, spawned)
            spawned = [agent for agent in spawned if agent not in call.spawned]
            pieces.append(call)
        elif part.kind == "result":
            pieces.append(OutputPiece(budget.cut_output(part, number), location.turn_id, part.is_error, None, ()))
        else:
            pieces.append(
                _render_part(part, number, budget, is_machine=turn.author == "machine" and not turn.is_summary)
            )
    return tuple(pieces), tuple(spawned)


def _name_speaker(turn: Turn, owner: str) -> str:
    if turn.author == "person" and owner:
        return owner
    return "System" if turn.role == "system" else _SPEAKERS[turn.author]


# parts ----------------------------------------------------------------------------------------------------------


def _render_part(part: Part, n: int, budget: _TranscriptBudget, *, is_machine: bool = False) -> TextPiece:
    if part.kind == "image":
        media = part.name if part.name in IMAGE_TYPES and _SIZED_IMAGE.fullmatch(part.text) else ""
        return TextPiece("image", "", n, label=to_label(part.text.strip("[]"), 120), media=media)
    if part.kind == "pasted":
        return budget.cut_output(part, n)
    if is_machine and part.text.count("\n") >= _NOTICE_LINES:
        return replace(budget.cut(part, n, _TEXT_CHARS), kind="notice")
    return budget.cut(part, n, _TEXT_CHARS)


def to_label(text: str, n_chars: int = LABEL_CHARS) -> str:
    """Return a name that others chose, masked and cut for display."""
    return one_line(mask(text[: n_chars + _MARGIN_CHARS]), n_chars)


def cut_part(part: Part, n: int, max_chars: int, max_lines: int | None = None, label: str = "") -> TextPiece:
    """Return a part's beginning, masked."""
    masked = mask(part.text[: max_chars + _MARGIN_CHARS])
    lines = masked[:max_chars].split("\n")
    excerpt = "\n".join(lines[:max_lines])
    is_cut = len(excerpt) < len(masked) or len(part.text) > max_chars + _MARGIN_CHARS
    return TextPiece(part.kind, excerpt, n, part.text.count("\n") + 1, len(part.text), is_cut, label)


def _render_output(turns: Sequence[LocatedTurn], call_index: _PartIndex, context: _RenderContext) -> OutputPiece | None:
    """Return the result of a call, as it is shown within the call."""
    results = context.results_by_call.get(call_index, [])
    if not results:
        return None
    entry, number = turns[results[0].turn], results[0].part
    part, image_indexes = entry.turn.parts[number], results[1 : _MAX_IMAGES + 1]
    images = tuple(
        _render_part(entry.turn.parts[image_index.part], image_index.part, context.budget)
        for image_index in image_indexes
    )
    took_ms = _measure_ms(turns[call_index.turn].turn, entry.turn) if results[0].turn != call_index.turn else None
    piece, n_more = context.budget.cut_output(part, number), len(results) - 1 - len(images)
    return OutputPiece(piece, entry.location.turn_id, part.is_error, took_ms, images, n_more)


def _measure_ms(before: Turn, after: Turn) -> float | None:
    if before.stated_at is None or after.stated_at is None or after.stated_at < before.stated_at:
        return None
    return (after.stated_at - before.stated_at).total_seconds() * 1000


def _render_call(
    part: Part, n: int, output: OutputPiece | None, context: _RenderContext, spawned: Sequence[SpawnedAgent]
) -> CallPiece:
    budget, options = context.budget, context.options
    call_input = budget.decode_input(part.text)
    file_changes = list_changes(part.name, call_input, budget.diff_budget)
    inputs, is_cut = (
        ((), any(change.n_more or change.is_cut for change in file_changes))
        if file_changes
        else _render_inputs(part if call_input is None else call_input, n, budget)
    )
    summary = ", ".join(change.path for change in file_changes if change.path) or (
        "" if call_input is None else _summarise_input(call_input)
    )
    if options.folder:
        summary = summary.replace(options.folder.rstrip("/") + "/", "")
    own_agents = tuple(agent for agent in spawned if _is_task_of(agent, call_input))
    name = to_label(part.name, 60) or "tool"
    return CallPiece(name, one_line(summary, _SUMMARY_CHARS), n, inputs, file_changes, output, own_agents, is_cut)


def _decode_input(text: str) -> Any:
    """Decode the input of a call; return the text if it is no JSON, or nested too deep."""
    try:
        value = msgspec.json.decode(text) if text[:1] in "{[" else text
    except (msgspec.DecodeError, RecursionError):
        return text
    return text if _is_deep(value) else value


def _is_deep(call_input: Any) -> bool:
    """Return True if values are nested deeper than _MAX_LEVELS."""
    level = [call_input]
    for _ in range(_MAX_LEVELS):
        inner = (item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list))
        level = [value for values in inner for value in values]
        if not level:
            return False
    return True


def _mask_input(call_input: Any) -> Any:
    """Mask the texts of an input once more: behind escapes, a secret may not look like one."""
    if isinstance(call_input, str):
        return mask(call_input)
    if isinstance(call_input, list):
        return [_mask_input(item) for item in call_input]
    return (
        {name: _mask_input(value) for name, value in call_input.items()} if isinstance(call_input, dict) else call_input
    )


def _summarise_input(call_input: Any) -> str:
    """Return the main argument of a call: the field that says it, or else its first text."""
    if not isinstance(call_input, dict):
        return call_input if isinstance(call_input, str) else _to_text(call_input)
    texts = {name: _to_text(value) for name, value in call_input.items() if _is_text(value)}
    main_text = next((texts[name] for name in _SUMMARY_FIELDS if texts.get(name)), "") or next(
        filter(None, texts.values()), ""
    )
    counts = (f"{len(value)} {name}" for name, value in call_input.items() if isinstance(value, list) and value)
    return main_text or next(counts, "")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(item, str) for item in value))


def _to_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return " ".join(value) if _is_text(value) else msgspec.json.encode(value).decode()


def _render_inputs(call_input: Any, n: int, budget: _TranscriptBudget) -> tuple[tuple[TextPiece, ...], bool]:
    """Return (the fields of an input, each under its name; True if there are more).

    call_input: a Part is shown as text.
    """
    if isinstance(call_input, Part):
        return (budget.cut_output(call_input, n),), False
    fields = call_input.items() if isinstance(call_input, dict) else [("", call_input)]
    parts = ((name, Part("call", _to_text(value))) for name, value in fields)
    shown_parts = list(islice(((name, part) for name, part in parts if part.text), _MAX_FIELDS + 1))
    pieces = tuple(
        budget.cut(part, n, _OUTPUT_CHARS, _OUTPUT_LINES, label=to_label(name))
        for name, part in shown_parts[:_MAX_FIELDS]
    )
    return pieces, len(shown_parts) > _MAX_FIELDS


def _is_task_of(spawned: SpawnedAgent, call_input: Any) -> bool:
    """Return True if a call gave a sub-agent its task: the words with which the sub-agent begins."""
    task = _collapse_spaces(spawned.intent)[:_INTENT_CHARS]
    values = call_input.values() if isinstance(call_input, dict) else [call_input]
    return bool(task) and any(isinstance(value, str) and task in _collapse_spaces(value[:4_000]) for value in values)


def _collapse_spaces(text: str) -> str:
    return " ".join(text.split())
