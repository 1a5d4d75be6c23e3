"""A floor for a client that has little room: of each layer as much as its share allows, in whole rows. Pure.

The layers are filled side by side, always the one that has least for its weight, so that a small layer is complete and
a long one pushes no other out. What is left out is said, with the command that shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from perdure.access import fence
from perdure.floor.layers import Layer, headed

# What its owner wrote and what is always true come first, then what was noted and what goes on, then what is long and
# seldom needed. An agent's system prompt has half of what the profile has: a client that cuts has one of its own, and
# what says who an agent is stands at the beginning.
WEIGHTS = {"profile": 4, "core": 4, "notes": 3, "recent": 3, "system": 2, "insights": 2, "cards": 2, "diary": 1}
NOTE_SIZE = 240  # is kept for the line about what was left out
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
        said = [one.text() for one in filled if one.taken]
        left |= {one.layer.name: len(one.waiting) + one.layer.n_left for one in filled}
    return [*said, *_left_out(left)] if said or room is None or room >= NOTE_SIZE else []


@dataclass
class _Filling:
    """One layer while it is being filled."""

    layer: Layer
    taken: list[str] = field(default_factory=list)
    used: int = 0

    @property
    def is_page(self) -> bool:
        return self.layer.name not in _COUNTED

    @property
    def waiting(self) -> Sequence[str]:
        """The rows that are not taken, the next one first."""
        rows = self.layer.text.split("\n") if self.is_page else self.layer.rows
        return (rows[::-1] if self.layer.name in _NEWEST_LAST else rows)[len(self.taken) :]

    @property
    def share(self) -> float:
        """What it has, for its weight."""
        return self.used / WEIGHTS[self.layer.name]

    def cost(self, size: Size) -> int:
        """What the next row takes."""
        before = "\n\n" if self.taken else f"\n\n{headed(self.layer.name, '')}"
        return size(before + self.waiting[0])

    def text(self) -> str:
        """What was taken, under the layer's name."""
        rows = self.taken[::-1] if self.layer.name in _NEWEST_LAST else self.taken
        return headed(self.layer.name, ("\n" if self.is_page else self.layer.joint).join(rows).rstrip())


def _filled(layers: Sequence[Layer], room: int, size: Size) -> list[_Filling]:
    """The layers that have rows, in their order, each with what it gets."""
    found = [_Filling(layer) for layer in layers if layer.text]
    growing = sorted(found, key=lambda one: -WEIGHTS[one.layer.name])
    while growing:
        least = min(growing, key=lambda one: one.share)
        cost = least.cost(size)
        if cost <= room:
            least.taken.append(least.waiting[0])
            least.used, room = least.used + cost, room - cost
            if least.waiting:
                continue
        growing.remove(least)  # complete, or its next row has no room: what comes behind that would leave a hole
    return found


def _left_out(left: Mapping[str, int]) -> list[str]:
    """A line that says what is not there, if anything is."""
    found = [_named(name, n) for name, n in left.items() if n]
    return [f"Not here, for want of room: {', '.join(found)}. `perdure floor show` has all of it."] if found else []


def _named(name: str, n: int) -> str:
    return f"{n} {_COUNTED[name]}" if name in _COUNTED else f"the rest of {name}"
