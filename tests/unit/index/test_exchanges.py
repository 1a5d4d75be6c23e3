"""The message beside which something was put."""

from datetime import UTC, datetime, timedelta

from perdure.index.session_turns import MAX_TIME_GAP, PromptTurn, find_nearest_prompt

AT = datetime(2026, 3, 2, 12, tzinfo=UTC)


def asked(name, after):
    return PromptTurn(name, AT + after, name, None)


def test_nearest_message_within_the_limit_is_chosen():
    near, nearer = asked("near", -MAX_TIME_GAP), asked("nearer", timedelta(seconds=5))
    far = asked("far", MAX_TIME_GAP + timedelta(milliseconds=1))
    assert find_nearest_prompt([near, nearer, far], AT) is nearer
    assert find_nearest_prompt([near, far], AT) is near
    assert find_nearest_prompt([far], AT) is None
    assert find_nearest_prompt([], AT) is None
