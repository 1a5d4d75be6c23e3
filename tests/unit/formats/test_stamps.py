"""Instants and ids from strangers."""

from datetime import UTC, datetime

import pytest

from perdure.formats.values import clean_id, parse_instant, sum_token_counts


@pytest.mark.parametrize(
    "value",
    [
        "2026-01-02T03:04:05Z",
        "2026-01-02T05:04:05+02:00",
        "2026-01-02T03:04:05",
        1767323045,
        1767323045000,
        1767323045000.0,
    ],
)
def test_instant_is_read_from_every_form(value):
    """1767323045 s: 56 years with 14 leap days are 20,454 days; + 1 day + 3:04:05 = 20455 * 86400 + 11045."""
    assert 20_455 * 86_400 + 11_045 == 1_767_323_045
    assert parse_instant(value) == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        "",
        "soon",
        "2026-13-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59-14:00",
        "9999-12-31T23:59:59Z",
        253402300799000,
        -1,
        0,
        1e300,
        10**30,
        float("nan"),
        [],
        {},
    ],
)
def test_invalid_instant_is_none(value):
    assert parse_instant(value) is None


def test_ids_are_cleaned():
    assert clean_id("msg_01-a.b:c@d") == "msg_01-a.b:c@d"
    assert clean_id(" a/b\\c\0d\n") == "a_b_cd_"
    assert clean_id(7) == clean_id(None) == clean_id("") == ""
    assert clean_id("x" * 201).startswith("sha256-")


def test_total_adds_only_counts():
    """Only 3 and 4 are counts."""
    assert sum_token_counts(3, 0, -1, 10**12, True, "3", None, 2.5, [], 4) == 7
