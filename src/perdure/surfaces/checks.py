"""The parts of `doctor` and `status` that every machine shares, with a local home or with a remote one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from perdure.config import ServerConfig
from perdure.surfaces.units import format_size, format_time

LOW_DISK_BYTES = 500_000_000
Grade = Literal["ok", "notice", "problem"]


@dataclass(frozen=True)
class HealthCheck:
    """The result of one check."""

    name: str
    grade: Grade
    found: str
    advice: str = ""


def describe_resident(state: dict[str, Any] | None) -> str:
    """Describe the resident home on one line, from the state that it reports."""
    if state is None:
        return "none: `perdure serve`"
    if state["problems"]:
        return f"process {state['pid']}, not well: {'; '.join(state['problems'])}"
    lanes = ", ".join(f"{lane} {n:,}" for lane, n in state.get("embedding", {}).items() if n)
    queue_text = f", embedding {lanes}" if lanes else ""
    since = format_time(datetime.fromisoformat(state["since_at"]))
    return f"process {state['pid']} since {since}, {format_size(state['rss_bytes'])} of memory{queue_text}"


def make_http_address(server: ServerConfig, state: dict[str, Any] | None) -> str:
    """Return the HTTP address that a running home reports, else the configured one; empty if it serves none."""
    address_text = str((state or {}).get("http") or server.http)
    return (
        address_text
        if not address_text or "://" in address_text
        else f"{'https' if server.tls_certificate else 'http'}://{address_text}"
    )
