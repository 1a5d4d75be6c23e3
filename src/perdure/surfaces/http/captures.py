"""POST /api/runs: store bytes of another machine's session, durable before the answer.

It needs the disk and nothing else: no index, no model. Owner and machine are those of the credential. The
rules of a local capture hold here too (pause, incognito, forgotten content). Excluded folders do not: they
are folders of this machine, and say nothing about those of another.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

import msgspec

from perdure.archive.archive import Delta, StoreResult
from perdure.archive.ingest import clean_origin
from perdure.capture.transcripts import count_complete_bytes, escape_text, to_plain_name
from perdure.errors import NotFound
from perdure.surfaces.http import runs, shapes
from perdure.surfaces.http.calls import HttpCall
from perdure.surfaces.http.responses import (
    API_PATH,
    HttpRefusal,
    HttpResponse,
    Json,
    build_action,
    refuse_for_now,
    refuse_usage,
)
from perdure.types import Origin

JSON_TYPE = "application/json"
_PAUSED_RETRY_S = 60


def capture_lines(call: HttpCall) -> HttpResponse:
    """Store the lines of a request, or say which bytes to send instead."""
    result = _store_lines(call)
    return HttpResponse(_build_capture_body(result), 202, created_id=result.run_id or "")


def _store_lines(call: HttpCall) -> StoreResult:
    """Store the lines and return the archive's result. Raises HttpRefusal."""
    params, data = _read_lines(call)
    delta = _build_delta(call, params, data)
    if call.home.captures.current_pause():
        raise refuse_for_now(
            "paused", "Capture is paused here; nothing was kept. Keep it, and send it later.", after_s=_PAUSED_RETRY_S
        )
    if reason := call.home.captures.refusal_of_received(delta.origin):
        raise refuse_usage(f"{reason}; nothing was kept")
    batcher = call.server.capture_batcher
    result = (
        call.home.captures.receive_emitted(delta)
        if params.emitted
        else batcher.store_delta(delta, call.home.captures.receive)
    )
    if result.outcome in ("diverged", "gap"):
        raise _refuse_conflict(result)
    call.server.wake()
    return result


def repeat_capture(call: HttpCall, run_id: str) -> HttpResponse:
    """Store the same lines again; lines that the archive holds are not stored twice.

    The answer names the run of the first request, if it still exists.
    """
    result = _store_lines(call)
    with contextlib.suppress(NotFound):
        result = replace(result, run_id=call.home.archive.get_entry(run_id).run_id)
    return HttpResponse(_build_capture_body(result), 202, created_id=result.run_id or "")


def _read_lines(call: HttpCall) -> tuple[shapes.CaptureQuery, bytes]:
    """Return (the parameters of the lines, the lines). Raises HttpRefusal (400)."""
    raw = call.body.read_bytes()
    if call.content_type != JSON_TYPE:
        params, data = call.query, raw
    else:
        try:
            params = msgspec.json.decode(raw, type=shapes.CaptureBody)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise refuse_usage(f"the body is not what it must be: {error}") from None
        data = params.jsonl.encode("utf-8", "surrogatepass")
    if params.emitted:
        if not any(_is_json_object(line) for line in data.split(b"\n")):
            raise refuse_usage("the body must be complete lines of JSON objects, and none of its lines is one")
    elif not count_complete_bytes(data):  # any content: a client's own file is stored unchanged
        raise refuse_usage("the body must be complete lines, and there is none")
    return params, data


def _is_json_object(line: bytes) -> bool:
    if line.lstrip()[:1] != b"{":
        return False
    try:
        msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _build_delta(call: HttpCall, params: shapes.CaptureQuery, data: bytes) -> Delta:
    origin = Origin(
        params.runtime,
        params.session,
        params.conversation or params.session,
        params.parent_session,
        params.cwd,
        params.fork,
    )
    project = params.project if params.project is not None else params.cwd
    return Delta(
        origin=clean_origin(origin),
        user=call.identity.user,
        machine=call.identity.machine,
        data=data,
        from_offset=params.from_offset,
        generation=params.generation,
        agent=to_plain_name(params.agent) or call.home.config.agent,
        project=to_plain_name(project) if project else None,
        path=escape_text(params.path) if params.path else None,
        tags=tuple(map(to_plain_name, params.tag)),
        parent_run_id=params.parent_run_id or None,
    )


def _build_capture_body(result: StoreResult) -> Json:
    links = runs.build_byte_links(result.run_id) if result.run_id else {}
    actions = [build_action("search it", "POST", f"{API_PATH}/runs/search")]
    if result.run_id:
        actions.append(build_action("read it", "GET", links["jsonl"]))
    if result.outcome == "accepted":
        actions.insert(0, build_action(f"send what follows offset {result.to_offset}", "POST", f"{API_PATH}/runs"))
    return {
        "outcome": result.outcome,
        "run_id": result.run_id,
        "accepted_up_to": result.to_offset,
        "generation": result.generation,
        "bytes": result.n_bytes,
        "_links": links,
        "next_actions": actions,
    }


def _refuse_conflict(result: StoreResult) -> HttpRefusal:
    if result.outcome == "gap":
        message = f"Bytes are missing before these: send from offset {result.to_offset}."
        next_action = build_action(message, "POST", f"{API_PATH}/runs")
    else:
        message = "These bytes differ from those that are kept: the source was rewritten. Send all of it anew."
        next_action = build_action(
            f"send it from offset 0 with generation={result.generation + 1}", "POST", f"{API_PATH}/runs"
        )
    extra_fields = {"accepted_up_to": result.to_offset, "generation": result.generation, "next_actions": [next_action]}
    return HttpRefusal(409, result.outcome, message, extra_fields=extra_fields)
