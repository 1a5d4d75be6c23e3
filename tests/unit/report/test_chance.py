import pytest

from perdure.report.chance import compare_pairs, compute_fisher_p, find_share_bounds


def test_lost_answers_are_held_against_a_fair_coin():
    """Of 7 changed answers 1 gained: P(at most 1 of 7) = 8 / 128, twice that is 0.125; of 9: 10 / 512, twice 0.0391."""
    assert compare_pairs(50, 6, 1).p == pytest.approx(0.125)
    change = compare_pairs(50, 8, 1)
    assert change.p == pytest.approx(2 * 10 / 512) and change.is_fall and change.change == pytest.approx(-0.14)
    assert change.low < -0.14 < change.high < 0


def test_gain_is_no_fall_and_nothing_changed_is_certain():
    assert not compare_pairs(50, 0, 9).is_fall
    same = compare_pairs(50, 0, 0)
    assert (same.p, same.change, same.low, same.high, same.is_fall) == (1.0, 0.0, 0.0, 0.0, False)
    assert compare_pairs(0, 0, 0).change == 0.0


def test_interval_excludes_zero_exactly_when_it_is_more_than_chance():
    for n_lost in range(12):
        for n_gained in range(n_lost):
            change = compare_pairs(60, n_lost, n_gained)
            assert change.is_fall == (change.high < 0)


def test_share_bounds_are_those_of_the_tables():
    """Clopper and Pearson: 8 of 8 is above 63.1 %; 9 of 10 lies between 55.5 and 99.7 %."""
    assert find_share_bounds(8, 8) == (pytest.approx(0.6306, abs=1e-4), 1.0)
    assert find_share_bounds(9, 10) == (pytest.approx(0.5550, abs=1e-4), pytest.approx(0.9975, abs=1e-4))
    assert find_share_bounds(0, 0) == (0.0, 1.0)


def test_exact_test_of_two_groups_is_the_hypergeometric_tail():
    """3 of 4 against 1 of 4: (C(4,3) C(4,1) + C(4,4) C(4,0)) / C(8,4) = 17 / 70."""
    assert compute_fisher_p(3, 4, 1, 4) == pytest.approx(17 / 70)
    assert compute_fisher_p(0, 4, 4, 4) == 1.0
