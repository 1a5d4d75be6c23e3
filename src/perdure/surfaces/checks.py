"""What `doctor` and `status` say on every machine, whether it keeps a home or asks one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from perdure.config import ServerConfig
from perdure.surfaces.amounts import size
from perdure.surfaces.moments import day

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


def address(server: ServerConfig, state: dict[str, Any] | None) -> str:
    """Where a home answers over HTTP: by its own word where it runs, else as it is set; empty where it does not."""
    said = str((state or {}).get("http") or server.http)
    return said if not said or "://" in said else f"{'https' if server.tls_certificate else 'http'}://{said}"
