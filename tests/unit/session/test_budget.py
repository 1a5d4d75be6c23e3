"""The limits of a window, and what a context has of it."""

from __future__ import annotations

import msgspec

from perdure.config import SessionConfig
from perdure.formats.perdure import Mask, UsageEntry
from perdure.models.chat import ChatMessage, MessageImage
from perdure.session.budget import IMAGE_TOKENS, ContextSize, compute_limits, count_context, count_message

from .conftest import START, make_talk


def test_limits_of_a_large_window() -> None:
    """S10, S11, S27: 70 and 85 % of 200,000, and 16,384 for the answer: 200,000 - 16,384 = 183,616."""
    limits = compute_limits(SessionConfig(), 200_000)
    assert (limits.warn_tokens, limits.archive_tokens, limits.room_tokens) == (140_000, 170_000, 183_616)
    assert (limits.head_tokens, limits.tail_tokens, limits.tail_rounds) == (4_000, 20_000, 20)


def test_limits_of_a_small_window() -> None:
    """8,192: the answer has 15 % (1,228), so that the archive step still follows at 85 % (6,963)."""
    limits = compute_limits(SessionConfig(), 8192)
    assert (limits.archive_tokens, limits.room_tokens) == (6963, 8192 - 1228)
    assert limits.head_tokens + limits.tail_tokens + limits.summary_tokens + limits.recall_tokens < 6963


def test_late_archive_step_leaves_room_for_the_answer() -> None:
    limits = compute_limits(SessionConfig(archive_percent=98), 200_000)
    assert limits.archive_tokens == limits.room_tokens == 183_616


def test_reported_usage_counts_with_what_came_after() -> None:
    """The answer reported 1,000 + 200 + 34 read and 66 written: 1,300; one message of "hi" follows (6 + 1 tokens)."""
    messages = make_talk("uau", lambda _: "hi")
    usage = UsageEntry(n_input=1000, n_cache_read=200, n_cache_write=34, n_output=66)
    path = [messages[0], msgspec.structs.replace(messages[1], usage=usage), messages[2]]
    shown = [ChatMessage(message.role, message.text) for message in messages]
    assert count_context(path, shown) == 1300 + count_message(shown[2])
    assert count_context(path, shown, factor=1.8) == 1300 + round(1.8 * count_message(shown[2]))
    mask = Mask(id="e9", timestamp=START, entries=("e1",))
    assert count_context([*path, mask], shown) == sum(map(count_message, shown))


def test_an_image_has_its_price() -> None:
    assert count_message(ChatMessage("user", "", images=(MessageImage("image/png", "AA"),))) > IMAGE_TOKENS


def test_share_of_a_window() -> None:
    """S10: tokens: 89k/128k (70%)."""
    assert round(ContextSize(89_600, 128_000).share, 3) == 0.7
