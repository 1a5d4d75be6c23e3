"""Answer programs that talk with OpenAI's or Anthropic's API: the agent of this home is the model.

A conversation of theirs is a session of ours: the same floor, recall, tools and archive as in any other. It is found by
what was said before, by the id of the response that goes on, or by a name that the caller gives. Nobody can be asked
here, so what needs a permission is denied, and the mode is that of agent.yaml. A caller that goes away cancels the
turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from perdure.agent.attachments import Attachments, make_file
from perdure.errors import ModelCancelled, ModelFault, NotFound, TurnBudgetSpent, UsageError
from perdure.floor.platforms import API
from perdure.formats.perdure import FileEntry
from perdure.home import Home
from perdure.models.chat import ChatMessage
from perdure.session.chat_model import find_chat
from perdure.surfaces.agent_api import answers
from perdure.surfaces.agent_api.answers import AnswerHead
from perdure.surfaces.agent_api.requests import (
    MODEL,
    SESSION_HEADER,
    AgentRequest,
    make_key,
    read_request,
    render_earlier,
)
from perdure.surfaces.http import captures, responses
from perdure.surfaces.http.app import HttpApi, RequestHandler, catch_errors, read_client_address, to_starlette
from perdure.surfaces.http.events import EventStreamResponse
from perdure.surfaces.http.responses import HttpRefusal, HttpResponse, refuse_for_now
from perdure.surfaces.http.store import SessionPlace
from perdure.surfaces.live_sessions import LiveEvent, LiveSession, LiveSessions, LiveTurn, TurnRequest, is_folder
from perdure.surfaces.proxy.conversations import Api
from perdure.types import Identity

Result = TypeVar("Result")
APIS: dict[str, Api] = {"/v1/chat/completions": "chat", "/v1/responses": "responses", "/v1/messages": "messages"}
MODELS_PATH = "/v1/models"
HEALTH_PATH = "/healthz"
MAX_BYTES = captures.MAX_BYTES  # of a request: its history comes with it, pictures too
_PING_S = 10.0  # a stream without a word for so long gets a sign of life, which also shows if the client is there
_EARLIER_SHARE = 0.25  # of the window, that a conversation may take which was held elsewhere
_CHARS_PER_TOKEN = 4
_EARLIER_NAME = "the conversation until now"
_NO_RETRY = {"x-should-retry": "false"}  # both providers' clients obey: a second turn would run its tools again
_ERROR_KINDS = {  # of a status -> what both providers call it
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    409: "conflict_error", 413: "request_too_large", 429: "rate_limit_error",
}  # fmt: skip


@dataclass
class _Exchange:
    """One request that is being answered."""

    request: AgentRequest
    head: AnswerHead
    live: LiveSession | None  # None for a side call, which belongs to no session
    events: asyncio.Queue[LiveEvent]
    turn: LiveTurn


@dataclass
class AgentApi:
    """The agent as a model, for its owner's machines."""

    api: HttpApi
    live: LiveSessions
    ping_s: float = field(default=_PING_S)

    def build_routes(self) -> list[BaseRoute]:
        """Return every route."""
        return [
            *(Route(path, self._make_endpoint(api), methods=["POST"]) for path, api in APIS.items()),
            Route(MODELS_PATH, catch_errors(self._list_models, self._respond_to_error)),
            Route(MODELS_PATH + "/{name}", catch_errors(self._show_model, self._respond_to_error)),
            Route(HEALTH_PATH, self._tell_alive),
        ]

    # simple requests --------------------------------------------------------------------------------------

    async def _tell_alive(self, _: Request) -> Response:
        return to_starlette(HttpResponse({"status": "ok"}))

    async def _list_models(self, request: Request) -> Response:
        await self._identify(request)
        return to_starlette(HttpResponse(answers.build_models()))

    async def _show_model(self, request: Request) -> Response:
        await self._identify(request)
        if request.path_params["name"] != MODEL:
            raise HttpRefusal(404, "not-found", f"There is no such model: the agent of this home is {MODEL!r}.")
        return to_starlette(HttpResponse(answers.build_model()))

    async def _identify(self, request: Request) -> Identity:
        """Return the identity of the credential. Raises HttpRefusal (401, 403, 429)."""
        identity = await self.api.identify(request)
        if message := self.live.find_refusal(identity.user, read_client_address(request)):
            raise HttpRefusal(403, "forbidden", message)
        return identity

    async def _respond_to_error(self, request: Request, error: Exception) -> Response:
        refusal = _to_refusal(error)
        self.api.log_failure(request, error)
        kind = _ERROR_KINDS.get(refusal.status, "api_error")
        body = answers.build_error(refusal.message, kind)
        return to_starlette(HttpResponse(body, refusal.status, refusal.headers))

    # a turn -----------------------------------------------------------------------------------------------

    def _make_endpoint(self, api: Api) -> RequestHandler:
        async def respond(request: Request) -> Response:
            identity = await self._identify(request)
            async with self.api.body_slots:
                limits = captures.BodyLimits(MAX_BYTES, self.api.silence_s)
                body = await captures.read_body(request, self.api.server.home / "cache", limits)
            with body.file:
                raw = body.read_bytes()
            loop, events = asyncio.get_running_loop(), asyncio.Queue[LiveEvent]()

            def tell(event: LiveEvent) -> None:
                with contextlib.suppress(RuntimeError):  # the loop has ended, and with it the request
                    loop.call_soon_threadsafe(events.put_nowait, event)

            exchange = await self.api.worker_pools["chat"].run_task(
                lambda: self._begin(api, raw, dict(request.headers), identity, events, tell)
            )
            if exchange.request.is_stream:
                return await self._answer_in_pieces(exchange, request)
            return await self._answer_whole(exchange, request)

        return catch_errors(respond, self._respond_to_error)

    def _begin(
        self, api: Api, raw: bytes, headers: Mapping[str, str], identity: Identity, events: asyncio.Queue[LiveEvent],
        tell: Callable[[LiveEvent], None],
    ) -> _Exchange:  # fmt: skip
        """Begin a turn: read the request, find its session, and send the message. Raises HttpRefusal, PerdureError."""
        request = read_request(api, raw, headers)
        head = AnswerHead(api, secrets.token_hex(12), int(time.time()), request.has_stream_usage)
        if request.is_side_call:
            turn = LiveTurn(is_attended=False)
            self.api.worker_pools["titles"].start_task(
                lambda: self._answer_side_call(request, identity, turn, tell), on_error=lambda _: None
            )
            return _Exchange(request, head, None, events, turn)
        with contextlib.ExitStack() as use:
            with self.api.homes.lend(identity, read_only=True) as home:
                live, after, is_new = self._find_session(home, request, use)
            turn_request = self._make_turn(live, request, after, is_new=is_new)
            started = live.start_turn(turn_request, tell)
        if started is None:
            raise refuse_for_now("busy", "This session answers another message already.", status=409)
        return _Exchange(request, head, live, events, started)

    def _answer_side_call(
        self, request: AgentRequest, identity: Identity, turn: LiveTurn, tell: Callable[[LiveEvent], None]
    ) -> None:
        """Answer what a program asks for itself, a title or a summary: by the model alone, and kept nowhere."""
        messages = [ChatMessage("system", request.system)] if request.system else []
        messages += [ChatMessage("user" if role == "user" else "assistant", text) for role, text in request.earlier]
        messages.append(ChatMessage("user", request.text))
        try:
            with self.api.homes.lend(identity, read_only=True) as home:
                turn.said = find_chat(home).reply(messages, cancel=turn.cancel).text
            tell(LiveEvent("text", turn.said))
        except Exception as error:  # noqa: BLE001 - `_settle` raises it where the answer is waited for
            turn.error = error
        turn.ended.set()
        tell(LiveEvent("end"))

    def _find_session(
        self, home: Home, request: AgentRequest, use: contextlib.ExitStack
    ) -> tuple[LiveSession, str, bool]:
        """Return (the session, the entry after which it goes on or "", True if it does not know what was said).

        use: until its end the session is not given up.
        A history that we know tells the entry: whoever asks the same again makes a branch, as in any session.
        """
        store = self.api.request_store
        known = store.read_conversation(make_key(request.start, request.earlier)) if request.earlier else None
        if request.start and not request.earlier:
            known = store.read_conversation(f"response {request.start}")
            if known is None:
                raise HttpRefusal(404, "not-found", "There is no such response here: send the whole conversation.")
        named = SessionPlace(request.session) if request.session else None
        if named is None and request.client_session:
            named = store.read_conversation(f"client {request.client_session}")
        if known is not None and named is not None and known.session != named.session:
            known = None
        place = known or named
        if place is not None:
            try:
                return use.enter_context(self.live.resume(home, place.session, API)), place.entry, False
            except NotFound:
                if request.session:
                    raise
        return use.enter_context(self.live.begin(API, cwd=_check_folder(request.folder))), "", True

    def _make_turn(self, live: LiveSession, request: AgentRequest, after: str, *, is_new: bool) -> TurnRequest:
        """Return the message for a session; to a new one the earlier conversation of the caller goes as a file."""
        files: tuple[FileEntry, ...] = ()
        if is_new and request.earlier:
            window_tokens = live.status.window_tokens if live.status else 0
            max_chars = int(window_tokens * _CHARS_PER_TOKEN * _EARLIER_SHARE)
            earlier = render_earlier(request.earlier, max_chars)
            files = (make_file(_EARLIER_NAME, earlier.encode("utf-8", "replace"), max_bytes=max_chars),)
        instruction = f"[The program that the person uses says:]\n{request.system}" if is_new and request.system else ""
        attachments = Attachments(files=files, images=request.images)
        return TurnRequest(request.text, attachments, instruction, after, is_attended=False)

    async def _answer_whole(self, exchange: _Exchange, request: Request) -> Response:
        """Return the answer in one piece; a client that goes away cancels it."""
        try:
            await _run_for_client(_wait_for_end(exchange.events), request)
        finally:
            exchange.turn.cancel.set()
        end = await self._settle(exchange)
        return to_starlette(HttpResponse(answers.build_whole(exchange.head, end), headers=_name_session(exchange)))

    async def _answer_in_pieces(self, exchange: _Exchange, request: Request) -> Response:
        """Return the answer as a stream. It begins when its first piece is there: until then an error is a status."""
        pieces = self._stream(exchange)
        first = await _run_for_client(anext(pieces), request)
        return EventStreamResponse(
            _put_before(first, pieces), media_type="text/event-stream",
            headers={**_name_session(exchange), "Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )  # fmt: skip

    async def _stream(self, exchange: _Exchange) -> AsyncGenerator[bytes]:
        """Yield the answer as it comes. Closed early, it cancels the turn. Raises what fails before anything came."""
        head, n_pieces = exchange.head, 0
        opening = b"".join(answers.begin_stream(head))  # goes with the first piece
        try:
            while True:
                try:
                    event = await asyncio.wait_for(exchange.events.get(), self.ping_s)
                except TimeoutError:
                    yield opening + answers.PING[head.api]
                    opening = b""
                    continue
                if event.kind == "text":
                    yield opening + answers.render_piece(head, event.text, n_pieces)
                    opening = b""
                    n_pieces += 1
                elif event.kind == "end":
                    break
            try:
                end = await self._settle(exchange)
            except Exception as error:
                if opening:
                    raise
                refusal = _to_refusal(error)
                kind = _ERROR_KINDS.get(refusal.status, "api_error")
                yield answers.render_failure(head, refusal.message, kind, n_pieces)
                return
            yield opening + b"".join(answers.end_stream(head, end, n_pieces))
        finally:
            exchange.turn.cancel.set()

    async def _settle(self, exchange: _Exchange) -> answers.AnswerEnd:
        """Return the end of a turn, and keep where its conversation goes on. Raises why there is no answer."""
        turn = exchange.turn
        is_limited = isinstance(turn.error, TurnBudgetSpent)
        if turn.error is not None and not is_limited:
            raise turn.error
        if exchange.live is not None:
            await self.api.worker_pools["chat"].run_task(lambda: self._keep_place(exchange))
        return answers.sum_up(turn.said, turn.answers, is_limited=is_limited)

    def _keep_place(self, exchange: _Exchange) -> None:
        request, turn, live = exchange.request, exchange.turn, exchange.live
        assert live is not None
        place = SessionPlace(live.session, turn.answers[-1].id if turn.answers else "")
        turns = [*request.earlier, ("user", request.text), ("assistant", turn.said)]
        keys = [make_key(request.start, turns), f"response {exchange.head.answer_id}"]
        self.api.request_store.save_conversation(keys, place, now_s=time.time())
        if request.client_session:
            key = f"client {request.client_session}"
            self.api.request_store.save_conversation([key], SessionPlace(live.session), now_s=time.time())


def _check_folder(folder: str) -> str:
    """Return the folder that a caller names, in UTF-8 or Latin-1. Raises UsageError if there is none."""
    with contextlib.suppress(UnicodeDecodeError):
        folder = folder.encode("latin-1").decode()
    if folder and not is_folder(folder):
        raise UsageError("x-perdure-folder: there is no such folder on the machine of this home")
    return folder


def _name_session(exchange: _Exchange) -> dict[str, str]:
    return {SESSION_HEADER: exchange.live.session} if exchange.live is not None else {}


def _to_refusal(error: Exception) -> HttpRefusal:
    """Return the refusal that an error becomes; the owner reads what their provider said."""
    if isinstance(error, ModelCancelled):
        return HttpRefusal(409, "cancelled", "The answer was stopped.", dict(_NO_RETRY))
    if isinstance(error, ModelFault):
        return HttpRefusal(502, "model-fault", str(error), dict(_NO_RETRY))
    return responses.to_refusal(error)


async def _run_for_client(work: Awaitable[Result], request: Request) -> Result:
    """Return what work returns. Raises ClientDisconnect, and cancels the work, if the client goes away before."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_wait_until_gone(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()


async def _wait_for_end(events: asyncio.Queue[LiveEvent]) -> None:
    while (await events.get()).kind != "end":
        pass


async def _wait_until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _put_before(first: bytes, pieces: AsyncGenerator[bytes]) -> AsyncIterator[bytes]:
    async with contextlib.aclosing(pieces):
        yield first
        async for piece in pieces:
            yield piece
