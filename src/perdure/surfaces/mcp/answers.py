"""The answers of the MCP tools: plain text in a fence, each item with its source and time.

Everything that was once said is data here and not instruction; it is masked and fenced with a code of its
own. Each answer is noted in the journal by that code, without its words, so that it is not captured again
from the client's transcript. A few threads, each with a home of its own, compute the answers without
blocking the event loop.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter

from perdure import placed_turns, text
from perdure.access import fence
from perdure.access.redact import mask
from perdure.archive import injections
from perdure.archive.forget import ForgetTarget
from perdure.archive.memory_events import is_unscoped
from perdure.errors import IndexFault, NotFound, UsageError
from perdure.floor.floor import PageChange
from perdure.floor.layers import to_diary_day
from perdure.floor.pages import DIARY
from perdure.formats.call_text import describe_turn
from perdure.home import Home
from perdure.memories.explicit import guess_kind
from perdure.memories.host_answer import HostStatement
from perdure.memories.host_question import render_lines
from perdure.placed_turns import label_with_owner
from perdure.recall.pack import SPEAKER_LABELS, render_cue
from perdure.surfaces import trees
from perdure.surfaces.units import parse_moment
from perdure.types import Filters, Hit, Memory, RunView, Turn

MAX_TOKENS = 6000  # of one answer: a client cuts or warns from 10,000 on
_SNIPPET_CHARS = 700
_TURN_CHARS = 4000
_MIN_ID_CHARS = 4  # of an id that is to be forgotten


@dataclass(frozen=True, slots=True)
class ToolFilters:
    """The filters of a search, as a model writes them."""

    project: str = ""
    runtime: str = ""
    since: str = ""
    until: str = ""

    def to_filters(self) -> Filters:
        """Convert to filters of the index. Raises UsageError for a time that cannot be read."""
        return Filters(
            projects=(self.project,) if self.project else (),
            runtimes=(self.runtime,) if self.runtime else (),
            since_at=parse_moment(self.since or None),
            until_at=parse_moment(self.until or None),
        )


def search(home: Home, query: str, tool_filters: ToolFilters, *, limit: int = 10) -> str:
    """Find turns and memories that match, best first."""
    result = home.search(query, filters=tool_filters.to_filters(), limit=limit)
    memories: list[Memory] = []
    if tool_filters == ToolFilters():
        with contextlib.suppress(IndexFault):  # the archive itself was searched, which holds no memories
            memories = [hit.memory for hit in home.memories.search(query, limit=5)]
    items = [*map(_format_memory, memories), *(_format_hit(hit, result.terms, home.user) for hit in result.hits)]
    notes = [f"({result.n_behind} runs are not indexed yet; try again in a moment.)"] if result.n_behind else []
    if "index" in result.degraded:
        notes.append("(The index cannot be used, so the archive was searched. `perdure rebuild` makes a new one.)")
    return _wrap_answer(home, items, empty="Nothing found.", notes=notes)


def recall(home: Home, message: str, *, cwd: str | None) -> str:
    """Return what recall would put beside a message: few cues, or nothing."""
    recalled = home.recall(message, cwd=cwd)
    if "index" in recalled.degraded and _has_no_captures(home):
        return "Nothing to recall: nothing has been captured yet."
    return _wrap_answer(
        home, [render_cue(cue) for cue in recalled.cues], empty=f"Nothing to recall: {recalled.silent}."
    )


def _has_no_captures(home: Home) -> bool:
    """Return True if there is no index because nothing was captured yet."""
    return not home.connections.has_index() and next(home.archive.walk(), None) is None


def build_context(home: Home, message: str, *, cwd: str | None) -> str:
    """Return C₀ and what matters for a message, as a model that Perdure feeds would read it."""
    model_context = home.context(message, cwd=cwd, platform=injections.TOOL_RUNTIME)
    items = [layer.headed_text for layer in model_context.floor.layers if layer.text]
    items += [render_cue(cue) for cue in model_context.recalled.cues]
    return _wrap_answer(home, [*items, model_context.location_line], empty="", warning=fence.FLOOR_WARNING)


def remember(home: Home, words: str, *, kind: str, path: str, cwd: str | None) -> str:
    """Store a statement of an agent: its conclusion, or something that it was told."""
    memory_kind = kind or guess_kind(words)
    memory_cwd = None if is_unscoped(path, memory_kind) else cwd
    memory = home.remember(words, kind=memory_kind, path=path, cwd=memory_cwd, trust="agent")  # type: ignore[arg-type]
    if memory.in_review:
        return f"Held as {memory.memory_id}: it is recalled once the owner accepts it in `perdure memories review`."
    replaced_memories = [m for m in home.memories.history(memory.memory_id) if m.superseded_by == memory.memory_id]
    count_text = f", said {memory.n_stated} times" if memory.n_stated > 1 else ""
    replaced_text = f" It replaces {replaced_memories[-1].memory_id}." if replaced_memories else ""
    return f"Stored as {memory.memory_id} at {memory.path} ({memory.kind}{count_text}).{replaced_text}"


def settle(home: Home, statements: Sequence[HostStatement], *, is_rest_none: bool, cwd: str | None) -> str:
    """Keep statements of lines that a model was asked about; without any answer, list the lines to ask about."""
    if not statements and not is_rest_none:
        candidates = home.memories.request_candidates(cwd=cwd)
        items = [render_lines(candidates, _SNIPPET_CHARS)] if candidates else []
        return _wrap_answer(home, items, empty="Nothing to settle.")
    result = home.memories.settle(statements, [] if is_rest_none else None, cwd=cwd)
    lines = [
        f"{'Held for review' if memory.in_review else 'Kept'} as {memory.memory_id} at {memory.path}."
        for memory in [keep_result.memory for keep_result in result.kept]
    ]
    lines += [f"Not kept: {refusal.why}." for refusal in result.refusals]
    lines += [f"Settled before, nothing changed: {result.n_known}."] if result.n_known else []
    return "\n".join(lines) or f"Nothing kept of {result.n_none} lines."


def note(home: Home, words: str, *, target: str, cwd: str | None) -> str:
    """Put a text onto the floor of future sessions: as a note, a card, or a part of today's diary."""
    if target == "card":
        card = home.floor.add_card(words, by="agent", project=home.connections.project_of(cwd))
        return f"Stored as {card.id}. Every session begins with it, from the next one on."
    if target == "note":
        addition = home.floor.note(words, by="agent", cwd=cwd)
        if not addition.is_new:
            return "The notes already have this line."
        replaced_text = " It replaces an older line." if addition.replaced_lines else ""
        return f"Written to notes.md. Every session begins with it, from the next one on.{replaced_text}"
    page = f"{DIARY}/{to_diary_day(datetime.now().astimezone()).isoformat()}.md"
    home.floor.rework(page, lambda old_text: PageChange(f"{old_text.rstrip()}\n\n{words.strip()}".strip(), "agent"))
    return f"Written to {page}. Every session begins with it, from the next one on."


def propose(home: Home, page: str, words: str, *, reason: str) -> str:
    """Propose an edit of the floor to the owner."""
    from perdure.agent.self_edit import propose_edit  # takes time, and few calls need it

    proposal = propose_edit(home, page, words, why=reason)
    return (
        f"Proposed as {proposal.id}. Nothing changes until the owner approves (`perdure floor approve {proposal.id}`)."
    )


def draw_runs(home: Home, *, since: str, runtime: str, limit: int = 40) -> str:
    """Draw the newest runs and the runs that they spawned."""
    home.upkeep.catch_up()
    nodes = home.runs.forest(
        Filters(since_at=parse_moment(since or None), runtimes=(runtime,) if runtime else ()), limit=limit
    )
    lines = [line.plain for line in trees.draw_trees(nodes, datetime.now(UTC), fold=True, reader=home.user)]
    return _wrap_answer(home, ["\n".join(lines)] if lines else [], empty="No runs.")


def show(home: Home, identifier: str, *, n_around: int = 3) -> str:
    """Read a turn with those around it, a run, a conversation or a memory from the archive."""
    kind, name = _resolve_id(home, identifier)
    if kind == "memory":
        return _wrap_answer(home, _list_history_items(home, name), empty="")
    all_turns = placed_turns.load_placed_turns(home, kind, name)
    chosen_turns = placed_turns.select_window(all_turns, name, n_around) if kind == "turn" else all_turns
    items = [
        _format_turn(view, turn, placed_turns.get_turn_id((view, turn, is_abandoned)), home.user)
        for view, turn, is_abandoned in chosen_turns
        if not is_abandoned
    ]
    return _wrap_answer(home, items, empty="It has no text.")


def _resolve_id(home: Home, identifier: str) -> tuple[str, str]:
    if not identifier.startswith("mem-"):
        home.upkeep.catch_up()
    return home.resolve(identifier)


def show_history(home: Home, about: str) -> str:
    """Return the history of a memory, oldest first. about: a memory's id or path."""
    return _wrap_answer(home, _list_history_items(home, about), empty="")


def _list_history_items(home: Home, about: str) -> list[str]:
    items = []
    room = home.memories.holder_of(about) if about.startswith("mem-") else home.memories
    for memory in room.history(about):
        sources = [turn for _, turn in room.sources(memory.memory_id) if turn]
        source_text = f"\n(from {', '.join(sources)}; `show` reads them)" if sources else ""
        items.append(_format_memory(memory) + source_text)
    return items


def list_memories(home: Home, *, limit: int = 100) -> str:
    """List the current memories, newest first."""
    return _wrap_answer(
        home, list(map(_format_memory, home.memories.list_memories()[:limit])), empty="There are no memories yet."
    )


@dataclass(frozen=True, slots=True)
class ForgetPreview:
    """The turns and memories that a forgetting would delete."""

    turns: tuple[ForgetTarget, ...]  # with the other lines of their runs
    memories: tuple[Memory, ...]

    @property
    def summary(self) -> str:
        """The number of turns and memories: all that a model needs to know."""
        n_turns = sum(target.turn is not None for target in self.turns)
        return f"{n_turns} turns and {len(self.memories)} memories"

    @property
    def item_lines(self) -> str:
        """The first turns and memories, one on each line, for the question to the person who owns them."""
        lines = [f"- turn {item.turn_id}: {item.preview}" for item in self.turns[:10]]
        lines += [f"- memory {m.memory_id}: {text.one_line(mask(m.text), 100)}" for m in self.memories[:10]]
        n_more = len(self.turns) + len(self.memories) - len(lines)
        return "\n".join([*lines, *([f"- and {n_more} more"] if n_more > 0 else [])])


def preview_forget(home: Home, ids: Sequence[str]) -> ForgetPreview:
    """Find what a forgetting of these ids would delete. Raises NotFound, UsageError."""
    if not ids or any(len(identifier) < _MIN_ID_CHARS for identifier in ids):
        raise UsageError("give the ids to forget, as `search` or `recall` showed them")
    memory_ids = [identifier for identifier in ids if identifier.startswith("mem-")]
    targets = home.forgetting.plan([identifier for identifier in ids if identifier not in memory_ids])
    return ForgetPreview(tuple(targets), tuple(home.forgetting.memories_of(targets, memory_ids)))


def forget(home: Home, preview: ForgetPreview) -> str:
    """Delete the previewed turns and memories everywhere. Raises NotFound if there are none."""
    if not preview.turns and not preview.memories:
        raise NotFound("these ids (they may be forgotten already)")
    home.forgetting.apply(list(preview.turns), memories=[memory.memory_id for memory in preview.memories])
    return f"Forgotten: {preview.summary}. They do not come back."


# items --------------------------------------------------------------------------------------------------------


def _format_hit(hit: Hit, terms: Sequence[str], reader: str) -> str:
    snippet, _ = text.snippet(text.printable(hit.text), terms, _SNIPPET_CHARS)
    project_text = f" · {text.shorten_project(hit.project)}" if hit.project else ""
    role = label_with_owner(hit.role, hit.user, reader)
    origin = f"{_format_time(hit.stated_at)} · {role} · {hit.runtime} @{hit.machine}{project_text}"
    if file_text := text.describe_file(hit.runtime, hit.conversation, is_left=hit.abandoned):
        origin += f" · {text.printable(file_text)}"
    return f"[{origin} · turn {hit.turn_id} · run {hit.run_id}]\n{snippet}"


def _format_memory(memory: Memory) -> str:
    state = "" if memory.is_current else f" · superseded since {memory.ended_at:%Y-%m-%d}" if memory.ended_at else ""
    speaker = label_with_owner(SPEAKER_LABELS[memory.trust], memory.shared_by, "")
    project_text = f"{text.shorten_project(memory.project)} · " if memory.project else ""
    header = f"[{_format_time(memory.stated_at)} · memory, {memory.kind} · {speaker} · {project_text}{memory.memory_id}"
    return f"{header} · {memory.path}{state}]\n{text.printable(mask(memory.text))}"


def _format_turn(view: RunView, turn: Turn, identifier: str, reader: str) -> str:
    turn_text = describe_turn(turn, view.project, "text", "pasted", "call", "result")
    turn_text = text.clip(text.printable(turn_text).strip(), _TURN_CHARS)
    role = label_with_owner(turn.role, view.user, reader)
    header = f"[{_format_time(turn.stated_at)} · {role} · {view.runtime} @{view.machine} · turn {identifier}]"
    return f"{header}\n{turn_text or '(no text)'}"


def _format_time(instant: datetime | None) -> str:
    """Format a time, with its age, as a header in a fence begins."""
    return f"{instant:%Y-%m-%d %H:%M} ({text.format_age(instant, datetime.now(UTC))})" if instant else "undated"


def _wrap_answer(
    home: Home, items: Sequence[str], *, empty: str, notes: Sequence[str] = (), warning: str = fence.RECALL_WARNING
) -> str:
    """Fence the items that have room and note them in the journal; return the plain `empty` if there are none."""
    if not items:
        return "\n".join([empty, *notes])
    kept_items: list[str] = []
    n_tokens_left = MAX_TOKENS
    for item in items:
        n_tokens_left -= text.tokens(item)
        if n_tokens_left < 0 and kept_items:
            break
        kept_items.append(text.clip(item, 4 * MAX_TOKENS))
    nonce = fence.make_nonce()
    block = fence.fence_items(kept_items, nonce, warning=warning)
    if home.writable:
        receiver = {
            "runtime": injections.TOOL_RUNTIME,
            "session": "",
            "agent": "",
            "nonce": nonce,
            "digest": fence.hash_block(block),
        }
        home.journal().append(
            injections.EVENT_TYPE, {**receiver, "turns": [], "n_tokens": text.tokens(block)}, now=datetime.now(UTC)
        )
    n_left_out = len(items) - len(kept_items)
    left_out_notes = [f"({n_left_out} more: ask for fewer, or narrow the request.)"] if n_left_out else []
    return "\n".join([block, *left_out_notes, *notes])


T = TypeVar("T")


class ToolRunner(Protocol):
    """Runs a question to a home."""

    async def ask(self, question: Callable[[Home], T]) -> T:
        """Call a function with the home; return its result. Raises what the function raises."""


class ThreadedToolRunner:
    """Runs questions in a few threads, each with a home of its own, without blocking the event loop."""

    def __init__(self, make_home: Callable[[], Home], *, n_threads: int = 2) -> None:
        """make_home: opens a home for one thread."""
        self._make_home = make_home
        self._thread_state = threading.local()
        self._homes: list[Home] = []
        self._pool = ThreadPoolExecutor(n_threads, thread_name_prefix="perdure-mcp")
        self._limiter = CapacityLimiter(64)

    async def ask(self, question: Callable[[Home], T]) -> T:
        """Call a function with the home of a thread; return its result. Raises what the function raises."""
        future = self._pool.submit(lambda: question(self._get_home()))
        return await anyio.to_thread.run_sync(future.result, limiter=self._limiter, abandon_on_cancel=True)

    def _get_home(self) -> Home:
        if not hasattr(self._thread_state, "home"):
            self._thread_state.home = self._make_home()
            self._homes.append(self._thread_state.home)
        home: Home = self._thread_state.home
        return home

    def close(self) -> None:
        """Wait for running questions, then close the homes."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        for home in self._homes:
            home.close()
