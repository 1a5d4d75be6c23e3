"""Links by meaning: the nearest before and after, of other messages, crowded subjects last; and small groups."""

from __future__ import annotations

import numpy as np
import pytest

from perdure.models.embedder import to_unit_length
from perdure.session.groups import BY_WORDS, MAX_CHAIN, MAX_GROUP, Link, group_linked, link_by_meaning


def test_each_statement_is_linked_to_the_nearest_before_and_after() -> None:
    vectors = to_unit_length(np.array([[1, 0], [0, 1], [1, 0.1], [0.1, 1]]))
    links = link_by_meaning([3, 5, 8, 9], ["a", "b", "c", "d"], vectors)
    pairs = {(link.older, link.newer) for link in links}
    assert {(3, 8), (5, 9)} <= pairs and (3, 5) not in pairs  # at right angles


def test_statements_of_one_message_are_not_linked() -> None:
    vectors = to_unit_length(np.array([[1, 0], [1, 0.1], [1, 0.2]]))
    pairs = {(link.older, link.newer) for link in link_by_meaning([1, 2, 3], ["a", "a", "b"], vectors)}
    assert pairs == {(1, 3), (2, 3)}


def test_a_crowded_subject_comes_behind_a_lonely_pair() -> None:
    """Five statements at 0.99 of each other, and a pair at 0.8: the pair has no other neighbour, and is joined first.

    Crowding of the five: about 0.99, so that their likeness is near 0; of the pair: (0.8 + 3 * 0.0) / 4 = 0.2, so that
    its likeness is 2 * 0.8 - 2 * 0.2 = 1.2.
    """
    crowd = [[1, 0.01 * n, 0, 0] for n in range(5)]
    vectors = to_unit_length(np.array([*crowd, [0, 0, 1, 0], [0, 0, 0.8, 0.6]]))
    links = link_by_meaning(list(range(7)), [str(n) for n in range(7)], vectors)
    best = max(links, key=lambda link: link.likeness)
    assert (best.older, best.newer) == (5, 6) and best.likeness == pytest.approx(1.2, abs=0.01)


def test_groups_stay_small_and_words_may_chain_further() -> None:
    chain = [Link(0.5 - n / 100, n, n + 1) for n in range(20)]
    assert max(map(len, group_linked(chain).members.values())) == MAX_GROUP
    stated = [Link(BY_WORDS, n, n + 1) for n in range(20)]
    assert max(map(len, group_linked(stated).members.values())) == MAX_CHAIN
    assert group_linked(reversed(chain)) == group_linked(chain)


def test_a_refused_link_brings_nothing_later() -> None:
    links = [Link(0.9 - n / 10, n, n + 1) for n in range(6)]
    groups = group_linked(links)
    assert groups.get_members(0) == (0, 1, 2, 3) and groups.find_later(0) == {1, 2, 3}
    assert groups.find_later(3) == set() and groups.get_members(42) == (42,)
