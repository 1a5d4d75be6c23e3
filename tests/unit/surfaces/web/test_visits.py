"""Links and sessions: each stands for one thing, until it ends."""

import pytest

from perdure.surfaces.http.store import RequestStore
from perdure.surfaces.web.visits import LINK_S, SESSION_S, BrowserSessions, EntryLinks
from perdure.types import Identity

OWNER = Identity("ada", "laptop", "", is_admin=True)
BOB = Identity("bob", "phone", "m-1")


class Authority:
    def __init__(self):
        self.revoked = False

    def identify(self, secret):
        return BOB if secret == "right" and not self.revoked else None

    def identify_machine(self, user, machine_id):
        return BOB if (user, machine_id) == ("bob", "m-1") and not self.revoked else None


@pytest.fixture
def clock(monkeypatch):
    at = [1000.0]
    monkeypatch.setattr("perdure.surfaces.web.visits.time.time", lambda: at[0])
    return at


@pytest.fixture
def made(tmp_path, clock):
    store = RequestStore(tmp_path)
    links = EntryLinks(lambda: clock[0])
    authority = Authority()
    yield BrowserSessions(store, authority, OWNER, links), links, authority
    store.close()


def test_a_link_works_once_and_for_minutes(made, clock):
    sessions, links, _ = made
    secret = links.create()
    assert sessions.enter_by_link(secret).identity == OWNER and sessions.enter_by_link(secret) is None
    late = links.create()
    clock[0] += LINK_S + 1
    assert sessions.enter_by_link(late) is None


def test_many_links_do_not_fill_the_memory():
    links = EntryLinks(lambda: 0.0)
    first, *_, last = [links.create() for _ in range(300)]
    assert not links.redeem(first) and links.redeem(last)


def test_a_session_ends_by_time_and_by_leaving(made, clock):
    sessions, links, _ = made
    kept, left = sessions.enter_by_link(links.create()), sessions.enter_by_link(links.create())
    assert sessions.find_visitor(kept.secret) == kept and kept.token != left.token != left.secret
    sessions.end_session(left)
    assert sessions.find_visitor(left.secret) is None
    clock[0] += SESSION_S + 1
    assert sessions.find_visitor(kept.secret) is None


def test_ending_all_sessions_of_a_user_spares_others(made):
    sessions, links, _ = made
    first, second, bob = (
        sessions.enter_by_link(links.create()),
        sessions.enter_by_link(links.create()),
        sessions.enter_by_credential("right"),
    )
    sessions.end_all_sessions(first)
    assert [sessions.find_visitor(one.secret) for one in (first, second)] == [None, None]
    assert sessions.find_visitor(bob.secret).identity == BOB


def test_newest_hundred_sessions_of_a_user_are_kept(made, clock):
    sessions, links, _ = made
    bob, found = sessions.enter_by_credential("right"), []
    for _ in range(102):
        clock[0] += 1
        found.append(sessions.enter_by_link(links.create()))
    kept = [sessions.find_visitor(one.secret) is not None for one in found]
    assert kept == [False] * 2 + [True] * 100 and sessions.find_visitor(bob.secret)


def test_session_has_no_more_rights_than_its_machine(made):
    sessions, _, authority = made
    assert sessions.enter_by_credential("wrong") is None
    visitor = sessions.enter_by_credential("right")
    assert sessions.find_visitor(visitor.secret).identity == BOB
    authority.revoked = True
    assert sessions.find_visitor(visitor.secret) is None


def test_session_by_link_is_invalid_after_a_change_of_owner(tmp_path, made):
    """The home was put under another user's name: sessions by link were of the one before."""
    sessions, links, authority = made
    visitor = sessions.enter_by_link(links.create())
    other = BrowserSessions(sessions._store, authority, Identity("eve", "laptop", "", is_admin=True), links)
    assert other.find_visitor(visitor.secret) is None


@pytest.mark.parametrize("secret", ["", "x" * 1000, "\ud800", "' OR 1=1 --"])
def test_invalid_secret_finds_no_visitor(made, secret):
    assert made[0].find_visitor(secret) is None
