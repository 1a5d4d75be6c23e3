"""When a message is tried again, and the names that come with it."""

import doctest
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.delivery import message, telegram_text, webhook
from perdure.delivery.message import Delivery, clean_name, clean_title, compute_next_at, is_due, make_id

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)


def test_the_waits_grow_to_six_hours() -> None:
    """1, 3, 9, 27, 81, 243 minutes, then 360: together 724 minutes after seven failed tries, 12 hours."""
    waits = [(compute_next_at(NOW, n) - NOW).total_seconds() / 60 for n in range(1, 9)]
    assert waits == [1, 3, 9, 27, 81, 243, 360, 360]
    assert sum(waits[:7]) == 724


@pytest.mark.parametrize(("after_s", "wait_s"), [(10, 60), (300, 300), (10**9, 6 * 3600)])
def test_a_target_may_ask_for_a_longer_pause_within_bounds(after_s: float, wait_s: float) -> None:
    assert compute_next_at(NOW, 1, after_s=after_s) == NOW + timedelta(seconds=wait_s)


@pytest.mark.parametrize(("ahead_s", "state", "due"), [
    (0, "waiting", True), (1, "waiting", False), (7 * 3600, "waiting", True), (0, "sent", False), (0, "dead", False),
])  # fmt: skip
def test_a_message_is_due_at_its_time_also_after_a_clock_was_set_back(ahead_s: int, state: str, due: bool) -> None:
    delivery = Delivery(id="a", target="t", created_at=NOW, next_at=NOW + timedelta(seconds=ahead_s))
    assert is_due(msgspec.structs.replace(delivery, state=state), NOW) is due


def test_the_same_key_gives_the_same_id() -> None:
    assert make_id("a") == make_id("a") != make_id("b")
    assert make_id("\ud800")


@given(st.text(max_size=300))
def test_a_cleaned_name_is_a_name_of_one_file(name: str) -> None:
    cleaned = clean_name(name)
    assert cleaned and not set(cleaned) & set('/\\\0\n"<>') and not cleaned.startswith(".")


def test_a_title_is_one_line() -> None:
    assert clean_title("a\r\nBcc: eve@example.org\x00") == "a Bcc: eve@example.org"


@pytest.mark.parametrize("module", [message, telegram_text, webhook])
def test_the_examples_of_the_code_are_true(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]
