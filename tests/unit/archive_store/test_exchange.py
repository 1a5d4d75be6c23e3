"""The exchange of machines with the store of their archive, on a folder: what is published, replaced and merged."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

import perdure
from perdure import Home
from perdure.archive.forget import record_tombstones
from perdure.archive_store import log
from perdure.archive_store.exchange import StoreExchange
from perdure.errors import DamagedStore, NewerStore, StoreAway, StoreRefused
from perdure.objects import FolderObjects, Objects
from perdure.types import Origin
from perdure.upkeep import restore
from rig.store_homes import capture, list_folder, make_home, make_lines, open_texts, read_everything, read_texts

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir()
    return folder


def everything_in(store: Path, home: Home) -> bytes:
    exchange = home.connections.exchange()
    assert exchange is not None
    return read_everything(exchange.objects, list_folder(store))


def test_a_new_machine_finds_runs_and_events(tmp_path: Path, store: Path):
    with perdure.open(make_home(tmp_path / "one", str(store))) as one:
        capture(one, "s1", "we chose SQLite", "and zstd")
        memory = one.remember("The door code is heliotrope.")
    with perdure.open(make_home(tmp_path / "two", str(store))) as two:
        assert [hit.text for hit in two.search("zstd").hits] == ["and zstd"]
        assert [known.memory_id for known in two.memories.list_memories()] == [memory.memory_id]
        assert two.upkeep.digest() == reopened_digest(tmp_path / "one")


def reopened_digest(folder: Path) -> str:
    with perdure.open(folder) as home:
        return home.upkeep.digest()


def test_a_capture_is_in_the_store_when_it_is_answered(tmp_path: Path, store: Path):
    with perdure.open(make_home(tmp_path / "one", str(store))) as one:
        capture(one, "s1", "we chose SQLite")
        assert open_texts(make_home(tmp_path / "two", str(store))) == ["we chose SQLite"]


def test_what_is_published_is_not_published_again(tmp_path: Path, store: Path):
    with perdure.open(make_home(tmp_path / "one", str(store))) as one:
        capture(one, "s1", "we chose SQLite")
    names = list_folder(store)
    for path in (tmp_path / "one" / "cache").glob("*.db*"):
        path.unlink()  # the ledger, and what was known of the store
    with perdure.open(tmp_path / "one") as one:
        assert one.upkeep.publish() == 0
        assert read_texts(one) == ["we chose SQLite"]
    assert list_folder(store) == names


def test_two_machines_that_captured_one_session_agree(tmp_path: Path, store: Path):
    one, two = (make_home(tmp_path / name, str(store)) for name in ("one", "two"))
    with perdure.open(one) as home_one, perdure.open(two) as home_two:
        capture(home_one, "same", "a")
        capture(home_two, "same", "a", "b")
        capture(home_two, "else", "c")
        for home in (home_one, home_two, home_one, home_two):
            home.upkeep.exchange_quietly()
        assert sorted(read_texts(home_one)) == sorted(read_texts(home_two)) == ["a", "b", "c"]
        assert home_one.upkeep.digest() == home_two.upkeep.digest()
        assert home_one.upkeep.verify().ok and home_two.upkeep.verify().ok
    assert open_texts(make_home(tmp_path / "three", str(store))) == ["a", "b", "c"]


def forget_hits(home: Home, query: str) -> None:
    """Forget the turns and memories with these words."""
    home.forgetting.apply(
        home.forgetting.plan_by_query(query),
        memories=[memory.memory_id for memory in home.forgetting.memories_by_query(query)],
    )


def test_a_forgotten_turn_is_in_no_object(tmp_path: Path, store: Path):
    with perdure.open(make_home(tmp_path / "one", str(store))) as one:
        capture(one, "s1", "the secret is mandrake", "harmless")
        capture(one, "s2", "another session")
        one.remember("The password is mandrake, too.")
    two = make_home(tmp_path / "two", str(store))
    with perdure.open(two) as home:
        assert everything_in(store, home).count(b"mandrake") >= 2
        forget_hits(home, "mandrake")
        assert b"mandrake" not in everything_in(store, home)
        assert home.upkeep.verify().findings == []
    with perdure.open(tmp_path / "one") as home:
        home.upkeep.exchange_quietly()
        assert home.upkeep.verify().findings == [] and home.search("mandrake").hits == ()
        assert b"mandrake" not in everything_in(store, home)
    for folder in (tmp_path / "one", make_home(tmp_path / "three", str(store))):
        assert open_texts(folder) == ["another session", "forgotten", "harmless"]


def test_two_machines_forget_parts_of_one_object_at_once(tmp_path: Path, store: Path):
    one, two = (make_home(tmp_path / name, str(store)) for name in ("one", "two"))
    (tmp_path / "t").mkdir()
    for name in ("mandrake", "hemlock", "clover"):
        (tmp_path / "t" / f"{name}.jsonl").write_bytes(make_lines(f"the {name} grows", "here"))
    with perdure.open(one) as home_one:
        home_one.import_files([tmp_path / "t"])  # one object holds all three
        with perdure.open(two) as home_two:
            plan = home_two.forgetting.plan_by_query("hemlock")
            record_tombstones(home_two.journal(), plan, now=NOW)
            home_two.forgetting.apply_tombstones()  # and puts nothing into the store yet
            forget_hits(home_one, "mandrake")
            home_two.upkeep.publish()  # still knows the object that is gone meanwhile
        for folder in (one, two, one):
            with perdure.open(folder) as home:
                home.upkeep.exchange_quietly()
                everything = everything_in(store, home)
        assert b"mandrake grows" not in everything and b"hemlock grows" not in everything
        assert b"clover grows" in everything
    for folder in (one, two, make_home(tmp_path / "three", str(store))):
        assert open_texts(folder) == ["forgotten"] * 2 + ["here"] * 3 + ["the clover grows"]
        with perdure.open(folder) as home:
            assert home.upkeep.verify().findings == []


class Killed(BaseException):
    """The process ends here."""


class MortalObjects:
    """A place that ends its caller at one of its calls: before the call has an effect, or behind it."""

    def __init__(self, objects: Objects, n_calls: int, *, is_done: bool) -> None:
        self._objects, self.n_left, self._is_done = objects, n_calls, is_done

    def _die(self, is_done: bool) -> None:
        self.n_left -= is_done == self._is_done
        if self.n_left == 0 and is_done == self._is_done:
            raise Killed

    def put_new(self, name: str, data: bytes) -> bool:
        self._die(False)
        answer = self._objects.put_new(name, data)
        self._die(True)
        return answer

    def get(self, name: str) -> bytes | None:
        self._die(False)
        return self._objects.get(name)

    def delete(self, name: str) -> None:
        self._die(False)
        self._objects.delete(name)
        self._die(True)


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "behind"])
def test_a_crash_at_any_call_loses_and_repeats_nothing(tmp_path: Path, store: Path, is_done: bool):
    folder, texts = make_home(tmp_path / "one", str(store)), []
    for n in range(1, 100):
        with perdure.open(folder, offline=True) as home:
            capture(home, f"s{n}", f"text {n}", f"mandrake {n}")
            texts += [f"text {n}", "forgotten"]
            home.upkeep.catch_up()
            if n > 1:
                record_tombstones(home.journal(), home.forgetting.plan_by_query(f"mandrake {n - 1}"), now=NOW)
                home.forgetting.apply_tombstones()
            objects = MortalObjects(FolderObjects(store), n, is_done=is_done)
            exchange = StoreExchange(folder, home.archive, objects, str(store))
            try:
                exchange.publish()
                break
            except Killed:
                exchange.close()
        with perdure.open(folder) as home:
            home.upkeep.publish()
            everything = everything_in(store, home)
            assert b"mandrake %d" % (n - 1) not in everything
            assert everything.count(b'"text %d"' % n) == 1
            assert list_folder(store) == sorted(list_named(store))
    assert n > (4 if is_done else 6)  # objects, entry and deletion; before them also what is asked
    texts[-1] = f"mandrake {n}"
    assert open_texts(make_home(tmp_path / "two", str(store))) == sorted(texts)


def list_named(store: Path) -> list[str]:
    """The objects that the logs name, and the logs themselves."""
    objects = FolderObjects(store)
    names = {log.FORMAT_NAME, *(f"users/{key.name}" for key in (store / "users").iterdir())}
    for record, _ in log.read_registry(objects):
        names.add(log.name_writer(record.number))
        gone = set()
        for entry, _ in log.read_entries(objects, record.writer, 0, ""):
            names |= {log.name_entry(entry.writer, entry.number), *(o.name for o in (*entry.packs, *entry.journals))}
            gone |= set(entry.gone)
        names -= gone
    return sorted(names)


def test_an_entry_that_arrives_late_is_taken_for_what_it_is(tmp_path: Path, store: Path):
    """A put that timed out can still arrive: its entry counts, and the objects that it names are there."""

    class LateObjects(MortalObjects):
        late: tuple[str, bytes] = ("", b"")

        def put_new(self, name: str, data: bytes) -> bool:
            if name.startswith("log/") and not self.late[0]:
                self.late = (name, data)
                raise StoreAway("timed out")
            if name.startswith("log/"):
                self._objects.put_new(*self.late)
            return self._objects.put_new(name, data)

    folder = make_home(tmp_path / "one", str(store))
    with perdure.open(folder, offline=True) as home:
        capture(home, "s1", "first")
        exchange = StoreExchange(folder, home.archive, LateObjects(FolderObjects(store), 0, is_done=True), str(store))
        assert isinstance(exchange.publish_quietly(), StoreAway)
        capture(home, "s2", "second")
        exchange.publish()
        exchange.close()
    with perdure.open(folder) as home:
        assert home.upkeep.verify().findings == []
    assert list_folder(store) == list_named(store)
    assert open_texts(make_home(tmp_path / "two", str(store))) == ["first", "second"]


def test_what_is_new_waits_while_the_store_is_away(tmp_path: Path, store: Path):
    with perdure.open(make_home(tmp_path / "one", str(store))) as home:
        capture(home, "s1", "first")
        store.rename(tmp_path / "away")
        capture(home, "s2", "second")
        home.remember("The door code is heliotrope.")
        status = home.upkeep.store_status()
        assert status and status.n_waiting_runs == 1 and status.has_waiting_events
        assert "gives no answer" in status.warning
        assert "gives no answer" in home.upkeep.verify().findings[0].what
    (tmp_path / "away").rename(store)
    with perdure.open(tmp_path / "one") as home:
        home.upkeep.publish()
        status = home.upkeep.store_status()
        assert status and (status.n_waiting_runs, status.has_waiting_events, status.warning) == (0, False, "")
    with perdure.open(make_home(tmp_path / "two", str(store))) as home:
        assert sorted(read_texts(home)) == ["first", "second"] and len(home.memories.list_memories()) == 1


def test_verify_names_damage_and_the_exchange_repairs_it(tmp_path: Path, store: Path):
    with perdure.open(make_home(tmp_path / "one", str(store))) as home:
        capture(home, "s1", "first")
        home.remember("The door code is heliotrope.")
        home.connections.publish_quietly()
        (pack,), (lines,) = (store / "packs").glob("*/*"), (store / "journal").glob("*/*")
        pack.write_bytes(pack.read_bytes()[:-7])
        lines.unlink()
        findings = {finding.where: finding.what for finding in home.upkeep.verify().findings}
        assert findings == {
            pack.relative_to(store).as_posix(): "its bytes differ from those that were put",
            lines.relative_to(store).as_posix(): "it is missing",
        }
        home.upkeep.publish()
        assert home.upkeep.verify().findings == []
    assert open_texts(make_home(tmp_path / "two", str(store))) == ["first"]


def test_a_damaged_object_is_not_merged(tmp_path: Path, store: Path):
    with perdure.open(make_home(tmp_path / "one", str(store))) as home:
        capture(home, "s1", "first")
        capture(home, "s2", "second")
    damaged, _ = sorted((store / "packs").glob("*/*"))
    damaged.write_bytes(b"x" + damaged.read_bytes()[1:])
    with perdure.open(make_home(tmp_path / "two", str(store))) as home:
        assert read_texts(home) == ["second"]
        assert not home.upkeep.verify().ok
    with perdure.open(tmp_path / "one") as home:
        assert not home.upkeep.verify().ok
        home.upkeep.publish()
    with perdure.open(tmp_path / "two") as home:
        home.upkeep.collect()
        assert sorted(read_texts(home)) == ["first", "second"] and home.upkeep.verify().ok


def test_the_loss_of_an_object_that_nobody_has_can_be_accepted(tmp_path: Path, store: Path):
    with perdure.open(make_home(tmp_path / "one", str(store))) as home:
        capture(home, "s1", "first")
        capture(home, "s2", "second")
    shutil.rmtree(tmp_path / "one")  # a machine that is lost
    damaged, _ = sorted((store / "packs").glob("*/*"))
    damaged.write_bytes(b"x" + damaged.read_bytes()[1:])
    with perdure.open(make_home(tmp_path / "two", str(store))) as home:
        home.upkeep.publish()
        assert not home.upkeep.verify().ok
        home.upkeep.accept_losses()
        assert home.upkeep.verify().findings == []
        assert read_texts(home) == ["second"]


def test_a_log_that_was_changed_is_named(tmp_path: Path, store: Path):
    with perdure.open(make_home(tmp_path / "one", str(store))) as home:
        capture(home, "s1", "first")
        capture(home, "s2", "second")
        first, _ = sorted((store / "log").glob("*/*"))
        first.write_bytes(first.read_bytes().replace(b'"at":"20', b'"at":"19'))
        (finding,) = home.upkeep.verify().findings
        assert finding.severity == "problem" and "does not follow" in finding.what
    with pytest.raises(DamagedStore), perdure.open(make_home(tmp_path / "two", str(store))) as home:
        home.upkeep.collect()


@pytest.mark.parametrize("name", ["../precious", "packs/../../precious", "/etc/hostname", "log/w1/00000001"])
def test_an_entry_that_names_another_file_is_refused(tmp_path: Path, store: Path, name: str):
    precious = tmp_path / "precious"
    precious.write_text("not of the store")
    with perdure.open(make_home(tmp_path / "one", str(store))) as home:
        capture(home, "s1", "first")
        (first,) = (store / "log").glob("*/*")
        entry = log.LogEntry(first.parent.name, 2, log.compute_hash(first.read_bytes()), "2026-01-01", gone=(name,))
        (first.parent / "00000002").write_bytes(log.encode(entry))
        (finding,) = home.upkeep.verify().findings
        assert finding.severity == "problem" and "gone" in finding.what
        with pytest.raises(DamagedStore):
            home.upkeep.collect()
    assert precious.read_text() == "not of the store"


def test_a_run_that_is_lost_here_comes_from_the_store(tmp_path: Path, store: Path):
    with perdure.open(make_home(tmp_path / "one", str(store))) as home:
        capture(home, "s1", "first")
        for path in (tmp_path / "one" / "archive" / "runs").rglob("*.jsonl"):
            path.unlink()
        assert not home.upkeep.verify().ok
        (tmp_path / "empty").mkdir()
        assert home.upkeep.take_again([tmp_path / "empty"]).lost == ()
        assert read_texts(home) == ["first"] and home.upkeep.verify().ok


def test_an_erased_user_is_in_no_object(tmp_path: Path, store: Path):
    one = make_home(tmp_path / "one", str(store))
    with perdure.open(one, user="bob") as home:
        capture(home, "s1", "said by bob")
        home.remember("The door code is heliotrope.")
    with perdure.open(one) as home:
        capture(home, "s2", "said by ada")
    two = make_home(tmp_path / "two", str(store))
    assert open_texts(two) == ["said by ada", "said by bob"]
    with perdure.open(one, user="bob") as home:
        home.forgetting.erase_user()
        everything = everything_in(store, home)
        assert b"bob" not in everything and b"heliotrope" not in everything and b"said by ada" in everything
    assert not any(b"bob" in path.read_bytes() for path in (one / "cache").glob("archive-store.db*"))
    assert open_texts(make_home(tmp_path / "three", str(store))) == ["said by ada"]
    with perdure.open(two) as home:  # it was told nothing to delete here, and brings nothing back
        for path in (two / "cache").glob("*.db*"):
            path.unlink()
    with perdure.open(two) as home:
        home.upkeep.exchange_quietly()
        assert b"said by bob" not in everything_in(store, home)
        assert [finding.where for finding in home.upkeep.verify().findings] == ["bob"]


def test_a_user_is_not_erased_while_the_store_is_away(tmp_path: Path, store: Path):
    with perdure.open(make_home(tmp_path / "one", str(store))) as home:
        capture(home, "s1", "first")
        shutil.move(store, tmp_path / "away")
        with pytest.raises(StoreAway):
            home.forgetting.erase_user()
        assert read_texts(home) == ["first"]


def test_a_merged_home_is_published(tmp_path: Path, store: Path):
    (tmp_path / "old").mkdir(mode=0o700)
    with perdure.open(tmp_path / "old", user="ada") as old:
        capture(old, "s1", "from the old disk")
        old.remember("The door code is heliotrope.")
    with perdure.open(make_home(tmp_path / "one", str(store))) as one:
        one.upkeep.merge(tmp_path / "old")
    with perdure.open(make_home(tmp_path / "two", str(store))) as two:
        assert read_texts(two) == ["from the old disk"] and len(two.memories.list_memories()) == 1


def test_a_restored_backup_fills_an_empty_store(tmp_path: Path, store: Path):
    with perdure.open(make_home(tmp_path / "one", str(store))) as one:
        capture(one, "s1", "first")
        _, digest = one.upkeep.backup(tmp_path / "backup.tar.zst")
    shutil.rmtree(store)
    store.mkdir()
    assert restore(tmp_path / "backup.tar.zst", tmp_path / "again").digest == digest
    with perdure.open(tmp_path / "again") as home:
        home.upkeep.publish()
        assert home.upkeep.verify().ok
    assert open_texts(make_home(tmp_path / "two", str(store))) == ["first"]


def test_a_store_that_was_emptied_is_not_filled_unasked(tmp_path: Path, store: Path):
    """A disk that is not mounted looks like one."""
    folder = make_home(tmp_path / "one", str(store))
    with perdure.open(folder) as one:
        capture(one, "s1", "first")
    shutil.rmtree(store)
    store.mkdir()
    with perdure.open(folder) as one:
        capture(one, "s2", "second")
        with pytest.raises(StoreRefused):
            one.upkeep.publish()
    assert list_folder(store) == []
    (folder / "cache" / "archive-store.db").unlink()
    with perdure.open(folder) as one:
        one.upkeep.publish()
    assert open_texts(make_home(tmp_path / "two", str(store))) == ["first", "second"]


def test_another_store_gets_everything(tmp_path: Path, store: Path):
    folder = make_home(tmp_path / "one", str(store))
    with perdure.open(folder) as one:
        capture(one, "s1", "first")
    (tmp_path / "other").mkdir()
    settings = folder / "config.toml"
    settings.write_text(settings.read_text().replace(f'"{store}"', f'"{tmp_path / "other"}"'))
    with perdure.open(folder) as one:
        assert one.upkeep.store_status()
    assert open_texts(make_home(tmp_path / "two", str(tmp_path / "other"))) == ["first"]


def test_a_newer_format_is_refused(tmp_path: Path, store: Path):
    (store / "FORMAT").write_text("2\n")
    with perdure.open(make_home(tmp_path / "one", str(store))) as home:
        capture(home, "s1", "first")
        with pytest.raises(NewerStore):
            home.upkeep.publish()
    assert list_folder(store) == ["FORMAT"]


def test_grants_count_on_all_machines(tmp_path: Path, store: Path):
    with perdure.open(make_home(tmp_path / "one", str(store))) as one:
        one.captures.store(
            origin := Origin("messages", "s1", "s1"),
            one.captures.delta(origin, make_lines("first"), path=None, from_offset=0, tags=["team"]),
        )
        one.sharing.share("bob", "tag", "team")
    with perdure.open(make_home(tmp_path / "two", str(store)), user="bob") as two:
        two.upkeep.catch_up(everyone=True)
        assert [hit.text for hit in two.search("first").hits] == ["first"]
