"""The body of a request, taken in as it comes: into memory at first, then into a file without a name in the home.

Nothing is done with a body that did not arrive whole, and nothing of it is left behind.
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

from perdure.capture.files import fault
from perdure.surfaces.http.faults import Refused

MAX_BYTES = 32 * 1024 * 1024  # of a capture: who has more sends it in pieces
MAX_JSON_BYTES = 1024 * 1024  # of any other request
_MEMORY_BYTES = 1024 * 1024  # more goes into a file
_SILENCE_S = 30.0  # so long may nothing come
_WHOLE_S = 900.0  # so long may all of it take
_DRAINED_BYTES = 2 * MAX_BYTES  # of a body that is too large is read away, so that its sender hears the answer


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a body may have, and how long nothing may come."""

    most_bytes: int = MAX_JSON_BYTES
    silence_s: float = _SILENCE_S


@dataclass(frozen=True, slots=True)
class Body:
    """What was sent, whole."""

    file: IO[bytes]
    n_bytes: int
    digest: str

    def read(self) -> bytes:
        """All of it."""
        self.file.seek(0)
        return self.file.read()


async def read(request: Request, folder: Path, limits: Limits) -> Body:
    """The body, in a file that its receiver closes. Raises Refused, DiskFull, ReadOnlyHome, ClientDisconnect."""
    said = request.headers.get("content-length", "")
    file: IO[bytes] = tempfile.SpooledTemporaryFile(_MEMORY_BYTES, dir=str(folder))  # noqa: SIM115 - the caller's
    try:
        if said.isdecimal() and int(said) > limits.most_bytes:
            await _drain(request, limits)
            raise _too_large(limits)
        return await _filled(request, file, limits)
    except OSError as error:
        _discard(file)
        raise (fault(error, folder) or error) from None
    except BaseException:
        _discard(file)
        raise


def _discard(file: IO[bytes]) -> None:
    with contextlib.suppress(OSError):  # what it could not write before, it cannot write now
        file.close()


async def _filled(request: Request, file: IO[bytes], limits: Limits) -> Body:
    n_bytes, digest, ends_s = 0, hashlib.sha256(), time.monotonic() + _WHOLE_S
    waiting = bytearray()
    while True:
        part, more = await _next(request, limits, ends_s)
        n_bytes += len(part)
        if n_bytes > limits.most_bytes:
            await _drain(request, limits)
            raise _too_large(limits)
        digest.update(part)
        waiting += part
        if not more:
            file.write(bytes(waiting))
            file.flush()  # so that whoever reads it meets no disk that is full
            return Body(file, n_bytes, digest.hexdigest())
        if len(waiting) >= _MEMORY_BYTES:
            await _spill(request, file, waiting, limits)


async def _spill(request: Request, file: IO[bytes], waiting: bytearray, limits: Limits) -> None:
    """Write what came until now, and more will. Raises OSError, once the sender can hear of it."""
    try:
        await asyncio.to_thread(file.write, bytes(waiting))
    except OSError:
        await _drain(request, limits)
        raise
    waiting.clear()


async def _next(request: Request, limits: Limits, ends_s: float) -> tuple[bytes, bool]:
    """(the next part, whether there is more). Raises Refused (408), ClientDisconnect."""
    wait_s = min(limits.silence_s, ends_s - time.monotonic())
    try:
        message = await asyncio.wait_for(request.receive(), max(0.0, wait_s))
    except TimeoutError:
        raise Refused(408, "too-slow", "The body did not come in time.", {"Connection": "close"}) from None
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message.get("body", b""), message.get("more_body", False)


async def _drain(request: Request, limits: Limits) -> None:
    """Read away what still comes, as far as that is bearable."""
    n_bytes, ends_s = 0, time.monotonic() + limits.silence_s
    try:
        while n_bytes < _DRAINED_BYTES:
            part, more = await _next(request, limits, ends_s)
            n_bytes += len(part)
            if not more:
                return
    except Refused:
        return


def _too_large(limits: Limits) -> Refused:
    most = limits.most_bytes // 1024 // 1024
    return Refused(413, "too-large", f"A request may have {most} MB. Send it in pieces.", {"Connection": "close"})
