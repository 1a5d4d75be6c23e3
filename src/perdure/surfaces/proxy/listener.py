"""Listen as a proxy, in the process of `perdure proxy` or of a resident home whose settings want it.

The packages of the server are loaded only here, and only then.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from perdure.config import Config
from perdure.errors import PackageMissing

if TYPE_CHECKING:
    from perdure.surfaces.proxy.server import ProxyServer

_MISSING = "the proxy needs more packages (pip install 'perdure[server]')"


class ProxyListener:
    """Hold at most one proxy of a home."""

    def __init__(self, home: Path, config: Config) -> None:
        self._home, self._config = home, config
        self._server: ProxyServer | None = None

    def start(self, *, listen: str = "", is_wanted: bool = False) -> str:
        """Listen where the settings say; return the base URL, or "" if neither they nor the caller want a proxy.

        listen: an address instead of the setting. Raises ConfigFault, PackageMissing.
        """
        if not (is_wanted or self._config.proxy.listen):
            return ""
        try:
            from perdure.surfaces.proxy.server import ProxyServer
        except ModuleNotFoundError as error:
            raise PackageMissing(_MISSING) from error
        server = ProxyServer(self._home, self._config, listen=listen)
        base_url = server.start().base_url
        self._server = server
        return base_url

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.stop()
            self._server = None


def read_base_url(home: Path, config: Config) -> str:
    """Return the base URL at which the proxy was last served, else the one it will have. Raises PackageMissing."""
    try:
        from perdure.surfaces.proxy.server import read_proxy_address
    except ModuleNotFoundError as error:
        raise PackageMissing(_MISSING) from error
    return read_proxy_address(home, config.proxy.listen, is_tls=bool(config.server.tls_certificate)).base_url
