"""Serve MCP next to the API: the same tools as over stdio, each call as the identity of its credential.

A session belongs to the credential that opened it; another credential cannot see it. A revoked credential
is refused at the next message.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar
from urllib.parse import urlsplit

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from perdure.home import Home
from perdure.surfaces.http.app import HttpApi
from perdure.surfaces.http.responses import HttpRefusal
from perdure.surfaces.mcp.server import build_server
from perdure.text import printable
from perdure.types import Identity

MCP_PATH = "/mcp"
_CALLER: ContextVar[Identity] = ContextVar("perdure-identity")  # identity of the current message
T = TypeVar("T")


class HttpToolRunner:
    """Runs MCP tools in the worker pool of the API, with homes of the caller's identity."""

    def __init__(self, api: HttpApi) -> None:
        self._api = api

    async def ask(self, question: Callable[[Home], T]) -> T:
        """Run a function with the caller's home and return its result. Raises its errors."""
        identity = _CALLER.get()

        def ask_home() -> T:
            with self._api.homes.lend(identity, read_only=False) as home:
                return question(home)

        return await self._api.worker_pools["tools"].run_task(ask_home)


class McpApp:
    """The MCP application, open only to credentials that the authority knows."""

    def __init__(self, api: HttpApi) -> None:
        self._api = api
        is_checked_here = TransportSecuritySettings(enable_dns_rebinding_protection=False)  # it knows no `server.names`
        self.inner: Starlette = build_server(HttpToolRunner(api), cwd=None).streamable_http_app(
            streamable_http_path=MCP_PATH, transport_security=is_checked_here
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401 or 403, or forward the request with its identity."""
        try:
            _check_origin(Request(scope))
            identity = await self._api.identify(Request(scope))
        except Exception as error:  # noqa: BLE001 - every error becomes a body, as in the API
            response = await self._api.respond_to_error(Request(scope), error)
            await response(scope, receive, send)
            return
        _CALLER.set(identity)
        token = AccessToken(token="", client_id=identity.machine_id, scopes=[], subject=identity.user)
        await self._forward({**scope, "user": AuthenticatedUser(token)}, receive, send)

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request; if that fails before an answer has begun, send an error body."""
        has_begun = False

        async def send_noted(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self.inner(scope, receive, send_noted)
        except Exception as error:
            error_response = await self._api.respond_to_error(Request(scope), error)
            if has_begun:  # too late for another answer: the connection is closed
                raise
            await error_response(scope, receive, send)


def _check_origin(request: Request) -> None:
    """Raise HttpRefusal (403) if a page of another host sends a request. `HostCheck` saw that this host is served.

    Pages of the client's own machine may: tools that try an MCP server run there.
    """
    origin = request.headers.get("origin")
    if origin is None:
        return
    own_name = _find_host_name(f"//{request.headers.get('host', '')}")
    if _find_host_name(origin) not in {own_name or "localhost", "localhost", "127.0.0.1", "::1"}:
        words = printable(origin[:200])
        raise HttpRefusal(
            403, "forbidden", f"A web page of {words!r} sent this: only pages of this home's address may."
        )


def _find_host_name(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""
