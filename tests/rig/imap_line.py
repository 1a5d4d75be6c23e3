"""A line between a mail program and an IMAP server, on which some commands are refused or never answered."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Sequence

_COMMAND = re.compile(rb"(\S+) (.*)\r\n", re.DOTALL)


class ImapLine:
    """Use it as a context.

    refused: (piece of a command, answer) for the next commands that hold it, in this order; `b""` cuts the connection,
    and an answer that begins with `*` comes before the OK.
    """

    def __init__(self, port: int, refused: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self.refused = list(refused)
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])

    def __enter__(self) -> ImapLine:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                threading.Thread(target=self._pass_back, args=(server, client), daemon=True).start()
                threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError), client, server, client.makefile("rb") as lines:
            for line in lines:
                match = _COMMAND.fullmatch(line)
                if not (match and self.refused and self.refused[0][0] in match[2]):
                    server.sendall(line)
                elif answer := self.refused.pop(0)[1]:
                    before = answer + b"\r\n" if answer.startswith(b"*") else b""
                    client.sendall(before + match[1] + b" " + (b"OK done" if before else answer) + b"\r\n")
                else:
                    client.shutdown(socket.SHUT_RDWR)
                    return

    def _pass_back(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65_536):
                client.sendall(data)
