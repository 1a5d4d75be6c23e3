"""One listener in the resident home: the API, and MCP beside it where its package is installed.

It listens to this machine alone unless the settings say otherwise; to others only with TLS, or where somebody says that
the network itself keeps them out.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h11
import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from perdure.authority.socket import Authority
from perdure.capture import log
from perdure.capture.files import make_folder
from perdure.config import ServerConfig
from perdure.errors import ConfigFault, PerdureError
from perdure.home import Home
from perdure.resident.serve import Serving
from perdure.surfaces.http import app, faults
from perdure.surfaces.http.app import Api
from perdure.surfaces.http.calls import Server
from perdure.surfaces.http.cursors import Cursors
from perdure.surfaces.http.events import Hub
from perdure.surfaces.http.homes import Desk, Homes
from perdure.surfaces.http.news import News
from perdure.surfaces.http.store import Requests
from perdure.surfaces.http.together import Together
from perdure.types import Identity

_START_S = 10.0
_END_S = 10
_UNREAD_MS = 60_000  # so long may a client leave unread what was written to it
_UNREAD_OPTION: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)  # where the system has it (Linux)
_HEAD_BYTES = 64 * 1024
_KEEP_ALIVE_S = 15
_CONNECTIONS = 512
_DESKS = {  # name: (threads, requests that are answered or wait)
    "identity": (2, 256),
    "capture": (8, 128),
    "read": (3, 128),
    "write": (1, 64),
    "tools": (2, 64),
    "slow": (1, 8),
    "jobs": (1, 8),
}


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def address(settings: ServerConfig) -> Address:
    """Where the settings say that the server listens. Raises ConfigFault for what cannot be meant, or is not safe."""
    host, colon, port = settings.http.rpartition(":")
    found = Address(host.strip("[]"), int(port) if port.isdecimal() and len(port) < 6 else -1)
    if not colon or not found.host or not 0 <= found.port < 65_536:
        raise ConfigFault(f"server.http = {settings.http!r} (expected something like '127.0.0.1:8787')")
    if bool(settings.tls_certificate) != bool(settings.tls_key):
        raise ConfigFault("server.tls_certificate and server.tls_key belong together: set both, or none")
    for name in ("tls_certificate", "tls_key"):
        place = getattr(settings, name)
        if place and not Path(place).expanduser().is_file():
            raise ConfigFault(f"server.{name} = {place!r}: there is no such file")
    if not (found.is_loopback or settings.tls_certificate or settings.plain):
        raise ConfigFault(
            f"server.http = {settings.http!r}: other machines can reach that address. Set server.tls_certificate and "
            "server.tls_key; or server.plain = true where the network itself is private (a VPN, say)"
        )
    return found


class _Line(H11Protocol):
    """A connection on which heads must come in time, and what is written must be read in time."""

    head_s = 30.0  # so long may the head of a request take
    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        line = transport.get_extra_info("socket")
        if line is not None and _UNREAD_OPTION is not None:
            line.setsockopt(socket.IPPROTO_TCP, _UNREAD_OPTION, _UNREAD_MS)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, in the envelope that every refusal has."""
        body = msgspec.json.encode(faults.answer(faults.bad(msg)).body)
        head = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        for event in (h11.Response(status_code=400, headers=head), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _watch(self) -> None:
        """Begin to wait for the head of a request, unless one is being answered."""
        is_idle = self.cycle is None or self.cycle.response_complete
        if not is_idle:
            self._unwatch()
        elif self._waiting is None:
            self._waiting = self.loop.call_later(self.head_s, self.transport.abort)

    def _unwatch(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None


class Served:
    """The listener, in a thread of this process."""

    def __init__(self, serving: Serving, authority: Authority) -> None:
        """Raises ConfigFault for settings that cannot be meant."""
        self._settings = serving.home.config.server
        self._address = address(self._settings)
        make_folder(serving.home.path / "cache")
        self._hub = Hub()
        self._news = News(serving.home.path, self._hub)
        self._stopped = threading.Event()
        self._desks = {name: Desk(name, n_threads=n, most=most) for name, (n, most) in _DESKS.items()}
        self._homes = Homes(lambda identity, only: _beside(serving, identity, read_only=only))
        self._requests = Requests(serving.home.path)
        shared = Server(
            home=serving.home.path, authority=authority, cursors=Cursors(self._requests.key()), hub=self._hub,
            news=self._news, together=Together(), wake=serving.keeper.wake, is_warm=lambda: serving.asker.is_warm,
            health=serving.health, depth=self._depth, lent=lambda: self._homes.lent(None, read_only=False),
            begin=self._begin,
        )  # fmt: skip
        self.api = Api(shared, self._homes, self._requests, self._desks, self._settings.requests_per_minute)
        self.application = _application(self.api, self._address.host)
        self._server = uvicorn.Server(self._config(self.application))
        self._thread = threading.Thread(target=self._run, name="perdure-http", daemon=True)
        self._teller = threading.Thread(
            target=self._news.run, args=(self._stopped,), name="perdure-http-news", daemon=True
        )
        self._ended = threading.Event()

    def _begin(self, name: str, work: Callable[[], None]) -> None:
        """Do something in the slow desk. Raises Refused (503) when too much waits there."""
        home = self.api.server.home
        self._desks["jobs"].begin(work, failed=lambda error: log.note(home, "job", job=name, code=_code(error)))

    def _depth(self) -> dict[str, int]:
        return {name: desk.n_waiting for name, desk in self._desks.items()}

    def _config(self, application: Starlette) -> uvicorn.Config:
        tls: dict[str, Any] = {}
        if self._settings.tls_certificate:
            tls["ssl_certfile"] = Path(self._settings.tls_certificate).expanduser()
            tls["ssl_keyfile"] = Path(self._settings.tls_key).expanduser()
        return uvicorn.Config(
            application, host=self._address.host, port=self._address.port, http=_Line, ws="none",
            log_config=None, log_level="critical", access_log=False, proxy_headers=False, server_header=False,
            limit_concurrency=_CONNECTIONS,
            timeout_keep_alive=_KEEP_ALIVE_S, timeout_graceful_shutdown=_END_S,
            h11_max_incomplete_event_size=_HEAD_BYTES, **tls,
        )  # fmt: skip

    def _run(self) -> None:
        try:
            self._server.run()
        except SystemExit:  # uvicorn's word for an address that is taken
            pass
        finally:
            self._ended.set()

    def start(self) -> str:
        """The address at which it answers. Raises PerdureError where it cannot listen."""
        self._thread.start()
        self._teller.start()
        for _ in range(int(_START_S / 0.02)):
            if self._server.started or self._ended.wait(0.02):
                break
        if not self._server.started:
            raise PerdureError(f"server.http: nothing can listen at {self._address.host}:{self._address.port}")
        host, port = self._socket()
        scheme = "https" if self._settings.tls_certificate else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def _socket(self) -> tuple[str, int]:
        name: Any = self._server.servers[0].sockets[0].getsockname()
        return str(name[0]), int(name[1])

    def stop(self) -> None:
        """End it: who listens is told so, and what is being answered comes to its end."""
        self._stopped.set()
        self._hub.close()
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(timeout=_END_S + 5)
        for desk in self._desks.values():
            desk.close()
        self._homes.close()
        self._requests.close()


def _code(error: BaseException) -> str:
    return str(getattr(error, "code", type(error).__name__))


def _application(api: Api, host: str) -> Starlette:
    """The API, and MCP beside it where its package is installed."""
    try:
        from perdure.surfaces.http import tools
    except ModuleNotFoundError:
        return app.build(api)
    guarded = tools.Guarded(api, host)
    inner = guarded.inner
    return app.build(api, beside=[Route(tools.PATH, guarded)], lifespan=lambda _: inner.router.lifespan_context(inner))


def _beside(serving: Serving, identity: Identity | None, *, read_only: bool) -> Home:
    return serving.beside(read_only=read_only, identity=identity)
