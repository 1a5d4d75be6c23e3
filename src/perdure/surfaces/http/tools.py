"""MCP beside the API: the same tools as over standard input and output, each call as the identity of its credential.

A session belongs to the credential that opened it; with another one it is not there. A credential that was revoked is
refused at the next message.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from perdure.home import Home
from perdure.surfaces.http.app import Api
from perdure.surfaces.mcp.server import build
from perdure.types import Identity

PATH = "/mcp"
_WHO: ContextVar[Identity] = ContextVar("perdure-identity")  # of the message that is being answered
T = TypeVar("T")


class Tools:
    """Where the tools ask: the desk of the API, with homes of the caller's identity."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def ask(self, question: Callable[[Home], T]) -> T:
        """The answer of a function that is given the caller's home. Raises what that raises."""
        identity = _WHO.get()

        def answered() -> T:
            with self._api.homes.lent(identity, read_only=False) as home:
                return question(home)

        return await self._api.desks["tools"].ask(answered)


class Guarded:
    """MCP for those whom the authority knows."""

    def __init__(self, api: Api, host: str) -> None:
        self._api = api
        self.inner: Starlette = build(Tools(api), cwd=None).streamable_http_app(streamable_http_path=PATH, host=host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401, or hand the request on as its identity's."""
        try:
            identity = await self._api.identify(Request(scope))
        except Exception as error:  # noqa: BLE001 - whatever fails becomes an envelope, as in the API
            await self._api.failed(Request(scope), error)(scope, receive, send)
            return
        _WHO.set(identity)
        token = AccessToken(token="", client_id=identity.machine_id, scopes=[], subject=identity.user)
        await self._safely({**scope, "user": AuthenticatedUser(token)}, receive, send)

    async def _safely(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand it on; where that fails before an answer has begun, answer with an envelope."""
        has_begun = False

        async def noted(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self.inner(scope, receive, noted)
        except Exception as error:
            said = self._api.failed(Request(scope), error)
            if has_begun:  # too late for another answer: the connection breaks off
                raise
            await said(scope, receive, send)
