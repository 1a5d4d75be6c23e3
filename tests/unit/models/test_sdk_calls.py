"""What an endpoint says about a next try, in the forms that there are."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from perdure.models.sdk_calls import read_retry_after_s

NOW = datetime(2026, 3, 1, 9, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("said", "wait_s"),
    [
        ({}, 0),
        ({"retry-after": "50"}, 50),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "1500", "retry-after": "50"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "50"}, 50),
        ({"retry-after": "Sun, 01 Mar 2026 09:00:50 GMT"}, 50),
        ({"retry-after": "Sun, 01 Mar 2026 10:00:50 +0100"}, 50),
        ({"retry-after": "Sun, 01 Mar 2026 09:00:50"}, 50),
        ({"retry-after": "Sunday, 01-Mar-26 09:00:50 GMT"}, 50),
        ({"retry-after": "Sun, 01 Mar 2026 08:59:00 GMT"}, 0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0),
        ({"retry-after": "Fri, 31 Dec 99999 23:59:59 GMT"}, 0),
        ({"retry-after": "-5"}, 0),
        ({"retry-after": "nan"}, 0),
        ({"retry-after": "9" * 400}, float("inf")),
        ({"retry-after": "in an hour"}, 0),
        ({"retry-after": ""}, 0),
        ({"retry-after": "\u0663\u0660 \ud800"}, 0),
    ],
)
def test_how_long_an_endpoint_asks_to_wait(said: dict[str, str], wait_s: float) -> None:
    assert read_retry_after_s(said, NOW) == wait_s
