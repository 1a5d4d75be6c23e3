"""JSON-RPC messages over standard input and output, one a line, and nothing else on standard output.

What is no message is answered with an error and does no harm. Only what the first answer needs is loaded here.
"""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from typing import Any

MAX_MESSAGE_BYTES = 64 * 1024 * 1024  # of one line: a prompt with several images
_CHUNK_BYTES = 1024 * 1024
_PARSE_ERROR, _INVALID_REQUEST = -32700, -32600

Json = dict[str, Any]


def take_standard_streams() -> tuple[int, int]:
    """Return descriptors of standard input and output, and put others in their places.

    What is printed from then on, here or in a process that is started, goes to standard error.
    """
    source, sink = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return source, sink


def parse_message(line: bytes) -> Json | None:
    """Return the message of a line; None for an empty one. Raises ValueError, (code, words), for what is no message.

    >>> parse_message(b'{"method": "session/cancel"}')
    {'method': 'session/cancel'}
    """
    if not line.strip():
        return None
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(_PARSE_ERROR, f"Parse error: {error}") from error
    if not isinstance(message, dict):
        raise ValueError(_INVALID_REQUEST, "Invalid request: a message is an object; batches are not taken")
    if not isinstance(message.get("method", ""), str):
        raise ValueError(_INVALID_REQUEST, "Invalid request: `method` is no text")
    if not isinstance(message.get("id"), str | int | None):
        raise ValueError(_INVALID_REQUEST, "Invalid request: `id` is no text and no number")
    return message


class MessageStream:
    """The messages of two descriptors. One thread reads; any thread writes."""

    def __init__(self, source: int, sink: int) -> None:
        self._source, self._sink = source, sink
        self._buffer = bytearray()  # not one of Python's own, which a thread would hold locked when the process ends
        self._unread: deque[Json] = deque()
        self._write_lock = threading.Lock()

    def read(self) -> Json | None:
        """Wait for the next message, and return it; None at the end. What is no message is answered here.

        Raises OSError if such an answer cannot be written.
        """
        if self._unread:
            return self._unread.popleft()
        while line := self._read_line():
            try:
                if len(line) > MAX_MESSAGE_BYTES:
                    raise ValueError(_INVALID_REQUEST, f"Invalid request: more than {MAX_MESSAGE_BYTES:,} bytes")
                message = parse_message(line)
            except ValueError as error:
                code, words = error.args
                self.write({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": words}})
                continue
            if message is not None:
                return message
        return None

    def unread(self, message: Json) -> None:
        """Put a message back: it is read first."""
        self._unread.append(message)

    def write(self, message: Json) -> None:
        """Write a message as a whole. Raises OSError if nobody reads any more."""
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        with self._write_lock:
            while line:
                line = line[os.write(self._sink, line) :]

    def _read_line(self) -> bytes:
        """Return the next line with its end; empty at the end of all. Too long a line is cut behind its limit."""
        n_searched = 0
        while (end := self._buffer.find(b"\n", n_searched)) < 0:
            n_searched = len(self._buffer)
            chunk = os.read(self._source, _CHUNK_BYTES)
            if not chunk:
                end = len(self._buffer) - 1
                break
            if n_searched <= MAX_MESSAGE_BYTES:
                self._buffer += chunk
            elif b"\n" in chunk:
                self._buffer += chunk[chunk.index(b"\n") :]
        line = bytes(self._buffer[: end + 1])
        del self._buffer[: end + 1]
        return line
