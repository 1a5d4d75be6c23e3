"""The parts of the HTTP server that need no socket: buckets, cursors, what is kept of requests, listeners, homes."""

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import apsw
import pytest

pytest.importorskip("uvicorn")

from hypothesis import given
from hypothesis import strategies as st

from perdure import errors, leaving
from perdure.archive.archive import Answer, Delta
from perdure.errors import DiskFull, NotFound, UsageError
from perdure.surfaces.http import app, faults, store
from perdure.surfaces.http.buckets import Buckets
from perdure.surfaces.http.cursors import Cursors
from perdure.surfaces.http.events import Hub
from perdure.surfaces.http.faults import Refused
from perdure.surfaces.http.homes import Homes
from perdure.surfaces.http.probe import Probe
from perdure.surfaces.http.store import KEPT_S, Requests, Session
from perdure.surfaces.http.together import Together
from perdure.types import Identity, Origin


@given(st.lists(st.floats(0, 30), max_size=60), st.integers(1, 20))
def test_no_minute_has_more_than_a_full_bucket_and_what_flows_in(pauses, per_minute):
    """A bucket of n holds n, and n flow in a minute: so in any minute at most 2n are let through."""
    buckets, now, passed = Buckets(per_minute), 0.0, []
    for pause in pauses:
        now += pause
        wait = buckets.take("a", now)
        assert wait >= 0
        passed += [now] if wait == 0 else []
    for at in passed:
        assert sum(at <= other < at + 60 for other in passed) <= 2 * per_minute


def test_a_bucket_says_when_to_come_back():
    buckets = Buckets(1)
    assert buckets.take("a", 0) == 0.0
    assert buckets.take("a", 0) == 60.0
    assert buckets.take("a", 45) == 15.0
    assert buckets.take("a", 60) == 0.0


@given(st.integers(0, 10_000), st.text(max_size=30), st.binary(max_size=24))
def test_a_cursor_is_read_where_it_was_made_and_nowhere_else(offset, question, forged):
    ours, theirs = Cursors(b"k" * 32), Cursors(b"j" * 32)
    cursor = ours.make(offset, "ada", question)
    assert ours.read(cursor, "ada", question) == offset
    for reader, asked, said in (
        (theirs, ("ada", question), cursor), (ours, ("bob", question), cursor), (ours, ("ada", question + "x"), cursor),
        (ours, ("ada", question), cursor[1:]), (ours, ("ada", question), forged.hex() or "00"),
    ):  # fmt: skip
        with pytest.raises(Refused):
            reader.read(said, *asked)


def test_what_is_kept_of_a_request(tmp_path):
    kept = Requests(tmp_path)
    assert kept.begin("ada", "k", "POST /a x", now_s=0) is None
    open_ = kept.begin("ada", "k", "POST /a x", now_s=1)
    assert open_ is not None and open_.is_same and open_.status == 0
    kept.end("ada", "k", status=201, made="mem-1")
    again, other = kept.begin("ada", "k", "POST /a x", now_s=2), kept.begin("ada", "k", "POST /a y", now_s=2)
    assert again and (again.is_same, again.status, again.made) == (True, 201, "mem-1")
    assert other and not other.is_same
    assert kept.begin("bob", "k", "POST /a x", now_s=2) is None
    assert kept.begin("ada", "k", "POST /a x", now_s=KEPT_S + 1) is None, "after a day it is a new one"


def test_a_full_disk_is_said_to_be_full(tmp_path, monkeypatch):
    kept = Requests(tmp_path)

    @contextlib.contextmanager
    def full(_):
        raise apsw.FullError("disk is full")
        yield

    monkeypatch.setattr(store, "transaction", full)
    with pytest.raises(DiskFull):
        kept.begin("ada", "k", "POST /a x", now_s=0)


def test_many_who_ask_share_one_probe():
    """At 0 s and 4.9 s one probe serves; 5 s after it the next is made."""
    now_s, asked = [0.0], []
    probe = Probe(now_s=lambda: now_s[0])
    home = SimpleNamespace(probe=lambda: asked.append(now_s[0]))
    for now_s[0] in (0.0, 0.1, 4.9, 5.0, 9.9, 10.0):
        assert probe.found(home).problems == ()
    assert asked == [0.0, 5.0, 10.0]


def test_what_a_killed_server_left_open_is_free_again(tmp_path):
    first = Requests(tmp_path)
    key = first.key()
    first.begin("ada", "k", "POST /a x", now_s=0)
    first.close()
    second = Requests(tmp_path)
    assert second.begin("ada", "k", "POST /a x", now_s=1) is None and second.key() == key
    second.close()
    (tmp_path / "run" / "http.db").write_bytes(b"garbage" * 1000)
    third = Requests(tmp_path)
    assert third.key() != key


def test_a_user_who_leaves_is_taken_out_of_what_is_kept_while_the_server_runs(tmp_path):
    kept = Requests(tmp_path)
    key = kept.key()
    for user in ("ada", "bobquokka"):
        kept.begin(user, "k", "POST /a x", now_s=0)
        kept.end(user, "k", status=201, made="mem-1")
        kept.keep_session(f"hash-{user}", Session(user, "", 1000.0), 0.0)
    leaving.wipe(tmp_path, "bobquokka")
    assert not [path for path in (tmp_path / "run").iterdir() if b"bobquokka" in path.read_bytes()]
    assert kept.begin("ada", "k", "POST /a x", now_s=1) and kept.key() == key
    assert kept.session("hash-bobquokka", 1.0) is None and kept.session("hash-ada", 1.0)
    kept.close()
    (tmp_path / "run" / "http.db").write_bytes(b"bobquokka" * 1000)
    leaving.wipe(tmp_path, "bobquokka")
    assert not list((tmp_path / "run").glob("http.db*"))


async def always():
    return True


def test_who_does_not_read_is_dropped_and_others_hear_on():
    async def listen():
        hub = Hub()
        slow = hub.response(Identity("ada", "laptop", "m1"), always)
        quick = hub.response(Identity("ada", "tower", "m2"), always)
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


def test_a_listener_hears_nothing_from_when_it_may_not():
    async def listen():
        hub, may = Hub(), [True]

        async def allowed():
            return may[0]

        stream = hub.response(Identity("ada", "laptop", "m1"), allowed).body_iterator
        heard = [await anext(stream)]
        hub.publish("ada", "captured", {"n": 1})
        heard.append(await anext(stream))
        may[0] = False
        hub.publish("ada", "captured", {"n": 2})
        return heard, [piece async for piece in stream], hub.users

    heard, rest, users = asyncio.run(listen())
    assert len(heard) == 2 and rest == [] and users == set()


def test_what_fails_inside_of_mcp_is_an_envelope(tmp_path):
    tools = pytest.importorskip("perdure.surfaces.http.tools")

    class Broken:
        async def identify(self, request):
            return Identity("ada", "laptop", "m1")

        def failed(self, request, error):
            return app.response(faults.answer(faults.refused(error)))

    async def inner(scope, receive, send):
        if scope["path"] == "/begun":
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise BrokenPipeError

    async def ask(path):
        guarded, sent = tools.Guarded.__new__(tools.Guarded), []
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

    def close(self):
        self.is_closed = True


def test_a_home_is_used_by_one_and_kept_for_the_next_of_the_same():
    made = []

    def make(identity, read_only):
        made.append(Fake())
        return made[-1]

    homes, ada, bob = Homes(make, most_idle=2), Identity("ada", "l", "1"), Identity("bob", "p", "2")
    with homes.lent(ada, read_only=True) as one, homes.lent(ada, read_only=True) as two:
        assert one is not two
    with homes.lent(ada, read_only=True) as again:
        assert again in (one, two)
    with homes.lent(bob, read_only=True) as other:
        assert other not in (one, two), "never another's"
    assert sum(home.is_closed for home in made) == 1 and len(made) == 3
    with pytest.raises(NotFound), homes.lent(bob, read_only=True) as kept:
        raise NotFound("x")
    assert not kept.is_closed
    with pytest.raises(ValueError, match="broken"), homes.lent(bob, read_only=True) as broken:
        raise ValueError("broken")
    assert broken.is_closed
    homes.close()
    assert all(home.is_closed for home in made)


def every_error(kind=errors.PerdureError):
    yield kind
    for below in kind.__subclasses__():
        yield from every_error(below)


@pytest.mark.parametrize("kind", sorted(set(every_error()), key=lambda kind: kind.__name__))
def test_no_error_says_where_the_home_is_or_which_id_it_was(kind):
    refused = faults.refused(kind("/srv/home/ada/.perdure/archive"))
    is_the_callers = isinstance(kind("x"), (errors.UsageError, errors.FormatFault))
    assert "/srv" not in refused.message or is_the_callers
    assert (refused.status == 404) == issubclass(kind, NotFound)
    if issubclass(kind, NotFound):
        assert faults.answer(refused) == faults.answer(faults.refused(NotFound("another")))
    assert refused.status != 503 or "Retry-After" in refused.headers


def delta(session, data=b"x"):
    return Delta(Origin("messages", session, session), "ada", "laptop", data)


def test_captures_that_wait_are_stored_together_and_one_of_them_is_refused_alone():
    """Four come while the first is stored: the next storing has one of each session, and each gets its own answer."""
    together, batches, begun, go = Together(), [], threading.Event(), threading.Event()

    def store(deltas):
        batches.append([one.origin.session for one in deltas])
        begun.set()
        assert go.wait(10)
        if any(one.data == b"bad" for one in deltas):
            raise UsageError("no")
        return [Answer("stored", len(batches), 0, one.origin.session) for one in deltas]

    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(together.store, delta("a"), store)
        assert begun.wait(10)
        rest = [pool.submit(together.store, one, store) for one in (delta("b"), delta("c"), delta("d", b"bad"))]
        rest.append(pool.submit(together.store, delta("b"), store))
        while len(together._waiting) < 4:
            pass
        go.set()
        assert first.result().run_id == "a"
        said = [future.exception() or future.result().run_id for future in rest]
    assert said[0] == said[3] == "b" and said[1] == "c" and isinstance(said[2], UsageError)
    assert batches[0] == ["a"] and len(batches[1]) == len(set(batches[1])) >= 3
