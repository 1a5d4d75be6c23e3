"""The order of cues where one may correct another."""

from datetime import UTC, datetime, timedelta

from perdure.recall.recall import find_corrections, order_newer_first

START = datetime(2026, 1, 1, tzinfo=UTC)
TIMES = {name: START + timedelta(days=n) for n, name in enumerate("abcd")} | {"undated": None}


def _alike(one, other):
    """a, c and the undated one say nearly the same; b and d are something else."""
    return 0.9 if {one, other} <= {"a", "c", "undated"} else 0.1


def test_later_cue_moves_before_the_similar_earlier_one():
    assert order_newer_first(["a", "b", "c", "d"], _alike, TIMES, from_likeness=0.6) == ["c", "a", "b", "d"]


def test_unlike_or_undated_cues_keep_their_place():
    assert order_newer_first(["a", "undated", "d"], _alike, TIMES, from_likeness=0.6) == ["a", "undated", "d"]


def test_three_alike_statements_are_sorted_newest_first():
    assert order_newer_first(["a", "b", "c"], lambda *_: 1.0, TIMES, from_likeness=0.6) == ["c", "b", "a"]


def test_later_similar_cue_is_added_once():
    """c was said after a and is like it; where it is among the chosen already, however far behind, it stays one."""
    assert find_corrections(["a", "b"], list("abcd"), _alike, TIMES, n_first=1, from_likeness=0.6) == ["c"]
    assert find_corrections(["a", "b", "c"], list("abcd"), _alike, TIMES, n_first=1, from_likeness=0.6) == []


def test_two_is_never():
    assert order_newer_first(["a", "c"], _alike, TIMES, from_likeness=2) == ["a", "c"]
