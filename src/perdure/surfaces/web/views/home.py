"""`/`: what was learnt today, what was recalled and whether it helped, what waits, what clients delete.

Today begins at midnight in the zone of this machine. Numbers of the whole home are for its admins; everything
else is the visitor's own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from perdure import environ
from perdure.archive import memory_events
from perdure.archive.journal import JournalEvent
from perdure.clients import retention
from perdure.clients.retention import Retention
from perdure.errors import IndexFault
from perdure.home import Home
from perdure.index import catchup
from perdure.index.injections import Injection
from perdure.index.memory_rows import ListRange, MemoryFilter
from perdure.surfaces.units import describe_retention, format_count
from perdure.surfaces.web import memory_display
from perdure.surfaces.web.views import forest, memories, recall
from perdure.surfaces.web.visits import HtmlPage, View, Visit
from perdure.types import Memory

_MAX_LEARNT = 5
_MAX_RECALLS = 4
_MAX_COUNTED = 500  # recalls of one day that are counted
_MAX_SESSIONS = 6
_WITHOUT_EFFECT = (("new", "retired"), ("retired", "restored"))  # changes that follow each other
CLIENT_NAMES = {
    "claude-code": "Claude Code", "codex": "Codex", "pi": "pi", "gemini-cli": "Gemini CLI", "opencode": "OpenCode",
    "qwen-code": "Qwen Code", "kimi-code": "Kimi Code", "cline": "Cline", "aider": "Aider",
}  # fmt: skip


class LearntMemory(NamedTuple):
    """A memory that was made or changed today."""

    memory: Memory
    change: str  # in words
    replaced: Memory | None = None  # the memory whose place it took


@dataclass(frozen=True, slots=True)
class RecallCounts:
    """The recalls of one day."""

    n_messages: int
    n_cues: int
    n_checked: int  # cues of recalls whose answer was checked
    n_used: int
    n_wrong: int  # labelled by a person


class WaitingItem(NamedTuple):
    """Something that is not done yet, and where it is decided or explained."""

    text: str
    note: str
    href: str


def show_home(visit: Visit) -> HtmlPage:
    """Show the first page."""
    values: dict[str, Any] = {"title": "Home", "belief": memory_display, "problems": _list_problems(visit)}
    values["n_behind"] = _count_behind(visit.home)
    with contextlib.suppress(IndexFault):
        return HtmlPage("home.html", {**values, **_collect_day(visit, values["n_behind"])})
    return HtmlPage("home.html", {**values, "is_empty": True})


def _count_behind(home: Home) -> int:
    """Count the visitor's own runs that are not indexed yet: all of them if there is no index."""
    try:
        return catchup.count_unprojected(home.index(), home.archive, home.user)
    except IndexFault:
        return home.archive.ledger.count_after(0, home.user)


def _collect_day(visit: Visit, n_behind: int) -> dict[str, Any]:
    home, midnight = visit.home, visit.now.astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
    newest = home.memories.injections.list_newest(limit=_MAX_COUNTED)
    injections = [injection for injection in newest if injection.at >= midnight]
    learnt = list_changes(home.memories.journal.read_since(midnight, memory_events.EVENT_TYPE))
    sessions = forest.list_newest_sessions(home, _MAX_SESSIONS)
    n_memories = home.memories.count(MemoryFilter())
    return {
        "is_empty": not sessions and not n_memories,
        "n_memories": n_memories,
        "n_learnt": len(learnt),
        "learnt": list(islice(_read_changes(visit, learnt), _MAX_LEARNT)),
        "earlier": [] if learnt else home.memories.list_page(MemoryFilter(), ListRange(0, 3), order="newest"),
        "counts": count_recalls(injections, home.memories.labels(midnight)),
        "recalls": recall.to_injection_rows(visit, newest[:_MAX_RECALLS]),
        "waiting": list(_list_waiting(visit, n_behind)),
        "can_count_proposals": n_memories <= memories.MAX_COUNTED,
        "sessions": sessions,
        "kept": _list_retentions(visit),
    }


# what was learnt ------------------------------------------------------------------------------------------------


def list_changes(events: Sequence[JournalEvent]) -> dict[str, str]:
    """Return memory id -> what happened to it in these events, newest first.

    A memory that is new stays new. What was made and retired, or retired and restored, is left out.
    """
    changes: dict[str, str] = {}
    for event in events:
        for op in event.data["ops"]:
            before, change = changes.pop(op["id"], ""), _describe_op(op)
            if (before, change) not in _WITHOUT_EFFECT:
                changes[op["id"]] = "new" if before == "new" else change
    return dict(reversed(changes.items()))


def _describe_op(op: Mapping[str, Any]) -> str:
    if op["op"] == "create":
        return "new"
    if op["op"] == "reinforce":
        return "said again"
    if "retired" in op:
        return "retired" if op["retired"] else "restored"
    return "changed"


def _read_changes(visit: Visit, changes: Mapping[str, str]) -> Iterator[LearntMemory]:
    own_memories = visit.home.memories
    for memory in own_memories.get_many(
        list(islice(changes, 4 * _MAX_LEARNT))
    ):  # some were forgotten or replaced since
        if memory.superseded_by is None:
            change = changes[memory.memory_id]
            replaced = memory_display.find_replaced(own_memories.history(memory.memory_id), memory.memory_id)
            yield LearntMemory(memory, change, replaced[0] if replaced and change == "new" else None)


# what was recalled ----------------------------------------------------------------------------------------------


def count_recalls(injections: Sequence[Injection], labels: Mapping[tuple[str, str], str]) -> RecallCounts:
    """Count the recalls of one day; a recall without a cue is a reminder and does not count."""
    told = [injection for injection in injections if injection.reasons]
    checked = [injection for injection in told if injection.used is not None]
    return RecallCounts(
        len(told),
        sum(len(injection.reasons) for injection in told),
        sum(len(injection.reasons) for injection in checked),
        sum(len(injection.used or ()) for injection in checked),
        sum((injection.nonce, reason.cue) in labels for injection in told for reason in injection.reasons),
    )


# what waits -----------------------------------------------------------------------------------------------------


def _list_problems(visit: Visit) -> list[str]:
    return list(_read_report(visit).get("problems", [])) if visit.identity.is_admin else []


def _read_report(visit: Visit) -> dict[str, Any]:
    """Return what the resident home reports of itself; nothing if it cannot be asked."""
    with contextlib.suppress(OSError):
        return dict(visit.server.read_health())
    return {}


def _list_waiting(visit: Visit, n_behind: int) -> Iterator[WaitingItem]:
    report = _read_report(visit)
    if visit.identity.is_admin and (n_captures := report.get("outbox", {}).get("files", 0)):
        yield WaitingItem(format_count(n_captures, "capture"), "to be archived: this takes seconds", "/health")
    if n_behind:
        yield WaitingItem(format_count(n_behind, "run"), "to be indexed: search does not find them yet", "/health")
    if n_chunks := visit.home.upkeep.count_unembedded():
        note = "to be embedded: search finds their words, not yet their meaning"
        yield WaitingItem(format_count(n_chunks, "piece") + " of text", note, "/health")
    if n_held := len(visit.home.memories.list_in_review()):
        yield WaitingItem(format_count(n_held, "drafted memory"), "for your review: not recalled before", "/proposals")
    if n_edits := len(visit.home.floor.list_proposals()):
        yield WaitingItem(format_count(n_edits, "proposed edit"), "of the floor: you decide", "/floor/proposals")


# what clients delete --------------------------------------------------------------------------------------------


def _list_retentions(visit: Visit) -> list[tuple[str, str, Retention]]:
    """Return (name, in words, retention) of each client whose sessions are here.

    For admins only: the settings are those of the user who runs this home.
    """
    if not visit.identity.is_admin:
        return []
    runtimes = visit.home.runs.names("runtime")
    user_home = environ.find_user_home()
    retentions = [
        retention.read_retention(client, user_home, environ.read_variable)
        for client in retention.SOURCES
        if client in runtimes
    ]
    return [(CLIENT_NAMES[item.client], describe_retention(item), item) for item in retentions]


VIEWS: tuple[View, ...] = (View("GET", "/", show_home, nav="home"),)
