"""The three zones of a session: HEAD and TAIL stay as they are, MIDDLE becomes a summary. Pure.

The zones partition the messages. No cut separates a tool call from its result: HEAD ends behind an answer without calls
or behind the first message, and TAIL begins with a person's message, or with an answer where one round is longer than
TAIL may be. Kept recent tokens and split turns follow pi (docs/compaction.md there), the zones memo-agent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

from perdure.formats.perdure import Message

SizeOf = Callable[[Message], int]  # tokens of a message


class Zones(NamedTuple):
    """The messages of a session, in their order."""

    head: Sequence[Message]
    middle: Sequence[Message]
    tail: Sequence[Message]


def split_zones(
    messages: Sequence[Message],
    size_of: SizeOf,
    *,
    head_tokens: int,
    tail_tokens: int,
    tail_rounds: int,
    n_head: int | None = None,
) -> Zones:
    """Split the messages. n_head: of an earlier compaction; the head never changes."""
    n_head = count_head(messages, size_of, head_tokens) if n_head is None else n_head
    tail_start = max(n_head, find_tail(messages, size_of, tail_tokens, tail_rounds))
    return Zones(messages[:n_head], messages[n_head:tail_start], messages[tail_start:])


def count_head(messages: Sequence[Message], size_of: SizeOf, max_tokens: int) -> int:
    """Return how many messages the head has: the first exchange, up to its last answer that fits.

    The first message is in it whatever its length.
    """
    n_head = n_tokens = 0
    for n, message in enumerate(messages, start=1):
        if n > 1 and message.role == "user":
            break
        n_tokens += size_of(message)
        is_answer = message.role == "assistant" and not message.calls
        if n == 1 or (is_answer and n_tokens <= max_tokens):
            n_head = n
    return n_head


def find_tail(messages: Sequence[Message], size_of: SizeOf, max_tokens: int, max_rounds: int) -> int:
    """Return where the tail begins: as many of the last rounds as fit, else as many answers of the last round.

    The last answer with its results is in it whatever its length.
    """
    sizes_from_end = list(accumulate(map(size_of, reversed(messages))))

    def fits(start: int) -> bool:
        return start == len(messages) or sizes_from_end[len(messages) - start - 1] <= max_tokens

    rounds = [n for n, message in enumerate(messages) if message.role == "user"][-max_rounds:]
    if fitting := [start for start in rounds if fits(start)]:
        return fitting[0]
    starts = [n for n, message in enumerate(messages) if message.role != "tool" and n >= (rounds[-1] if rounds else 0)]
    return next((start for start in starts if fits(start)), starts[-1] if starts else len(messages))


def list_maskable(messages: Sequence[Message], masked_ids: frozenset[str], min_chars: int) -> list[Message]:
    """Return the messages whose tool output, files or images can be left out for a line that says so."""
    return [
        message
        for message in messages
        if message.id not in masked_ids
        and (
            message.images
            or (message.role == "tool" and len(message.text) >= min_chars)
            or any(len(file.text) >= min_chars for file in message.files)
        )
    ]
