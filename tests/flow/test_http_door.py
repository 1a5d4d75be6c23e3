"""The door of the API: who is let in, what is refused, and what the same request does twice."""

import contextlib
import errno
import http.client
import json
import socket
import tempfile
import time
from random import Random
from urllib.parse import quote

import pytest

pytest.importorskip("uvicorn")

from perdure.surfaces.http import captures

# who asks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent", ["", "Bearer wrong", "Bearer", "Basic ada-laptop", "ada-laptop", "Bearer " + "x" * 9999]
)
def test_request_without_a_credential_is_refused(served, sent):
    at = served()
    status, said, headers = at.nobody("GET", "/api/me", **({"Authorization": sent} if sent else {}))
    assert (status, said["error"]["code"]) == (401, "unauthorized") and headers["www-authenticate"].startswith("Bearer")
    assert at.ada_laptop("GET", "/api/me")[1]["user"] == "ada"


@pytest.mark.parametrize("path", ["/api/me", "/api/alive", "/openapi.json", "/nothing"])
@pytest.mark.parametrize("host", ["evil.example", "EVIL.example:80", "127.0.0.1.evil.example", "", "sub.home.example"])
def test_request_for_another_host_is_refused(served, host, path):
    """As of a page whose own name was led to this address, even with the right secret."""
    at = served('[server]\nnames = ["home.example"]')
    status, said, _ = at.ada_laptop("GET", path, Host=host)
    assert (status, said["error"]["code"]) == (421, "wrong-host") and "server.names" in said["error"]["message"]


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:1",
        "192.168.1.7:8787",
        "[::1]:80",
        "Home.Example.",
        "a.team.example",
        socket.gethostname(),
    ],
)
def test_own_names_and_addresses_are_served(served, host):
    at = served('[server]\nnames = ["home.example", "*.team.example"]')
    assert at.ada_laptop("GET", "/api/me", Host=host)[0] == 200


def test_a_revoked_credential_ends_at_the_next_request(served, lines):
    at = served()
    head = {"Authorization": "Bearer ada-tower"}
    with contextlib.closing(http.client.HTTPConnection(at.ada_laptop.address)) as line:
        line.request("GET", "/api/me", headers=head)
        answer = line.getresponse()
        assert answer.status == 200 and answer.read()
        del at.authority.secrets["ada-tower"]
        line.request("POST", "/api/runs?runtime=messages&session=s", lines, headers=head)  # on the same connection
        answer = line.getresponse()
        assert answer.status == 401 and answer.read()


def test_wrong_credentials_are_slowed_and_right_ones_are_not(served):
    at = served()
    at.nobody.secret = "wrong"
    said = [at.nobody("GET", "/api/me") for _ in range(12)]
    assert [status for status, _, _ in said] == [401] * 10 + [429] * 2
    assert int(said[-1][2]["retry-after"]) > 0
    assert at.ada_laptop("GET", "/api/me")[0] == 200


def test_machine_over_its_rate_limit_waits(served):
    at = served("[server]\nrequests_per_minute = 5\n")
    said = [at.ada_laptop("GET", "/api/me") for _ in range(7)]
    assert [status for status, _, _ in said] == [200] * 5 + [429] * 2 and int(said[-1][2]["retry-after"]) > 0
    assert at.ada_tower("GET", "/api/me")[0] == 200, "another machine of the same user has its own"


# a crowd --------------------------------------------------------------------------------------------------------


def connected(at, n):
    host, port = at.address.removeprefix("http://").split(":")
    return [socket.create_connection((host, int(port)), timeout=10) for _ in range(n)]


def test_idle_connections_block_nobody(served):
    """100 of them from one address, of which 64 may stand: the oldest are cut off, and who asks is answered."""
    at = served()
    crowd = connected(at, 100)
    try:
        assert at.ada_laptop("GET", "/api/me")[0] == 200
        assert crowd[0].recv(1) == b"", "cut off"
        assert len(at.served._server.server_state.connections) <= 65
        crowd[-1].sendall(b"GET /api/alive HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert crowd[-1].recv(12) == b"HTTP/1.1 200", "the newest stands"
    finally:
        for one in crowd:
            one.close()


def test_dead_listener_restarts_and_health_reports_silence(served):
    at = served()
    assert "http" in at.serving.health_state.proofs_s

    async def failing(_):
        raise OSError(24, "Too many open files")

    dead = at.served._server
    dead.on_tick = failing
    ends_s = time.monotonic() + 20
    while at.served._server is dead or not at.served._server.started:
        assert time.monotonic() < ends_s, "it did not begin again"
        time.sleep(0.05)
    assert at.ada_laptop("GET", "/api/me")[0] == 200, "at the same address"
    at.serving.health_state.proofs_s["http"] -= 100
    (problem,) = at.serving.report_health()["problems"]
    assert problem.startswith("the API does not answer for 1")


# hostile requests -----------------------------------------------------------------------------------------------

HOSTILE = [
    b"", b"garbage", b"{", b"[]", b"null", b"\xff\xfe\xfd", b'{"query": "\xff"}', b"[" * 100_000, b'{"query":' * 50_000,
    b'{"query": 5}', b'{"query": ""}', b'{"query": "   "}', b'{"query": "x", "limit": 0}',
    b'{"query": "x", "limit": 101}', b'{"query": "x", "limit": 1e99}', b'{"query": "x", "mode": "magic"}',
    b'{"query": "x", "filters": {"tags": "x"}}', b'{"query": "x", "filters": {"started_at": {"gte": "soon"}}}',
    b'{"query": "x", "cursor": "AAAA"}', b'{"query": "x", "filters": {"started_at": {"gte": "2026-01-01T00:00:00"}}}',
    b'{"query": "' + b"x" * 20_000 + b'"}',
]  # fmt: skip


@pytest.mark.parametrize("n_bytes", [3 << 20, (1 << 20) + 9000])
def test_full_disk_is_reported_for_large_and_small_bodies(served, lines, monkeypatch, n_bytes):
    """The first fails while the body comes, the second at its end."""
    at = served()
    query = "/api/runs?runtime=claude-code&session=s-1"

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as during:
        during.setattr(tempfile, "TemporaryFile", full)
        status, said, headers = at.ada_laptop("POST", query, lines + b" " * n_bytes + b"\n")
    assert (status, said["error"]["code"]) == (503, "disk-full") and headers["retry-after"]
    assert at.ada_laptop("POST", query, lines + b" " * n_bytes + b"\n")[0] == 202


def test_hostile_bodies_are_bad_requests(served):
    ada = served("[server]\nrequests_per_minute = 6000\n").ada_laptop
    for raw in HOSTILE:
        status, said, _ = ada("POST", "/api/runs/search", raw)
        assert status == 400 and said["error"]["code"] == "usage-error", raw[:80]
        assert "Traceback" not in json.dumps(said) and len(json.dumps(said)) < 2000
    for path in ("/api/recall", "/api/hook", "/api/context", "/api/memories", "/api/cards", "/api/grants"):
        for raw in (b"garbage", b"[" * 100_000, b"\xff", b"[1]"):
            assert ada("POST", path, raw)[0] == 400, (path, raw[:20])


ODD = ["\ud800", "\0", "a\0b", "\u202e", "x" * 400, "../../etc/passwd", "%00", "'; DROP TABLE run; --", "\n"]


def test_odd_text_in_any_field_causes_no_server_error(served, lines):
    ada = served("[server]\nrequests_per_minute = 6000\n").ada_laptop
    event = {"kind": "prompt", "session": "s"}
    ada("POST", "/api/runs?runtime=messages&session=first", lines)
    ends_s = time.monotonic() + 30
    while ada("GET", "/api/runs/forest")[0] == 503 and time.monotonic() < ends_s:  # there is an index to ask
        time.sleep(0.05)
    for odd in ODD:
        said = {"runtime": odd, "session": odd, "cwd": odd, "project": odd, "path": odd, "agent": odd, "tag": [odd]}
        raw = json.dumps({**said, "jsonl": lines.decode(), "parent_session": odd}).encode()
        for method, path, body in (
            ("POST", "/api/runs", raw), ("POST", "/api/runs/search", json.dumps({"query": odd}).encode()),
            ("POST", "/api/recall", json.dumps({"message": odd, "cwd": odd, "session": odd}).encode()),
            ("POST", "/api/memories", json.dumps({"text": f"The {odd} is here", "path": odd, "project": odd}).encode()),
            ("POST", "/api/cards", json.dumps({"text": odd, "project": odd}).encode()),
            ("POST", "/api/hook", json.dumps({"event": {**event, "client": odd, "prompt": odd}}).encode()),
            ("POST", "/api/context", json.dumps({"message": odd, "cwd": odd}).encode()),
            ("POST", "/api/grants", json.dumps({"grantee": odd, "scope": "project", "value": odd}).encode()),
            ("POST", "/api/machines", json.dumps({"name": odd}).encode()),
            ("GET", f"/api/runs/{quote(odd, errors='surrogatepass')}", None),
            ("GET", f"/api/resolve/{quote(odd, errors='surrogatepass')}", None),
            ("GET", f"/api/memories/{quote(odd, errors='surrogatepass')}", None),
            ("GET", f"/api/floor/{quote(odd, errors='surrogatepass')}", None),
            ("GET", f"/api/runs/forest?runtime={quote(odd, errors='surrogatepass')}", None),
            ("GET", f"/api/memories?prefix={quote(odd, errors='surrogatepass')}", None),
        ):  # fmt: skip
            status, answer, _ = ada(method, path, body, Content_Type="application/json")
            assert status < 500, (method, path, odd, answer)


def some(random, depth=0):
    """Some value of JSON."""
    leaf = [None, True, 0, -1, 2**63, 1e308, "", "x", "\ud800", *TIMES]
    kind = random.random()
    if depth > 3 or kind < 0.5:
        return random.choice(leaf)
    if kind < 0.7:
        return [some(random, depth + 1) for _ in range(random.randrange(4))]
    return {random.choice(NAMES): some(random, depth + 1) for _ in range(random.randrange(6))}


TIMES = (
    "2026-01-01T00:00:00Z", "2026-01-01T00:00:00", "9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00+14:00", "soon",
)  # fmt: skip
NAMES = (
    "query", "mode", "limit", "cursor", "filters", "tags", "started_at", "gte", "lte", "message", "cwd", "project",
    "session", "as_of", "limit_ms", "event", "kind", "client", "prompt", "window", "format", "text", "path", "trust",
    "grantee", "scope", "value", "until_at", "name", "user", "runtime", "jsonl", "from_offset", "generation", "tag",
)  # fmt: skip


def test_no_random_body_causes_a_server_error(served):
    """Random values in the shape of a body, some of its fields right: no 500, and nothing of this machine is told."""
    at = served("[server]\nrequests_per_minute = 60000\n")
    document = at.nobody("GET", "/api/openapi.json")[1]
    random = Random(8)
    for path, by in document["paths"].items():
        for method, said in by.items():
            if "requestBody" not in said or path == "/api/machines":
                continue
            shape = said["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
            fields = list(document["components"]["schemas"][shape]["properties"])
            for _ in range(60):
                right = {
                    "query": "x",
                    "message": "x",
                    "text": "some text",
                    "runtime": "m",
                    "session": "s",
                    "jsonl": "{}\n",
                }
                body = {name: value for name, value in right.items() if name in fields and random.random() < 0.8}
                body |= {random.choice(fields): some(random) for _ in range(random.randrange(3))}
                if "filters" in fields and random.random() < 0.5:
                    body["filters"] = {"started_at": {random.choice(["gte", "lte"]): random.choice(TIMES)}}
                if "as_of" in fields and random.random() < 0.5:
                    body["as_of"] = random.choice(TIMES)
                place = path.replace("{page}", "notes.md").replace("{memory_id}", "mem-x")
                status, answer, _ = at.ada_laptop(method.upper(), place, body)
                assert status < 500, (path, body, answer)
                assert str(at.place) not in json.dumps(answer)


@pytest.mark.parametrize(
    "query", ["", "runtime=messages", "session=s", "runtime=messages&session=s&from_offset=-1",
              "runtime=messages&session=s&from_offset=x", "runtime=messages&session=s&generation=9",
              "runtime=messages&session=s&fork=perhaps", "runtime=&session=s"]
)  # fmt: skip
def test_capture_without_required_fields_is_a_bad_request(served, lines, query):
    assert served().ada_laptop("POST", f"/api/runs?{query}", lines)[0] == 400


@pytest.mark.parametrize("session", ["../../x", "a\0b", "/etc/passwd", "a\\b", "x" * 300])
def test_session_id_that_is_a_path_is_a_bad_request(served, lines, session):
    ada = served().ada_laptop
    event = {"client": "claude-code", "kind": "prompt", "session": session, "prompt": "where?"}
    for path, body in (
        ("/api/runs", {"runtime": "messages", "session": session, "jsonl": lines.decode()}),
        ("/api/runs", {"runtime": "messages", "session": "s", "parent_session": session, "jsonl": lines.decode()}),
        ("/api/recall", {"message": "where?", "session": session}),
        ("/api/context", {"message": "where?", "session": session}),
        ("/api/hook", {"event": event}),
    ):
        status, answer, _ = ada("POST", path, body)
        assert status == 400 and "is refused: it " in answer["error"]["message"], (path, answer)


@pytest.mark.parametrize("raw", [b"", b"garbage", b'{"a": '])
def test_a_capture_of_no_lines_is_a_bad_request(served, raw):
    status, answer, _ = served().ada_laptop("POST", "/api/runs?runtime=messages&session=s", raw)
    assert status == 400 and "no complete line" in answer["error"]["message"]


@pytest.mark.parametrize(
    "raw", [b"not json\n", b"root:x:0:0:root:/root:/bin/sh\n" * 30, b"\xff\xff\n", b"[1]\n", b"\n\n"]
)
@pytest.mark.parametrize("emitted", ["", "&emitted=true"])
def test_a_capture_without_a_record_is_a_bad_request(served, raw, emitted):
    at = served()
    status, answer, _ = at.ada_laptop("POST", f"/api/runs?runtime=messages&session=s{emitted}", raw)
    assert status == 400 and "none of its lines is a JSON object" in answer["error"]["message"]
    assert not list(at.place.glob("archive/runs/**/*.jsonl"))


@pytest.mark.parametrize("raw", [b"garbage\n", b"\xff\xff\n", b"[1]\n", b"\n\n", b"\n"])
def test_capture_accepts_blank_and_broken_lines(served, lines, raw):
    """A blank line at the end of a transcript, or one that a crash left half written, comes alone in a capture."""
    at, place, low = served(), "/api/runs?runtime=messages&session=s", 0
    for data in (raw + lines, raw, lines):
        status, kept, _ = at.ada_laptop("POST", f"{place}&from_offset={low}", data)
        low += len(data)
        assert (status, kept.get("accepted_up_to")) == (202, low)


def test_too_large_body_is_reported(served, monkeypatch):
    at = served()
    monkeypatch.setattr(captures, "MAX_LINE_BYTES", captures.MAX_BYTES + 1)
    line = b'{"role": "user", "content": "' + b"x" * 1_000_000 + b'"}\n'
    status, said, _ = at.ada_laptop("POST", "/api/runs?runtime=messages&session=big", line * 35)
    assert (status, said["error"]["code"]) == (413, "too-large")
    assert at.ada_laptop("POST", "/api/runs/search", b'{"query": "' + b"x" * 2_000_000 + b'"}')[0] == 413
    status, kept, _ = at.ada_laptop("POST", "/api/runs?runtime=messages&session=big", line * 30)
    assert (status, kept["accepted_up_to"]) == (202, 30 * len(line))


def test_capture_accepts_a_line_beyond_the_general_limit(served):
    line = b'{"role": "user", "content": "' + b"x" * 40_000_000 + b'"}\n'
    status, kept, _ = served().ada_laptop("POST", "/api/runs?runtime=messages&session=long", line)
    assert (status, kept["accepted_up_to"]) == (202, len(line))


def test_a_body_in_chunks_that_never_ends_is_cut_off(served):
    at = served()
    pieces = (b'{"a": "' + b"x" * 1_000_000 + b'"}\n' for _ in range(40))
    head = {"Authorization": "Bearer ada-laptop", "Transfer-Encoding": "chunked"}
    with contextlib.closing(http.client.HTTPConnection(at.ada_laptop.address, timeout=60)) as line:
        line.request("POST", "/api/runs?runtime=m&session=c", pieces, head, encode_chunked=True)
        answer = line.getresponse()
        assert answer.status == 413 and answer.read()


def raw_line(address):
    host, _, port = address.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=30)


HEAD = (
    b"POST /api/runs?runtime=messages&session=half HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ada-laptop\r\n"
)


def test_half_a_body_stores_nothing(served, lines):
    at = served()
    with raw_line(at.address) as line:
        line.sendall(HEAD + f"Content-Length: {len(lines)}\r\n\r\n".encode() + lines[: len(lines) // 2 + 30])
        time.sleep(0.3)
    time.sleep(0.3)
    assert not list((at.place / "archive").rglob("*.jsonl"))
    assert not [path for path in (at.place / "cache").iterdir() if path.name.startswith("tmp")]
    status, kept, _ = at.ada_laptop("POST", "/api/runs?runtime=messages&session=half", lines)
    assert (status, kept["outcome"]) == (202, "stored")


def test_stalled_body_times_out(served, lines):
    at = served()
    at.served.api.silence_s = 0.3
    with raw_line(at.address) as line:
        line.sendall(HEAD + f"Content-Length: {len(lines)}\r\n\r\n".encode() + lines[:20])
        answer = b"".join(iter(lambda: line.recv(65536), b""))
    assert b" 408 " in answer.split(b"\r\n")[0] and b"too-slow" in answer
    assert not list((at.place / "archive").rglob("*.jsonl"))


def test_malformed_http_is_refused(served):
    at = served()
    for raw in (b"\x16\x03\x01garbage\r\n\r\n", b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
                b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n"):  # fmt: skip
        with raw_line(at.address) as line:
            line.sendall(raw)
            assert b" 400 " in line.recv(65536).split(b"\r\n")[0]
    assert at.nobody("GET", "/api/alive")[0] == 200


def test_unknown_paths_and_methods_are_refused(served):
    ada = served().ada_laptop
    status, said, _ = ada("GET", "/api/nothing")
    assert (status, said["error"]["code"]) == (404, "not-found")
    status, said, headers = ada("DELETE", "/api/me")
    assert (status, said["error"]["code"]) == (405, "method-not-allowed") and "GET" in headers["allow"]


def test_responses_forbid_caching(served):
    _, _, headers = served().ada_laptop("GET", "/api/me")
    assert headers["cache-control"] == "no-store" and headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers and "server" not in headers


# the same request twice -----------------------------------------------------------------------------------------


def test_same_key_creates_one_thing(served):
    at = served()
    for path, body, name in (
        ("/api/memories", {"text": "The quokka database is called Alder"}, "memory_id"),
        ("/api/cards", {"text": "Ask before you push."}, "id"), ("/api/machines", {"name": "tablet"}, "machine_id"),
        ("/api/grants", {"grantee": "bob", "scope": "tag", "value": "work"}, "grant_id"),
    ):  # fmt: skip
        first = at.ada_laptop("POST", path, body, Idempotency_Key=f"k-{name}")
        again = at.ada_laptop("POST", path, body, Idempotency_Key=f"k-{name}")
        assert (first[0], again[0]) == (201, 201) and again[2]["idempotency-replayed"] == "true"
        (where,), (where_again,) = ([do["href"] for do in said[1]["next_actions"][-1:]] for said in (first, again))
        assert first[1][name] == again[1][name] and where == where_again, path
        other = at.ada_laptop("POST", path, {**body, "project": "x", "name": "y"}, Idempotency_Key=f"k-{name}")
        assert (other[0], other[1]["error"]["code"]) == (409, "conflict")
        assert again[1].get("secret") is None, "a secret is shown once"
    assert at.bob_phone("POST", "/api/cards", {"text": "Mine."}, Idempotency_Key="k-id")[0] == 201, (
        "keys are a user's own"
    )
    assert len(at.ada_laptop("GET", "/api/machines")[1]["items"]) == 1
    assert at.ada_laptop("POST", "/api/cards", {"text": "x"}, Idempotency_Key="k" * 300)[0] == 400


def test_repeated_key_for_a_removed_thing_is_a_conflict(served):
    ada = served().ada_laptop
    for path, body, name in (
        ("/api/memories", {"text": "The quokka database is called Alder"}, "memory_id"),
        ("/api/cards", {"text": "Ask before you push."}, "id"), ("/api/machines", {"name": "tablet"}, "machine_id"),
        ("/api/grants", {"grantee": "bob", "scope": "tag", "value": "work"}, "grant_id"),
    ):  # fmt: skip
        made = ada("POST", path, body, Idempotency_Key=f"k-{name}")[1]
        if name == "machine_id":
            again = ada("POST", path, body, Idempotency_Key=f"k-{name}")[1]
            assert "secret is lost" in json.dumps(again["next_actions"])
        assert ada("DELETE", f"{path}/{made[name]}")[0] in (200, 202, 204), path
        status, said, _ = ada("POST", path, body, Idempotency_Key=f"k-{name}")
        assert (status, said["error"]["code"]) == (409, "conflict") and "new Idempotency-Key" in json.dumps(said), path


def test_a_search_until_the_end_of_all_time(served):
    ada = served().ada_laptop
    for lte in ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59Z"):
        said = {"query": "x", "filters": {"started_at": {"lte": lte}}}
        assert ada("POST", "/api/runs/search", said)[0] == 200, lte


def test_failed_request_may_be_repeated_under_its_key(served):
    ada = served().ada_laptop
    assert ada("POST", "/api/cards", {"text": "  "}, Idempotency_Key="k")[0] == 400
    assert ada("POST", "/api/cards", {"text": "Ask before you push."}, Idempotency_Key="k")[0] == 201


def test_captures_with_one_key_are_stored_once(served, lines):
    ada = served().ada_laptop
    where = "/api/runs?runtime=messages&session=s1"
    first, again = (ada("POST", where, lines, Idempotency_Key="k") for _ in range(2))
    assert (first[1]["outcome"], again[1]["outcome"]) == ("stored", "already")
    assert again[1]["run_id"] == first[1]["run_id"] and again[1]["_links"] == first[1]["_links"]
    assert ada("POST", where, lines + lines, Idempotency_Key="k")[0] == 409


def test_request_records_hold_no_words(served, grep):
    at = served()
    at.ada_laptop("POST", "/api/cards", {"text": "Zanzibar is the word."}, Idempotency_Key="Mombasa")
    secret = at.ada_laptop("POST", "/api/machines", {"name": "tablet"}, Idempotency_Key="k")[1]["secret"]
    files = list((at.place / "run").glob("http.db*"))
    assert files and all(path.stat().st_mode & 0o077 == 0 for path in files)
    for word in (b"Zanzibar", b"Mombasa", secret.encode()):
        assert not any(word in path.read_bytes() for path in files)
    assert not grep(at.place, secret.encode())
