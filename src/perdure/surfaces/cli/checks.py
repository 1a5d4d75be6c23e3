"""What `doctor` and `status` say on every machine, whether it keeps a home or asks one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from perdure.surfaces.cli.common import day, size

LOW_DISK_BYTES = 500_000_000
Grade = Literal["ok", "notice", "problem"]


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    grade: Grade
    found: str
    advice: str = ""


def resident_line(state: dict[str, Any] | None) -> str:
    """What the resident home says of itself, on one line."""
    if state is None:
        return "none: `perdure serve`"
    if state["problems"]:
        return f"process {state['pid']}, not well: {'; '.join(state['problems'])}"
    lanes = ", ".join(f"{lane} {n:,}" for lane, n in state.get("embedding", {}).items() if n)
    waiting = f", embedding {lanes}" if lanes else ""
    since = day(datetime.fromisoformat(state["since_at"]))
    return f"process {state['pid']} since {since}, {size(state['rss_bytes'])} of memory{waiting}"
