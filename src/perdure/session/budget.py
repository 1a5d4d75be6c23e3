"""How much of a model's window the context fills, and from where on room is made. Pure.

Tokens are those that the provider reported for the last answer, and an estimate of what came after it; without a report
all of it is an estimate (`text.tokens`, fitted to o200k; docs/evaluation/tokens.md).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from perdure import text
from perdure.config import SessionConfig
from perdure.formats.perdure import AnyEntry, Boundary, Mask, Message
from perdure.models.chat import ChatMessage, ToolSpec

FRAME_TOKENS = 6  # around each message: role and separators
IMAGE_TOKENS = 1_600  # of an image, as large as providers take it
FULL_SHARE = 0.95  # of the window: more is no question any more, and nobody waits for a summariser that fails
_MAX_RESERVE_SHARE = 0.15  # of the window that is kept for the answer; a small window has no 16,384 tokens for it
_TAIL_SHARE, _HEAD_SHARE, _SUMMARY_SHARE = 0.25, 0.1, 0.1  # of the window that these may take, where it is small


@dataclass(frozen=True)
class ContextSize:
    """The tokens of a context in a model's window."""

    n_tokens: int
    window_tokens: int
    is_high: bool = False  # at or over `session.warn_percent`

    @property
    def share(self) -> float:
        """Of the window, from 0; over 1 if the context does not fit."""
        return self.n_tokens / self.window_tokens


@dataclass(frozen=True)
class WindowLimits:
    """The limits in tokens for one window."""

    window_tokens: int
    warn_tokens: int  # from here on old tool output is masked
    archive_tokens: int  # from here on the middle becomes a summary
    room_tokens: int  # what a question may have; the rest is for the answer
    head_tokens: int
    tail_tokens: int
    tail_rounds: int
    summary_tokens: int
    recall_tokens: int  # of the text that is recalled at a compaction

    @property
    def full_tokens(self) -> int:
        """What a question may have at most. From here on a summary by rules alone is better than none."""
        return int(self.window_tokens * FULL_SHARE)


def compute_limits(settings: SessionConfig, window_tokens: int) -> WindowLimits:
    """Return the limits for a model's window. In a small one, head, tail, summary and reserve take shares of it.

    >>> limits = compute_limits(SessionConfig(), 128_000)
    >>> limits.warn_tokens, limits.archive_tokens, limits.tail_tokens
    (89600, 108800, 20000)
    """
    reserve_tokens = min(settings.reserve_tokens, int(window_tokens * _MAX_RESERVE_SHARE))
    room_tokens = window_tokens - reserve_tokens
    archive_tokens = min(window_tokens * settings.archive_percent // 100, room_tokens)
    return WindowLimits(
        window_tokens=window_tokens,
        warn_tokens=min(window_tokens * settings.warn_percent // 100, archive_tokens),
        archive_tokens=archive_tokens,
        room_tokens=room_tokens,
        head_tokens=min(settings.head_tokens, int(window_tokens * _HEAD_SHARE)),
        tail_tokens=min(settings.tail_tokens, int(window_tokens * _TAIL_SHARE)),
        tail_rounds=settings.tail_rounds,
        summary_tokens=min(settings.summary_tokens, int(window_tokens * _SUMMARY_SHARE)),
        recall_tokens=min(settings.recall_tokens, int(window_tokens * _SUMMARY_SHARE)),
    )


def count_message(message: ChatMessage) -> int:
    """Estimate the tokens of one message."""
    calls = "".join(f"{call.name} {json.dumps(call.input, ensure_ascii=False)}" for call in message.calls)
    return FRAME_TOKENS + _count_text(message.text) + _count_text(calls) + IMAGE_TOKENS * len(message.images)


@lru_cache(maxsize=4096)  # the messages of a session, which are counted again for each answer
def _count_text(words: str) -> int:
    return text.tokens(words)


def count_tools(specs: Sequence[ToolSpec]) -> int:
    """Estimate the tokens of the descriptions of tools."""
    return sum(text.tokens(f"{spec.name} {spec.description} {json.dumps(spec.schema)}") for spec in specs)


def count_context(
    path: Sequence[AnyEntry], messages: Sequence[ChatMessage], specs: Sequence[ToolSpec] = (), *, factor: float = 1.0
) -> int:  # fmt: skip
    """Return the tokens of the messages that `assemble_messages` made of a path, and of the tools.

    factor: how many the model's provider counts for one that is estimated (`find_token_factor`).
    """
    n_newer = 0  # messages after the one whose usage is known
    for entry in reversed(path):
        if isinstance(entry, Boundary | Mask):
            break  # what was reported before is not what is sent now
        if not isinstance(entry, Message):
            continue
        if entry.usage and entry.usage.is_reported and entry.usage.n_output:
            usage = entry.usage
            n_known = usage.n_input + usage.n_cache_read + usage.n_cache_write + usage.n_output
            return n_known + round(factor * sum(map(count_message, messages[len(messages) - n_newer :])))
        n_newer += 1
    return round(factor * (sum(map(count_message, messages)) + count_tools(specs)))
