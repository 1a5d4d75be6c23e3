"""Apply `forget` to the floors: everything that came from a forgotten source leaves every text that held it.

A line that was added to a page (its event names the source) is removed from all later texts of that page.
A text that rests as a whole on something forgotten is emptied; a card or a proposal likewise. Working
copies are cleaned first, then the journal, so that no copy brings back what the journal has lost. Doing
it twice changes nothing. A keyed hash of each removed line stays, by which another home's texts are
cleaned when they are merged. If a person writes the same words again later, they mean them: those stay.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from perdure import disk
from perdure.archive import tombstones
from perdure.archive.forget import ForgottenItems, get_key
from perdure.archive.journal import Journal, JournalEvent
from perdure.floor import notes, state, working_copy
from perdure.text import normalise, query_terms

MIN_REPEATED_CHARS = 16  # a shorter line is too common to prove that it repeats a message
_LINES_KEY = "floor"  # key in a tombstone: hashes of lines that were forgotten by their words

_OPS_WITH_ID = ("card", "propose")


class FloorLine(NamedTuple):
    """A line in some version of an agent's floor."""

    agent: str
    op: str  # of its event: write (of a page), card, propose, or file (of the memory tool)
    name: str  # of the page, the id of the card or proposal, or the path of the file
    line: str


FolderLookup = Callable[[str], Path]  # agent -> folder of its working copies


def apply_tombstones(
    journal: Journal, forgotten: ForgottenItems, folder_of: FolderLookup, *, only_agent: str = ""
) -> None:
    """Remove everything forgotten from every floor of a user: the working copies, then the journal.

    only_agent: the floor of this agent alone.
    """
    if not forgotten.tombstones.keys:  # nothing was ever forgotten
        return
    floor_events = [event for event in journal.read(type_=state.EVENT_TYPE) if only_agent in ("", event.data["agent"])]
    if not floor_events:
        return
    cleaning = _FloorCleaning(forgotten, journal.read(type_=tombstones.EVENT_TYPE))
    cleaning.read_events(floor_events)
    with contextlib.ExitStack() as locks:
        for agent in sorted({page.agent for page in cleaning.pages.values()}):
            if folder_of(agent).is_dir():
                locks.enter_context(disk.lock_file(folder_of(agent) / ".lock"))
        for page in cleaning.pages.values():
            _clean_page_files(folder_of(page.agent) / page.name, page)
        changes = cleaning.changes | _clean_file_events(floor_events, forgotten.memory_ids)
        if changes:
            journal.rewrite(state.EVENT_TYPE, lambda event: changes.get(event.key))


def record_line_tombstone(journal: Journal, agent: str, name: str, text: str, *, now: datetime) -> None:
    """Write the tombstone of a line.

    From now on the line is gone from that page, also in homes that merge this one.
    """
    line_key = notes.parse_line(text).key
    digest = _hash_line(get_key(journal, now), agent, name, line_key)
    journal.append(tombstones.EVENT_TYPE, {"turns": [], _LINES_KEY: [digest]}, now=now)


def record_item_tombstone(journal: Journal, agent: str, identifier: str, *, now: datetime) -> None:
    """Write the tombstone of a card or a proposal, with every text that it ever had."""
    journal.append(
        tombstones.EVENT_TYPE,
        {"turns": [], _LINES_KEY: [_hash_line(get_key(journal, now), agent, "", identifier)]},
        now=now,
    )


def record_tombstones(journal: Journal, lines: Iterable[FloorLine], *, now: datetime) -> None:
    """Write one tombstone of lines of pages, and of the cards and proposals of the other lines."""
    key, digests = get_key(journal, now), set()
    for agent, op, name, line in lines:
        line_key = notes.parse_line(line).key
        digests.add(_hash_line(key, agent, name, line_key) if op == "write" else _hash_line(key, agent, "", name))
    journal.append(tombstones.EVENT_TYPE, {"turns": [], _LINES_KEY: sorted(digests)}, now=now)


def list_item_ids(journal: Journal, agent: str) -> set[str]:
    """Return the ids of an agent's cards and proposals that still have a text somewhere, removed ones included."""
    event_data = (event.data for event in journal.read(type_=state.EVENT_TYPE))
    return {data["id"] for data in event_data if data["op"] in _OPS_WITH_ID and data["agent"] == agent and data["text"]}


def has_line(journal: Journal, agent: str, name: str, text: str) -> bool:
    """Return True if some text of a page, or a text proposed for it, has a line of these words."""
    line_key = notes.parse_line(text).key
    return any(
        line_key in map(_to_key, event.data["text"].splitlines())
        for event in journal.read(type_=state.EVENT_TYPE)
        if event.data["op"] in ("write", "propose") and (event.data["agent"], event.data["name"]) == (agent, name)
    )


def find_lines(journal: Journal, matches: Callable[[str], bool]) -> list[FloorLine]:
    """Return every matching line in any version of a user's floors, each once."""
    lines: dict[FloorLine, None] = {}
    for event in journal.read(type_=state.EVENT_TYPE):
        data = event.data
        name = {"write": "name", "propose": "id", "card": "id", "file": "path"}.get(data["op"], "")
        for line in (data.get("text") or "").splitlines() if name else ():
            if matches(line):
                lines[FloorLine(data["agent"], data["op"], data[name], line)] = None
    return list(lines)


def make_matcher(query: str, messages: Sequence[str] = ()) -> Callable[[str], bool]:
    """Return a test whether a line has all words of a query, or repeats a message word for word.

    >>> matches = make_matcher("shed key")
    >>> matches("- The key of the shed"), matches("a keyhole in the shed")
    (True, False)
    """
    terms = [_to_bare_words(term) for term in query_terms(query)]
    bare_messages = [bare for message in messages if len(bare := _to_bare_words(message)) >= MIN_REPEATED_CHARS]
    all_messages = "\n".join(bare_messages)

    def matches(line: str) -> bool:
        words = _to_bare_words(line)
        if terms and all(f" {term} " in f" {words} " or (term in words and not term.isascii()) for term in terms):
            return True
        is_part = len(words) >= MIN_REPEATED_CHARS and words in all_messages
        return is_part or any(message in words for message in bare_messages)

    return matches


def _to_bare_words(text: str) -> str:
    """Return the words of a text without punctuation."""
    return " ".join("".join(character if character.isalnum() else " " for character in normalise(text)).split())


# ------------------------------------------------------------------------------------------------- what goes


@dataclass
class _CleanedPage:
    """One page while its events are read in their order."""

    agent: str
    name: str
    lost_until: dict[str, str] = field(default_factory=dict)  # line -> time until which it is forgotten
    hashed_until: dict[str, str] = field(
        default_factory=dict
    )  # the same for lines forgotten by their words; "" for others
    rewritten_keys: set[str] = field(default_factory=set)  # lines that somebody wrote again
    tainted_keys: set[str] = field(default_factory=set)  # lines of texts that were forgotten as a whole
    clean_keys: set[str] = field(default_factory=set)  # lines that the page has for other reasons
    texts: dict[str, str] = field(default_factory=dict)  # hash -> original text
    hash_after: dict[str, str] = field(default_factory=dict)  # hash of a text -> hash of its cleaned text
    emptied_hashes: set[str] = field(default_factory=set)  # hashes of texts that were forgotten as a whole
    forgotten_memories: frozenset[str] = frozenset()  # ids of forgotten memories
    hash_line: Callable[[str], Iterable[str]] = lambda _: ()  # line -> its possible hashes
    until_by_hash: Mapping[str, str] = field(default_factory=dict)  # hash of a forgotten line -> until when
    last_text: str = ""  # the last original text
    current_text: str = ""  # the current text

    def strip_lines(self, text: str) -> str:
        """Return a text without the forgotten lines; "" if nothing remains."""
        remaining = "".join(raw_line for raw_line in text.splitlines(keepends=True) if not self._is_forgotten(raw_line))
        return remaining if remaining.strip() else ""

    def _is_forgotten(self, raw_line: str) -> bool:
        line = notes.parse_line(raw_line)
        if line.memory in self.forgotten_memories:
            return True
        is_lost = bool(self.find_lost_until(line.key)) and line.key not in self.rewritten_keys
        return is_lost or (line.key in self.tainted_keys and line.key not in self.clean_keys)

    def has_lost_clean_lines(self, text: str) -> bool:
        """Return True if a text loses lines only because a forgotten text had them too."""
        return any(key in self.tainted_keys and key not in self.clean_keys for key in _to_keys(text))

    def find_lost_until(self, key: str) -> str:
        """Return the time until which a line is forgotten; "" if it is not."""
        return max(self.lost_until.get(key, ""), self.find_hashed_until(key))

    def find_hashed_until(self, key: str) -> str:
        """Do the same for a line that was forgotten by its words, whoever had added it."""
        if key and self.until_by_hash and key not in self.hashed_until:
            instants = (self.until_by_hash[digest] for digest in self.hash_line(key) if digest in self.until_by_hash)
            self.hashed_until[key] = max(instants, default="")
        return self.hashed_until.get(key, "")

    def find_new_keys(self, data: Mapping[str, Any]) -> set[str]:
        """Return the lines that the writer of a text added; none if the text before it is unknown."""
        keys = _to_keys(data["text"])
        if not data["was"]:
            return keys.difference(*map(_to_keys, self.texts.values()))
        return keys - _to_keys(self.texts[data["was"]]) if data["was"] in self.texts else set()


class _FloorCleaning:
    """The new form of every event. Lines that were forgotten by hash carry the time of forgetting."""

    def __init__(self, forgotten: ForgottenItems, tombstones: Sequence[JournalEvent]) -> None:
        self._forgotten = forgotten
        self._forgotten_at = max((event.at for event in tombstones), default="")
        self._until_by_hash: dict[str, str] = {}
        for event in tombstones:
            self._until_by_hash |= dict.fromkeys(event.data.get(_LINES_KEY, ()), event.at)
        self._forgotten_items: set[tuple[str, str]] = (
            set()
        )  # cards and proposals that are forgotten with all their texts
        self.pages: dict[tuple[str, str], _CleanedPage] = {}
        self.changes: dict[str, dict[str, Any]] = {}  # event key -> new data

    def read_events(self, floor_events: Sequence[JournalEvent]) -> None:
        """Read all events, in their order."""
        for event in floor_events:
            self._until_by_hash |= dict(event.data.get("gone", ()))
        for event in floor_events:
            self._mark_forgotten(event)
        for event in floor_events:
            clean = {"write": self._clean_write, "propose": self._clean_proposal, "card": self._clean_card}.get(
                event.data["op"]
            )
            data = clean(event) if clean else None
            if data is not None and data != event.data:
                self.changes[event.key] = data

    def _get_page(self, data: dict[str, Any]) -> _CleanedPage:
        agent, name = data["agent"], data["name"]
        if (agent, name) not in self.pages:
            secret_keys = self._forgotten.tombstones.keys
            self.pages[agent, name] = _CleanedPage(
                agent,
                name,
                forgotten_memories=self._forgotten.memory_ids,
                until_by_hash=self._until_by_hash,
                hash_line=lambda line_key: [
                    _hash_line(secret_key, agent, name, line_key) for secret_key in secret_keys
                ],
            )
        return self.pages[agent, name]

    def _mark_forgotten(self, event: JournalEvent) -> None:
        """Mark the lines and cards of an event that came from something forgotten."""
        data = event.data
        if data["op"] in _OPS_WITH_ID and (
            (data["op"] == "card" and self._has_forgotten_source(data)) or self._has_forgotten_id(data)
        ):
            self._forgotten_items.add((data["agent"], data["id"]))
        if data["op"] == "write":
            lost_lines = [added for added in state.read_added_lines(data) if self._is_forgotten_line(added)]
            self._get_page(data).lost_until |= dict.fromkeys(_collect_keys(lost_lines), self._forgotten_at)

    def _is_forgotten_line(self, added: state.AddedLine) -> bool:
        return added.memory in self._forgotten.memory_ids or any(map(self._forgotten.is_forgotten, added.sources))

    def _has_forgotten_id(self, data: dict[str, Any]) -> bool:
        """Return True if a card or a proposal was forgotten by its id."""
        keys = self._forgotten.tombstones.keys if self._until_by_hash else ()
        return any(_hash_line(key, data["agent"], "", data["id"]) in self._until_by_hash for key in keys)

    def _has_forgotten_source(self, data: dict[str, Any]) -> bool:
        return any(map(self._forgotten.is_forgotten, state.read_sources(data)))

    def _clean_write(self, event: JournalEvent) -> dict[str, Any]:
        data, page = event.data, self._get_page(event.data)
        if (
            data.get("forgotten")
            or self._has_forgotten_source(data)
            or state.hash_text(data["text"]) in page.emptied_hashes
        ):
            return self._empty_text(page, data)
        old_text = data["text"]
        added_lines = state.read_added_lines(data)
        live_lines = [added for added in added_lines if not self._is_forgotten_line(added)]
        lost_lines = [added for added in added_lines if added not in live_lines]
        new_keys, live_keys = page.find_new_keys(data), _collect_keys(live_lines)
        page.clean_keys |= new_keys
        page.rewritten_keys |= {
            key
            for key in new_keys - _collect_keys(lost_lines)
            if (lost_until := page.find_lost_until(key))
            and (event.at > lost_until or (key in live_keys and not page.find_hashed_until(key)))
        }
        new_text = page.strip_lines(old_text)
        kept_lines = [
            added._replace(line=remaining) for added in live_lines if (remaining := page.strip_lines(added.line))
        ]
        self._remember_texts(page, old_text, new_text)
        new_data = {**data, "text": new_text, "was": page.hash_after.get(data["was"], data["was"])}
        if (page.agent, data.get("approves", "")) in self._forgotten_items:
            new_data.pop("why", None)  # the proposal's
        if new_text != old_text or kept_lines != added_lines:
            new_data.pop("why", None)
            new_data |= {"gone": self._list_line_hashes(page, data, lost_lines)}
            new_data |= {
                "pieces": [
                    [kept_line.line, kept_line.memory, state.spans_to_json(kept_line.sources)]
                    for kept_line in kept_lines
                ]
            }
            new_data = {key: value for key, value in new_data.items() if value or key not in ("gone", "pieces")}
        if page.has_lost_clean_lines(old_text):
            new_data["cursor"] = None  # lines that were not forgotten are missing too: the job reads everything again
        return new_data

    def _empty_text(self, page: _CleanedPage, data: dict[str, Any]) -> dict[str, Any]:
        """Return the event of a text that rests as a whole on something forgotten.

        It only says that there was a text.
        """
        old_text = data["text"]
        if old_text:
            page.tainted_keys |= _to_keys(old_text) - page.clean_keys
            page.emptied_hashes.add(state.hash_text(old_text))
            page.texts[state.hash_text(old_text)] = page.last_text = old_text
            page.hash_after[state.hash_text(old_text)] = state.hash_text(page.current_text) if page.current_text else ""
        read_hash = page.hash_after.get(data["was"], data["was"])
        return {
            **{name: value for name, value in data.items() if name != "why"},
            "text": "",
            "was": read_hash,
            "forgotten": True,
        }

    def _remember_texts(self, page: _CleanedPage, old_text: str, new_text: str) -> None:
        page.last_text = old_text
        page.current_text = new_text
        if old_text:
            page.texts[state.hash_text(old_text)] = old_text
            page.hash_after[state.hash_text(old_text)] = state.hash_text(new_text) if new_text else ""

    def _list_line_hashes(
        self, page: _CleanedPage, data: dict[str, Any], lost_lines: Sequence[state.AddedLine]
    ) -> list[list[str]]:
        """Return the hashes by which removed lines are recognised in texts from other homes."""
        secret_key = self._forgotten.tombstones.keys[0]  # a key exists once something was forgotten
        new_hashes = [
            [_hash_line(secret_key, page.agent, page.name, line_key), self._forgotten_at]
            for line_key in sorted(_collect_keys(lost_lines))
        ]
        return [*data.get("gone", ()), *new_hashes]

    def _clean_proposal(self, event: JournalEvent) -> dict[str, Any]:
        data, page = event.data, self._get_page(event.data)
        is_forgotten = self._has_forgotten_source(data) or (data["agent"], data["id"]) in self._forgotten_items
        text = "" if is_forgotten else page.strip_lines(data["text"])
        new_data = {**data, "text": text, "was": page.hash_after.get(data["was"], data["was"])}
        return new_data if text == data["text"] else {**new_data, "why": "", "forgotten": True}

    def _clean_card(self, event: JournalEvent) -> dict[str, Any]:
        is_forgotten = (event.data["agent"], event.data["id"]) in self._forgotten_items and event.data["text"]
        return {**event.data, "text": "", "forgotten": True} if is_forgotten else event.data


def _clean_file_events(
    floor_events: Sequence[JournalEvent], forgotten_ids: Collection[str]
) -> dict[str, dict[str, Any]]:
    """Return the new form of events about the memory tool's files, by event key.

    If the memory of any state of a file is forgotten, all its states go, and its name too.
    """
    origins: dict[str, str] = {}
    file_events = [event for event in floor_events if event.data["op"] == "file"]
    for event in file_events:
        previous_event = event.data.get("was", "")
        origins[event.key] = origins.get(previous_event, previous_event) or event.key
    lost_origins = {
        origins[event.key] for event in file_events if state.derive_memory_id(event.key, event.at) in forgotten_ids
    }
    return {
        event.key: state.build_forgotten_file_event(event.data["agent"], previous_event=event.data.get("was", ""))
        for event in file_events
        if origins[event.key] in lost_origins
    }


def add_file_states(journal: Journal, ids: Iterable[str]) -> set[str]:
    """Return these ids, and for each file the ids of all its texts, or of other files at the same path.

    It follows the file's own events: a memory that was retired is no longer linked to the next one.
    """
    all_ids = set(ids)
    if not all_ids:
        return all_ids
    for state_ids in _group_file_states(
        event for event in journal.read(type_=state.EVENT_TYPE) if event.data["op"] == "file"
    ):
        if state_ids & all_ids:
            all_ids |= state_ids
    return all_ids


def _group_file_states(file_events: Iterable[JournalEvent]) -> Iterable[set[str]]:
    """Return the memory ids of each file, grouped. file_events: in their order."""
    ids_by_event: dict[str, set[str]] = {}
    ids_by_agent: dict[str, dict[str, set[str]]] = {}  # agent -> path -> ids; a path outlives its file
    for event in file_events:
        data = event.data
        ids_by_path = ids_by_agent.setdefault(data["agent"], {})
        if "to" in data:
            state.move_path(ids_by_path, set(), data["path"], data["to"])
        elif data.get("text") is not None:
            ids = ids_by_event.get(data.get("was", ""), ids_by_path.get(data["path"], set()))
            ids.add(state.derive_memory_id(event.key, event.at))
            ids_by_event[event.key] = ids_by_path[data["path"]] = ids
    return {id(ids): ids for ids in ids_by_event.values()}.values()


def _to_key(raw_line: str) -> str:
    return notes.parse_line(raw_line).key


def _to_keys(text: str) -> set[str]:
    return set(map(_to_key, text.splitlines())) - {""}


def _collect_keys(added_lines: Iterable[state.AddedLine]) -> set[str]:
    return {key for added in added_lines for key in _to_keys(added.line)}


def _hash_line(secret_key: bytes, agent: str, name: str, line_key: str) -> str:
    return tombstones.hash_line_with_key(
        secret_key, f"floor\0{agent}\0{name}\0{line_key}".encode("utf-8", "surrogatepass")
    )


# ------------------------------------------------------------------------------------------------- the files


def _clean_page_files(path: Path, page: _CleanedPage) -> None:
    """Remove forgotten lines from a working copy, and from the old copies beside it."""
    aside_paths = [
        *path.parent.glob(f".{path.name}.*.displaced"),
        *path.parent.glob(f"{path.name}.refused-*"),
    ]
    for copy_path in (path, *aside_paths):
        copy = working_copy.read_copy(copy_path)
        if copy is not None:
            _clean_copy(copy, page, is_page=copy_path == path)


def _clean_copy(copy: working_copy.WorkingCopy, page: _CleanedPage, *, is_page: bool) -> None:
    if copy.is_foreign:
        return
    old_text = copy.text
    text = copy.path.read_bytes().decode("utf-8", "replace") if old_text is None else old_text
    remaining = (
        (page.current_text if is_page else "")
        if state.hash_text(text) in page.emptied_hashes
        else page.strip_lines(text)
    )
    if remaining == text:
        return
    if remaining and old_text is not None:
        is_noted = working_copy.is_recorded(copy) if is_page else False
        is_known = state.hash_text(text) in page.hash_after if is_noted is None else is_noted
        working_copy.rewrite_copy(copy, remaining, is_known=is_known)
    else:
        copy.path.unlink(missing_ok=True)
