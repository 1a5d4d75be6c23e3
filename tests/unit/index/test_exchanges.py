"""The message beside which something was put."""

from datetime import UTC, datetime, timedelta

from perdure.index.exchanges import NEAR, Asked, nearest

AT = datetime(2026, 3, 2, 12, tzinfo=UTC)


def asked(name, after):
    return Asked(name, AT + after, name, None)


def test_the_nearest_message_is_meant_and_none_that_is_far():
    near, nearer = asked("near", -NEAR), asked("nearer", timedelta(seconds=5))
    far = asked("far", NEAR + timedelta(milliseconds=1))
    assert nearest([near, nearer, far], AT) is nearer
    assert nearest([near, far], AT) is near
    assert nearest([far], AT) is None
    assert nearest([], AT) is None
