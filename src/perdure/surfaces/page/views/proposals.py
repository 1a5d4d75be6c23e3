"""`/proposals`: what could be tidied up among the memories, side by side with what would become of it.

Looking through all of them takes about a second for each 2,000 memories, so the page comes first, and what was found
follows. Nothing changes before it is applied, nothing is deleted, and the last application can be taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perdure.archive.journal import Event
from perdure.errors import NotFound, UsageError
from perdure.index.browse import Wanted
from perdure.memories.consolidation import KINDS, Kind, Proposal
from perdure.mind import consolidate
from perdure.surfaces.page import belief
from perdure.surfaces.page.visits import Answer, Moved, Shown, View, Visit
from perdure.types import Memory

_SHOWN = 100  # proposals on one page
WORDS: dict[Kind, tuple[str, str]] = {  # kind -> (one of it, what it is)
    "chain": ("Contradiction", "Two memories say different things about one thing. The newer is believed, the older "
              "becomes its history."),
    "lift": ("Repetition", "Several memories tell of the same thing on other days. One general memory takes their "
             "place and leads to all of them."),
    "merge": ("Duplicate", "These say the same. One takes their place, with the sources of all."),
    "split": ("Two in one", "One memory says several things. Each becomes a memory of its own."),
    "retire": ("Never used", "Agents were told this again and again, and no answer ever rested on it. It is set "
               "aside."),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Side:
    """One proposal as two columns."""

    proposal: Proposal
    name: str
    why: str
    before: tuple[tuple[Memory, str], ...]  # (what is there, what becomes of it)
    after: tuple[tuple[str, str], ...]  # (words that are believed then, what of them)


def beside(proposal: Proposal) -> Side:
    """A proposal as two columns: what is believed now, and what would be."""
    name, why = WORDS[proposal.kind]
    before = tuple((memory, _fate(proposal, memory)) for memory in proposal.memories)
    return Side(proposal, name, why, before, tuple(_after(proposal)))


def _fate(proposal: Proposal, memory: Memory) -> str:
    if memory.memory_id in proposal.retires:
        return "is set aside"
    return "becomes history" if proposal.kind == "chain" and memory == proposal.memories[0] else "stays"


def _after(proposal: Proposal) -> list[tuple[str, str]]:
    if proposal.makes:
        return [(made.text, f"{made.path} · {len(made.made_from)} behind it") for made in proposal.makes]
    if proposal.kind == "chain":
        newest = proposal.memories[-1]
        return [(newest.text, f"believed at {proposal.memories[0].path}")]
    kept = [memory for memory in proposal.memories if memory.memory_id not in proposal.retires]
    return [(memory.text, "stays as it is") for memory in kept]


# views ----------------------------------------------------------------------------------------------------------


def proposals(visit: Visit) -> Shown:
    """The page, which asks for what was found as soon as it is there."""
    n = visit.home.memories.count(Wanted())
    return Shown("proposals.html", {"title": "Proposals", "n": n, "found": None, "kind": _kind(visit)})


def found(visit: Visit) -> Shown:
    """The same with everything that could be tidied up."""
    kind, every = _kind(visit), visit.home.proposals()
    chosen = [one for one in every if kind in ("", one.kind)]
    last = consolidate.last(visit.home.memories)
    values = {
        "title": "Proposals", "found": [beside(one) for one in chosen[:_SHOWN]], "n_more": len(chosen[_SHOWN:]),
        "kind": kind, "kinds": _counted(every), "n_all": len(every), "last": _told(last) if last else None,
        "n": visit.home.memories.count(Wanted()), "belief": belief,
    }  # fmt: skip
    return Shown("proposals.html", values)


def _kind(visit: Visit) -> str:
    kind = visit.query.get("kind", "")
    if kind and kind not in KINDS:
        raise UsageError(f"kind {kind!r} (known: {', '.join(KINDS)})")
    return kind


def _counted(every: Sequence[Proposal]) -> list[tuple[str, str, int]]:
    """(kind, its name, how many) of each kind of which there are any."""
    counts = [(kind, WORDS[kind][0], sum(one.kind == kind for one in every)) for kind in KINDS]
    return [row for row in counts if row[2]]


def _told(event: Event) -> dict[str, Any]:
    """What a consolidation did, and when."""
    kinds: Sequence[Kind] = [kind for _, kind in event.data["proposals"]]
    names = [f"{sum(one == kind for one in kinds)} × {WORDS[kind][0].lower()}" for kind in KINDS if kind in kinds]
    return {"event": event.key, "at": event.happened_at, "what": ", ".join(names)}


def apply(visit: Visit) -> Answer:
    """Apply what was ticked, or all that was shown."""
    ids = visit.lists.get("shown" if visit.form.get("all") else "pick", ())
    if not ids:
        return Moved("/proposals", "Nothing was changed: tick what is to be applied.")
    try:
        done = visit.home.consolidate(list(ids))
    except NotFound:
        return Moved("/proposals", "Nothing was changed: the memories have changed since. Look at the proposals anew.")
    n = len(done.proposals)
    return Moved("/proposals", f"Applied {n} {'proposal' if n == 1 else 'proposals'}. It can be taken back below.")


def undo(visit: Visit) -> Answer:
    """Take back the application that the form names."""
    try:
        done = visit.home.undo(visit.form.get("event", ""))
    except UsageError as error:
        return Moved("/proposals", f"Nothing was changed: {error}")
    left = f" {len(done.left)} were changed since and stay as they are." if done.left else ""
    return Moved("/proposals", f"Taken back: {len(done.memories)} memories are as they were.{left}")


ROWS: tuple[View, ...] = (
    View("GET", "/proposals", proposals, nav="proposals"),
    View("GET", "/proposals/found", found, nav="proposals", desk="slow"),
    View("POST", "/proposals/apply", apply, nav="proposals", desk="write"),
    View("POST", "/proposals/undo", undo, nav="proposals", desk="write"),
)
