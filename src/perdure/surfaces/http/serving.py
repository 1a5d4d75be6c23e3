"""One listener in the resident home: the API, and MCP beside it where its package is installed.

It listens to this machine alone unless the settings say otherwise; to others only with TLS, or where somebody says that
the network itself keeps them out.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import http.client
import ipaddress
import os
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route

from perdure.authority.socket import Authority
from perdure.capture import log
from perdure.capture.files import make_folder
from perdure.config import ServerConfig
from perdure.errors import ConfigFault
from perdure.home import Home
from perdure.resident.serve import Serving
from perdure.surfaces.http import app
from perdure.surfaces.http.app import Api, Beside
from perdure.surfaces.http.calls import Server
from perdure.surfaces.http.cursors import Cursors
from perdure.surfaces.http.events import Hub
from perdure.surfaces.http.homes import Desk, Homes
from perdure.surfaces.http.line import Line
from perdure.surfaces.http.news import News
from perdure.surfaces.http.probe import Probe
from perdure.surfaces.http.store import Requests
from perdure.surfaces.http.together import Together
from perdure.types import Identity

_START_S = 10.0
_END_S = 10
_HEAD_BYTES = 64 * 1024
_KEEP_ALIVE_S = 15
_BACKLOG = 128  # connections that are taken at one go, before any of them can be cut off
_AGAIN_S = 1.0  # a thread that died begins again after so long
_PROBE_S = 5.0  # so long may the answer to a proof take
_DESKS = {  # name: (threads, requests that are answered or wait)
    "identity": (2, 256),
    "capture": (8, 128),
    "read": (3, 128),
    "write": (1, 64),
    "tools": (2, 64),
    "slow": (1, 256),
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
    found = Address(host.strip("[]"), int(port) if port.isascii() and port.isdecimal() and len(port) < 6 else -1)
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


class Served:
    """The listener, in a thread of this process."""

    def __init__(
        self,
        serving: Serving,
        authority: Authority,
        *,
        settings: ServerConfig | None = None,
        wired: Callable[[Api], Beside] | None = None,
    ) -> None:
        """settings: those of the home unless given. wired: what else is served. Raises ConfigFault for settings that
        cannot be meant.
        """
        self._settings = settings or serving.home.config.server
        self._wired = wired
        self._address = address(self._settings)
        check_certificate(self._settings)
        make_folder(serving.home.path / "cache")
        self._hub = Hub()
        self._news = News(serving.home.path, self._hub)
        self._stopped = threading.Event()
        self._desks = {name: Desk(name, n_threads=n, most=most) for name, (n, most) in _DESKS.items()}
        self._homes = Homes(lambda identity, only: _beside(serving, identity, read_only=only))
        self._requests = Requests(serving.home.path)
        shared = Server(
            home=serving.home.path, authority=authority, cursors=Cursors(self._requests.key()), hub=self._hub,
            news=self._news, together=Together(), probe=Probe(),
            wake=serving.keeper.wake, is_warm=lambda: serving.asker.is_warm,
            health=serving.health, depth=self._depth, lent=lambda: self._homes.lent(None, read_only=False),
            begin=self._begin,
        )  # fmt: skip
        self.api = Api(shared, self._homes, self._requests, self._desks, self._settings.requests_per_minute)
        self._home, self._vitals, self._prove_s = serving.home.path, serving.vitals, serving.pace.prove_s
        self._server = self._made()
        self._thread = threading.Thread(target=self._run, name="perdure-http", daemon=True)
        self._teller = threading.Thread(
            target=self._news.run, args=(self._stopped,), name="perdure-http-news", daemon=True
        )
        self._prover = threading.Thread(target=self._prove, name="perdure-http-proof", daemon=True)
        self._ended = threading.Event()
        self._has_begun = False
        self._failure: BaseException | None = None

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
            application, host=self._address.host, port=self._address.port, http=Line, ws="none",
            log_config=None, log_level="critical", access_log=False, proxy_headers=False, server_header=False,
            backlog=_BACKLOG, timeout_keep_alive=_KEEP_ALIVE_S, timeout_graceful_shutdown=_END_S,
            h11_max_incomplete_event_size=_HEAD_BYTES, **tls,
        )  # fmt: skip

    def _made(self) -> _Server:
        """A server for one loop, which loads its settings now rather than in its thread."""
        self.api.begin()
        beside = self._wired(self.api) if self._wired else Beside()
        self.application = _application(self.api, self._address.host, beside)
        config = self._config(self.application)
        config.load()
        return _Server(config, self._home)

    def _run(self) -> None:
        """Serve until stopped: what ends before that begins anew, at the same address."""
        while not self._stopped.is_set():
            try:
                self._server.run()
            except SystemExit as end:  # uvicorn's word for an address that it cannot have
                self._failure = end.__context__
            except Exception as error:  # noqa: BLE001 - whatever it was, the next one serves
                self._failure = error
            self._ended.set()
            if not self._has_begun or self._stopped.wait(_AGAIN_S):
                return
            self._server.release()
            log.note(self._home, "failed", client="http", kind="serve", code=_code(self._failure or Exception()))
            self._server = self._made()

    def start(self) -> str:
        """The address at which it answers. Raises ConfigFault where it cannot listen."""
        self._thread.start()
        for _ in range(int(_START_S / 0.02)):
            if self._server.started or self._ended.wait(0.02):
                break
        if not self._server.started:
            where = f"{self._address.host}:{self._address.port}"
            raise ConfigFault(f"server.http: nothing can listen at {where} ({_reason(self._failure)})")
        host, port = self._socket()
        self._address = Address(self._address.host, port)
        self._has_begun = True
        self._vitals.prove("http")
        self._teller.start()
        self._prover.start()
        scheme = "https" if self._settings.tls_certificate else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def _prove(self) -> None:
        """Ask as a client does, over a connection of its own, until stopped."""
        host, port = self._socket()
        while not self._stopped.wait(self._prove_s):
            try:
                is_answered = answers(Address(host, port), is_tls=bool(self._settings.tls_certificate))
            except (OSError, http.client.HTTPException) as error:
                self._vitals.trouble["http"] = type(error).__name__
                continue
            if is_answered:
                self._vitals.prove("http")

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


class _Server(uvicorn.Server):
    """The server of uvicorn, whose loop notes what goes wrong in a place that cannot fail for want of a file."""

    def __init__(self, config: uvicorn.Config, home: Path) -> None:
        super().__init__(config)
        self._home = home

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(self._noted)
        await super().startup(sockets)

    def release(self) -> None:
        """Close what it listened at, after its loop ended."""
        for server in self.servers if self.started else []:
            with contextlib.suppress(RuntimeError):  # of the loop, which is closed; the sockets are then, too
                server.close()

    def _noted(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        log.note(self._home, "failed", client="http", kind="loop", code=_code(error) if error else "")


def answers(at: Address, *, is_tls: bool) -> bool:
    """Whether the server there answers now. Raises OSError or HTTPException where it does not."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(at.host, at.host)
    asked = http.client.HTTPConnection(host, at.port, timeout=_PROBE_S)
    if is_tls:  # whether the certificate is believed is for its clients to say
        context = ssl._create_unverified_context()
        asked = http.client.HTTPSConnection(host, at.port, timeout=_PROBE_S, context=context)
    with contextlib.closing(asked):
        asked.request("GET", app.ALIVE, headers={"Connection": "close"})
        return asked.getresponse().status == 200


def check_certificate(settings: ServerConfig) -> None:
    """Raise ConfigFault, which names the setting, where the files of TLS cannot be used."""
    if not settings.tls_certificate:
        return
    certificate, key = (Path(at).expanduser() for at in (settings.tls_certificate, settings.tls_key))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    said = f"server.tls_certificate = {settings.tls_certificate!r}"
    try:
        context.load_verify_locations(certificate)
        said = f"server.tls_key = {settings.tls_key!r}"
        context.load_cert_chain(certificate, key, lambda: "")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or "it is not in PEM"
        raise ConfigFault(f"{said}: it cannot be used ({str(reason).lower().replace('_', ' ')})") from error


def _reason(error: BaseException | None) -> str:
    """Why nothing can listen, in words."""
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        return "the address is taken"
    if isinstance(error, socket.gaierror):
        return "there is no such host"
    return os.strerror(number).lower() if number else "it did not begin in time"


def _code(error: BaseException) -> str:
    return str(getattr(error, "code", type(error).__name__))


def _application(api: Api, host: str, beside: Beside) -> Starlette:
    """The API with what is beside it, and MCP where its package is installed."""
    try:
        from perdure.surfaces.http import tools
    except ModuleNotFoundError:
        return app.build(api, beside=beside)
    guarded = tools.Guarded(api, host)
    inner = guarded.inner
    whole = replace(beside, routes=[Route(tools.PATH, guarded), *beside.routes])
    return app.build(api, beside=whole, lifespan=lambda _: inner.router.lifespan_context(inner))


def _beside(serving: Serving, identity: Identity | None, *, read_only: bool) -> Home:
    return serving.beside(read_only=read_only, identity=identity)
