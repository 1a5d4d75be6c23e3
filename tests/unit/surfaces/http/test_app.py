"""The parts of the HTTP server that need no socket: buckets, cursors, what is kept of requests, listeners, homes."""

import asyncio
import contextlib
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import apsw
import pytest

pytest.importorskip("uvicorn")

from hypothesis import given
from hypothesis import strategies as st

from perdure import errors, forgetting
from perdure.archive.archive import Delta, StoreResult
from perdure.errors import DiskFull, NotFound, UsageError
from perdure.surfaces.http import app, responses, store
from perdure.surfaces.http.events import Subscribers
from perdure.surfaces.http.pools import CaptureBatcher, HealthProbe, HomePool, TokenBuckets
from perdure.surfaces.http.responses import CursorSigner, HttpRefusal
from perdure.surfaces.http.store import REQUEST_KEEP_S, BrowserSession, RequestStore
from perdure.types import Identity, Origin


@given(st.lists(st.floats(0, 30), max_size=60), st.integers(1, 20))
def test_no_minute_lets_more_than_twice_its_limit_through(pauses, per_minute):
    """A bucket of n holds n, and n flow in a minute: so in any minute at most 2n are let through."""
    buckets, now, passed = TokenBuckets(per_minute), 0.0, []
    for pause in pauses:
        now += pause
        wait = buckets.take_token("a", now)
        assert wait >= 0
        passed += [now] if wait == 0 else []
    for at in passed:
        assert sum(at <= other < at + 60 for other in passed) <= 2 * per_minute


def test_bucket_says_when_to_retry():
    buckets = TokenBuckets(1)
    assert buckets.take_token("a", 0) == 0.0
    assert buckets.take_token("a", 0) == 60.0
    assert buckets.take_token("a", 45) == 15.0
    assert buckets.take_token("a", 60) == 0.0


@given(st.integers(0, 10_000), st.text(max_size=30), st.binary(max_size=24))
def test_cursor_is_valid_only_where_it_was_made(offset, question, forged):
    ours, theirs = CursorSigner(b"k" * 32), CursorSigner(b"j" * 32)
    cursor = ours.make_cursor(offset, "ada", question)
    assert ours.read_cursor(cursor, "ada", question) == offset
    for reader, asked, said in (
        (theirs, ("ada", question), cursor), (ours, ("bob", question), cursor), (ours, ("ada", question + "x"), cursor),
        (ours, ("ada", question), cursor[1:]), (ours, ("ada", question), forged.hex() or "00"),
    ):  # fmt: skip
        with pytest.raises(HttpRefusal):
            reader.read_cursor(said, *asked)


def test_request_record_is_kept_for_a_day(tmp_path):
    kept = RequestStore(tmp_path)
    assert kept.begin_request("ada", "k", "POST /a x", now_s=0) is None
    open_ = kept.begin_request("ada", "k", "POST /a x", now_s=1)
    assert open_ is not None and open_.is_same and open_.status == 0
    kept.end_request("ada", "k", status=201, created_id="mem-1")
    again, other = (
        kept.begin_request("ada", "k", "POST /a x", now_s=2),
        kept.begin_request("ada", "k", "POST /a y", now_s=2),
    )
    assert again and (again.is_same, again.status, again.created_id) == (True, 201, "mem-1")
    assert other and not other.is_same
    assert kept.begin_request("bob", "k", "POST /a x", now_s=2) is None
    assert kept.begin_request("ada", "k", "POST /a x", now_s=REQUEST_KEEP_S + 1) is None, "after a day it is a new one"


def test_full_disk_is_reported_as_full(tmp_path, monkeypatch):
    kept = RequestStore(tmp_path)

    @contextlib.contextmanager
    def full(_):
        raise apsw.FullError("disk is full")
        yield

    monkeypatch.setattr(store, "transaction", full)
    with pytest.raises(DiskFull):
        kept.begin_request("ada", "k", "POST /a x", now_s=0)


def test_concurrent_requests_share_one_probe():
    """At 0 s and 4.9 s one probe serves; 5 s after it the next is made."""
    now_s, asked = [0.0], []
    home = SimpleNamespace()
    probe = HealthProbe(now_s=lambda: now_s[0], probe=lambda probed_home: asked.append(now_s[0]))
    for now_s[0] in (0.0, 0.1, 4.9, 5.0, 9.9, 10.0):
        assert probe.check_health(home).problems == ()
    assert asked == [0.0, 5.0, 10.0]


def test_request_left_open_by_a_killed_server_is_free_again(tmp_path):
    first = RequestStore(tmp_path)
    key = first.read_cursor_key()
    first.begin_request("ada", "k", "POST /a x", now_s=0)
    first.close()
    second = RequestStore(tmp_path)
    assert second.begin_request("ada", "k", "POST /a x", now_s=1) is None and second.read_cursor_key() == key
    second.close()
    (tmp_path / "run" / "http.db").write_bytes(b"garbage" * 1000)
    third = RequestStore(tmp_path)
    assert third.read_cursor_key() != key


def test_leaving_user_is_removed_from_a_running_server(tmp_path):
    kept = RequestStore(tmp_path)
    key = kept.read_cursor_key()
    for user in ("ada", "bobquokka"):
        kept.begin_request(user, "k", "POST /a x", now_s=0)
        kept.end_request(user, "k", status=201, created_id="mem-1")
        kept.save_session(f"hash-{user}", BrowserSession(user, "", 1000.0), 0.0)
    forgetting.delete_user_files(tmp_path, "bobquokka")
    assert not [path for path in (tmp_path / "run").iterdir() if b"bobquokka" in path.read_bytes()]
    assert kept.begin_request("ada", "k", "POST /a x", now_s=1) and kept.read_cursor_key() == key
    assert kept.read_session("hash-bobquokka", 1.0) is None and kept.read_session("hash-ada", 1.0)
    kept.close()
    (tmp_path / "run" / "http.db").write_bytes(b"bobquokka" * 1000)
    forgetting.delete_user_files(tmp_path, "bobquokka")
    assert not list((tmp_path / "run").glob("http.db*"))


async def always():
    return True


def test_slow_listener_is_dropped_and_others_go_on():
    async def listen():
        hub = Subscribers()
        slow = hub.open_stream(Identity("ada", "laptop", "m1"), always)
        quick = hub.open_stream(Identity("ada", "tower", "m2"), always)
        heard = []
        stream = quick.body_iterator
        heard.append(await anext(stream))
        for n in range(250):
            hub.publish("ada", "captured", {"n": n})
            hub.publish("bob", "captured", {"n": n})
            heard.append(await anext(stream))
        late = [piece async for piece in slow.body_iterator]
        hub.close()
        rest = [piece async for piece in stream]
        return heard, late, rest, hub.users

    heard, late, rest, users = asyncio.run(listen())
    assert len(heard) == 251 and b'{"n":249}' in heard[-1]
    assert len(late) <= 101 and rest == [] and users == set()


def test_listener_without_permission_gets_no_more_events():
    async def listen():
        hub, may = Subscribers(), [True]

        async def allowed():
            return may[0]

        stream = hub.open_stream(Identity("ada", "laptop", "m1"), allowed).body_iterator
        heard = [await anext(stream)]
        hub.publish("ada", "captured", {"n": 1})
        heard.append(await anext(stream))
        may[0] = False
        hub.publish("ada", "captured", {"n": 2})
        return heard, [piece async for piece in stream], hub.users

    heard, rest, users = asyncio.run(listen())
    assert len(heard) == 2 and rest == [] and users == set()


def test_failure_inside_mcp_returns_an_error_envelope(tmp_path):
    tools = pytest.importorskip("perdure.surfaces.http.tools")

    class Broken:
        async def identify(self, request):
            return Identity("ada", "laptop", "m1")

        async def respond_to_error(self, request, error):
            return app.to_starlette(responses.render_refusal(responses.to_refusal(error)))

    async def inner(scope, receive, send):
        if scope["path"] == "/begun":
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise BrokenPipeError

    async def ask(path):
        guarded, sent = tools.McpApp.__new__(tools.McpApp), []
        guarded._api, guarded.inner = Broken(), inner

        async def send(message):
            sent.append(message)

        await guarded({"type": "http", "path": path, "method": "POST", "headers": []}, None, send)
        return sent

    start, body = asyncio.run(ask("/mcp"))
    assert start["status"] == 500 and b'"internal"' in body["body"]
    with pytest.raises(BrokenPipeError):
        asyncio.run(ask("/begun"))


class Fake:
    def __init__(self):
        self.is_closed = False
        self.n_refreshed = 0

    def close(self):
        self.is_closed = True

    def refresh_live_settings(self):
        self.n_refreshed += 1


def test_home_is_reused_for_the_same_identity():
    made = []

    def make(identity, read_only):
        made.append(Fake())
        return made[-1]

    homes, ada, bob = HomePool(make, max_idle=2), Identity("ada", "l", "1"), Identity("bob", "p", "2")
    with homes.lend(ada, read_only=True) as one, homes.lend(ada, read_only=True) as two:
        assert one is not two
    with homes.lend(ada, read_only=True) as again:
        assert again in (one, two) and again.n_refreshed == 2
    with homes.lend(bob, read_only=True) as other:
        assert other not in (one, two), "never another's"
    assert sum(home.is_closed for home in made) == 1 and len(made) == 3
    with pytest.raises(NotFound), homes.lend(bob, read_only=True) as kept:
        raise NotFound("x")
    assert not kept.is_closed
    with pytest.raises(ValueError, match="broken"), homes.lend(bob, read_only=True) as broken:
        raise ValueError("broken")
    assert broken.is_closed
    homes.close()
    assert all(home.is_closed for home in made)


def every_error(kind=errors.PerdureError):
    yield kind
    for below in kind.__subclasses__():
        yield from every_error(below)


@pytest.mark.parametrize("kind", sorted(set(every_error()), key=lambda kind: kind.__name__))
def test_errors_reveal_no_home_path_and_no_id(kind):
    refused = responses.to_refusal(kind("/srv/home/ada/.perdure/archive"))
    is_the_callers = isinstance(
        kind("x"), (errors.UsageError, errors.FormatFault, errors.IdentityFault)
    )  # no path in it
    assert "/srv" not in refused.message or is_the_callers
    assert (refused.status == 404) == issubclass(kind, NotFound)
    if issubclass(kind, NotFound):
        assert responses.render_refusal(refused) == responses.render_refusal(responses.to_refusal(NotFound("another")))
    assert refused.status != 503 or "Retry-After" in refused.headers


def delta(session, data=b"x"):
    return Delta(Origin("messages", session, session), "ada", "laptop", data)


def test_waiting_captures_are_stored_together_and_refused_alone():
    """Four come while the first is stored: the next storing has one of each session, and each gets its own answer."""
    together, batches, begun, go = CaptureBatcher(), [], threading.Event(), threading.Event()

    def store(deltas):
        batches.append([one.origin.session for one in deltas])
        begun.set()
        assert go.wait(10)
        if any(one.data == b"bad" for one in deltas):
            raise UsageError("no")
        return [StoreResult("stored", len(batches), 0, one.origin.session) for one in deltas]

    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(together.store_delta, delta("a"), store)
        assert begun.wait(10)
        rest = [pool.submit(together.store_delta, one, store) for one in (delta("b"), delta("c"), delta("d", b"bad"))]
        rest.append(pool.submit(together.store_delta, delta("b"), store))
        while len(together._queue) < 4:
            pass
        go.set()
        assert first.result().run_id == "a"
        said = [future.exception() or future.result().run_id for future in rest]
    assert said[0] == said[3] == "b" and said[1] == "c" and isinstance(said[2], UsageError)
    assert batches[0] == ["a"] and len(batches[1]) == len(set(batches[1])) >= 3


def test_the_server_needs_no_package_of_mcp() -> None:
    """The extra [server] alone serves the API; a merge of two modules once made it need [mcp]."""
    code = "import sys; sys.modules['mcp'] = None; import perdure.surfaces.http.server"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
