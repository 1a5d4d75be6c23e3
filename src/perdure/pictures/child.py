"""The process that opens pictures: length and bytes come in, a line of JSON with the text or a fault goes out.

It has no network, little memory, the lowest priority and one thread. It knows no home.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
from typing import BinaryIO, NoReturn

from perdure.environ import forbid_reports
from perdure.errors import PictureUnreadable
from perdure.pictures.reader import MAX_BYTES

_MAX_MEMORY_BYTES = 4_000_000_000  # of addresses; the engine itself takes half a gigabyte of memory


def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    _limit_process()
    forbid_reports()
    try:
        from perdure.pictures.rapid import RapidReader

        reader = RapidReader()
    except Exception as error:  # noqa: BLE001 - a package that does not fit can fail in any way
        _send(answers, {"fault": f"{type(error).__name__}: {error}"})
        return
    _send(answers, {"ready": True})
    while header := sys.stdin.buffer.read(4):
        (n_bytes,) = struct.unpack(">I", header)
        if n_bytes > MAX_BYTES:
            return
        body = sys.stdin.buffer.read(n_bytes)
        try:
            _send(answers, {"text": reader.read(body)})
        except PictureUnreadable as error:
            _send(answers, {"fault": error.detail})
        except Exception as error:  # noqa: BLE001 - decoders raise whatever they like about hostile bytes
            _send(answers, {"fault": type(error).__name__})


def _send(answers: BinaryIO, answer: dict[str, object]) -> None:
    answers.write(json.dumps(answer).encode() + b"\n")
    answers.flush()


def _limit_process() -> None:
    """Give up the network, most memory and priority, as far as the system lets a process."""
    with contextlib.suppress(OSError):
        os.nice(10)
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    socket.socket.connect = _refuse_network  # type: ignore[method-assign]


def _refuse_network(*_: object, **__: object) -> NoReturn:
    """Stand in for a connection: no engine may fetch anything."""
    raise OSError("no network")


if __name__ == "__main__":
    main()
