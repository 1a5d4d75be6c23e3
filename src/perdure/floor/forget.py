"""What `forget` does to a floor: what came from something forgotten goes from every text in which it stood.

A line that was added to a page (its event says from where) is taken out of all later texts of that page, a text that as
a whole rests on something forgotten is emptied, and a card or a proposal likewise. Working copies go first, then the
journal, so that no copy brings back what the journal has lost; done twice it changes nothing. Of a line that is gone a
keyed hash stays, by which another home's texts are cleaned when they are merged. Who writes the same words again
later, means them: those stay.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from perdure.archive import tombstones as tombs
from perdure.archive.journal import Event, Journal
from perdure.capture import files
from perdure.floor import events, notes, tree, working
from perdure.forget import Gone, key_of
from perdure.text import normalised

MIN_CHARS = 16  # a shorter line is common property: that somebody said it too tells nothing
_LINES = "floor"  # in a tombstone: hashes of lines that were forgotten by their words

_WITH_ID = ("card", "propose")

Place = Callable[[str], Path]  # of an agent's working copies


def apply(journal: Journal, gone: Gone, place: Place, *, only: str = "") -> None:
    """Take what is gone out of every floor of a user: the working copies, then the journal. only: of this agent."""
    if not gone.tombstones.keys:  # nothing was ever forgotten
        return
    found = [event for event in journal.read(type_=events.TYPE) if only in ("", event.data["agent"])]
    if not found:
        return
    plan = _Plan(gone, _tombstones(journal))
    plan.read(found)
    with contextlib.ExitStack() as held:
        for agent in sorted({page.agent for page in plan.pages.values()}):
            if place(agent).is_dir():
                held.enter_context(files.locked(place(agent) / ".lock"))
        for page in plan.pages.values():
            _clean_copies(place(page.agent) / page.name, page)
        changed = plan.changed | _files(found, gone.memories)
        if changed:
            journal.rewrite(events.TYPE, lambda event: changed.get(event.key))


def record_line(journal: Journal, agent: str, name: str, words: str, *, now: datetime) -> None:
    """Write the tombstone of a line: from here on it is gone from that page, also in homes that hear of it."""
    line = notes.read(words).name
    digest = _digest(key_of(journal, now), agent, name, line)
    journal.append(tombs.TYPE, {"turns": [], _LINES: [digest]}, now=now)


def record_asked(journal: Journal, agent: str, identifier: str, *, now: datetime) -> None:
    """Write the tombstone of a card or a proposal, with all that it ever said."""
    journal.append(tombs.TYPE, {"turns": [], _LINES: [_digest(key_of(journal, now), agent, "", identifier)]}, now=now)


def ids(journal: Journal, agent: str) -> set[str]:
    """The cards and proposals of an agent of which any words are left, those that were taken away too."""
    found = (event.data for event in journal.read(type_=events.TYPE))
    return {data["id"] for data in found if data["op"] in _WITH_ID and data["agent"] == agent and data["text"]}


def holds(journal: Journal, agent: str, name: str, words: str) -> bool:
    """Whether some text of a page, or one that was proposed for it, has a line of these words."""
    line = notes.read(words).name
    return any(
        line in map(_name, event.data["text"].splitlines())
        for event in journal.read(type_=events.TYPE)
        if event.data["op"] in ("write", "propose") and (event.data["agent"], event.data["name"]) == (agent, name)
    )


def repeating(pages: Iterable[tuple[str, str]], said: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(page, line) of every line that repeats what somebody said, word for word. pages: (name, text).

    >>> list(repeating([("core.md", "# House\\n- The key is under the mat")], ["the key is under the mat!"]))
    [('core.md', '- The key is under the mat')]
    """
    whole = [f" {_bare(one)} " for one in said]
    for name, text in pages:
        for raw in text.splitlines():
            line = f" {_bare(notes.read(raw).words)} "
            if any(min(line, one, key=len) in max(line, one, key=len) for one in whole if _is_long(line, one)):
                yield name, raw


def _is_long(*found: str) -> bool:
    """Whether none of some texts is too short to tell anything."""
    return min(map(len, found)) >= MIN_CHARS


def _bare(said: str) -> str:
    """Words without what stands between them."""
    return " ".join("".join(c if c.isalnum() else " " for c in normalised(said)).split())


# ------------------------------------------------------------------------------------------------- what goes


@dataclass
class _Page:
    """One page while its events are read in their order."""

    agent: str
    name: str
    lost: dict[str, str] = field(default_factory=dict)  # line -> until when it is gone
    by_words: dict[str, str] = field(default_factory=dict)  # the same of lines that went by their words, "" for others
    spared: set[str] = field(default_factory=set)  # lines that somebody wrote again
    tainted: set[str] = field(default_factory=set)  # lines of texts that are gone as a whole
    clean: set[str] = field(default_factory=set)  # lines that stood there for other reasons
    texts: dict[str, str] = field(default_factory=dict)  # by name, as they were
    shas: dict[str, str] = field(default_factory=dict)  # name of a text -> of what is left of it
    emptied: set[str] = field(default_factory=set)  # names of the texts that are gone as a whole
    marks: frozenset[str] = frozenset()  # memories that are gone
    digests: Callable[[str], Iterable[str]] = lambda _: ()  # by which a line would be known
    hashes: Mapping[str, str] = field(default_factory=dict)  # of the lines that went by their words -> until when
    before: str = ""  # the last text as it was
    said: str = ""  # what counts now

    def strip(self, text: str) -> str:
        """What is left of a text; "" where nothing is."""
        left = "".join(raw for raw in text.splitlines(keepends=True) if not self._is_gone(raw))
        return left if left.strip() else ""

    def _is_gone(self, raw: str) -> bool:
        line = notes.read(raw)
        if line.memory in self.marks:
            return True
        is_lost = bool(self.lost_at(line.name)) and line.name not in self.spared
        return is_lost or (line.name in self.tainted and line.name not in self.clean)

    def misses(self, text: str) -> bool:
        """Whether lines went from a text only because one that rested on something forgotten had them too."""
        return any(name in self.tainted and name not in self.clean for name in _names(text))

    def lost_at(self, name: str) -> str:
        """Until when a line is gone; "" for one that is not."""
        return max(self.lost.get(name, ""), self.worded_at(name))

    def worded_at(self, name: str) -> str:
        """The same of a line that went by its words, whoever had added it."""
        if name and self.hashes and name not in self.by_words:
            found = (self.hashes[digest] for digest in self.digests(name) if digest in self.hashes)
            self.by_words[name] = max(found, default="")
        return self.by_words.get(name, "")

    def anew(self, data: Mapping[str, Any]) -> set[str]:
        """The lines of a text that its writer put there; none where we cannot tell what was there before."""
        names = _names(data["text"])
        if not data["was"]:
            return names.difference(*map(_names, self.texts.values()))
        return names - _names(self.texts[data["was"]]) if data["was"] in self.texts else set()


class _Plan:
    """What is to become of every event. gone: what was forgotten. hashes: lines, each with the time of forgetting."""

    def __init__(self, gone: Gone, tombstones: Sequence[Event]) -> None:
        """Nothing is read yet."""
        self._gone = gone
        self._at = max((event.at for event in tombstones), default="")
        self._hashes: dict[str, str] = {}
        for event in tombstones:
            self._hashes |= dict.fromkeys(event.data.get(_LINES, ()), event.at)
        self._asked: set[tuple[str, str]] = set()  # cards and proposals that go with all that they say
        self.pages: dict[tuple[str, str], _Page] = {}
        self.changed: dict[str, dict[str, Any]] = {}  # by the key of the event

    def read(self, found: Sequence[Event]) -> None:
        """Take all events, in their order."""
        for event in found:
            self._hashes |= dict(event.data.get("gone", ()))
        for event in found:
            self._find(event)
        for event in found:
            act = {"write": self._write, "propose": self._propose, "card": self._card}.get(event.data["op"])
            data = act(event) if act else None
            if data is not None and data != event.data:
                self.changed[event.key] = data

    def _page(self, data: dict[str, Any]) -> _Page:
        agent, name = data["agent"], data["name"]
        if (agent, name) not in self.pages:
            keys = self._gone.tombstones.keys
            self.pages[agent, name] = _Page(
                agent, name, marks=self._gone.memories, hashes=self._hashes,
                digests=lambda line: [_digest(key, agent, name, line) for key in keys],
            )  # fmt: skip
        return self.pages[agent, name]

    def _find(self, event: Event) -> None:
        """Note the lines and cards that an event says came from something forgotten."""
        data = event.data
        if data["op"] in _WITH_ID and ((data["op"] == "card" and self._rests_on_it(data)) or self._is_named(data)):
            self._asked.add((data["agent"], data["id"]))
        if data["op"] == "write":
            lost = [piece for piece in events.pieces_of(data) if self._is_gone(piece)]
            self._page(data).lost |= dict.fromkeys(_names_of(lost), self._at)

    def _is_gone(self, piece: events.Piece) -> bool:
        return piece.memory in self._gone.memories or any(map(self._gone.overlaps, piece.sources))

    def _is_named(self, data: dict[str, Any]) -> bool:
        """Whether a card or a proposal was forgotten by its id."""
        keys = self._gone.tombstones.keys if self._hashes else ()
        return any(_digest(key, data["agent"], "", data["id"]) in self._hashes for key in keys)

    def _rests_on_it(self, data: dict[str, Any]) -> bool:
        return any(map(self._gone.overlaps, events.sources(data)))

    def _write(self, event: Event) -> dict[str, Any]:
        data, page = event.data, self._page(event.data)
        if data.get("forgotten") or self._rests_on_it(data) or events.sha(data["text"]) in page.emptied:
            return self._emptied(page, data)
        old = data["text"]
        pieces = events.pieces_of(data)
        live = [piece for piece in pieces if not self._is_gone(piece)]
        gone = [piece for piece in pieces if piece not in live]
        anew, meant = page.anew(data), _names_of(live)
        page.clean |= anew
        page.spared |= {
            name
            for name in anew - _names_of(gone)
            if (at := page.lost_at(name)) and (event.at > at or (name in meant and not page.worded_at(name)))
        }
        new = page.strip(old)
        kept = [piece._replace(line=left) for piece in live if (left := page.strip(piece.line))]
        self._pass(page, old, new)
        found = {**data, "text": new, "was": page.shas.get(data["was"], data["was"])}
        if (page.agent, data.get("approves", "")) in self._asked:
            found.pop("why", None)  # the proposal's
        if new != old or kept != pieces:
            found.pop("why", None)
            found |= {"gone": self._left_of(page, data, gone)}
            found |= {"pieces": [[p.line, p.memory, events.spans(p.sources)] for p in kept]}
            found = {name: value for name, value in found.items() if value or name not in ("gone", "pieces")}
        if page.misses(old):
            found["cursor"] = None  # what was not forgotten is missing too: the job reads all of it again
        return found

    def _emptied(self, page: _Page, data: dict[str, Any]) -> dict[str, Any]:
        """What is left of a text that as a whole rests on something forgotten: that it was there."""
        old = data["text"]
        if old:
            page.tainted |= _names(old) - page.clean
            page.emptied.add(events.sha(old))
            page.texts[events.sha(old)] = page.before = old
            page.shas[events.sha(old)] = events.sha(page.said) if page.said else ""
        was = page.shas.get(data["was"], data["was"])
        return {**{n: v for n, v in data.items() if n != "why"}, "text": "", "was": was, "forgotten": True}

    def _pass(self, page: _Page, old: str, new: str) -> None:
        page.before = old
        page.said = new
        if old:
            page.texts[events.sha(old)] = old
            page.shas[events.sha(old)] = events.sha(new) if new else ""

    def _left_of(self, page: _Page, data: dict[str, Any], lost: Sequence[events.Piece]) -> list[list[str]]:
        """The hashes by which lines that are gone are known in what other homes bring."""
        key = self._gone.tombstones.keys[0]  # there is one where something was forgotten
        found = [[_digest(key, page.agent, page.name, name), self._at] for name in sorted(_names_of(lost))]
        return [*data.get("gone", ()), *found]

    def _propose(self, event: Event) -> dict[str, Any]:
        data, page = event.data, self._page(event.data)
        is_gone = self._rests_on_it(data) or (data["agent"], data["id"]) in self._asked
        text = "" if is_gone else page.strip(data["text"])
        found = {**data, "text": text, "was": page.shas.get(data["was"], data["was"])}
        return found if text == data["text"] else {**found, "why": "", "forgotten": True}

    def _card(self, event: Event) -> dict[str, Any]:
        is_gone = (event.data["agent"], event.data["id"]) in self._asked and event.data["text"]
        return {**event.data, "text": "", "forgotten": True} if is_gone else event.data


def _files(found: Sequence[Event], gone: Collection[str]) -> dict[str, dict[str, Any]]:
    """What is to be left of events about the memory tool's files, by their keys: where the memory of any state of a
    file is forgotten, all its states go, with its name. gone: ids of memories.
    """
    origins: dict[str, str] = {}
    about = [event for event in found if event.data["op"] == "file"]
    for event in about:
        was = event.data.get("was", "")
        origins[event.key] = origins.get(was, was) or event.key
    lost = {origins[event.key] for event in about if events.memory_of(event.key, event.at) in gone}
    return {
        event.key: events.unfiled(event.data["agent"], was=event.data.get("was", ""))
        for event in about
        if origins[event.key] in lost
    }


def with_states(journal: Journal, ids: Iterable[str]) -> set[str]:
    """These ids, and for what a file says those of all that it said, or another of the same path before and after it.

    By the file's own events: a memory that was retired is no longer linked to the next.
    """
    found = set(ids)
    if not found:
        return found
    for named in _states(event for event in journal.read(type_=events.TYPE) if event.data["op"] == "file"):
        if named & found:
            found |= named
    return found


def _states(about: Iterable[Event]) -> Iterable[set[str]]:
    """The ids of the memories of each file. about: events about files, in their order."""
    of_event: dict[str, set[str]] = {}
    at: dict[str, dict[str, set[str]]] = {}  # agent -> path -> ids; a path outlives its file
    for event in about:
        data = event.data
        files = at.setdefault(data["agent"], {})
        if "to" in data:
            tree.move(files, set(), data["path"], data["to"])
        elif data.get("text") is not None:
            ids = of_event.get(data.get("was", ""), files.get(data["path"], set()))
            ids.add(events.memory_of(event.key, event.at))
            of_event[event.key] = files[data["path"]] = ids
    return {id(ids): ids for ids in of_event.values()}.values()


def _tombstones(journal: Journal) -> list[Event]:
    return journal.read(type_=tombs.TYPE)


def _name(raw: str) -> str:
    return notes.read(raw).name


def _names(text: str) -> set[str]:
    return set(map(_name, text.splitlines())) - {""}


def _names_of(pieces: Iterable[events.Piece]) -> set[str]:
    return {name for piece in pieces for name in _names(piece.line)}


def _digest(key: bytes, agent: str, name: str, line: str) -> str:
    return tombs.keyed_line(key, f"floor\0{agent}\0{name}\0{line}".encode("utf-8", "surrogatepass"))


# ------------------------------------------------------------------------------------------------- the files


def _clean_copies(path: Path, page: _Page) -> None:
    """Take what is gone out of a working copy, and of what lies beside it."""
    beside = [
        *path.parent.glob(f".{path.name}.*.displaced"),
        *path.parent.glob(f"{path.name}.refused-*"),
    ]
    for place in (path, *beside):
        copy = working.read(place)
        if copy is not None:
            _clean(copy, page, is_page=place == path)


def _clean(copy: working.Copy, page: _Page, *, is_page: bool) -> None:
    if copy.is_foreign:
        return
    old = copy.text
    said = copy.path.read_bytes().decode("utf-8", "replace") if old is None else old
    left = (page.said if is_page else "") if events.sha(said) in page.emptied else page.strip(said)
    if left == said:
        return
    if left and old is not None:
        is_noted = working.is_noted(copy) if is_page else False
        is_known = events.sha(said) in page.shas if is_noted is None else is_noted
        working.rewrite(copy, left, is_known=is_known)
    else:
        copy.path.unlink(missing_ok=True)
