"""What the index is made of, before it is written: a run, its turns and their pieces. Pure values."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.types import Turn


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """A searchable piece of one turn."""

    n: int  # place in its turn, from 0
    kind: str  # text, thinking, call or result
    text: str  # masked
    tie: int  # a number from the turn's id and n: equal scores are ordered by it


@dataclass(frozen=True, slots=True)
class TurnRow:
    """A turn as the index keeps it."""

    turn_id: str
    copy_key: int  # equal for copies of one message
    turn: Turn
    stated_ms: int | None
    chunks: tuple[ChunkRow, ...]
    facets: tuple[tuple[str, str], ...]  # (file | tool | skill | entity, value)
    thread: int  # equal for the turns of one line of talk: a source, or a sidechain in it
    is_said: bool  # a person or an agent said words in it: not a notice, nor a mere call, result or thought
    speaker: str  # the name in front, where one role has several people ("Ada: …"); masked


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as the index keeps it: a captured one, or an inline sidechain inside it."""

    run_id: str
    thread: str  # "" for the captured run itself
    title: str
    intent: str  # beginning of the first words of a person, or else of the first user turn
    turns: tuple[TurnRow, ...]
    n_calls: int
    n_tokens: int
    started_ms: int | None
    ended_ms: int | None

    def count(self, role: str) -> int:
        """How many of its turns have a role."""
        return sum(row.turn.role == role for row in self.turns)
