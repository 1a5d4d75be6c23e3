"""Links and sessions: each stands for one thing, until it ends."""

import pytest

from perdure.surfaces.http.store import Requests
from perdure.surfaces.page.sessions import LINK_S, SESSION_S, Links, Sessions
from perdure.types import Identity

OWNER = Identity("ada", "laptop", "", is_admin=True)
BOB = Identity("bob", "phone", "m-1")


class Authority:
    def __init__(self):
        self.revoked = False

    def identify(self, secret):
        return BOB if secret == "right" and not self.revoked else None

    def standing(self, user, machine_id):
        return BOB if (user, machine_id) == ("bob", "m-1") and not self.revoked else None


@pytest.fixture
def clock(monkeypatch):
    at = [1000.0]
    monkeypatch.setattr("perdure.surfaces.page.sessions.time.time", lambda: at[0])
    return at


@pytest.fixture
def made(tmp_path, clock):
    store = Requests(tmp_path)
    links = Links(lambda: clock[0])
    authority = Authority()
    yield Sessions(store, authority, OWNER, links), links, authority
    store.close()


def test_a_link_works_once_and_for_minutes(made, clock):
    sessions, links, _ = made
    secret = links.make()
    assert sessions.by_link(secret).identity == OWNER and sessions.by_link(secret) is None
    late = links.make()
    clock[0] += LINK_S + 1
    assert sessions.by_link(late) is None


def test_many_links_do_not_fill_the_memory():
    links = Links(lambda: 0.0)
    first, *_, last = [links.make() for _ in range(300)]
    assert not links.take(first) and links.take(last)


def test_a_session_ends_by_time_and_by_leaving(made, clock):
    sessions, links, _ = made
    kept, left = sessions.by_link(links.make()), sessions.by_link(links.make())
    assert sessions.visitor(kept.secret) == kept and kept.token != left.token != left.secret
    sessions.end(left)
    assert sessions.visitor(left.secret) is None
    clock[0] += SESSION_S + 1
    assert sessions.visitor(kept.secret) is None


def test_all_sessions_of_a_user_end_and_of_nobody_else(made):
    sessions, links, _ = made
    first, second, bob = sessions.by_link(links.make()), sessions.by_link(links.make()), sessions.by_credential("right")
    sessions.end_all(first)
    assert [sessions.visitor(one.secret) for one in (first, second)] == [None, None]
    assert sessions.visitor(bob.secret).identity == BOB


def test_of_one_user_the_newest_hundred_sessions_are_kept_and_of_others_all(made, clock):
    sessions, links, _ = made
    bob, found = sessions.by_credential("right"), []
    for _ in range(102):
        clock[0] += 1
        found.append(sessions.by_link(links.make()))
    kept = [sessions.visitor(one.secret) is not None for one in found]
    assert kept == [False] * 2 + [True] * 100 and sessions.visitor(bob.secret)


def test_a_session_stands_for_no_more_than_its_machine(made):
    sessions, _, authority = made
    assert sessions.by_credential("wrong") is None
    visitor = sessions.by_credential("right")
    assert sessions.visitor(visitor.secret).identity == BOB
    authority.revoked = True
    assert sessions.visitor(visitor.secret) is None


def test_a_session_of_another_owner_is_nobodys(tmp_path, made):
    """The home was put under another user's name: sessions by link were of the one before."""
    sessions, links, authority = made
    visitor = sessions.by_link(links.make())
    other = Sessions(sessions._store, authority, Identity("eve", "laptop", "", is_admin=True), links)
    assert other.visitor(visitor.secret) is None


@pytest.mark.parametrize("secret", ["", "x" * 1000, "\ud800", "' OR 1=1 --"])
def test_nonsense_is_nobody(made, secret):
    assert made[0].visitor(secret) is None
