"""What the page says of memories, in words that need no glossary. Pure; the clock is an argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from perdure import text
from perdure.access.redact import mask
from perdure.index.browse import Order, Wanted
from perdure.memories import decay, replay
from perdure.memories.paths import folded
from perdure.types import Memory

MOST_PARTS = 24  # parts of a path that stand in one level of the tree of subjects; the fullest
PINNED = "Pinned"
TRUST = {
    "owner": "your words", "agent": "an agent's conclusion", "tool": "from a tool", "web": "from the web",
}  # fmt: skip
TRUST_BADGE = {"owner": "trust", "agent": "quiet", "tool": "warn", "web": "warn"}
TRUST_WHY = {
    "owner": "You said it or wrote it yourself.",
    "agent": "An agent concluded it; nobody has confirmed it. Correct it in your own words, and it counts as yours.",
    "tool": "It rests on a tool's output, which anybody may have written. It never replaces what you or an agent said.",
    "web": "It rests on something from the web, which nobody vouches for. It never replaces what you or an agent said.",
}
HOW = {
    "stated": "stated in a session", "remembered": "kept on purpose", "edited": "corrected by you",
    "mined": "drawn from sessions", "consolidated": "made of several", "imported": "imported",
    "file": "from a memory file",
}  # fmt: skip
KINDS = {
    "fact": "Fact", "preference": "Preference", "decision": "Decision", "procedure": "Procedure",
    "event": "Event", "insight": "Insight",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a path in the tree of subjects."""

    name: str
    prefix: str  # that leads to it
    n: int  # memories at it and below
    is_open: bool  # the chosen one, or above it
    parts: tuple[Part, ...] = ()  # below it, where it is open
    n_more: int = 0  # parts below it that are left out


@dataclass(frozen=True, slots=True)
class Stage:
    """One statement in a history."""

    memory: Memory
    state: str  # what became of it
    is_current: bool
    is_this: bool  # the one whose page it is
    is_then: bool  # what was believed at the moment that is asked about


def fits(memory: Memory, wanted: Wanted) -> bool:
    """Whether a memory is one of those that are wanted."""
    return (
        (wanted.every or memory.is_current)
        and (not wanted.prefix or f"{folded(memory.path)}/".startswith(f"{wanted.prefix}/"))
        and wanted.kind in ("", memory.kind)
        and wanted.trust in ("", memory.trust)
        and wanted.project in (None, memory.project or "")
    )


def shelves(memories: Sequence[Memory], order: Order) -> list[tuple[str, list[Memory]]]:
    """(heading, memories) in the order in which they come: what is pinned, subjects, or months."""
    return [(name, list(found)) for name, found in groupby(memories, lambda memory: _shelf(memory, order))]


def _shelf(memory: Memory, order: Order) -> str:
    if order == "newest":
        return f"{memory.stated_at.astimezone():%B %Y}"
    return PINNED if memory.pinned else subject(memory)


def subject(memory: Memory) -> str:
    """What a memory is about, as its path begins."""
    return folded(memory.path).partition("/")[0]


def tree(levels: Sequence[Mapping[str, int]], prefix: str) -> tuple[tuple[Part, ...], int]:
    """(the first parts, how many of them are left out), those of a prefix with what is below them.

    levels: of each part of the prefix in turn, and below it: part -> memories.
    """
    chosen = prefix.split("/") if prefix else []
    return _level(levels, chosen, "")


def _level(levels: Sequence[Mapping[str, int]], chosen: Sequence[str], above: str) -> tuple[tuple[Part, ...], int]:
    if not levels:
        return (), 0
    fullest = sorted(levels[0].items(), key=lambda item: (item[0] not in chosen[:1], -item[1], item[0]))[:MOST_PARTS]
    found = []
    for name, n in sorted(fullest):
        is_open = name in chosen[:1]
        below, n_more = _level(levels[1:], chosen[1:], f"{above}{name}/") if is_open else ((), 0)
        found.append(Part(name, f"{above}{name}", n, is_open, below, n_more))
    return tuple(found), len(levels[0]) - len(found)


def above(prefix: str) -> list[str]:
    """Every prefix of a path from none at all to itself.

    >>> above("user/preferences")
    ['', 'user', 'user/preferences']
    """
    parts = prefix.split("/") if prefix else []
    return ["/".join(parts[:n]) for n in range(len(parts) + 1)]


def history(members: Iterable[Memory], this: str, as_of: datetime | None) -> list[Stage]:
    """The statements about one thing, the newest first. as_of: a moment, of which it is told what was believed then."""
    known = list(members)
    then = replay.current_at(known, as_of) if as_of else None
    return [
        Stage(m, _state(m), m.is_current, m.memory_id == this, then is not None and m.memory_id == then.memory_id)
        for m in reversed(known)
    ]


def replaced(members: Sequence[Memory], this: str) -> list[Memory]:
    """Those of a history that this one took the place of, directly or through others, the newest first."""
    found: list[Memory] = []
    for memory in reversed(members):
        if memory.superseded_by == this and _state(memory) == "replaced":
            found.append(memory)
            this = memory.memory_id
    return found


def _state(memory: Memory) -> str:
    if memory.retired:
        return "set aside"
    if memory.superseded_by is None:
        return "believed now"
    if memory.ended_at is not None and memory.ended_at > memory.stated_at:
        return "replaced"
    return "never believed: something more trusted was said"


def fading(memory: Memory, now: datetime) -> str:
    """How strongly a memory is recalled, and why.

    What was just said has its full weight, what nobody used for 30 days half of it.
    """
    if memory.pinned:
        return "It is pinned: it does not fade."
    weight = decay.decay(memory, now)
    renewed = "used or said again" if memory.n_used or memory.n_stated > 1 else "stated"
    days = (now - (memory.renewed_at or memory.stated_at)).days
    when = "today" if days < 1 else "yesterday" if days < 2 else f"{days} days ago"
    return f"It was last {renewed} {when}: among equals it weighs {weight:.0%} in recall. Only use renews it."


def question(memory: Memory) -> str:
    """A message for which a memory is to be recalled: its own words, as somebody would ask for them."""
    return f"What do we know about this: {text.one_line(mask(memory.text), 160)}"
