"""The command `why`: what was put beside the last message of a session, and the reason for each text."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from perdure import text
from perdure.archive import injections
from perdure.archive.journal import JournalEvent
from perdure.errors import PerdureError, RecallMissing
from perdure.home import Home
from perdure.index.injections import CueReason
from perdure.surfaces.cli.common import Shell, command, format_count, format_time_and_age
from perdure.surfaces.web import recall_sources
from perdure.surfaces.web.cue_cards import CueCard, MissingCue
from perdure.surfaces.web.recall_sources import InjectionView


@command(
    "why",
    epilog="""\
  perdure why                      the last recall of all sessions
  perdure why --session 5f0c       the last recall of one session
  perdure why --json""",
)
@click.option("--session", help="Show the last recall of this session (the beginning of its id).")
@click.option("--explain", is_flag=True, help="Show the scores, and the time that each step took.")
def why_command(shell: Shell, session: str | None, explain: bool) -> None:
    """Show the last recall that went into a session: the message, the memories and turns beside it, and the reason for
    each.
    """
    with shell.open_home() as home:
        event = _find_last_injection(home, session)
        with contextlib.suppress(PerdureError):  # then the message may be missing
            home.upkeep.index_all()
        injection = home.memories.injections.get(event.data["nonce"])
        moment = recall_sources.to_moment(injection)
        prompt = recall_sources.find_messages(home, [moment]).get(moment)
        view = recall_sources.read_injection(home, injection, prompt.text if prompt else "")
    cues = [_build_why(reason, card) for reason, card in zip(injection.reasons, view.cards, strict=True)]
    if shell.as_json:
        shell.print_json({**event.data, "at": event.happened_at, "message": view.message or None, "cues": cues})
        return
    _print_why(shell, view, cues, explain=explain)


def _build_why(reason: CueReason, card: CueCard | MissingCue) -> dict[str, Any]:
    """Return the numbers of a cue, its words as they are now, its origin, and why it was chosen; no words if it is
    forgotten.
    """
    numbers = {"turn": reason.cue, "score": reason.score, "legs": reason.legs, "n_tokens": reason.n_tokens}
    if isinstance(card, MissingCue):
        return {**numbers, "text": ""}
    origin = {"project": card.project, "said_by": card.said_by, "stated_at": card.cue.stated_at}
    return {**numbers, "text": card.cue.text, **origin, "why": card.why}


def _print_why(shell: Shell, view: InjectionView, cues: Sequence[dict[str, Any]], *, explain: bool) -> None:
    injection, now = view.injection, datetime.now(UTC)
    agent = f", agent {injection.agent}" if injection.agent else ""
    session_text = f"{injection.runtime} session {injection.session}{agent}"
    shell.out.print(f"{format_time_and_age(injection.at, now)} · {session_text}", style="bold", markup=False)
    if view.message:
        shell.out.print(f'message: "{text.one_line(view.message, 200)}"', markup=False)
    cost_text = f"{format_count(injection.n_tokens, 'token')}, {injection.took_ms:.0f} ms"
    shell.out.print(f"{format_count(len(cues), 'text')} put beside it: {cost_text}", markup=False)
    if explain:
        shell.out.print(f"milliseconds: {_format_values(injection.timings_ms)}", style="dim", markup=False)
    if injection.degraded:
        shell.note(f"Without: {', '.join(injection.degraded)}.")
    for number, cue in enumerate(cues, start=1):
        if not cue["text"]:
            shell.out.print(f"\n{number}. {_shorten_id(cue['turn'])}  (forgotten)", style="dim", markup=False)
            continue
        names = (cue["said_by"], text.shorten_project(cue["project"]), format_time_and_age(cue["stated_at"], now))
        header = "  ".join(filter(None, (*names, _shorten_id(cue["turn"]))))
        shell.out.print(f"\n{number}. {header}", markup=False)
        shell.out.print(f"   {text.one_line(cue['text'], 200)}", style="dim", markup=False)
        shell.out.print(f"   because it {'; '.join(cue['why']) or 'matches best'}", style="yellow", markup=False)
        if explain:
            shell.out.print(f"   score {cue['score']:.2f}: {_format_values(cue['legs'])}", style="dim", markup=False)


def _find_last_injection(home: Home, session: str | None) -> JournalEvent:
    """Return the last injection (into a session). Raises RecallMissing."""
    for event in reversed(home.journal().read(type_=injections.EVENT_TYPE)):
        if (
            "cues" in event.data
            and not injections.is_floor(event)
            and str(event.data["session"]).startswith(session or "")
        ):
            return event
    raise RecallMissing(f"no recall for session {session}" if session else "no session has had a recall yet")


def _shorten_id(name: str) -> str:
    """Shorten the id of a turn to what finds it; the id of a memory stays whole."""
    return name if name.startswith("mem-") else name[:8]


def _format_values(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in values.items())
