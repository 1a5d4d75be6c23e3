"""One alert for as long as something is wrong: `run/alert` is there while it is. Standard library only."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from perdure.capture import log, outbox
from perdure.capture.files import make_folder, replace
from perdure.capture.rules import Rules
from perdure.errors import PerdureError


def settle(home: Path, problems: Sequence[str]) -> bool:
    """Raise the alert or end it, as the problems say; whether that changed anything. The same incident is one alert."""
    known = current(home)
    if bool(known) == bool(problems):
        return False
    if problems:
        make_folder(_place(home).parent)
        replace(_place(home), json.dumps({"problems": list(problems), "told": False}).encode(), sync=False)
        log.note(home, "alert", problems=list(problems))
    else:
        _place(home).unlink(missing_ok=True)
        log.note(home, "alert-over")
    return True


def of_outbox(rules: Rules) -> str:
    """What the person is to be told now of an outbox that does not drain; once an incident, which ends when it has."""
    text = outbox.problem(
        rules.home / "outbox", max_bytes=rules.alarm_bytes, max_age_s=rules.alarm_age_s, now=datetime.now(UTC)
    )
    settle(rules.home, [text] if text else [])
    return untold(rules.home)


def current(home: Path) -> tuple[str, ...]:
    """What is wrong, as it was when the alert was raised; empty when nothing is."""
    return tuple(_listed(_read(home)))


def untold(home: Path) -> str:
    """One line for the person, until they were told of this incident; then ""."""
    body = _read(home)
    if not body or body.get("told"):
        return ""
    return f"Perdure: {'; '.join(_listed(body))}. `perdure doctor` says more."


def mark_told(home: Path) -> None:
    """Count the incident as told."""
    body = _read(home)
    if not body or body.get("told"):
        return
    with contextlib.suppress(OSError, PerdureError):
        replace(_place(home), json.dumps({**body, "told": True}).encode(), sync=False)


def _read(home: Path) -> dict[str, object]:
    try:
        body = json.loads(_place(home).read_bytes())
    except (OSError, ValueError):
        return {}
    return body if isinstance(body, dict) else {}


def _listed(body: dict[str, object]) -> list[str]:
    found = body.get("problems")
    return [str(problem) for problem in found] if isinstance(found, list) else []


def _place(home: Path) -> Path:
    return home / "run" / "alert"
