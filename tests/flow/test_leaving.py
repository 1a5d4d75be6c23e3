"""A user leaves: with everything of theirs, and without a trace."""

from __future__ import annotations

import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

import perdure
from perdure.errors import ArchiveFault, UsageError
from perdure.sharing.machines import LocalAuthority
from rig.leaving import BOB, fill_home, find_traces, open_as


@pytest.fixture
def place(tmp_path: Path, message) -> Path:
    """A home of Mira's in which Bob left something in every corner."""
    fill_home(tmp_path / "home", message)
    return tmp_path / "home"


def test_erased_user_leaves_no_trace(place: Path, tmp_path: Path, grep) -> None:
    assert {part.split("/")[0] for part in find_traces(place, grep)} >= {
        "archive", "agents", "cache", "outbox", "run", "auth.json",
    }  # fmt: skip
    with open_as(place, "mira") as mira:
        mira.forgetting.export_user(tmp_path / "before")
    with open_as(place, BOB) as bob:
        assert bob.forgetting.erase_user() == 3
    assert find_traces(place, grep) == []
    with open_as(place, "mira") as mira:
        assert [hit.text for hit in mira.search("harbour", mode="keyword").hits] == ["The harbour office opens at nine"]
        assert [one.grant.grantee for one in mira.sharing.grants.list_given(include_ended=True)] == ["tom"]
        assert mira.sharing.grants.list_received(include_ended=True) == []
        assert mira.sharing.machines.list_machines(include_revoked=True) == []
        assert mira.upkeep.verify().ok
        mira.forgetting.export_user(tmp_path / "after")
        mira.upkeep.embed()
    with open_as(tmp_path / "before", "mira") as before, open_as(tmp_path / "after", "mira") as after:
        assert before.upkeep.digest() == after.upkeep.digest()
    assert find_traces(place, grep) == []


def test_erased_twice_is_erased(place: Path, grep) -> None:
    for _ in range(2):
        with open_as(place, BOB) as bob:
            bob.forgetting.erase_user()
    assert find_traces(place, grep) == []


def test_machine_of_an_erased_user_is_refused(place: Path) -> None:
    with open_as(place, BOB) as bob:
        _, secret = bob.sharing.machines.register(BOB, "laptop")
        authority = LocalAuthority(place, ["mira"])
        assert authority.identify(secret)
        bob.forgetting.erase_user()
    assert authority.identify(secret) is None


def test_export_is_an_independent_home(place: Path, tmp_path: Path, grep) -> None:
    target = tmp_path / "bob"
    with open_as(place, BOB) as bob:
        found = bob.forgetting.export_user(target)
        assert found.ok and found.n_runs == 3
        said = {hit.text for hit in bob.search("quokka", mode="keyword").hits}
        floor, memories = bob.floor.read("profile.md"), [memory.text for memory in bob.memories.list_memories()]
        held = {held.run_id: bob.archive.read(held) for held in bob.archive.ledger.list_runs(BOB)}
    assert grep(target, b"harbour") == grep(target, b"behind the door") == []
    assert all(not path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO) for path in [target, *target.rglob("*")])
    with perdure.open(target) as own:
        assert own.user == BOB
        assert {hit.text for hit in own.search("quokka").hits} == said
        assert own.floor.read("profile.md") == floor == "I keep a quokka.\n"
        assert [memory.text for memory in own.memories.list_memories()] == memories
        assert {held.run_id: own.archive.read(held) for held in own.archive.ledger.list_runs(BOB)} == held
        assert own.upkeep.verify().ok


def test_export_of_the_only_user_has_the_digest_of_the_home(tmp_path: Path, message) -> None:
    with perdure.open(tmp_path / "home", user="mira") as mira:
        mira.capture(message("user", "The harbour office opens at nine"), runtime="messages", session="m1")
        assert mira.forgetting.export_user(tmp_path / "copy").digest == mira.upkeep.verify().digest


def test_export_overwrites_nothing(place: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("kept")
    with open_as(place, "mira") as mira:
        for target in (tmp_path / "full", tmp_path / "full" / "mine", place / "inside"):
            with pytest.raises(UsageError):
                mira.forgetting.export_user(target)
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine"]
    assert not (place / "inside").exists()


def test_a_damaged_archive_is_not_exported(place: Path, tmp_path: Path, message) -> None:
    with open_as(place, "mira") as mira:
        mira.capture(message("user", "It closes at nine"), runtime="messages", session="m2")
    blob = next((place / "archive" / "runs" / "mira").glob("*/*.jsonl"))
    blob.write_bytes(blob.read_bytes().replace(b"nine", b"five"))
    with open_as(place, "mira") as mira, pytest.raises(ArchiveFault):
        mira.forgetting.export_user(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_grantee_cannot_share_further(place: Path) -> None:
    with open_as(place, BOB) as bob:
        run_id = next(iter(bob.archive.ledger.list_runs(BOB))).run_id
    with open_as(place, "mira") as mira, pytest.raises(perdure.errors.NotFound):
        mira.sharing.share("tom", "run", run_id)


def test_principal_carries_its_active_grants(place: Path) -> None:
    with open_as(place, "mira") as mira, open_as(place, BOB) as bob:
        assert [(one.owner, one.value) for one in mira.principal.granted] == [(BOB, "quokka")]
        (given,) = bob.sharing.grants.list_given()
        assert bob.sharing.count_granted_runs(given.grant) == 1
        bob.sharing.grants.revoke(given.grant.grant_id)
        assert mira.principal.granted == ()
        until_at = datetime(2999, 1, 1, tzinfo=UTC)
        bob.sharing.share("mira", "project", "/w/quokka/", until_at=until_at)
        assert [(one.value, one.until_at) for one in mira.principal.granted] == [("/w/quokka", until_at)]
