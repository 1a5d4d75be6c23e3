"""The messages of standard input and output as a transport of the protocol's package, read and written by two threads.

The package's own one (0.12) ends at a line that is JSON but no object, does not notice a broken pipe, and takes no
files.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from concurrent.futures import Future

from perdure.surfaces.acp.stdio import Json, MessageStream

WRITE_S = 2.0  # closing waits so long for what is not written yet


class StdioTransport:
    """`send`, `receive` and `close` are what the package asks for. Use it in one event loop."""

    def __init__(self, stream: MessageStream) -> None:
        self._stream = stream
        self._outgoing: queue.SimpleQueue[tuple[Json, Future[None]] | None] = queue.SimpleQueue()
        self._incoming: asyncio.Queue[Json | None] = asyncio.Queue()
        self._writer = threading.Thread(target=self._write_all, name="acp-writer", daemon=True)
        self._writer.start()
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read_all, args=(loop,), name="acp-reader", daemon=True).start()

    async def send(self, message: Json) -> None:
        """Write a message after all that were given before. Raises ConnectionError if the client is gone."""
        written: Future[None] = Future()
        written.set_running_or_notify_cancel()
        self._outgoing.put((message, written))
        try:
            await asyncio.wrap_future(written)
        except OSError as error:
            self.end()
            raise ConnectionError("the client does not read any more") from error

    async def receive(self) -> Json | None:
        """Return the next message; None at the end."""
        return await self._incoming.get()

    def end(self) -> None:
        """Let nothing more be received."""
        self._incoming.put_nowait(None)

    async def close(self) -> None:
        """Write what waits."""
        self._outgoing.put(None)
        await asyncio.to_thread(self._writer.join, WRITE_S)

    def _write_all(self) -> None:
        while item := self._outgoing.get():
            message, written = item
            try:
                self._stream.write(message)
                written.set_result(None)
            except OSError as error:
                written.set_exception(error)

    def _read_all(self, loop: asyncio.AbstractEventLoop) -> None:
        message: Json | None = {}
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody receives any more
            while message is not None:
                try:
                    message = self._stream.read()
                except OSError:
                    message = None
                loop.call_soon_threadsafe(self._incoming.put_nowait, message)
