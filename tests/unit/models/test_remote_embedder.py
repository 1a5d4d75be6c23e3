"""Endpoints, against a real HTTP server on loopback: what they are asked, and every bad answer they could give."""

import http.client
import importlib.util
import json
import socket
from pathlib import Path

import numpy as np
import pytest

from perdure.errors import (
    ConfigFault,
    DimensionMismatch,
    ModelBusy,
    ModelNonsense,
    ModelRefused,
    ModelUnreachable,
    TextRefused,
)  # fmt: skip
from perdure.models import remote_embedder
from perdure.models.embedder import ValidatingEmbedder
from perdure.models.remote_embedder import EmbeddingEndpoint, RemoteEmbedder
from perdure.testing import FakeEmbedder

_spec = importlib.util.spec_from_file_location("http_embedder", Path(__file__).parents[2] / "http_embedder.py")
_http = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_http)


@pytest.fixture
def server():
    endpoint = _http.Endpoint()
    yield endpoint
    endpoint.close()


def at(server, dialect="openai", **more):
    return RemoteEmbedder(
        EmbeddingEndpoint(dialect, more.pop("url", server.url), "m", more.pop("dimension", 64), **more)
    )


def answering(server, *answers, dialect="openai"):
    server.replies += [answer if callable(answer) else (200, json.dumps(answer).encode()) for answer in answers]
    slept = []
    return ValidatingEmbedder(at(server, dialect), sleep=slept.append), slept


def openai(*rows):
    return {"data": [{"index": n, "embedding": list(row)} for n, row in enumerate(rows)]}


@pytest.mark.parametrize(
    ("dialect", "base", "path"),
    [
        ("openai", "", "/embeddings"),
        ("openai", "/v1", "/v1/embeddings"),
        ("openai", "/v1/", "/v1/embeddings"),
        ("ollama", "", "/api/embed"),
        ("ollama", "/", "/api/embed"),
    ],
)
def test_request_has_the_expected_fields(server, dialect, base, path):
    embedder = at(server, dialect, url=server.url + base, key="s3cret", query_prefix="Query: ", document_prefix="Doc: ")
    found = embedder.embed(["one", "two"], "query")
    assert np.allclose(found, FakeEmbedder().embed(["Query: one", "Query: two"], "query"), atol=1e-6)
    embedder.embed(["one"], "document")
    (asked, headers, body), (_, _, document) = server.seen
    assert asked == path and headers["Authorization"] == "Bearer s3cret"
    assert body == {"model": "m", "input": ["Query: one", "Query: two"]} and document["input"] == ["Doc: one"]


def test_request_without_a_key_has_no_header(server):
    at(server).embed(["one"], "query")
    assert "Authorization" not in server.seen[0][1]


def test_texts_are_sent_in_requests_of_64(server):
    found = at(server).embed([f"text {n}" for n in range(150)], "document")
    assert found.shape == (150, 64) and [len(body["input"]) for _, _, body in server.seen] == [64, 64, 22]
    assert np.allclose(found[149], FakeEmbedder().embed(["text 149"], "document")[0], atol=1e-6)


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_busy_endpoint_is_retried_twice(server, status):
    server.replies += [(status, b"later"), (status, b"")]
    slept = []
    assert ValidatingEmbedder(at(server), sleep=slept.append).embed(["a"], "query").shape == (1, 64)
    assert slept == [0.5, 1.5] and len(server.seen) == 3


def test_permanently_busy_endpoint_is_given_up(server):
    server.replies += [(500, b"")] * 3
    slept = []
    with pytest.raises(ModelBusy, match=r"127\.0\.0\.1 answered 500"):
        ValidatingEmbedder(at(server), sleep=slept.append).embed(["a"], "query")
    assert slept == [0.5, 1.5]


@pytest.mark.parametrize(
    ("status", "error"),
    [(400, TextRefused), (401, ModelRefused), (403, ModelRefused), (404, ModelRefused), (413, TextRefused),
     (422, TextRefused), (301, ModelRefused), (307, ModelRefused), (204, ModelRefused)],
)  # fmt: skip
def test_refusals_are_final_and_do_not_show_the_body(server, status, error):
    server.replies.append((status, b"" if status == 204 else b"your key sk-123 is wrong"))
    with pytest.raises(error) as caught:
        ValidatingEmbedder(at(server, key="sk-123"), sleep=pytest.fail).embed(["a"], "query")
    assert "sk-123" not in str(caught.value) and len(server.seen) == 1


def test_a_redirect_is_not_followed(server):
    other = _http.Endpoint()

    def redirect(handler):
        handler.send_response(307)
        handler.send_header("Location", other.url + "/embeddings")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    server.replies.append(redirect)
    with pytest.raises(ModelRefused):
        at(server, key="s3cret").embed(["a"], "query")
    assert other.seen == []
    other.close()


@pytest.mark.parametrize("bad", ["NaN", "null", "1e999", "-Infinity"])
def test_non_finite_number_is_retried_with_the_prefix(server, bad):
    row = ", ".join(["0.5"] * 63 + [bad])
    server.replies.append((200, f'{{"data": [{{"index": 0, "embedding": [{row}]}}]}}'.encode()))
    assert np.isfinite(ValidatingEmbedder(at(server)).embed(["a"], "document")).all()
    assert server.seen[1][2]["input"] == ["passage: a"]


@pytest.mark.parametrize("dialect", ["openai", "ollama"])
def test_wrong_dimension_is_an_error(server, dialect):
    answer = openai([1.0] * 32) if dialect == "openai" else {"embeddings": [[1.0] * 32]}
    embedder, _ = answering(server, answer, dialect=dialect)
    with pytest.raises(DimensionMismatch, match="32"):
        embedder.embed(["a"], "query")


DEEP = b'{"data": ' + b"[" * 200_000
HOSTILE = [
    b"", b"<html>", b"{", b"[]", b"null", b"7", b'"data"', b"\xff\xfe", DEEP, b'{"data": 1' + b"0" * 10_000 + b"}",
    b'{"data": {}}', b'{"data": [1]}', b'{"data": [{"index": 0}]}', b'{"data": [{"embedding": [1]}]}',
    b'{"data": [{"index": 1, "embedding": [1]}]}', b'{"data": [{"index": true, "embedding": [1]}]}',
    b'{"data": [{"index": 0, "embedding": "AAAA"}]}', b'{"data": [{"index": 0, "embedding": ["1"]}]}',
    b'{"data": [{"index": 0, "embedding": [[1]]}]}', b'{"data": [{"index": 0, "embedding": [true]}]}',
    b'{"data": [{"index": 0, "embedding": [{}]}]}', b'{"data": [{"index": {}, "embedding": [1]}]}',
    b'{"data": [{"index": 0, "embedding": [1' + b"0" * 400 + b"]}]}",
    json.dumps(openai([1.0], [1.0])).encode(), json.dumps({"data": []}).encode(),
    b'{"data": [{"index": 0, "embedding": [1]}, {"index": 0, "embedding": [1]}]}',
]  # fmt: skip


@pytest.mark.parametrize("body", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_answers_are_nonsense(server, body):
    server.replies.append((200, body))
    with pytest.raises(ModelNonsense):
        ValidatingEmbedder(at(server), sleep=pytest.fail).embed(["a"], "query")


@pytest.mark.parametrize(
    "answer", [{"embeddings": [1]}, {"embeddings": "x"}, {"embedding": [1.0]}, {"embeddings": [["a"]]}]
)
def test_hostile_answers_of_ollama_are_nonsense(server, answer):
    embedder, _ = answering(server, answer, dialect="ollama")
    with pytest.raises(ModelNonsense):
        embedder.embed(["a"], "query")


def test_vectors_of_different_lengths_are_nonsense(server):
    embedder, _ = answering(server, openai([1.0] * 64, [1.0] * 32))
    with pytest.raises(ModelNonsense):
        embedder.embed(["a", "b"], "query")


def test_an_endless_answer_is_cut_off(server, monkeypatch):
    monkeypatch.setattr(remote_embedder, "MAX_ANSWER_BYTES", 100_000)
    server.replies.append((200, b" " * 200_000))
    with pytest.raises(ModelNonsense, match="100000 bytes"):
        at(server).embed(["a"], "query")


def test_missing_answer_times_out(server):
    """The server holds its answer until the client has given up; it is not asked again."""
    import threading

    given_up = threading.Event()
    server.replies.append(lambda handler: given_up.wait(10))
    with pytest.raises(ModelUnreachable, match="TimeoutError"):
        ValidatingEmbedder(at(server, timeout_s=0.2), sleep=pytest.fail).embed(["a"], "query")
    given_up.set()
    assert len(server.seen) == 1


def test_dripping_answer_times_out(server):
    """Each byte comes in time; all of them do not. The clock is given: it moves a second with every look."""
    seconds = iter(range(1000))
    endpoint = EmbeddingEndpoint("openai", server.url, "m", 64, timeout_s=1.0)
    server.replies.append((200, b" " * 1_000_000))
    with pytest.raises(ModelUnreachable):
        RemoteEmbedder(endpoint, clock=lambda: float(next(seconds))).embed(["a"], "query")


def test_broken_connection_is_unreachable(server):
    server.replies.append(lambda handler: handler.connection.close())
    with pytest.raises(ModelUnreachable):
        at(server).embed(["a"], "query")


def test_server_that_speaks_no_http_is_refused(server):
    server.replies.append(lambda handler: handler.wfile.write(b"SSH-2.0-OpenSSH\r\n\r\n"))
    with pytest.raises(ModelUnreachable):
        at(server).embed(["a"], "query")


def test_missing_endpoint_is_unreachable():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ModelUnreachable, match=r"Check `url` in the settings"):
            ValidatingEmbedder(RemoteEmbedder(EmbeddingEndpoint("ollama", url, "m", 64)), sleep=pytest.fail).embed(
                ["a"], "query"
            )


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:11434",
        "ftp://x/",
        "http://",
        "file:///etc/passwd",
        "http://u:p@h/",
        "http://h:99999",
        "http://h/?k=1",
    ],
)
def test_invalid_urls_are_refused(url):
    with pytest.raises(ConfigFault, match=r"models\.embedder\.url"):
        RemoteEmbedder(EmbeddingEndpoint("openai", url, "m", 64))


def test_a_key_does_not_travel_in_the_clear():
    with pytest.raises(ConfigFault, match="https"):
        RemoteEmbedder(EmbeddingEndpoint("openai", "http://models.example/v1", "m", 64, key="s3cret"))
    RemoteEmbedder(EmbeddingEndpoint("openai", "http://models.example/v1", "m", 64))
    assert isinstance(
        RemoteEmbedder(EmbeddingEndpoint("openai", "https://models.example/v1", "m", 64, key="k")), RemoteEmbedder
    )


def test_a_line_break_in_a_key_does_not_become_a_header(server):
    with pytest.raises((ModelUnreachable, ConfigFault, http.client.HTTPException, ValueError)):
        at(server, key="a\r\nX-Evil: 1").embed(["a"], "query")
    assert server.seen == []


def test_tag_depends_on_model_and_document_prefix_only(server):
    assert at(server, query_prefix="q").tag == at(server).tag == at(server, url="http://127.0.0.1:1").tag
    assert at(server, document_prefix="d").tag != at(server).tag != at(server, "ollama").tag
