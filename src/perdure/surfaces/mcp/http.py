"""MCP over streamable HTTP, inside the resident home: for clients that do not start a process of their own.

Nobody is let in without the credential, of which only the hash is kept. It listens to this machine alone.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from perdure.capture.files import replace
from perdure.errors import ConfigFault, PerdureError
from perdure.home import Home
from perdure.surfaces.mcp.desk import Desk
from perdure.surfaces.mcp.server import build

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_PREFIX = "pdr-"  # so that a secret is recognised where it should not be
_START_S = 10.0


def address(setting: str) -> tuple[str, int]:
    """(host, port) of a setting such as "127.0.0.1:8765". Raises ConfigFault for what is not of this machine."""
    host, colon, port = setting.rpartition(":")
    host = host.strip("[]")
    if not colon or not port.isdecimal() or not 0 <= int(port) < 65_536:
        raise ConfigFault(f"mcp.http = {setting!r} (expected something like '127.0.0.1:8765')")
    if host not in _LOOPBACK:
        raise ConfigFault(f"mcp.http = {setting!r}: it listens to this machine alone (127.0.0.1)")
    return host, int(port)


def new_credential(home: Path) -> str:
    """A new secret, which takes the place of the one before; only its hash is kept."""
    secret = _PREFIX + secrets.token_urlsafe(32)
    replace(_place(home), json.dumps({"mcp": _hash(secret)}).encode() + b"\n")
    return secret


def has_credential(home: Path) -> bool:
    """Whether a secret was made."""
    return bool(_known(home))


def _known(home: Path) -> str:
    try:
        return str(json.loads(_place(home).read_bytes()).get("mcp", ""))
    except (OSError, ValueError, AttributeError):
        return ""


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _place(home: Path) -> Path:
    return home / "credentials.json"


class Guard:
    """Lets requests through that carry the credential; the hash is read for each, so that a new one counts at once."""

    def __init__(self, app: ASGIApp, home: Path) -> None:
        self._app = app
        self._home = home

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401, or hand the request on."""
        if scope["type"] == "http" and not self._is_known(scope):
            said = {"error": "unauthorized", "message": "Send the credential that `perdure mcp --credential` printed."}
            answer = JSONResponse(said, status_code=401, headers={"WWW-Authenticate": 'Bearer realm="perdure"'})
            await answer(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_known(self, scope: Scope) -> bool:
        sent = next((value for name, value in scope["headers"] if name == b"authorization"), b"").decode("latin-1")
        kind, _, secret = sent.partition(" ")
        known = _known(self._home)
        is_it = hmac.compare_digest(_hash(secret.strip()).encode(), known.encode())
        return kind.lower() == "bearer" and bool(known) and is_it


def app(desk: Desk, home: Path, *, host: str) -> Starlette:
    """The application: MCP at /mcp, behind the guard."""
    made: Starlette = build(desk, cwd=None).streamable_http_app(host=host)
    made.add_middleware(Guard, home=home)
    return made


class Served:
    """MCP over HTTP in a thread of this process."""

    def __init__(self, make: Callable[[], Home], home: Path, setting: str) -> None:
        """make: a home for one thread. Raises ConfigFault for a setting that cannot be meant, or no credential."""
        host, port = address(setting)
        if not has_credential(home):
            raise ConfigFault("mcp.http is set, and there is no credential: `perdure mcp --credential` makes one")
        self._desk = Desk(make)
        settings = uvicorn.Config(app(self._desk, home, host=host), host=host, port=port, log_level="warning")
        self._server = uvicorn.Server(settings)
        self._thread = threading.Thread(target=self._run, name="perdure-mcp-http", daemon=True)
        self._began = threading.Event()

    def _run(self) -> None:
        try:
            self._server.run()
        except SystemExit:  # uvicorn's word for an address that is taken
            pass
        finally:
            self._began.set()

    def start(self) -> str:
        """The address at which it answers. Raises PerdureError where it cannot listen."""
        self._thread.start()
        for _ in range(int(_START_S / 0.02)):
            if self._server.started or self._began.wait(0.02):
                break
        if not self._server.started:
            raise PerdureError(f"mcp.http: nothing can listen at {self._server.config.host}:{self._server.config.port}")
        host, port = self._socket()
        return f"http://{host}:{port}/mcp"

    def _socket(self) -> tuple[str, int]:
        name: Any = self._server.servers[0].sockets[0].getsockname()
        return str(name[0]), int(name[1])

    def stop(self) -> None:
        """End it."""
        self._server.should_exit = True
        self._thread.join(timeout=5)
        self._desk.close()
