"""Times as people write them."""

from datetime import UTC, datetime

import pytest

from perdure.errors import UsageError
from perdure.surfaces.units import parse_moment

NOW = datetime(2026, 11, 22, 9, tzinfo=UTC)


def test_an_age_is_counted_from_now():
    assert parse_moment("12h", now=NOW) == datetime(2026, 11, 21, 21, tzinfo=UTC)


@pytest.mark.parametrize("said", ["someday", "0001-01-01", "9999-12-31T23:59:59-14:00", "2026-13-40", "", "999999w"])
def test_invalid_time_is_refused(said):
    with pytest.raises(UsageError, match="is not a time"):
        parse_moment(said)
