"""A floor for a client that has little room: of each layer as much as its share allows, in whole rows, or, where one is
larger than that share, in whole sentences. Pure.

The layers are filled side by side, always the one that has least for its weight, so that a small layer is complete and
a long one pushes no other out. What is left out is said, with the command that shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from perdure import text as words
from perdure.access import fence
from perdure.floor.layers import Layer, headed

# What its owner wrote and what is always true come first, then what was noted and what goes on, then what is long and
# seldom needed. An agent's system prompt has half of what the profile has: a client that cuts has one of its own, and
# what says who an agent is stands at the beginning.
WEIGHTS = {"profile": 4, "core": 4, "notes": 3, "recent": 3, "system": 2, "insights": 2, "cards": 2, "diary": 1}
NOTE_SIZE = 240  # is kept for the line about what was left out
PIECE_CHARS = 200  # of a row that is larger than its layer's share of the room
_CUT = f" {words.ELLIPSIS}"  # behind a row of which only the beginning is there
_NEWEST_LAST = ("notes", "cards", "diary")  # of these the last rows stay, of the others the first
_COUNTED = {"notes": "older notes", "insights": "insights", "cards": "older cards", "diary": "pages of the diary"}
Size = Callable[[str], int]


def block(layers: Sequence[Layer], here: str, nonce: str, room: int | None, *, size: Size = len) -> str:
    """The fenced block that a session begins with, in so much room; "" where there is nothing to say.

    here: time and place as they are, which say nothing alone.
    """
    taken = size(fence.fenced([here], nonce, warning=fence.FLOOR))
    said = fitted(layers, None if room is None else room - taken, lambda text: size(fence.defused(f"\n{text}")))
    return fence.fenced([here, *said], nonce, warning=fence.FLOOR) if said else ""


def fitted(layers: Sequence[Layer], room: int | None, size: Size = len) -> list[str]:
    """The layers under their names, in their order, in so much room, and last what was left out. None: all of them.

    size: of a text, in the unit of the room.

    >>> fitted([Layer("core", "", "core.md", "Tea, not coffee.")], 1000)
    ['# core\\n\\nTea, not coffee.']
    """
    said = [headed(layer.name, layer.text) for layer in layers if layer.text]
    left = {layer.name: layer.n_left for layer in layers}
    if room is not None and sum(size(f"{one}\n\n") for one in said) > room - NOTE_SIZE:
        filled = _filled(layers, room - NOTE_SIZE, size)
        said = [one.text() for one in filled if one.n_taken]
        left |= {one.name: one.n_waiting + one.layer.n_left for one in filled}
    return [*said, *_left_out(left)] if said or room is None or room >= NOTE_SIZE else []


@dataclass
class _Filling:
    """One layer while it is being filled. share: what it may have of the room before a row of it is cut in pieces."""

    layer: Layer
    share: float
    size: Size
    used: int = 0
    n_taken: int = 0  # pieces

    @property
    def name(self) -> str:
        """Of its layer."""
        return self.layer.name

    @cached_property
    def pieces(self) -> list[list[str]]:
        """The rows that it is filled with, the first one first, each in the pieces that stay whole."""
        rows = self.layer.rows if self.name in _COUNTED else self.layer.text.split("\n")
        return [_pieces(row, self.share, self.size) for row in (rows[::-1] if self.name in _NEWEST_LAST else rows)]

    @cached_property
    def costs(self) -> list[int]:
        """What each of its pieces takes, in their order."""
        found: list[int] = []
        for pieces in self.pieces:
            before = "\n\n" if found else f"\n\n{headed(self.name, '')}"
            cut = _CUT if len(pieces) > 1 else ""
            found += [self.size(before + cut + pieces[0]), *(self.size(f" {piece}") for piece in pieces[1:])]
        return found

    @property
    def is_complete(self) -> bool:
        """Whether nothing waits."""
        return self.n_taken == len(self.costs)

    @property
    def ratio(self) -> float:
        """What it has, for its weight."""
        return self.used / WEIGHTS[self.name]

    @property
    def n_waiting(self) -> int:
        """The rows that are not taken whole."""
        ends = accumulate(len(pieces) for pieces in self.pieces)
        return sum(end > self.n_taken for end in ends)

    def take(self, cost: int) -> None:
        """Take the next piece."""
        self.used, self.n_taken = self.used + cost, self.n_taken + 1

    def text(self) -> str:
        """What was taken, under the layer's name."""
        rows, left = [], self.n_taken
        for pieces in self.pieces:
            if left > 0:
                rows.append("".join(pieces[:left]).rstrip() + (_CUT if left < len(pieces) else ""))
            left -= len(pieces)
        ordered = rows[::-1] if self.name in _NEWEST_LAST else rows
        return headed(self.name, (self.layer.joint if self.name in _COUNTED else "\n").join(ordered).rstrip())


def _pieces(row: str, share: float, size: Size) -> list[str]:
    """A row, in pieces of a few sentences where it is larger than its layer's share of the room."""
    if len(row) <= PIECE_CHARS or size(row) <= share:
        return [row]
    return [row[start:end] for start, end in words.split(row, max_chars=PIECE_CHARS, overlap_chars=0)]


def _filled(layers: Sequence[Layer], room: int, size: Size) -> list[_Filling]:
    """The layers that have rows, in their order, each with what it gets."""
    there = [layer for layer in layers if layer.text]
    whole = sum(WEIGHTS[layer.name] for layer in there)
    found = [_Filling(layer, room * WEIGHTS[layer.name] / whole, size) for layer in there]
    growing = sorted(found, key=lambda one: -WEIGHTS[one.name])
    while growing:
        least = min(growing, key=lambda one: one.ratio)
        cost = least.costs[least.n_taken]
        if cost <= room:
            least.take(cost)
            room -= cost
            if not least.is_complete:
                continue
        growing.remove(least)  # complete, or its next piece has no room: what comes behind that would leave a hole
    return found


def _left_out(left: Mapping[str, int]) -> list[str]:
    """A line that says what is not there, if anything is."""
    found = [_named(name, n) for name, n in left.items() if n]
    return [f"Not here, for want of room: {', '.join(found)}. `perdure floor show` has all of it."] if found else []


def _named(name: str, n: int) -> str:
    return f"{n} {_COUNTED[name]}" if name in _COUNTED else f"the rest of {name}"
