"""What a model reads when it asks: plain text in a fence, each item with where it comes from and when.

Everything that was once said is data here and not instruction, masked and fenced with a code of its own. What is given
is noted in the journal by that code, without its words, so that it is not taken in again from the client's transcript.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from perdure import text
from perdure.access import fence
from perdure.access.redact import mask
from perdure.archive import injected
from perdure.errors import NotFound, UsageError
from perdure.floor.floor import Change
from perdure.floor.layers import diary_day
from perdure.floor.pages import DIARY
from perdure.forget import Doomed
from perdure.home import Home
from perdure.memories.kinds import guessed
from perdure.memories.paths import is_everywhere
from perdure.recall.pack import SAID_BY, render
from perdure.surfaces import reading, trees
from perdure.surfaces.moments import moment
from perdure.surfaces.reading import shared
from perdure.types import Filters, Hit, Memory, RunView, Turn

MAX_TOKENS = 6000  # of one answer: a client cuts or warns from 10,000 on
_SNIPPET_CHARS = 700
_TURN_CHARS = 4000
_ID_CHARS = 4  # of an id that is to be forgotten


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a search is narrowed to, as a model writes it."""

    project: str = ""
    runtime: str = ""
    since: str = ""
    until: str = ""

    def filters(self) -> Filters:
        """The same for the index. Raises UsageError for a time that is none."""
        return Filters(
            projects=(self.project,) if self.project else (), runtimes=(self.runtime,) if self.runtime else (),
            since_at=moment(self.since or None), until_at=moment(self.until or None),
        )  # fmt: skip


def search(home: Home, query: str, wanted: Wanted, *, limit: int = 10) -> str:
    """The turns and memories that match, best first."""
    found = home.search(query, filters=wanted.filters(), limit=limit)
    believed = [] if wanted != Wanted() else [memory for memory, _ in home.search_memories(query, limit=5)]
    items = [*map(_memory_item, believed), *(_hit_item(hit, found.terms, home.user) for hit in found.hits)]
    notes = [f"({found.n_behind} runs are not indexed yet: ask again in a moment.)"] if found.n_behind else []
    return _given(home, items, empty="Nothing found.", notes=notes)


def recall(home: Home, message: str, *, cwd: str | None) -> str:
    """What would stand beside a message: few cues, or nothing."""
    found = home.recall(message, cwd=cwd)
    if "index" in found.degraded and _is_new(home):
        return "Nothing to recall: nothing has been captured yet."
    return _given(home, [render(cue) for cue in found.cues], empty=f"Nothing to recall: {found.silent}.")


def _is_new(home: Home) -> bool:
    """Whether there is no index because there is nothing to index."""
    return not (home.path / "index.db").is_symlink() and next(home.archive.walk(), None) is None


def context(home: Home, message: str, *, cwd: str | None) -> str:
    """C₀ and what matters for a message, as a model that Perdure feeds would read it."""
    made = home.context(message, cwd=cwd, platform=injected.TOOL)
    items = [layer.said for layer in made.floor.layers if layer.text]
    items += [render(cue) for cue in made.recalled.cues]
    return _given(home, [*items, made.here], empty="", warning=fence.FLOOR)


def remember(home: Home, words: str, *, kind: str, path: str, cwd: str | None) -> str:
    """Keep what an agent concludes, or was told."""
    about = kind or guessed(words)
    place = None if is_everywhere(path, about) else cwd
    kept = home.remember(words, kind=about, path=path, cwd=place, trust="agent")  # type: ignore[arg-type]
    before = [m for m in home.memories.history(kept.memory_id) if m.superseded_by == kept.memory_id]
    again = f", said {kept.n_stated} times" if kept.n_stated > 1 else ""
    instead = f" It takes the place of {before[-1].memory_id}." if before else ""
    return f"Kept as {kept.memory_id} at {kept.path} ({kept.kind}{again}).{instead}"


def note(home: Home, words: str, *, place: str, cwd: str | None) -> str:
    """Put something onto the floor of the sessions to come."""
    if place == "card":
        card = home.floor.add_card(words, by="agent", project=home.project(cwd))
        return f"Kept as {card.id}. Sessions from the next one on have it before them."
    if place == "note":
        noted = home.note(words, by="agent", cwd=cwd)
        if not noted.is_new:
            return "The notes say so already."
        instead = " It takes the place of an older line." if noted.replaced else ""
        return f"Written into notes.md. Sessions from the next one on have it before them.{instead}"
    page = f"{DIARY}/{diary_day(datetime.now().astimezone()).isoformat()}.md"
    home.floor.rework(page, lambda old: Change(f"{old.rstrip()}\n\n{words.strip()}".strip(), "agent"))
    return f"Written into {page}. Sessions from the next one on have it before them."


def propose(home: Home, page: str, words: str, *, why: str) -> str:
    """Ask the owner for an edit of the floor."""
    wanted = home.floor.propose(page, words, why=why)
    return f"Proposed as {wanted.id}. Nothing changes until the owner approves (`perdure floor approve {wanted.id}`)."


def tree(home: Home, *, since: str, runtime: str, limit: int = 40) -> str:
    """The newest runs, and what they spawned."""
    home.catch_up()
    nodes = home.forest(Filters(since_at=moment(since or None), runtimes=(runtime,) if runtime else ()), limit=limit)
    lines = [line.plain for line in trees.draw(nodes, datetime.now(UTC), fold=True, reader=home.user)]
    return _given(home, ["\n".join(lines)] if lines else [], empty="No runs.")


def show(home: Home, identifier: str, *, n_around: int = 3) -> str:
    """A turn with those around it, a run, a conversation or a memory, read from the archive."""
    kind, name = _resolved(home, identifier)
    if kind == "memory":
        return _given(home, _history(home, name), empty="")
    every = reading.turns(home, kind, name)
    shown = reading.window(every, name, n_around) if kind == "turn" else every
    items = [
        _turn_item(view, turn, reading.identifier((view, turn, left)), home.user)
        for view, turn, left in shown
        if not left
    ]
    return _given(home, items, empty="There is nothing to read in it.")


def _resolved(home: Home, identifier: str) -> tuple[str, str]:
    if not identifier.startswith("mem-"):
        home.catch_up()
    return home.resolve(identifier)


def history(home: Home, about: str) -> str:
    """How a belief came to be, oldest first. about: a memory's id or path."""
    return _given(home, _history(home, about), empty="")


def _history(home: Home, about: str) -> list[str]:
    items = []
    every = home.holding(about) if about.startswith("mem-") else home.memories
    for memory in every.history(about):
        sources = [turn for _, turn in every.sources(memory.memory_id) if turn]
        behind = f"\n(from {', '.join(sources)}; `show` reads them)" if sources else ""
        items.append(_memory_item(memory) + behind)
    return items


def memories(home: Home, *, limit: int = 100) -> str:
    """What is believed now, newest first."""
    return _given(home, list(map(_memory_item, home.memories.listed()[:limit])), empty="Nothing is remembered yet.")


@dataclass(frozen=True, slots=True)
class Doom:
    """What a forgetting would take away."""

    turns: tuple[Doomed, ...]
    memories: tuple[Memory, ...]

    @property
    def counted(self) -> str:
        """How much it is: all that a model need know."""
        return f"{len(self.turns)} turns and {len(self.memories)} memories"

    @property
    def said(self) -> str:
        """A question for the person whose it is."""
        rows = [f"- turn {item.turn_id}: {item.preview}" for item in self.turns[:10]]
        rows += [f"- memory {m.memory_id}: {text.one_line(mask(m.text), 100)}" for m in self.memories[:10]]
        more = len(self.turns) + len(self.memories) - len(rows)
        return "\n".join([*rows, *([f"- and {more} more"] if more > 0 else [])])


def doom(home: Home, ids: Sequence[str]) -> Doom:
    """What would go with these turns, runs, conversations and memories. Raises NotFound, UsageError."""
    if not ids or any(len(identifier) < _ID_CHARS for identifier in ids):
        raise UsageError("name what is to be forgotten by ids that `search` or `recall` showed")
    memories_ = [identifier for identifier in ids if identifier.startswith("mem-")]
    turns = home.doomed([identifier for identifier in ids if identifier not in memories_])
    return Doom(tuple(turns), tuple(home.doomed_memories(turns, memories_)))


def forget(home: Home, found: Doom) -> str:
    """Delete it everywhere."""
    if not found.turns and not found.memories:
        raise NotFound("any of it (it may have been forgotten already)")
    home.forget(list(found.turns), memories=[memory.memory_id for memory in found.memories])
    return f"Forgotten: {len(found.turns)} turns, {len(found.memories)} memories. They do not come back."


# items --------------------------------------------------------------------------------------------------------


def _hit_item(hit: Hit, terms: Sequence[str], reader: str) -> str:
    shown, _ = text.snippet(text.printable(hit.text), terms, _SNIPPET_CHARS)
    at = f"{hit.stated_at:%Y-%m-%d %H:%M}" if hit.stated_at else "undated"
    where = f" · {hit.project}" if hit.project else ""
    role = shared(hit.role, hit.user, reader)
    return f"[{at} · {role} · {hit.runtime} @{hit.machine} · turn {hit.turn_id} · run {hit.run_id}{where}]\n{shown}"


def _memory_item(memory: Memory) -> str:
    state = "" if memory.is_current else f" · no longer so since {memory.ended_at:%Y-%m-%d}" if memory.ended_at else ""
    said = shared(SAID_BY[memory.trust], memory.shared_by, "")
    head = f"[{memory.stated_at:%Y-%m-%d %H:%M} · memory, {memory.kind} · {said} · {memory.memory_id}"
    return f"{head} · {memory.path}{state}]\n{text.printable(mask(memory.text))}"


def _turn_item(view: RunView, turn: Turn, identifier: str, reader: str) -> str:
    at = f"{turn.stated_at:%Y-%m-%d %H:%M}" if turn.stated_at else "undated"
    said = text.clip(text.printable(mask(turn.text("text", "pasted", "call", "result"))).strip(), _TURN_CHARS)
    role = shared(turn.role, view.user, reader)
    return f"[{at} · {role} · {view.runtime} @{view.machine} · turn {identifier}]\n{said or '(no text)'}"


def _given(
    home: Home, items: Sequence[str], *, empty: str, notes: Sequence[str] = (), warning: str = fence.RECALLED
) -> str:
    """The items that have room, fenced and noted; the plain `empty` where there is none."""
    if not items:
        return "\n".join([empty, *notes])
    kept: list[str] = []
    left = MAX_TOKENS
    for item in items:
        left -= text.tokens(item)
        if left < 0 and kept:
            break
        kept.append(text.clip(item, 4 * MAX_TOKENS))
    nonce = fence.new_nonce()
    block = fence.fenced(kept, nonce, warning=warning)
    if home.writable:
        who = {"runtime": injected.TOOL, "session": "", "agent": "", "nonce": nonce, "digest": fence.digest(block)}
        home.journal().append(
            injected.TYPE, {**who, "turns": [], "n_tokens": text.tokens(block)}, now=datetime.now(UTC)
        )
    n_left = len(items) - len(kept)
    rest = [f"({n_left} more: ask for less at once, or narrow it.)"] if n_left else []
    return "\n".join([block, *rest, *notes])
