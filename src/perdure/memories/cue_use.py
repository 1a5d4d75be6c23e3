"""Notice which cues an agent's answer rests on, and count what memories are worth by their use.

Each injection is judged once, when its answer is complete, by one `used` event with the injection's
nonce; if another process or home judges it again, the replay ignores that. It is judged by words alone;
no model is asked. Only words that the prompt does not contain count, because an answer takes up the
prompt's words anyway, and rare words count more. A long answer takes up words of any text about the same
work, so what it takes up must also be more than chance gives in this home. In doubt a cue was not used,
because only use renews a memory. The counts only describe: no memory is changed or deleted by them.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal, NamedTuple

from perdure import text
from perdure.archive import injections, memory_events
from perdure.archive.journal import Journal, JournalEvent
from perdure.index import keyword, memory_replay, memory_rows, session_turns
from perdure.index.session_turns import PromptExchange
from perdure.index.store import IndexConnection
from perdure.regex import lazy_re
from perdure.text import tokens
from perdure.types import Memory, Principal

# does an answer rest on a cue ---------------------------------------------------------------------------------

USED_SCORE = 0.5  # lowest score of a used cue (docs/evaluation/use.md)
ENOUGH_WEIGHT = 3.0  # weight of words taken up that is use by itself: one number, or a name and a word, …
MIN_SHARE = 0.2  # …if they are at least this share of the weight of a sentence of the cue
QUOTE_LENGTHS = ((3, 2), (5, 1))  # (consecutive words of the cue, how many of them the prompt lacks): a quotation
DISTINCT_WEIGHT, NAME_WEIGHT, WORD_WEIGHT, SHORT_WEIGHT = 3.0, 2.0, 1.0, 0.5  # weights, by shape
SHORT_CHARS = 3  # longest short word
STEM_CHARS = 5  # first letters that are compared: they distinguish words without their endings
MAX_ANSWER_CHARS = 20_000  # of an answer; the rest is ignored
MAX_UNSPLIT_CHARS = 300  # a longer cue is judged by its sentences
_WORD = lazy_re(r"\w+(?:[./:@-]\w+)*")
_SENTENCE_BREAK = lazy_re(r"(?<=[.!?;])\s+|\n+|(?<=[。！？；])")
_IDENTIFIER = lazy_re(r"[\d_./:@]")
_LIGHT_WORDS = text.STOPWORDS | frozenset(
    "aber als am an auch auf aus bei bin bis das dass dein dem den der des die dies durch ein eine einem einen einer "
    "er es für gern habe hat hatte ich ihr im in ist ja kein keine man mein meine mich mir mit nach nicht nie noch "
    "nun nur ob oder seit sich sie sind so statt um und uns unser unsere unter vom von vor war weil wenn wer wie wir "
    "wird zu zum zur au aux avec c ce ces chez comme d dans de depuis des du elle en est et il ils j je l la le les "
    "leur lui m ma mais mes moi mon n ne nos notre nous on ou où par pas plus pour puis qu que qui s sa sans se ses "
    "son sont sur t ta te tes toi ton tu un une va vos votre vous always also am because before can every just like "
    "more never no not now one only other over own please said say user very via well yes".split()
)


StemRow = tuple[str, ...]


class WeightedWord(NamedTuple):
    """A word as it is compared, with its weight."""

    stem: str
    weight: float


def is_used(prompt: str, cue: str, answer: str) -> bool:
    """Return True if an answer rests on a cue."""
    return score_use(prompt, cue, answer) >= USED_SCORE


def score_use(prompt: str, cue: str, answer: str) -> float:
    """Return how much an answer rests on a cue, 0 to 1: the highest score of any of the cue's sentences.

    >>> score_use("Which port?", "It runs on port 8443.", "Use 8443.")
    0.75
    >>> score_use("Which port?", "It runs on 8443.", "9000.")
    0.0
    """
    prompt_stems, answer_stems = (
        {word.stem for word in iter_words(prompt)},
        [word.stem for word in iter_words(answer[:MAX_ANSWER_CHARS])],
    )
    answer_rows = {
        n_words: set(_iter_stem_rows(answer_stems, n_words)) for n_words in (1, *(n for n, _ in QUOTE_LENGTHS))
    }
    pieces = _SENTENCE_BREAK.split(cue) if len(cue) > MAX_UNSPLIT_CHARS else [cue]
    return max(_score_piece(prompt_stems, list(iter_words(piece)), answer_rows) for piece in pieces)


def _score_piece(
    prompt_stems: Collection[str], cue_words: Sequence[WeightedWord], answer_rows: Mapping[int, Set[StemRow]]
) -> float:
    """Score one sentence of a cue. answer_rows: number of words -> the rows of so many words in the answer."""
    new_weights = {word.stem: word.weight for word in cue_words if word.weight and word.stem not in prompt_stems}
    used_stems = {stem for stem in new_weights if (stem,) in answer_rows[1]}
    if not used_stems:
        return 0.0
    stems = [word.stem for word in cue_words]
    if any(
        row in answer_rows[n] and len(used_stems & set(row)) >= n_new
        for n, n_new in QUOTE_LENGTHS
        for row in _iter_stem_rows(stems, n)
    ):
        return 1.0
    weight = sum(new_weights[stem] for stem in used_stems)
    share = weight / sum(new_weights.values())
    return min(1.0, max(share, USED_SCORE * weight / ENOUGH_WEIGHT if share >= MIN_SHARE else 0.0))


def _iter_stem_rows(stems: Sequence[str], n_words: int) -> Iterator[StemRow]:
    """Yield every row of n_words consecutive stems."""
    return (tuple(stems[start : start + n_words]) for start in range(len(stems) - n_words + 1))


def iter_words(source_text: str) -> Iterator[WeightedWord]:
    """Yield the words of a text in order, each with its weight; pairs of characters in scripts without spaces."""
    plain_text = text.index_terms(source_text)
    for match in _WORD.finditer(plain_text):
        for piece in [match[0]] if _IDENTIFIER.search(match[0]) else match[0].split("-"):
            yield _weigh_word(piece, is_sentence_start=_is_sentence_start(plain_text, match.start()))


def _weigh_word(word: str, *, is_sentence_start: bool) -> WeightedWord:
    """Return a word with its weight. is_sentence_start: a capital says nothing there."""
    folded = word.casefold()
    if _IDENTIFIER.search(word):
        return WeightedWord(folded, DISTINCT_WEIGHT if len(word) > 1 else SHORT_WEIGHT)
    if folded in _LIGHT_WORDS or len(folded) == 1:
        return WeightedWord(folded, 0.0)
    if not is_sentence_start and word[0].isupper():
        return WeightedWord(folded[:STEM_CHARS], NAME_WEIGHT)
    return WeightedWord(
        folded[:STEM_CHARS], SHORT_WEIGHT if word.isascii() and len(word) <= SHORT_CHARS else WORD_WEIGHT
    )


def _is_sentence_start(plain_text: str, position: int) -> bool:
    preceding = plain_text[max(0, position - 3) : position].rstrip(" \"'«“„([")
    return not preceding or preceding[-1] in ".!?:\n"


# is it more than chance ---------------------------------------------------------------------------------------

MIN_SURPRISE = 4.0  # standard deviations: 9 in 1,000 texts of other projects reach it (docs/evaluation/use.md)
BACKGROUND_CHUNKS = 200  # added to the home's own: a small home does not say which words are rare
_CHUNK_CHARS = 2_000  # of an answer: each is one more chance for a word to stand in it
_MAX_CHANCE = 0.95  # of one word
_MIN_COUNTED_CHARS = 3  # of a word that counts


def list_new_words(prompt: str, cue: str) -> list[str]:
    """Return the words of a cue that the prompt does not have, in lower case, once each.

    >>> list_new_words("Which port?", "It runs on port 8443.")
    ['8443', 'runs']
    """
    new_words = _list_whole_words(cue) - _list_whole_words(prompt)
    return sorted(word for word in new_words if len(word) >= _MIN_COUNTED_CHARS or not word.isascii())


def _list_whole_words(source_text: str) -> set[str]:
    return {match[0].casefold().rstrip(".:-") for match in _WORD.finditer(text.index_terms(source_text))}


def measure_surprise(counts: Mapping[str, int], n_chunks: int, answer: str) -> float:
    """Return by how many standard deviations an answer takes up more of some words than chance gives.

    counts: word -> chunks of the home that hold it, the cue and the answer among them; n_chunks: of the home. A word
    stands in an answer by chance as often as it stands elsewhere, so a rare one says more. A long answer about the same
    work takes up some words of any text; only more than that is a sign that it rests on this one.

    >>> round(measure_surprise({"8443": 2, "runs": 2}, 98, "Use 8443."), 1), measure_surprise({}, 98, "Use 8443.")
    (17.2, 0.0)
    """
    said, n_tries = _list_whole_words(answer[:MAX_ANSWER_CHARS]), 1 + len(answer[:MAX_ANSWER_CHARS]) / _CHUNK_CHARS
    total = expected = variance = 0.0
    for word, count in counts.items():
        share = (max(0, count - 2) + 0.5) / (n_chunks + BACKGROUND_CHUNKS)
        chance = min(_MAX_CHANCE, 1 - (1 - share) ** n_tries)
        weight = -math.log(chance)
        expected += chance * weight
        variance += chance * (1 - chance) * weight * weight
        total += weight * (word in said)
    return (total - expected) / math.sqrt(variance) if variance else 0.0


# judging injections -------------------------------------------------------------------------------------------

MAX_ANSWER_DELAY = timedelta(days=30)  # an injection without a captured answer by then is ignored
SETTLED_AFTER = timedelta(minutes=10)  # after this pause an answer is complete, even if no prompt follows


@dataclass(frozen=True, slots=True)
class UseResult:
    """The result of judging injections."""

    n_injections: int = 0  # judged ones
    n_cues: int = 0  # in those injections
    n_used: int = 0  # of those cues
    n_waiting: int = 0  # injections whose answer is missing or incomplete


@dataclass(frozen=True)
class UseJudge:
    """Judges one owner's injections by the answers to them. index: brought up to date with the archive."""

    user: str
    journal: Journal
    index: IndexConnection

    def mark_used(self, *, now: datetime, limit_s: float | None, stop: Callable[[], bool] | None) -> UseResult:
        """Judge every injection whose answer is complete, oldest first. limit_s: stop after so many seconds."""
        ends_s = time.monotonic() + limit_s if limit_s is not None else None
        pending = injections.list_unjudged(self.journal, since_at=now - MAX_ANSWER_DELAY)
        n_judged = n_cues = n_used = 0
        for event in pending:
            if (stop and stop()) or (ends_s is not None and time.monotonic() > ends_s):
                break
            exchange = self._find_exchange(event)
            if exchange is None or not _is_complete(exchange, now):
                continue
            used_cues = [cue for cue in event.data["turns"] if self.takes_up(exchange, cue)]
            self._record_use(event, used_cues, now)
            n_judged, n_cues, n_used = n_judged + 1, n_cues + len(event.data["turns"]), n_used + len(used_cues)
        return UseResult(n_judged, n_cues, n_used, len(pending) - n_judged)

    def takes_up(self, exchange: PromptExchange, cue: str) -> bool:
        """Return True if an answer rests on a turn or a memory: by its words, and more than chance explains."""
        return any(
            is_used(exchange.prompt, piece, exchange.answer) and self._is_beyond_chance(exchange, piece)
            for piece in self._get_cue_texts(cue)
        )

    def _is_beyond_chance(self, exchange: PromptExchange, piece: str) -> bool:
        words = list_new_words(exchange.prompt, piece)
        counts, n_chunks = keyword.count_term_frequencies(self.index, Principal(self.user), words)
        return measure_surprise(counts, n_chunks, exchange.answer) >= MIN_SURPRISE

    def _find_exchange(self, event: JournalEvent) -> PromptExchange | None:
        event_data = event.data
        session = "/".join(filter(None, (event_data["session"], event_data.get("agent", ""))))
        return session_turns.find_exchange(self.index, self.user, event_data["runtime"], session, event.happened_at)

    def _get_cue_texts(self, cue: str) -> Sequence[str]:
        """Return the text of a memory, or the chunks of a turn; none if it was forgotten meanwhile."""
        if cue.startswith("mem-"):
            return [memory.text for memory in memory_rows.get_memories(self.index, self.user, [cue])]
        return session_turns.list_turn_chunks(self.index, self.user, cue)

    def _record_use(self, event: JournalEvent, used_cues: Sequence[str], now: datetime) -> None:
        session_fields = {name: event.data.get(name, "") for name in ("runtime", "session", "agent")}
        data = memory_events.build_used_data(
            event.data["nonce"], used_cues, used_at=event.happened_at, **session_fields
        )
        self.journal.append(memory_events.USED, data, now=now)


def _is_complete(exchange: PromptExchange, now: datetime) -> bool:
    """Return True if nothing more is expected of an answer."""
    if not exchange.answer:
        return False
    return exchange.ended or (exchange.last_at is not None and now - exchange.last_at >= SETTLED_AFTER)


# counts by state and month ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MemoryMonth:
    """The memories that were stated in one month, or in all months."""

    month: str  # yyyy-mm; "" for all
    n_memories: int
    n_tokens: int
    n_messages: int = 0  # messages of a person in it
    n_current: int = 0  # of these memories, those that are current today
    n_retired: int = 0
    n_told: int = 0  # times that recall put one of them beside a message, until today
    n_used: int = 0  # times that one of them was used, until today

    @property
    def per_100_messages(self) -> float | None:
        """The number of memories for 100 messages of a person; None without any message."""
        return 100 * self.n_memories / self.n_messages if self.n_messages else None

    @property
    def tokens_per_memory(self) -> float:
        """The mean number of tokens of a memory; 0.0 without any memory."""
        return self.n_tokens / self.n_memories if self.n_memories else 0.0

    @property
    def uses_per_memory(self) -> float:
        """The mean number of times that a memory was used; 0.0 without any memory."""
        return self.n_used / self.n_memories if self.n_memories else 0.0


@dataclass(frozen=True)
class MemoryCounts:
    """The number of memories in each state."""

    n_current: int
    n_superseded: int
    n_retired: int
    n_pinned: int
    kept_at: datetime | None  # when the newest was recorded
    mined_at: datetime | None  # when the newest mined one was recorded


def count_memories(memories: Sequence[Memory]) -> MemoryCounts:
    """Count memories by state; each is current, superseded or retired."""
    n_retired = sum(memory.retired for memory in memories)
    n_current = sum(memory.is_current for memory in memories)
    return MemoryCounts(
        n_current,
        len(memories) - n_current - n_retired,
        n_retired,
        sum(memory.pinned for memory in memories),
        max((memory.recorded_at for memory in memories), default=None),
        max((memory.recorded_at for memory in memories if memory.how == "mined"), default=None),
    )


def count_by_month(
    memories: Iterable[Memory], zone: tzinfo = UTC, *, messages_by_month: Mapping[str, int] | None = None
) -> list[MemoryMonth]:  # fmt: skip
    """Return memories and their tokens for each month of a time zone with a stated memory or a message, oldest
    first.

    messages_by_month: month -> number of messages of a person.
    """
    messages_by_month = messages_by_month or {}
    memories_by_month: dict[str, list[Memory]] = defaultdict(list, {month: [] for month in messages_by_month})
    for memory in memories:
        memories_by_month[memory.stated_at.astimezone(zone).strftime("%Y-%m")].append(memory)
    return [
        _count_month(month, month_memories, messages_by_month.get(month, 0))
        for month, month_memories in sorted(memories_by_month.items())
    ]


def _count_month(month: str, memories: Sequence[Memory], n_messages: int) -> MemoryMonth:
    return MemoryMonth(
        month,
        len(memories),
        sum(tokens(memory.text) for memory in memories),
        n_messages,
        n_current=sum(memory.is_current for memory in memories),
        n_retired=sum(memory.retired for memory in memories),
        n_told=sum(memory.n_injected for memory in memories),
        n_used=sum(memory.n_used for memory in memories),
    )


def sum_months(months: Iterable[MemoryMonth]) -> MemoryMonth:
    """Return the sum of months."""
    all_months, names = list(months), [field.name for field in fields(MemoryMonth) if field.name != "month"]
    return MemoryMonth("", **{name: sum(getattr(month, name) for month in all_months) for name in names})


# utility ------------------------------------------------------------------------------------------------------

UtilityLabel = Literal["earns its place", "not known yet", "never used"]


@dataclass(frozen=True, slots=True)
class MemoryUtility:
    """One memory with the results of showing it."""

    memory: Memory
    share: float | None  # share of the times it was shown that it was used; None if never shown
    decay: float  # now
    heat: float  # now

    @property
    def expected_share(self) -> float:
        """The share of use that is expected next time."""
        return compute_expected_share(self.memory.n_injected, self.memory.n_used)

    @property
    def label(self) -> UtilityLabel:
        """The utility in words."""
        if self.memory.n_used:
            return "earns its place"
        return "never used" if self.memory.n_injected else "not known yet"


def compute_expected_share(n_injected: int, n_used: int) -> float:
    """Return the expected share of use by Laplace's rule, so that a memory that was never shown is in the
    middle.

    Never shown: 1 / 2. Shown ten times and never used: 1 / 12. Shown ten times and used nine: 10 / 12.
    """
    return (n_used + 1) / (max(n_injected, n_used) + 2)


class UtilitySums(NamedTuple):
    """The sums over all memories."""

    n_memories: int
    n_injected: int
    n_used: int
    n_used_ever: int  # memories that were used at least once
    n_never_used: int  # memories that were shown and never used
    n_never_shown: int


def rank_by_utility(memories: Iterable[Memory], *, now: datetime) -> list[MemoryUtility]:
    """Rate memories: the most useful first, the ones shown most often without use last."""
    utilities = [
        MemoryUtility(
            memory,
            min(1.0, memory.n_used / memory.n_injected) if memory.n_injected else None,
            memory_replay.compute_decay(memory, now),
            memory_replay.compute_heat(memory, now),
        )
        for memory in memories
    ]
    return sorted(
        utilities,
        key=lambda utility: (-utility.expected_share, -utility.memory.n_used, -utility.heat, utility.memory.memory_id),
    )


def rank_by_heat(memories: Iterable[Memory], *, now: datetime) -> list[tuple[Memory, float]]:
    """Return each memory with its heat, the hottest first."""
    heats = [(memory, memory_replay.compute_heat(memory, now)) for memory in memories]
    return sorted(heats, key=lambda pair: (-pair[1], pair[0].memory_id))


def sum_utilities(utilities: Sequence[MemoryUtility]) -> UtilitySums:
    """Return the sums of utilities."""
    return UtilitySums(
        len(utilities),
        sum(utility.memory.n_injected for utility in utilities),
        sum(utility.memory.n_used for utility in utilities),
        sum(utility.memory.n_used > 0 for utility in utilities),
        sum(utility.label == "never used" for utility in utilities),
        sum(utility.label == "not known yet" for utility in utilities),
    )
