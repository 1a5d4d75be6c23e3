"""Decide how captured bytes get into an archive. Pure: it reads and writes nothing.

Every way into an archive follows it: the drain of an outbox, an import, and the delivery to a remote home.
Each of them sends the bytes that an attempt names, and gives back the archive's answer. Some bytes do not
join what the archive holds: their transcript was rewritten, or the archive was restored from an older copy.
Then the transcript is sent again; where it is gone, the bytes become a source of their own. So bytes that
were acknowledged are kept in any case, and never twice. Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Literal, NamedTuple

_WITNESS_BYTES = 4096  # of a transcript are compared again before it goes on in the middle

Stream = Literal["delta", "transcript", "separate"]  # the captured bytes, their file, the bytes as their own source


class Attempt(NamedTuple):
    """Bytes to send to the archive."""

    stream: Stream
    from_offset: int  # in the source; of a transcript, the lines from the one that holds this offset
    generation: int | None = None  # None: the newest


class Answer(NamedTuple):
    """The archive's answer to an attempt."""

    outcome: str  # stored, already, accepted (it holds a first part of the bytes), diverged, gap
    end: int  # offset after the last byte that the archive holds of the source
    generation: int

    @property
    def is_done(self) -> bool:
        """Does the archive hold all of these bytes?"""
        return self.outcome in ("stored", "already")


NOT_SENT = Answer("gap", 0, 0)  # the answer to an attempt whose bytes cannot be read
Attempts = Generator[Attempt, Answer, Answer]  # returns the last answer


def settle_delta(from_offset: int, *, has_transcript: bool) -> Attempts:
    """Yield the attempts to store a delta. from_offset: of its first byte in the source."""
    answer = yield from put_stream("delta", from_offset)
    if answer.is_done:
        return answer
    if has_transcript:
        can_continue = answer.outcome == "gap" and answer.end > _WITNESS_BYTES
        resent = (yield from put_stream("transcript", answer.end - _WITNESS_BYTES)) if can_continue else NOT_SENT
        if not resent.is_done:
            resent = yield from put_stream("transcript", 0)
        if resent.is_done and (answer := (yield from put_stream("delta", from_offset))).is_done:
            return answer
    return (yield from put_stream("separate", 0))


def put_stream(stream: Stream, from_offset: int) -> Attempts:
    """Yield the attempts to store one stream at its place.

    A stream from the beginning of its source that diverges is another generation: the newest one that it
    continues, or the next.
    """
    answer = yield from _put_in_generation(Attempt(stream, from_offset))
    if answer.outcome == "diverged" and from_offset == 0:
        latest = answer.generation
        for generation in (*range(latest - 1, -1, -1), latest + 1):
            answer = yield from _put_in_generation(Attempt(stream, from_offset, generation))
            if answer.outcome != "diverged":
                break
    return answer


def _put_in_generation(attempt: Attempt) -> Attempts:
    """Yield an attempt, and the rest of its bytes as long as the archive holds only a first part of them."""
    answer = yield attempt
    while answer.outcome == "accepted" and answer.end > attempt.from_offset:
        attempt = Attempt(attempt.stream, answer.end, answer.generation)
        answer = yield attempt
    return answer


def run_attempts(attempts: Attempts, send: Callable[[Attempt], Answer], first_answer: Answer | None = None) -> Answer:
    """Send what the attempts name until nothing is left to try; return the last answer.

    first_answer: to the first attempt, where the caller has sent it already.
    """
    attempt, answer = next(attempts), first_answer
    try:
        while True:
            attempt, answer = attempts.send(answer or send(attempt)), None
    except StopIteration as end:
        result: Answer = end.value
        return result
