"""Grants: only what its owner gave, to whom, until when; the same whatever the order in which homes were merged."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from perdure.archive.journal import Journal, list_own_writers, record_writers
from perdure.errors import NotFound, UsageError
from perdure.sharing.grants import GRANT, GrantCache, Grants, delete_grants_to, list_grants_to
from perdure.types import GrantScope

NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
DAY = timedelta(days=1)
GIVE = {"op": "give", "grant_id": "g", "grantee": "bob", "scope": "tag", "value": "x"}


def grants(home: Path, user: str) -> Grants:
    return Grants(home, user, GrantCache(home), now=lambda: NOW)


def journal(home: Path, user: str) -> Journal:
    return Journal(home / "archive" / "journal" / user, home=home)


def may_read(home: Path, user: str, now: datetime = NOW) -> list[tuple[str, str, str]]:
    return [(one.owner, one.scope, one.value) for one in list_grants_to(home, lambda: GrantCache(home), user, now)]


def test_grant_is_for_its_grantee_alone(tmp_path: Path) -> None:
    grants(tmp_path, "joel").give("bob", "tag", "orchard")
    assert may_read(tmp_path, "bob") == [("joel", "tag", "orchard")]
    assert may_read(tmp_path, "eve") == []
    assert may_read(tmp_path, "joel") == []


def test_grant_ends_with_its_date(tmp_path: Path) -> None:
    grants(tmp_path, "joel").give("bob", "tag", "orchard", until_at=NOW + DAY)
    assert may_read(tmp_path, "bob", NOW + DAY - timedelta(milliseconds=1))
    assert may_read(tmp_path, "bob", NOW + DAY) == []


def test_grant_ends_when_it_is_revoked(tmp_path: Path) -> None:
    joels, watch = grants(tmp_path, "joel"), GrantCache(tmp_path)
    given = joels.give("bob", "run", "r1")
    joels.give("bob", "run", "r2")
    assert len(list_grants_to(tmp_path, lambda: watch, "bob", NOW)) == 2
    assert joels.revoke(given.grant.grant_id).revoked_at == NOW
    assert [one.value for one in list_grants_to(tmp_path, lambda: watch, "bob", NOW)] == ["r2"]
    assert [one.grant.value for one in joels.list_given()] == ["r2"]
    assert [one.grant.value for one in joels.list_given(include_ended=True)] == ["r1", "r2"]
    assert [one.grant.value for one in grants(tmp_path, "bob").list_received()] == ["r2"]


def test_grant_ends_when_the_grantee_declines(tmp_path: Path) -> None:
    joels, bobs = grants(tmp_path, "joel"), grants(tmp_path, "bob")
    given = joels.give("bob", "tag", "orchard").grant
    joels.give("mira", "tag", "orchard")
    with pytest.raises(NotFound):
        grants(tmp_path, "mira").decline(given.grant_id)
    assert bobs.decline(given.grant_id).declined_at == NOW == bobs.decline(given.grant_id).declined_at
    assert may_read(tmp_path, "bob") == bobs.list_received() == [] and may_read(tmp_path, "mira")
    joels.give("bob", "tag", "orchard")
    assert may_read(tmp_path, "bob") == [("joel", "tag", "orchard")]
    assert delete_grants_to(tmp_path, "joel") == 1
    assert b"joel" not in b"".join(path.read_bytes() for path in journal(tmp_path, "bob").list_files())


def test_the_same_given_twice_is_one(tmp_path: Path) -> None:
    joels = grants(tmp_path, "joel")
    first = joels.give("bob", "tag", "orchard")
    assert joels.give("bob", "tag", "orchard") == first
    assert joels.give("bob", "tag", "orchard", until_at=NOW + DAY) != first
    assert len(joels.list_given()) == 2


@pytest.mark.parametrize(
    ("grantee", "scope", "value", "until_at"),
    [
        ("joel", "tag", "orchard", None),
        ("../bob", "tag", "orchard", None),
        ("", "tag", "orchard", None),
        ("bob", "everything", "x", None),
        ("bob", "tag", "", None),
        ("bob", "tag", "a\nb", None),
        ("bob", "tag", "\ud800", None),
        *(("bob", "tag", f"x{unseen}y", None) for unseen in "\x1b\x9b\u202e\u2066\u200b\u2028\x7f"),
        ("bob", "tag", "x" * 5000, None),
        ("bob", "tag", "orchard", NOW),
        ("bob", "tag", "orchard", NOW - DAY),
        ("bob", "tag", "orchard", datetime(2027, 1, 1)),
    ],
)
def test_invalid_grant_is_refused(
    tmp_path: Path, grantee: str, scope: GrantScope, value: str, until_at: datetime | None
) -> None:
    with pytest.raises(UsageError):
        grants(tmp_path, "joel").give(grantee, scope, value, until_at=until_at)
    assert not (tmp_path / "archive").exists()


def test_user_cannot_give_or_revoke_the_grant_of_another(tmp_path: Path) -> None:
    given = grants(tmp_path, "joel").give("bob", "tag", "orchard")
    with pytest.raises(NotFound):
        grants(tmp_path, "bob").revoke(given.grant.grant_id)
    data = {"op": "revoke", "grant_id": given.grant.grant_id}
    journal(tmp_path, "bob").append(GRANT, data, now=NOW)
    forged = {"op": "give", "grant_id": "g-1", "grantee": "bob", "scope": "tag", "value": "all", "owner": "joel"}
    journal(tmp_path, "bob").append(GRANT, forged, now=NOW)
    assert may_read(tmp_path, "bob") == [("joel", "tag", "orchard")]


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"op": "give"},
        {**GIVE, "scope": "all"},
        {**GIVE, "until_at": "soon"},
        {**GIVE, "until_at": "2027-01-01T00:00:00"},
        {**GIVE, "grantee": "joel"},
    ],
)
def test_ambiguous_event_grants_nothing(tmp_path: Path, data: dict[str, object]) -> None:
    journal(tmp_path, "joel").append(GRANT, data, now=NOW)
    assert may_read(tmp_path, "bob") == may_read(tmp_path, "joel") == []


def test_homes_merged_in_any_order_end_the_same(tmp_path: Path) -> None:
    """Three homes that give and revoke the same user's grants, their clocks days apart, one of them changed twice."""
    chance = random.Random(7)
    homes = [tmp_path / name for name in "abc"]
    names = [f"g-{n}" for n in range(6)]
    for shift, home in enumerate(homes):
        home.mkdir()
        for _ in range(12):
            name, at = chance.choice(names), NOW + chance.randrange(-3, 3) * shift * DAY
            give = {"op": "give", "grant_id": name, "grantee": "bob", "scope": "tag", "value": name + home.name}
            data = give if chance.random() < 0.8 else {"op": "revoke", "grant_id": name}
            journal(home, "joel").append(GRANT, data, now=at)
    ends = []
    for number, order in enumerate([(0, 1, 2), (2, 1, 0), (1, 2, 0), (1, 0, 2, 1, 0)]):
        merged = tmp_path / f"merged{number}"
        merged.mkdir()
        record_writers(merged, *(writer for home in homes for writer in list_own_writers(home)))
        for n in order:
            journal(merged, "joel").merge_from(homes[n] / "archive" / "journal" / "joel")
        ends.append(may_read(merged, "bob"))
    assert ends[0] and len(ends[0]) < len(names)
    assert all(end == ends[0] for end in ends)


def test_home_of_one_user_builds_no_grant_cache(tmp_path: Path) -> None:
    journal(tmp_path, "joel").append("used", {}, now=NOW)

    def refuse() -> GrantCache:
        raise AssertionError("a hook would pay for this")

    assert list_grants_to(tmp_path, refuse, "joel", NOW) == ()
    assert list_grants_to(tmp_path / "none", refuse, "joel", NOW) == ()


def test_forgotten_grantee_is_named_nowhere(tmp_path: Path) -> None:
    joels = grants(tmp_path, "joel")
    joels.give("bob-unmistakable", "tag", "orchard")
    kept = joels.give("eve", "tag", "orchard")
    assert delete_grants_to(tmp_path, "bob-unmistakable") == 1
    assert joels.list_given(include_ended=True) == [kept]
    assert all(b"unmistakable" not in path.read_bytes() for path in (tmp_path / "archive").rglob("*.jsonl"))
    assert list(journal(tmp_path, "joel").find_damage()) == []
