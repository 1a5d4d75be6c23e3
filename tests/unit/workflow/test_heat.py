"""The curve of heat, with numbers that were worked out by hand."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest

from perdure.workflow import heat

T0 = datetime(2026, 11, 20, 9, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_base_is_seven_tenths_importance_and_three_density():
    """0.7 · 0.5 + 0.3 · 1 = 0.65; 0.7 · 1 + 0.3 · 1 = 1; never more than 1."""
    assert heat.compute_base(0.5, 1.0) == pytest.approx(0.65)
    assert heat.compute_base(1.0, 1.0) == pytest.approx(1.0)
    assert heat.compute_base(2.0, 1.0) == 1.0


@pytest.mark.parametrize(
    ("hours", "n_readings", "expected"),
    [
        (0, 0, 0.8),  # just now
        (24, 0, 0.8 / math.e),  # strength 1: 1/e after a day, 0.294
        (48, 0, 0.8 / math.e**2),  # 0.108
        (24 * 1.5, 1, 0.8 / math.e),  # one reading: strength 1.5, so 1/e after 36 hours
        (24 * 2.25, 2, 0.8 / math.e),  # two: 2.25, after 54 hours
    ],
)
def test_heat_fades_by_the_forgetting_curve(hours, n_readings, expected):
    """Heat is base · exp(-hours / (24 · 1.5^readings)), hours since the last reading, or the last turn without one."""
    readings = [T0 + n * 12 * HOUR for n in range(n_readings)]
    last = readings[-1] if readings else T0
    assert heat.compute_heat(0.8, T0, readings, last + hours * HOUR) == pytest.approx(expected)


def test_readings_within_the_cooldown_count_once():
    """Ten readings in one afternoon are one; the next that counts is at 12 hours; not every reading delays it."""
    afternoon = [T0 + n * HOUR for n in range(10)]
    assert heat.keep_counting(afternoon) == [T0]
    assert heat.keep_counting([*afternoon, T0 + 11.9 * HOUR]) == [T0]
    hourly = [T0 + n * HOUR for n in range(25)]
    assert heat.keep_counting(hourly) == [T0, T0 + 12 * HOUR, T0 + 24 * HOUR]
    now = T0 + 10 * HOUR
    assert heat.compute_heat(0.8, T0, afternoon, now) == heat.compute_heat(0.8, T0, [T0], now)


def test_a_reading_in_the_future_changes_nothing_now():
    assert heat.compute_heat(0.8, T0, [T0 + 20 * HOUR], T0 + HOUR) == heat.compute_heat(0.8, T0, [], T0 + HOUR)


def test_a_cold_topic_is_archived_after_seven_days():
    """0.8 · exp(-168 / 24) = 0.0007 < 0.1, but not before seven days; one reading begins the week again."""
    for days, expected in ((3, False), (6.99, False), (7, True)):
        now = T0 + timedelta(days=days)
        assert heat.is_archived(heat.compute_heat(0.8, T0, [], now), T0, [], now) is expected
    readings = [T0 + timedelta(days=5)]
    now = T0 + timedelta(days=8)
    assert not heat.is_archived(heat.compute_heat(0.8, T0, readings, now), T0, readings, now)


def test_promotion_waits_for_the_next_beat():
    """The turn was at 09:05; beats are at 09:30 and so on. 0.3 is warm enough, 0.299 is not."""
    assert not heat.is_promoted(0.3, T0, T0 + 24 * timedelta(minutes=1))
    assert heat.is_promoted(0.3, T0, T0 + 25 * timedelta(minutes=1))
    assert heat.is_promoted(0.3, T0, T0 + timedelta(days=30))
    assert not heat.is_promoted(0.299, T0, T0 + timedelta(days=30))
