"""Describe memories in words that need no glossary. Pure; the clock is an argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from perdure import text
from perdure.access.redact import mask
from perdure.archive.memory_events import fold_path
from perdure.index import memory_replay
from perdure.index.memory_rows import MemoryFilter, MemoryOrder
from perdure.types import Memory

MAX_PARTS = 24  # parts of a path shown in one level of the tree of subjects: those with most memories
PINNED = "Pinned"
TRUST = {
    "owner": "your words", "agent": "an agent's conclusion", "tool": "from a tool", "web": "from the web",
}  # fmt: skip
TRUST_BADGE = {"owner": "trust", "agent": "quiet", "tool": "warn", "web": "warn"}
TRUST_WHY = {
    "owner": "You said it or wrote it yourself.",
    "agent": "An agent concluded it; nobody has confirmed it. If you correct it, it counts as your statement.",
    "tool": (
        "Its source is the output of a tool, which anybody could have written. It never "
        "replaces a statement of you or an agent."
    ),
    "web": "Its source is the web, which is not checked. It never replaces a statement of you or an agent.",
}
HOW = {
    "stated": "stated in a session", "remembered": "stored on purpose", "edited": "corrected by you",
    "mined": "mined from sessions", "consolidated": "made from several memories", "imported": "imported",
    "file": "from a memory file",
}  # fmt: skip
KINDS = {
    "fact": "Fact", "preference": "Preference", "decision": "Decision", "procedure": "Procedure",
    "event": "Event", "insight": "Insight",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SubjectNode:
    """One part of a path in the tree of subjects."""

    name: str
    prefix: str  # the path up to this part
    n: int  # memories at this part and below
    is_open: bool  # it is the chosen part, or above it
    parts: tuple[SubjectNode, ...] = ()  # below this part, if it is open
    n_more: int = 0  # parts below it that are not shown


@dataclass(frozen=True, slots=True)
class HistoryStage:
    """One statement in a history."""

    memory: Memory
    state: str  # what became of it
    is_current: bool
    is_this: bool  # the memory that the page is about
    is_then: bool  # believed at the moment asked about


def is_match(memory: Memory, filters: MemoryFilter) -> bool:
    """Return True if a memory passes the filters."""
    return (
        (filters.every or memory.is_current)
        and (not filters.prefix or f"{fold_path(memory.path)}/".startswith(f"{filters.prefix}/"))
        and filters.kind in ("", memory.kind)
        and filters.trust in ("", memory.trust)
        and filters.project in (None, memory.project or "")
    )


def group_memories(memories: Sequence[Memory], order: MemoryOrder) -> list[tuple[str, list[Memory]]]:
    """Group memories as (heading, memories), in the given order: pinned ones, subjects, or months."""
    return [(heading, list(group)) for heading, group in groupby(memories, lambda memory: _to_heading(memory, order))]


def _to_heading(memory: Memory, order: MemoryOrder) -> str:
    if order == "newest":
        return f"{memory.stated_at.astimezone():%B %Y}"
    return PINNED if memory.pinned else to_subject(memory)


def to_subject(memory: Memory) -> str:
    """Return the subject of a memory: the first part of its path."""
    return fold_path(memory.path).partition("/")[0]


def build_subject_tree(levels: Sequence[Mapping[str, int]], prefix: str) -> tuple[tuple[SubjectNode, ...], int]:
    """Return (the first parts, the number left out); parts of the prefix also contain the parts below them.

    levels: for each part of the prefix in turn, and below it: part -> number of memories.
    """
    chosen = prefix.split("/") if prefix else []
    return _build_level(levels, chosen, "")


def _build_level(
    levels: Sequence[Mapping[str, int]], chosen: Sequence[str], prefix: str
) -> tuple[tuple[SubjectNode, ...], int]:
    if not levels:
        return (), 0
    fullest = sorted(levels[0].items(), key=lambda item: (item[0] not in chosen[:1], -item[1], item[0]))[:MAX_PARTS]
    nodes = []
    for name, n in sorted(fullest):
        is_open = name in chosen[:1]
        children, n_more = _build_level(levels[1:], chosen[1:], f"{prefix}{name}/") if is_open else ((), 0)
        nodes.append(SubjectNode(name, f"{prefix}{name}", n, is_open, children, n_more))
    return tuple(nodes), len(levels[0]) - len(nodes)


def list_prefixes(prefix: str) -> list[str]:
    """Return every prefix of a path, from the empty one to the path itself.

    >>> list_prefixes("user/preferences")
    ['', 'user', 'user/preferences']
    """
    parts = prefix.split("/") if prefix else []
    return ["/".join(parts[:n]) for n in range(len(parts) + 1)]


def build_history(members: Iterable[Memory], memory_id: str, as_of: datetime | None) -> list[HistoryStage]:
    """List the statements on one path, newest first. as_of: mark the statement that was believed at this moment."""
    statements = list(members)
    statement_then = memory_replay.find_current_at(statements, as_of) if as_of else None
    return [
        HistoryStage(
            statement,
            _describe_state(statement),
            statement.is_current,
            statement.memory_id == memory_id,
            statement_then is not None and statement.memory_id == statement_then.memory_id,
        )
        for statement in reversed(statements)
    ]


def find_replaced(members: Sequence[Memory], memory_id: str) -> list[Memory]:
    """List the memories of a history that this one replaced, directly or through others, newest first."""
    replaced_memories: list[Memory] = []
    for memory in reversed(members):
        if memory.superseded_by == memory_id and _describe_state(memory) == "replaced":
            replaced_memories.append(memory)
            memory_id = memory.memory_id
    return replaced_memories


def _describe_state(memory: Memory) -> str:
    if memory.retired:
        return "waits for review" if memory.in_review else "retired"
    if memory.superseded_by is None:
        return "current"
    if memory.ended_at is not None and memory.ended_at > memory.stated_at:
        return "replaced"
    return "never current: a statement with more trust existed"


def describe_fading(memory: Memory, now: datetime) -> str:
    """Say how strongly a memory is recalled, and why.

    A memory just stated has its full weight; one that nobody used for 30 days has half of it.
    """
    if memory.pinned:
        return "It is pinned: it does not fade."
    weight = memory_replay.compute_decay(memory, now)
    last_event = "used or said again" if memory.n_used or memory.n_stated > 1 else "stated"
    days = (now - (memory.renewed_at or memory.stated_at)).days
    age = "today" if days < 1 else "yesterday" if days < 2 else f"{days} days ago"
    return f"It was last {last_event} {age}; its weight in recall is {weight:.0%}. Only use renews it."


def to_question(memory: Memory) -> str:
    """Return a message that should recall a memory: its own words, asked as a question."""
    return f"What do we know about this: {text.one_line(mask(memory.text), 160)}"
