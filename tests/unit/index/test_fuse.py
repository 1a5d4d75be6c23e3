"""Fusion of rankings, feedback terms, and scores that spread to neighbours."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.index.fuse import (
    EQUAL_SCORE,
    clamp_cosines,
    compute_rarity,
    min_max,
    rank_ids,
    reciprocal_rank,
    spread,
    sum_weighted,
    take_best,
)

LEG = st.dictionaries(st.sampled_from("abcdefgh"), st.floats(-50, 50, allow_nan=False), max_size=8)


def test_reciprocal_rank_is_worked_out_by_hand():
    """k = 60: a is 1st and 2nd: 1/61 + 1/62; b 2nd and 1st: the same; c 3rd in one leg: 1/63."""
    scores = reciprocal_rank([["a", "b", "c"], ["b", "a"]])
    assert scores["a"] == pytest.approx(1 / 61 + 1 / 62, abs=1e-12)
    assert scores["b"] == pytest.approx(scores["a"], abs=1e-12)
    assert scores["c"] == pytest.approx(1 / 63, abs=1e-12)


def test_min_max_of_negative_raw_scores():
    """SQLite's own bm25 is negative, turned round here: -1, -3, -5 have range 4: 4/4, 2/4, 0/4."""
    assert min_max({"a": -1.0, "b": -3.0, "c": -5.0}) == {"a": 1.0, "b": 0.5, "c": 0.0}


def test_a_leg_of_equal_scores_does_not_divide_by_zero():
    assert min_max({"a": 7.0, "b": 7.0}) == {"a": EQUAL_SCORE, "b": EQUAL_SCORE}
    assert min_max({"a": 7.0}) == {"a": EQUAL_SCORE}
    assert min_max({}) == {}


def test_negative_cosine_counts_as_zero():
    assert clamp_cosines({"a": -0.3, "b": 0.25, "c": 1.0000001}) == {"a": 0.0, "b": 0.25, "c": 1.0}


def test_the_reference_profile_to_nine_digits():
    """0.7 · vector + 0.3 · keyword. a: 0.7 · 0.9 + 0.3 · 0 = 0.63; b: 0.7 · 0.5 + 0.3 · 1 = 0.65;
    c, found by keywords alone but with its vector fetched: 0.7 · 0.8 + 0.3 · 0.5 = 0.71. So c leads, and would have
    been last with 0.15 if its vector were missing.
    """
    keyword = min_max({"a": 2.0, "b": 6.0, "c": 4.0})
    vector = clamp_cosines({"a": 0.9, "b": 0.5, "c": 0.8})
    scores = sum_weighted({"keyword": keyword, "vector": vector}, {"vector": 0.7, "keyword": 0.3})
    assert {name: pytest.approx(score, abs=1e-9) for name, score in scores.items()} == {"a": 0.63, "b": 0.65, "c": 0.71}
    assert rank_ids(scores) == ["c", "b", "a"]


def test_single_leg_keeps_its_full_scores():
    """Row X12: 0.3 of a keyword score is below any sensible threshold; without vectors it counts whole."""
    assert sum_weighted({"keyword": {"a": 1.0}}, {"vector": 0.7, "keyword": 0.3}) == {"a": 1.0}


def test_ties_break_by_id():
    assert rank_ids({"b": 1.0, "a": 1.0, "c": 2.0}) == ["c", "a", "b"]


def test_strongest_takes_the_best_of_each():
    assert take_best([{"a": -1.0}, {"a": -3.0, "b": 2.0}]) == {"a": -1.0, "b": 2.0}


@given(LEG, LEG)
def test_fusion_ignores_the_order_of_legs_and_of_items(one, other):
    weights = {"one": 0.4, "other": 0.6}
    forward = sum_weighted({"one": one, "other": other}, weights)
    turned = {"other": dict(reversed(list(other.items()))), "one": dict(reversed(list(one.items())))}
    backward = sum_weighted(turned, weights)
    assert rank_ids(forward) == rank_ids(backward)
    assert all(math.isclose(forward[name], backward[name]) for name in forward)


@given(LEG)
def test_normalised_scores_lie_between_0_and_1(leg):
    assert all(0 <= score <= 1 for score in [*min_max(leg).values(), *clamp_cosines(leg).values()])


def test_rarity_is_worked_out_by_hand():
    """ln(100 / 10) = 2.302585; what is everywhere says nothing; what nobody said counts half a sighting: ln 200."""
    assert compute_rarity(10, 100) == pytest.approx(2.302585, abs=1e-6)
    assert compute_rarity(100, 100) == 0.0
    assert compute_rarity(0, 100) == pytest.approx(5.298317, abs=1e-6)
    assert compute_rarity(0, 0) == 0.0


def _row(names):
    return {
        name: [(names[n + d], abs(d)) for d in (-2, -1, 1, 2) if 0 <= n + d < len(names)]
        for n, name in enumerate(names)
    }


def test_shares_of_the_better_neighbour_at_each_distance_by_hand():
    """c = 1, a = 0.5, the rest 0; shares 0.4 and 0.15.
    a: 0.5 + 0.4·max(b=0) + 0.15·c = 0.65. b: 0 + 0.4·max(a=0.5, c=1) + 0.15·d=0 -> 0.4. c: 1 + 0 + 0.15·0.5 = 1.075.
    d: 0.4·1 + 0.15·max(b=0) = 0.4. e: 0.15·1 = 0.15.
    """
    scores = spread({"a": 0.5, "b": 0.0, "c": 1.0, "d": 0.0, "e": 0.0}, _row("abcde"), [0.4, 0.15])
    expected = {"a": 0.65, "b": 0.4, "c": 1.075, "d": 0.4, "e": 0.15}
    assert scores == {name: pytest.approx(score, abs=1e-12) for name, score in expected.items()}


def test_shares_end_at_the_reach():
    assert spread({"a": 1.0}, _row("abcde"), [0.4])["b"] == pytest.approx(0.4)
    assert "c" not in spread({"a": 1.0}, _row("abcde"), [0.4])


def test_zero_shares_change_nothing():
    assert spread({"a": 1.0, "b": 0.2}, _row("ab"), []) == {"a": 1.0, "b": 0.2}
