"""Group statements of a person that may give one thing two values, so that nobody reads the older one alone.

Two statements about one thing may share no word ("the choir sings under Ada", "Grace conducts since June"). So each is
linked to the one that is nearest in meaning before it, and after it. Both stay in their own words and in their order:
a wrong link costs a reader little, and a missing one shows an old value as if it held. Groups are small, because a line
that says everything says nothing. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from perdure.lazy_module import LazyModule

if TYPE_CHECKING:
    import numpy as np

    from perdure.models.embedder import Vectors
else:
    np = LazyModule("numpy")

MIN_COSINE = 0.2  # 0.23 was the lowest of the pairs by which this was set
MAX_GROUP = 4  # statements, where vectors alone link them
MAX_CHAIN = 8  # and where their words do
BY_WORDS = math.inf  # likeness of statements that share their rare words
_N_NEIGHBOURS = 4  # nearest statements that say how crowded a subject is


class Link(NamedTuple):
    """Two statements that may be about one thing."""

    likeness: float  # higher is more alike
    older: int  # number of the statement
    newer: int


class Groups(NamedTuple):
    """Statements that may be about one thing, by number."""

    members: Mapping[int, tuple[int, ...]]  # statement -> all of its group, in their order
    later: Mapping[int, tuple[int, ...]]  # statement -> those linked to it that come later

    def get_members(self, number: int) -> tuple[int, ...]:
        """Return the group of a statement; of one without links, itself."""
        return self.members.get(number, (number,))

    def find_later(self, number: int) -> set[int]:
        """Return the later statements that are linked to one, and those that are linked to them."""
        later: set[int] = set()
        waiting = [number]
        while waiting:
            added = set(self.later.get(waiting.pop(), ())) - later
            later |= added
            waiting += added
        return later


def link_by_meaning(numbers: Sequence[int], messages: Sequence[str], vectors: Vectors) -> list[Link]:
    """Return links from each statement to the most alike of another message before it, and after it.

    Likeness is the cosine less the mean cosine of the nearest neighbours of both: where all talk is of one subject,
    nearness says little (cross-domain similarity local scaling, Conneau et al., ICLR 2018, equation 3).
    numbers: of the statements, ascending; messages: where each stands; vectors: (n, dimension), each of length 1.
    """
    places = np.unique(list(messages), return_inverse=True)[1]
    cosines = np.where(places[:, None] == places[None, :], -1.0, vectors @ vectors.T)
    crowding = np.sort(cosines, axis=1)[:, -_N_NEIGHBOURS:].mean(axis=1)
    likeness = np.where(cosines < MIN_COSINE, -math.inf, 2 * cosines - crowding[:, None] - crowding[None, :])
    links: dict[tuple[int, int], float] = {}
    for row in range(len(numbers)):
        for side, start in ((likeness[row, :row], 0), (likeness[row, row + 1 :], row + 1)):
            if len(side) and side.max() > -math.inf:
                nearest = start + int(side.argmax())
                links[min(row, nearest), max(row, nearest)] = float(likeness[row, nearest])
    return [Link(score, numbers[older], numbers[newer]) for (older, newer), score in links.items()]


def group_linked(links: Iterable[Link]) -> Groups:
    """Return the groups of linked statements: the most alike are joined first, as long as a group stays small.

    >>> groups = group_linked([Link(0.9, 1, 4), Link(0.5, 2, 7), Link(0.4, 4, 9)])
    >>> groups.get_members(9), groups.find_later(1), groups.find_later(2)
    ((1, 4, 9), {9, 4}, {7})
    """
    ordered = sorted(links, key=lambda link: (-link.likeness, link.older, link.newer))
    members: dict[int, tuple[int, ...]] = {}
    for link in ordered:
        joined = {*members.get(link.older, (link.older,)), *members.get(link.newer, (link.newer,))}
        if len(joined) <= (MAX_CHAIN if link.likeness == BY_WORDS else MAX_GROUP):
            members |= dict.fromkeys(joined, tuple(sorted(joined)))
    later: dict[int, tuple[int, ...]] = {}
    for link in ordered:
        if link.newer in members.get(link.older, ()):
            later[link.older] = (*later.get(link.older, ()), link.newer)
    return Groups(members, later)
