"""One alert for as long as something is wrong: the file `run/alert` exists while it is. Standard library only."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from perdure import log
from perdure.capture import enqueue
from perdure.capture.policy import CaptureRules
from perdure.disk import make_folder, replace_file
from perdure.errors import PerdureError


def update_alert(home: Path, problems: Sequence[str]) -> bool:
    """Raise the alert if there are problems, otherwise end it; return True if that changed anything.

    One incident is one alert: problems that come later do not raise another.
    """
    current_problems = read_problems(home)
    if bool(current_problems) == bool(problems):
        return False
    if problems:
        make_folder(_to_alert_path(home).parent)
        replace_file(_to_alert_path(home), json.dumps({"problems": list(problems), "told": False}).encode(), sync=False)
        log.append_entry(home, "alert", problems=list(problems))
    else:
        _to_alert_path(home).unlink(missing_ok=True)
        log.append_entry(home, "alert-over")
    return True


def check_outbox(rules: CaptureRules) -> str:
    """Update the alert from the state of the outbox; return the line to show to the person now, or "".

    An outbox that does not drain is one incident, shown once; the incident ends when the outbox has drained.
    """
    text = enqueue.describe_problem(
        rules.home / "outbox", max_bytes=rules.alarm_bytes, max_age_s=rules.alarm_age_s, now=datetime.now(UTC)
    )
    update_alert(rules.home, [text] if text else [])
    return read_unshown_notice(rules.home)


def read_problems(home: Path) -> tuple[str, ...]:
    """Return the problems as they were when the alert was raised; empty when there is no alert."""
    return tuple(_get_problems(_read_alert(home)))


def read_unshown_notice(home: Path) -> str:
    """Return one line for the person, until it was shown for this incident; then ""."""
    state = _read_alert(home)
    if not state or state.get("told"):
        return ""
    return f"Perdure: {'; '.join(_get_problems(state))}. `perdure doctor` shows more."


def mark_shown(home: Path) -> None:
    """Note that the person was shown this incident."""
    state = _read_alert(home)
    if not state or state.get("told"):
        return
    with contextlib.suppress(OSError, PerdureError):
        replace_file(_to_alert_path(home), json.dumps({**state, "told": True}).encode(), sync=False)


def _read_alert(home: Path) -> dict[str, object]:
    try:
        state = json.loads(_to_alert_path(home).read_bytes())
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def _get_problems(state: dict[str, object]) -> list[str]:
    problems = state.get("problems")
    return [str(problem) for problem in problems] if isinstance(problems, list) else []


def _to_alert_path(home: Path) -> Path:
    return home / "run" / "alert"
