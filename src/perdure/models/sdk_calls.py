"""Network access of the providers' SDKs: one HTTP client for each call, and one set of errors for all SDKs.

Redirects are not followed, and proxies and the SDKs' own environment variables are not used: a key, and
the text sent with it, go to the configured host and to no other. Of the SDKs' headers only those pass
that the endpoint needs, and none that describes this machine. One deadline covers the call with all its
retries, even if an answer arrives very slowly; a retry that has begun to wait may end a few seconds
late.
"""

from __future__ import annotations

import functools
import ssl
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult

from perdure.errors import ModelBusy, ModelFault, ModelLate, ModelNonsense, ModelRefused, ModelUnreachable
from perdure.models import cancel
from perdure.models.cancel import CallSockets
from perdure.models.chat import AnswerListener, AnswerPiece, TokenUsage
from perdure.text import clip, join_halves, one_line

if TYPE_CHECKING:
    import httpx2

MAX_RETRIES = 2  # as the SDKs' own default
MIN_RETRY_LIMIT_S = 20.0  # with less time than this there is no retry: the SDKs wait up to 8 s between two tries
MAX_ANSWER_BYTES = 64_000_000  # 100 thousand tokens in pieces of 200 bytes of JSON are 20 MB
_MESSAGE_CHARS = 300  # of a provider's error message
_ALLOWED_HEADERS = {
    "host", "content-type", "content-length", "accept", "accept-encoding", "connection", "user-agent",
    "anthropic-version",
}  # fmt: skip


@dataclass(frozen=True)
class CallDeadline:
    """The time at which a call must end."""

    at_s: float
    limit_s: float  # the whole time limit
    clock: Callable[[], float]

    @property
    def left_s(self) -> float:
        """Seconds left; never zero, because HTTP libraries take zero for no limit."""
        return max(0.001, self.at_s - self.clock())

    @property
    def is_over(self) -> bool:
        """Is True after the deadline."""
        return self.clock() > self.at_s

    def make_fault(self, host: str = "") -> ModelLate:
        """Return the error to raise after the deadline."""
        return ModelLate(f"{host}: no answer within {self.limit_s:g} s".removeprefix(": "))


def start_deadline(limit_s: float, clock: Callable[[], float] = time.monotonic) -> CallDeadline:
    """Return a deadline `limit_s` seconds from now."""
    return CallDeadline(clock() + limit_s, limit_s, clock)


def count_retries(limit_s: float) -> int:
    """Return how many retries a call with this time limit gets."""
    return MAX_RETRIES if limit_s >= MIN_RETRY_LIMIT_S else 0


@contextmanager
def open_client(
    url: SplitResult, credential: Mapping[str, str], deadline: CallDeadline, sockets: CallSockets | None
) -> Iterator[httpx2.Client]:
    """Open an HTTP client for one call.

    credential: the headers with the key, sent only to the host of this URL. sockets: of a call that can be cancelled.
    """
    import httpx2

    def prepare_request(request: httpx2.Request) -> None:
        if sockets is not None:
            if sockets.is_closed:
                raise httpx2.ConnectError("cancelled")  # a retry of a call that nobody waits for
            request.extensions["trace"] = sockets.add
        for name in set(request.headers) - _ALLOWED_HEADERS:
            del request.headers[name]
        request.headers["user-agent"] = "perdure"
        request.headers.update(credential)
        request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), deadline.left_s)

    def limit_retry(response: httpx2.Response) -> None:
        wait_s = read_retry_after_s(response.headers, datetime.now(UTC))
        if wait_s > deadline.left_s:
            response.headers["x-should-retry"] = "false"  # the SDKs would wait nevertheless
        elif "retry-after" in response.headers:
            response.headers["retry-after"] = f"{wait_s:.3f}"  # so that the SDKs wait exactly as long
        response.stream = _limit_stream(response.stream, deadline)

    verify: Any = _make_tls_context() if url.scheme == "https" else False
    hooks: dict[str, list[Callable[..., Any]]] = {"request": [prepare_request], "response": [limit_retry]}
    with httpx2.Client(verify=verify, trust_env=False, follow_redirects=False, event_hooks=hooks) as http_client:
        yield http_client


def _limit_stream(stream: Any, deadline: CallDeadline) -> Any:
    """The bytes of an answer until the deadline: an HTTP timeout is for one read, and a ping now and then resets it."""
    import httpx2

    class LimitedStream(httpx2.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            n_bytes = 0
            for piece in stream:
                n_bytes += len(piece)
                if deadline.is_over:
                    raise httpx2.ReadTimeout("the deadline")
                if n_bytes > MAX_ANSWER_BYTES:
                    raise httpx2.ReadError("an answer without end")
                yield piece

        def close(self) -> None:
            stream.close()

    return LimitedStream()


def read_retry_after_s(headers: Mapping[str, str], now: datetime) -> float:
    """Return the seconds that a response asks to wait before the next try, given in seconds or as a date.

    Returns 0 if it asks for nothing, or for nothing readable.

    >>> read_retry_after_s({"retry-after": "Sun, 01 Mar 2026 09:00:30 GMT"}, datetime(2026, 3, 1, 9, tzinfo=UTC))
    30.0
    """
    for name, per_s in (("retry-after-ms", 1000), ("retry-after", 1)):
        with suppress(ValueError):
            if (wait_s := float(headers.get(name, "")) / per_s) >= 0:  # false for NaN
                return wait_s
    try:
        until = parsedate_to_datetime(headers.get("retry-after", ""))
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return max(0.0, (until.replace(tzinfo=until.tzinfo or UTC) - now).total_seconds())


@functools.cache
def _make_tls_context() -> ssl.SSLContext:
    return ssl.create_default_context()


def read_pieces(
    events: Iterable[Any], read_event: Callable[[Any], Sequence[AnswerPiece]], host: str
) -> Iterator[AnswerPiece]:
    """Yield the pieces in each event of an answer. read_event: reads the pieces of one event.

    Raises ModelNonsense for an event that `read_event` cannot read: no provider sends such events.
    """
    event_iterator = iter(events)
    while True:
        try:
            event = next(event_iterator, None)
            pieces = read_event(event) if event is not None else None
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            raise ModelNonsense(f"{host} ({type(error).__name__})") from error
        if pieces is None:
            return
        yield from pieces


def deliver_answer(
    stream: Callable[[CallSockets | None], Generator[AnswerPiece]],
    listener: AnswerListener,
    count_usage: Callable[[], TokenUsage | None],
) -> None:
    """Give each piece of an answer to its listener; close the connection at the end, also after an error.

    stream: opens the connection and yields the pieces; the sockets are there if the call can be cancelled.
    count_usage: returns the usage so far, which an error in the middle of the answer carries; None before there is any.
    """
    sockets = CallSockets() if listener.cancel is not None else None

    def produce(give: Callable[[AnswerPiece], None]) -> None:
        with closing(stream(sockets)) as pieces:
            for piece in _join_pieces(pieces):
                give(piece)

    try:
        cancel.deliver(produce, listener.receive, listener.cancel, sockets.close if sockets else _do_nothing)
    except ModelFault as error:
        error.usage = error.usage or count_usage()
        raise


def _join_pieces(pieces: Iterable[AnswerPiece]) -> Iterator[AnswerPiece]:
    """Yield the pieces in whole characters: an endpoint that counts in UTF-16 may cut an emoji into two."""
    halves = {True: "", False: ""}  # is_thought -> the first half of a character
    for piece in pieces:
        text = halves[piece.is_thought] + piece.text
        half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        halves[piece.is_thought] = half
        yield piece._replace(text=join_halves(text.removesuffix(half)))
    yield from (AnswerPiece(join_halves(half), is_thought) for is_thought, half in halves.items() if half)


def _do_nothing() -> None:
    pass


@contextmanager
def map_faults(sdk: ModuleType, host: str, key: str | None, deadline: CallDeadline) -> Iterator[None]:
    """Raise every error of an SDK as a ModelFault with the provider's own message, without the key.

    anthropic and openai name their errors alike.
    """
    import httpx2

    try:
        yield
    except (sdk.APITimeoutError, httpx2.TimeoutException) as error:
        raise deadline.make_fault(host) from error
    except sdk.APIConnectionError as error:
        raise ModelUnreachable(f"{host} ({type(error.__cause__ or error).__name__})") from error
    except sdk.APIError as error:
        raise _to_model_fault(error, host, key) from error
    except httpx2.HTTPError as error:
        raise ModelUnreachable(f"{host}: the answer ended early ({type(error).__name__})") from error


def _to_model_fault(error: Any, host: str, key: str | None) -> ModelFault:
    """Return the fault for a status; an error in the middle of an answer has no status."""
    status = getattr(error, "status_code", None)
    provider_message = _read_provider_message(error)
    if key:
        provider_message = provider_message.replace(key, "[key]")
    excerpt = clip(one_line(provider_message, 10 * _MESSAGE_CHARS), _MESSAGE_CHARS)
    message = f"{host} answered{f' {status}' if status else ''}: {excerpt}"
    is_busy = status is None or status in (200, 408, 409, 429) or status >= 500
    return ModelBusy(message) if is_busy else ModelRefused(message)


def _read_provider_message(error: Any) -> str:
    """Return the `message` of a provider's error; the SDK's text if there is none."""
    body = getattr(error, "body", None)
    for part in (body.get("error"), body) if isinstance(body, dict) else ():
        if isinstance(part, str):
            return part
        if isinstance(part, dict) and isinstance(part.get("message"), str):
            return str(part["message"])
    return str(getattr(error, "message", "") or type(error).__name__)
