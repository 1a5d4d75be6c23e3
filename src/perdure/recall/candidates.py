"""The candidates that recall reads from an index, with raw scores and facts about them. A protocol without
implementation.

Every method sees only what the principal may see within the chosen scope: the filter is applied before
the best are taken. Scores are raw (BM25 of any sign and scale, more is better; cosines). Ids are turn
ids or memory ids.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from msgspec import Struct

from perdure.index.fuse import Matrix, Neighbours, Scores
from perdure.recall.truth import Beliefs
from perdure.types import Memory, Role, Window

MAX_STEPS = 10  # texts of an exchange that are counted
MAX_CLOSING = 16  # turns between a turn and the end of its talk; a longer one goes on about something else


class TurnFact(NamedTuple):
    """The speaker and the time of a turn."""

    role: Role
    stated_at: datetime | None
    is_said: bool = True  # the matching part was said; False for a tool call
    speaker: str = ""  # the name in front if several people share a role ("Ada: …"); else empty
    is_from_program: bool = False  # nobody typed it: a summary, the task of a sub-agent, a note of the client
    is_of_workflow: bool = False  # what an agent thought in a workflow, where no person speaks


class Exchange(NamedTuple):
    """The place of an agent's text in its exchange: a person's message, and all that the agent says for it."""

    opener_id: str  # turn id of the person's message; empty without one
    n_steps: int  # texts of the agent between that message and this one, MAX_STEPS at most
    is_last: bool  # the agent says nothing more before the next message of a person


class CandidateDetail(Struct, frozen=True):
    """The fields of a candidate that are shown."""

    turn_id: str
    run_id: str
    conversation: str
    role: Role
    stated_at: datetime | None
    machine: str
    runtime: str
    text: str  # the chunk that matched, or the beginning of the turn; masked
    memory: Memory | None = None  # if the candidate is a memory
    user: str = ""  # its owner
    is_shared: bool = False  # the owner is not the one who asks
    chunk: int | None = None  # chunk number within the turn; None for a memory
    project: str | None = None  # masked if it is another owner's
    is_left: bool = False  # on an abandoned branch, or no longer in its file
    is_call: bool = False  # the chunk holds tool calls
    is_in_picture: bool = False  # the chunk was read in an image of the turn
    before_call: str = ""  # the chunks before it, if it begins inside a call


class NameSighting(Struct, frozen=True):
    """The turns that contain a name."""

    n_turns: int  # turns that contain the name
    rarity: float  # ln(all turns / n_turns); n_turns = 0.5 if none contains it; 0 if all do
    newest: tuple[str, ...] = ()  # ids of some of them, newest first


class CandidateSource(Protocol):
    """The index as recall sees it."""

    def search_keyword(self, queries: Sequence[str], k: int, window: Window | None = None) -> Sequence[Scores]:
        """Return for each query at most k turns with their BM25; none for a query without a known word.

        The empty query finds the newest turns, all with the same score.
        """

    def begin_vector_search(
        self, wait_for_queries: Callable[[], Matrix | None], k: int, windows: Sequence[Window | None]
    ) -> None:
        """Begin what `search_vectors` will be asked for, beside the caller, as soon as the queries are there."""

    def search_vectors(self, queries: Matrix, k: int, window: Window | None = None) -> Sequence[Scores]:
        """Return for each query vector the k turns with the highest cosine."""

    def get_vectors(self, ids: Sequence[str]) -> Mapping[str, Matrix]:
        """Return the vectors of each turn's chunks, one a row; turns without vectors are left out."""

    def compute_cosines(self, ids: Sequence[str], queries: Matrix) -> Scores:
        """Return for each turn with vectors the best cosine between any of its chunks and any of the queries."""

    def find_neighbours(self, ids: Sequence[str], reach: int) -> Neighbours:
        """Return for each turn the turns at most `reach` away in the same thread."""

    def find_exchanges(self, ids: Sequence[str]) -> Mapping[str, Exchange]:
        """Return for each of these turns in which an agent speaks its place in the exchange."""

    def find_closings(self, ids: Sequence[str]) -> Mapping[str, str]:
        """Return for each of these turns the agent's last text in the same thread, if it is at most MAX_CLOSING turns
        further on.
        """

    def get_rarities(self, words: Sequence[str]) -> Mapping[str, tuple[int, float]]:
        """Return for each word how many chunks contain it and how rare it is; a word in 0 chunks is the rarest."""

    def find_names(self, names: Sequence[str]) -> Mapping[str, NameSighting]:
        """Find names at word boundaries, by index lookup."""

    def find_beliefs(self, ids: Sequence[str]) -> Beliefs:
        """Return the memories among these ids and those made of these turns, each with what became of it."""

    def find_from_web(self, ids: Sequence[str]) -> Collection[str]:
        """Return those of these turns in which an agent speaks after it read something from the web for the same
        message.
        """

    def get_facts(self, ids: Sequence[str]) -> Mapping[str, TurnFact]:
        """Return the speaker and time of these turns."""

    def get_details(self, ids: Sequence[str]) -> Mapping[str, CandidateDetail]:
        """Return what is shown of these candidates."""
