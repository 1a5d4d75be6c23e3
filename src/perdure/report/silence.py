"""Find silence that should have spoken: a message that got nothing, and what its session then found in the same home.

Two signs, both of the same session. The agent searched Perdure itself before the person's next message, and got
something. Or a later message asked nearly the same, and its answer used what recall then told. Which messages got
nothing is known from the log, which is bounded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from perdure.access.redact import mask
from perdure.archive.injections import TOOL_RUNTIME
from perdure.home import Home
from perdure.index import facts, session_turns
from perdure.index.facts import MemorySearch
from perdure.index.injections import Injection
from perdure.index.session_turns import MAX_TIME_GAP, PromptTurn, find_nearest_prompt
from perdure.memories.cue_use import iter_words
from perdure.report.answers import AnswerLogEntry
from perdure.report.cue_outcomes import RecallWindow, SessionKey

_FOUND_TIME = timedelta(seconds=60)  # after the call of a tool, its answer is noted within this time
_SESSION_TIME = timedelta(days=1)  # of one session, in which the two are looked for
_MIN_SHARED, _MIN_SHARE = 3, 0.5  # words that two messages which ask the same share: so many, and this share of each
_NOTHING = ("Nothing found", "Nothing is recalled")  # what `perdure search` and `perdure recall` say then


@dataclass(frozen=True, slots=True)
class MissedRecall:
    """A message that got nothing, although its session found something in the home later."""

    turn_id: str  # of the message
    text: str  # its beginning, masked
    at: datetime
    found_turn: str  # the search of the agent, or the later message
    found_by: str  # in words
    cues: tuple[str, ...] = ()  # what the later recall told and its answer used


def find_missed(
    home: Home,
    window: RecallWindow,
    answers: Sequence[AnswerLogEntry],
    *,
    since_at: datetime,
    until_at: datetime,
) -> list[MissedRecall]:
    """Return the silent messages of a time whose session found something later, oldest first.

    window: all recalls of the time, those without a text too: tools note their answers in this way.
    """
    searches = _group_searches(home, window.injections, since_at, until_at)
    recalls: dict[SessionKey, list[Injection]] = defaultdict(list)
    for injection in window.injections:
        if injection.used:
            recalls[injection.runtime, injection.session].append(injection)
    silent: dict[SessionKey, list[datetime]] = defaultdict(list)
    for answer in answers:
        if answer.is_silent and ((key := (answer.client, answer.session)) in searches or key in recalls):
            silent[key].append(answer.answered_at)
    missed = []
    for key, moments in silent.items():
        first, last = min(moments) - MAX_TIME_GAP, max(moments) + _SESSION_TIME
        prompts = home.runs.prompts(*key, since_at=first, until_at=last)
        for moment in moments:
            if prompt := find_nearest_prompt(prompts, moment):
                signs = [*_find_search(prompt, prompts, searches.get(key, ())),
                         *_find_later_recall(prompt, window, recalls.get(key, ()))]  # fmt: skip
                missed += signs[:1]
    return sorted(missed, key=lambda recall: (recall.at, recall.turn_id))


def _group_searches(
    home: Home, injections: Sequence[Injection], since_at: datetime, until_at: datetime
) -> dict[SessionKey, list[MemorySearch]]:
    """Return the searches of agents that found something, by session."""
    told_at = [injection.at for injection in injections if injection.runtime == TOOL_RUNTIME]
    groups: dict[SessionKey, list[MemorySearch]] = defaultdict(list)
    for search in facts.list_memory_searches(home.index(), home.user, since_at, until_at):
        if search.is_command:
            output = "\n".join(session_turns.list_turn_chunks(home.index(), home.user, search.turn_id))
            has_found = bool(output) and not any(words in output for words in _NOTHING)
        else:
            has_found = any(search.at <= at <= search.at + _FOUND_TIME for at in told_at)
        if has_found:
            groups[search.runtime, search.session].append(search)
    return groups


def _find_search(
    prompt: PromptTurn, prompts: Sequence[PromptTurn], searches: Sequence[MemorySearch]
) -> Iterator[MissedRecall]:
    next_at = min((later.at for later in prompts if later.is_typed and later.at > prompt.at), default=None)
    for search in searches:
        if prompt.at < search.at and (next_at is None or search.at < next_at):
            how = "`perdure search`" if search.is_command else "a tool"
            yield MissedRecall(
                prompt.turn_id, mask(prompt.text), prompt.at, search.turn_id, f"the agent found it with {how}"
            )


def _find_later_recall(
    prompt: PromptTurn, window: RecallWindow, recalls: Sequence[Injection]
) -> Iterator[MissedRecall]:
    for injection in recalls:
        message = window.messages.get(injection.nonce)
        if message is not None and message.at > prompt.at and asks_the_same(prompt.text, message.text):
            yield MissedRecall(
                prompt.turn_id,
                mask(prompt.text),
                prompt.at,
                message.turn_id,
                "the same was asked again, and then it was recalled and used",
                tuple(sorted(injection.used or ())),
            )


def asks_the_same(message: str, other: str) -> bool:
    """Return True if two messages share most of their telling words.

    >>> asks_the_same("Which port does staging use?", "On which port does the staging server listen?")
    False
    >>> asks_the_same("Which port does the staging server use?", "And the staging server, which port is in use?")
    True
    """
    words, other_words = ({word.stem for word in iter_words(text) if word.weight} for text in (message, other))
    n_shared = len(words & other_words)
    return n_shared >= _MIN_SHARED and n_shared >= _MIN_SHARE * max(len(words), len(other_words))
