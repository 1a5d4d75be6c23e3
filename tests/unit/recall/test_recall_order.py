"""The order of cues where one may correct another."""

from datetime import UTC, datetime, timedelta

from perdure.recall.recall import later, newer_first

START = datetime(2026, 1, 1, tzinfo=UTC)
TIMES = {name: START + timedelta(days=n) for n, name in enumerate("abcd")} | {"undated": None}


def _alike(one, other):
    """a, c and the undated one say nearly the same; b and d are something else."""
    return 0.9 if {one, other} <= {"a", "c", "undated"} else 0.1


def test_a_later_cue_stands_before_the_earlier_one_that_it_may_correct():
    assert newer_first(["a", "b", "c", "d"], _alike, TIMES, from_likeness=0.6) == ["c", "a", "b", "d"]


def test_what_is_not_alike_keeps_its_place_and_so_does_what_has_no_time():
    assert newer_first(["a", "undated", "d"], _alike, TIMES, from_likeness=0.6) == ["a", "undated", "d"]


def test_of_three_statements_the_newest_is_first_and_the_oldest_last():
    assert newer_first(["a", "b", "c"], lambda *_: 1.0, TIMES, from_likeness=0.6) == ["c", "b", "a"]


def test_what_may_correct_the_first_is_brought_back_and_nothing_is_there_twice():
    """c was said after a and is like it; where it is among the chosen already, however far behind, it stays one."""
    assert later(["a", "b"], list("abcd"), _alike, TIMES, n_first=1, from_likeness=0.6) == ["c"]
    assert later(["a", "b", "c"], list("abcd"), _alike, TIMES, n_first=1, from_likeness=0.6) == []


def test_two_is_never():
    assert newer_first(["a", "c"], _alike, TIMES, from_likeness=2) == ["a", "c"]
