"""Run the HTTP listener of the resident home: the API, and MCP if its package is installed.

It listens to this machine only, unless the settings say otherwise; to other machines only with TLS, or if
the settings state that the network itself keeps others out. On each connection, headers must come in
time and the client must read in time. When there are too many connections, the one that has been idle
longest is closed, so that a new one is always accepted.
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

import h11
import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from perdure import log
from perdure.config import ServerConfig
from perdure.disk import make_folder
from perdure.errors import ConfigFault
from perdure.service.server import HomeServer
from perdure.sharing.machines import Authority
from perdure.surfaces.http import app, responses
from perdure.surfaces.http.app import HttpApi, MountedApp
from perdure.surfaces.http.calls import ServerContext
from perdure.surfaces.http.events import ActivityFeed, Subscribers
from perdure.surfaces.http.host_check import HostCheck
from perdure.surfaces.http.pools import CaptureBatcher, HealthProbe, HomePool, WorkerPool
from perdure.surfaces.http.responses import CursorSigner
from perdure.surfaces.http.store import RequestStore
from perdure.surfaces.join_line import read_certificate

MAX_CONNECTIONS = 512  # open at the same time
MAX_IDLE_PER_ADDRESS = 64  # of them, idle ones from one address
_MAX_UNREAD_MS = 60_000  # longest time that a client may leave data unread
_UNREAD_OPTION: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)  # only on some systems (Linux)


class HttpConnection(H11Protocol):
    """A connection on which headers must come in time, and the client must read in time."""

    max_header_s = 30.0  # longest time for the headers of a request
    max_connections = MAX_CONNECTIONS
    max_idle_per_address = MAX_IDLE_PER_ADDRESS
    last_data_s = 0.0  # time of the last data, by the clock of the loop
    _header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for headers."""
        super().connection_made(transport)
        raw_socket = transport.get_extra_info("socket")
        if raw_socket is not None and _UNREAD_OPTION is not None:
            raw_socket.setsockopt(socket.IPPROTO_TCP, _UNREAD_OPTION, _MAX_UNREAD_MS)
        self._start_header_timer()
        self._close_longest_idle()

    def data_received(self, data: bytes) -> None:
        """Process the data, then watch the time again."""
        super().data_received(data)
        self._start_header_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_header_timer()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse data that is not HTTP, with the body that every refusal has."""
        body = msgspec.json.encode(responses.render_refusal(responses.refuse_usage(msg)).body)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _start_header_timer(self) -> None:
        """Begin to wait for the headers of a request, unless a request is being answered."""
        self.last_data_s = self.loop.time()
        if not self.is_idle:
            self._stop_header_timer()
        elif self._header_timer is None:
            self._header_timer = self.loop.call_later(self.max_header_s, self.transport.abort)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _close_longest_idle(self) -> None:
        """When there are too many connections, close the longest idle one, of this address or of all."""
        idle_connections = [
            connection
            for connection in self.connections
            if isinstance(connection, HttpConnection) and connection.is_idle and connection is not self
        ]
        oldest_first = sorted(idle_connections, key=lambda connection: connection.last_data_s)
        same_address = [connection for connection in oldest_first if connection.host == self.host]
        if len(same_address) >= self.max_idle_per_address:
            same_address[0].close_now()
        elif len(self.connections) > self.max_connections:
            (oldest_first or [self])[0].close_now()

    @property
    def is_idle(self) -> bool:
        """True if no request is being answered on this connection."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def host(self) -> str:
        """The address of the client."""
        return self.client[0] if self.client else ""

    def close_now(self) -> None:
        """Close it at once, and do not count it any more."""
        self._stop_header_timer()
        self.connections.discard(self)
        self.transport.abort()


_MAX_START_S = 10.0
_MAX_SHUTDOWN_S = 10
_MAX_HEADER_BYTES = 64 * 1024
_KEEP_ALIVE_S = 15
_BACKLOG = 128  # connections that are accepted at once, before any of them can be closed
_RESTART_S = 1.0  # a server that died starts again after this time
_PROBE_TIMEOUT_S = 5.0  # longest time for the answer to a proof request
_POOL_SIZES = {  # name: (threads, requests that run or wait)
    "identity": (2, 256),
    "capture": (8, 128),
    "read": (3, 128),
    "write": (1, 64),
    "tools": (2, 64),
    "slow": (1, 256),
    "sign-in": (4, 32),  # each may wait for the server of a stranger
    "chat": (4, 64),  # to open a session takes a moment
    "titles": (4, 64),  # that chat programs ask for themselves: each waits for the model
    "jobs": (1, 8),
}


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """The host and port to listen at."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach the address."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def read_address(settings: ServerConfig, *, setting: str = "server.http") -> ListenAddress:
    """Read the listen address from the settings. Raises ConfigFault for settings that are not valid or not safe.

    setting: the name of the setting that holds the address, for its error.
    """
    host, colon, port = settings.http.rpartition(":")
    result = ListenAddress(host.strip("[]"), int(port) if port.isascii() and port.isdecimal() and len(port) < 6 else -1)
    if not colon or not result.host or not 0 <= result.port < 65_536:
        raise ConfigFault(f"{setting} = {settings.http!r} (expected something like '127.0.0.1:8787')")
    if bool(settings.tls_certificate) != bool(settings.tls_key):
        raise ConfigFault("server.tls_certificate and server.tls_key must be set together: set both or none")
    for name in ("tls_certificate", "tls_key"):
        path = getattr(settings, name)
        if path and not Path(path).expanduser().is_file():
            raise ConfigFault(f"server.{name} = {path!r}: there is no such file")
    if not (result.is_loopback or settings.tls_certificate or settings.plain):
        raise ConfigFault(
            f"{setting} = {settings.http!r}: other machines can reach that address. Set server.tls_certificate and "
            "server.tls_key; or server.plain = true if the network is private (for example a VPN)"
        )
    return result


class HttpServer:
    """The listener, in a thread of this process."""

    def __init__(
        self,
        resident: HomeServer,
        authority: Authority,
        *,
        settings: ServerConfig | None = None,
        mount_app: Callable[[HttpApi], MountedApp] | None = None,
    ) -> None:
        """settings: those of the home unless given. mount_app: returns another application to serve.

        Raises ConfigFault for settings that are not valid.
        """
        self._settings = settings or resident.home.config.server
        self._mount_app = mount_app
        self._address = read_address(self._settings)
        check_certificate(self._settings)
        make_folder(resident.home.path / "cache")
        self._subscribers = Subscribers()
        self._activity_feed = ActivityFeed(resident.home.path, self._subscribers)
        self._stopped = threading.Event()
        self._worker_pools = {
            name: WorkerPool(name, n_threads=n_threads, max_waiting=max_waiting)
            for name, (n_threads, max_waiting) in _POOL_SIZES.items()
        }
        self._home_pool = HomePool(
            lambda identity, read_only: resident.clone_home(read_only=read_only, identity=identity)
        )
        self._request_store = RequestStore(resident.home.path, is_shared=resident.home.config.workers.enabled)
        self.api = HttpApi(
            self._make_context(resident, authority), self._home_pool, self._request_store, self._worker_pools,
            self._settings.requests_per_minute,
        )  # fmt: skip
        self._home_path, self._vitals, self._prove_s = (
            resident.home.path,
            resident.health_state,
            resident.intervals.prove_s,
        )
        self._server = self._make_server()
        self._thread = threading.Thread(target=self._run, name="perdure-http", daemon=True)
        self._feed_thread = threading.Thread(
            target=self._activity_feed.watch, args=(self._stopped,), name="perdure-http-news", daemon=True
        )
        self._proof_thread = threading.Thread(target=self._prove_alive, name="perdure-http-proof", daemon=True)
        self._ended = threading.Event()
        self._has_begun = False
        self._failure: BaseException | None = None

    def _make_context(self, resident: HomeServer, authority: Authority) -> ServerContext:
        """Return what the handlers of requests share."""
        return ServerContext(
            home=resident.home.path,
            authority=authority,
            cursors=CursorSigner(self._request_store.read_cursor_key()),
            subscribers=self._subscribers,
            activity_feed=self._activity_feed,
            capture_batcher=CaptureBatcher(),
            probe=HealthProbe(),
            wake=resident.ingest_worker.wake,
            find_overload=resident.ingest_worker.find_overload,
            is_warm=lambda: resident.query_worker.is_warm,
            read_health=resident.report_health,
            count_waiting=lambda: {name: pool.n_waiting for name, pool in self._worker_pools.items()},
            lend_home=lambda: self._home_pool.lend(None, read_only=False),
            start_job=self._start_job,
        )

    def _start_job(self, name: str, task: Callable[[], None]) -> None:
        """Start a job in the pool `jobs`. Raises HttpRefusal (503) when too many jobs wait there."""
        home = self.api.server.home
        self._worker_pools["jobs"].start_task(
            task, on_error=lambda error: log.append_entry(home, "job", job=name, code=_read_error_code(error))
        )

    def _list_names(self) -> list[str]:
        """List the names under which the settings and the certificate offer this server."""
        certificate = read_certificate(self._settings) if self._settings.tls_certificate else None
        return [self._address.host, *self._settings.names, *(certificate.names if certificate else ())]

    def _build_config(self, application: ASGIApp) -> uvicorn.Config:
        return build_server_config(
            application,
            HttpConnection,
            self._address,
            self._settings,
            backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_MAX_SHUTDOWN_S,
            h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
        )

    def _make_server(self) -> _UvicornServer:
        """Make a server for one event loop; load its settings now rather than in its thread."""
        self.api.bind_loop()
        mounted = self._mount_app(self.api) if self._mount_app else MountedApp()
        self.application = _build_application(self.api, mounted)
        config = self._build_config(HostCheck(self.application, self._list_names()))
        config.load()
        return _UvicornServer(config, self._home_path)

    def _run(self) -> None:
        """Serve until stopped; if the server ends before that, start it again at the same address."""
        while not self._stopped.is_set():
            try:
                self._server.run()
            except SystemExit as exit_error:  # uvicorn exits like this when it cannot have the address
                self._failure = exit_error.__context__
            except Exception as error:  # noqa: BLE001 - after any error the next server serves
                self._failure = error
            self._ended.set()
            if not self._has_begun or self._stopped.wait(_RESTART_S):
                return
            self._server.release()
            log.append_entry(
                self._home_path,
                "failed",
                client="http",
                kind="serve",
                code=_read_error_code(self._failure or Exception()),
            )
            self._server = self._make_server()

    def start(self) -> str:
        """Start to listen; return the address that answers. Raises ConfigFault if it cannot listen."""
        self._thread.start()
        for _ in range(int(_MAX_START_S / 0.02)):
            if self._server.started or self._ended.wait(0.02):
                break
        if not self._server.started:
            location = f"{self._address.host}:{self._address.port}"
            raise ConfigFault(f"server.http: nothing can listen at {location} ({explain_failure(self._failure)})")
        host, port = self._read_socket_address()
        self._address = ListenAddress(self._address.host, port)
        self._has_begun = True
        self._vitals.record_proof("http")
        self._feed_thread.start()
        self._proof_thread.start()
        scheme = "https" if self._settings.tls_certificate else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def _prove_alive(self) -> None:
        """Send requests as a client does, over a connection of its own, until stopped."""
        host, port = self._read_socket_address()
        while not self._stopped.wait(self._prove_s):
            try:
                is_answered = is_answering(ListenAddress(host, port), is_tls=bool(self._settings.tls_certificate))
            except (OSError, http.client.HTTPException) as error:
                self._vitals.failure_codes["http"] = type(error).__name__
                continue
            if is_answered:
                self._vitals.record_proof("http")

    def _read_socket_address(self) -> tuple[str, int]:
        socket_name: Any = self._server.servers[0].sockets[0].getsockname()
        return str(socket_name[0]), int(socket_name[1])

    def stop(self) -> None:
        """Stop: end the event streams, and let the running requests finish."""
        self._stopped.set()
        self._subscribers.close()
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(timeout=_MAX_SHUTDOWN_S + 5)
        for pool in self._worker_pools.values():
            pool.close()
        self._home_pool.close()
        self._request_store.close()


class _UvicornServer(uvicorn.Server):
    """The server of uvicorn; errors of its event loop go to the log, which cannot fail for lack of a free file."""

    def __init__(self, config: uvicorn.Config, home: Path) -> None:
        super().__init__(config)
        self._home = home

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(self._log_loop_error)
        await super().startup(sockets)

    def release(self) -> None:
        """Close its sockets after its loop ended."""
        for server in self.servers if self.started else []:
            with contextlib.suppress(RuntimeError):  # its loop is closed, and so are the sockets
                server.close()

    def _log_loop_error(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        log.append_entry(
            self._home, "failed", client="http", kind="loop", code=_read_error_code(error) if error else ""
        )


def build_server_config(
    application: Any, connection: type[HttpConnection], address: ListenAddress, settings: ServerConfig, **limits: Any
) -> uvicorn.Config:
    """Return the configuration of a server that logs nothing, believes no header of a proxy and does not name itself.

    limits: further fields of `uvicorn.Config`.
    """
    if settings.tls_certificate:
        limits["ssl_certfile"] = Path(settings.tls_certificate).expanduser()
        limits["ssl_keyfile"] = Path(settings.tls_key).expanduser()
    return uvicorn.Config(
        application,
        host=address.host,
        port=address.port,
        http=connection,
        ws="none",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        **limits,
    )


def is_answering(address: ListenAddress, *, is_tls: bool, path: str = app.ALIVE_PATH) -> bool:
    """Return True if the server at an address answers now. Raises OSError or HTTPException if it does not.

    path: is answered with status 200 by a server that works.
    """
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address.host, address.host)
    connection = http.client.HTTPConnection(host, address.port, timeout=_PROBE_TIMEOUT_S)
    if is_tls:  # clients decide if they trust the certificate
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(host, address.port, timeout=_PROBE_TIMEOUT_S, context=context)
    with contextlib.closing(connection):
        connection.request("GET", path, headers={"Connection": "close"})
        return connection.getresponse().status == 200


def check_certificate(settings: ServerConfig) -> None:
    """Raise ConfigFault, which names the setting, if the TLS files cannot be used."""
    if not settings.tls_certificate:
        return
    certificate, key = (Path(path).expanduser() for path in (settings.tls_certificate, settings.tls_key))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    setting = f"server.tls_certificate = {settings.tls_certificate!r}"
    try:
        context.load_verify_locations(certificate)
        setting = f"server.tls_key = {settings.tls_key!r}"
        context.load_cert_chain(certificate, key, lambda: "")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or "it is not in PEM"
        raise ConfigFault(f"{setting}: the file cannot be used ({str(reason).lower().replace('_', ' ')})") from error


def explain_failure(error: BaseException | None) -> str:
    """Return in words why the server cannot listen."""
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        return "the address is taken"
    if isinstance(error, socket.gaierror):
        return "there is no such host"
    return os.strerror(number).lower() if number else "it did not start in time"


def _read_error_code(error: BaseException) -> str:
    return str(getattr(error, "code", type(error).__name__))


def _build_application(api: HttpApi, mounted: MountedApp) -> Starlette:
    """Build the API with the mounted application, and with MCP if its package is installed."""
    try:
        from perdure.surfaces.http import tools
    except ModuleNotFoundError:
        return app.build_app(api, mounted=mounted)
    mcp_app = tools.McpApp(api)
    inner = mcp_app.inner
    mounted_with_mcp = replace(mounted, routes=[Route(tools.MCP_PATH, mcp_app), *mounted.routes])
    return app.build_app(api, mounted=mounted_with_mcp, lifespan=lambda _: inner.router.lifespan_context(inner))
