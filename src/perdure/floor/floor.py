"""One agent's floor: its pages, cards, proposals and permissions, read and changed.

Every change is an event in the journal before it is in a file, and files are working copies: an edit that a person made
in one becomes an event when it is next looked at; one that a crash or a merge left behind gets what the journal says.
Of two edits the later counts, and the other stays in the history. No page ever becomes empty by accident.
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

from perdure import text as words
from perdure.access import scan
from perdure.archive.journal import Journal
from perdure.capture.files import locked, make_folder
from perdure.errors import Busy, DiskFull, EditRefused, FloorMissing, ReadOnlyHome
from perdure.floor import events, forget, notes, pages, state, working
from perdure.floor.events import OWNERS
from perdure.floor.pages import Edit
from perdure.floor.state import Card, Known, Page, Proposal, Version
from perdure.forget import Gone
from perdure.forget import load as tombstones
from perdure.memories.paths import checked_project
from perdure.types import Span

READ_WAITS_S = 2.0  # who reads waits so long for who writes; after that they read what stands there
WRITE_WAITS_S = 60.0
MAX_CARD_CHARS = 4000  # a card is a few sentences: the corpus it comes from has 191 tokens on average (row F01)


@dataclass(frozen=True, slots=True)
class Change:
    """A new text for a page, with what is to be known of it (as in `events.written`)."""

    text: str
    by: str
    why: str = ""
    pieces: tuple[events.Piece, ...] = ()
    sources: tuple[Span, ...] = ()
    cursor: Any = None


def _added(edit: Edit) -> str:
    """The lines of a new text that the page did not have."""
    old = set(edit.old.splitlines())
    return "\n".join(line for line in edit.text.splitlines() if line not in old)


_scanned = lru_cache(maxsize=1024)(scan.scan)  # a card is asked for with every session, and changes seldom


def _in_question(edit: Edit) -> str:
    """What may be a reason to refuse a text: what a person put there is none, for what comes beside it."""
    return _added(edit) if scan.scan(edit.old) else edit.text


@dataclass
class Floor:
    """The floor of one agent. folder: where its working copies lie."""

    agent: str
    folder: Path
    journal: Journal
    watch: state.Watch
    writable: bool
    now: Callable[[], datetime]
    alerts: list[str] = field(default_factory=list)  # what a person must know of the working copies

    # reading ----------------------------------------------------------------------------------------------

    def known(self) -> Known:
        """What the journal says of this agent."""
        return self.watch.state().agents.get(self.agent) or Known()

    def names(self) -> list[str]:
        """The pages that there are, in the journal or on disk."""
        known = self.known().pages
        found = {name for name, page in known.items() if page.text}
        for place in ("*.md", "*.yaml", f"{pages.DIARY}/*.md", "skills/*/SKILL.md"):
            found.update(str(path.relative_to(self.folder)) for path in self.folder.glob(place))
        return sorted(filter(pages.is_page, found))

    def read(self, name: str) -> str:
        """What a page says now, "" for one that there is not. A hand edit is noted first, where that can be done."""
        name = pages.checked(name)
        copy, page = working.read(self.folder / name), self.known().pages.get(name)
        if not self._agree(name, page, copy) and self.writable and self.folder.is_dir():
            try:
                with self._held(READ_WAITS_S):
                    return self._settled(name)
            except (DiskFull, ReadOnlyHome, Busy) as error:
                self._alert(f"{name}: {error}")
        if copy is not None and copy.text is not None and self._is_edit(page, copy):
            return copy.text
        return page.text if page else ""

    def _agree(self, name: str, page: Page | None, copy: working.Copy | None) -> bool:
        """Whether the journal and a working copy say the same, and nothing beside it waits to be looked at."""
        if copy is None:
            return not (page and page.text) and not working.has_displaced(self.folder / name)
        is_same = bool(page and copy.text and events.sha(copy.text) == page.now.sha)
        return is_same and bool(working.is_noted(copy)) and not working.has_displaced(copy.path)

    def history(self, name: str) -> list[Version]:
        """Every state of a page, oldest first. Raises FloorMissing."""
        name = pages.checked(name)
        self.read(name)
        page = self.known().pages.get(name)
        if page is None:
            raise FloorMissing(f"page {name} of the floor (nobody has written it yet)")
        if len(page.versions) < state.KEPT_VERSIONS:
            return page.versions
        return self._every_version(name)

    def written_by_owner(self, name: str) -> set[str]:
        """The paragraphs that its owner put into a page, in any state of it."""
        found: set[str] = set()
        before: set[str] = set()
        for event in self.journal.read(type_=events.TYPE):
            data = event.data
            if data["op"] == "write" and (data["agent"], data["name"]) == (self.agent, name):
                now = set(data["text"].strip().split("\n\n"))
                found |= now - before if data["by"] in OWNERS else set()
                before = now
        return found

    def said(self, name: str, event: str) -> str:
        """What a page said after an event, named by the beginning of its key. Raises FloorMissing."""
        name = pages.checked(name)
        page = self.known().pages.get(name)
        at_hand = [version for version in (page.versions if page else ()) if version.event == event]
        found = at_hand or [version for version in self.history(name) if version.event.startswith(event)]
        told = self.journal.one(found[0].event, found[0].at) if len({one.event for one in found}) == 1 else None
        if told is None:
            raise FloorMissing(f"version {event!r} of {name} (`perdure floor history {name}` lists them)")
        return str(told.data["text"])

    # writing ----------------------------------------------------------------------------------------------

    def write(
        self, name: str, said: str, *, by: str = "owner", base: str | None = None, why: str = "",
        sources: Sequence[Span] = (), cursor: Any = None,
    ) -> Version:  # fmt: skip
        """Give a page a new text, durably. The old one stays in its history.

        base: the text that the writer had read, where that is not what stands there now: then the version says that it
        replaced an edit which its writer had not seen. sources: the turns behind the whole text. Raises EditRefused;
        then nothing is changed.
        """
        change = Change(said, by, why, sources=tuple(sources), cursor=cursor)
        made = self.rework(name, lambda _: change, base=base)
        assert made is not None
        return made

    def rework(self, name: str, make: Callable[[str], Change | None], *, base: str | None = None) -> Version | None:
        """Give a page the text that is made of what it says at this moment; nobody else writes it meanwhile.

        Returns the page's state, None where nothing is to be changed. Raises EditRefused.
        """
        name = pages.checked(name)
        with self._held():
            old = self._settled(name)
            change = make(old)
            if change is None:
                return None
            said = change.text.rstrip() + "\n"
            self._check(Edit(name, said, change.by, old, why=change.why))
            if said == old and change.cursor is None:
                return self.known().pages[name].now
            was = self._sha(name) if base is None else events.sha(base) if base else ""
            data = events.written(
                self.agent, name, said, by=change.by, was=was, why=change.why, pieces=change.pieces,
                sources=change.sources, cursor=change.cursor,
            )  # fmt: skip
            return self._written(name, data)

    def remove(self, name: str, *, by: str = "owner") -> None:
        """Take a page away; its history stays. Raises FloorMissing, EditRefused."""
        name = pages.checked(name)
        if by not in OWNERS:
            raise EditRefused(f"{name}: only its owner takes a page away")
        with self._held():
            if not self._settled(name):
                raise FloorMissing(f"page {name} of the floor")
            self._written(name, events.written(self.agent, name, "", by=by, was=self._sha(name)))

    def revert(self, name: str, event: str, *, by: str = "owner") -> Version:
        """Let a page say again what it said after an event."""
        said = self.said(name, event)
        if not said:
            raise EditRefused(f"{name}: nothing is left of it: it had been taken away then, or was forgotten since")
        return self.write(name, said, by=by, why=f"as it was after {event}")

    def forget_line(self, name: str, said: str) -> None:
        """Forget a line of a page for good: it goes from every state of that page, here and in homes that are merged.

        said: its words, whatever is noted behind them. Raises FloorMissing.
        """
        name = self.check_line(name, said)
        self.check_writable()
        forget.record_line(self.journal, self.agent, name, said, now=self.now())
        self._forgotten()

    def check_line(self, name: str, said: str) -> str:
        """The name of a page some state of which has a line of these words. Raises FloorMissing."""
        name = pages.checked(name)
        self.read(name)  # what stands in the file is in the journal
        if not notes.read(said).name or not forget.holds(self.journal, self.agent, name, said):
            raise FloorMissing(f"line {words.printable(said)!r} in any state of {name}")
        return name

    def forget_asked(self, identifier: str) -> str:
        """Forget a card or a proposal for good, also one that was taken away or decided. Raises FloorMissing.

        Returns its id.
        """
        identifier = self.check_asked(identifier)
        self.check_writable()
        forget.record_asked(self.journal, self.agent, identifier, now=self.now())
        self._forgotten()
        return identifier

    def check_asked(self, identifier: str) -> str:
        """The id of the one card or proposal whose id begins so, of all that there ever were. Raises FloorMissing."""
        found = [one for one in forget.ids(self.journal, self.agent) if one.startswith(identifier)]
        if len(found) != 1 or not identifier:
            raise FloorMissing(f"card or proposal {words.printable(identifier)!r} (`perdure floor cards` lists cards)")
        return found[0]

    def _forgotten(self) -> None:
        """Do what the tombstones say."""
        forget.apply(self.journal, Gone(tombstones(self.journal)), lambda _: self.folder, only=self.agent)
        self.watch.drop()

    def _check(self, edit: Edit) -> None:
        pages.check(edit)
        if edit.by not in OWNERS:
            self.refuse_suspect(_in_question(edit), edit.name)

    def refuse_suspect(self, said: str, where: str) -> None:
        """Raise EditRefused for a text that looks like an injection and that the owner has not allowed."""
        for finding in self.suspicious(said):
            raise EditRefused(f"{where}: it reads like an instruction to a model ({finding.rule}: {finding.excerpt!r})")

    def suspicious(self, said: str) -> tuple[scan.Finding, ...]:
        """What the scanner finds in a text, unless its owner allows that text."""
        found = _scanned(said)
        return () if found and scan.digest(said) in self.known().allowed else found

    def is_refused(self, said: str, old: str) -> bool:
        """Whether a text of the rules' or a model's in the place of another would be refused as suspicious."""
        return bool(self.suspicious(_in_question(Edit("", said, "rules", old))))

    def allow(self, said: str, *, where: str) -> None:
        """Let a text through although the scanner suspects it: this very text, and no other."""
        self._note(events.allowed(self.agent, scan.digest(said), where=where))

    # cards ------------------------------------------------------------------------------------------------

    def cards(self) -> list[Card]:
        """Every card, oldest first."""
        return list(self.known().cards.values())

    def card(self, identifier: str) -> Card:
        """The card of this id, or of the one id that begins so. Raises FloorMissing."""
        found = [card for name, card in self.known().cards.items() if name.startswith(identifier)]
        if len(found) != 1 or not identifier:
            raise FloorMissing(f"card {words.printable(identifier)!r} (`perdure floor cards` lists them)")
        return found[0]

    def add_card(
        self, said: str, *, by: str = "owner", project: str | None = None, sources: Sequence[Span] = ()
    ) -> Card:
        """Add a card; one that says the same already is returned instead, and one that it corrects goes.

        Raises EditRefused, and UsageError for a project longer than a path may be.
        """
        said, project = self._card_text(said, by), checked_project(project)
        with self._held():
            beside = [card for card in self.cards() if card.project == project]
            for known in beside:
                if notes.same(said, known.text):
                    return known
            identifier = f"card-{secrets.token_hex(4)}"
            self._note(events.card(self.agent, identifier, said, by=by, project=project, sources=sources))
            for known in beside:
                if notes.corrects(said, known.text):
                    self._note(events.card(self.agent, known.id, "", by=by))
            return self.card(identifier)

    def change_card(self, identifier: str, said: str, *, by: str = "owner") -> Card:
        """Give a card other words. Raises FloorMissing, EditRefused."""
        said = self._card_text(said, by)
        with self._held():
            known = self.card(identifier)
            self._note(events.card(self.agent, known.id, said, by=by))
            return self.card(known.id)

    def remove_card(self, identifier: str, *, by: str = "owner") -> Card:
        """Take a card away; the journal keeps it. Raises FloorMissing."""
        with self._held():
            known = self.card(identifier)
            self._note(events.card(self.agent, known.id, "", by=by))
            return known

    def _card_text(self, said: str, by: str) -> str:
        said = words.printable(said).strip()
        pages.check(Edit("card", said, by))
        if len(said) > MAX_CARD_CHARS:
            raise EditRefused(f"card: it has {len(said)} characters, and {MAX_CARD_CHARS} are the most")
        if by not in OWNERS:
            self.refuse_suspect(said, "card")
        return said

    # proposals --------------------------------------------------------------------------------------------

    def propose(self, name: str, said: str, *, by: str = "agent", why: str = "") -> Proposal:
        """Ask the owner for an edit of any page. Nothing changes until they approve. Raises EditRefused."""
        name = pages.checked(name)
        said, old = said.rstrip() + "\n", self.read(name)
        pages.check(Edit(name, said, by, old, is_proposal=True, why=why))
        if said == old:
            raise EditRefused(f"{name}: it says that already")
        identifier = f"edit-{secrets.token_hex(4)}"
        self._note(
            events.proposed(self.agent, identifier, name, said, by=by, was=events.sha(old) if old else "", why=why)
        )
        return self.proposal(identifier)

    def proposals(self, *, every: bool = False) -> list[Proposal]:
        """The edits that wait for the owner; with `every` those that were decided as well."""
        return [one for one in self.known().proposals.values() if every or not one.outcome]

    def proposal(self, identifier: str) -> Proposal:
        """The proposal of this id, or of the one id that begins so. Raises FloorMissing."""
        found = [one for name, one in self.known().proposals.items() if name.startswith(identifier)]
        if len(found) != 1 or not identifier:
            raise FloorMissing(f"proposal {words.printable(identifier)!r} (`perdure floor proposals` lists them)")
        return found[0]

    def approve(self, identifier: str) -> Version:
        """Make a proposed edit. It is in force from the next session on. Raises FloorMissing, EditRefused."""
        with self._held():
            wanted = self._open(identifier)
            now = self._settled(wanted.name)
            if (events.sha(now) if now else "") != wanted.was:
                raise EditRefused(f"{wanted.name}: it was changed after {wanted.id} was proposed; reject that one")
            self._check(Edit(wanted.name, wanted.text, "owner", now))
            if self.suspicious(wanted.text):
                self.allow(wanted.text, where=wanted.name)  # the owner has read it
            why = f"{wanted.id}: {wanted.why}" if wanted.why else wanted.id
            data = events.approved(self.agent, wanted.id, wanted.name, wanted.text, was=wanted.was, why=why)
            return self._written(wanted.name, data)

    def reject(self, identifier: str) -> Proposal:
        """Turn a proposed edit down. Raises FloorMissing, EditRefused."""
        with self._held():
            wanted = self._open(identifier)
            self._note(events.decided(self.agent, wanted.id, approved=False))
            return self.proposal(wanted.id)

    def _open(self, identifier: str) -> Proposal:
        wanted = self.proposal(identifier)
        if wanted.outcome:
            raise EditRefused(f"{wanted.id}: it was {wanted.outcome} already")
        return wanted

    # the working copies -----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _held(self, wait_s: float = WRITE_WAITS_S) -> Iterator[None]:
        """The lock under which this agent's pages change."""
        make_folder(self.folder)
        with locked(self.folder / ".lock", wait_s=wait_s):
            yield

    def _settled(self, name: str) -> str:
        """What a page says, once its working copy and the journal agree. The caller holds the lock."""
        path = self.folder / name
        for aside in working.displaced(path):
            self._take_displaced(name, aside)
        page, copy = self.known().pages.get(name), working.read(path)
        if copy is not None and self._is_edit(page, copy):
            copy = working.quiet(path)  # not half of it
        if copy is None:
            return self._restored(name, page)
        if copy.text is None:
            return self._unfit(name, page, copy)
        if self._is_edit(page, copy):
            self._note(events.written(self.agent, name, copy.text, by="hand", was=self._sha(name)))
        elif page is None or events.sha(copy.text) != page.now.sha:
            return self._restored(name, page)
        if not working.is_noted(copy):
            working.note(copy)
        return copy.text

    def _is_edit(self, page: Page | None, copy: working.Copy) -> bool:
        """Whether a file holds what somebody wrote there, and not a state that the journal has left behind: we were
        killed before we wrote the next, or a merge brought it.
        """
        sha = events.sha(copy.text) if copy.text is not None else ""
        if not sha or page is None or sha == page.now.sha:
            return bool(sha) and page is None
        is_noted = working.is_noted(copy)
        if is_noted is None:
            is_noted = copy.is_before(page.now.at) and sha in {version.sha for version in page.versions}
        return not is_noted

    def _restored(self, name: str, page: Page | None) -> str:
        """Put what the journal says into the working copy; what is no file of ours is left as it is."""
        path, said = self.folder / name, page.text if page else ""
        copy = working.read(path)
        if copy is not None and copy.is_foreign:
            self._alert(f"{name} {copy.why}; what the journal says counts")
        elif said:
            working.put(path, said)
        elif page is not None:
            working.remove(path)
        return said

    def _unfit(self, name: str, page: Page | None, copy: working.Copy) -> str:
        """A file without a text: an editor may be at it; after that the page is put back."""
        said = page.text if page else ""
        if copy.is_fresh and not copy.is_foreign:
            return said
        if copy.why == working.EMPTY:
            if said:
                self._alert(f"{name} was empty; `perdure floor remove {name}` takes a page away")
            return self._restored(name, page)
        if not copy.is_foreign:
            self._set_aside(name, copy)
            if not said:
                working.remove(self.folder / name)
        return self._restored(name, page)

    def _set_aside(self, name: str, copy: working.Copy) -> None:
        """Keep what is no text that a page can have, and say so."""
        aside = working.set_aside(copy)
        self._alert(f"{name} {copy.why}: it does not count, and is kept as {aside.name}")

    def _take_displaced(self, name: str, aside: working.Copy) -> None:
        """Keep in the history what somebody wrote into a file at the moment in which we replaced it."""
        page = self.known().pages.get(name)
        said = aside.text
        if said is not None and not self._has_said(name, events.sha(said)):
            now = page.text if page else ""
            self._note(events.written(self.agent, name, said, by="hand", was=self._sha(name), why="written meanwhile"))
            if page and now:  # what replaced it came later, and counts
                again = events.written(
                    self.agent, name, now, by="rules", was="", why="the later edit counts", cursor=page.cursor
                )
                self._note(again)
        if aside.is_just_displaced:
            return
        if aside.text is None and aside.why != working.EMPTY and not aside.is_foreign:
            self._set_aside(name, aside)
        aside.path.unlink(missing_ok=True)

    def _has_said(self, name: str, sha: str) -> bool:
        """Whether a page ever had a text of this name."""
        page = self.known().pages.get(name)
        if page is None or sha in {version.sha for version in page.versions}:
            return page is not None
        return len(page.versions) == state.KEPT_VERSIONS and sha in {v.sha for v in self._every_version(name)}

    def _every_version(self, name: str) -> list[Version]:
        return state.versions(self.journal.read(type_=events.TYPE), self.agent, name)

    def _written(self, name: str, data: dict[str, Any]) -> Version:
        self._note(data)
        page = self.known().pages[name]
        self._restored(name, page)
        for aside in working.displaced(self.folder / name):
            self._take_displaced(name, aside)
        return page.now

    def _alert(self, said: str) -> None:
        if said not in self.alerts:
            self.alerts.append(said)

    def _sha(self, name: str) -> str:
        page = self.known().pages.get(name)
        return page.now.sha if page else ""

    def check_writable(self) -> None:
        """Raise ReadOnlyHome where nothing may be changed."""
        if not self.writable:
            raise ReadOnlyHome(str(self.folder))

    def _note(self, data: dict[str, Any]) -> None:
        self.check_writable()
        self.journal.append(events.TYPE, data, now=self.now())
