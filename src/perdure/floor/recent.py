"""recent.md: what has been going on, at most as far behind as its job runs.

An update reads what was captured since the last one and nothing else; where nothing was said, nobody is asked and
nothing is written. How far it has come stands in the event that holds the text, for each home that writes, so that text
and place can never disagree. An answer that is empty, cut off, suspicious or loses most of the page changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import msgspec

from perdure.archive.journal import writer_id
from perdure.errors import BadAnswer, BudgetSpent, EditRefused, ModelFault, ModelUnreachable, PerdureError
from perdure.floor import extract, questions, shaped
from perdure.floor.heard import Heard, Stop
from perdure.floor.layers import REBUILT_AT
from perdure.floor.pages import RECENT
from perdure.floor.writing import Writing
from perdure.models.chat import Chat
from perdure.text import tokens
from perdure.types import Memory, Span

JOB = "recent"
MOST_SOURCES = 1000  # stretches of turns behind a text; with more it is made anew
MAX_TRIES = 3  # with the same talk; then it waits until something else is said
LEAST_KEPT = 0.3  # an update that has less than this share of what it replaces has lost it
_LITTLE_TOKENS = 300  # a page with no more than this may become anything

Outcome = Literal["nothing new", "updated", "rebuilt", "kept"]


@dataclass(frozen=True)
class Updated:
    """What became of recent.md."""

    outcome: Outcome  # "kept": it stays as it was although something is new
    n_turns: int = 0  # messages that were read for it
    n_calls: int = 0  # of a model
    n_tokens: int = 0  # of the page as it stands
    why: str = ""
    fault: PerdureError | None = None  # for which it was kept


class _Mark(msgspec.Struct):
    """What is known of talk that is not in the page: a cache, in the ledger."""

    after: int  # the place of the page for which this holds
    looked: int = 0  # up to this change nobody said anything
    failed: int = 0  # answers that were no good
    failed_at: int = 0  # for what was said up to this change


class _Draft(NamedTuple):
    """A new text, before it is written."""

    text: str
    by: str
    n_turns: int
    sources: tuple[Span, ...]
    is_anew: bool = False


@dataclass(frozen=True)
class Recent(Writing):
    """What keeping recent.md needs of a home."""

    memories: Callable[[], Sequence[Memory]]  # the current ones, those first that matter most

    def update(self, *, rebuild: bool = False, stop: Stop = lambda: False) -> Updated:
        """Bring recent.md up to what was said, or make it anew. Raises ReadOnlyHome."""
        upto = self.ear.archive.ledger.last_change()  # before the index follows: it will know all up to here
        if not rebuild and upto <= self._looked():
            return Updated("nothing new", n_tokens=tokens(self.text))
        self.floor.check_writable()
        return self.alone(JOB, lambda: _Pass(self, upto, stop).run(rebuild), self.kept)

    def kept(self, why: str) -> Updated:
        """It stays as it is."""
        return Updated("kept", n_tokens=tokens(self.text), why=why)

    @property
    def text(self) -> str:
        """The page, by the journal."""
        page = self.floor.known().pages.get(RECENT)
        return page.text if page else ""

    @property
    def place(self) -> int:
        """The change of the archive up to which this home's captures are in the page; -1 where none are."""
        found = self.places.get(writer_id(self.home))
        return int(found[1]) if found and found[0] == self.epoch else -1

    @property
    def places(self) -> Mapping[str, Any]:
        """The same of every home, each with its epoch; of the page before where its owner took it away."""
        page = self.floor.known().pages.get(RECENT)
        cursor = page.cursor if page and (page.text or page.is_removed) else None
        return cursor if isinstance(cursor, Mapping) else {}

    @property
    def is_removed(self) -> bool:
        """Whether the owner took the page away: then the next one tells only what was said after it."""
        page = self.floor.known().pages.get(RECENT)
        return page is not None and page.is_removed

    @property
    def epoch(self) -> str:
        """What tells one count of the archive's changes from another."""
        return str(self.ear.archive.ledger.meta("epoch"))

    def mark(self) -> _Mark:
        """What is known of talk behind the page's place."""
        said = self.ear.archive.ledger.meta(self._key)
        mark = msgspec.json.decode(said, type=_Mark) if said else _Mark(-2)
        return mark if mark.after == self.place else _Mark(self.place)

    def note(self, mark: _Mark) -> None:
        """Keep what is known of talk behind the page's place."""
        self.ear.archive.ledger.set_meta(self._key, msgspec.json.encode(mark).decode())

    @property
    def _key(self) -> str:
        return f"recent:{self.ear.user}:{self.floor.agent}"

    def _looked(self) -> int:
        mark = self.mark()
        return max(mark.after, mark.looked)


class _Pass:
    """One update, under the lock."""

    def __init__(self, recent: Recent, upto: int, stop: Stop) -> None:
        self._recent = recent
        self._upto = upto
        self._stop = stop
        self._old = recent.floor.read(RECENT)
        self._zone = recent.now().tzinfo
        self._n_calls = 0

    def run(self, rebuild: bool) -> Updated:
        """The update."""
        recent, mark = self._recent, self._recent.mark()
        news = recent.ear.since(mark.after, self._upto, stop=self._stop)
        if self._stop():
            return recent.kept("told to stop")
        if not news.said and not rebuild:
            recent.note(msgspec.structs.replace(mark, looked=self._upto))
            return Updated("nothing new", n_tokens=tokens(self._old))
        if not rebuild and mark.failed >= MAX_TRIES and mark.failed_at == self._upto:
            return recent.kept(f"{MAX_TRIES} answers to this were no good; it waits until something else is said")
        try:
            draft = self._draft(news, is_anew=rebuild or self._is_to_begin_anew())
            return self._written(draft, news) if draft else recent.kept("told to stop, or there is nothing to tell")
        except (ModelFault, EditRefused) as error:
            self._note_failure(mark, error)
            kept = recent.kept(str(error))
            return replace(kept, n_turns=len(news.said), n_calls=self._n_calls, fault=error)

    def _is_to_begin_anew(self) -> bool:
        return not self._recent.is_removed and (not self._old or self._has_outgrown())

    def _has_outgrown(self) -> bool:
        return tokens(self._old) > REBUILT_AT * self._recent.limits.page or len(self._sources()) > MOST_SOURCES

    def _sources(self) -> Sequence[Span]:
        page = self._recent.floor.known().pages.get(RECENT)
        return page.sources if page and page.text else ()

    # the text ---------------------------------------------------------------------------------------------

    def _draft(self, news: Heard, *, is_anew: bool) -> _Draft | None:
        chat = self._recent.chat()
        if chat is None:
            return self._by_rules(news, is_anew=is_anew)
        if is_anew:
            return self._anew(chat)
        shown = partial(questions.updating, self._old) if self._old else partial(questions.rebuilding, [])
        said = self._asked(chat, shown, news)
        if tokens(said) > REBUILT_AT * self._recent.limits.page:
            return self._anew(chat)
        if tokens(said) < LEAST_KEPT * tokens(self._old) and tokens(self._old) > _LITTLE_TOKENS:
            raise BadAnswer(f"{chat.name}: the answer leaves out most of the page")
        return _Draft(said, "model", len(news.said), shaped.spans(news.said, self._sources()))

    def _by_rules(self, news: Heard, *, is_anew: bool) -> _Draft | None:
        most = self._recent.limits.page
        if is_anew or news.n_left:  # there is room for more than a question has
            after = -1 if is_anew else self._recent.place
            news = self._recent.ear.since(after, self._upto, most_chars=shaped.RULES_CHARS, stop=self._stop)
        theirs = self._recent.floor.written_by_owner(RECENT) if self._old else set()
        old = extract.only(self._old, theirs) if is_anew else self._old
        sources = shaped.spans(news.said, () if is_anew else self._sources())
        made = extract.recent(news.said, old, zone=self._zone, most_tokens=most, theirs=theirs)
        made = extract.unsuspected(made, self._is_refused, theirs=theirs)
        return _Draft(made, "rules", len(news.said), sources, is_anew) if made else None

    def _is_refused(self, made: str) -> bool:
        return self._recent.floor.is_refused(made, self._old)

    def _anew(self, chat: Chat) -> _Draft | None:
        """From all memories and what was said last, in one call."""
        every = self._recent.ear.since(-1, self._upto, stop=self._stop)
        memories = self._memories()
        if self._stop() or not (every.said or memories):
            return None
        said = self._asked(chat, partial(questions.rebuilding, memories), every)
        sources = shaped.spans(every.said, [span for memory in memories for span in memory.sources])
        return _Draft(extract.within(said, self._recent.limits.page), "model", len(every.said), sources, is_anew=True)

    def _memories(self) -> list[Memory]:
        """The memories from which a page is made: as many as a third of a question holds, none that the web said."""
        left = self._recent.limits.question / 3
        found: list[Memory] = []
        for memory in self._recent.memories():
            if memory.trust != "web" and not self._recent.floor.suspicious(memory.text):
                left -= tokens(questions.memory_line(memory))
                if left < 0:
                    break
                found.append(memory)
        return found

    def _asked(self, chat: Chat, shown: Callable[[str], list[str]], heard: Heard) -> str:
        self._n_calls += 1
        question = questions.Question(questions.RECENT, shown, heard.said)
        return questions.answered(chat, question, self._recent.limits, now=self._recent.now())

    # what becomes of it -----------------------------------------------------------------------------------

    def _written(self, draft: _Draft, news: Heard) -> Updated:
        recent = self._recent
        if recent.floor.read(RECENT) != self._old:  # the next run takes that edit in
            return replace(recent.kept("somebody edited it meanwhile"), n_calls=self._n_calls)
        cursor = {**recent.places, writer_id(recent.home): [recent.epoch, self._upto]}
        is_again = draft.is_anew and bool(self._old)
        why = f"{draft.n_turns} messages" + (", made anew" if is_again else "")
        recent.floor.write(
            RECENT, draft.text, by=draft.by, base=self._old, why=why, sources=draft.sources, cursor=cursor
        )
        said = f"{why}; {news.n_left} older ones found no room" if news.n_left else why
        outcome: Outcome = "rebuilt" if is_again else "updated"
        return Updated(outcome, draft.n_turns, self._n_calls, tokens(recent.text), said)

    def _note_failure(self, mark: _Mark, error: PerdureError) -> None:
        """Count an answer that was no good; one that never came says nothing about what was asked."""
        if isinstance(error, BudgetSpent):
            self._n_calls -= 1  # nothing was asked
        elif not isinstance(error, ModelUnreachable):
            n_failed = mark.failed + 1 if mark.failed_at == self._upto else 1
            self._recent.note(msgspec.structs.replace(mark, failed=n_failed, failed_at=self._upto))
