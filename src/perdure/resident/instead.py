"""Asking the resident home instead of opening the home here: the same answer, without loading what it takes.

None wherever the answer could be another than one's own: nobody serves, or another version or for another user; its
model is not loaded yet; something that was captured is not indexed yet, or a part failed. Who asked does it alone then.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

import perdure
from perdure import config as settings
from perdure.capture import wire
from perdure.types import Recalled

LIMIT_S = 2.0  # a warm recall takes a twentieth of it; opening the home here does not take longer


def recall(home: Path, message: str, *, cwd: str | None, all_projects: bool, mode: str | None) -> Recalled | None:
    """What `Home.recall` says, by the resident home. Raises ConfigFault, as opening the home would."""
    if not wire.address(home).exists() or any((home / "outbox").glob("*.delta")):
        return None
    request: dict[str, Any] = {
        "op": "recall", "message": message, "cwd": cwd, "all_projects": all_projects,
        "user": settings.load(home).user, "now": datetime.now().astimezone().isoformat(),
        "limit_ms": int(LIMIT_S * 1000),
    }  # fmt: skip
    if mode is not None:
        request["mode"] = mode
    try:
        said = wire.ask(home, request, timeout_s=LIMIT_S)
        if said.get("version") != perdure.__version__ or not (said.get("is_warm") or mode):
            return None
        found = msgspec.convert(said, Recalled)
    except (OSError, ValueError):  # nobody answers, or nothing that is one; msgspec's errors are ValueErrors
        return None
    return None if found.degraded else found
