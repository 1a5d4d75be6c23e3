"""One agent's floor: its pages, cards, proposals and permissions, read and changed.

Every change is an event in the journal before it is in a file. Files are working copies: a person's edit
in a file becomes an event at the next look; a file that a crash or a merge left behind gets the text of
the journal. Of two edits the later one counts, and the other stays in the history. No page becomes empty
by accident.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from perdure.access import scan
from perdure.archive.forget import ForgottenItems, load_tombstones
from perdure.archive.journal import Journal
from perdure.archive.memory_events import check_project
from perdure.disk import lock_file, make_folder
from perdure.errors import Busy, DiskFull, EditRefused, FloorMissing, ReadOnlyHome
from perdure.floor import forget, notes, pages, state, working_copy
from perdure.floor.pages import PageEdit
from perdure.floor.state import OWNERS, AgentFloor, EditProposal, FloorCard, FloorPage, PageVersion
from perdure.text import printable
from perdure.types import Span

READ_WAITS_S = 2.0  # a reader waits so long for a writer, then reads the present text
WRITE_WAITS_S = 60.0
MAX_CARD_CHARS = 4000  # a card is a few sentences: the corpus it comes from has 191 tokens on average (row F01)


@dataclass(frozen=True, slots=True)
class PageChange:
    """A new text for a page, with what the event records about it (as in `build_page_event`)."""

    text: str
    by: str
    why: str = ""
    added_lines: tuple[state.AddedLine, ...] = ()
    sources: tuple[Span, ...] = ()
    cursor: Any = None


def _find_added_text(edit: PageEdit) -> str:
    """Return the lines of a new text that the page did not have."""
    old_lines = set(edit.old.splitlines())
    return "\n".join(line for line in edit.text.splitlines() if line not in old_lines)


_scan_cached = lru_cache(maxsize=1024)(scan.scan)  # every session reads the cards, and they change seldom


def _select_text_to_scan(edit: PageEdit) -> str:
    """Return the part of a text that must be scanned.

    Suspicious text that a person put there does not block other edits.
    """
    return _find_added_text(edit) if scan.scan(edit.old) else edit.text


@dataclass
class Floor:
    """The floor of one agent. folder: where its working copies lie."""

    agent: str
    folder: Path
    journal: Journal
    cache: state.FloorCache
    writable: bool
    now: Callable[[], datetime]
    alerts: list[str] = field(default_factory=list)  # messages to the person about the working copies
    is_guarded: bool = False  # a change of a protected page in its file becomes a proposal

    # reading ----------------------------------------------------------------------------------------------

    def load_state(self) -> AgentFloor:
        """Return what the journal says about this agent."""
        return self.cache.read_state().agents.get(self.agent) or AgentFloor()

    def list_pages(self) -> list[str]:
        """List the pages that exist, in the journal or on disk."""
        known_pages = self.load_state().pages
        names = {name for name, page in known_pages.items() if page.text}
        for pattern in ("*.md", "*.yaml", f"{pages.DIARY}/*.md", "skills/*/SKILL.md", f"{pages.JOBS}/*.yaml"):
            names.update(str(path.relative_to(self.folder)) for path in self.folder.glob(pattern))
        return sorted(filter(pages.is_page, names))

    def read(self, name: str) -> str:
        """Return the text of a page, "" if there is none.

        An edit by hand is recorded first, if the home can be written.
        """
        name = pages.resolve_name(name)
        copy, page = working_copy.read_copy(self.folder / name), self.load_state().pages.get(name)
        if not self._is_in_sync(name, page, copy) and self.writable and self.folder.is_dir():
            try:
                with self._hold_lock(READ_WAITS_S):
                    return self._settle_page(name)
            except (DiskFull, ReadOnlyHome, Busy) as error:
                self._add_alert(f"{name}: {error}")
        if copy is not None and copy.text is not None and self._is_hand_edit(page, copy) and not self._guards(name):
            return copy.text
        return page.text if page else ""

    def _is_in_sync(self, name: str, page: FloorPage | None, copy: working_copy.WorkingCopy | None) -> bool:
        """Return True if the journal and a working copy say the same, and no old copy waits to be looked at."""
        if copy is None:
            return not (page and page.text) and not working_copy.has_displaced(self.folder / name)
        is_same = bool(page and copy.text and state.hash_text(copy.text) == page.current.sha)
        return is_same and bool(working_copy.is_recorded(copy)) and not working_copy.has_displaced(copy.path)

    def list_versions(self, name: str) -> list[PageVersion]:
        """Return every version of a page, oldest first. Raises FloorMissing."""
        name = pages.resolve_name(name)
        self.read(name)
        page = self.load_state().pages.get(name)
        if page is None:
            raise FloorMissing(f"the page {name} is not written yet: `perdure floor edit {name}` creates it")
        if len(page.versions) < state.MAX_VERSIONS:
            return page.versions
        return self._list_all_versions(name)

    def find_owner_paragraphs(self, name: str) -> set[str]:
        """Return the paragraphs that the owner put into a page, in any version of it."""
        owner_paragraphs: set[str] = set()
        old_paragraphs: set[str] = set()
        for event in self.journal.read(type_=state.EVENT_TYPE):
            data = event.data
            if data["op"] == "write" and (data["agent"], data["name"]) == (self.agent, name):
                paragraphs = set(data["text"].strip().split("\n\n"))
                owner_paragraphs |= paragraphs - old_paragraphs if data["by"] in OWNERS else set()
                old_paragraphs = paragraphs
        return owner_paragraphs

    def read_version(self, name: str, event_key: str) -> str:
        """Return the text of a page after an event; the start of its key is enough. Raises FloorMissing."""
        name = pages.resolve_name(name)
        page = self.load_state().pages.get(name)
        exact_versions = [version for version in (page.versions if page else ()) if version.event == event_key]
        versions = exact_versions or [
            version for version in self.list_versions(name) if version.event.startswith(event_key)
        ]
        page_event = (
            self.journal.find_event(versions[0].event, versions[0].at)
            if len({candidate.event for candidate in versions}) == 1
            else None
        )
        if page_event is None:
            raise FloorMissing(f"{name} has no version {event_key!r}: `perdure floor history {name}` lists them")
        return str(page_event.data["text"])

    # writing ----------------------------------------------------------------------------------------------

    def write(
        self,
        name: str,
        text: str,
        *,
        by: str = "owner",
        base_text: str | None = None,
        why: str = "",
        sources: Sequence[Span] = (),
        cursor: Any = None,
    ) -> PageVersion:
        """Give a page a new text, durably. The old text stays in its history.

        base_text: the text that the writer had read; if the page now has another text, the version says that it
        replaced an edit which its writer had not seen. sources: the turns behind the whole text. Raises
        EditRefused; then nothing changes.
        """
        change = PageChange(text, by, why, sources=tuple(sources), cursor=cursor)
        new_version = self.rework(name, lambda _: change, base_text=base_text)
        assert new_version is not None
        return new_version

    def rework(
        self, name: str, make_change: Callable[[str], PageChange | None], *, base_text: str | None = None
    ) -> PageVersion | None:
        """Replace a page's text by one made from its current text, while nobody else writes the page.

        Returns the page's version, or None if nothing is to change. Raises EditRefused.
        """
        name = pages.resolve_name(name)
        with self._hold_lock():
            old_text = self._settle_page(name)
            change = make_change(old_text)
            if change is None:
                return None
            text = change.text.rstrip() + "\n"
            self._check_edit(PageEdit(name, text, change.by, old_text, why=change.why))
            if text == old_text and change.cursor is None:
                return self.load_state().pages[name].current
            read_hash = (
                self._hash_current_text(name) if base_text is None else state.hash_text(base_text) if base_text else ""
            )
            data = state.build_page_event(
                self.agent,
                name,
                text,
                by=change.by,
                read_hash=read_hash,
                why=change.why,
                added_lines=change.added_lines,
                sources=change.sources,
                cursor=change.cursor,
            )
            return self._record_write(name, data)

    def remove(self, name: str, *, by: str = "owner") -> None:
        """Remove a page; its history stays. Raises FloorMissing, EditRefused."""
        name = pages.resolve_name(name)
        if by not in OWNERS:
            raise EditRefused(f"{name}: only the owner can remove a page")
        with self._hold_lock():
            if not self._settle_page(name):
                raise FloorMissing(f"there is no page {name}: `perdure floor` lists the pages")
            self._record_write(
                name, state.build_page_event(self.agent, name, "", by=by, read_hash=self._hash_current_text(name))
            )

    def revert(self, name: str, event_key: str, *, by: str = "owner") -> PageVersion:
        """Give a page the text again that it had after an event."""
        text = self.read_version(name, event_key)
        if not text:
            raise EditRefused(
                f"{name}: this state has no text: the page was removed at that time, or its text was forgotten later"
            )
        return self.write(name, text, by=by, why=f"as it was after {event_key}")

    def forget_line(self, name: str, text: str) -> None:
        """Forget a line of a page permanently: it leaves every version of the page, here and in homes that are merged.

        text: the words of the line, without its marks. Raises FloorMissing.
        """
        name = self.check_line(name, text)
        self.check_writable()
        forget.record_line_tombstone(self.journal, self.agent, name, text, now=self.now())
        self._apply_tombstones()

    def check_line(self, name: str, text: str) -> str:
        """Return the full name of a page that has a line of these words in some version. Raises FloorMissing."""
        name = pages.resolve_name(name)
        self.read(name)  # this records the file's text in the journal
        if not notes.parse_line(text).key or not forget.has_line(self.journal, self.agent, name, text):
            raise FloorMissing(
                f"no version of {name} has the line {printable(text)!r}: `perdure floor history {name}` shows them"
            )
        return name

    def forget_item(self, identifier: str) -> str:
        """Forget a card or a proposal permanently, also if it was removed or decided. Raises FloorMissing.

        Returns its id.
        """
        identifier = self.check_item(identifier)
        self.check_writable()
        forget.record_item_tombstone(self.journal, self.agent, identifier, now=self.now())
        self._apply_tombstones()
        return identifier

    def check_item(self, identifier: str) -> str:
        """Return the id of the one card or proposal whose id begins so, removed ones included. Raises FloorMissing."""
        item_ids = [
            item_id for item_id in forget.list_item_ids(self.journal, self.agent) if item_id.startswith(identifier)
        ]
        if len(item_ids) != 1 or not identifier:
            raise FloorMissing(
                f"no card or proposal {printable(identifier)!r}: `perdure floor cards` and `floor proposals` list them"
            )
        return item_ids[0]

    def _apply_tombstones(self) -> None:
        """Apply the tombstones."""
        forget.apply_tombstones(
            self.journal, ForgottenItems(load_tombstones(self.journal)), lambda _: self.folder, only_agent=self.agent
        )
        self.cache.drop()

    def _check_edit(self, edit: PageEdit) -> None:
        pages.check_edit(edit)
        if edit.by not in OWNERS:
            self.refuse_suspect(_select_text_to_scan(edit), edit.name)

    def refuse_suspect(self, text: str, location: str) -> None:
        """Raise EditRefused for a text that looks like an injection, unless the owner has allowed it."""
        for finding in self.find_injections(text):
            raise EditRefused(
                f"{location}: it reads like an instruction to a model ({finding.rule}: {finding.excerpt!r})"
            )

    def find_injections(self, text: str) -> tuple[scan.Finding, ...]:
        """Return the scanner's findings in a text; nothing if the owner has allowed that text."""
        findings = _scan_cached(text)
        return () if findings and scan.digest_text(text) in self.load_state().allowed else findings

    def is_refused(self, text: str, old_text: str) -> bool:
        """Return True if a text of the rules or a model, in place of another text, would be refused as suspicious."""
        return bool(self.find_injections(_select_text_to_scan(PageEdit("", text, "rules", old_text))))

    def allow(self, text: str, *, location: str) -> None:
        """Allow exactly this text although the scanner suspects it."""
        self._record_event(state.build_allow_event(self.agent, scan.digest_text(text), location=location))

    # cards ------------------------------------------------------------------------------------------------

    def list_cards(self) -> list[FloorCard]:
        """Return every card, oldest first."""
        return list(self.load_state().cards.values())

    def get_card(self, identifier: str) -> FloorCard:
        """Return the card of this id, or the only one whose id begins so. Raises FloorMissing."""
        matches = [card for card_id, card in self.load_state().cards.items() if card_id.startswith(identifier)]
        if len(matches) != 1 or not identifier:
            raise FloorMissing(f"no card {printable(identifier)!r}: `perdure floor cards` lists them")
        return matches[0]

    def add_card(
        self, text: str, *, by: str = "owner", project: str | None = None, sources: Sequence[Span] = ()
    ) -> FloorCard:
        """Add a card; return an existing card that says the same instead; remove cards that the new one corrects.

        Raises EditRefused, and UsageError for a project longer than a path may be.
        """
        text, project = self._check_card_text(text, by), check_project(project)
        with self._hold_lock():
            project_cards = [card for card in self.list_cards() if card.project == project]
            for old_card in project_cards:
                if notes.is_same_note(text, old_card.text):
                    return old_card
            identifier = f"card-{secrets.token_hex(4)}"
            self._record_event(
                state.build_card_event(self.agent, identifier, text, by=by, project=project, sources=sources)
            )
            for old_card in project_cards:
                if notes.is_correction(text, old_card.text):
                    self._record_event(state.build_card_event(self.agent, old_card.id, "", by=by))
            return self.get_card(identifier)

    def change_card(self, identifier: str, text: str, *, by: str = "owner") -> FloorCard:
        """Change the text of a card. Raises FloorMissing, EditRefused."""
        text = self._check_card_text(text, by)
        with self._hold_lock():
            card = self.get_card(identifier)
            self._record_event(state.build_card_event(self.agent, card.id, text, by=by))
            return self.get_card(card.id)

    def remove_card(self, identifier: str, *, by: str = "owner") -> FloorCard:
        """Remove a card; the journal keeps it. Raises FloorMissing."""
        with self._hold_lock():
            card = self.get_card(identifier)
            self._record_event(state.build_card_event(self.agent, card.id, "", by=by))
            return card

    def _check_card_text(self, text: str, by: str) -> str:
        text = printable(text).strip()
        pages.check_edit(PageEdit("card", text, by))
        if len(text) > MAX_CARD_CHARS:
            raise EditRefused(f"card: it has {len(text)} characters; the maximum is {MAX_CARD_CHARS}")
        if by not in OWNERS:
            self.refuse_suspect(text, "card")
        return text

    # proposals --------------------------------------------------------------------------------------------

    def propose(
        self, name: str, text: str, *, by: str = "agent", why: str = "", session: str = "", readings: Sequence[str] = ()
    ) -> EditProposal:
        """Propose an edit of any page to the owner. Nothing changes before they approve it. Raises EditRefused.

        session, readings: where it is proposed, and the tools by which that session had read text from outside.
        """
        name = pages.resolve_name(name)
        text, old_text = text.rstrip() + "\n", self.read(name)
        pages.check_edit(PageEdit(name, text, by, old_text, is_proposal=True, why=why))
        if text == old_text:
            raise EditRefused(f"{name}: the page already has this text")
        identifier = f"edit-{secrets.token_hex(4)}"
        read_hash = state.hash_text(old_text) if old_text else ""
        self._record_event(
            state.build_proposal_event(
                self.agent, identifier, name, text, by=by, read_hash=read_hash, why=why, session=session,
                readings=readings,
            )
        )  # fmt: skip
        return self.get_proposal(identifier)

    def list_proposals(self, *, with_decided: bool = False) -> list[EditProposal]:
        """Return the proposals that wait for the owner. with_decided: the decided ones as well."""
        return [proposal for proposal in self.load_state().proposals.values() if with_decided or not proposal.outcome]

    def get_proposal(self, identifier: str) -> EditProposal:
        """Return the proposal of this id, or the only one whose id begins so. Raises FloorMissing."""
        matches = [
            proposal
            for proposal_id, proposal in self.load_state().proposals.items()
            if proposal_id.startswith(identifier)
        ]
        if len(matches) != 1 or not identifier:
            raise FloorMissing(f"no proposal {printable(identifier)!r}: `perdure floor proposals` lists them")
        return matches[0]

    def approve(self, identifier: str, *, surface: str = "") -> PageVersion:
        """Apply a proposed edit. It takes effect with the next session. surface: where the owner approved it.

        Raises FloorMissing, EditRefused.
        """
        with self._hold_lock():
            proposal = self._get_open_proposal(identifier)
            current_text = self._settle_page(proposal.name)
            if (state.hash_text(current_text) if current_text else "") != proposal.was:
                raise EditRefused(f"{proposal.name}: it was changed after {proposal.id} was proposed; reject that one")
            self._check_edit(PageEdit(proposal.name, proposal.text, "owner", current_text))
            if self.find_injections(proposal.text):
                self.allow(proposal.text, location=proposal.name)  # the owner has read it
            why = f"{proposal.id}: {proposal.why}" if proposal.why else proposal.id
            data = state.build_approval_event(
                self.agent, proposal.id, proposal.name, proposal.text, read_hash=proposal.was, why=why, surface=surface
            )
            return self._record_write(proposal.name, data)

    def reject(self, identifier: str, *, surface: str = "") -> EditProposal:
        """Reject a proposed edit. surface: where the owner did. Raises FloorMissing, EditRefused."""
        with self._hold_lock():
            proposal = self._get_open_proposal(identifier)
            self._record_event(state.build_decision_event(self.agent, proposal.id, approved=False, surface=surface))
            return self.get_proposal(proposal.id)

    def _get_open_proposal(self, identifier: str) -> EditProposal:
        proposal = self.get_proposal(identifier)
        if proposal.outcome:
            raise EditRefused(f"{proposal.id}: the proposal is already {proposal.outcome}")
        return proposal

    # the working copies -----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _hold_lock(self, wait_s: float = WRITE_WAITS_S) -> Iterator[None]:
        """Hold the lock under which this agent's pages change."""
        make_folder(self.folder)
        with lock_file(self.folder / ".lock", wait_s=wait_s):
            yield

    def _settle_page(self, name: str) -> str:
        """Make the working copy and the journal agree, and return the page's text. The caller holds the lock."""
        path = self.folder / name
        for displaced_copy in working_copy.read_displaced(path):
            self._take_displaced(name, displaced_copy)
        page, copy = self.load_state().pages.get(name), working_copy.read_copy(path)
        if copy is not None and self._is_hand_edit(page, copy):
            copy = working_copy.read_settled_copy(path)  # wait for the whole text
        if copy is None:
            return self._restore_copy(name, page)
        if copy.text is None:
            return self._replace_unfit_copy(name, page, copy)
        if self._is_hand_edit(page, copy):
            if self._guards(name):
                return self._propose_file(name, copy)
            self._record_event(
                state.build_page_event(self.agent, name, copy.text, by="hand", read_hash=self._hash_current_text(name))
            )
        elif page is None or state.hash_text(copy.text) != page.current.sha:
            return self._restore_copy(name, page)
        if not working_copy.is_recorded(copy):
            working_copy.record_copy(copy)
        return copy.text

    def _is_hand_edit(self, page: FloorPage | None, copy: working_copy.WorkingCopy) -> bool:
        """Return True if a file holds an edit of a person.

        Return False for an older version that the journal has already replaced: the process was killed before it
        wrote the next one, or a merge brought it.
        """
        text_hash = state.hash_text(copy.text) if copy.text is not None else ""
        if not text_hash or page is None or text_hash == page.current.sha:
            return bool(text_hash) and page is None
        is_noted = working_copy.is_recorded(copy)
        if is_noted is None:
            is_noted = copy.is_before(page.current.at) and text_hash in {version.sha for version in page.versions}
        return not is_noted

    def _guards(self, name: str) -> bool:
        """Return True if a change of this page's file waits for the owner, whoever made it."""
        return self.is_guarded and pages.is_protected(name)

    def _propose_file(self, name: str, copy: working_copy.WorkingCopy) -> str:
        """Make a proposal of the text of a file, give the file the page's text, and return that.

        A text that may not even be proposed is set aside beside the page.
        """
        page, text = self.load_state().pages.get(name), copy.text or ""
        old_text = page.text if page else ""
        try:
            self._record_file_proposal(name, text, old_text)
        except EditRefused as error:
            aside_path = working_copy.set_aside(copy)
            self._add_alert(f"{error.detail}: its file was changed, and a copy is kept as {aside_path.name}")
        if old_text:
            working_copy.rewrite_copy(copy, old_text, is_known=True)
        else:
            copy.path.unlink(missing_ok=True)
        return old_text

    def _record_file_proposal(self, name: str, text: str, old_text: str) -> None:
        """Record the text of a file as a proposal; one that waits already is enough. Raises EditRefused."""
        waiting_texts = {proposal.text for proposal in self.list_proposals() if proposal.name == name}
        if text in waiting_texts or text == old_text:
            return
        pages.check_edit(PageEdit(name, text, "file", old_text, is_proposal=True))
        identifier, read_hash = f"edit-{secrets.token_hex(4)}", state.hash_text(old_text) if old_text else ""
        self._record_event(
            state.build_proposal_event(
                self.agent, identifier, name, text, by="file", read_hash=read_hash, why="its file was changed"
            )
        )
        self._add_alert(f"{name}: its file was changed; the change waits as {identifier} (`perdure floor proposals`)")

    def _restore_copy(self, name: str, page: FloorPage | None) -> str:
        """Write the journal's text into the working copy; a file that is not ours stays as it is."""
        path, text = self.folder / name, page.text if page else ""
        copy = working_copy.read_copy(path)
        if copy is not None and copy.is_foreign:
            self._add_alert(f"{name} {copy.why}; the text in the journal is used")
        elif text:
            working_copy.put_text(path, text)
        elif page is not None:
            working_copy.remove_copy(path)
        return text

    def _replace_unfit_copy(self, name: str, page: FloorPage | None, copy: working_copy.WorkingCopy) -> str:
        """Restore a page whose file has no usable text, unless an editor may still be writing it."""
        text = page.text if page else ""
        if copy.is_fresh and not copy.is_foreign:
            return text
        if copy.why == working_copy.EMPTY:
            if text:
                self._add_alert(f"{name} was empty; `perdure floor remove {name}` removes a page")
            return self._restore_copy(name, page)
        if not copy.is_foreign:
            self._set_aside(name, copy)
            if not text:
                working_copy.remove_copy(self.folder / name)
        return self._restore_copy(name, page)

    def _set_aside(self, name: str, copy: working_copy.WorkingCopy) -> None:
        """Keep a file that cannot be a page's text, and add an alert."""
        aside_path = working_copy.set_aside(copy)
        self._add_alert(f"{name} {copy.why}: it is not used, and a copy is kept as {aside_path.name}")

    def _take_displaced(self, name: str, displaced_copy: working_copy.WorkingCopy) -> None:
        """Record in the history a text that somebody wrote into a file just as we replaced it."""
        page = self.load_state().pages.get(name)
        text = displaced_copy.text
        if text is not None and self._guards(name):
            with contextlib.suppress(EditRefused):  # then it is as if the editor had been too late
                if not self._has_version(name, state.hash_text(text)):
                    self._record_file_proposal(name, text, page.text if page else "")
        elif text is not None and not self._has_version(name, state.hash_text(text)):
            current_text = page.text if page else ""
            self._record_event(
                state.build_page_event(
                    self.agent, name, text, by="hand", read_hash=self._hash_current_text(name), why="written meanwhile"
                )
            )
            if page and current_text:  # the replacing text came later, so it counts
                restoring_event = state.build_page_event(
                    self.agent,
                    name,
                    current_text,
                    by="rules",
                    read_hash="",
                    why="the later edit counts",
                    cursor=page.cursor,
                )
                self._record_event(restoring_event)
        if displaced_copy.is_just_displaced:
            return
        if displaced_copy.text is None and displaced_copy.why != working_copy.EMPTY and not displaced_copy.is_foreign:
            self._set_aside(name, displaced_copy)
        displaced_copy.path.unlink(missing_ok=True)

    def _has_version(self, name: str, text_hash: str) -> bool:
        """Return True if a page ever had a text of this hash."""
        page = self.load_state().pages.get(name)
        if page is None or text_hash in {version.sha for version in page.versions}:
            return page is not None
        return len(page.versions) == state.MAX_VERSIONS and text_hash in {
            old_version.sha for old_version in self._list_all_versions(name)
        }

    def _list_all_versions(self, name: str) -> list[PageVersion]:
        return state.list_page_versions(self.journal.read(type_=state.EVENT_TYPE), self.agent, name)

    def _record_write(self, name: str, data: dict[str, Any]) -> PageVersion:
        self._record_event(data)
        page = self.load_state().pages[name]
        self._restore_copy(name, page)
        for displaced_copy in working_copy.read_displaced(self.folder / name):
            self._take_displaced(name, displaced_copy)
        return page.current

    def _add_alert(self, message: str) -> None:
        if message not in self.alerts:
            self.alerts.append(message)

    def _hash_current_text(self, name: str) -> str:
        page = self.load_state().pages.get(name)
        return page.current.sha if page else ""

    def check_writable(self) -> None:
        """Raise ReadOnlyHome if nothing may be changed."""
        if not self.writable:
            raise ReadOnlyHome(str(self.folder))

    def _record_event(self, data: dict[str, Any]) -> None:
        self.check_writable()
        self.journal.append(state.EVENT_TYPE, data, now=self.now())
