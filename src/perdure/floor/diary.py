"""The diary: at a day's end a letter to the agent that will be there tomorrow.

A page that somebody wrote or took away is theirs: the job leaves it as it is. Pages stand in the floor and nowhere
else: recall and search never see them. An answer that is empty, cut off or suspicious writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from functools import partial
from typing import Literal

from perdure.errors import BudgetSpent, EditRefused, ModelFault, PerdureError
from perdure.floor import extract, questions, shaped
from perdure.floor.events import OWNERS
from perdure.floor.heard import Stop
from perdure.floor.layers import DAY_TURNS_AT_H, diary_day
from perdure.floor.pages import DIARY
from perdure.floor.shaped import Said
from perdure.floor.writing import Writing
from perdure.models.chat import Chat
from perdure.text import tokens

JOB = "diary"
MOST_WORDS = 1000  # of a page that is written for the agent (row F05)
DAYS_BACK = 7  # so far back is the last day looked for on which anything was said


@dataclass(frozen=True)
class Paged:
    """What became of a page."""

    outcome: Literal["nothing new", "written", "kept"]  # "kept": it is not written although something was said
    day: date
    n_turns: int = 0
    n_calls: int = 0
    n_tokens: int = 0  # of the page as it stands
    why: str = ""
    fault: PerdureError | None = None


@dataclass(frozen=True)
class Diary(Writing):
    """What writing a page of the diary needs of a home."""

    def write(self, day: date | None = None, *, stop: Stop = lambda: False) -> Paged:
        """Write the page of a day; of the last day that is over and on which something was said unless named.

        Raises ReadOnlyHome.
        """
        last = day or diary_day(self.now()) - timedelta(days=1)
        self.floor.check_writable()
        days = [last] if day else [last - timedelta(days=n) for n in range(DAYS_BACK)]
        return self.alone(JOB, lambda: self._first(days, stop), partial(self._kept, last))

    def _first(self, days: list[date], stop: Stop) -> Paged:
        """The page of the first of these days on which anything was said."""
        for day in days:
            if self._is_theirs(day):
                return self._left(day)
            heard = self.ear.between(*_bounds(day), most_chars=shaped.RULES_CHARS, stop=stop)
            if stop():
                return self._kept(day, "told to stop")
            if heard.said:
                return self._written(day, heard.said)
        return Paged("nothing new", days[0], why="nothing was said")

    def _written(self, day: date, said: Sequence[Said]) -> Paged:
        n_calls = 0
        try:
            chat = self.chat()
            if chat is None:
                letter = extract.letter(said, zone=self.now().tzinfo)
                by, letter = "rules", extract.unsuspected(letter, partial(self._is_refused, day))
            else:
                by, n_calls, said = "model", 1, shaped.newest(said)
                letter = self._letter(chat, day, said)
            if self._is_theirs(day):  # somebody wrote it meanwhile
                return replace(self._left(day), n_calls=n_calls)
            letter, why = extract.within_words(letter, MOST_WORDS), f"{len(said)} messages"
            self.floor.write(_name(day), letter, by=by, why=why, sources=shaped.spans(said))
        except (ModelFault, EditRefused) as error:
            n_calls -= isinstance(error, BudgetSpent)  # then nothing was asked
            kept = self._kept(day, str(error))
            return replace(kept, n_turns=len(said), n_calls=n_calls, fault=error)
        n_tokens = tokens(self.floor.read(_name(day)))
        return Paged("written", day, len(said), n_calls, n_tokens, f"{why}, by {by}")

    def _letter(self, chat: Chat, day: date, said: Sequence[Said]) -> str:
        question = questions.Question(questions.DIARY, partial(questions.writing, day), said)
        return questions.answered(chat, question, self.limits, now=self.now(), most_words=MOST_WORDS)

    def _is_refused(self, day: date, letter: str) -> bool:
        return self.floor.is_refused(letter, self.floor.read(_name(day)))

    def _is_theirs(self, day: date) -> bool:
        """Whether somebody wrote the page, or the day's own letter is there."""
        if not self.floor.read(_name(day)):
            return self._is_removed(day)
        last = self.floor.history(_name(day))[-1]
        written_at = datetime.fromisoformat(last.at.partition("#")[0])
        return last.by in (*OWNERS, "agent") or written_at >= _bounds(day)[1]

    def _is_removed(self, day: date) -> bool:
        """Whether its owner took the page away."""
        page = self.floor.known().pages.get(_name(day))
        return page is not None and page.is_removed

    def _left(self, day: date) -> Paged:
        why = "its owner took its page away" if self._is_removed(day) else "its page is written"
        return Paged("nothing new", day, n_tokens=tokens(self.floor.read(_name(day))), why=why)

    def _kept(self, day: date, why: str) -> Paged:
        return Paged("kept", day, n_tokens=tokens(self.floor.read(_name(day))), why=why)


def _name(day: date) -> str:
    return f"{DIARY}/{day.isoformat()}.md"


def _bounds(day: date) -> tuple[datetime, datetime]:
    """When a day of the diary begins and ends by the clock on this machine's wall; it may have 23 or 25 hours."""
    turns_at = time(DAY_TURNS_AT_H)
    low, high = (datetime.combine(one, turns_at).astimezone() for one in (day, day + timedelta(days=1)))
    return low, high
