import pytest

from perdure.recall.fuse import spread


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
