"""`/recall/try` and `/context`: what a model would be told now. Nothing of it is noted."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from perdure import live
from perdure.access import fence
from perdure.access.redact import mask
from perdure.context import Context, Part
from perdure.errors import UsageError
from perdure.recall.tuning import DEFAULT
from perdure.surfaces import moments
from perdure.surfaces.page import addresses, cues, gathered
from perdure.surfaces.page.cues import Lacked, Told
from perdure.surfaces.page.gathered import Message
from perdure.surfaces.page.render import clean, key
from perdure.surfaces.page.views import recall
from perdure.surfaces.page.visits import Shown, View, Visit
from perdure.types import Recalled


def trying(visit: Visit) -> Shown:
    """Recall for a message as a model would be told, with what was passed over; `of` takes the message of a turn."""
    asked = _asked(visit)
    wanted = visit.query.get("why_not", "").strip()
    values: dict[str, Any] = {
        "title": "Try recall", "message": clean(asked.text), "project": key(asked.project or ""), "found": None,
        "error": "", "choices": _choices(visit, asked.project), "of": visit.query.get("of", ""), "wanted": wanted,
        "as_of": visit.query.get("as_of", "").strip(), "budget": DEFAULT.max_tokens,
    }  # fmt: skip
    try:
        as_of = moments.moment(values["as_of"] or None, now=visit.now)
    except UsageError as error:
        return Shown("try.html", {**values, "error": str(error)}, 400)
    if asked.text.strip():
        values |= _recalled(visit, asked, as_of)
    return Shown("try.html", values)


def _asked(visit: Visit) -> Message:
    """The message: as it is given, or that of a turn as it would be asked in its session now. Raises NotFound."""
    if turn := visit.query.get("of", ""):
        return gathered.message(visit.home, turn)
    return Message(visit.query.get("message", ""), _project(visit))


def _project(visit: Visit) -> str | None:
    """The project that an address means, of those of which the visitor may read anything."""
    return addresses.named(visit.query.get("project", ""), visit.home.projects) or None


def _choices(visit: Visit, project: str | None) -> list[tuple[str, str]]:
    """The visitor's projects, and the one that is chosen."""
    known = {path for path in (*visit.home.projects(is_own=True), project) if path}
    return [("", "everywhere"), *addresses.options(sorted(known))]


def _recalled(visit: Visit, asked: Message, as_of: datetime | None) -> dict[str, Any]:
    found = visit.home.recall(
        asked.text, now=visit.now.astimezone(), cwd=asked.project, session=asked.session, as_of=as_of, explain=True,
        mode=recall.mode(visit),
    )  # fmt: skip
    block, told = live.block(found.cues, fence.new_nonce()) if found.cues else ("", ())
    return {
        "found": found, "block": block, "cards": gathered.cards(visit.home, found, told),
        "n_tokens": sum(cue.n_tokens for cue in told), "steps": cues.steps(found.timings_ms),
        "took_ms": sum(found.timings_ms.values()), "lacked": _lacked(visit, found, asked.project),
        **recall.passed_over(visit, found),
    }  # fmt: skip


def _lacked(visit: Visit, found: Recalled, project: str | None) -> list[Lacked]:
    """Why what is asked about is not among what is told."""
    if not (wanted := visit.query.get("why_not", "").strip()):
        return []
    told = Told(project=project)
    meant = gathered.meant(visit.home, wanted)
    said = [Lacked(name, mask(one.text), cues.lacked(one, found, told)) for name, one in meant.items()]
    return said or [cues.nowhere(wanted)]


# the whole context ----------------------------------------------------------------------------------------------


def context(visit: Visit) -> Shown:
    """Everything that a model would read for a message, part by part, with what each costs."""
    message, project = visit.query.get("message", ""), _project(visit)
    values: dict[str, Any] = {
        "title": "Context", "message": clean(message), "project": key(project or ""),
        "choices": _choices(visit, project), "made": None,
    }  # fmt: skip
    if message.strip():
        made = visit.home.context(message, cwd=project, now=visit.now.astimezone(), mode=recall.mode(visit))
        values |= _shared_out(made)
    return Shown("context.html", values)


def _shared_out(made: Context) -> dict[str, Any]:
    """The parts on both sides of the line up to which a provider's cache holds them."""
    kept = [part for part in made.parts if part.is_cacheable]
    fresh = [part for part in made.parts if not part.is_cacheable]
    return {
        "made": made, "sides": ((True, kept, _n_tokens(kept)), (False, fresh, _n_tokens(fresh))),
        "bars": cues.steps({part.name: float(part.n_tokens) for part in made.parts}),
    }  # fmt: skip


def _n_tokens(parts: list[Part]) -> int:
    return sum(part.n_tokens for part in parts)


ROWS: tuple[View, ...] = (
    View("GET", "/recall/try", trying, nav="recall"),
    View("GET", "/context", context, nav="recall"),
)
