"""What stands beside a message: recall, the answer to a hook, and a whole context.

Recall without a session notes nothing. With one, what is given is in that user's journal before it is given, so that it
is neither said twice nor taken in again from the transcript.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

import msgspec

from perdure import live
from perdure.access import fence
from perdure.archive import injected
from perdure.capture.wire import Event
from perdure.home import Home
from perdure.surfaces.http import runs, shapes
from perdure.surfaces.http.answers import API, Answer, Json, action, one
from perdure.surfaces.http.calls import Call
from perdure.types import Cue, Live, Recalled, RunView

SAID_NOTHING: Json = {"text": "", "notice": ""}
LATE: Json = {
    "block": "", "cues": [], "silent": "nothing was found in time", "n_tokens": 0, "timings_ms": {},
    "depth_before_submit": {}, "degraded": ["late"], "_links": {}, "next_actions": [],
}  # fmt: skip


def recall(call: Call) -> Answer:
    """The few turns and memories that matter for a message, as a block that can be put beside it."""
    asked, home, started_s = call.body, call.home, time.perf_counter()
    session = _held(home, asked) if asked.session else None
    found = home.recall(
        asked.message, cwd=place(asked.project, asked.cwd), all_projects=asked.all_projects,
        mode=asked.mode or call.mode(), as_of=asked.as_of,
        session=Live(asked.session, session.since_at) if session else None,
        already=session.turns if session else (), helper_s=min(1.0, asked.limit_ms * live.HELPER_SHARE / 1000),
    )  # fmt: skip
    nonce = fence.new_nonce()
    block, cues = live.block(found.cues, nonce) if found.cues else ("", ())
    if block and session is not None:
        if not call.slot.claim():
            return Answer(LATE)
        took_ms = (time.perf_counter() - started_s) * 1000
        event = Event(asked.runtime, "prompt", asked.session)
        data = live.injection(event, live.Block(block, nonce, cues), found, took_ms)
        home.journal().append(injected.TYPE, data, now=datetime.now(UTC))
    return Answer(_recalled(home, found, block, cues))


def place(project: str | None, cwd: str | None) -> str | None:
    """The folder by which the project of another machine is named: that machine has computed it."""
    return project or cwd


def _held(home: Home, asked: shapes.Recall) -> injected.Held:
    return injected.held(home.journal(), asked.runtime, asked.session)


def _recalled(home: Home, found: Recalled, block: str, cues: tuple[Cue, ...]) -> Json:
    views = runs.seen(home, (cue.run_id for cue in cues if cue.run_id))
    shown = [_cue(cue, views.get(cue.run_id)) for cue in cues]
    where = [href for one_ in shown[:1] for name, href in one_["_links"].items() if name in ("run", "memory")]
    return {
        "block": block, "cues": shown, "silent": found.silent,
        "n_tokens": sum(cue.n_tokens for cue in cues), "timings_ms": dict(found.timings_ms),
        "depth_before_submit": dict(found.depth), "degraded": list(found.degraded),
        "_links": {}, "next_actions": [action("read where the first comes from", "GET", href) for href in where],
    }  # fmt: skip


def _cue(cue: Cue, view: RunView | None) -> Json:
    memory = {"memory": f"{API}/memories/{cue.memory.memory_id}"} if cue.memory else None
    where = memory or runs.links_beside(cue.run_id, view)
    return {
        "turn_id": cue.turn_id, "run_id": cue.run_id, "chunk": cue.chunk, "role": cue.role, "stated_at": cue.stated_at,
        "machine": cue.machine, "runtime": cue.runtime, "text": cue.text, "before": cue.before, "why": list(cue.why),
        "score": cue.score, "note": cue.note, "n_tokens": cue.n_tokens, "is_history": cue.is_history,
        "memory_id": cue.memory.memory_id if cue.memory else None, "_links": where,
    }  # fmt: skip


def hook(call: Call) -> Answer:
    """Exactly what the resident home says to an event; nothing when its time is over."""
    said = msgspec.structs.asdict(call.body.event)
    event = Event(**{**said, "cwd": place(call.body.project, said["cwd"]) or ""})
    answer = live.answer(call.home, event, limit_ms=call.body.limit_ms, mode=call.mode(), slot=call.slot)
    return Answer({"text": answer.text, "notice": answer.notice})


def context(call: Call) -> Answer:
    """What any model is to read for a message, in the format of its provider, and what each part costs."""
    asked = call.body
    made = call.home.context(asked.message, window=asked.window, cwd=place(asked.project, asked.cwd))
    body = made.anthropic() if asked.format == "anthropic" else made.openai()
    parts = [msgspec.to_builtins(part) for part in made.parts]
    return Answer(one({"format": asked.format, **body, "parts": parts, "n_tokens": made.n_tokens}, {}))
