"""Listen over HTTP in the resident home, if the settings want it or a person once asked for the page.

A home listens nowhere until one of these is true. The first `perdure page` makes it listen to this
machine alone, from then on at the same address whenever it is served, so that bookmarks of the page
keep working.
"""

from __future__ import annotations

import threading
from importlib.util import find_spec
from pathlib import Path

from perdure.config import ServerConfig
from perdure.disk import make_folder, replace_file
from perdure.errors import ConfigFault, PackageMissing
from perdure.service.server import HomeServer

DEFAULT_ADDRESS = "127.0.0.1:8787"
ANY_PORT = "127.0.0.1:0"
_ADDRESS_FILE = "run/page"  # in a home: the address at which the page was served

_MISSING = "serving browsers and other machines needs more packages (pip install 'perdure[server]')"


class Listener:
    """Hold at most one HTTP server, started by whichever caller comes first."""

    def __init__(self, serving: HomeServer) -> None:
        self._serving = serving
        self._home = serving.home.path
        self._settings = serving.home.config.server
        self._lock = threading.Lock()
        self._server: _RunningServer | None = None

    def start(self) -> str:
        """Listen where the settings want it, or where the page was asked for before. Return the address, or "".

        Raises ConfigFault and PackageMissing only if the settings want it: a page that can no longer be served
        must not stop the home from being served.
        """
        if not (self._settings.http or read_address(self._home)):
            return ""
        try:
            with self._lock:
                return self._require_server().address
        except (ConfigFault, PackageMissing):
            if self._settings.http:
                raise
            return ""

    def make_page_link(self) -> str:
        """Return an address that lets its visitor in once. Raises ConfigFault, PackageMissing."""
        with self._lock:
            return self._require_server().make_link()

    def _require_server(self) -> _RunningServer:
        if self._server is None:
            self._server = self._open_server()
            self._serving.http_address = self._server.address
        return self._server

    def _open_server(self) -> _RunningServer:
        if self._settings.http:
            return _RunningServer(self._serving, self._settings)
        server = self._open_locally()
        make_folder(self._home / "run")
        replace_file(self._home / _ADDRESS_FILE, server.address.partition("://")[2].encode(), sync=False)
        return server

    def _open_locally(self) -> _RunningServer:
        """Listen at the previous address, at the default one, or at any port: another home may use the first two."""
        for address in (read_address(self._home) or DEFAULT_ADDRESS, ANY_PORT):
            try:
                return _RunningServer(self._serving, self._settings._replace(http=address))
            except ConfigFault:
                if address == ANY_PORT:
                    raise
        raise AssertionError

    def close(self) -> None:
        """Stop listening."""
        with self._lock:
            if self._server is not None:
                self._server.close()
                self._server = None


def require_packages() -> None:
    """Raise PackageMissing unless the packages that serve browsers are installed; load none of them."""
    if None in map(find_spec, ("jinja2", "pygments", "python_multipart", "starlette", "uvicorn")):
        raise PackageMissing(_MISSING)


class _RunningServer:
    """An HTTP server that listens."""

    def __init__(self, serving: HomeServer, settings: ServerConfig) -> None:
        """Raises ConfigFault, PackageMissing."""
        try:
            from perdure.surfaces.http.server import HttpServer
            from perdure.surfaces.live_sessions import LiveSessions
            from perdure.surfaces.web.app import WebMount
        except ModuleNotFoundError as error:
            raise PackageMissing(_MISSING) from error
        home = serving.home
        authority = home.sharing.open_authority()
        self._live = LiveSessions(
            serving.clone_home, home.user, on_turn_end=serving.ingest_worker.wake, allows_remote=settings.remote_agent
        )
        self._mount = WebMount(home, authority, self._live, is_tls=bool(settings.tls_certificate))
        self._http_server = HttpServer(serving, authority, settings=settings, mount_app=self._mount)
        try:
            self.address = self._http_server.start()
        except BaseException:
            self.close()
            raise

    def make_link(self) -> str:
        """Return an address that lets its visitor in once."""
        return f"{_to_local_url(self.address)}/enter/{self._mount.links.create()}"

    def close(self) -> None:
        """Stop listening. Answers that go on are kept as far as they came."""
        self._live.close()
        self._http_server.stop()


def _to_local_url(address: str) -> str:
    """Return an address that a browser on this machine can open.

    >>> _to_local_url("https://0.0.0.0:8443")
    'https://127.0.0.1:8443'
    """
    return address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def read_address(home: Path) -> str:
    """Return the address at which a home's page was served; "" if nobody has asked for the page."""
    try:
        return (home / _ADDRESS_FILE).read_text().strip()
    except OSError:
        return ""


def forget_address(home: Path) -> bool:
    """Stop serving the page from the next `serve` on; return True if it was served before."""
    try:
        (home / _ADDRESS_FILE).unlink()
    except FileNotFoundError:
        return False
    return True
