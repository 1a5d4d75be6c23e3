"""The last recall that a session was given, with the reason for each text: for the command `why` and for HTTP."""

from __future__ import annotations

import contextlib
from typing import Any

from perdure.archive import injections
from perdure.archive.journal import JournalEvent
from perdure.errors import PerdureError, RecallMissing
from perdure.home import Home
from perdure.index.injections import CueReason
from perdure.surfaces import recall_sources
from perdure.surfaces.cue_cards import CueCard, MissingCue


def describe_last_recall(home: Home, session: str = "") -> dict[str, Any]:
    """Return the last recall that went into a session: as the journal recorded it, with `at`, the `message`, and each
    cue with its words as they are now. Raises RecallMissing.

    session: the beginning of the session's id; of all sessions without it.
    """
    event = _find_last_injection(home, session)
    with contextlib.suppress(PerdureError):  # then the message may be missing
        home.upkeep.index_all()
    injection = home.memories.injections.get(event.data["nonce"])
    moment = recall_sources.to_moment(injection)
    prompt = recall_sources.find_messages(home, [moment]).get(moment)
    view = recall_sources.read_injection(home, injection, prompt.text if prompt else "")
    cues = [_build_why(reason, card) for reason, card in zip(injection.reasons, view.cards, strict=True)]
    return {**event.data, "at": event.happened_at, "message": view.message or None, "cues": cues}


def _build_why(reason: CueReason, card: CueCard | MissingCue) -> dict[str, Any]:
    """Return the numbers of a cue, its words as they are now, its origin, and why it was chosen; no words if it is
    forgotten.
    """
    numbers = {"turn": reason.cue, "score": reason.score, "legs": reason.legs, "n_tokens": reason.n_tokens}
    if isinstance(card, MissingCue):
        return {**numbers, "text": ""}
    origin = {"project": card.project, "said_by": card.said_by, "stated_at": card.cue.stated_at}
    return {**numbers, "text": card.cue.text, **origin, "why": list(card.why)}


def _find_last_injection(home: Home, session: str) -> JournalEvent:
    """Return the last injection (into a session). Raises RecallMissing."""
    for event in reversed(home.journal().read(type_=injections.EVENT_TYPE)):
        if "cues" in event.data and not injections.is_floor(event) and str(event.data["session"]).startswith(session):
            return event
    raise RecallMissing(f"no recall for session {session}" if session else "no session has had a recall yet")
