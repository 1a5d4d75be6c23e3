"""How the providers' SDKs reach the network: one HTTP client for each call, and one meaning for everything they raise.

Redirects are not followed, and proxies and the SDKs' own environment variables are not used, so that a key and what is
sent with it go to the configured host and nowhere else. Of the SDKs' headers only those pass that the endpoint needs:
none that describe this machine. One deadline holds for the call with all its retries, however slowly an answer drips;
a retry that has begun to wait may end a few seconds late.
"""

from __future__ import annotations

import functools
import ssl
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult

from perdure.errors import ModelBusy, ModelFault, ModelLate, ModelNonsense, ModelRefused, ModelUnreachable
from perdure.models.chat import Usage
from perdure.text import clip, one_line

if TYPE_CHECKING:
    import httpx2

MAX_RETRIES = 2  # as the SDKs' own default
PATIENT_S = 20.0  # who has less time than this has none to try again: the SDKs wait up to 8 s between two tries
MAX_ANSWER_BYTES = 64_000_000  # 100 thousand tokens in pieces of 200 bytes of JSON are 20 MB
_WORDS_CHARS = 300  # of what a provider says about a refusal
_NEEDED = {
    "host", "content-type", "content-length", "accept", "accept-encoding", "connection", "user-agent",
    "anthropic-version",
}  # fmt: skip


@dataclass(frozen=True)
class Deadline:
    """When a call must be over."""

    at_s: float
    limit_s: float  # how far away it was at first
    clock: Callable[[], float]

    @property
    def left_s(self) -> float:
        """What is left of it; never zero, because to HTTP libraries that means no limit."""
        return max(0.001, self.at_s - self.clock())

    @property
    def is_over(self) -> bool:
        """Whether it has passed."""
        return self.clock() > self.at_s

    def late(self, host: str = "") -> ModelLate:
        """What to raise then."""
        return ModelLate(f"{host}: no answer within {self.limit_s:g} s".removeprefix(": "))


def within(limit_s: float, clock: Callable[[], float] = time.monotonic) -> Deadline:
    """Return the deadline that is so far away."""
    return Deadline(clock() + limit_s, limit_s, clock)


def retries(limit_s: float) -> int:
    """Return how often a call with so much time is tried again."""
    return MAX_RETRIES if limit_s >= PATIENT_S else 0


@contextmanager
def client(url: SplitResult, credential: Mapping[str, str], deadline: Deadline) -> Iterator[httpx2.Client]:
    """An HTTP client for one call. credential: the headers that carry the key, sent to this URL's host."""
    import httpx2

    def going(request: httpx2.Request) -> None:
        for name in set(request.headers) - _NEEDED:
            del request.headers[name]
        request.headers["user-agent"] = "perdure"
        request.headers.update(credential)
        request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), deadline.left_s)

    def come(response: httpx2.Response) -> None:
        wait_s = asks_to_wait_s(response.headers, datetime.now(UTC))
        if wait_s > deadline.left_s:
            response.headers["x-should-retry"] = "false"  # the SDKs would wait all the same
        elif "retry-after" in response.headers:
            response.headers["retry-after"] = f"{wait_s:.3f}"  # so that they take it as it was taken here
        response.stream = _timed(response.stream, deadline)

    verify: Any = _trusted() if url.scheme == "https" else False
    hooks: dict[str, list[Callable[..., Any]]] = {"request": [going], "response": [come]}
    with httpx2.Client(verify=verify, trust_env=False, follow_redirects=False, event_hooks=hooks) as made:
        yield made


def _timed(stream: Any, deadline: Deadline) -> Any:
    """The bytes of an answer until the deadline: an HTTP timeout is for one read, and a ping now and then resets it."""
    import httpx2

    class Timed(httpx2.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            n_bytes = 0
            for part in stream:
                n_bytes += len(part)
                if deadline.is_over:
                    raise httpx2.ReadTimeout("the deadline")
                if n_bytes > MAX_ANSWER_BYTES:
                    raise httpx2.ReadError("an answer without end")
                yield part

        def close(self) -> None:
            stream.close()

    return Timed()


def asks_to_wait_s(headers: Mapping[str, str], now: datetime) -> float:
    """Return how long an answer asks to wait before the next try, in seconds or until a date: 0 where it does not, or
    says nothing that can be read.

    >>> asks_to_wait_s({"retry-after": "Sun, 01 Mar 2026 09:00:30 GMT"}, datetime(2026, 3, 1, 9, tzinfo=UTC))
    30.0
    """
    for name, per_s in (("retry-after-ms", 1000), ("retry-after", 1)):
        with suppress(ValueError):
            if (wait_s := float(headers.get(name, "")) / per_s) >= 0:  # not a number is none
                return wait_s
    try:
        until = parsedate_to_datetime(headers.get("retry-after", ""))
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return max(0.0, (until.replace(tzinfo=until.tzinfo or UTC) - now).total_seconds())


@functools.cache
def _trusted() -> ssl.SSLContext:
    return ssl.create_default_context()


def pieces(events: Iterable[Any], take: Callable[[Any], str], host: str) -> Iterator[str]:
    """The text that each event of an answer brings. take: reads one event.

    Raises ModelNonsense for events that no provider sends: what their reader stumbles over.
    """
    coming = iter(events)
    while True:
        try:
            event = next(coming, None)
            piece = take(event) if event is not None else None
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            raise ModelNonsense(f"{host} ({type(error).__name__})") from error
        if piece is None:
            return
        if piece:
            yield piece


def tell(said: Generator[str], on_text: Callable[[str], None] | None, spent: Callable[[], Usage | None]) -> None:
    """Give each piece to whoever listens; the connection is closed when this ends, however it does.

    spent: what the answer has cost so far, which a fault in the middle of it says; None before there is one.
    """
    try:
        with closing(said):
            for piece in said:
                if on_text:
                    on_text(piece)
    except ModelFault as error:
        error.usage = error.usage or spent()
        raise


@contextmanager
def faults(sdk: ModuleType, host: str, key: str | None, deadline: Deadline) -> Iterator[None]:
    """Raise whatever an SDK raises (anthropic and openai name their errors alike) as a ModelFault that says it in the
    provider's own words, without the key.
    """
    import httpx2

    try:
        yield
    except (sdk.APITimeoutError, httpx2.TimeoutException) as error:
        raise deadline.late(host) from error
    except sdk.APIConnectionError as error:
        raise ModelUnreachable(f"{host} ({_cause(error)})") from error
    except sdk.APIError as error:
        raise _refused(error, host, key) from error
    except httpx2.HTTPError as error:
        raise ModelUnreachable(f"{host}: the answer broke off ({type(error).__name__})") from error


def _cause(error: BaseException) -> str:
    return type(error.__cause__ or error).__name__


def _refused(error: Any, host: str, key: str | None) -> ModelFault:
    """The fault that a status means; an error that came in the middle of an answer has none."""
    status = getattr(error, "status_code", None)
    words = _own_words(error)
    if key:
        words = words.replace(key, "[key]")
    said = f"{host} answered{f' {status}' if status else ''}: {clip(one_line(words, 10 * _WORDS_CHARS), _WORDS_CHARS)}"
    is_busy = status is None or status in (200, 408, 409, 429) or status >= 500
    return ModelBusy(said) if is_busy else ModelRefused(said)


def _own_words(error: Any) -> str:
    """What the provider says in its error's `message`; the SDK's words for it where there is none."""
    body = getattr(error, "body", None)
    for part in (body.get("error"), body) if isinstance(body, dict) else ():
        if isinstance(part, str):
            return part
        if isinstance(part, dict) and isinstance(part.get("message"), str):
            return str(part["message"])
    return str(getattr(error, "message", "") or type(error).__name__)
