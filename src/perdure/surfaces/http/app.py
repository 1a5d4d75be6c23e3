"""From a request to an answer: who asks, whether they may, what they say, and a thread with a home that answers.

The loop only moves bytes. Whatever goes wrong becomes an envelope in one place (`faults`), and no request that anybody
can send is answered with a traceback, or with a place of this machine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from perdure import live
from perdure.capture import log
from perdure.errors import NotFound
from perdure.surfaces.http import bodies, faults, openapi
from perdure.surfaces.http.answers import API, DOCUMENT, Answer
from perdure.surfaces.http.buckets import Buckets
from perdure.surfaces.http.calls import Call, Row, Server
from perdure.surfaces.http.faults import Refused, bad, retry
from perdure.surfaces.http.homes import Desk, Homes
from perdure.surfaces.http.routes import TABLE
from perdure.surfaces.http.store import Requests
from perdure.types import Identity

EVENTS = f"{API}/events"
ALIVE = f"{API}/alive"
FAILURES_PER_MINUTE = 10  # credentials that an address may get wrong
_KEY_CHARS = 255
_SECRET_CHARS = 512
_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
_READ_AT_ONCE = 64  # bodies that come in at the same time


@dataclass
class Api:
    """The parts of a running server, and how a request passes them."""

    server: Server
    homes: Homes
    requests: Requests
    desks: dict[str, Desk]
    per_minute: int = 600
    silence_s: float = 30.0
    now_s: Callable[[], float] = time.monotonic
    asked: Buckets = field(init=False)
    guessed: Buckets = field(default_factory=lambda: Buckets(FAILURES_PER_MINUTE))
    reading: asyncio.Semaphore = field(init=False)
    large: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        """A bucket for each machine."""
        self.asked = Buckets(self.per_minute)
        self.begin()

    def begin(self) -> None:
        """Be ready for a loop, the first or the next: nothing here belongs to another."""
        self.reading = asyncio.Semaphore(_READ_AT_ONCE)
        self.large = asyncio.Semaphore(1)  # one by one: memory stays bounded

    # who asks ---------------------------------------------------------------------------------------------

    async def identify(self, request: Request) -> Identity:
        """Whose credential came with a request. Raises Refused (401, 429)."""
        identity = await self._known(request)
        if identity is None:
            raise self._unknown(request)
        if wait_s := self.asked.take(identity.machine_id, self.now_s()):
            raise retry("too-many", "This machine asks too often.", after_s=wait_s, status=429)
        return identity

    async def _known(self, request: Request) -> Identity | None:
        """Whom the authority sees behind a request at this moment."""
        kind, _, secret = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not 0 < len(secret.strip()) <= _SECRET_CHARS:
            return None
        return await self.desks["identity"].ask(lambda: self.server.authority.identify(secret.strip()))

    async def _is_still(self, request: Request, identity: Identity) -> bool:
        """Whether a request that is still being answered is of the same identity; no, where nobody can say."""
        try:
            return await self._known(request) == identity
        except Exception as error:  # noqa: BLE001 - a stream has begun: no other answer can be given any more
            self.failed(request, error)
            return False

    def _unknown(self, request: Request) -> Refused:
        """401; or 429 for an address that got it wrong too often. A credential that is right is never held back."""
        address = request.client.host if request.client else ""
        if wait_s := self.guessed.take(address, self.now_s()):
            return retry("too-many", "Too many wrong credentials from this address.", after_s=wait_s, status=429)
        said = "Send the secret that `perdure machine register` printed: `Authorization: Bearer …`."
        return Refused(401, "unauthorized", said, {"WWW-Authenticate": 'Bearer realm="perdure"'})

    # what is said -----------------------------------------------------------------------------------------

    async def answer(self, row: Row, request: Request) -> Answer:
        """The answer of a row to a request. Raises Refused, and what its function raises."""
        arrived_s = time.monotonic()
        identity = await self.identify(request)
        if row.is_admin and not identity.is_admin:
            raise Refused(403, "forbidden", "Only an admin of this home may do that.")
        if row.body is None:
            return await self._asked(row, self._call(row, request, identity), request, None)
        most = _most_bytes(row, request)
        async with self.large if most > bodies.MAX_BYTES else nullcontext():
            return await self._taken(row, request, identity, bodies.Limits(most, self.silence_s), arrived_s)

    async def _taken(
        self, row: Row, request: Request, identity: Identity, limits: bodies.Limits, arrived_s: float
    ) -> Answer:
        """The answer to a request with a body."""
        async with self.reading:
            body = await bodies.read(request, self.server.home / "cache", limits)
        with body.file:
            call = self._call(row, request, identity, body)
            if row.late is not None:
                return await self._in_time(row, call, request, body, arrived_s)
            return await self._asked(row, call, request, body)

    def _call(self, row: Row, request: Request, identity: Identity, body: bodies.Body | None = None) -> Call:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        is_json = row.is_raw and kind == "application/json"
        query = None if is_json else _shaped(_query(request, row.query), row.query, strict=False)
        said: Any = body
        if body is not None and row.body is not None and not row.is_raw:
            said = _decoded(body.read(), row.body)
        return Call(self.server, identity, None, dict(request.path_params), query, said, kind)  # type: ignore[arg-type]

    async def _asked(self, row: Row, call: Call, request: Request, body: bodies.Body | None) -> Answer:
        key = request.headers.get("idempotency-key", "") if row.again is not None else ""
        if len(key) > _KEY_CHARS:
            raise bad(f"an Idempotency-Key has at most {_KEY_CHARS} characters")
        what = f"{row.method} {request.url.path}?{request.url.query} {body.digest if body else ''}"
        return await self.desks[row.desk].ask(lambda: self._answered(row, call, key, what))

    async def _in_time(self, row: Row, call: Call, request: Request, body: bodies.Body, arrived_s: float) -> Answer:
        """The same, or what is said when nobody waits any more."""
        limit_ms = call.body.limit_ms - int((time.monotonic() - arrived_s) * 1000)
        slot = live.Slot(max(1, limit_ms))
        timed = Call(call.server, call.identity, call.home, call.path, call.query, call.body, call.kind, slot)
        asked = asyncio.ensure_future(self._asked(row, timed, request, body))
        done, _ = await asyncio.wait([asked], timeout=slot.left_s)
        if not done and not slot.give_up():  # it is being given at this moment
            done, _ = await asyncio.wait([asked], timeout=live.MARGIN_MS / 1000)
        if done:
            return asked.result()
        asked.add_done_callback(lambda late: late.cancelled() or late.exception())
        assert row.late is not None
        return Answer(row.late)

    # in a thread ------------------------------------------------------------------------------------------

    def _answered(self, row: Row, call: Call, key: str, what: str) -> Answer:
        whose = call.identity if row.is_own else None
        with self.homes.lent(whose, read_only=row.desk == "read") as home:
            call = call.with_home(home)
            return self._once(row, call, key, what) if key else row.answer(call)

    def _once(self, row: Row, call: Call, key: str, what: str) -> Answer:
        """The answer to a request that came with a key: made once, told again."""
        user = call.identity.user
        known = self.requests.begin(user, key, what, now_s=time.time())
        if known is None:
            try:
                answer = row.answer(call)
            except BaseException:
                self.requests.drop(user, key)
                raise
            self.requests.end(user, key, status=answer.status, made=answer.made)
            return answer
        if not known.is_same:
            raise Refused(409, "conflict", "This Idempotency-Key belongs to another request.")
        if not known.status:
            raise retry("conflict", "The same request is being answered at this moment.", status=409)
        assert row.again is not None
        try:
            again = row.again(call, known.made)
        except NotFound:
            said = "What this request made was taken away since. Use a new Idempotency-Key."
            raise Refused(409, "conflict", said) from None
        return Answer(
            again.body, known.status, {**again.headers, "Idempotency-Replayed": "true"}, again.made, again.kind
        )

    # as bytes ---------------------------------------------------------------------------------------------

    def endpoint(self, row: Row) -> Callable[[Request], Awaitable[Response]]:
        """What Starlette calls for a row."""

        async def respond(request: Request) -> Response:
            return await self.safely(request, lambda: self.answer(row, request))

        return respond

    async def events(self, request: Request) -> Response:
        """The caller's own events, as they happen."""
        try:
            identity = await self.identify(request)
            await self.desks["read"].ask(lambda: self.server.news.begin(identity.user))
            return self.server.hub.response(identity, lambda: self._is_still(request, identity))
        except Exception as error:  # noqa: BLE001 - as in `safely`
            return self.failed(request, error)

    async def safely(self, request: Request, make: Callable[[], Awaitable[Answer]]) -> Response:
        """The response, whatever happens."""
        try:
            return response(await make())
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:  # noqa: BLE001 - the promise of this module
            return self.failed(request, error)

    def failed(self, request: Request, error: Exception) -> Response:
        """The response to what went wrong; what is the server's own fault is in the log, without a word of a text."""
        refused = faults.refused(error)
        if refused.status >= 500:
            code = str(getattr(error, "code", type(error).__name__))
            row = getattr(request.scope.get("route"), "path", "")
            log.note(self.server.home, "failed", client="http", kind=row, code=code, at_line=live.where(error))
        return response(faults.answer(refused))


def response(answer: Answer) -> Response:
    """An answer as bytes."""
    body = answer.body if isinstance(answer.body, bytes) else msgspec.json.encode(answer.body)
    return Response(body, answer.status, {**_HEADERS, **answer.headers}, answer.kind)


def _query(request: Request, shape: type[msgspec.Struct]) -> dict[str, Any]:
    """The parameters that a shape has; those of which there may be several as lists."""
    said: dict[str, Any] = {}
    for one in msgspec.structs.fields(shape):
        values = request.query_params.getlist(one.encode_name)
        if values:
            said[one.encode_name] = values if isinstance(one.default, tuple) else values[-1]
    return said


def _most_bytes(row: Row, request: Request) -> int:
    """How much a body may have. One long line is more than any other request, and is told to be before it comes."""
    if not row.is_raw:
        return bodies.MAX_JSON_BYTES
    is_json = request.headers.get("content-type", "").startswith("application/json")
    return bodies.MAX_LINE_BYTES if bodies.told(request) > bodies.MAX_BYTES and not is_json else bodies.MAX_BYTES


def _shaped(said: Any, shape: type[msgspec.Struct], *, strict: bool) -> Any:
    try:
        return msgspec.convert(said, shape, strict=strict)
    except msgspec.ValidationError as error:
        raise bad(str(error)) from None


def _decoded(raw: bytes, shape: type[msgspec.Struct]) -> Any:
    """A body in its shape. Raises Refused (400)."""
    try:
        return msgspec.json.decode(raw or b"{}", type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad(f"the body is not what it must be: {error}") from None


@dataclass(frozen=True, slots=True)
class Beside:
    """What else is served, at other addresses."""

    routes: Sequence[BaseRoute] = ()
    is_lost: Callable[[Request], bool] = lambda _: False  # whether `lost` answers where there is nothing
    lost: Callable[[Request], Awaitable[Response]] | None = None


def build(api: Api, *, beside: Beside = Beside(), lifespan: Any = None) -> Starlette:
    """The application. beside: routes of others, at other paths."""

    async def missing(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if beside.lost is not None and beside.is_lost(request):
            return await beside.lost(request)
        code = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "usage-error")
        said = {404: "There is nothing at this address.", 405: "Not by this method."}.get(error.status_code, "No.")
        return response(faults.answer(Refused(error.status_code, code, said, dict(error.headers or {}))))

    async def document(_: Request) -> Response:
        return response(Answer(openapi.document()))

    async def alive(_: Request) -> Response:
        return response(Answer({"alive": True}))

    routes = [Route(row.path, api.endpoint(row), methods=[row.method]) for row in TABLE]
    open_ = [Route(DOCUMENT, document), Route(ALIVE, alive), Route(EVENTS, api.events)]
    application = Starlette(
        routes=[*open_, *routes, *beside.routes],
        exception_handlers={HTTPException: missing},
        lifespan=lifespan or _nothing,
    )
    application.router.redirect_slashes = False  # it would lead to whatever host a request names
    return application


@asynccontextmanager
async def _nothing(_: Starlette) -> AsyncIterator[None]:
    yield
