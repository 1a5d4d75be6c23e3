"""The exchange between one machine's archive and its store: publish what is new here, collect what is new there.

The archive on this machine stays whole and answers everything; the store is what all machines of the archive share, and
what a new one begins from. Objects are put first and the entry of the log that names them last, so a crash between any
two steps leaves nothing half: what no entry names does not count, and is deleted by the next call.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from perdure import disk
from perdure.archive import run_files
from perdure.archive.archive import FORMAT, Archive
from perdure.archive.journal import Journal, get_writer_id, list_own_writers, record_writers
from perdure.archive.stage import is_journal_file_name
from perdure.archive_store import log
from perdure.archive_store.log import LinesRecord, LogEntry, PackRecord
from perdure.archive_store.publish import Draft, Planner
from perdure.archive_store.store import KnownStore, StoredObject
from perdure.errors import Busy, DamagedRun, DamagedStore, NewerStore, StoreFault, StoreRefused
from perdure.objects import Objects

_AWAY_S = 10.0  # a store that gave no answer is not asked again for so long, by a call that can do without
_WAIT_S = 60.0  # for another process that publishes
_STAGE_BYTES = 64_000_000  # fetched before it is merged

Merge = Callable[[Path, list[str]], object]  # takes in an archive folder, of these users


@dataclass(frozen=True)
class Waiting:
    """What waits on this machine for the store."""

    n_runs: int
    has_events: bool


@dataclass(frozen=True)
class StoreStatus:
    """What this machine knows of the store of its archive."""

    address: str
    n_writers: int
    n_objects: int
    n_bytes: int
    n_damaged: int  # objects that `verify` found damaged or missing
    n_waiting_runs: int  # on this machine only
    has_waiting_events: bool
    warning: str  # why they wait, if the store could not be used; else ""


class StoreExchange:
    """The exchange of one home with the store of its archive. Use it from one thread, and close it."""

    def __init__(self, home: Path, archive: Archive, objects: Objects, address: str) -> None:
        """address: of the store; what is known of another one does not count."""
        self._home, self._archive, self.objects, self.address = home, archive, objects, address
        self.known = KnownStore(home / "cache" / "archive-store.db", address)
        self._planner = Planner(archive, self.known, get_object=objects.get, get_user=self.get_user)
        self._stage = home / "cache" / "archive-store"
        self._away_until_s = 0.0
        self._is_format_checked = False

    def close(self) -> None:
        """Close the file of what is known."""
        self.known.close()

    @property
    def is_new(self) -> bool:
        """True until everything in the store was collected once."""
        return not self.known.get_meta("collected")

    def get_waiting(self) -> Waiting:
        """Return what waits for the store. Asks only this disk."""
        return Waiting(*self._planner.count_waiting())

    def get_status(self) -> StoreStatus:
        """Return what is known of the store. Asks only this disk."""
        stored_objects = [stored for stored in self.known.list_objects() if not stored.is_gone]
        waiting = self.get_waiting()
        return StoreStatus(
            self.address,
            len(self.known.list_writers()),
            len(stored_objects),
            sum(stored.n_bytes for stored in stored_objects),
            sum(bool(stored.damage) for stored in stored_objects),
            waiting.n_runs,
            waiting.has_events,
            self.warning,
        )

    def list_local_users(self) -> list[str]:
        """Return the users of whom this machine has runs."""
        return self._archive.ledger.list_users()

    # publish ----------------------------------------------------------------------------------------------

    def publish_quietly(self, *, wait_s: float = _WAIT_S) -> StoreFault | Busy | None:
        """Publish what is new; return the fault if the store cannot be used: then it waits here, and nothing is lost.

        A store that just gave no answer is left alone for some seconds. wait_s: for another process that publishes.
        """
        if time.monotonic() < self._away_until_s or not self._planner.has_work():
            return None
        try:
            self.publish(wait_s=wait_s)
        except StoreFault as error:
            self.known.set_meta("fault", str(error))
            return error
        except Busy as error:  # the other process publishes this, too
            return error
        return None

    @property
    def warning(self) -> str:
        """What a person should know: the store could not be used when it was last tried, and things wait; else ""."""
        if not self.known.get_meta("fault") or not self._planner.has_work():
            return ""
        waiting = self.get_waiting()
        parts = [f"{waiting.n_runs:,} runs"] * bool(waiting.n_runs) + ["events"] * waiting.has_events
        return f"{' and '.join(parts) or 'deletions'} wait for the archive's store: {self.known.get_meta('fault')}"

    def publish(self, *, wait_s: float = _WAIT_S, accept_losses: bool = False) -> int:
        """Put everything that is new here into the store; return how many objects. Durable there when this returns.

        accept_losses: expect damaged objects no longer, also those of which this machine has not everything. Raises
        StoreFault when the store cannot be used; the next call goes on.
        """
        n_objects = 0
        with self._note_fault(), disk.lock_file(self._home / ".store.lock", wait_s=wait_s):
            self._join()
            while (draft := self._planner.plan(accept_losses=accept_losses)) is not None:
                n_objects += self._put_draft(draft)
            if self.known.has_drafts():  # an empty entry: nothing that was on its way can come to name them now
                self._put_entry(Draft())
            self._delete_doomed()
            if self.known.get_meta("fault"):
                self.known.set_meta("fault", "")
        return n_objects

    @contextlib.contextmanager
    def _note_fault(self) -> Iterator[None]:
        """Leave the store alone for some seconds where a call can do without it."""
        try:
            yield
        except StoreFault:
            self._away_until_s = time.monotonic() + _AWAY_S
            raise

    def erase_user(self, user: str) -> int:
        """Delete everything of a user in the store; return how many objects. What others captured before goes, too."""
        key = log.make_user_key(user)
        with disk.lock_file(self._home / ".store.lock", wait_s=_WAIT_S):
            self._join()
            self.read_logs()
            names = {stored.name for stored in self.known.list_objects(user=key) if not stored.is_gone}
            self._put_entry(Draft(gone=names), erased=(key,))
            self._delete_doomed()
            self.objects.delete(log.name_user(key))
            self.known.forget_user(user, key)
        return len(names)

    def _join(self) -> None:
        """Make the store this archive's, and this machine one of its writers; read the own log to its end."""
        self._check_format()
        writer = get_writer_id(self._home)
        own_writers = list_own_writers(self._home)  # also those of the home that this one was restored from
        if not own_writers.issubset(self.known.list_writers()):
            self.read_registry()
        while missing := own_writers.difference(self.known.list_writers()):
            number, prev = self.known.get_registry_position()
            record = log.WriterRecord(number + 1, prev, min(missing))
            self.objects.put_new(log.name_writer(number + 1), log.encode(record))  # another was faster: it is read next
            self.read_registry()
        if self._read_log(writer):  # of a call that ended before it could record what it had put
            self._hold_local()

    def _check_format(self) -> None:
        """Write the number of the format into an empty store; later calls do nothing. Raises NewerStore, StoreFault."""
        if self._is_format_checked:
            return
        stored = self.objects.get(log.FORMAT_NAME)
        if stored is None and self.known.list_writers():
            raise StoreRefused(f"{self.address} is empty, and was not; delete cache/archive-store.db to fill it again")
        if stored is None and not self.objects.put_new(log.FORMAT_NAME, log.FORMAT):
            stored = self.objects.get(log.FORMAT_NAME)
        if stored is not None and stored != log.FORMAT:
            raise NewerStore(f"{self.address} has format {stored[:20]!r}, this Perdure knows {log.FORMAT!r}")
        self._is_format_checked = True

    def _put_draft(self, draft: Draft) -> int:
        """Put the objects of a draft, then its entry; return how many objects."""
        if draft.is_empty:
            n_objects = 0
            for key, value in draft.meta.items():
                self.known.set_meta(key, value)
        else:
            n_objects = self._put_entry(draft)
        self.known.drop_rechecks(draft.rechecked)
        return n_objects

    def _put_entry(self, draft: Draft, *, erased: tuple[str, ...] = ()) -> int:
        """Put objects, and the entry that names them. The caller holds the lock and has read the own log."""
        writer = get_writer_id(self._home)
        number, prev = self.known.get_position(writer)
        packs, journals, contents = self._encode_objects(draft, writer, number + 1)
        self.known.add_drafts(contents)
        for user in {user for user, _ in (*draft.list_packs(), *draft.list_lines())}:
            self._put_user(user)
        for name, data in contents.items():
            self._put_object(name, data)
        moment = datetime.now(UTC).isoformat()
        entry = LogEntry(writer, number + 1, prev, moment, packs, journals, tuple(sorted(draft.gone)), erased)
        raw = log.encode(entry)
        if not self.objects.put_new(log.name_entry(writer, number + 1), raw):
            stored = self.objects.get(log.name_entry(writer, number + 1))
            if stored != raw:  # of a call that was interrupted: it came there late
                self._read_log(writer)
                self._hold_local()
                return 0
        self.known.apply(entry, log.compute_hash(raw), own=writer, is_new=True, meta=draft.meta)
        return len(contents)

    def _encode_objects(
        self, draft: Draft, writer: str, number: int
    ) -> tuple[tuple[PackRecord, ...], tuple[LinesRecord, ...], dict[str, bytes]]:
        """Return what the entry says of the objects, and their contents by name."""
        contents: dict[str, bytes] = {}
        packs, journals = [], []
        for user, pairs in draft.list_packs():
            data = run_files.encode_pack(pairs)
            name = log.name_pack(writer, number, len(contents), data)
            states = tuple((run.run_id, log.make_state(run)) for run, _ in pairs)
            packs.append(PackRecord(name, log.make_user_key(user), log.compute_hash(data), len(data), states))
            contents[name] = data
        for user, lines in draft.list_lines():
            data = b"".join(line + b"\n" for _, line in lines)
            name = log.name_lines(writer, number, len(contents), data)
            keys = tuple((line_id, draft.keys[line_id]) for line_id, _ in lines)
            journals.append(LinesRecord(name, log.make_user_key(user), log.compute_hash(data), len(data), keys))
            contents[name] = data
        return tuple(packs), tuple(journals), contents

    def _put_object(self, name: str, data: bytes) -> None:
        """Put an object; one of this name that an interrupted call left has the same bytes, or is put again."""
        if not self.objects.put_new(name, data) and self.objects.get(name) != data:
            self.objects.delete(name)
            if not self.objects.put_new(name, data):
                raise DamagedStore(name)

    def _put_user(self, user: str) -> None:
        key = log.make_user_key(user)
        if self.known.get_meta(f"user {key}") != user:
            self.objects.put_new(log.name_user(key), user.encode())
            self.known.set_meta(f"user {key}", user)

    def _delete_doomed(self) -> None:
        for name in self.known.list_doomed():
            self.objects.delete(name)
            self.known.drop_doomed(name)

    # collect ----------------------------------------------------------------------------------------------

    def collect(self, merge: Merge) -> int:
        """Fetch what is new in the store and merge it into this archive; return how many objects.

        Damaged ones are left out, and recorded. Raises StoreFault; the next call goes on.
        """
        n_objects = 0
        disk.make_folder(self._stage)
        with self._note_fault(), disk.lock_file(self._stage / ".lock", wait_s=_WAIT_S):
            self._check_format()
            self.read_logs()
            record_writers(self._home, *self.known.list_writers())
            self._hold_local()
            while stored_objects := self.known.list_new_objects():
                group = next(run_files.group_by_bytes(stored_objects, lambda stored: stored.n_bytes, _STAGE_BYTES))
                n_objects += self._merge_objects(group, merge)
            self.known.set_meta("collected", datetime.now(UTC).isoformat())
        return n_objects

    def read_logs(self) -> None:
        """Read every log to its end. Raises StoreFault."""
        self.read_registry()
        for writer in self.known.list_writers():
            self._read_log(writer)

    def read_registry(self) -> None:
        """Read the registry of writers to its end."""
        for record, sha256 in log.read_registry(self.objects, *self.known.get_registry_position()):
            self.known.add_writer(record.writer, record.number, sha256)

    def _read_log(self, writer: str) -> bool:
        """Read a log to its end; return True if there was anything new."""
        own, is_new = get_writer_id(self._home), False
        for entry, sha256 in log.read_entries(self.objects, writer, *self.known.get_position(writer)):
            is_new = self.known.apply(entry, sha256, own=own) or is_new
        return is_new

    def get_user(self, key: str) -> str:
        """Return whose key this is. Raises DamagedStore."""
        user = self.known.get_meta(f"user {key}")
        if not user:
            user = (self.objects.get(log.name_user(key)) or b"").decode("utf-8", "replace")
            if log.make_user_key(user or "-") != key:
                raise DamagedStore(log.name_user(key))
            self.known.set_meta(f"user {key}", user)
        return user

    def _hold_local(self) -> None:
        """Record what this archive already has: it was captured here, too, or what was known of the store was lost."""
        held = []
        for run_id, state in self.known.list_unheld_runs():
            entry = self._archive.ledger.find_entry(run_id)
            with contextlib.suppress(DamagedRun):
                if entry and entry.change is not None and log.make_state(self._archive.read_checked(entry)[0]) == state:
                    held.append(f"{run_id} {state}")
        for key in self.known.list_users_with_unheld_lines():
            user = self.get_user(key)
            held += [event.id for event in Journal(self._archive.root / "journal" / user, home=self._home).read()]
        self.known.hold(held)

    def _merge_objects(self, stored_objects: list[StoredObject], merge: Merge) -> int:
        """Merge those objects that are whole and there; return how many."""
        users, staged_objects = set(), []
        shutil.rmtree(self._stage / "archive", ignore_errors=True)  # what a crash left
        try:
            disk.make_folder(self._stage / "archive")
            disk.write_file(self._stage / "archive" / "FORMAT", f"{FORMAT}\n".encode(), sync=False)
            for stored in stored_objects:
                data = self.fetch(stored)
                if data is None:
                    continue
                user = self.get_user(stored.user)
                _stage_object(self._stage / "archive", user, stored, data)
                staged_objects.append(stored)
                users.add(user)
            if staged_objects:
                merge(self._stage, sorted(users))
        finally:
            shutil.rmtree(self._stage / "archive", ignore_errors=True)
        for stored in staged_objects:
            run_states = self.known.list_runs_of(stored.name)
            self.known.hold(f"{run_id} {state}" for run_id, state in run_states)
            self.known.hold(line_id for line_id, _ in self.known.list_lines_of(stored.name))
            self.known.add_rechecks(run_id for run_id, _ in run_states)
        return len(staged_objects)

    def fetch(self, stored: StoredObject) -> bytes | None:
        """Return the bytes of an object; None if it is gone meanwhile, or damaged: then that is recorded."""
        data = self.objects.get(stored.name)
        if data is None:
            self.read_logs()
            if self.known.get_object(stored.name).is_gone:
                return None
        damage = "it is missing" if data is None else "its bytes differ from those that were put"
        if data is None or log.compute_hash(data) != stored.sha256:
            self.known.set_damage(stored.name, damage)
            return None
        if stored.damage:
            self.known.set_damage(stored.name, "")
        return data


def _stage_object(root: Path, user: str, stored: StoredObject, data: bytes) -> None:
    """Lay an object into an archive folder, where a merge finds it."""
    if stored.name.startswith("packs/"):
        path = root / "packs" / user / stored.name.removeprefix("packs/").replace("/", "-")
        disk.make_folder(path.parent)
        disk.write_file(path, data, sync=False)
        return
    by_file: dict[str, bytes] = {}
    for event, line in log.decode_lines(data.split(b"\n")):
        name = f"{event.writer}/{event.at[:7]}.jsonl"
        by_file[name] = by_file.get(name, b"") + line + b"\n"
    for name, lines in by_file.items():
        if not is_journal_file_name(name):
            raise DamagedStore(f"{stored.name} (it names the file {name!r:.60})")
        path = root / "journal" / user / name
        disk.make_folder(path.parent)
        disk.write_file(path, (path.read_bytes() if path.exists() else b"") + lines, sync=False)
