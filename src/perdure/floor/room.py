"""The floor of one home: its pages and cards, the notes and pages that are written for it, and C₀ for a session."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.access import block_cache
from perdure.captures import Captures
from perdure.connections import Connections
from perdure.environ import local_now
from perdure.errors import Busy, EditRefused, IndexFault
from perdure.floor import notes, pages
from perdure.floor.floor import Floor
from perdure.floor.platforms import describe_platform
from perdure.floor.state import to_time
from perdure.text import tokens
from perdure.types import Memory, Span
from perdure.upkeep import Upkeep

# Loaded where they are used: a recall needs none of them.
if TYPE_CHECKING:
    from perdure.floor.layers import KeptLayer, Layers, Suspect
    from perdure.floor.note_taking import NoteResult
    from perdure.floor.state import FloorCard
    from perdure.floor.summaries import DiaryResult, RecentResult
    from perdure.memories.remarks import Remarks
    from perdure.memories.room import MemoryRoom


VARIABLES = ("platform", "agent", "user", "machine", "project")  # of the system prompt, in the order of their values
_NOTICED_FOR = timedelta(days=1)  # a change of a protected page in its file


@dataclass(kw_only=True)
class FloorRoom(Floor):
    """The floor of a home's agent, for its principal.

    memories: returns the principal's memories; a function, because they know the scanner of the floor.
    """

    connections: Connections
    captures: Captures
    upkeep: Upkeep
    memories: Callable[[], MemoryRoom]

    # notes ------------------------------------------------------------------------------------------------

    def note(self, text: str, *, by: str = "owner", cwd: str | None = None, sources: Sequence[Span] = ()) -> NoteResult:
        """Add a note to notes.md, in the place of what it corrects; one that says nothing new is not added.

        by: owner or agent. cwd: the note is shown in its project only; everywhere without. sources: the turns behind
        it, so that it goes when one of them is forgotten. Raises EditRefused.
        """
        from perdure.floor.note_taking import add_note

        return add_note(self, text, by=by, project=self.connections.project_of(cwd), sources=sources)

    def write_notes(self, moved_ids: Collection[str] = ()) -> None:
        """Bring notes.md up to what was stated; an alert says what kept it from being written.

        moved_ids: memories that now hold in another project, so that their lines move with them.
        """
        config = self.connections.config
        if config.memories.stated and config.floor.note_stated:
            from perdure.floor.note_taking import add_stated_notes

            try:
                add_stated_notes(self, self.connections.index_with_memories(), self.connections.user, moved_ids)
            except EditRefused as error:
                self.alerts.append(str(error))

    # what the person must decide or know --------------------------------------------------------------------

    def find_notices(self, now: datetime | None = None) -> dict[str, str]:
        """Return what a session's person is told at its start, by a name that stays the same: the proposals that wait,
        and changes of the system prompt, the settings, a skill or a job in their files, for a day.
        """
        notices = {
            proposal.id: f"a change of {proposal.name} is proposed and waits for you: `perdure floor proposals`"
            for proposal in self.list_proposals()
        }
        since_at = (now or local_now()) - _NOTICED_FOR
        paths = (path for pattern in ("skills/*/SKILL.md", "jobs/*.yaml") for path in self.folder.glob(pattern))
        names = filter(pages.is_page, (str(path.relative_to(self.folder)) for path in paths))
        for name in (pages.SYSTEM, pages.SETTINGS, *sorted(names)):
            self.read(name)
            page = self.load_state().pages.get(name)
            if page and page.current.by == "hand" and to_time(page.current.at) > since_at:
                notices[page.current.event] = (
                    f"{name} was changed in its file, by you or by a program: `perdure floor diff {name}` shows it, "
                    "`perdure floor revert` takes it back"
                )
        return notices

    # C₀ ---------------------------------------------------------------------------------------------------

    def _apply_tombstones(self) -> None:
        super()._apply_tombstones()
        block_cache.delete(self.connections.path)  # a floor stands in blocks, too

    def layers(self, *, cwd: str | None = None, platform: str = "api", now: datetime | None = None) -> Layers:
        """Return C₀ for a session that begins now: each layer within its budget, in order.

        cwd: the session's folder; what belongs to another project is left out. platform: where the session runs, for
        the variables of the system prompt. What looks like an injection is left out and named in `alerts`. A note, card
        or insight whose files have changed, or that the team's notes contradict, says so.
        """
        from perdure.floor import layers

        self.upkeep.index_new_statements()
        now, project, config = now or local_now(), self.connections.project_of(cwd), self.connections.config
        remarks = self._make_remarks(project)
        page_texts = {
            name: self._read_for_project(name, project)
            for name in layers.list_needed_pages(layers.to_diary_day(now), overall=config.floor.overall)
        }
        material = layers.FloorMaterial(
            pages=page_texts | {pages.NOTES: self._remark_notes(page_texts[pages.NOTES], remarks)},
            cards=[self._remark_card(card, remarks) for card in self.list_cards() if card.project in (None, project)],
            insights=self._insight_texts(cwd, remarks),
            conversations=self._list_conversations(project, now),
            variables=dict(
                zip(
                    VARIABLES,
                    (
                        describe_platform(platform),
                        config.agent,
                        self.connections.user,
                        config.machine,
                        Path(project).name if project else "",
                    ),
                    strict=True,
                )
            ),
            today=layers.to_diary_day(now),
            project=project,
            facts=self._facts(cwd),
        )
        return layers.assemble(material, config.floor, self.find_injections)

    def list_kept(self) -> list[KeptLayer]:
        """Return what the home keeps in each of its three layers: memories, pages and cards, and the diary.

        The memories are left out while there is no usable index.
        """
        from perdure.floor.layers import KeptLayer

        names = self.list_pages()
        diary_texts = [self.read(name) for name in names if name.startswith(f"{pages.DIARY}/")]
        floor_texts = [self.read(name) for name in names if not name.startswith(f"{pages.DIARY}/")]
        floor_texts += [card.text for card in self.list_cards()]
        kept = [
            ("floor", "agents/", floor_texts, "pages and cards; a session gets what fits"),
            ("diary", "diary/", diary_texts, "a page for each day; a session gets the last two"),
        ]
        with contextlib.suppress(IndexFault, Busy):
            memory_texts = [memory.text for memory in self.memories().list_memories()]
            kept.insert(0, ("memories", "journal", memory_texts, "recalled when a message needs them"))
        return [
            KeptLayer(name, source, len(texts), sum(map(tokens, texts)), role) for name, source, texts, role in kept
        ]

    def list_held_back(self, *, cwd: str | None = None) -> list[Suspect]:
        """Return texts that read like an order to a model and were not allowed: on the floor, or met by recall.

        cwd: for the floor of a session there. `floor.allow(text, where=where)` lets one through.
        """
        from perdure.access import shown_alerts
        from perdure.floor import note_taking

        suspects = list(self.layers(cwd=cwd).suspects)
        path, user = self.connections.path, self.connections.user
        with contextlib.suppress(IndexFault):
            suspects += note_taking.find_suspects(
                self.connections.index(), user, shown_alerts.read_shown(path, user), self.find_injections
            )
        return suspects

    def location_line(self, *, cwd: str | None = None, now: datetime | None = None, lead: str = "Now") -> str:
        """Return the line that says the time and the place."""
        from perdure.floor import layers

        facts, _ = layers.clean_values(self._facts(cwd), self.find_injections)
        return layers.format_location_line(now or local_now(), facts, label=lead)

    def _facts(self, cwd: str | None) -> dict[str, str]:
        config = self.connections.config
        return {
            "machine": config.machine,
            "place": config.floor.place,
            "project": self.connections.project_of(cwd) or "",
        }

    def _read_for_project(self, name: str, project: str | None) -> str:
        """Return a page as a session of this project sees it.

        Of a diary page that a job wrote, a session sees the part of its own project; a page of somebody else is for
        all sessions.
        """
        text = self.read(name)
        if not name.startswith(f"{pages.DIARY}/") or self.connections.config.floor.overall:
            return text
        page = self.load_state().pages.get(name)
        is_written_by_job = page is not None and page.current.by in ("rules", "model")
        return notes.select_sections(text, project, with_unmarked=not is_written_by_job)

    def _insight_texts(self, cwd: str | None, remarks: Remarks) -> list[str]:
        """Return the insights' texts; none without a usable index: the floor does not depend on it."""
        max_tokens = self.connections.config.floor.insights_tokens
        try:
            insights = self.memories().insights(cwd=cwd or "", max_tokens=max_tokens)
        except (IndexFault, Busy):
            return []
        return [self._add_remark(memory.text, remarks, memory.project, memory.stated_at) for memory in insights]

    # remarks ----------------------------------------------------------------------------------------------

    def _make_remarks(self, project: str | None) -> Remarks:
        """Return the remarks for a session's project; none on what another machine asks for: its disk is not here."""
        from perdure.memories.remarks import Remarks

        return Remarks(None if self.connections.is_used_remotely else project, self.find_injections)

    def _add_remark(self, text: str, remarks: Remarks, project: str | None, stated_at: datetime | None) -> str:
        """Return a text of the floor with what there is to say about it; a text that is left out stays as it is."""
        if remarks.project is None or project not in (None, remarks.project):
            return text
        remark = remarks.describe(notes.parse_line(text).words, project, stated_at)
        return f"{text} ({notes.to_plain_words(remark)})" if remark and not self.find_injections(text) else text

    def _remark_card(self, card: FloorCard, remarks: Remarks) -> FloorCard:
        made_at = to_time(card.at)
        return msgspec.structs.replace(card, text=self._add_remark(card.text, remarks, card.project, made_at))

    def _remark_notes(self, text: str, remarks: Remarks) -> str:
        """Return notes.md with a remark behind each line that needs one. A line of a memory has the memory's time."""
        lines = [notes.parse_line(raw) for raw in text.splitlines()]
        memory_by_id: dict[str, Memory] = {}
        with contextlib.suppress(IndexFault, Busy):
            memories = self.memories().get_many([line.memory for line in lines if line.memory])
            memory_by_id = {memory.memory_id: memory for memory in memories}
        return "\n".join(
            self._add_remark(line.raw, remarks, line.project or None, memory.stated_at if memory else None)
            if line.is_note
            else line.raw
            for line in lines
            for memory in [memory_by_id.get(line.memory)]
        )

    def _list_conversations(self, project: str | None, now: datetime) -> list[str]:
        """Return the lines of the latest conversations of a project; none without a usable index."""
        from perdure.floor import recent
        from perdure.index import session_turns

        config, user = self.connections.config, self.connections.user
        since_at = now - timedelta(days=config.floor.recent_days)
        rows: list[str] = []
        with contextlib.suppress(IndexFault, Busy):
            index = self.connections.index()
            for conversation in session_turns.iter_recent_conversations(index, user, config.agent, project, since_at):
                if not self.captures.refusal(conversation.origin):
                    row = recent.render_conversation(conversation, now.tzinfo)
                    rows += [row] if row and not self.find_injections(row) else []
                if len(rows) == recent.MAX_CONVERSATIONS:
                    break
        return rows

    # written pages ----------------------------------------------------------------------------------------

    def update_recent(self, *, rebuild: bool = False, stop: Callable[[], bool] | None = None) -> RecentResult:
        """Bring recent.md up to date: with the model of the role `summariser`, one call, or by rules without one.

        With nothing new no model is asked and nothing is written. rebuild: make it again, from the memories and the
        last messages. The answer says what kept it as it was.
        """
        from perdure.floor.summaries import RECENT_JOB, RecentWriter

        self.captures.drain()
        max_tokens = self.connections.config.floor.overall_tokens
        recent = RecentWriter(
            **self._writer_fields(RECENT_JOB, max_tokens), memories=lambda: self.memories().list_by_weight()
        )
        return recent.update(rebuild=rebuild, stop=stop or (lambda: False))

    def write_diary(self, day: date | None = None, *, stop: Callable[[], bool] | None = None) -> DiaryResult:
        """Write the diary page of a day, a letter to the next session, unless it exists.

        day: the last complete day with messages unless named. A day begins at 06:00.
        """
        from perdure.floor.summaries import DIARY_JOB, DiaryWriter

        self.captures.drain()
        max_tokens = self.connections.config.floor.diary_tokens
        return DiaryWriter(**self._writer_fields(DIARY_JOB, max_tokens)).write(day, stop=stop or (lambda: False))

    def _writer_fields(self, job: str, page_tokens: int) -> dict[str, Any]:
        """Return the fields of `floor.writing.Writing`, for a page of so many tokens.

        A page that fills an answer to the brim would be cut off in it, so it may have three quarters of one.
        """
        from perdure.floor.summary_input import TurnSource
        from perdure.floor.summary_text import SummaryLimits

        connections = self.connections
        max_tokens = connections.config.models.roles.summariser.max_output_tokens * 3 // 4
        return {
            "home": connections.path,
            "floor": self,
            "now": local_now,
            "turn_source": TurnSource(
                connections.user,
                connections.config.agent,
                connections.archive,
                connections.index,
                self.captures.refusal,
                self.find_injections,
            ),
            "chat": lambda: connections.chat("summariser", job=job),
            "catch_up": lambda: self.upkeep.catch_up().n_behind,
            "limits": SummaryLimits(page_tokens, max_tokens, connections.config.floor.question_tokens),
        }
