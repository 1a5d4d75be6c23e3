"""The proxy as an ASGI application: take a request, edit it in time or not at all, and pass the answer on as it comes.

The secret in the first part of the path says whose memory it is; the client's key goes on to its provider and stays
nowhere. Bytes of an answer go to the client as they come. When the client is gone the upstream is closed, and when the
upstream breaks off, so does the answer: a client must not take a part for the whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpcore2
from starlette.types import Receive, Scope, Send

from perdure import log
from perdure.errors import PerdureError
from perdure.surfaces.proxy import answers, exchanges, upstreams
from perdure.surfaces.proxy.conversations import Api
from perdure.surfaces.proxy.edits import EditedRequest, RequestEditor
from perdure.surfaces.proxy.store import BlockStore
from perdure.surfaces.proxy.upstreams import Upstream

ALIVE_PATH = "/healthz"
_CONNECT_S = 10.0
_RETURN_MS = 15  # after a recall that was late, so that the old blocks still stand where they stood
_MAX_EDITED_BYTES = 64_000_000  # a longer request goes on as it is
_MAX_ANSWER_BYTES = 16_000_000  # of a longer answer nothing is captured
_N_THREADS = 16  # that edit requests; each waits for the resident home at most as long as a request may
_HOP_HEADERS = frozenset(
    (b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
     b"trailer", b"transfer-encoding", b"upgrade", b"expect")
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Refusal(Exception):
    """An answer of our own, in the form of both providers' errors."""

    status: int
    kind: str
    message: str


class _ClientGone(Exception):
    """The client closed its connection."""


@dataclass
class Traffic:
    """The requests since this process began. Only the loop of the server counts."""

    n_requests: int = 0
    n_edited: int = 0  # that went on with a block, a new one or that of an old message
    n_failed_open: int = 0  # that went on without a new block, because recall failed or was slow
    n_slow: int = 0  # of these, the ones that recall was slow for

    def add(self, edited: EditedRequest, raw: bytes) -> None:
        """Count a request that could be edited; `raw` is what came."""
        self.n_edited += edited.raw is not raw
        self.n_failed_open += edited.outcome in ("failed", "late")
        self.n_slow += edited.outcome == "late"


class ProxyApp:
    """The application of one home."""

    def __init__(
        self,
        home: Path,
        editor: RequestEditor,
        store: BlockStore,
        allowed: Mapping[str, Upstream],
        *,
        secret: str,
        limit_ms: int,
        can_capture: bool,
    ) -> None:
        """allowed: the upstreams by name. limit_ms: longest time for the edit of a request."""
        self._home, self._editor, self._store, self._allowed = home, editor, store, allowed
        self._secret, self._limit_s, self._can_capture = secret, (limit_ms + _RETURN_MS) / 1000, can_capture
        self.traffic = Traffic()
        self._threads = ThreadPoolExecutor(_N_THREADS, thread_name_prefix="perdure-proxy")
        self._capture_thread = ThreadPoolExecutor(1, thread_name_prefix="perdure-proxy-capture")
        self._pool: httpcore2.AsyncConnectionPool | None = None  # made in the loop that uses it

    def close(self) -> None:
        """Capture what waits, then end the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._capture_thread.shutdown(wait=True)

    async def close_connections(self) -> None:
        """Close the connections to upstreams, in the loop that opened them."""
        if self._pool is not None:
            await self._pool.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        with contextlib.suppress(_ClientGone):
            await self._relay(scope, receive, send)

    async def _relay(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
            path = self._check_path(_read_raw_path(scope))
            if path == ALIVE_PATH:
                state = {"status": "ok", **vars(self.traffic), "counts": dict(self._editor.counts)}
                await _send_json(send, 200, state)
                return
            self.traffic.n_requests += 1
            if headers.get("upgrade", "").lower() == "websocket":  # with this status Codex goes on over HTTP at once
                raise _Refusal(426, "invalid_request_error", "websockets do not pass here: use HTTP")
            upstream, upstream_path = upstreams.choose_upstream(self._allowed, path, headers)
            if upstreams.is_foreign_key(upstream, headers):
                message = f"this key is one of another provider, and was not sent to {upstream.host}"
                raise _Refusal(401, "authentication_error", message)
            api, is_count = upstreams.identify_api(scope["method"], upstream_path)
            client = _ClientStream(receive)
            edited: EditedRequest | None = None
            content: bytes | AsyncIterator[bytes] | None = client.iterate() if _has_body(headers) else None
            if api is not None:
                raw = await client.read(_MAX_EDITED_BYTES)
                if client.is_read:
                    edited = await self._edit(api, raw, headers, is_count=is_count)
                    self.traffic.add(edited, raw)
                    content = edited.raw
                else:
                    content = client.iterate(raw)
            target = upstream_path.encode("latin-1") + (b"?" + scope["query_string"] if scope["query_string"] else b"")
            request = _make_request(scope, upstream, target, content)
            await self._exchange(request, client, send, api=None if is_count else api, edited=edited)
        except _Refusal as refusal:
            error = {"type": refusal.kind, "message": f"perdure proxy: {refusal.message}", "code": refusal.kind}
            await _send_json(send, refusal.status, {"type": "error", "error": error})

    def _check_path(self, path: str) -> str:
        """Return the path behind the secret. Raises _Refusal if it does not begin with the secret."""
        first, _, remainder = path.removeprefix("/").partition("/")
        if hmac.compare_digest(first.encode("utf-8", "replace"), self._secret.encode()):
            return f"/{remainder}"
        message = "the base URL lacks this home's secret: `perdure proxy --show` prints the whole address"
        raise _Refusal(403, "permission_error", message)

    async def _edit(self, api: Api, raw: bytes, headers: Mapping[str, str], *, is_count: bool) -> EditedRequest:
        """Return the request as it goes on: as it came if it could not be edited in time."""
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._threads, lambda: self._editor.edit(api, raw, headers, is_count=is_count))
        try:
            return await asyncio.wait_for(work, self._limit_s)
        except TimeoutError as error:
            loop.run_in_executor(None, self._editor.note_failure, "", error)
            return EditedRequest(raw, "late")

    # the exchange with the upstream -----------------------------------------------------------------------

    async def _exchange(
        self, request: httpcore2.Request, client: _ClientStream, send: Send, *, api: Api | None,
        edited: EditedRequest | None,
    ) -> None:  # fmt: skip
        """Send a request on, and its answer back; end both when the client is gone."""
        passing = asyncio.ensure_future(self._pass_answer(request, send, api=api, edited=edited))
        leaving = asyncio.ensure_future(client.wait_until_gone())
        try:
            await asyncio.wait((passing, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not passing.done():
                raise _ClientGone
            await passing
        finally:
            for task in (passing, leaving):
                task.cancel()
            await asyncio.gather(passing, leaving, return_exceptions=True)

    async def _pass_answer(
        self, request: httpcore2.Request, send: Send, *, api: Api | None, edited: EditedRequest | None
    ) -> None:
        if self._pool is None:
            self._pool = httpcore2.AsyncConnectionPool(max_connections=None, keepalive_expiry=30.0)
        try:
            response = await self._pool.handle_async_request(request)
        except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError) as error:
            host = request.url.host.decode("latin-1")
            self._note_upstream(host, error)
            raise _Refusal(502, "api_error", f"{host} cannot be reached ({type(error).__name__})") from error
        answer = bytearray()
        is_kept = api is not None and edited is not None and response.status == 200
        try:
            headers = [(name.lower(), value) for name, value in response.headers]
            await send(
                {
                    "type": "http.response.start",
                    "status": response.status,
                    "headers": [(name, value) for name, value in headers if name not in _HOP_HEADERS],
                }
            )
            async for chunk in response.aiter_stream():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                if is_kept and len(answer) <= _MAX_ANSWER_BYTES:
                    answer += chunk
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError) as error:
            self._note_upstream(request.url.host.decode("latin-1"), error)
            raise  # the server closes the connection without an end
        finally:
            await response.aclose()
            if api is not None and edited is not None and response.status == 200:
                fields = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
                self._capture_thread.submit(self._settle, api, edited, bytes(answer), fields)

    def _note_upstream(self, host: str, error: Exception) -> None:
        log.append_entry(self._home, "upstream", host=host, code=type(error).__name__)

    def _settle(self, api: Api, edited: EditedRequest, raw: bytes, headers: Mapping[str, str]) -> None:
        """Note that a request was answered, and capture the exchange."""
        try:
            content_type, encoding = headers.get("content-type", ""), headers.get("content-encoding", "")
            answer = (
                answers.read_answer(api, raw, content_type=content_type, encoding=encoding)
                if len(raw) <= _MAX_ANSWER_BYTES
                else answers.NO_ANSWER
            )
            self._editor.mark_answered(edited, answer.response_id)
            if self._can_capture and edited.can_capture:
                self._editor.counts["captured"] += exchanges.capture_exchange(self._home, self._store, edited, answer)
        except (PerdureError, OSError, ValueError, TypeError, AttributeError) as error:
            self._editor.note_failure(edited.sender.client if edited.sender else "", error)


class _ClientStream:
    """The body of a request, and the news that its client is gone."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.is_read = False  # the whole body came

    async def iterate(self, beginning: bytes = b"") -> AsyncIterator[bytes]:
        """Yield the body as it comes, behind the beginning that was read before. Raises _ClientGone."""
        if beginning:
            yield beginning
        while not self.is_read:
            if chunk := await self._receive_chunk():
                yield chunk

    async def read(self, max_bytes: int) -> bytes:
        """Return the body; of a longer one the beginning, a chunk more than `max_bytes`. Raises _ClientGone."""
        body = bytearray()
        while not self.is_read and len(body) <= max_bytes:
            body += await self._receive_chunk()
        return bytes(body)

    async def _receive_chunk(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise _ClientGone
        self.is_read = not message.get("more_body", False)
        return bytes(message.get("body", b""))

    async def wait_until_gone(self) -> None:
        """Wait until the client closes its connection."""
        while not self.is_read:  # the body still goes on to the upstream
            await asyncio.sleep(0.05)
        while (await self._receive())["type"] != "http.disconnect":
            pass


def _read_raw_path(scope: Scope) -> str:
    raw: bytes = scope.get("raw_path") or scope["path"].encode("utf-8")
    return raw.partition(b"?")[0].decode("latin-1")


def _has_body(headers: Mapping[str, str]) -> bool:
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def _make_request(
    scope: Scope, upstream: Upstream, target: bytes, content: bytes | AsyncIterator[bytes] | None
) -> httpcore2.Request:
    """Return the request to the upstream: the client's headers, but for those about the connection."""
    headers = [(b"Host", upstream.host_header.encode("latin-1"))]
    for name, value in scope["headers"]:
        is_length = name.lower() == b"content-length"
        if is_length and isinstance(content, bytes):
            headers.append((name, str(len(content)).encode()))
        elif name.lower() not in _HOP_HEADERS and name.lower() != b"host":
            headers.append((name, value))
    if isinstance(content, bytes) and not any(name.lower() == b"content-length" for name, _ in headers):
        headers.append((b"content-length", str(len(content)).encode()))
    if (
        content is not None
        and not isinstance(content, bytes)
        and not any(n.lower() == b"content-length" for n, _ in headers)
    ):
        headers.append((b"transfer-encoding", b"chunked"))
    url = httpcore2.URL(
        scheme=upstream.scheme, host=upstream.host, port=upstream.port, target=upstream.path.encode() + target
    )
    timeout = {"connect": _CONNECT_S, "read": None, "write": None, "pool": None}
    return httpcore2.Request(scope["method"], url, headers=headers, content=content, extensions={"timeout": timeout})


async def _send_json(send: Send, status: int, value: Any) -> None:
    body = json.dumps(value).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
