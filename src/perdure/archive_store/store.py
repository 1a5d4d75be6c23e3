"""What this machine knows of an archive's store: a cache in `cache/archive-store.db`, read from the logs there.

Delete it, and the logs are read again. `held` says which states of runs and which lines this machine has had: it put
them there, or merged them. A state that it never had is fetched; one that it had is never taken for news.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from perdure.archive_store.log import LinesRecord, LogEntry, PackRecord
from perdure.disk import make_folder
from perdure.sqlite import apsw, transaction, use_wal

_SCHEMA = 1
_TABLES = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE writer(writer TEXT PRIMARY KEY, number INTEGER NOT NULL, sha256 TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE object(name TEXT PRIMARY KEY, user TEXT NOT NULL, sha256 TEXT NOT NULL, n_bytes INTEGER NOT NULL,
  is_gone INTEGER NOT NULL DEFAULT 0, damage TEXT NOT NULL DEFAULT '') WITHOUT ROWID;
CREATE TABLE run(run_id TEXT NOT NULL, state TEXT NOT NULL, object TEXT NOT NULL, PRIMARY KEY(run_id, state, object))
  WITHOUT ROWID;
CREATE INDEX run_object ON run(object);
CREATE TABLE line(line_id TEXT NOT NULL, key TEXT NOT NULL, object TEXT NOT NULL, PRIMARY KEY(line_id, object))
  WITHOUT ROWID;
CREATE INDEX line_key ON line(key);
CREATE INDEX line_object ON line(object);
CREATE TABLE held(item TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE recheck(run_id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE doomed(name TEXT PRIMARY KEY, is_draft INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE erased(user TEXT PRIMARY KEY, at TEXT NOT NULL) WITHOUT ROWID;
"""


class StoredObject(NamedTuple):
    """An object that counts, or counted."""

    name: str
    user: str  # key of the user
    sha256: str
    n_bytes: int
    is_gone: int
    damage: str  # what `verify` found; "" for a whole one


class KnownStore:
    """One connection to cache/archive-store.db. Do not share it between threads."""

    def __init__(self, path: Path, address: str) -> None:
        """Open the file; begin anew if it is about another store than the one at `address`, or damaged."""
        make_folder(path.parent)
        self._path, self._address = path, address
        try:
            self._connect()
        except (apsw.NotADBError, apsw.CorruptError):
            for suffix in ("", "-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            self._connect()

    def _connect(self) -> None:
        self.db = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        self.db.set_busy_timeout(60_000)
        self._path.chmod(0o600)
        use_wal(self.db)
        self.db.pragma("synchronous", 2)
        with transaction(self.db):
            if self.db.pragma("user_version") == _SCHEMA and self.get_meta("address") == self._address:
                return
            for name in [row[0] for row in self.db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]:
                self.db.execute(f'DROP TABLE "{name}"')
            for statement in _TABLES.split(";"):
                self.db.execute(statement)
            self.db.pragma("user_version", _SCHEMA)
            self._set_meta("address", self._address)

    def close(self) -> None:
        """Close the file."""
        self.db.close()

    # small values -----------------------------------------------------------------------------------------

    def get_meta(self, key: str) -> str:
        """Return a named value; "" if there is none."""
        return next((str(row[0]) for row in self.db.execute("SELECT value FROM meta WHERE key = ?", (key,))), "")

    def set_meta(self, key: str, value: str) -> None:
        """Set a named value, durably."""
        with transaction(self.db):
            self._set_meta(key, value)

    def _set_meta(self, key: str, value: str) -> None:
        self.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    # logs -------------------------------------------------------------------------------------------------

    def list_writers(self) -> list[str]:
        """Return the writers of the store, by name."""
        return [row[0] for row in self.db.execute("SELECT writer FROM writer ORDER BY writer")]

    def get_position(self, writer: str) -> tuple[int, str]:
        """Return (number, hash) of the last entry of a log that was read; (0, "") before the first."""
        rows = self.db.execute("SELECT number, sha256 FROM writer WHERE writer = ?", (writer,))
        return next(((row[0], row[1]) for row in rows), (0, ""))

    def add_writer(self, writer: str, number: int, sha256: str) -> None:
        """Record a writer, and how far the registry was read."""
        with transaction(self.db):
            self.db.execute("INSERT OR IGNORE INTO writer VALUES (?, 0, '')", (writer,))
            self._set_meta("registry", f"{number} {sha256}")

    def get_registry_position(self) -> tuple[int, str]:
        """Return (number, hash) of the last entry of the registry that was read."""
        number, _, sha256 = self.get_meta("registry").partition(" ")
        return int(number or 0), sha256

    def apply(
        self, entry: LogEntry, sha256: str, *, own: str, is_new: bool = False, meta: Mapping[str, str] | None = None
    ) -> bool:
        """Take in the next entry of a log; return False if it was read before.

        own: this machine's writer: what its entries replace is deleted by this machine. is_new: this process has just
        put it, so what it names is held here. meta: values that count together with it.
        """
        with transaction(self.db):
            if self.get_position(entry.writer)[0] != entry.number - 1:
                return False
            self.db.execute("INSERT OR REPLACE INTO writer VALUES (?, ?, ?)", (entry.writer, entry.number, sha256))
            for pack in entry.packs:
                self._add_object(pack)
                self.db.executemany("INSERT OR IGNORE INTO run VALUES (?, ?, ?)", [(*r, pack.name) for r in pack.runs])
            for lines in entry.journals:
                self._add_object(lines)
                rows = [(*line, lines.name) for line in lines.lines]
                self.db.executemany("INSERT OR IGNORE INTO line VALUES (?, ?, ?)", rows)
            for name in entry.gone:
                self.db.execute("INSERT OR IGNORE INTO object VALUES (?, '', '', 0, 1, '')", (name,))
                self.db.execute("UPDATE object SET is_gone = 1, damage = '' WHERE name = ?", (name,))
            for key in entry.erased:
                self.db.execute("INSERT OR REPLACE INTO erased VALUES (?, ?)", (key, entry.at))
            if entry.writer == own:
                self._settle_drafts(entry)
            if is_new:
                self._hold(entry)
            for key, value in (meta or {}).items():
                self._set_meta(key, value)
        return True

    def _settle_drafts(self, entry: LogEntry) -> None:
        """Keep the objects that an own entry names; now that its number is taken, no late entry can name the others."""
        put_names = [(pack.name,) for pack in entry.packs] + [(lines.name,) for lines in entry.journals]
        self.db.executemany("DELETE FROM doomed WHERE name = ?", put_names)
        self.db.execute("UPDATE doomed SET is_draft = 0")
        self.db.executemany("INSERT OR REPLACE INTO doomed VALUES (?, 0)", [(name,) for name in entry.gone])

    def _add_object(self, record: PackRecord | LinesRecord) -> None:
        """Add an object; the log of another writer may already have said that it is gone."""
        query = """INSERT INTO object VALUES (?, ?, ?, ?, 0, '') ON CONFLICT(name) DO UPDATE
            SET user = excluded.user, sha256 = excluded.sha256, n_bytes = excluded.n_bytes"""
        self.db.execute(query, (record.name, record.user, record.sha256, record.n_bytes))

    def _hold(self, entry: LogEntry) -> None:
        items = [f"{run_id} {state}" for pack in entry.packs for run_id, state in pack.runs]
        items += [line_id for lines in entry.journals for line_id, _ in lines.lines]
        self.db.executemany("INSERT OR IGNORE INTO held VALUES (?)", [(item,) for item in items])

    # objects ----------------------------------------------------------------------------------------------

    def list_objects(self, *, user: str | None = None) -> list[StoredObject]:
        """Return all objects (of one user), those that are gone included, by name."""
        query = "SELECT * FROM object WHERE ?1 IS NULL OR user = ?1 ORDER BY name"
        return [StoredObject(*row) for row in self.db.execute(query, (user,))]

    def get_object(self, name: str) -> StoredObject:
        """Return one object."""
        return StoredObject(*next(iter(self.db.execute("SELECT * FROM object WHERE name = ?", (name,)))))

    def list_new_objects(self) -> list[StoredObject]:
        """Return the whole objects that hold anything which this machine never had."""
        query = """SELECT * FROM object WHERE is_gone = 0 AND damage = '' AND (
            EXISTS (SELECT 1 FROM run WHERE object = name AND run_id || ' ' || state NOT IN (SELECT item FROM held))
            OR EXISTS (SELECT 1 FROM line WHERE object = name AND line_id NOT IN (SELECT item FROM held)))
            ORDER BY name"""
        return [StoredObject(*row) for row in self.db.execute(query)]

    def list_damaged(self) -> list[StoredObject]:
        """Return the objects that `verify` found damaged or missing."""
        query = "SELECT * FROM object WHERE is_gone = 0 AND damage <> '' ORDER BY name"
        return [StoredObject(*row) for row in self.db.execute(query)]

    def set_damage(self, name: str, damage: str) -> None:
        """Record what is wrong with an object; "" for nothing."""
        with transaction(self.db):
            self.db.execute("UPDATE object SET damage = ? WHERE name = ?", (damage, name))

    def list_runs_of(self, name: str) -> list[tuple[str, str]]:
        """Return (run id, state) of everything in a pack."""
        rows = self.db.execute("SELECT run_id, state FROM run WHERE object = ? ORDER BY 1, 2", (name,))
        return [(row[0], row[1]) for row in rows]

    def list_lines_of(self, name: str) -> list[tuple[str, str]]:
        """Return (id, key) of every line in an object of journals."""
        rows = self.db.execute("SELECT line_id, key FROM line WHERE object = ? ORDER BY 1", (name,))
        return [(row[0], row[1]) for row in rows]

    def get_states(self, run_id: str) -> dict[str, list[str]]:
        """Return state -> the whole objects that hold it, of the states of a run that count."""
        query = """SELECT state, object FROM run JOIN object ON name = object
            WHERE run_id = ? AND is_gone = 0 AND damage = '' ORDER BY object"""
        states: dict[str, list[str]] = {}
        for state, name in self.db.execute(query, (run_id,)):
            states.setdefault(state, []).append(name)
        return states

    def list_states_of_key(self, key: str) -> list[tuple[str, str, bool]]:
        """Return (id, object, whether it is gone) of each line with this key that was ever there."""
        query = "SELECT line_id, object, is_gone FROM line JOIN object ON name = object WHERE key = ?"
        return [(row[0], row[1], bool(row[2])) for row in self.db.execute(query, (key,))]

    def get_erasure(self, user: str) -> str:
        """Return when a user was erased, "" if never. user: their key."""
        return next((str(row[0]) for row in self.db.execute("SELECT at FROM erased WHERE user = ?", (user,))), "")

    def forget_user(self, user: str, key: str) -> None:
        """Keep nothing of an erased user here, but for the time of the erasure."""
        with transaction(self.db):
            for table in ("run", "line"):
                self.db.execute(f"DELETE FROM {table} WHERE object IN (SELECT name FROM object WHERE user = ?)", (key,))
            self.db.executemany("DELETE FROM meta WHERE key = ?", [(f"user {key}",), (f"lines {user}",)])
        self.db.execute("VACUUM")
        with contextlib.suppress(apsw.BusyError):  # an old page is in use: the next checkpoint writes over it
            self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def list_erased(self) -> list[str]:
        """Return the keys of all users who were erased."""
        return [row[0] for row in self.db.execute("SELECT user FROM erased ORDER BY user")]

    # what this machine had --------------------------------------------------------------------------------

    def is_held(self, item: str) -> bool:
        """Return True if this machine has had a state of a run ("<run id> <state>") or a line (its id)."""
        return bool(self.db.execute("SELECT 1 FROM held WHERE item = ?", (item,)).fetchall())

    def hold(self, items: Iterable[str]) -> None:
        """Record what this machine has."""
        with transaction(self.db):
            self.db.executemany("INSERT OR IGNORE INTO held VALUES (?)", [(item,) for item in items])

    def drop_held_runs(self, run_ids: Iterable[str]) -> None:
        """Fetch these runs again at the next opportunity: they were lost here."""
        with transaction(self.db):
            rows = [(f"{run_id} ", f"{run_id}!") for run_id in run_ids]
            self.db.executemany("DELETE FROM held WHERE item >= ? AND item < ?", rows)

    def list_unheld_runs(self) -> list[tuple[str, str]]:
        """Return (run id, state) of what counts in the store and this machine never had."""
        query = """SELECT DISTINCT run_id, state FROM run JOIN object ON name = object
            WHERE is_gone = 0 AND run_id || ' ' || state NOT IN (SELECT item FROM held)"""
        return [(row[0], row[1]) for row in self.db.execute(query)]

    def list_users_with_unheld_lines(self) -> list[str]:
        """Return the keys of users of whom there are lines that this machine never had."""
        query = """SELECT DISTINCT user FROM line JOIN object ON name = object
            WHERE is_gone = 0 AND line_id NOT IN (SELECT item FROM held)"""
        return [row[0] for row in self.db.execute(query)]

    def add_rechecks(self, run_ids: Iterable[str]) -> None:
        """Compare these runs with the store again: a merge may have changed them."""
        with transaction(self.db):
            self.db.executemany("INSERT OR IGNORE INTO recheck VALUES (?)", [(run_id,) for run_id in run_ids])

    def list_rechecks(self, limit: int) -> list[str]:
        """Return runs that are to be compared again."""
        return [row[0] for row in self.db.execute("SELECT run_id FROM recheck LIMIT ?", (limit,))]

    def drop_rechecks(self, run_ids: Sequence[str]) -> None:
        """Record that these runs were compared."""
        with transaction(self.db):
            self.db.executemany("DELETE FROM recheck WHERE run_id = ?", [(run_id,) for run_id in run_ids])

    # what is to be deleted there --------------------------------------------------------------------------

    def add_drafts(self, names: Iterable[str]) -> None:
        """Record objects that are about to be put: unless an entry comes to name them, they are deleted again."""
        with transaction(self.db):
            self.db.executemany("INSERT OR IGNORE INTO doomed VALUES (?, 1)", [(name,) for name in names])

    def list_doomed(self) -> list[str]:
        """Return the objects that can be deleted: replaced ones, and those that an interrupted call put."""
        return [row[0] for row in self.db.execute("SELECT name FROM doomed WHERE is_draft = 0 ORDER BY name")]

    def drop_doomed(self, name: str) -> None:
        """Record that an object is deleted."""
        with transaction(self.db):
            self.db.execute("DELETE FROM doomed WHERE name = ?", (name,))

    def has_doomed(self) -> bool:
        """Return True if anything is, or may be, to be deleted in the store."""
        return bool(self.db.execute("SELECT 1 FROM doomed LIMIT 1").fetchall())

    def has_drafts(self) -> bool:
        """Return True if an interrupted call may have put objects that no entry names."""
        return bool(self.db.execute("SELECT 1 FROM doomed WHERE is_draft = 1 LIMIT 1").fetchall())
