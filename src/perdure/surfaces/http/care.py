"""Whether it works: liveness for a monitor, and an authenticated probe of the data path."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from perdure.errors import PerdureError
from perdure.surfaces.http.answers import API, Answer, Json, one
from perdure.surfaces.http.calls import Call


def alive(call: Call) -> Answer:  # noqa: ARG001 - it asks nothing
    """That the server answers, and nothing else."""
    return Answer({"alive": True})


def health(call: Call) -> Answer:
    """A real write, search and forget in a scratch home on the same disk, and how fresh the parts of this one are.

    503 when anything is wrong, so that a monitor need not read it.
    """
    started_s, problems = time.perf_counter(), []
    try:
        call.home.probe()
    except (PerdureError, OSError) as error:
        problems.append(f"the data path fails ({getattr(error, 'code', type(error).__name__)})")
    told = call.server.health()
    problems += told.get("problems", [])
    said: Json = {
        "healthy": not problems, "problems": problems, "checked_at": datetime.now(UTC),
        "probe_ms": (time.perf_counter() - started_s) * 1000, "waiting": call.server.depth(),
        "depth_before_submit": told.get("embedding", {}),
    }  # fmt: skip
    if call.identity.is_admin:
        said = {**told, **said}
    return Answer(one(said, {"self": f"{API}/health"}), 503 if problems else 200)
