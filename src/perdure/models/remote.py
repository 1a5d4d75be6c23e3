"""Embedders behind HTTP: any OpenAI-compatible `/embeddings`, and Ollama's `/api/embed`. Standard library only.

The answer is somebody else's bytes: limited in size and time, and believed only where it has the promised form.
Redirects are not followed and proxies not used, so that a key goes to the configured host and nowhere else; over plain
HTTP it goes to this machine only. Trying again, shape and length 1 are `Careful`'s.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult

import numpy as np

from perdure.errors import ModelBusy, ModelNonsense, ModelRefused, ModelUnreachable, TextRefused
from perdure.models.address import checked
from perdure.models.embedder import Kind, ModelTag
from perdure.models.vectors import Vectors

MAX_TEXTS = 64  # of one request
MAX_ANSWER_BYTES = 64_000_000  # 64 vectors of 4,096 numbers are about 6 MB of JSON
_READ_BYTES = 1 << 16
_TOO_MUCH = (400, 413, 422)  # this text, not this client

Rows = list[list[Any]]


@dataclass(frozen=True)
class Endpoint:
    """Where a model answers, and how it wants to be asked."""

    dialect: str  # openai or ollama
    url: str  # what comes before /embeddings or /api/embed
    model: str
    dimension: int  # numbers in its vectors
    key: str | None = None  # sent as a bearer token
    query_prefix: str = ""  # put before a query, e.g. "Instruct: …\nQuery: "
    document_prefix: str = ""
    timeout_s: float = 30.0  # for one whole request


class Remote:
    """One endpoint. It holds no connection between calls."""

    def __init__(self, endpoint: Endpoint, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises ConfigFault for a URL that cannot be meant, and for a key that would travel in the clear."""
        self._endpoint = endpoint
        self._clock = clock
        self._path, self._read = _DIALECTS[endpoint.dialect]
        self._url = checked(endpoint.url, key=endpoint.key, setting="models.embedder")
        identity = "\0".join((endpoint.dialect, endpoint.model, endpoint.document_prefix))
        self._tag = ModelTag(endpoint.model, endpoint.dimension, hashlib.sha256(identity.encode()).hexdigest())

    @property
    def tag(self) -> ModelTag:
        """Model and dimension as configured. The address is no part of it: a server may move."""
        return self._tag

    def embed(self, texts: Sequence[str], kind: Kind) -> Vectors:
        """The endpoint's numbers as they are. Raises ModelFault; a kind's prefix stands before every text."""
        prefix = self._endpoint.query_prefix if kind == "query" else self._endpoint.document_prefix
        rows: Rows = []
        for start in range(0, len(texts), MAX_TEXTS):
            rows += self._ask([prefix + text for text in texts[start : start + MAX_TEXTS]])
        return _array(rows, self._tag)

    def _ask(self, texts: list[str]) -> Rows:
        request = {"model": self._endpoint.model, "input": texts}
        rows = self._read(_json(self._post(json.dumps(request).encode())))
        if len(rows) != len(texts):
            raise ModelNonsense(f"{len(rows)} vectors for {len(texts)} texts")
        return rows

    def _post(self, body: bytes) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "perdure"}
        if self._endpoint.key:
            headers["Authorization"] = f"Bearer {self._endpoint.key}"
        deadline_s = self._clock() + self._endpoint.timeout_s
        connection = self._connection()
        try:
            connection.request("POST", self._url.path.rstrip("/") + self._path, body, headers)
            with connection.getresponse() as answer:
                _refuse(answer.status, self._url)
                return self._body(answer, deadline_s)
        except (OSError, http.client.HTTPException) as error:
            raise ModelUnreachable(f"{self._url.hostname} ({type(error).__name__})") from error
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        host, timeout_s = self._url.hostname or "", self._endpoint.timeout_s
        if self._url.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, self._url.port, timeout=timeout_s, context=context)
        return http.client.HTTPConnection(host, self._url.port, timeout=timeout_s)

    def _body(self, answer: http.client.HTTPResponse, deadline_s: float) -> bytes:
        """The answer, unless it is too long or drips."""
        found = bytearray()
        while part := answer.read1(_READ_BYTES):
            found += part
            if len(found) > MAX_ANSWER_BYTES:
                raise ModelNonsense(f"an answer of more than {MAX_ANSWER_BYTES} bytes")
            if self._clock() > deadline_s:
                raise TimeoutError
        return bytes(found)


def _refuse(status: int, url: SplitResult) -> None:
    """Raise what an HTTP status means; 200 means nothing. The body is not shown: it may repeat what was sent."""
    if status == 200:
        return
    said = f"{url.hostname} answered {status}"
    if status == 429 or status >= 500:
        raise ModelBusy(said)
    raise TextRefused(said) if status in _TOO_MUCH else ModelRefused(said)


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ModelNonsense("the answer is no JSON") from error


def _openai(answer: Any) -> Rows:
    """`{"data": [{"index": 0, "embedding": [...]}, ...]}`, in any order."""
    items = _field(answer, "data")
    numbered = {item["index"]: _field(item, "embedding") for item in items if _is_numbered(item)}
    if len(numbered) != len(items) or sorted(numbered) != list(range(len(items))):
        raise ModelNonsense("the answer does not number its vectors")
    return [numbered[n] for n in range(len(items))]


def _is_numbered(item: Any) -> bool:
    return isinstance(item, dict) and type(item.get("index")) is int


def _ollama(answer: Any) -> Rows:
    """`{"embeddings": [[...], ...]}`, in the order of the texts."""
    rows = _field(answer, "embeddings")
    if not all(isinstance(row, list) for row in rows):
        raise ModelNonsense("the answer holds something else than vectors")
    return rows


def _field(answer: Any, name: str) -> list[Any]:
    found = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(found, list):
        raise ModelNonsense(f"the answer has no list {name!r}")
    return found


def _array(rows: Rows, tag: ModelTag) -> Vectors:
    """The rows as an array; null and what float32 cannot hold become NaN. DimensionMismatch is for `Careful` to say."""
    lengths = {len(row) for row in rows} or {tag.dimension}
    if len(lengths) != 1:
        raise ModelNonsense("vectors of different lengths in one answer")
    if not all(n is None or type(n) in (int, float) for row in rows for n in row):
        raise ModelNonsense("the answer holds something else than numbers")
    try:
        exact = np.array(rows, np.float64).reshape(len(rows), lengths.pop())
    except OverflowError as error:
        raise ModelNonsense("a number beyond all measure") from error
    with np.errstate(over="ignore"):
        found = exact.astype(np.float32)
    return np.where(np.isfinite(found), found, np.float32(np.nan))


_DIALECTS: Mapping[str, tuple[str, Callable[[Any], Rows]]] = {
    "openai": ("/embeddings", _openai),
    "ollama": ("/api/embed", _ollama),
}
