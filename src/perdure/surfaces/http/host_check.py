"""Answer only requests that name this server as their host.

A page of another site can make its own name lead to this address (DNS rebinding), and a browser would then let it read
the answers. Addresses in numbers cannot be used like that, so all of them are allowed.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from perdure import text
from perdure.surfaces.http.app import to_starlette
from perdure.surfaces.http.responses import HttpRefusal, render_refusal


class HostCheck:
    """An application that refuses requests for a host that is not served (421)."""

    def __init__(self, inner: ASGIApp, names: Iterable[str]) -> None:
        """names: host names under which this server may be reached; `*.example.org` stands for one label."""
        own_name = socket.gethostname().lower()
        self._inner = inner
        self._names = {"localhost", own_name, f"{own_name}.local", *(name.lower() for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward the request, or refuse it."""
        if scope["type"] == "http":
            hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
            if not all(map(self.is_served, hosts)):
                host = text.printable(hosts[0][:200])
                message = f"This home is not served as {host!r}: server.names in its config.toml lists its names."
                await to_starlette(render_refusal(HttpRefusal(421, "wrong-host", message)))(scope, receive, send)
                return
        await self._inner(scope, receive, send)

    def is_served(self, host: str) -> bool:
        """Return True if the value of a `Host` header names this server."""
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        name = name.lower().removesuffix(".")
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self._names or f"*.{name.partition('.')[2]}" in self._names
        return True
