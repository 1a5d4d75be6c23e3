"""A line between a client and a server that is slow, or is cut in the middle of what the client sends."""

from __future__ import annotations

import contextlib
import socket
import threading
import time


class SlowLine:
    """Passes bytes on to a port of this machine. Its fields can be changed while it is in use."""

    def __init__(self, port: int) -> None:
        self.delay_s = 0.0  # before each piece of at most 16 kB, in both directions
        self.cut_after: int | None = None  # bytes that a client may still send; then all its lines are cut
        self.n_cuts = 0
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                if self._listener.fileno() < 0:
                    return
                continue
            for source, target, is_sent in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pass_on, args=(source, target, is_sent), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, is_sent: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(16_384):
                time.sleep(self.delay_s)
                if is_sent and self.cut_after is not None:
                    data = data[: self.cut_after]
                    self.cut_after -= len(data)
                target.sendall(data)
                if is_sent and self.cut_after == 0:
                    self.n_cuts += 1
                    break
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
