"""Ask the resident home instead of opening the home in this process: the same answer, sooner.

None if the answer could differ from one's own: nobody serves the home, another version or another user
does, its model is not loaded yet, a capture is not indexed yet, or a part failed. The caller then answers
for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import perdure
from perdure.capture import events, policy
from perdure.errors import PerdureError
from perdure.service import lock

if TYPE_CHECKING:
    from perdure.types import Recalled

ANSWER_LIMIT_S = 2.0  # a warm recall takes a twentieth of it; opening the home here takes no longer than this


def ask_recall(
    home: Path,
    message: str,
    *,
    cwd: str | None,
    all_projects: bool,
    mode: str | None,
    meanwhile: Callable[[], object] | None = None,
) -> Recalled | None:
    """Return the answer of `Home.recall` from the resident home, or None.

    meanwhile: what to do until it answers. Raises ConfigFault, as opening the home would.
    """
    if not events.to_socket_path(home).exists() or any((home / "outbox").glob("*.delta")):
        return None
    request: dict[str, Any] = {
        "op": "recall",
        "message": message,
        "cwd": cwd,
        "all_projects": all_projects,
        "user": policy.load_rules(home).user,
        "now": datetime.now().astimezone().isoformat(),
        "limit_ms": int(ANSWER_LIMIT_S * 1000),
    }
    if mode is not None:
        request["mode"] = mode
    try:
        answer = events.ask_resident(home, request, timeout_s=ANSWER_LIMIT_S, meanwhile=meanwhile)
        if answer.get("version") != perdure.__version__ or not (answer.get("is_warm") or mode):
            return None
        import msgspec

        from perdure.types import Recalled  # with msgspec 10 ms, which the caller can spend meanwhile

        recalled = msgspec.convert(answer, Recalled)
    except (OSError, ValueError):  # no answer, or an invalid one; msgspec's errors are ValueErrors
        return None
    return None if recalled.degraded else recalled


def ask_health(home: Path, *, timeout_s: float = 2.0) -> dict[str, Any] | None:
    """Ask the resident process of a home for its health; None if there is none.

    If it does not answer, the result says so.
    """
    process = lock.find_resident(home)
    if process is None:
        return None
    try:
        return events.ask_resident(home, {"op": "health"}, timeout_s=timeout_s)
    except (OSError, ValueError, PerdureError) as error:
        problem = f"process {process.pid} serves this home but does not answer ({type(error).__name__})"
        return {"healthy": False, "problems": [problem], "pid": process.pid}
