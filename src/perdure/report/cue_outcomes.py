"""What became of each recalled text: wrong, corrected since, used, ignored, or not judged yet. Decisions are pure.

Each text counts once, by the first of these that is so. Wrong: its owner marked it, or the person's next message states
otherwise. Corrected: it is a memory that was superseded or retired after it was told. Used and ignored: as the answer
was judged (`memories.cue_use`). A text that was forgotten since is in no count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from perdure.access.redact import mask
from perdure.home import Home
from perdure.index.injections import Injection
from perdure.index.session_turns import MAX_TIME_GAP, PromptTurn, find_nearest_prompt
from perdure.memories.remarks import list_words, states_otherwise
from perdure.types import Hit, Memory

Outcome = Literal["wrong", "corrected", "used", "ignored", "waiting"]
OUTCOMES: tuple[Outcome, ...] = ("wrong", "corrected", "used", "ignored", "waiting")
_MAX_TEXT_CHARS = 600  # of a text that is compared with the next message: a longer one is no single statement
_MAX_MESSAGE_CHARS = 300  # of that message: who corrects is brief
_MIN_SHARED = 2  # words of both: two statements of one thing name it
_NEXT_TIME = timedelta(days=1)  # the next message of the person comes within this time

SessionKey = tuple[str, str]  # runtime, session as transcripts name it


@dataclass(frozen=True, slots=True)
class CueOutcome:
    """One recalled text, what became of it, and where it stood."""

    cue: str  # id of the turn or the memory
    text: str  # masked
    outcome: Outcome
    why: str  # in words; "" if the outcome says it
    at: datetime
    nonce: str  # of the recall
    message_turn: str  # beside which it was told; "" if that is not captured
    n_tokens: int
    was_used: bool | None  # whatever became of it later; None before it is judged


@dataclass(frozen=True, slots=True)
class RecallWindow:
    """The recalls of a time, with what is needed to judge them."""

    injections: Sequence[Injection]
    messages: Mapping[str, PromptTurn]  # nonce -> the message beside which it stood
    next_messages: Mapping[str, PromptTurn]  # nonce -> the person's next message in that session
    labels: Mapping[tuple[str, str], str]  # (nonce, cue) -> label
    memories: Mapping[str, Memory]
    turns: Mapping[str, Sequence[Hit]]

    def iter_outcomes(self) -> Iterator[CueOutcome]:
        """Yield every text that was told and still exists, oldest first."""
        for injection in self.injections:
            message = self.messages.get(injection.nonce)
            for reason in injection.reasons:
                if not (text := self.get_text(reason.cue)):
                    continue
                outcome, why = self._judge(injection, reason.cue, text)
                turn_id, n_tokens = message.turn_id if message else "", reason.n_tokens
                was_used = None if injection.used is None else reason.cue in injection.used
                yield CueOutcome(
                    reason.cue, text, outcome, why, injection.at, injection.nonce, turn_id, n_tokens, was_used
                )

    def get_text(self, cue: str) -> str:
        """Return the words of a turn or a memory, masked; "" if it is gone."""
        if memory := self.memories.get(cue):
            return mask(memory.text)
        pieces = self.turns.get(cue)
        return pieces[0].text if pieces else ""

    def _judge(self, injection: Injection, cue: str, text: str) -> tuple[Outcome, str]:
        if self.labels.get((injection.nonce, cue)):
            return "wrong", "you marked it"
        next_message = self.next_messages.get(injection.nonce)
        if next_message is not None and self._contradicts(next_message, cue, text):
            return "wrong", f"your next message states otherwise ({next_message.turn_id})"
        if (memory := self.memories.get(cue)) and (why := describe_correction(memory, injection.at)):
            return "corrected", why
        if injection.used is None:
            return "waiting", ""
        return ("used", "") if cue in injection.used else ("ignored", "")

    def _contradicts(self, message: PromptTurn, cue: str, text: str) -> bool:
        """Return True if a message states otherwise than a text of its project, or of none."""
        project = self.memories[cue].project if cue in self.memories else None
        if project not in (None, message.project):
            return False
        if len(text) > _MAX_TEXT_CHARS or len(message.text) > _MAX_MESSAGE_CHARS:
            return False
        return len(list_words(message.text) & list_words(text)) >= _MIN_SHARED and states_otherwise(message.text, text)


def describe_correction(memory: Memory, told_at: datetime) -> str:
    """Say what ended a memory after it was told; "" if it holds, or had ended before."""
    if memory.superseded_by and memory.ended_at is not None and memory.ended_at > told_at:
        return f"superseded by {memory.superseded_by}"
    return "retired since" if memory.retired and not memory.superseded_by else ""


def read_window(home: Home, injections: Sequence[Injection]) -> RecallWindow:
    """Read what the judgement of these recalls needs."""
    cues = {reason.cue for injection in injections for reason in injection.reasons}
    memory_ids = sorted(cue for cue in cues if cue.startswith("mem-"))
    messages, next_messages = _find_messages(home, injections)
    labels = home.memories.labels(injections[0].at) if injections else {}
    return RecallWindow(
        injections,
        messages,
        next_messages,
        labels,
        {memory.memory_id: memory for memory in home.memories.get_many(memory_ids)},
        home.runs.first_chunks(sorted(cues.difference(memory_ids))),
    )


def _find_messages(home: Home, injections: Sequence[Injection]) -> tuple[dict[str, PromptTurn], dict[str, PromptTurn]]:
    messages: dict[str, PromptTurn] = {}
    next_messages: dict[str, PromptTurn] = {}
    for key, told in group_by_session(injections).items():
        since_at, until_at = told[0].at - MAX_TIME_GAP, told[-1].at + _NEXT_TIME
        prompts = home.runs.prompts(*key, since_at=since_at, until_at=until_at)
        for injection in told:
            message = find_nearest_prompt(prompts, injection.at)
            if message is None:
                continue
            messages[injection.nonce] = message
            later = (prompt for prompt in prompts if prompt.is_typed and prompt.at > message.at)
            if next_message := next(later, None):
                next_messages[injection.nonce] = next_message
    return messages, next_messages


def group_by_session(injections: Sequence[Injection]) -> dict[SessionKey, list[Injection]]:
    """Group recalls by the session as transcripts name it, in order of time; without those of an unknown session."""
    groups: dict[SessionKey, list[Injection]] = {}
    for injection in sorted(injections, key=lambda injection: injection.at):
        if injection.session:
            groups.setdefault((injection.runtime, injection.source_session), []).append(injection)
    return groups
