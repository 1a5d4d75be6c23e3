"""POST /api/runs: receive bytes of another machine's session, and store them durably before the answer.

It needs the disk and nothing else: no index, no model. Owner and machine are those of the credential. The
rules of a local capture hold here too (pause, incognito, forgotten content). Excluded folders do not: they
are folders of this machine, and say nothing about those of another. The body of every request is received
here too: within a limit of bytes and of time, into a file as soon as it is large.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec
from starlette.requests import ClientDisconnect, Request

from perdure.archive.archive import Delta, StoreResult
from perdure.archive.ingest import clean_origin
from perdure.capture.transcripts import check_session, count_complete_bytes, escape_text, to_plain_name
from perdure.disk import to_perdure_error
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

# captures -----------------------------------------------------------------------------------------------------

JSON_TYPE = "application/json"
_PAUSED_RETRY_S = 60
_OVERLOAD_RETRY_S = 10


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
            "paused", "Capture is paused; the data was not stored. Keep it, and send it later.", after_s=_PAUSED_RETRY_S
        )
    if reason := call.home.captures.refusal_of_received(delta.origin):
        raise refuse_usage(f"{reason}; nothing was stored")
    if n_waiting := call.server.find_overload(call.home, call.identity.user):
        message = f"{n_waiting} of your sessions' parts wait for the index. Keep the data, and send it later."
        raise refuse_for_now("too-many-waiting", message, after_s=_OVERLOAD_RETRY_S, status=429)
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
        result = msgspec.structs.replace(result, run_id=call.home.archive.get_entry(run_id).run_id)
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
            raise refuse_usage(f"the body is not valid: {error}") from None
        data = params.jsonl.encode("utf-8", "surrogatepass")
    n_bytes = count_complete_bytes(data)
    if not n_bytes:
        raise refuse_usage("the body must be complete lines; it has no complete line")
    # After the beginning, a blank or broken line of a transcript may come alone: it is stored unchanged.
    is_beginning = params.emitted or not params.from_offset
    if is_beginning and not any(map(_is_json_object, data[:n_bytes].split(b"\n"))):
        raise refuse_usage("the body is no transcript: none of its lines is a JSON object")
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
    for session in (params.session, params.conversation or "", params.parent_session or ""):
        check_session(session, params.runtime)
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
        actions.insert(0, build_action(f"send the bytes after offset {result.to_offset}", "POST", f"{API_PATH}/runs"))
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
        message = "These bytes differ from the stored bytes: the source was rewritten. Send the whole source again."
        next_action = build_action(
            f"send it from offset 0 with generation={result.generation + 1}", "POST", f"{API_PATH}/runs"
        )
    extra_fields = {"accepted_up_to": result.to_offset, "generation": result.generation, "next_actions": [next_action]}
    return HttpRefusal(409, result.outcome, message, extra_fields=extra_fields)


# bodies -------------------------------------------------------------------------------------------------------

MAX_BYTES = 32 * 1024 * 1024  # of a capture: more is sent in pieces
MAX_LINE_BYTES = 128 * 1024 * 1024  # of a capture with a declared length: one line cannot be sent in pieces
MAX_JSON_BYTES = 1024 * 1024  # of any other request
_MAX_LENGTH_DIGITS = 16  # of a declared length; more digits are not meant seriously
_MAX_MEMORY_BYTES = 1024 * 1024  # more than this goes into a file
_SILENCE_S = 30.0  # longest time without a byte
_MAX_TOTAL_S = 900.0  # longest time for the whole body
_MAX_DRAINED_BYTES = 2 * MAX_LINE_BYTES  # of a too large body are read, so that its sender gets the answer


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """How many bytes a body may have, and for how long nothing may come."""

    max_bytes: int = MAX_JSON_BYTES
    silence_s: float = _SILENCE_S


@dataclass(frozen=True, slots=True)
class RequestBody:
    """A body that arrived whole."""

    file: IO[bytes]
    n_bytes: int
    digest: str

    def read_bytes(self) -> bytes:
        """Return all bytes of the body."""
        self.file.seek(0)
        return self.file.read()


def read_content_length(request: Request) -> int:
    """Return the length that a request declares for its body, 0 if it declares none."""
    header = request.headers.get("content-length", "")
    return int(header) if header.isdecimal() and len(header) < _MAX_LENGTH_DIGITS else 0


async def read_body(request: Request, folder: Path, limits: BodyLimits) -> RequestBody:
    """Receive the body into a file; the caller closes it.

    Raises HttpRefusal, DiskFull, ReadOnlyHome, ClientDisconnect.
    """
    file: IO[bytes] = tempfile.SpooledTemporaryFile(_MAX_MEMORY_BYTES, dir=str(folder))  # noqa: SIM115 - the caller's
    try:
        if read_content_length(request) > limits.max_bytes:
            await _drain(request, limits)
            raise _refuse_too_large(limits)
        return await _receive(request, file, limits)
    except OSError as error:
        _discard(file)
        raise (to_perdure_error(error, folder) or error) from None
    except BaseException:
        _discard(file)
        raise


def _discard(file: IO[bytes]) -> None:
    with contextlib.suppress(OSError):  # the write that failed before fails again here
        file.close()


async def _receive(request: Request, file: IO[bytes], limits: BodyLimits) -> RequestBody:
    n_bytes, digest, ends_s = 0, hashlib.sha256(), time.monotonic() + _MAX_TOTAL_S
    buffer = bytearray()
    while True:
        part, has_more = await _receive_part(request, limits, ends_s)
        n_bytes += len(part)
        if n_bytes > limits.max_bytes:
            await _drain(request, limits)
            raise _refuse_too_large(limits)
        digest.update(part)
        buffer += part
        if not has_more:
            file.write(bytes(buffer))
            file.flush()  # a full disk fails here, not where the body is read
            return RequestBody(file, n_bytes, digest.hexdigest())
        if len(buffer) >= _MAX_MEMORY_BYTES:
            await _write_buffer(request, file, buffer, limits)


async def _write_buffer(request: Request, file: IO[bytes], buffer: bytearray, limits: BodyLimits) -> None:
    """Write the buffer to the file while more is to come.

    Raises OSError, but only after the rest was read, so that the sender can receive the answer.
    """
    try:
        await asyncio.to_thread(file.write, bytes(buffer))
    except OSError:
        await _drain(request, limits)
        raise
    buffer.clear()


async def _receive_part(request: Request, limits: BodyLimits, ends_s: float) -> tuple[bytes, bool]:
    """Return (the next part, True if more follows). Raises HttpRefusal (408), ClientDisconnect."""
    wait_s = min(limits.silence_s, ends_s - time.monotonic())
    try:
        message = await asyncio.wait_for(request.receive(), max(0.0, wait_s))
    except TimeoutError:
        raise HttpRefusal(408, "too-slow", "The body did not come in time.", {"Connection": "close"}) from None
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message.get("body", b""), message.get("more_body", False)


async def _drain(request: Request, limits: BodyLimits) -> None:
    """Read and drop the rest of a body, up to a limit of bytes and of time."""
    n_bytes, ends_s = 0, time.monotonic() + limits.silence_s
    try:
        while n_bytes < _MAX_DRAINED_BYTES:
            part, has_more = await _receive_part(request, limits, ends_s)
            n_bytes += len(part)
            if not has_more:
                return
    except HttpRefusal:
        return


def _refuse_too_large(limits: BodyLimits) -> HttpRefusal:
    max_mb = limits.max_bytes // 1024 // 1024
    return HttpRefusal(
        413, "too-large", f"A request can have at most {max_mb} MB. Send it in parts.", {"Connection": "close"}
    )
