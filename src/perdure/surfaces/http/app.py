"""Answer requests of the API: check the credential and the rights, read the request, run the operation.

The event loop only moves bytes; operations run in threads, with a home of the caller's identity. Every
error becomes a body in one place (`responses`). No request that anybody can send is answered with a
traceback or with a path of this machine. Operations themselves are in the other modules of this package.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from perdure import log, turn
from perdure.errors import IdentityFault, NotFound
from perdure.surfaces.http import captures, responses, routes
from perdure.surfaces.http.calls import ApiOperation, HttpCall, ServerContext
from perdure.surfaces.http.pools import HomePool, TokenBuckets, WorkerPool
from perdure.surfaces.http.responses import (
    API_PATH,
    OPENAPI_PATH,
    HttpRefusal,
    HttpResponse,
    refuse_for_now,
    refuse_usage,
)
from perdure.surfaces.http.routes import OPERATIONS
from perdure.surfaces.http.store import RequestStore
from perdure.types import Identity

# the API ------------------------------------------------------------------------------------------------------

EVENTS_PATH = f"{API_PATH}/events"
ALIVE_PATH = f"{API_PATH}/alive"
MAX_WRONG_SECRETS_PER_MINUTE = 10  # wrong credentials that an address may send
_MAX_KEY_CHARS = 255
_MAX_SECRET_CHARS = 512
_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
_MAX_PUBLIC_BYTES = 4096  # of a body that comes without a credential
_PROXY_HEADERS = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
_STRANGER = Identity("", "", "")  # of a request that needs no credential
_MAX_BODIES_AT_ONCE = 64  # bodies that are received at the same time


@dataclass
class HttpApi:
    """The parts of a running server, and the way of a request through them."""

    server: ServerContext
    homes: HomePool
    request_store: RequestStore
    worker_pools: dict[str, WorkerPool]
    per_minute: int = 600
    silence_s: float = 30.0
    now_s: Callable[[], float] = time.monotonic
    request_rates: TokenBuckets = field(init=False)
    wrong_secret_rates: TokenBuckets = field(default_factory=lambda: TokenBuckets(MAX_WRONG_SECRETS_PER_MINUTE))
    body_slots: asyncio.Semaphore = field(init=False)
    large_body_slot: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self.request_rates = TokenBuckets(self.per_minute)
        self.bind_loop()

    def bind_loop(self) -> None:
        """Make the locks of a new event loop; a lock of one loop must not be used in another."""
        self.body_slots = asyncio.Semaphore(_MAX_BODIES_AT_ONCE)
        self.large_body_slot = asyncio.Semaphore(1)  # one at a time, so that memory stays bounded

    # identity ---------------------------------------------------------------------------------------------

    async def identify(self, request: Request) -> Identity:
        """Return the identity of the credential that came with a request. Raises HttpRefusal (401, 429)."""
        identity = await self._find_identity(request)
        if identity is None:
            raise self._refuse_unknown(request)
        if wait_s := self.request_rates.take_token(identity.machine_id, self.now_s()):
            raise refuse_for_now("too-many", "This machine sends too many requests.", after_s=wait_s, status=429)
        return identity

    async def _find_identity(self, request: Request) -> Identity | None:
        """Return the identity that the authority gives to a request now, or None."""
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            secret = request.headers.get("x-api-key", "")  # as clients of Anthropic's API send theirs
        if not 0 < len(secret.strip()) <= _MAX_SECRET_CHARS:
            return None
        return await self.worker_pools["identity"].run_task(lambda: self.server.authority.identify(secret.strip()))

    async def _is_same_identity(self, request: Request, identity: Identity) -> bool:
        """Return True if an open stream still belongs to the same identity; False if that cannot be found out."""
        try:
            return await self._find_identity(request) == identity
        except Exception as error:  # noqa: BLE001 - a stream has begun: no other answer is possible
            self.log_failure(request, error)
            return False

    def _refuse_unknown(self, request: Request) -> HttpRefusal:
        """Return 401, or 429 for an address that sent too many wrong credentials.

        A correct credential is never refused because of its address.
        """
        address = request.client.host if request.client else ""
        if wait_s := self.wrong_secret_rates.take_token(address, self.now_s()):
            return refuse_for_now(
                "too-many", "Too many wrong credentials from this address.", after_s=wait_s, status=429
            )
        message = "Send the secret that `perdure machine register` printed: `Authorization: Bearer …`."
        return HttpRefusal(401, "unauthorized", message, {"WWW-Authenticate": 'Bearer realm="perdure"'})

    # the request -----------------------------------------------------------------------------------------

    async def answer_request(self, operation: ApiOperation, request: Request) -> HttpResponse:
        """Answer a request to an operation. Raises HttpRefusal, and the errors of the operation's function."""
        arrived_s = time.monotonic()
        if operation.is_public:
            return await self._answer_stranger(operation, request, arrived_s)
        identity = await self.identify(request)
        if operation.is_admin and not identity.is_admin:
            raise HttpRefusal(403, "forbidden", "Only an admin of this home may do that.")
        if operation.body_shape is None:
            return await self._run_in_pool(operation, self._build_call(operation, request, identity), request, None)
        max_bytes = _limit_body_bytes(operation, request)
        async with self.large_body_slot if max_bytes > captures.MAX_BYTES else nullcontext():
            return await self._answer_with_body(
                operation, request, identity, captures.BodyLimits(max_bytes, self.silence_s), arrived_s
            )

    async def _answer_stranger(self, operation: ApiOperation, request: Request, arrived_s: float) -> HttpResponse:
        """Answer a request that needs no credential; its refusal counts as a wrong credential of its address."""
        limits = captures.BodyLimits(_MAX_PUBLIC_BYTES, self.silence_s)
        with self.count_stranger(request):
            return await self._answer_with_body(operation, request, _STRANGER, limits, arrived_s)

    @contextmanager
    def count_stranger(self, request: Request) -> Iterator[None]:
        """Count a stranger's request as a wrong credential of its address, unless it ends without an IdentityFault.

        It counts before identity servers are asked, so that nobody makes this home ask them at will. Raises
        HttpRefusal (429).
        """
        address = request.client.host if request.client else ""
        if wait_s := self.wrong_secret_rates.take_token(address, self.now_s()):
            message = "Too many refused requests from this address."
            raise refuse_for_now("too-many", message, after_s=wait_s, status=429)
        is_wrong = False
        try:
            yield
        except IdentityFault:
            is_wrong = True
            raise
        finally:
            if not is_wrong:
                self.wrong_secret_rates.give_back(address)

    async def _answer_with_body(
        self,
        operation: ApiOperation,
        request: Request,
        identity: Identity,
        limits: captures.BodyLimits,
        arrived_s: float,
    ) -> HttpResponse:
        """Answer a request that has a body."""
        async with self.body_slots:
            body = await captures.read_body(request, self.server.home / "cache", limits)
        with body.file:
            call = self._build_call(operation, request, identity, body)
            if operation.late_body is not None:
                return await self._answer_in_time(operation, call, request, body, arrived_s)
            return await self._run_in_pool(operation, call, request, body)

    def _build_call(
        self, operation: ApiOperation, request: Request, identity: Identity, body: captures.RequestBody | None = None
    ) -> HttpCall:
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        is_json = operation.is_raw and content_type == "application/json"
        query = (
            None
            if is_json
            else _convert_query(_read_query(request, operation.query_shape), operation.query_shape, strict=False)
        )
        payload: Any = body
        if body is not None and operation.body_shape is not None and not operation.is_raw:
            payload = _decode_body(body.read_bytes(), operation.body_shape)
        return HttpCall(self.server, identity, None, dict(request.path_params), query, payload, content_type)  # type: ignore[arg-type]

    async def _run_in_pool(
        self, operation: ApiOperation, call: HttpCall, request: Request, body: captures.RequestBody | None
    ) -> HttpResponse:
        key = request.headers.get("idempotency-key", "") if operation.repeat is not None else ""
        if len(key) > _MAX_KEY_CHARS:
            raise refuse_usage(f"an Idempotency-Key has at most {_MAX_KEY_CHARS} characters")
        request_line = f"{operation.method} {request.url.path}?{request.url.query} {body.digest if body else ''}"
        return await self.worker_pools[operation.pool].run_task(
            lambda: self._answer_in_thread(operation, call, key, request_line)
        )

    async def _answer_in_time(
        self, operation: ApiOperation, call: HttpCall, request: Request, body: captures.RequestBody, arrived_s: float
    ) -> HttpResponse:
        """Run the operation; if its time is over first, return its late answer instead."""
        limit_ms = call.body.limit_ms - int((time.monotonic() - arrived_s) * 1000)
        deadline = turn.ReplyDeadline(max(1, limit_ms))
        timed_call = HttpCall(
            call.server, call.identity, call.home, call.path_params, call.query, call.body, call.content_type, deadline
        )
        answer_task = asyncio.ensure_future(self._run_in_pool(operation, timed_call, request, body))
        finished, _ = await asyncio.wait([answer_task], timeout=deadline.left_s)
        if not finished and not deadline.give_up():  # the answer is on its way: wait for it
            finished, _ = await asyncio.wait([answer_task], timeout=turn.MARGIN_MS / 1000)
        if finished:
            return answer_task.result()
        answer_task.add_done_callback(lambda task: task.cancelled() or task.exception())
        assert operation.late_body is not None
        return HttpResponse(operation.late_body)

    # in a thread ------------------------------------------------------------------------------------------

    def _answer_in_thread(self, operation: ApiOperation, call: HttpCall, key: str, request_line: str) -> HttpResponse:
        owner = call.identity if operation.uses_caller_home and not operation.is_admin else None
        with self.homes.lend(owner, read_only=operation.pool == "read") as home:
            call = call.with_home(home)
            return self._answer_once(operation, call, key, request_line) if key else operation.answer(call)

    def _answer_once(self, operation: ApiOperation, call: HttpCall, key: str, request_line: str) -> HttpResponse:
        """Answer a request that has an Idempotency-Key: run it once, and answer a repetition from what it made."""
        user = call.identity.user
        earlier = self.request_store.begin_request(user, key, request_line, now_s=time.time())
        if earlier is None:
            try:
                answer = operation.answer(call)
            except BaseException:
                self.request_store.drop_request(user, key)
                raise
            self.request_store.end_request(user, key, status=answer.status, created_id=answer.created_id)
            return answer
        if not earlier.is_same:
            raise HttpRefusal(409, "conflict", "This Idempotency-Key belongs to another request.")
        if not earlier.status:
            raise refuse_for_now("conflict", "The same request is still running.", status=409)
        assert operation.repeat is not None
        try:
            repeated = operation.repeat(call, earlier.created_id)
        except NotFound:
            message = "The result of this request was deleted later. Use a new Idempotency-Key."
            raise HttpRefusal(409, "conflict", message) from None
        return HttpResponse(
            repeated.body,
            earlier.status,
            {**repeated.headers, "Idempotency-Replayed": "true"},
            repeated.created_id,
            repeated.content_type,
        )

    # as bytes ---------------------------------------------------------------------------------------------

    def make_endpoint(self, operation: ApiOperation) -> RequestHandler:
        """Return the function that Starlette calls for an operation."""

        async def respond(request: Request) -> Response:
            return to_starlette(await self.answer_request(operation, request))

        return catch_errors(respond, self.respond_to_error)

    async def stream_events(self, request: Request) -> Response:
        """Stream the caller's own events as they happen."""
        identity = await self.identify(request)
        await self.worker_pools["read"].run_task(lambda: self.server.activity_feed.add_listener(identity.user))
        return self.server.subscribers.open_stream(identity, lambda: self._is_same_identity(request, identity))

    async def respond_to_error(self, request: Request, error: Exception) -> Response:
        """Return the response to an error."""
        self.log_failure(request, error)
        return to_starlette(responses.render_refusal(responses.to_refusal(error)))

    def log_failure(self, request: Request, error: Exception, *, client: str = "http") -> None:
        """Log an error if it is the server's own fault, without any text of a user."""
        if responses.to_refusal(error).status < 500:
            return
        code = str(getattr(error, "code", type(error).__name__))
        route_path = getattr(request.scope.get("route"), "path", "")
        log.append_entry(
            self.server.home, "failed", client=client, kind=route_path, code=code, at_line=turn.locate_error(error)
        )


RequestHandler = Callable[[Request], Awaitable[Response]]


def catch_errors(
    respond: RequestHandler, respond_to_error: Callable[[Request, Exception], Awaitable[Response]]
) -> RequestHandler:
    """Return a handler that always answers: errors of `respond` become the response that `respond_to_error` makes."""

    async def respond_safely(request: Request) -> Response:
        try:
            return await respond(request)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:  # noqa: BLE001 - every address answers in its own form, whatever happens
            return await respond_to_error(request, error)

    return respond_safely


def read_client_address(request: Request) -> str:
    """Return where a request comes from, as the server sees it; "" if it says that a proxy passed it on.

    Such a header only takes away: a proxy on this machine must not make every machine look like this one.
    """
    is_passed_on = any(name in request.headers for name in _PROXY_HEADERS)
    return request.client.host if request.client and not is_passed_on else ""


def to_starlette(answer: HttpResponse) -> Response:
    """Encode a response as bytes."""
    body = answer.body if isinstance(answer.body, bytes) else msgspec.json.encode(answer.body)
    return Response(body, answer.status, {**_HEADERS, **answer.headers}, answer.content_type)


def _read_query(request: Request, shape: type[msgspec.Struct]) -> dict[str, Any]:
    """Read the query parameters that a shape has; a parameter that may come several times becomes a list."""
    params: dict[str, Any] = {}
    for shape_field in msgspec.structs.fields(shape):
        values = request.query_params.getlist(shape_field.encode_name)
        if values:
            params[shape_field.encode_name] = values if isinstance(shape_field.default, tuple) else values[-1]
    return params


def _limit_body_bytes(operation: ApiOperation, request: Request) -> int:
    """Return how many bytes a body may have.

    One long line may be larger than any other request, if its length is declared before it comes.
    """
    if not operation.is_raw:
        return captures.MAX_JSON_BYTES
    is_json = request.headers.get("content-type", "").startswith("application/json")
    return (
        captures.MAX_LINE_BYTES
        if captures.read_content_length(request) > captures.MAX_BYTES and not is_json
        else captures.MAX_BYTES
    )


def _convert_query(params: Any, shape: type[msgspec.Struct], *, strict: bool) -> Any:
    try:
        return msgspec.convert(params, shape, strict=strict)
    except msgspec.ValidationError as error:
        raise refuse_usage(str(error)) from None


def _decode_body(raw: bytes, shape: type[msgspec.Struct]) -> Any:
    """Decode a body into its shape. Raises HttpRefusal (400)."""
    try:
        return msgspec.json.decode(raw or b"{}", type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise refuse_usage(f"the body is not valid: {error}") from None


@dataclass(frozen=True, slots=True)
class MountedApp:
    """Another application that the same server serves at other addresses."""

    routes: Sequence[BaseRoute] = ()
    handles_missing: Callable[[Request], bool] = lambda _: False  # True if respond_missing answers an unknown address
    respond_missing: Callable[[Request], Awaitable[Response]] | None = None


def build_app(api: HttpApi, *, mounted: MountedApp = MountedApp(), lifespan: Any = None) -> Starlette:
    """Build the application. mounted: routes of others, at other paths."""

    async def missing(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if mounted.respond_missing is not None and mounted.handles_missing(request):
            return await mounted.respond_missing(request)
        code = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "usage-error")
        message = {404: "There is nothing at this address.", 405: "This method is not allowed here."}.get(
            error.status_code, "No."
        )
        return to_starlette(
            responses.render_refusal(HttpRefusal(error.status_code, code, message, dict(error.headers or {})))
        )

    async def document(_: Request) -> Response:
        return to_starlette(HttpResponse(routes.build_openapi()))

    async def alive(_: Request) -> Response:
        return to_starlette(HttpResponse({"alive": True}))

    api_routes = [
        Route(operation.path, api.make_endpoint(operation), methods=[operation.method]) for operation in OPERATIONS
    ]
    public_routes = [
        Route(OPENAPI_PATH, document),
        Route(ALIVE_PATH, alive),
        Route(EVENTS_PATH, catch_errors(api.stream_events, api.respond_to_error)),
    ]
    application = Starlette(
        routes=[*public_routes, *api_routes, *mounted.routes],
        exception_handlers={HTTPException: missing},
        lifespan=lifespan or _run_nothing,
    )
    application.router.redirect_slashes = False  # a redirect would go to any host that the request names
    return application


@asynccontextmanager
async def _run_nothing(_: Starlette) -> AsyncIterator[None]:
    yield
