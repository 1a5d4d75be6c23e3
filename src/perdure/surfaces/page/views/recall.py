"""`/recall`: what was put beside messages and what came of it, where nothing was, and why something was not told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from perdure import text
from perdure.access.redact import mask
from perdure.capture import log
from perdure.index.exchanges import Asked
from perdure.index.injections import Injection
from perdure.memories.use import USED
from perdure.surfaces import moments
from perdure.surfaces.page import cues, gathered
from perdure.surfaces.page.cues import Lacked, Told
from perdure.surfaces.page.gathered import Message, Moment
from perdure.surfaces.page.visits import Shown, View, Visit, n_pages
from perdure.types import Recalled

_PAGE = 20
_SILENT = 60  # messages beside which nothing was put, that are shown
_LOG_BYTES = 600_000  # of the log that are looked through for them: about two thousand answers
_TITLE_CHARS = 120  # of a message that is the title of its page
_CANDIDATES = 12  # that were passed over
_QUIET = ("silent", "skipped", "late", "failed")  # outcomes of an answer that put nothing beside a message


@dataclass(frozen=True, slots=True)
class Row:
    """One injection in the list."""

    one: Injection
    asked: Asked | None
    outcome: str
    is_used: bool


class Silence(NamedTuple):
    """A message beside which nothing was put."""

    at: datetime
    runtime: str
    session: str
    outcome: str
    why: str
    took_ms: float
    asked: Asked | None


# what was told --------------------------------------------------------------------------------------------------


def newest(visit: Visit) -> Shown:
    """The newest injections, page by page; of one session, or that told one turn or memory."""
    chosen = {name: visit.query.get(name, "") for name in ("session", "cue")}
    n = _PAGE * n_pages(visit.query)
    found = visit.home.injections.newest(**chosen, before=visit.query.get("before", ""), limit=n + 1)
    rows = listed(visit, found[:n])
    values = {
        "title": "Recall", "rows": rows, "more": _after(rows, chosen) if len(found) > n else "", **chosen,
        "is_first": "before" not in visit.query, "about": _about(visit, chosen["cue"]),
    }  # fmt: skip
    return Shown("recall.html", values)


def listed(visit: Visit, found: Sequence[Injection]) -> list[Row]:
    """Injections as a list shows them."""
    asked = gathered.asked(visit.home, map(gathered.moment, found))
    return [Row(one, asked.get(gathered.moment(one)), cues.outcome(one), bool(one.used)) for one in found]


def _after(rows: Sequence[Row], chosen: Mapping[str, str]) -> str:
    """The address of what follows."""
    wanted = {name: value for name, value in chosen.items() if value}
    return "/recall?" + urlencode({**wanted, "before": rows[-1].one.nonce})


def _about(visit: Visit, cue: str) -> str:
    """The words of the turn or memory that is asked about."""
    if not cue:
        return ""
    found = gathered.subjects(gathered.known(visit.home, [cue]))
    return mask(found[cue].text) if cue in found else "(no longer there)"


# where nothing was told -----------------------------------------------------------------------------------------


def silent(visit: Visit) -> Shown:
    """The newest messages beside which nothing was put, and why; as far as the log still has them."""
    lines = log.newest(visit.server.home, what="answered", n_bytes=_LOG_BYTES)
    own = [line for line in lines if _is_silence(line, visit.home.user)][:_SILENT]
    asked = gathered.asked(visit.home, map(_moment, own))
    return Shown("silent.html", {"title": "Recall", "silences": [_silence(line, asked) for line in own]})


def _is_silence(line: Mapping[str, Any], user: str) -> bool:
    """Whether a line is of a message of this user's beside which nothing was recalled; a floor may have been given."""
    is_silent = line.get("outcome") in _QUIET or "why" in line
    return line.get("user") == user and line.get("kind") == "prompt" and is_silent


def _moment(line: Mapping[str, Any]) -> Moment:
    return Moment(str(line["client"]), str(line["session"]), "", datetime.fromisoformat(line["at"]))


def _silence(line: Mapping[str, Any], asked: Mapping[Moment, Asked]) -> Silence:
    at = _moment(line)
    why = str(line.get("why") or {"late": "it took too long", "failed": "it failed"}.get(line["outcome"], ""))
    outcome = line["outcome"] if line["outcome"] in _QUIET else "silent, with a floor"
    return Silence(at.at, at.runtime, at.session, outcome, why, float(line.get("took_ms", 0)), asked.get(at))


# one injection --------------------------------------------------------------------------------------------------


def one(visit: Visit) -> Shown:
    """One injection: the block, each cue and what became of it; what was passed over, where that is asked."""
    found = visit.home.injections.get(visit.path["nonce"])
    asked = gathered.asked(visit.home, [gathered.moment(found)]).get(gathered.moment(found))
    message = gathered.message(visit.home, asked.turn_id) if asked else gathered.Message()
    seen = gathered.seen(visit.home, found, message.text)
    block, is_exact = gathered.block(visit.home, seen, asked.turn_id if asked else "")
    wanted = visit.query.get("why_not", "").strip()
    values = {
        "title": text.one_line(message.text, _TITLE_CHARS) or "What was recalled", "one": found, "asked": asked,
        "message": message.text, "is_long": len(message.text) > _TITLE_CHARS, "cards": seen.cards, "block": block,
        "is_exact": is_exact, "steps": cues.steps(found.timings_ms), "outcome": cues.outcome(found),
        "wanted": wanted, "used_from": USED, "again": None, "lacked": [], "passed_over": [],
    }  # fmt: skip
    if message.text and (wanted or "again" in visit.query):
        values |= _again(visit, found, message)
    return Shown("injection.html", values)


def _again(visit: Visit, found: Injection, message: Message) -> dict[str, Any]:
    """The same message asked once more, as of now, with the reasons of what is not told; and of what is asked about."""
    now = visit.home.recall(
        message.text, now=visit.now.astimezone(), cwd=message.project, session=message.session, explain=True,
        mode=mode(visit),
    )  # fmt: skip
    wanted = visit.query.get("why_not", "").strip()
    return {"again": now, **passed_over(visit, now), "lacked": _lacked(visit, found, wanted, now, message.project)}


def _lacked(visit: Visit, found: Injection, wanted: str, now: Recalled, project: str | None) -> list[Lacked]:
    """Why what some words or an id mean was not told in this session at that time."""
    meant = gathered.meant(visit.home, wanted) if wanted else {}
    names = [reason.cue for reason in found.reasons]
    said = []
    for name, subject in meant.items():
        if name in names:
            why = f"It was told in this very recall, as cue {names.index(name) + 1}."
        else:
            why = cues.lacked(subject, now, Told(_earlier(visit, found, name), project))
        said.append(Lacked(name, mask(subject.text), why))
    return said or ([cues.nowhere(wanted)] if wanted else [])


def _earlier(visit: Visit, found: Injection, name: str) -> str:
    """When the session had been told something before, in words; "" where it had not."""
    if not found.session:
        return ""
    before = visit.home.injections.newest(session=found.session, cue=name, before=found.nonce, limit=1)
    return f"at {moments.day(before[0].at)}" if before else ""


def mode(visit: Visit) -> str | None:
    """How to recall: by words alone until the model is loaded, so that nobody waits for it."""
    return None if visit.server.is_warm() else "keyword"


def passed_over(visit: Visit, found: Recalled) -> dict[str, Any]:
    """The best candidates that were not told, with their reasons, and how many there were."""
    names = list(found.passed_over)[: 2 * _CANDIDATES]
    known = gathered.subjects(gathered.known(visit.home, names))
    return {
        "passed_over": cues.passed_over(found, known, limit=_CANDIDATES), "n_passed_over": len(found.passed_over),
    }  # fmt: skip


ROWS: tuple[View, ...] = (
    View("GET", "/recall", newest, nav="recall"),
    View("GET", "/recall/silent", silent, nav="recall"),
    View("GET", "/recall/{nonce}", one, nav="recall"),
)
