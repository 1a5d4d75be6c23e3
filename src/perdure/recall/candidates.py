"""What recall asks of an index: candidates with raw scores, and facts about them. A protocol, no implementation.

Every method sees only what the principal may see within the chosen scope: the filter is applied before the best are
taken. Scores are raw (BM25 of any sign and scale with more being better; cosines), ids are turn ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from perdure.recall.feedback import Matrix
from perdure.recall.fuse import Scores
from perdure.recall.neighbours import Around
from perdure.recall.truth import Beliefs
from perdure.types import Memory, Role, Window


class Fact(NamedTuple):
    """Who said a turn, and when."""

    role: Role
    stated_at: datetime | None
    is_said: bool = True  # what matched was said; False for a call
    speaker: str = ""  # the name in front where one role has several people ("Ada: …"); else empty


@dataclass(frozen=True, slots=True)
class Detail:
    """What is shown of a candidate."""

    turn_id: str
    run_id: str
    conversation: str
    role: Role
    stated_at: datetime | None
    machine: str
    runtime: str
    text: str  # the piece that matched, or the beginning of the turn; masked
    memory: Memory | None = None  # where it is one
    user: str = ""  # its owner
    is_shared: bool = False  # the owner is another than who asks
    chunk: int | None = None  # which piece of the turn it is; None for a memory


@dataclass(frozen=True, slots=True)
class Sighting:
    """Where a name stands."""

    n_turns: int  # that hold it
    rarity: float  # ln(everything / n_turns), half a turn when none holds it; 0 when all do
    newest: tuple[str, ...] = ()  # ids of some of them, newest first


class Candidates(Protocol):
    """The index as recall sees it."""

    def keyword(self, queries: Sequence[str], k: int, within: Window | None = None) -> Sequence[Scores]:
        """For each query at most k turns with their BM25; without a query word that is known, none.

        The empty query finds the newest turns, all with the same score.
        """

    def nearest(self, queries: Matrix, k: int, within: Window | None = None) -> Sequence[Scores]:
        """For each query vector the k turns with the highest cosine."""

    def vectors(self, ids: Sequence[str]) -> Mapping[str, Matrix]:
        """The vectors of a turn's pieces, one a row, for those that have any."""

    def cosines(self, ids: Sequence[str], queries: Matrix) -> Scores:
        """The best cosine between any piece of a turn and any of the queries, of those turns that have a vector."""

    def around(self, ids: Sequence[str], reach: int) -> Around:
        """What was said at most `reach` turns away in the same line of talk."""

    def rarities(self, words: Sequence[str]) -> Mapping[str, tuple[int, float]]:
        """(how many pieces hold a word, how rare it is) of each; 0 pieces is the rarest."""

    def names(self, names: Sequence[str]) -> Mapping[str, Sighting]:
        """Where names stand, at word boundaries, by index lookup."""

    def beliefs(self, ids: Sequence[str]) -> Beliefs:
        """The memories among these, and those that were made of these turns, with what became of each."""

    def facts(self, ids: Sequence[str]) -> Mapping[str, Fact]:
        """Who said these turns, and when."""

    def details(self, ids: Sequence[str]) -> Mapping[str, Detail]:
        """What is shown of these turns."""
