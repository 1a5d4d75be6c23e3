"""Which later turn restates an earlier one, and where it then stands."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from perdure.recall.corrections import (
    find_corrections,
    is_later,
    order_newer_first,
    put_later_sessions_first,
    put_latest_before,
    restates,
)

FIRST_AT = datetime(2026, 1, 1, tzinfo=UTC)
TIMES = {name: FIRST_AT + timedelta(days=n) for n, name in enumerate("abcd")} | {"undated": None}


def measure_likeness(one: str, other: str) -> float:
    """a, c and the undated one say nearly the same; b and d are something else."""
    return 0.9 if {one, other} <= {"a", "c", "undated"} else 0.1


def corrects(later: str, earlier: str) -> bool:
    return is_later(later, earlier, TIMES) and measure_likeness(later, earlier) > 0.5


def test_later_cue_moves_before_the_one_it_corrects() -> None:
    assert order_newer_first(["a", "b", "c", "d"], corrects) == ["c", "a", "b", "d"]


def test_unlike_or_undated_cues_keep_their_place() -> None:
    assert order_newer_first(["a", "undated", "d"], corrects) == ["a", "undated", "d"]


def test_three_statements_are_sorted_newest_first() -> None:
    assert order_newer_first(["a", "b", "c"], lambda one, other: is_later(one, other, TIMES)) == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("chosen", "n_first", "ordered"),
    [("ab", 1, "cab"), ("abc", 1, "cab"), ("cab", 2, "cab"), ("bad", 1, "bad"), ("bad", 2, "bcad"), ("dab", 0, "dab")],
)
def test_turn_of_a_later_session_stands_before_the_best_cues(chosen: str, n_first: int, ordered: str) -> None:
    """c is like a and later; it is found among all candidates, moved or added, and never stands twice."""
    assert put_latest_before(list(chosen), list("abcd"), measure_likeness, corrects, n_first=n_first) == list(ordered)


@pytest.mark.parametrize(
    ("chosen", "weak", "ordered"),
    [
        ("a1 a2 b1 b2", "", "b1 b2 a1 a2"),  # two turns of each: the later session first
        ("a1 a2 b1", "", "a1 a2 b1"),  # one turn is no session about it
        ("a1 a2 b1 b2", "b1 b2", "a1 a2 b1 b2"),  # the later one hardly answers
        ("a1 c1 b1 a2 b2", "", "b1 b2 a1 a2 c1"),
        ("x1 a1 x2 a2", "", "x1 a1 x2 a2"),  # undated
    ],
)
def test_later_of_two_sessions_about_a_task_comes_first(chosen: str, weak: str, ordered: str) -> None:
    turn_ids = chosen.split()
    sessions = {turn_id: turn_id[0] for turn_id in turn_ids}
    times = {turn_id: TIMES.get(turn_id[0]) for turn_id in turn_ids}
    result = put_later_sessions_first(turn_ids, sessions, times, lambda turn_id: turn_id not in weak.split())
    assert result == ordered.split()


def test_correction_is_added_once() -> None:
    """c was said after a and is like it; where it is among the chosen already, however far behind, it stays one."""
    assert find_corrections(["a", "b"], list("abcd"), measure_likeness, corrects, n_first=1) == ["c"]
    assert find_corrections(["a", "b", "c"], list("abcd"), measure_likeness, corrects, n_first=1) == []


@pytest.mark.parametrize(
    ("later", "earlier", "asked", "is_same"),
    [
        ("staging moved port 9090", "staging listens port 8080", "port staging", True),
        ("metrics exporter listens port 9102", "staging listens port 8080", "staging server", False),
        ("lovely bowl colours pottery", "made bowl pottery class yesterday", "bowl class photo garden", True),
        ("lovely sunset by the sea", "made bowl pottery class yesterday", "bowl pottery", False),
        ("staging moved port 9090", "staging listens port 8080", "database", False),
        ("", "staging listens port 8080", "port", False),
    ],
)
def test_statement_restates_another_about_what_is_asked(later: str, earlier: str, asked: str, is_same: bool) -> None:
    assert restates(set(later.split()), set(earlier.split()), set(asked.split())) is is_same
