"""Read pictures in a process of their own, which `child.py` is.

A picture that makes the engine crash, hang or take all memory costs this process and nothing else: the picture is
unreadable, and the next one gets a new process.
"""

from __future__ import annotations

import json
import os
import selectors
import struct
import subprocess
import sys
import time

from perdure.errors import PictureUnreadable, RuntimeMissing
from perdure.pictures.reader import INSTALL, MAX_BYTES, MAX_READ_S, find_engine_tag

_MAX_START_S = 60.0  # until the engine is loaded: a second of processor
_MAX_ANSWER_BYTES = 1_000_000


class ReaderProcess:
    """The engine that is installed, in a process that starts at the first read. Close it after use."""

    def __init__(self, *, limit_s: float = MAX_READ_S, command: tuple[str, ...] = ()) -> None:
        """limit_s: for one picture. command: instead of the process that ships, for tests of its failures."""
        self._limit_s = limit_s
        self._command = command or (sys.executable, "-m", "perdure.pictures.child")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def tag(self) -> str:
        """The tag of the engine."""
        return find_engine_tag()

    def read(self, body: bytes) -> str:
        """Return the text in a picture. Raises PictureUnreadable, RuntimeMissing."""
        if len(body) > MAX_BYTES:
            raise PictureUnreadable(f"larger than {MAX_BYTES:,} bytes")
        if self._process is None or self._process.poll() is not None:
            self._start()
        answer = self._ask(struct.pack(">I", len(body)) + body, self._limit_s)
        if "text" not in answer:
            raise PictureUnreadable(str(answer.get("fault", "no answer")))
        return str(answer["text"])

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process.wait()
            self._process = None

    def _start(self) -> None:
        self.close()
        if not self.tag and self._command[1:2] == ("-m",):
            raise RuntimeMissing(INSTALL)
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._process.stdin and self._process.stdout
        os.set_blocking(self._process.stdin.fileno(), False)
        os.set_blocking(self._process.stdout.fileno(), False)
        try:
            answer = self._ask(b"", _MAX_START_S)
        except PictureUnreadable as error:
            raise RuntimeMissing(f"{INSTALL} ({error.detail})") from error
        if "ready" not in answer:
            self.close()
            raise RuntimeMissing(f"{INSTALL} ({answer.get('fault')})")

    def _ask(self, request: bytes, limit_s: float) -> dict[str, object]:
        """Send a request and return the answer. Raises PictureUnreadable if none comes in time; the process ends."""
        try:
            answer: dict[str, object] = json.loads(self._exchange(memoryview(request), time.monotonic() + limit_s))
            return answer
        except TimeoutError as error:
            self.close()
            raise PictureUnreadable(f"it took longer than {limit_s:.0f} s") from error
        except (OSError, ValueError, EOFError) as error:
            self.close()
            raise PictureUnreadable("the engine failed on it") from error

    def _exchange(self, request: memoryview, deadline: float) -> bytes:
        """Write a request while reading; return the line that comes back."""
        assert self._process and self._process.stdin and self._process.stdout
        answer = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if request:
                selector.register(self._process.stdin, selectors.EVENT_WRITE)
            while not answer.endswith(b"\n"):
                for key, _ in self._wait(selector, deadline):
                    if key.fileobj is self._process.stdin:
                        request = request[os.write(key.fd, request) :]
                        if not request:
                            selector.unregister(key.fileobj)
                    else:
                        piece = os.read(key.fd, 65536)
                        answer += piece
                        if not piece or len(answer) > _MAX_ANSWER_BYTES:
                            raise EOFError
        return answer

    def _wait(self, selector: selectors.BaseSelector, deadline: float) -> list[tuple[selectors.SelectorKey, int]]:
        left_s = deadline - time.monotonic()
        events = selector.select(left_s) if left_s > 0 else []
        if not events and time.monotonic() >= deadline:
            raise TimeoutError
        return events
