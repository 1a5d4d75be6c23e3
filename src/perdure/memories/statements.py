"""What a person plainly states. Pure. (Minimal; the rules come from the branch that writes them.)"""

from __future__ import annotations

from dataclasses import dataclass

from perdure.types import MemoryKind


@dataclass(frozen=True)
class Statement:
    """One statement, where it stands in the text."""

    kind: MemoryKind
    text: str
    start: int
    end: int
    language: str


def stated(text: str) -> list[Statement]:
    """The plain statements of a text."""
    del text
    return []
