"""POST /api/runs: bytes of another machine's session, durable before the answer.

It needs the disk and nothing else: no index, no model. Owner and machine are those of the credential. The rules of a
capture hold as for one of this machine (pause, incognito, what was forgotten); folders that are excluded here are
folders of this machine, and say nothing about those of another.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

import msgspec

from perdure.archive.archive import Answer as Kept
from perdure.archive.archive import Delta
from perdure.capture.origin import escaped, plain
from perdure.capture.whole import complete
from perdure.errors import NotFound
from perdure.intake import clean
from perdure.surfaces.http import runs, shapes
from perdure.surfaces.http.answers import API, Answer, Json, action
from perdure.surfaces.http.calls import Call
from perdure.surfaces.http.faults import Refused, bad, retry
from perdure.types import Origin

JSON = "application/json"
_PAUSED_S = 60


def capture(call: Call) -> Answer:
    """Keep what was sent, or say what is to be sent instead."""
    kept = _kept(call)
    return Answer(_envelope(kept), 202, made=kept.run_id or "")


def _kept(call: Call) -> Kept:
    """What the archive says to what was sent. Raises Refused."""
    said, data = _sent(call)
    delta = _delta(call, said, data)
    if call.home.paused():
        raise retry(
            "paused", "Capture is paused here; nothing was kept. Keep it, and send it later.", after_s=_PAUSED_S
        )
    if why := call.home.received_refusal(delta.origin):
        raise bad(f"{why}; nothing was kept")
    together = call.server.together
    kept = call.home.receive_emitted(delta) if said.emitted else together.store(delta, call.home.receive)
    if kept.outcome in ("diverged", "gap"):
        raise _conflict(kept)
    call.server.wake()
    return kept


def again(call: Call, made: str) -> Answer:
    """The same once more: what is there already is found to be there, in the run of the first time if it still is."""
    kept = _kept(call)
    with contextlib.suppress(NotFound):
        kept = replace(kept, run_id=call.home.archive.held(made).run_id)
    return Answer(_envelope(kept), 202, made=kept.run_id or "")


def _sent(call: Call) -> tuple[shapes.Captured, bytes]:
    """(what is known of the lines, the lines). Raises Refused (400)."""
    raw = call.body.read()
    if call.kind != JSON:
        said, data = call.query, raw
    else:
        try:
            said = msgspec.json.decode(raw, type=shapes.CapturedJson)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise bad(f"the body is not what it must be: {error}") from None
        data = said.jsonl.encode("utf-8", "surrogatepass")
    if said.emitted:
        if not any(_is_object(line) for line in data.split(b"\n")):
            raise bad("the body must be complete lines of JSON objects, and none of its lines is one")
    elif not complete(data):  # whatever they hold: a client's own file is kept as it is
        raise bad("the body must be complete lines, and there is none")
    return said, data


def _is_object(line: bytes) -> bool:
    if line.lstrip()[:1] != b"{":
        return False
    try:
        msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _delta(call: Call, said: shapes.Captured, data: bytes) -> Delta:
    origin = Origin(
        said.runtime, said.session, said.conversation or said.session, said.parent_session, said.cwd, said.fork
    )
    project = said.project if said.project is not None else said.cwd
    return Delta(
        origin=clean(origin), user=call.identity.user, machine=call.identity.machine, data=data,
        from_offset=said.from_offset, generation=said.generation, agent=plain(said.agent) or call.home.config.agent,
        project=plain(project) if project else None, path=escaped(said.path) if said.path else None,
        tags=tuple(map(plain, said.tag)), parent_run_id=said.parent_run_id or None,
    )  # fmt: skip


def _envelope(kept: Kept) -> Json:
    links = runs.kept_links(kept.run_id) if kept.run_id else {}
    actions = [action("search it", "POST", f"{API}/runs/search")]
    if kept.run_id:
        actions.append(action("read it", "GET", links["jsonl"]))
    if kept.outcome == "accepted":
        actions.insert(0, action(f"send what follows offset {kept.to_offset}", "POST", f"{API}/runs"))
    return {
        "outcome": kept.outcome, "run_id": kept.run_id, "accepted_up_to": kept.to_offset,
        "generation": kept.generation, "bytes": kept.n_bytes, "_links": links, "next_actions": actions,
    }  # fmt: skip


def _conflict(kept: Kept) -> Refused:
    if kept.outcome == "gap":
        said = f"Bytes are missing before these: send from offset {kept.to_offset}."
        do = action(said, "POST", f"{API}/runs")
    else:
        said = "These bytes differ from those that are kept: the source was rewritten. Send all of it anew."
        do = action(f"send it from offset 0 with generation={kept.generation + 1}", "POST", f"{API}/runs")
    more = {"accepted_up_to": kept.to_offset, "generation": kept.generation, "next_actions": [do]}
    return Refused(409, kept.outcome, said, more=more)
