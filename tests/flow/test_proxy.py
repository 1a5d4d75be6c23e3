"""The proxy over real sockets: bytes that pass, bytes that are added, and everything that goes wrong."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import shutil
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytest.importorskip("httpcore2")

import perdure
from perdure.capture import events, failures, policy
from perdure.config import Config, ProxyConfig, ServerConfig
from perdure.errors import ConfigFault, HomeFault
from perdure.surfaces.proxy import server
from perdure.surfaces.proxy.compression import compress, decompress
from perdure.surfaces.proxy.server import ProxyServer, read_proxy_address
from perdure.surfaces.proxy.store import BlockStore, StoredBlock
from perdure.types import Filters
from rig import model_server
from rig.clients import kept_prefix
from rig.resident import ScriptedResident
from rig.tap import remove_added
from rig.upstream import Reply, Sent, Upstream
from rig.waiting import wait_for

DATA = Path(__file__).parents[1] / "data" / "proxy"
PATHS = {"messages": "/v1/messages", "chat": "/v1/chat/completions", "responses": "/v1/responses"}
SSE = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "anthropic-ratelimit-requests-remaining": "9",
    "Request-Id": "r1",
}
BLOCK = "[perdure-recall 0000000000000000 begins]\nMARK-{n}\n[perdure-recall 0000000000000000 ends]"
ONE = b'{"model":"m","messages":[{"role":"user","content":"Which port?"}]}'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home/config.toml").write_text('user = "tester"\n')
    return tmp_path / "home"


@pytest.fixture
def no_hooks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No client of the person who runs the tests counts."""
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def proxy(home: Path, no_hooks: None) -> Iterator[Callable[..., ProxyServer]]:
    """Start a proxy before this upstream; `base` is where clients reach it."""
    started: list[ProxyServer] = []

    def start(upstream: str, **settings: object) -> ProxyServer:
        table = {"anthropic": upstream, "openai": upstream}
        config = Config(user="tester", proxy=ProxyConfig(**{"limit_ms": 5000, "upstreams": table, **settings}))
        started.append(ProxyServer(home, config, listen="127.0.0.1:0"))
        started[-1].base = started[-1].start().base_url
        return started[-1]

    yield start
    for each in started:
        each.stop()


def call(base: str, path: str = "/v1/messages", body: bytes = ONE, *, method: str = "POST", **headers: str):
    """(status, headers, body) of one request, as it came."""
    parts = urlsplit(base)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)
    try:
        connection.request(method, parts.path + path, body, {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()
    finally:
        connection.close()


def reply_like_a_model(sent: Sent) -> Reply:
    body = json.loads(sent.body)
    make = {"/v1/messages": model_server.messages, "/v1/responses": model_server.responses}.get(
        sent.path.partition("?")[0], model_server.chat
    )
    whole, events = make(body, model_server.Answer("It is 9090."))
    return Reply(events, headers=SSE) if body.get("stream") else Reply([json.dumps(whole).encode()])


# what passes --------------------------------------------------------------------------------------------------


def test_a_stream_passes_byte_for_byte(proxy, home) -> None:
    odd = b'event: x\r\ndata: {"type":"thinking","signature":"\xc3\xa9\\u00e9"}\n\n: a comment\n\ndata: [DONE]\n\n'
    chunks = [odd[:n] for n in (7, 30)] + [odd, b"\x00\xff not utf-8", odd * 100]
    with Upstream(lambda _: Reply(chunks, headers=SSE)) as upstream, ScriptedResident(home, BLOCK):
        status, headers, body = call(proxy(upstream.url).base)
    assert (status, body) == (200, b"".join(chunks))
    assert {name.lower(): value for name, value in headers if name.lower() != "transfer-encoding"} == {
        name.lower(): value for name, value in SSE.items()
    }


@pytest.mark.parametrize("status", [400, 401, 429, 500, 529])
def test_errors_and_rate_limits_pass(status, proxy, home) -> None:
    reply = Reply(
        [b'{"type":"error"}'], status, {"Retry-After": "7", "Content-Type": "application/json"}, has_length=True
    )
    with Upstream(lambda _: reply) as upstream, ScriptedResident(home, BLOCK):
        found = call(proxy(upstream.url).base)
    assert found[0] == status and found[2] == b'{"type":"error"}' and ("retry-after", "7") in found[1]


def test_headers_and_query_pass_and_the_key_stays_nowhere(proxy, home) -> None:
    key = "sk-ant-a-secret-key"
    with Upstream(reply_like_a_model) as upstream, ScriptedResident(home, BLOCK):
        running = proxy(upstream.url)
        more = {"X-Api-Key": key, "anthropic-beta": "a,b", "anthropic-version": "2023-06-01", "Accept-Encoding": "br"}
        call(running.base, "/v1/messages?beta=true", Authorization=f"Bearer {key}", **more)
        wait_for(lambda: running.counts.get("captured"))
    (sent,) = upstream.sent
    assert sent.path == "/v1/messages?beta=true" and sent.header("host") == upstream.url.removeprefix("http://")
    assert all(sent.header(name) == value for name, value in more.items())
    assert int(sent.header("content-length") or 0) == len(sent.body) and not sent.header("connection")
    running.stop()
    for path in home.rglob("*"):
        assert not path.is_file() or key.encode() not in path.read_bytes(), path


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("GET", "/v1/models", b""), ("POST", "/v1/embeddings", b'{"input":"x"}'),
     ("DELETE", "/v1/files/f%2F1?a=b%20c", b""), ("POST", "/v1/messages/batches", ONE),
     ("POST", "/v1/responses/compact", b'{"input":"x"}')],
)  # fmt: skip
def test_everything_else_passes(method, path, body, proxy, home) -> None:
    with Upstream() as upstream, ScriptedResident(home, BLOCK) as resident:
        assert call(proxy(upstream.url).base, path, body, method=method)[::2] == (200, b"{}")
    (sent,) = upstream.sent
    assert (sent.method, sent.path, sent.body) == (method, path, body) and not resident.asked


def test_a_long_upload_passes_in_pieces(proxy, home) -> None:
    with Upstream() as upstream:
        parts = urlsplit(proxy(upstream.url).base)
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)
        connection.request("POST", f"{parts.path}/v1/files", iter([b"a" * 70_000] * 5), encode_chunked=True,
                           headers={"Transfer-Encoding": "chunked"})  # fmt: skip
        assert connection.getresponse().status == 200
        connection.close()
    assert upstream.sent[0].body == b"a" * 350_000


def test_a_message_without_end_is_not_kept_in_memory(proxy, home) -> None:
    """What is too long to be edited goes on while it comes."""
    megabyte = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    with socket.create_server(("127.0.0.1", 0)) as upstream, ThreadPoolExecutor(1) as thread:
        parts = urlsplit(proxy(f"http://127.0.0.1:{upstream.getsockname()[1]}").base)
        head = f"POST {parts.path}/v1/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        with socket.create_connection((parts.hostname, parts.port)) as client:
            thread.submit(client.sendall, head + megabyte * 65)
            upstream.settimeout(10)
            with upstream.accept()[0] as received:
                n_bytes = 0
                while n_bytes < 64 * 0x100000:
                    n_bytes += len(received.recv(1 << 20))


# recall, in its place -----------------------------------------------------------------------------------------


def read_recording(client: str) -> list[dict]:
    return [json.loads(line) for line in (DATA / f"{client}.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("client", ["claude-code", "codex", "opencode"])
def test_recorded_conversations_change_only_by_blocks(client, proxy, home) -> None:
    """Without the blocks, the provider gets the bytes that the client sent."""
    recorded = read_recording(client)
    with Upstream(reply_like_a_model) as upstream, ScriptedResident(home, BLOCK) as resident:
        base = proxy(upstream.url).base
        for request in recorded:
            raw = json.dumps(request["body"], ensure_ascii=False, separators=(",", ":")).encode()
            call(base, PATHS[request["api"]], raw, **request["headers"])
            assert remove_added(upstream.sent[-1].body, raw) == raw
    prompts = [asked["event"]["prompt"] for asked in resident.asked if asked["event"]["kind"] == "prompt"]
    assert [text.partition("\n")[0] for text in prompts if not text.startswith("Look around")] == {
        "claude-code": ["What was the port?", "Two.", "Three."],
        "codex": ["What was the port?", "Two."],
        "opencode": ["What was the port?", "Two."],
    }[client]
    assert all(asked["event"]["cwd"] == "/w/project" for asked in resident.asked)
    n_blocks = [request.body.count(b"MARK-") for request in upstream.sent]
    assert n_blocks == {
        "claude-code": [1, 1, 2, 0, 0, 2, 2, 1, 2], "codex": [1, 1, 2], "opencode": [0, 1, 1, 2],
    }[client]  # fmt: skip


@pytest.mark.parametrize("api", PATHS)
def test_the_prefix_stays_over_20_turns_and_a_restart(api, proxy, home) -> None:
    list_name, answer_type = ("input", "output_text") if api == "responses" else ("messages", "text")
    history: list[dict] = []
    with Upstream(reply_like_a_model) as upstream, ScriptedResident(home, BLOCK):
        running = proxy(upstream.url)
        for n in range(20):
            if n == 10:
                running.stop()
                running = proxy(upstream.url)
            history.append({"role": "user", "content": f"Question {n}"})
            body = json.dumps({"model": "m", list_name: history}).encode()
            assert call(running.base, PATHS[api], body)[0] == 200
            history.append({"role": "assistant", "content": [{"type": answer_type, "text": f"Answer {n}"}]})
    bodies = [json.loads(sent.body) for sent in upstream.sent]
    assert len(bodies) == 20
    for n, (before, after) in enumerate(itertools.pairwise(bodies)):
        n_kept, n_before = kept_prefix(before, after)
        assert n_kept == n_before, f"turn {n + 1}"
        end = json.dumps(before[list_name]).rindex("]")  # the bytes of all earlier messages, too
        assert json.dumps(after[list_name])[:end] == json.dumps(before[list_name])[:end]
    assert [body.count(b"MARK-") for body in (sent.body for sent in upstream.sent)] == list(range(1, 21))


def test_tokens_are_counted_with_the_block(proxy, home) -> None:
    with Upstream(reply_like_a_model) as upstream, ScriptedResident(home, BLOCK) as resident:
        base = proxy(upstream.url).base
        call(base)
        upstream.reply = lambda _: Reply([b'{"input_tokens":5}'])
        assert call(base, "/v1/messages/count_tokens")[2] == b'{"input_tokens":5}'
    assert upstream.sent[0].body == upstream.sent[1].body and len(resident.asked) == 1


# both sides are captured --------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", PATHS)
def test_both_sides_become_one_run(api, stream, proxy, home) -> None:
    content = {"input" if api == "responses" else "messages": [{"role": "user", "content": "Which port has tidepool?"}]}
    with Upstream(reply_like_a_model) as upstream, ScriptedResident(home, BLOCK):
        running = proxy(upstream.url)
        for _ in range(2):  # the same request again adds nothing but its own answer
            call(
                running.base,
                PATHS[api],
                json.dumps({"stream": stream, **content}).encode(),
                **{"Session-Id": "session-one"},
            )
        wait_for(lambda: running.counts.get("captured"))
        running.stop()
    with perdure.open(home, user="tester") as opened:
        opened.captures.drain()
        hits = opened.search("tidepool port").hits
        assert [hit.role for hit in hits] == ["user"] and "MARK-" not in hits[0].text
        (found,) = opened.search("9090").hits
        assert found.role == "assistant" and found.run_id
        assert opened.search("9090", filters=Filters(tags=("proxy",))).hits


def test_nothing_is_captured_while_paused(proxy, home) -> None:
    policy.pause_capture(home, policy.CapturePause(datetime.now(UTC), None))
    with Upstream(reply_like_a_model) as upstream, ScriptedResident(home, BLOCK):
        running = proxy(upstream.url)
        call(running.base)
        running.stop()
    assert not list((home / "outbox").glob("*.delta")) and not running.counts.get("captured")


def test_forgetting_deletes_the_blocks(proxy, home) -> None:
    with Upstream(reply_like_a_model) as upstream, ScriptedResident(home, BLOCK):
        running = proxy(upstream.url)
        call(running.base)
        wait_for(lambda: running.counts.get("captured"))
        assert b"MARK-1" in b"".join(path.read_bytes() for path in (home / "cache").glob("proxy.db*"))
        with perdure.open(home, user="tester") as opened:
            opened.captures.drain()
            (hit,) = opened.search("which port").hits
            opened.forgetting.apply(opened.forgetting.plan([hit.turn_id]))
        assert not list((home / "cache").glob("proxy.db*"))
        call(running.base, body=ONE.replace(b"Which", b"What"))  # the running proxy begins a new file
    assert b"MARK-1" not in b"".join(path.read_bytes() for path in (home / "cache").glob("proxy.db*"))


def test_forgetting_during_a_recall_leaves_no_block(proxy, home) -> None:
    """The resident home has found the block already; it is forgotten before the proxy has it."""
    with Upstream(reply_like_a_model) as upstream, ScriptedResident(home, BLOCK) as resident:
        running = proxy(upstream.url)
        call(running.base)
        wait_for(lambda: running.counts.get("captured"))
        with perdure.open(home, user="tester") as opened:
            opened.captures.drain()
            (hit,) = opened.search("which port").hits
            plan = opened.forgetting.plan([hit.turn_id])
            resident.delay_s = 2
            asking = threading.Thread(
                target=call, args=(running.base,), kwargs={"body": ONE.replace(b"Which", b"What")}
            )
            asking.start()
            wait_for(lambda: len(resident.asked) == 2)
            opened.forgetting.apply(plan)
            asking.join()
    assert running.counts["forgotten"] == 1 and b"MARK-" not in upstream.sent[-1].body
    assert b"MARK-" not in b"".join(path.read_bytes() for path in (home / "cache").glob("proxy.db*"))


def test_no_recall_during_a_forgetting_outlives_it(home) -> None:
    """As long as a search can still find the words, a block of them may be stored; afterwards there is none."""
    with perdure.open(home, user="tester") as opened:
        rows = [{"role": "user", "content": f"The harbour gate {n} has the code marigold{n}."} for n in range(300)]
        opened.capture_messages(rows, session="harbour")
        (hit,) = opened.search("marigold7").hits
        plan, store, stop = opened.forgetting.plan([hit.turn_id]), BlockStore(home), threading.Event()

        def recall() -> None:
            with opened.clone_for_thread(read_only=True) as reader:
                for n in itertools.count():
                    generation = store.read_generation()
                    found = "".join(row.text for row in reader.search("marigold7").hits)
                    with contextlib.suppress(HomeFault):  # its file was deleted in this moment
                        store.write_block(f"k{n}", StoredBlock("s", found), generation=generation, now_s=time.time())
                    if stop.is_set():
                        return

        recalling = threading.Thread(target=recall)
        recalling.start()
        wait_for(lambda: list((home / "cache").glob("proxy.db*")))
        opened.forgetting.apply(plan)
        stop.set()
        recalling.join()
        store.close()
    assert b"marigold7" not in b"".join(path.read_bytes() for path in (home / "cache").glob("proxy.db*"))


@pytest.mark.parametrize("headers", [{"Session-Id": "session-one"}, {}])
def test_a_history_with_a_forgotten_message_brings_nothing_back(headers, proxy, home) -> None:
    """The client still has it, and sends it with each request, also long after it was said."""
    history = [
        {"role": "user", "content": "The gate has the code marigold."},
        {"role": "assistant", "content": "It is 9090."},
        {"role": "user", "content": "And who has the key of the lighthouse?"},
    ]
    with perdure.open(home, user="tester") as opened:
        opened.capture_messages([{**history[0], "timestamp": "2026-11-01T09:00:00+00:00"}], session="session-one")
        (hit,) = opened.search("marigold").hits
        opened.forgetting.apply(opened.forgetting.plan([hit.turn_id]))
    with Upstream(reply_like_a_model) as upstream, ScriptedResident(home, BLOCK):
        running = proxy(upstream.url)
        call(running.base, body=json.dumps({"messages": history}).encode(), **headers)
        running.stop()
    with perdure.open(home, user="tester") as opened:
        opened.captures.drain()
        assert opened.search("lighthouse").hits and not opened.search("marigold").hits


def test_a_forgotten_line_of_the_floor_leaves_the_blocks(proxy, home) -> None:
    with Upstream(reply_like_a_model) as upstream, ScriptedResident(home, BLOCK), perdure.open(home) as opened:
        opened.floor.write("profile", "Mira.\nHas the code marigold.")
        running = proxy(upstream.url)
        call(running.base)
        assert list((home / "cache").glob("proxy.db*"))
        opened.floor.forget_line("profile", "Has the code marigold.")
        assert not list((home / "cache").glob("proxy.db*"))


# what goes wrong ----------------------------------------------------------------------------------------------


def test_a_body_that_is_no_json_passes(proxy, home) -> None:
    with Upstream(lambda _: Reply([b"bad"], 400)) as upstream, ScriptedResident(home, BLOCK):
        assert call(proxy(upstream.url).base, body=b"{not json \xff")[::2] == (400, b"bad")
    assert upstream.sent[0].body == b"{not json \xff"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_a_compressed_body_gets_its_block_and_stays_compressed(encoding, proxy, home) -> None:
    with Upstream(reply_like_a_model) as upstream, ScriptedResident(home, BLOCK):
        base = proxy(upstream.url).base
        upstream.reply = lambda _: Reply()
        call(base, body=compress(ONE, encoding), **{"Content-Encoding": encoding})
        call(base)
    compressed, plain = upstream.sent
    assert compressed.header("content-encoding") == encoding and not plain.header("content-encoding")
    assert int(compressed.header("content-length")) == len(compressed.body)
    assert decompress(compressed.body, encoding).replace(b"MARK-1", b"MARK-2") == plain.body != ONE


@pytest.mark.parametrize(("encoding", "body"), [("zstd", b"\x28\xb5\x2f\xfd"), ("br", b"\x0b\x02\x80"),
                                               ("gzip", ONE), ("gzip, zstd", compress(ONE, "zstd"))])  # fmt: skip
def test_a_compressed_body_that_cannot_be_read_passes(encoding, body, proxy, home) -> None:
    with Upstream() as upstream, ScriptedResident(home, BLOCK) as resident:
        call(proxy(upstream.url).base, body=body, **{"Content-Encoding": encoding})
    assert upstream.sent[0].body == body and upstream.sent[0].header("content-encoding") == encoding
    assert not resident.asked


def test_a_websocket_is_refused_so_that_its_client_goes_on_over_http(proxy, home) -> None:
    more = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "eA=="}
    with Upstream() as upstream:
        status, _, body = call(proxy(upstream.url).base, "/v1/responses", b"", method="GET", **more)
    assert status == 426 and "use HTTP" in json.loads(body)["error"]["message"] and not upstream.sent


def test_without_a_resident_home_the_request_goes_on(proxy, home) -> None:
    with Upstream(reply_like_a_model) as upstream:
        running = proxy(upstream.url)
        assert call(running.base)[0] == 200
    assert upstream.sent[0].body == ONE
    assert running.counts["failed: no-resident-home"] == 1 and "proxy" in failures.list_open_incidents(home)


def test_a_slow_resident_home_is_not_waited_for(proxy, home) -> None:
    with Upstream(reply_like_a_model) as upstream, ScriptedResident(home, BLOCK, delay_s=3):
        running = proxy(upstream.url, limit_ms=100)
        began_s = time.monotonic()
        assert call(running.base)[0] == 200
        assert time.monotonic() - began_s < 2
    assert upstream.sent[0].body == ONE
    wait_for(lambda: running.counts.get("failed: late"))
    assert failures.read_failures(home)[-1]["stage"] == "proxy"


def test_a_late_recall_leaves_the_old_blocks(proxy, home) -> None:
    said = [
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": "A"},
        {"role": "user", "content": "Two"},
    ]
    with Upstream(reply_like_a_model) as upstream, ScriptedResident(home, BLOCK) as resident:
        running = proxy(upstream.url, limit_ms=1000)
        call(running.base, body=json.dumps({"messages": said[:1]}).encode())
        resident.delay_s = 3
        call(running.base, body=json.dumps({"messages": said}).encode())
    first, second = (json.loads(sent.body)["messages"] for sent in upstream.sent)
    assert second[0] == first[0] and second[1:] == said[1:] and running.counts["failed: late"] == 1


def test_an_upstream_that_hangs_is_closed_with_its_client(proxy, home) -> None:
    first = b'data: {"type":"ping"}\n\n'
    with Upstream(lambda _: Reply([first], headers=SSE, hangs=True)) as upstream, ScriptedResident(home, BLOCK):
        parts = urlsplit(proxy(upstream.url).base)
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=5)
        connection.request("POST", f"{parts.path}/v1/messages", ONE)
        answer = connection.getresponse()
        assert answer.read1(100) == first
        assert not upstream.ended
        answer.close()
        connection.close()
        wait_for(lambda: upstream.ended)
    assert upstream.ended == [True]


def test_a_client_that_leaves_before_the_answer_closes_the_upstream(proxy, home) -> None:
    with Upstream(lambda _: Reply([], headers=SSE, hangs=True)) as upstream, ScriptedResident(home, BLOCK):
        parts = urlsplit(proxy(upstream.url).base)
        with socket.create_connection((parts.hostname, parts.port)) as connection:
            head = f"POST {parts.path}/v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: {len(ONE)}\r\n\r\n"
            connection.sendall(head.encode() + ONE)
            wait_for(lambda: upstream.sent)
        wait_for(lambda: upstream.ended)
    assert upstream.ended == [True]


def test_a_stream_that_breaks_off_breaks_off(proxy, home) -> None:
    """Its client must not take a part for the whole; what came is captured."""
    events = model_server.messages({"stream": True}, model_server.Answer("It is 9090, and"))[1][:3]
    with Upstream(lambda _: Reply(events, headers=SSE, breaks=True)) as upstream, ScriptedResident(home, BLOCK):
        running = proxy(upstream.url)
        with pytest.raises(http.client.IncompleteRead) as broken:
            call(running.base)
        assert broken.value.partial == b"".join(events)
        wait_for(lambda: running.counts.get("captured"))
    assert running.counts["captured"] == 2


def test_an_upstream_that_is_not_there_gives_502(proxy, home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    status, _, body = call(proxy(url).base)
    error = json.loads(body)
    assert status == 502 and error["type"] == "error" and "cannot be reached" in error["error"]["message"]


def test_a_key_of_another_provider_stays_here(proxy, home) -> None:
    running = proxy("https://api.openai.com", upstreams={})
    status, _, body = call(running.base, "/v1/chat/completions", Authorization="Bearer sk-ant-api03-mine")
    assert status == 401 and "another provider" in json.loads(body)["error"]["message"] and b"mine" not in body


@pytest.mark.parametrize("path", ["/v1/messages", "/wrong-secret/v1/messages", "/healthz", "//v1/messages"])
def test_without_the_secret_nothing_is_answered(path, proxy, home) -> None:
    with Upstream() as upstream, ScriptedResident(home, BLOCK) as resident:
        base = proxy(upstream.url).base.rpartition("/")[0]
        status, _, body = call(base, path)
    assert status == 403 and "proxy --show" in json.loads(body)["error"]["message"]
    assert not upstream.sent and not resident.asked


def test_a_request_names_no_other_server(proxy, home) -> None:
    """Neither by its target, nor by its Host, nor by its path: it goes where the settings say."""
    with Upstream() as upstream, Upstream() as other:
        parts = urlsplit(proxy(upstream.url).base)
        host = other.url.removeprefix("http://")
        for target in (f"{parts.path}/v1/messages", f"{parts.path}/{host}/v1/models", f"{parts.path}//{host}/v1/x",
                       f"http://{host}{parts.path}/v1/messages", f"{parts.path}/@{host}/v1/x"):  # fmt: skip
            with contextlib.closing(http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)) as connection:
                connection.request("POST", target, ONE, {"Host": host})
                assert connection.getresponse().status in (200, 403)
        assert len(upstream.sent) == 4 and not other.sent
        assert {sent.header("host") for sent in upstream.sent} == {upstream.url.removeprefix("http://")}


def test_health_counts_outcomes(proxy, home) -> None:
    with Upstream(reply_like_a_model) as upstream, ScriptedResident(home, BLOCK):
        running = proxy(upstream.url)
        call(running.base)
        state = json.loads(call(running.base, "/healthz", b"", method="GET")[2])
    assert state["status"] == "ok" and state["counts"]["recalled"] == 1


def test_the_resident_home_is_told_how_requests_went(home, no_hooks) -> None:
    with Upstream(reply_like_a_model) as upstream, ScriptedResident(home, BLOCK) as resident:
        proxy_settings = ProxyConfig(limit_ms=500, upstreams={"anthropic": upstream.url})
        running = ProxyServer(home, Config(user="tester", proxy=proxy_settings), listen="127.0.0.1:0", report_s=0.05)
        base = running.start().base_url
        call(base)
        call(base, "/v1/models", b"", method="GET", **{"anthropic-version": "x"})
        resident.delay_s = 3
        call(base, body=ONE.replace(b"Which", b"What"))
        resident.delay_s, resident.raw = 0, b"nonsense\n"
        call(base, body=ONE.replace(b"Which", b"Whose"))
        wait_for(lambda: resident.told[-1].get("report", {}).get("n_failed_open") == 2)
        running.stop()
    reports = [request["report"] for request in resident.told if request["op"] == "proxy"]
    numbers = {name: reports[-1][name] for name in ("n_requests", "n_edited", "n_failed_open", "n_slow")}
    assert numbers == {"n_requests": 4, "n_edited": 1, "n_failed_open": 2, "n_slow": 1}
    assert all(base.startswith(report["address"]) and report["pid"] == os.getpid() for report in reports)
    assert [report.get("has_ended", False) for report in reports] == [False] * (len(reports) - 1) + [True]
    assert base.rpartition("/")[2] not in json.dumps(reports)  # the secret stays here


# the listener -------------------------------------------------------------------------------------------------


def test_the_secret_is_kept_and_private(home) -> None:
    first, second = (read_proxy_address(home, "") for _ in range(2))
    assert first == second and first.base_url.startswith("http://127.0.0.1:8788/")
    assert stat.S_IMODE((home / "run/proxy.json").stat().st_mode) == 0o600


@pytest.mark.parametrize("address", ["0.0.0.0:8788", "10.0.0.7:1", "8788"])
def test_another_machine_needs_tls(address, home) -> None:
    with pytest.raises(ConfigFault, match=r"proxy\.listen"):
        ProxyServer(home, Config(user="tester"), listen=address)


def test_it_serves_other_machines_over_tls_alone(home, no_hooks, tmp_path) -> None:
    """With a certificate of its own; a client verifies it, and nothing is answered without TLS."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    files = ["-keyout", str(key), "-out", str(certificate), "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*words.split(), *files], check=True, capture_output=True)
    with Upstream(reply_like_a_model) as upstream, ScriptedResident(home, BLOCK):
        config = Config(
            user="tester",
            server=ServerConfig(tls_certificate=str(certificate), tls_key=str(key)),
            proxy=ProxyConfig(limit_ms=5000, upstreams={"anthropic": upstream.url}),
        )
        running = ProxyServer(home, config, listen="0.0.0.0:0")
        address = urlsplit(running.start().base_url)
        try:
            assert address.scheme == "https"

            def ask(connection: http.client.HTTPConnection) -> tuple[int, bytes]:
                with contextlib.closing(connection):
                    connection.request("POST", f"{address.path}/v1/messages", ONE)
                    answer = connection.getresponse()
                    return answer.status, answer.read()

            trusting = ssl.create_default_context(cafile=str(certificate))
            status, body = ask(http.client.HTTPSConnection("localhost", address.port, timeout=20, context=trusting))
            assert status == 200 and json.loads(body)["content"][0]["text"] == "It is 9090."
            for refused in (
                http.client.HTTPSConnection("localhost", address.port, timeout=20),  # it trusts no such certificate
                http.client.HTTPSConnection("127.0.0.1", address.port, timeout=20, context=trusting),  # another name
                http.client.HTTPConnection("localhost", address.port, timeout=20),
            ):
                with pytest.raises((ssl.SSLError, http.client.HTTPException, ConnectionError)):
                    ask(refused)
        finally:
            running.stop()
    assert len(upstream.sent) == 1 and b"MARK-1" in upstream.sent[0].body


def test_a_taken_address_is_named(home, no_hooks) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        running = ProxyServer(home, Config(user="tester"), listen=address)
        with pytest.raises(ConfigFault, match="the address is taken"):
            running.start()
        running.stop()


def test_a_client_with_hooks_is_found_by_its_settings(home, no_hooks, tmp_path) -> None:
    finder = server.HookFinder()
    assert not finder.has_hooks("claude-code") and not finder.has_hooks("anthropic") and not finder.has_hooks("")
    from perdure.clients import setup

    path = setup.find_client_settings("claude-code", tmp_path, lambda _: None)
    setup.apply_change(setup.plan_install("claude-code", path, setup.make_program(home)), keep_copy=False)
    assert server.HookFinder().has_hooks("claude-code") and not finder.has_hooks("claude-code")


# the command --------------------------------------------------------------------------------------------------


def run(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "perdure.surfaces.cli", *words, "--home", str(home)]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)


def test_show_prints_what_a_client_needs(home) -> None:
    done = run(home, "proxy", "--show")
    base = read_proxy_address(home, "").base_url
    assert done.stdout.splitlines() == [f"ANTHROPIC_BASE_URL={base}", f"OPENAI_BASE_URL={base}/v1"]
    result = json.loads(run(home, "proxy", "--show", "--json").stdout)["result"]
    assert result == {"anthropic": base, "openai": f"{base}/v1"}


def test_the_command_refuses_plain_http_for_other_machines(home) -> None:
    done = run(home, "proxy", "--listen", "0.0.0.0:0")
    assert done.returncode == 3 and "proxy.listen" in done.stderr and "tls" in done.stderr.lower()


def test_a_thin_machine_has_no_proxy(home) -> None:
    (home / "config.toml").write_text('[remote]\nurl = "https://home.example:8443"\n')
    done = run(home, "proxy", "--show")
    assert done.returncode == 2 and "no home of its own" in done.stderr


def test_a_wrong_setting_is_named(home) -> None:
    (home / "config.toml").write_text('[proxy]\nlisten = "127.0.0.1:0"\n[proxy.upstreams]\nmine = "no address"\n')
    done = run(home, "serve")
    assert done.returncode == 3 and "proxy.upstreams.mine" in done.stderr


def test_a_served_home_listens_where_the_setting_says_and_a_second_proxy_beside_it(home, no_hooks) -> None:
    """Both ask the same resident home, which recalls what was said through either."""
    with Upstream(reply_like_a_model) as upstream:
        table = f'anthropic = "{upstream.url}"'
        settings = f'user = "tester"\n[proxy]\nlisten = "127.0.0.1:0"\nlimit_ms = 5000\n[proxy.upstreams]\n{table}\n'
        (home / "config.toml").write_text(settings)
        assert run(home, "serve", "--detach").returncode == 0
        beside = None
        try:
            base = read_proxy_address(home, "").base_url
            told = {"role": "user", "content": "From now on the staging server of tidepool listens on port 9417."}
            assert call(base, body=json.dumps({"messages": [told]}).encode())[0] == 200
            line = [sys.executable, "-m", "perdure.surfaces.cli", "proxy", "--home", str(home)]
            beside = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
            second = beside.stdout.readline().strip().partition("=")[2]
            assert second != base
            wait_for(lambda: list((home / "outbox").glob("*.delta")) or (home / "archive/runs").is_dir())
            asked = {"role": "user", "content": "Which port does the staging server of tidepool listen on?"}
            assert call(second, body=json.dumps({"messages": [asked]}).encode())[0] == 200
            wait_for(lambda: len(events.ask_resident(home, {"op": "health"}, timeout_s=5)["proxies"]) == 2)
            checks = json.loads(run(home, "doctor", "--json").stdout)["result"]["checks"]
            lines = [check["found"] for check in checks if check["name"] == "proxy"]
            assert len(lines) == 2 and all("request" in line and "edited" in line for line in lines)
            assert "proxy  http://127.0.0.1:" in run(home, "status").stdout
        finally:
            if beside is not None:
                beside.terminate()
                beside.wait(20)
                beside.stdout.close()
                wait_for(lambda: len(events.ask_resident(home, {"op": "health"}, timeout_s=5)["proxies"]) == 1)
            run(home, "serve", "--stop")
    assert b"9417" in upstream.sent[-1].body and b"[perdure-recall " in upstream.sent[-1].body


def test_the_floor_stands_once_in_each_conversation(home, no_hooks) -> None:
    """In its first block, which stays there; so the beginning of each request is that of the one before."""
    with perdure.open(home, user="tester") as opened:
        opened.floor.write("profile", "Mira, harbour engineer.")
    with Upstream(reply_like_a_model) as upstream:
        settings = 'user = "tester"\n[proxy]\nlisten = "127.0.0.1:0"\nlimit_ms = 5000\n[proxy.upstreams]\n'
        (home / "config.toml").write_text(f'{settings}anthropic = "{upstream.url}"\n')
        assert run(home, "serve", "--detach").returncode == 0
        try:
            base = read_proxy_address(home, "").base_url
            history: list[dict] = []
            for text in ("Which port has the gate?", "And the lighthouse?", "And the pier?"):
                history.append({"role": "user", "content": text})
                call(base, body=json.dumps({"messages": history}).encode())
                history.append({"role": "assistant", "content": "It is 9090."})
            call(base, body=json.dumps({"messages": [{"role": "user", "content": "Good morning, all."}]}).encode())
        finally:
            run(home, "serve", "--stop")
    bodies = [json.loads(sent.body) for sent in upstream.sent]
    assert [json.dumps(body).count("harbour engineer") for body in bodies] == [1, 1, 1, 1]
    assert all("harbour engineer" in json.dumps(body["messages"][0]) for body in bodies)
    for before, after in itertools.pairwise(bodies[:3]):
        assert kept_prefix(before, after)[0] == kept_prefix(before, after)[1]


def test_200_streams_at_once_come_whole(proxy, home) -> None:
    event = b'event: ping\ndata: {"type":"ping"}\n\n'
    whole = reply_like_a_model(Sent("POST", "/v1/messages", [], b'{"stream":true}')).chunks
    with (
        Upstream(lambda _: Reply([*whole[:-1], *[event] * 20, whole[-1]], headers=SSE, pause_s=0.05)) as upstream,
        ScriptedResident(home, BLOCK),
        ThreadPoolExecutor(200) as pool,
    ):
        base = proxy(upstream.url).base
        answers = list(pool.map(lambda n: call(base, body=ONE.replace(b"port", b"port %d" % n)), range(200)))
        assert all(status == 200 and body.count(event) == 20 for status, _, body in answers)
        assert all(body.endswith(whole[-1]) for _, _, body in answers)
