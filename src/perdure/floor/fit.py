"""Fit the layers into the room that a client has. Pure.

Rows stay whole; a row larger than its layer's share is cut after a sentence. The layers are filled in
parallel; the next piece always goes to the layer that has least for its weight. So a small layer is
complete, and a long one pushes no other out. The result says what was left out, and names the command
that shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from perdure import text
from perdure.access import fence
from perdure.floor.layers import Layer, add_heading

# The owner's words and lasting facts weigh most, then notes and recent events, then long texts that are seldom needed.
# An agent's system prompt has half the weight of the profile: a client that cuts has a system prompt of its own, and
# the description of the agent comes first in it.
WEIGHTS = {"profile": 4, "core": 4, "notes": 3, "recent": 3, "system": 2, "insights": 2, "cards": 2, "diary": 1}
LEFT_OUT_NOTE_SIZE = 240  # room kept for the line about what was left out
MAX_PIECE_CHARS = 200  # pieces of a row that exceeds its layer's share of the room
_CUT_MARK = f" {text.ELLIPSIS}"  # ends a row that was cut
_NEWEST_LAST = ("notes", "cards", "diary")  # these keep their last rows, the others their first
_ROW_NOUNS = {"notes": "older notes", "insights": "insights", "cards": "older cards", "diary": "pages of the diary"}
SizeOf = Callable[[str], int]


def render_floor_block(
    layers: Sequence[Layer], location_line: str, nonce: str, room: int | None, *, size_of: SizeOf = len
) -> str:
    """Render the fenced block that a session begins with, within `room`; "" if there is nothing to say.

    location_line: time and location, which are no reason for a block alone.
    """
    location_size = size_of(fence.fenced([location_line], nonce, warning=fence.FLOOR))
    layer_texts = fit_layers(
        layers, None if room is None else room - location_size, lambda text: size_of(fence.defused(f"\n{text}"))
    )
    return fence.fenced([location_line, *layer_texts], nonce, warning=fence.FLOOR) if layer_texts else ""


def fit_layers(layers: Sequence[Layer], room: int | None, size_of: SizeOf = len) -> list[str]:
    r"""Return the layers under their names, in their order, within `room`, and last what was left out.

    None: all of them.

    size_of: size of a text, in the unit of the room.

    >>> fit_layers([Layer("core", "", "core.md", "Tea, not coffee.")], 1000)
    ['# core\n\nTea, not coffee.']
    """
    layer_texts = [add_heading(layer.name, layer.text) for layer in layers if layer.text]
    n_left_by_name = {layer.name: layer.n_left for layer in layers}
    if room is not None and sum(size_of(f"{fill}\n\n") for fill in layer_texts) > room - LEFT_OUT_NOTE_SIZE:
        fills = _fill_layers(layers, room - LEFT_OUT_NOTE_SIZE, size_of)
        layer_texts = [fill.render() for fill in fills if fill.n_taken]
        n_left_by_name |= {fill.name: fill.n_waiting + fill.layer.n_left for fill in fills}
    return (
        [*layer_texts, *_describe_left_out(n_left_by_name)]
        if layer_texts or room is None or room >= LEFT_OUT_NOTE_SIZE
        else []
    )


@dataclass
class _LayerFill:
    """One layer while it is filled. share: the room it may take before one of its rows is cut into pieces."""

    layer: Layer
    share: float
    size_of: SizeOf
    used_size: int = 0
    n_taken: int = 0  # pieces

    @property
    def name(self) -> str:
        """The name of the layer."""
        return self.layer.name

    @cached_property
    def pieces(self) -> list[list[str]]:
        """The rows in the order in which they are taken, each split into pieces that stay whole."""
        rows = self.layer.rows if self.name in _ROW_NOUNS else self.layer.text.split("\n")
        return [
            _split_row(row, self.share, self.size_of) for row in (rows[::-1] if self.name in _NEWEST_LAST else rows)
        ]

    @cached_property
    def costs(self) -> list[int]:
        """The size of each piece, in the same order."""
        costs: list[int] = []
        for pieces in self.pieces:
            prefix = "\n\n" if costs else f"\n\n{add_heading(self.name, '')}"
            cut_mark = _CUT_MARK if len(pieces) > 1 else ""
            costs += [self.size_of(prefix + cut_mark + pieces[0]), *(self.size_of(f" {piece}") for piece in pieces[1:])]
        return costs

    @property
    def is_complete(self) -> bool:
        """True if every piece was taken."""
        return self.n_taken == len(self.costs)

    @property
    def fill_ratio(self) -> float:
        """Size taken, divided by the layer's weight."""
        return self.used_size / WEIGHTS[self.name]

    @property
    def n_waiting(self) -> int:
        """Number of rows that were not taken whole."""
        ends = accumulate(len(pieces) for pieces in self.pieces)
        return sum(end > self.n_taken for end in ends)

    def take_piece(self, cost: int) -> None:
        """Take the next piece."""
        self.used_size, self.n_taken = self.used_size + cost, self.n_taken + 1

    def render(self) -> str:
        """Return the pieces that were taken, under the layer's name."""
        rows, n_pieces_left = [], self.n_taken
        for pieces in self.pieces:
            if n_pieces_left > 0:
                rows.append(
                    "".join(pieces[:n_pieces_left]).rstrip() + (_CUT_MARK if n_pieces_left < len(pieces) else "")
                )
            n_pieces_left -= len(pieces)
        ordered_rows = rows[::-1] if self.name in _NEWEST_LAST else rows
        return add_heading(
            self.name, (self.layer.separator if self.name in _ROW_NOUNS else "\n").join(ordered_rows).rstrip()
        )


def _split_row(row: str, share: float, size_of: SizeOf) -> list[str]:
    """Split a row into pieces of a few sentences if it is larger than its layer's share of the room."""
    if len(row) <= MAX_PIECE_CHARS or size_of(row) <= share:
        return [row]
    return [row[start:end] for start, end in text.split(row, max_chars=MAX_PIECE_CHARS, overlap_chars=0)]


def _fill_layers(layers: Sequence[Layer], room: int, size_of: SizeOf) -> list[_LayerFill]:
    """Fill the layers that have a text, and return them in their order."""
    filled_layers = [layer for layer in layers if layer.text]
    total_weight = sum(WEIGHTS[layer.name] for layer in filled_layers)
    fills = [_LayerFill(layer, room * WEIGHTS[layer.name] / total_weight, size_of) for layer in filled_layers]
    growing = sorted(fills, key=lambda fill: -WEIGHTS[fill.name])
    while growing:
        least_filled = min(growing, key=lambda fill: fill.fill_ratio)
        cost = least_filled.costs[least_filled.n_taken]
        if cost <= room:
            least_filled.take_piece(cost)
            room -= cost
            if not least_filled.is_complete:
                continue
        growing.remove(least_filled)  # complete, or the next piece does not fit: a later piece would leave a gap
    return fills


def _describe_left_out(n_left_by_name: Mapping[str, int]) -> list[str]:
    """Return a line that says what was left out, if anything was."""
    counts = [_describe_count(name, n) for name, n in n_left_by_name.items() if n]
    return [f"Not here, for want of room: {', '.join(counts)}. `perdure floor show` has all of it."] if counts else []


def _describe_count(name: str, n: int) -> str:
    return f"{n} {_ROW_NOUNS[name]}" if name in _ROW_NOUNS else f"the rest of {name}"
