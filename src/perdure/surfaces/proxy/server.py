"""Run the proxy at an address of its own, in a thread of this process.

It listens to this machine only, unless TLS is set (or the settings state that the network is private). Its secret is
made once for a home and stands in the base URL, so that another account of the machine, a web page or another machine
cannot ask for this home's memory.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import socket
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn

from perdure.capture import events
from perdure.clients import setup
from perdure.config import Config, find_user_home, read_variable
from perdure.disk import make_folder, replace_file
from perdure.errors import ConfigFault, PerdureError
from perdure.surfaces.http.server import (
    HttpConnection,
    ListenAddress,
    build_server_config,
    check_certificate,
    explain_failure,
    is_answering,
    read_address,
)
from perdure.surfaces.proxy import upstreams
from perdure.surfaces.proxy.app import ALIVE_PATH, ProxyApp
from perdure.surfaces.proxy.edits import RequestEditor
from perdure.surfaces.proxy.store import BlockStore

DEFAULT_ADDRESS = "127.0.0.1:8788"
SETTING = "proxy.listen"
_FILE = "run/proxy.json"  # in a home: its secret, and the address at which it was last served
_SECRET_BYTES = 12
_HOOKS_KEPT_S = 30.0  # what the settings of clients say is read again after this time
_MAX_START_S = 10.0
_MAX_SHUTDOWN_S = 2
_MAX_HEADER_BYTES = 256 * 1024
_KEEP_ALIVE_S = 75
_REPORT_S = 10.0  # between two reports to the resident home; it takes one of 40 s for a sign that something hangs
_REPORT_LIMIT_S = 2.0


class ProxyAddress(NamedTuple):
    """The base URLs of a proxy."""

    url: str  # for clients of Anthropic's API
    secret: str

    @property
    def base_url(self) -> str:
        """The base URL for clients of Anthropic's API; OpenAI's ask for the same with `/v1`."""
        return f"{self.url}/{self.secret}"


def read_proxy_address(home: Path, listen: str, *, is_tls: bool = False) -> ProxyAddress:
    """Return the address at which the proxy was last served, else the one it will have; the secret is made if needed.

    listen: of the settings, or "".
    """
    fields = _read_file(home)
    scheme = "https" if is_tls else "http"
    url = str(fields.get("url") or f"{scheme}://{listen or DEFAULT_ADDRESS}")
    secret = fields.get("secret")
    if not isinstance(secret, str) or len(secret) < _SECRET_BYTES:
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        _write_file(home, {**fields, "secret": secret})
    return ProxyAddress(url, secret)


def _read_file(home: Path) -> dict[str, Any]:
    try:
        fields = json.loads((home / _FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _write_file(home: Path, fields: dict[str, Any]) -> None:
    make_folder((home / _FILE).parent)
    replace_file(home / _FILE, json.dumps(fields).encode())
    (home / _FILE).chmod(0o600)


class ProxyConnection(HttpConnection):
    """A connection of a client of this machine, which may open very many at once."""

    max_connections = 4096
    max_idle_per_address = 2048


class HookFinder:
    """Says which clients of this machine have hooks of ours, by their settings."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, bool]] = {}

    def has_hooks(self, client: str) -> bool:
        """Return True if a client has hooks, so that it needs neither recall nor capture from here."""
        read_s, is_set_up = self._known.get(client, (0.0, False))
        if not read_s or time.monotonic() - read_s > _HOOKS_KEPT_S:
            is_set_up = self._read_settings(client)
            self._known[client] = (time.monotonic(), is_set_up)
        return is_set_up

    def _read_settings(self, client: str) -> bool:
        try:
            path = setup.find_client_settings(client, find_user_home(), read_variable)
            return bool(setup.read_commands(client, path))
        except (KeyError, OSError, PerdureError):  # no client that can have hooks, or settings that cannot be read
            return False


class ProxyServer:
    """The listener of one home's proxy."""

    def __init__(self, home: Path, config: Config, *, listen: str = "", report_s: float = _REPORT_S) -> None:
        """listen: instead of the setting. report_s: between two reports to the resident home. Raises ConfigFault."""
        settings = config.server._replace(http=listen or config.proxy.listen or DEFAULT_ADDRESS)
        self._home, self._settings = home, settings
        self._address = read_address(settings, setting=SETTING)
        check_certificate(settings)
        allowed = upstreams.read_upstreams(config.proxy)
        self._store = BlockStore(home)
        self._editor = RequestEditor(
            home, self._store, limit_ms=config.proxy.limit_ms, has_hooks=HookFinder().has_hooks
        )
        self._secret, self._url, self._report_s = read_proxy_address(home, config.proxy.listen).secret, "", report_s
        self.app = ProxyApp(
            home, self._editor, self._store, allowed,
            secret=self._secret, limit_ms=config.proxy.limit_ms, can_capture=config.proxy.capture,
        )  # fmt: skip
        self._server = _ProxyLoop(self._build_config(), self.app)
        self._thread = threading.Thread(target=self._run, name="perdure-proxy", daemon=True)
        self._failure: BaseException | None = None
        self._ended = threading.Event()
        self._stopped = threading.Event()
        self._report_thread = threading.Thread(target=self._report_health, name="perdure-proxy-health", daemon=True)

    def _build_config(self) -> uvicorn.Config:
        return build_server_config(
            self.app,
            ProxyConnection,
            self._address,
            self._settings,
            lifespan="off",
            interface="asgi3",
            date_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_MAX_SHUTDOWN_S,
            h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
        )

    def start(self) -> ProxyAddress:
        """Start to listen; return the address. Raises ConfigFault."""
        self._thread.start()
        for _ in range(int(_MAX_START_S / 0.02)):
            if self._server.started or self._ended.wait(0.02):
                break
        if not self._server.started:
            location = f"{self._address.host}:{self._address.port}"
            self._store.close()
            raise ConfigFault(f"{SETTING}: nothing can listen at {location} ({explain_failure(self._failure)})")
        host, port = self._server.servers[0].sockets[0].getsockname()[:2]
        scheme = "https" if self._settings.tls_certificate else "http"
        self._url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
        self._address = ListenAddress(self._address.host, port)
        _write_file(self._home, {**_read_file(self._home), "url": self._url})
        self._report_thread.start()
        return read_proxy_address(self._home, "")

    def _report_health(self) -> None:
        """Tell the resident home, until stopped, that requests are answered here, and how they went."""
        report = {"address": self._url, "pid": os.getpid(), "since_at": datetime.now(UTC).isoformat()}
        is_tls, path = bool(self._settings.tls_certificate), f"/{self._secret}{ALIVE_PATH}"
        while not self._stopped.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):  # it will miss the report
                if is_answering(self._address, is_tls=is_tls, path=path):
                    self._send_report(report)
            self._stopped.wait(self._report_s)
        self._send_report({**report, "has_ended": True})

    def _send_report(self, report: dict[str, Any]) -> None:
        with contextlib.suppress(OSError, ValueError):  # no resident home: nobody asks for it
            request = {"op": "proxy", "report": {**report, **vars(self.app.traffic)}}
            events.ask_resident(self._home, request, timeout_s=_REPORT_LIMIT_S)

    def _run(self) -> None:
        try:
            self._server.run()
        except SystemExit as exit_error:  # uvicorn exits like this when it cannot have the address
            self._failure = exit_error.__context__
        except Exception as error:  # noqa: BLE001 - `start` says what it was
            self._failure = error
        self._ended.set()

    @property
    def counts(self) -> dict[str, int]:
        """Requests by outcome."""
        return dict(self._editor.counts)

    def stop(self) -> None:
        """Stop; what was answered is captured first."""
        self._stopped.set()
        if self._report_thread.ident is not None:
            self._report_thread.join(timeout=2 * _REPORT_LIMIT_S)
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(timeout=_MAX_SHUTDOWN_S + 5)
        self.app.close()
        self._store.close()


class _ProxyLoop(uvicorn.Server):
    """The server of uvicorn; at its end the connections to upstreams are closed, too."""

    def __init__(self, config: uvicorn.Config, app: ProxyApp) -> None:
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        await self._app.close_connections()
