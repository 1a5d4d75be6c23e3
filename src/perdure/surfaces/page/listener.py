"""What listens over HTTP in the resident home: where the settings want it, or where a person once asked for the page.

A home on which nobody ever did listens nowhere. The first `perdure page` makes it listen to this machine alone, from
then on at the same address whenever it is served, so that addresses of the page can be kept.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

from perdure.authority.machines import LocalAuthority
from perdure.capture.files import make_folder
from perdure.capture.files import replace as replace_file
from perdure.config import ServerConfig
from perdure.errors import ConfigFault, PackageMissing
from perdure.resident.serve import Serving

USUAL = "127.0.0.1:8787"
ANY = "127.0.0.1:0"
_KEPT = "run/page"  # in a home: where the page was answered


class Listener:
    """At most one server, begun by whichever comes first."""

    def __init__(self, serving: Serving) -> None:
        """Nothing listens yet."""
        self._serving = serving
        self._home = serving.home.path
        self._settings = serving.home.config.server
        self._lock = threading.Lock()
        self._open: _Open | None = None

    def start(self) -> str:
        """Listen where the settings want it, or where the page was asked for before. The address, or nothing.

        Raises ConfigFault and PackageMissing where the settings want it: a page that cannot be had any more keeps no
        home from being served.
        """
        if not (self._settings.http or kept(self._home)):
            return ""
        try:
            with self._lock:
                return self._begun().address
        except (ConfigFault, PackageMissing):
            if self._settings.http:
                raise
            return ""

    def page(self) -> str:
        """An address that lets its visitor in, once. Raises ConfigFault, PackageMissing."""
        with self._lock:
            return self._begun().link()

    def _begun(self) -> _Open:
        if self._open is None:
            self._open = self._listening()
            self._serving.http = self._open.address
        return self._open

    def _listening(self) -> _Open:
        if self._settings.http:
            return _Open(self._serving, self._settings)
        found = self._on_this_machine()
        make_folder(self._home / "run")
        replace_file(self._home / _KEPT, found.address.partition("://")[2].encode(), sync=False)
        return found

    def _on_this_machine(self) -> _Open:
        """At the address of before, at the usual one, or at any: another home may have it."""
        for place in (kept(self._home) or USUAL, ANY):
            try:
                return _Open(self._serving, replace(self._settings, http=place))
            except ConfigFault:
                if place == ANY:
                    raise
        raise AssertionError

    def close(self) -> None:
        """Listen no more."""
        with self._lock:
            if self._open is not None:
                self._open.close()
                self._open = None


class _Open:
    """A server that listens."""

    def __init__(self, serving: Serving, settings: ServerConfig) -> None:
        """Raises ConfigFault, PackageMissing."""
        try:
            from perdure.surfaces.http.serving import Served
            from perdure.surfaces.page.wired import Wired
        except ModuleNotFoundError as error:
            said = "what answers browsers and other machines needs more packages (pip install 'perdure[server]')"
            raise PackageMissing(said) from error
        home = serving.home
        authority = LocalAuthority(home.path, home.config.admins, watch=home.authority())
        self._wired = Wired(home, authority, is_tls=bool(settings.tls_certificate))
        self._served = Served(serving, authority, settings=settings, wired=self._wired)
        try:
            self.address = self._served.start()
        except BaseException:
            self._served.stop()
            raise

    def link(self) -> str:
        """An address that lets its visitor in, once."""
        return f"{_reachable(self.address)}/enter/{self._wired.links.make()}"

    def close(self) -> None:
        """Listen no more."""
        self._served.stop()


def _reachable(address: str) -> str:
    """An address that a browser on this machine can open.

    >>> _reachable("https://0.0.0.0:8443")
    'https://127.0.0.1:8443'
    """
    return address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def kept(home: Path) -> str:
    """Where the page of a home was answered; nothing where nobody asked for it."""
    try:
        return (home / _KEPT).read_text().strip()
    except OSError:
        return ""


def forget(home: Path) -> bool:
    """From the next `serve` on the page is not answered any more; whether it was."""
    try:
        (home / _KEPT).unlink()
    except FileNotFoundError:
        return False
    return True
