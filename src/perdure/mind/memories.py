"""One owner's memories: made, changed and looked up. Every change is an event in the journal before it is a row.

Reading brings the rows up to the journal first. A memory that is said again is reinforced and not doubled; one with
other words on the same path takes the place of what was stated before it (`memories.replay`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from perdure import text as words
from perdure.access.redact import mask
from perdure.access.scan import Finding
from perdure.archive.journal import Event, Journal
from perdure.archive.tombstones import Tombstones
from perdure.errors import MemoryMissing, UsageError
from perdure.identity import memory_id
from perdure.index import browse
from perdure.index import memories as rows
from perdure.index.browse import Order, Stretch, Wanted
from perdure.index.store import Connection
from perdure.memories import events, paths, replay
from perdure.memories.events import Batch, Op
from perdure.memories.replay import Chain
from perdure.types import MEMORY_KINDS, TRUSTS, Memory, MemoryKind, Span, Trust

if TYPE_CHECKING:  # the rules of what a statement claims are loaded by those who keep one, not by every session
    from perdure.memories.values import Claim

MAX_TEXT_BYTES = 8192  # of a memory: it is a statement, not a document (row M13)
_PREFIX = "mem-"
_TO_THE_WORD = (events.FILE, "edited")  # a file is no single statement, and who corrects means the words they changed
_BY_OWNER = ("stated", "remembered", "edited")  # ways in which an owner's own words become a memory


@dataclass(frozen=True)
class Draft:
    """A memory about to be made. What is left out follows from the words, the clock and the owner's settings."""

    text: str
    kind: MemoryKind = "fact"
    path: str = ""  # "" lets the rules choose it from what the words claim
    project: str | None = None
    stated_at: datetime | None = None
    trust: Trust = "owner"
    how: str = "remembered"
    sources: tuple[Span, ...] = ()
    made_from: tuple[str, ...] = ()
    entities: tuple[str, ...] | None = None
    runtime: str = ""
    conversation: str = ""
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    pinned: bool = False
    confidence: float = 1.0
    agent: str = ""
    memory_id: str = ""  # "" for a random one


@dataclass(frozen=True)
class Kept:
    """What became of a draft."""

    memory: Memory
    is_new: bool  # False: it was there already and was reinforced


@dataclass
class Memories:
    """The memories of one owner. index: the one in use, brought up to date by `follow`."""

    user: str
    agent: str
    journal: Journal
    index: Callable[[], Connection]
    follow: Callable[[], None]
    forgotten: Callable[[], Tombstones | None]
    now: Callable[[], datetime]
    suspicious: Callable[[str], Sequence[Finding]]  # what the scanner finds in a text that its owner has not allowed

    # reading ----------------------------------------------------------------------------------------------

    def get(self, identifier: str) -> Memory:
        """The memory of this id, or of the one id that begins so. Raises MemoryMissing."""
        found = rows.every(self.index(), self.user, "memory_id >= ? AND memory_id < ?", identifier, identifier + "~")
        exact = [memory for memory in found if memory.memory_id == identifier]
        if len(exact or found) != 1 or not identifier.startswith(_PREFIX):
            more = f" ({len(found)} begin so)" if found else ""
            raise MemoryMissing(f"no memory {identifier!r}{more}")
        return (exact or found)[0]

    def listed(
        self,
        *,
        prefix: str = "",
        kind: str = "",
        project: str | None = None,
        every: bool = False,
        as_of: datetime | None = None,
        recorded_as_of: datetime | None = None,
    ) -> list[Memory]:
        """What is believed, newest first; with `every`, also what was superseded or retired.

        as_of: by what had been stated until then. recorded_as_of: by what Perdure had noted until then. prefix: of the
        path, by whole parts. project: its path, "" for what has none.
        """
        wanted = paths.folded(paths.checked(prefix.rstrip("/"))) if prefix else ""
        is_then = as_of is not None or recorded_as_of is not None
        found = self._as_of(as_of, recorded_as_of) if is_then else self._now(wanted, kind, every=every)
        return [
            memory
            for memory in found
            if (every or memory.is_current)
            and (not wanted or f"{paths.folded(memory.path)}/".startswith(f"{wanted}/"))
            and (not kind or memory.kind == kind)
            and (project is None or (memory.project or "") == project)
        ]

    def _now(self, prefix: str, kind: str, *, every: bool) -> list[Memory]:
        """Every memory below a folded path and of a kind, or those of them that are believed; newest first."""
        where = "1" if every else "superseded_by IS NULL AND NOT retired"
        values = [kind] if kind else []
        where += " AND kind = ?" if kind else ""
        if prefix:
            where += r" AND (place = ? OR place LIKE ? ESCAPE '\')"
            values += [prefix, f"{_like(prefix)}/%"]
        return rows.every(self.index(), self.user, where, *values)

    def page(self, wanted: Wanted, stretch: Stretch, *, order: Order) -> list[Memory]:
        """One stretch of the list of those wanted, however long that is."""
        return browse.page(self.index(), self.user, wanted, order=order, stretch=stretch)

    def count(self, wanted: Wanted) -> int:
        """How many are wanted."""
        return browse.count(self.index(), self.user, wanted)

    def subjects(self, wanted: Wanted) -> dict[str, int]:
        """Part of a path -> how many lie at it or below: the parts that follow the prefix, or the first ones."""
        return browse.subjects(self.index(), self.user, wanted)

    def projects(self) -> list[str]:
        """The projects that they belong to."""
        return browse.projects(self.index(), self.user)

    def turns_of(self, memory: Memory) -> list[tuple[Span, str | None]]:
        """Where this one memory was said: (where, turn id), None for one that cannot be found any more."""
        return rows.turns_of(self.index(), memory)

    def uses(self) -> list[rows.Use]:
        """What came of showing each memory, superseded and retired ones among them."""
        return rows.uses(self.index(), self.user)

    def of_ids(self, ids: Sequence[str]) -> list[Memory]:
        """The memories of these ids that there are, in their order."""
        found = {memory.memory_id: memory for memory in rows.of_ids(self.index(), self.user, ids)}
        return [found[name] for name in ids if name in found]

    def _as_of(self, as_of: datetime | None, recorded_as_of: datetime | None) -> list[Memory]:
        """Every memory as it stood then, newest first."""
        if recorded_as_of is None:
            known = rows.every(self.index(), self.user)
        else:
            noted = [rows.noted(event) for event in self.journal.read() if event.type in rows.TYPES]
            known = list(replay.replayed(n for n in noted if n.at <= recorded_as_of).memories.values())
        then = [memory for memory in known if as_of is None or memory.stated_at <= as_of]
        state = replay.State({memory.memory_id: memory for memory in then})
        replay.settle(state)
        return sorted(state.memories.values(), key=lambda m: (-m.stated_at.timestamp(), m.memory_id))

    def history(self, identifier: str) -> list[Memory]:
        """How a belief came to be: every memory of its chain, oldest first. identifier: an id or a path."""
        if identifier.startswith(_PREFIX):
            return rows.of_chain(self.index(), self.user, replay.chain_of(self.get(identifier)))
        path = paths.folded(paths.checked(identifier))
        found = rows.every(self.index(), self.user, "place = ?", path)
        if not found:
            raise MemoryMissing(f"no memory has the path {identifier!r}")
        return sorted(found, key=lambda m: (m.agent, m.project or "", m.stated_at, m.order))

    def sources(self, identifier: str) -> list[tuple[Span, str | None]]:
        """The turns behind a memory and behind those that it was made from: (where, turn id), None for one that cannot
        be found any more.
        """
        return [
            found for memory in self._lineage(self.get(identifier)) for found in rows.turns_of(self.index(), memory)
        ]

    def _lineage(self, memory: Memory) -> Iterator[Memory]:
        seen, todo = set(), [memory]
        while todo:
            one = todo.pop(0)
            if one.memory_id not in seen:
                seen.add(one.memory_id)
                yield one
                todo += rows.of_ids(self.index(), self.user, one.made_from)

    # writing ----------------------------------------------------------------------------------------------

    def keep(self, draft: Draft, *, by: str = "owner") -> Kept:
        """Keep one memory, durably; of one that says what is current already, note that it was said again.

        Raises UsageError for words, a path or a time that cannot be kept, for what was forgotten since, and for a
        `refusal`.
        """
        if why := self.refusal(draft):
            raise UsageError(f"this is not kept: it {why}")
        kept = self.keep_all([draft], by=by)
        if not kept:
            raise UsageError("this was forgotten after the time at which it was stated: state it anew to keep it again")
        return kept[0]

    def keep_all(self, drafts: Sequence[Draft], *, by: str, batch: Batch | None = None) -> list[Kept]:
        """Keep several at once, in one event; what was forgotten, is there already under its id, or would meet a
        `refusal`, is left out.
        """
        kept: list[Kept] = []
        ops: list[Op] = []
        for draft in drafts:
            item, op = self._decided(draft, [one.memory for one in kept])
            if op is not None:
                ops.append(op)
            if item is not None:
                kept.append(item)
        if ops or batch is not None:
            self.note(ops, by=by, batch=batch)
        return [Kept(self.get(one.memory.memory_id), one.is_new) for one in kept]

    def said_already(self, draft: Draft) -> Memory | None:
        """What is believed already and says the same. Raises UsageError for what cannot be kept, or is not."""
        if why := self.refusal(draft):
            raise UsageError(why)
        return self._said_already(self._made(draft), [])

    def note(self, ops: Sequence[Op], *, by: str, batch: Batch | None = None, **more: Any) -> Event:
        """Write operations as one event, and apply it. more: `why`, `undoes`, `proposals` of memories.events.data."""
        event = self.journal.append(events.TYPE, events.data(ops, by=by, batch=batch, **more), now=self.now())
        self.follow()
        return event

    def _decided(self, draft: Draft, pending: Sequence[Memory]) -> tuple[Kept | None, Op | None]:
        """What is to be done about a draft. pending: memories that the same event makes."""
        memory = self._made(draft)
        if self._was_forgotten(memory) or self.refusal(draft):
            return None, None
        if rows.of_ids(self.index(), self.user, [memory.memory_id]):
            return Kept(memory, False), None
        same = self._said_already(memory, pending)
        if same is None:
            return Kept(memory, True), events.create(memory)
        if memory.sources and set(memory.sources) <= set(same.sources):
            return Kept(same, False), None
        return Kept(same, False), events.reinforce(same.memory_id, stated_at=memory.stated_at, sources=memory.sources)

    def _made(self, draft: Draft) -> Memory:
        """A draft with everything that follows from it."""
        said, now = mask(words.printable(draft.text).strip()), self.now()
        _check(draft, said)
        stated_at = min(draft.stated_at or now, now)
        agent = draft.agent or self.agent
        path = paths.checked(draft.path) if draft.path else self._path_for(said, draft, agent)
        return Memory(
            memory_id=draft.memory_id or self._new_id(now), text=said, kind=draft.kind, path=path, agent=agent,
            project=draft.project, stated_at=stated_at, recorded_at=now, trust=draft.trust, how=draft.how,
            sources=draft.sources, made_from=draft.made_from,
            entities=words.entities(said) if draft.entities is None else _named(draft.entities),
            runtime=draft.runtime, conversation=draft.conversation, valid_from=draft.valid_from,
            valid_until=draft.valid_until, pinned=draft.pinned, confidence=draft.confidence,
        )  # fmt: skip

    def refusal(self, draft: Draft) -> str:
        """Why a draft is not kept although it could be: nobody vouches for it, and it reads like an order to a model.

        The owner's own words are kept; recall leaves them out until they are allowed.
        """
        if draft.trust == "owner" and draft.how in _BY_OWNER:
            return ""
        found = self.suspicious(mask(words.printable(draft.text).strip()))[:1]
        return "".join(f"reads like an order to a model ({one.rule}: {one.excerpt!r})" for one in found)

    def _new_id(self, now: datetime) -> str:
        """An id that no memory of the owner has."""
        while True:
            made = memory_id(now, secrets.token_bytes(3))
            if not rows.of_ids(self.index(), self.user, [made]):
                return made

    def _path_for(self, said: str, draft: Draft, agent: str) -> str:
        """The path that the words call for: that of a memory about the same thing where there is one."""
        from perdure.memories import claims

        path, claim = claims.path_for(said, draft.kind), claims.claim(said)
        if claim is None or self._at(path, draft.project, agent):
            return path
        alike = (
            memory.path
            for memory in self._about(claim, draft.project, agent)
            if (known := claims.claim(memory.text)) is not None and claims.same_subject(claim, known)
        )
        return next(alike, path)

    def _at(self, path: str, project: str | None, agent: str) -> list[Memory]:
        return rows.of_chain(self.index(), self.user, Chain(agent, project or "", paths.folded(path)))

    def _about(self, claim: Claim, project: str | None, agent: str) -> list[Memory]:
        """Current memories of the same attribute, of this project."""
        where = r"""superseded_by IS NULL AND NOT retired AND agent = ? AND project = ?
            AND (place LIKE ? ESCAPE '\' OR ? <> '' AND instr(text, ?))"""
        ending, old = f"%/{_like(paths.folded(claim.attribute))}", claim.old_value
        return rows.every(self.index(), self.user, where, agent, project or "", ending, old, old)

    def _said_already(self, memory: Memory, pending: Sequence[Memory]) -> Memory | None:
        """The current memory that says the same, if there is one on its path."""
        from perdure.memories import claims

        chain = replay.chain_of(memory)
        here = [*rows.of_chain(self.index(), self.user, chain), *(m for m in pending if replay.chain_of(m) == chain)]
        current = replay.current_at(here, max(memory.stated_at, *(m.stated_at for m in here))) if here else None
        if current is None:
            return None
        if memory.how in _TO_THE_WORD:
            return current if memory.text == current.text else None
        return current if claims.says_same(memory.text, current.text) else None

    def _was_forgotten(self, memory: Memory) -> bool:
        tombstones = self.forgotten()
        return tombstones is not None and tombstones.was_memory(memory.text, memory.stated_at)

    def edit(self, identifier: str, said: str, **fields: Any) -> Memory:
        """Correct the words of a memory: the owner's new ones take its place, the old ones stay in its history.

        fields: of it, changed first, as `change` does; where anything cannot be, nothing is.
        """
        old = self.get(identifier)
        self._made(_edited(replace(old, **fields), said))  # raises what keeping it would, while nothing is changed
        if fields:
            (old,) = self.change([old.memory_id], **fields)
        return self.keep(_edited(old, said)).memory

    def change(self, ids: Collection[str], *, by: str = "owner", why: str = "", **fields: Any) -> list[Memory]:
        """Set fields of memories.events.CHANGEABLE: pinned, retired, path, kind, validity, entities, project.

        Returns each memory once. Raises UsageError for what cannot be, and then changes none of them.
        """
        if "path" in fields:
            fields["path"] = paths.checked(fields["path"])
        paths.checked_project(fields.get("project"))
        if fields.get("kind", "fact") not in MEMORY_KINDS:
            raise UsageError(f"kind {fields['kind']!r} (known: {', '.join(MEMORY_KINDS)})")
        if "entities" in fields:
            fields["entities"] = _named(fields["entities"])
        named = {memory.memory_id: memory for memory in map(self.get, ids)}
        if fields.keys() & {"valid_from", "valid_until"}:
            for memory in named.values():
                _check_validity(
                    fields.get("valid_from", memory.valid_from), fields.get("valid_until", memory.valid_until)
                )
        self.note([events.change(name, **fields) for name in named], by=by, why=why)
        return [self.get(name) for name in named]

    def move(self, old: str, new: str) -> int:
        """Rename a path and everything below it; returns how many memories moved."""
        before, after = paths.checked(old.rstrip("/")), paths.checked(new.rstrip("/"))
        moved = self.listed(prefix=before, every=True)
        self.note([events.change(m.memory_id, path=after + m.path[len(before) :]) for m in moved], by="owner")
        return len(moved)


def _check(draft: Draft, said: str) -> None:
    """Raise UsageError for a draft that cannot be kept."""
    if not said:
        raise UsageError("a memory needs words")
    if len(said.encode("utf-8", "surrogatepass")) > MAX_TEXT_BYTES:
        raise UsageError(f"a memory has at most {MAX_TEXT_BYTES} bytes: keep the statement, not the document")
    if draft.kind not in MEMORY_KINDS:
        raise UsageError(f"kind {draft.kind!r} (known: {', '.join(MEMORY_KINDS)})")
    if draft.trust not in TRUSTS:
        raise UsageError(f"trust {draft.trust!r} (known: {', '.join(TRUSTS)})")
    _check_zones(draft.stated_at)
    _check_validity(draft.valid_from, draft.valid_until)


def _check_validity(since: datetime | None, until: datetime | None) -> None:
    """Raise UsageError for what would never hold."""
    _check_zones(since, until)
    if since and until and until <= since:
        raise UsageError(
            f"it would never hold: it is valid until {until:%Y-%m-%d %H:%M %Z}, and from {since:%Y-%m-%d %H:%M %Z}"
        )


def _check_zones(*times: datetime | None) -> None:
    if any(at is not None and at.tzinfo is None for at in times):
        raise UsageError("times need a time zone")


def _named(entities: Collection[str]) -> tuple[str, ...]:
    """The names that are some, each once."""
    return tuple(dict.fromkeys(name for raw in entities if (name := words.printable(raw).strip())))


def _edited(old: Memory, said: str) -> Draft:
    """A memory in its owner's new words."""
    return Draft(
        said, old.kind, old.path, old.project, how="edited", agent=old.agent, pinned=old.pinned,
        valid_from=old.valid_from, valid_until=old.valid_until,
    )  # fmt: skip


def _like(value: str) -> str:
    """A value as a pattern of LIKE that matches only itself."""
    return value.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
