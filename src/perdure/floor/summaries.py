"""Write recent.md and the pages of the diary.

recent.md says what has been going on; it is at most as far behind as its job runs. An update reads only
what was captured since the last one; if nothing was said, no model is asked and nothing is written. The
event that holds the text also says how far the job had read, for each home that writes, so text and
position never disagree. An answer that is empty, cut off, suspicious, or loses most of the page changes
nothing.

A diary page is a letter, written at the end of a day, to the agent of tomorrow; each project of the day
has a part of its own, under a mark that names the project. The job leaves a page
alone that somebody wrote or removed. Diary pages exist only in the floor: recall and search never see
them. An answer that is empty, cut off or suspicious writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from perdure.archive.journal import get_writer_id
from perdure.disk import lock_file
from perdure.errors import BadAnswer, BudgetSpent, Busy, EditRefused, ModelFault, ModelUnreachable, PerdureError
from perdure.floor import notes, summary_input, summary_text
from perdure.floor.floor import Floor
from perdure.floor.layers import DAY_STARTS_AT_H, REBUILD_RATIO, to_diary_day
from perdure.floor.pages import DIARY, RECENT
from perdure.floor.state import OWNERS
from perdure.floor.summary_input import RecentTurns, StopCheck, SummaryMessage, TurnSource
from perdure.floor.summary_text import SummaryLimits
from perdure.models.chat import Chat
from perdure.text import tokens
from perdure.types import Memory, Span

T = TypeVar("T")


@dataclass(frozen=True)
class SummaryWriter:
    """The parts of a home that write a page from messages."""

    home: Path
    floor: Floor
    turn_source: TurnSource
    chat: Callable[[], Chat | None]  # the summariser; None: write by rules
    catch_up: Callable[[], int]  # bring the index up to date; returns how many captures it still lacks
    limits: SummaryLimits
    now: Callable[[], datetime]

    def run_alone(self, job: str, work: Callable[[], T], report_kept: Callable[[str], T]) -> T:
        """Run `work` while no other process does and with all captures indexed.

        Otherwise return `report_kept` with the reason.
        """
        lock_path = self.home / f".{job}.lock"
        try:
            with lock_file(lock_path, wait_s=0):
                return report_kept("another process is still updating the index") if self.catch_up() else work()
        except Busy as error:
            if error.detail != str(lock_path):
                raise
            return report_kept("another process is doing this")


RECENT_JOB = "recent"
MAX_SOURCES = 1000  # spans of turns behind a text; with more it is rebuilt
MAX_TRIES = 3  # with the same messages; then wait for new ones
MIN_KEPT_SHARE = 0.3  # an update shorter than this share of the old page has lost content
_MEMORIES_SHARE = 1 / 3  # of a question, and of a page by rules, that memories may take
_SMALL_PAGE_TOKENS = 300  # a page of at most this size may shrink to any size

RecentOutcome = Literal["nothing new", "updated", "rebuilt", "kept"]


@dataclass(frozen=True)
class RecentResult:
    """The result of an update of recent.md."""

    outcome: RecentOutcome  # "kept": unchanged, although something is new
    n_turns: int = 0  # messages that were read for it
    n_calls: int = 0  # model calls
    n_tokens: int = 0  # of the present page
    why: str = ""
    fault: PerdureError | None = None  # the reason why it was kept


class _RecentProgress(msgspec.Struct):
    """What is known about messages that are not in the page yet: a cache, in the ledger."""

    after: int  # the page position to which this applies
    looked: int = 0  # up to this change there are no messages
    failed: int = 0  # bad answers
    failed_at: int = 0  # bad answers to the messages up to this change


class _RecentDraft(NamedTuple):
    """A new text that is not written yet."""

    text: str
    by: str
    n_turns: int
    sources: tuple[Span, ...]
    is_rebuild: bool = False
    n_memories_left: int = 0  # memories that did not fit


@dataclass(frozen=True)
class RecentWriter(SummaryWriter):
    """Keeps recent.md up to date."""

    memories: Callable[[], Sequence[Memory]]  # the current ones, the most important first

    def update(self, *, rebuild: bool = False, stop: StopCheck = lambda: False) -> RecentResult:
        """Bring recent.md up to the last messages, or rebuild it. Raises ReadOnlyHome."""
        upto_change = (
            self.turn_source.archive.ledger.get_last_change()
        )  # read before the index catches up: it will cover all up to here
        if not rebuild and upto_change <= self._find_last_checked():
            return RecentResult("nothing new", n_tokens=tokens(self.text))
        self.floor.check_writable()
        return self.run_alone(RECENT_JOB, lambda: _RecentUpdate(self, upto_change, stop).run(rebuild), self.report_kept)

    def report_kept(self, why: str) -> RecentResult:
        """Report that the page stays as it was."""
        return RecentResult("kept", n_tokens=tokens(self.text), why=why)

    @property
    def text(self) -> str:
        """The page's text, by the journal."""
        page = self.floor.load_state().pages.get(RECENT)
        return page.text if page else ""

    @property
    def position(self) -> int:
        """The change of the archive up to which this home's captures are in the page; -1 if none are."""
        epoch_and_change = self.positions.get(get_writer_id(self.home))
        return int(epoch_and_change[1]) if epoch_and_change and epoch_and_change[0] == self.epoch else -1

    @property
    def positions(self) -> Mapping[str, Any]:
        """The positions of all homes, each with its epoch; those of the page before, if its owner removed it."""
        page = self.floor.load_state().pages.get(RECENT)
        cursor = page.cursor if page and (page.text or page.is_removed) else None
        return cursor if isinstance(cursor, Mapping) else {}

    @property
    def is_removed(self) -> bool:
        """True if the owner removed the page: then the next one covers only what is said after that."""
        page = self.floor.load_state().pages.get(RECENT)
        return page is not None and page.is_removed

    @property
    def epoch(self) -> str:
        """The name of the ledger's present count of changes; another epoch counts again."""
        return str(self.turn_source.archive.ledger.get_meta("epoch"))

    def read_progress(self) -> _RecentProgress:
        """Return what is known about the messages after the page's position."""
        saved_json = self.turn_source.archive.ledger.get_meta(self._key)
        progress = msgspec.json.decode(saved_json, type=_RecentProgress) if saved_json else _RecentProgress(-2)
        return progress if progress.after == self.position else _RecentProgress(self.position)

    def save_progress(self, progress: _RecentProgress) -> None:
        """Save what is known about the messages after the page's position."""
        self.turn_source.archive.ledger.set_meta(self._key, msgspec.json.encode(progress).decode())

    @property
    def _key(self) -> str:
        return f"recent:{self.turn_source.user}:{self.floor.agent}"

    def _find_last_checked(self) -> int:
        progress = self.read_progress()
        return max(progress.after, progress.looked)


class _RecentUpdate:
    """One update, run under the lock."""

    def __init__(self, writer: RecentWriter, upto_change: int, stop: StopCheck) -> None:
        self._writer = writer
        self._upto_change = upto_change
        self._stop = stop
        self._old_text = writer.floor.read(RECENT)
        self._zone = writer.now().tzinfo
        self._n_calls = 0

    def run(self, rebuild: bool) -> RecentResult:
        """Run the update."""
        writer, progress = self._writer, self._writer.read_progress()
        new_turns = writer.turn_source.read_since(progress.after, self._upto_change, stop=self._stop)
        if self._stop():
            return writer.report_kept("stopped")
        if not new_turns.messages and not rebuild:
            writer.save_progress(msgspec.structs.replace(progress, looked=self._upto_change))
            return RecentResult("nothing new", n_tokens=tokens(self._old_text))
        if not rebuild and progress.failed >= MAX_TRIES and progress.failed_at == self._upto_change:
            return writer.report_kept(
                f"{MAX_TRIES} answers of the model could not be used; the next try is after new messages"
            )
        try:
            draft = self._make_draft(new_turns, is_rebuild=rebuild or self._is_rebuild_due())
            return (
                self._write_draft(draft, new_turns)
                if draft
                else writer.report_kept("stopped, or there are no messages")
            )
        except (ModelFault, EditRefused) as error:
            self._record_failure(progress, error)
            result = writer.report_kept(str(error))
            return replace(result, n_turns=len(new_turns.messages), n_calls=self._n_calls, fault=error)

    def _is_rebuild_due(self) -> bool:
        return not self._writer.is_removed and (
            not self._old_text
            or tokens(self._old_text) > REBUILD_RATIO * self._writer.limits.page
            or len(self._list_sources()) > MAX_SOURCES
        )

    def _list_sources(self) -> Sequence[Span]:
        page = self._writer.floor.load_state().pages.get(RECENT)
        return page.sources if page and page.text else ()

    # the text ---------------------------------------------------------------------------------------------

    def _make_draft(self, new_turns: RecentTurns, *, is_rebuild: bool) -> _RecentDraft | None:
        chat = self._writer.chat()
        if chat is None:
            return self._draft_by_rules(new_turns, is_rebuild=is_rebuild)
        if is_rebuild:
            return self._draft_from_memories(chat)
        build_lines = (
            partial(summary_text.build_update_lines, self._old_text)
            if self._old_text
            else partial(summary_text.build_rebuild_lines, [])
        )
        text = self._ask(chat, build_lines, new_turns)
        if tokens(text) > REBUILD_RATIO * self._writer.limits.page:
            return self._draft_from_memories(chat)
        if tokens(text) < MIN_KEPT_SHARE * tokens(self._old_text) and tokens(self._old_text) > _SMALL_PAGE_TOKENS:
            raise BadAnswer(f"{chat.name}: the answer leaves out most of the page")
        return _RecentDraft(
            text, "model", len(new_turns.messages), summary_input.merge_spans(new_turns.messages, self._list_sources())
        )

    def _draft_by_rules(self, new_turns: RecentTurns, *, is_rebuild: bool) -> _RecentDraft | None:
        max_tokens = self._writer.limits.page
        if is_rebuild or new_turns.n_left:  # rules can read more than a question holds
            after_change = -1 if is_rebuild else self._writer.position
            new_turns = self._writer.turn_source.read_since(
                after_change, self._upto_change, max_chars=summary_input.MAX_RULES_CHARS, stop=self._stop
            )
        owner_paragraphs = self._writer.floor.find_owner_paragraphs(RECENT) if self._old_text else set()
        old_text = (
            summary_text.select_owner_paragraphs(self._old_text, owner_paragraphs) if is_rebuild else self._old_text
        )
        old_text = summary_text.drop_memories(old_text, owner_paragraphs)
        memories, n_left = self._select_memories(max_tokens * _MEMORIES_SHARE)
        memory_text = summary_text.render_memories(memories, n_left)
        text = summary_text.extract_recent(
            new_turns.messages,
            old_text,
            zone=self._zone,
            max_tokens=max_tokens - tokens(memory_text),
            owner_paragraphs=owner_paragraphs,
        )
        text = "\n\n".join(filter(None, (text, memory_text)))
        text = summary_text.drop_suspicious(text, self._is_refused, owner_paragraphs=owner_paragraphs)
        sources = summary_input.merge_spans(
            new_turns.messages,
            [*(() if is_rebuild else self._list_sources()), *(span for memory in memories for span in memory.sources)],
        )
        return _RecentDraft(text, "rules", len(new_turns.messages), sources, is_rebuild, n_left) if text else None

    def _is_refused(self, text: str) -> bool:
        return self._writer.floor.is_refused(text, self._old_text)

    def _draft_from_memories(self, chat: Chat) -> _RecentDraft | None:
        """Draft the page from all memories and the last messages, in one call."""
        all_turns = self._writer.turn_source.read_since(-1, self._upto_change, stop=self._stop)
        memories, n_left = self._select_memories(self._writer.limits.question * _MEMORIES_SHARE)
        if self._stop() or not (all_turns.messages or memories):
            return None
        text = self._ask(chat, partial(summary_text.build_rebuild_lines, memories, n_left=n_left), all_turns)
        sources = summary_input.merge_spans(
            all_turns.messages, [span for memory in memories for span in memory.sources]
        )
        return _RecentDraft(
            summary_text.cut_to_tokens(text, self._writer.limits.page),
            "model",
            len(all_turns.messages),
            sources,
            is_rebuild=True,
            n_memories_left=n_left,
        )

    def _select_memories(self, max_tokens: float) -> tuple[list[Memory], int]:
        """Return (the most important memories that fit, how many did not). None is from the web."""
        memories: list[Memory] = []
        trusted = [memory for memory in self._writer.memories() if memory.trust != "web"]
        for n, memory in enumerate(trusted):
            max_tokens -= tokens(summary_text.render_memory(memory))
            if max_tokens < 0:
                return memories, len(trusted) - n
            if not self._writer.floor.find_injections(memory.text):
                memories.append(memory)
        return memories, 0

    def _ask(self, chat: Chat, build_lines: Callable[[str], list[str]], turns: RecentTurns) -> str:
        self._n_calls += 1
        question = summary_text.SummaryQuestion(summary_text.RECENT_PROMPT, build_lines, turns.messages)
        return summary_text.ask_model(chat, question, self._writer.limits, now=self._writer.now())

    # the result ------------------------------------------------------------------------------------------

    def _write_draft(self, draft: _RecentDraft, new_turns: RecentTurns) -> RecentResult:
        writer = self._writer
        if writer.floor.read(RECENT) != self._old_text:  # the next run includes that edit
            return replace(writer.report_kept("the page was edited in the meantime"), n_calls=self._n_calls)
        cursor = {**writer.positions, get_writer_id(writer.home): [writer.epoch, self._upto_change]}
        replaces_page = draft.is_rebuild and bool(self._old_text)
        why = f"{draft.n_turns} messages" + (", written again" if replaces_page else "")
        writer.floor.write(
            RECENT, draft.text, by=draft.by, base_text=self._old_text, why=why, sources=draft.sources, cursor=cursor
        )
        explanation = f"{why}; {new_turns.n_left} older ones did not fit" if new_turns.n_left else why
        if draft.n_memories_left:
            explanation += f"; {draft.n_memories_left:,} memories did not fit (`perdure memories list` shows all)"
        outcome: RecentOutcome = "rebuilt" if replaces_page else "updated"
        return RecentResult(outcome, draft.n_turns, self._n_calls, tokens(writer.text), explanation)

    def _record_failure(self, progress: _RecentProgress, error: PerdureError) -> None:
        """Count a bad answer; an answer that never came says nothing about the question."""
        if isinstance(error, BudgetSpent):
            self._n_calls -= 1  # no model was asked
        elif not isinstance(error, ModelUnreachable):
            n_failed = progress.failed + 1 if progress.failed_at == self._upto_change else 1
            self._writer.save_progress(msgspec.structs.replace(progress, failed=n_failed, failed_at=self._upto_change))


DIARY_JOB = "diary"
MAX_DIARY_WORDS = 1000  # of the part of one project, written for the agent (row F05)
MAX_DAYS_BACK = 7  # how far back to look for a day on which anything was said


@dataclass(frozen=True)
class DiaryResult:
    """The result of writing a diary page."""

    outcome: Literal["nothing new", "written", "kept"]  # "kept": not written, although something was said
    day: date
    n_turns: int = 0
    n_calls: int = 0
    n_tokens: int = 0  # of the present page
    why: str = ""
    fault: PerdureError | None = None


@dataclass(frozen=True)
class DiaryWriter(SummaryWriter):
    """Writes the pages of the diary."""

    def write(self, day: date | None = None, *, stop: StopCheck = lambda: False) -> DiaryResult:
        """Write the page of a day; without a day, of the last finished day on which anything was said.

        Raises ReadOnlyHome.
        """
        latest_day = day or to_diary_day(self.now()) - timedelta(days=1)
        self.floor.check_writable()
        days = [latest_day] if day else [latest_day - timedelta(days=n) for n in range(MAX_DAYS_BACK)]
        return self.run_alone(DIARY_JOB, lambda: self._write_first(days, stop), partial(self._report_kept, latest_day))

    def _write_first(self, days: list[date], stop: StopCheck) -> DiaryResult:
        """Write the page of the first of these days on which anything was said."""
        for day in days:
            if self._is_written(day):
                return self._report_nothing_new(day)
            turns = self.turn_source.read_between(
                *_find_bounds(day), max_chars=summary_input.MAX_RULES_CHARS, stop=stop
            )
            if stop():
                return self._report_kept(day, "stopped")
            if turns.messages:
                return self._write_page(day, turns.messages)
        return DiaryResult("nothing new", days[0], why="no messages on that day")

    def _write_page(self, day: date, messages: Sequence[SummaryMessage]) -> DiaryResult:
        """Write a page with a part for each project, so that a session reads only about its own."""
        chat, n_calls = self.chat(), 0
        by = "rules" if chat is None else "model"
        sections: list[str] = []
        used_messages: list[SummaryMessage] = []
        try:
            for project, project_messages in summary_input.group_by_project(messages).items():
                n_calls += chat is not None
                shown = summary_input.select_newest(project_messages) if chat else project_messages
                letter = self._write_letter(chat, day, shown)
                sections += [notes.mark_section(letter, project)] if letter else []
                used_messages += shown
            if self._is_written(day):  # somebody wrote it meanwhile
                return replace(self._report_nothing_new(day), n_calls=n_calls)
            page_text, sources = "\n\n".join(sections), summary_input.merge_spans(used_messages)
            why = f"{len(used_messages)} messages"
            self.floor.write(_to_page_name(day), page_text, by=by, why=why, sources=sources)
        except (ModelFault, EditRefused) as error:
            n_calls -= isinstance(error, BudgetSpent)  # no model was asked
            result = self._report_kept(day, str(error))
            return replace(result, n_turns=len(messages), n_calls=n_calls, fault=error)
        n_tokens = tokens(self.floor.read(_to_page_name(day)))
        return DiaryResult("written", day, len(used_messages), n_calls, n_tokens, f"{why}, by {by}")

    def _write_letter(self, chat: Chat | None, day: date, messages: Sequence[SummaryMessage]) -> str:
        """Write the part of one project: by the model, or by rules without one."""
        if chat is not None:
            letter = self._ask_model(chat, day, messages)
        else:
            letter = summary_text.extract_diary(messages, zone=self.now().tzinfo)
            letter = summary_text.drop_suspicious(letter, partial(self._is_refused, day))
        return summary_text.cut_to_words(letter, MAX_DIARY_WORDS)

    def _ask_model(self, chat: Chat, day: date, messages: Sequence[SummaryMessage]) -> str:
        question = summary_text.SummaryQuestion(
            summary_text.DIARY_PROMPT, partial(summary_text.build_diary_lines, day), messages
        )
        return summary_text.ask_model(chat, question, self.limits, now=self.now(), max_words=MAX_DIARY_WORDS)

    def _is_refused(self, day: date, letter: str) -> bool:
        return self.floor.is_refused(letter, self.floor.read(_to_page_name(day)))

    def _is_written(self, day: date) -> bool:
        """Return True if somebody wrote the page, or if the day's own letter exists."""
        if not self.floor.read(_to_page_name(day)):
            return self._is_removed(day)
        last_version = self.floor.list_versions(_to_page_name(day))[-1]
        written_at = datetime.fromisoformat(last_version.at.partition("#")[0])
        return last_version.by in (*OWNERS, "agent") or written_at >= _find_bounds(day)[1]

    def _is_removed(self, day: date) -> bool:
        """Return True if the owner removed the page."""
        page = self.floor.load_state().pages.get(_to_page_name(day))
        return page is not None and page.is_removed

    def _report_nothing_new(self, day: date) -> DiaryResult:
        why = "the owner removed its page" if self._is_removed(day) else "its page exists"
        return DiaryResult("nothing new", day, n_tokens=tokens(self.floor.read(_to_page_name(day))), why=why)

    def _report_kept(self, day: date, why: str) -> DiaryResult:
        return DiaryResult("kept", day, n_tokens=tokens(self.floor.read(_to_page_name(day))), why=why)


def _to_page_name(day: date) -> str:
    return f"{DIARY}/{day.isoformat()}.md"


def _find_bounds(day: date) -> tuple[datetime, datetime]:
    """Return the start and the end of a diary day by this machine's local time; the day may have 23 or 25 hours."""
    turn_time = time(DAY_STARTS_AT_H)
    begins_at, ends_at = (
        datetime.combine(boundary_day, turn_time).astimezone() for boundary_day in (day, day + timedelta(days=1))
    )
    return begins_at, ends_at
