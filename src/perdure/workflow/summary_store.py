"""The summary of a workflow: made of the older turns of the ledger when that has grown too long.

A generation is one blob that holds the summary and the whole turns that it newly stands for; writing it, if there is
none of its number, is the commit. `summary.txt` and the value in the Redis-compatible server are copies: a crash
between the writes leaves them behind, and the next reader makes them again. Without a model rules quote what matters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from perdure import text
from perdure.access.redact import mask
from perdure.formats.perdure import Message
from perdure.session import extract, summary
from perdure.workflow.blobs import Blobs
from perdure.workflow.redis_store import RedisStore
from perdure.workflow.turns import MAX_FIELD_CHARS, WorkflowTurn, abridge

if TYPE_CHECKING:
    from perdure.models.chat import Chat

JOB = "workflow"  # the job under which the summariser is metered
COMPRESS_TOKENS = 8_000  # of turns that no summary stands for
SUMMARY_TOKENS = 2_000
_NARRATIVE_SHARE = 0.5  # of the summary; the rest is for what it lost
_CLIP_CHARS = 4_000  # of one statement that a summariser reads
_SOURCE = re.compile(r" \([^()]*\)$")  # behind a quote


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """One summary, and the turns that it stands for and the one before it did not."""

    number: int
    through: str  # entry of the ledger up to which it goes
    n_turns: int  # that it stands for, with all generations before
    summary: str
    by: str  # the model, or "code"
    made_at: datetime
    turns: tuple[WorkflowTurn, ...]  # whole


class SummaryStore:
    """The generations of one workflow, and the copies of the newest summary."""

    def __init__(
        self,
        redis: RedisStore,
        blobs: Blobs,
        folder: str,
        get_chat: Callable[[], Chat | None],
        *,
        now: Callable[[], datetime],
    ) -> None:
        """get_chat: returns the summariser, or None where rules do its work."""
        self._redis, self._blobs, self._folder = redis, blobs, folder
        self._get_chat, self._now = get_chat, now
        self._through: str | None = None  # of the newest generation that this process knows; None: it has not looked

    def load(self) -> str | None:
        """Return the summary from the cache, or from the blobs, from where the cache is filled. Raises TierFault."""
        cached = self._redis.get_text(self._redis.summary_key)
        if cached is not None:
            return cached
        newest = self.find_newest()
        if newest is not None:
            self._write_copies(newest)
        return newest.summary if newest else None

    def find_newest(self) -> Generation | None:
        """Return the newest generation, or None."""
        names = self._list_generations()
        data = self._blobs.get(names[-1]) if names else None
        return msgspec.json.decode(data, type=Generation) if data else None

    def list_originals(self) -> dict[int, list[WorkflowTurn]]:
        """Return number -> the whole turns that this generation put away."""
        blobs = [data for name in self._list_generations() if (data := self._blobs.get(name))]
        generations = [msgspec.json.decode(data, type=Generation) for data in blobs]
        return {generation.number: list(generation.turns) for generation in generations}

    def compress(self) -> str | None:
        """Make the next generation if the turns since the last one are too many. Return its summary, or None.

        Of two agents that do it at once one succeeds. Raises TierFault, ModelFault and ConfigFault, and then the
        summary is as it was.
        """
        if self._through is None:
            generation = self.find_newest()
            self._through = generation.through if generation else ""
        rows = self._redis.read_after(self._through)
        n_tokens = [_count_tokens(turn) for _, turn in rows]
        if sum(n_tokens) < COMPRESS_TOKENS:
            return None
        newest = self.find_newest()
        if newest is not None and newest.through != self._through:  # another agent made it
            self._through = newest.through
            self._write_copies(newest)
            return self.compress()
        n_old, n_left_tokens = 0, sum(n_tokens)
        while n_left_tokens > COMPRESS_TOKENS // 2:
            n_left_tokens -= n_tokens[n_old]
            n_old += 1
        old_rows, new_rows = rows[:n_old], rows[n_old:]
        turns = [turn for _, turn in old_rows]
        n_turns = len(turns) + (newest.n_turns if newest else 0)
        words, by = self._write_summary(turns, [turn for _, turn in new_rows], newest)
        number = (newest.number if newest else 0) + 1
        head = f"[lossy summary of {n_turns:,} turns; their whole texts: {self._folder}/generations]"
        generation = Generation(
            number=number, through=old_rows[-1][0], n_turns=n_turns, summary=f"{head}\n\n{mask(words)}", by=by,
            made_at=self._now(), turns=tuple(turns),
        )  # fmt: skip
        self._redis.delete(self._redis.summary_key)  # a crash from here on leaves no old one in the cache
        if not self._blobs.put_new(f"{self._folder}/generations/{number:06d}.json", msgspec.json.encode(generation)):
            return None
        self._through = generation.through
        self._write_copies(generation)
        return generation.summary

    def _list_generations(self) -> list[str]:
        return self._blobs.list_names(f"{self._folder}/generations")

    def _write_copies(self, generation: Generation) -> None:
        self._blobs.put(f"{self._folder}/summary.txt", generation.summary.encode())
        self._redis.set_text(self._redis.summary_key, generation.summary)

    def _write_summary(
        self, turns: Sequence[WorkflowTurn], later: Sequence[WorkflowTurn], newest: Generation | None
    ) -> tuple[str, str]:
        """Return (the summary of these turns and of what came before, who wrote it)."""
        previous = newest.summary.partition("\n\n")[2] if newest else ""
        middle = [_to_message(turn, self._now()) for turn in turns]
        chat = self._get_chat()
        narrative = ""
        if chat is not None:
            max_tokens = int(SUMMARY_TOKENS * _NARRATIVE_SHARE)
            narrative = summary.write_narrative(
                chat, middle, previous=previous, focus="", max_tokens=max_tokens, clip_chars=_CLIP_CHARS
            )
        earlier = _quote_previous(previous, newest.number, self._now()) if newest else []
        weighed = extract.weigh_middle([*earlier, *middle], [_to_message(turn, self._now()) for turn in later])
        narrative = summary.add_later(summary.drop_taken_back(narrative, weighed.taken_back), weighed.changes)
        quotes = weighed.choose_quotes(SUMMARY_TOKENS - text.tokens(narrative))
        lost = summary.list_lost(quotes, narrative) if narrative else quotes
        words = summary.render_summary(narrative, lost, extract.FileLists(), SUMMARY_TOKENS)
        return words, chat.name if chat is not None else "code"


def _to_message(turn: WorkflowTurn, now: datetime) -> Message:
    """Return a turn as something a person said: of a workflow the agent's own words are the statements."""
    statements = [turn.thought, f"{turn.action}: {turn.result}" if turn.action else turn.result]
    words = "\n".join(abridge(part, MAX_FIELD_CHARS) for part in statements if part)
    return Message(id=turn.turn_id, timestamp=now, role="user", text=words)


def _quote_previous(previous: str, number: int, now: datetime) -> list[Message]:
    """Return the lines of the summary so far, each as a statement that is weighed with the new ones."""
    rows = [row for section in summary.parse_summary(previous).values() for row in section]
    return [
        Message(id=f"generation {number}", timestamp=now, role="user", text=_SOURCE.sub("", row))
        for row in rows
    ]  # fmt: skip


def _count_tokens(turn: WorkflowTurn) -> int:
    return sum(text.tokens(abridge(part, MAX_FIELD_CHARS)) for part in (turn.thought, turn.action, turn.result))
