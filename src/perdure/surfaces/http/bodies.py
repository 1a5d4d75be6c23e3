"""Receive the body of a request: first into memory, then into a file without a name in the home.

A body that did not arrive whole is not used, and nothing of it is left behind.
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

from starlette.requests import ClientDisconnect, Request

from perdure.disk import to_perdure_error
from perdure.surfaces.http.responses import HttpRefusal

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
    return HttpRefusal(413, "too-large", f"A request may have {max_mb} MB. Send it in pieces.", {"Connection": "close"})
