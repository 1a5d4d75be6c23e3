"""Embedders over HTTP: any OpenAI-compatible `/embeddings`, and Ollama's `/api/embed`. Standard library
only.

A response is untrusted: limited in size and time, and used only if it has the promised form. Redirects
are not followed and proxies not used, so that a key goes to the configured host and nowhere else; over
plain HTTP it goes to this machine only. Retries, shape and length 1 are the work of
`ValidatingEmbedder`.
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
from perdure.models.embedder import ModelTag, TextKind, Vectors
from perdure.models.settings import check_url

MAX_TEXTS = 64  # of one request
MAX_ANSWER_BYTES = 64_000_000  # 64 vectors of 4,096 numbers are about 6 MB of JSON
_READ_BYTES = 1 << 16
_TEXT_STATUSES = (400, 413, 422)  # statuses that blame this text, not this client

JsonRows = list[list[Any]]


@dataclass(frozen=True)
class EmbeddingEndpoint:
    """The address of an embedding model, and the form of its requests."""

    dialect: str  # openai or ollama
    url: str  # without /embeddings or /api/embed
    model: str
    dimension: int  # numbers in its vectors
    key: str | None = None  # sent as a bearer token
    query_prefix: str = ""  # put before a query, e.g. "Instruct: …\nQuery: "
    document_prefix: str = ""
    timeout_s: float = 30.0  # for one whole request


class RemoteEmbedder:
    """The embedder at one endpoint. It holds no connection between calls."""

    def __init__(self, endpoint: EmbeddingEndpoint, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Check the endpoint. Raises ConfigFault for an invalid URL, and for a key that would travel in the clear."""
        self._endpoint = endpoint
        self._clock = clock
        self._path, self._parse_answer = _DIALECTS[endpoint.dialect]
        self._url = check_url(endpoint.url, key=endpoint.key, setting="models.embedder")
        identity = "\0".join((endpoint.dialect, endpoint.model, endpoint.document_prefix))
        self._tag = ModelTag(endpoint.model, endpoint.dimension, hashlib.sha256(identity.encode()).hexdigest())

    @property
    def tag(self) -> ModelTag:
        """Model and dimension from the settings. The address is not part of it: a server may move."""
        return self._tag

    def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        """Return the endpoint's numbers unchanged. The prefix of the kind is put before every text. Raises
        ModelFault.
        """
        prefix = self._endpoint.query_prefix if kind == "query" else self._endpoint.document_prefix
        rows: JsonRows = []
        for start in range(0, len(texts), MAX_TEXTS):
            rows += self._request_rows([prefix + text for text in texts[start : start + MAX_TEXTS]])
        return _to_array(rows, self._tag)

    def _request_rows(self, texts: list[str]) -> JsonRows:
        request = {"model": self._endpoint.model, "input": texts}
        rows = self._parse_answer(_parse_json(self._post_request(json.dumps(request).encode())))
        if len(rows) != len(texts):
            raise ModelNonsense(f"{len(rows)} vectors for {len(texts)} texts")
        return rows

    def _post_request(self, body: bytes) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "perdure"}
        if self._endpoint.key:
            headers["Authorization"] = f"Bearer {self._endpoint.key}"
        deadline_s = self._clock() + self._endpoint.timeout_s
        connection = self._open_connection()
        try:
            connection.request("POST", self._url.path.rstrip("/") + self._path, body, headers)
            with connection.getresponse() as response:
                _raise_for_status(response.status, self._url)
                return self._read_body(response, deadline_s)
        except (OSError, http.client.HTTPException) as error:
            raise ModelUnreachable(f"{self._url.hostname} ({type(error).__name__})") from error
        finally:
            connection.close()

    def _open_connection(self) -> http.client.HTTPConnection:
        host, timeout_s = self._url.hostname or "", self._endpoint.timeout_s
        if self._url.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, self._url.port, timeout=timeout_s, context=context)
        return http.client.HTTPConnection(host, self._url.port, timeout=timeout_s)

    def _read_body(self, response: http.client.HTTPResponse, deadline_s: float) -> bytes:
        """Read the response body, unless it is too long or too slow."""
        body = bytearray()
        while part := response.read1(_READ_BYTES):
            body += part
            if len(body) > MAX_ANSWER_BYTES:
                raise ModelNonsense(f"an answer of more than {MAX_ANSWER_BYTES} bytes")
            if self._clock() > deadline_s:
                raise TimeoutError
        return bytes(body)


def _raise_for_status(status: int, url: SplitResult) -> None:
    """Raise the error for an HTTP status; 200 is none. The body is not shown: it may repeat the request."""
    if status == 200:
        return
    message = f"{url.hostname} answered {status}"
    if status == 429 or status >= 500:
        raise ModelBusy(message)
    raise TextRefused(message) if status in _TEXT_STATUSES else ModelRefused(message)


def _parse_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ModelNonsense("the answer is not JSON") from error


def _parse_openai(answer: Any) -> JsonRows:
    """Read `{"data": [{"index": 0, "embedding": [...]}, ...]}`, in any order."""
    items = _get_list(answer, "data")
    numbered = {
        item["index"]: _get_list(item, "embedding")
        for item in items
        if isinstance(item, dict) and type(item.get("index")) is int
    }
    if len(numbered) != len(items) or sorted(numbered) != list(range(len(items))):
        raise ModelNonsense("the answer does not number its vectors")
    return [numbered[n] for n in range(len(items))]


def _parse_ollama(answer: Any) -> JsonRows:
    """Read `{"embeddings": [[...], ...]}`, in the order of the texts."""
    rows = _get_list(answer, "embeddings")
    if not all(isinstance(row, list) for row in rows):
        raise ModelNonsense("the answer contains no vectors")
    return rows


def _get_list(answer: Any, name: str) -> list[Any]:
    items = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(items, list):
        raise ModelNonsense(f"the answer has no list {name!r}")
    return items


def _to_array(rows: JsonRows, tag: ModelTag) -> Vectors:
    """Return the rows as an array; null, and numbers too large for float32, become NaN.

    A wrong dimension is not checked here: `ValidatingEmbedder` raises DimensionMismatch.
    """
    lengths = {len(row) for row in rows} or {tag.dimension}
    if len(lengths) != 1:
        raise ModelNonsense("vectors of different lengths in one answer")
    if not all(n is None or type(n) in (int, float) for row in rows for n in row):
        raise ModelNonsense("the answer contains values that are not numbers")
    try:
        exact = np.array(rows, np.float64).reshape(len(rows), lengths.pop())
    except OverflowError as error:
        raise ModelNonsense("a number too large for a float") from error
    with np.errstate(over="ignore"):
        numbers = exact.astype(np.float32)
    return np.where(np.isfinite(numbers), numbers, np.float32(np.nan))


_DIALECTS: Mapping[str, tuple[str, Callable[[Any], JsonRows]]] = {
    "openai": ("/embeddings", _parse_openai),
    "ollama": ("/api/embed", _parse_ollama),
}
