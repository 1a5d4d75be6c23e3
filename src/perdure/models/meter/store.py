"""The record of every call to a model: `run/meter.db`. No text is in it.

A call is written down before it is asked, at the most that it may take, in the same transaction that looks at the caps:
so several processes together keep them, and a call whose process was killed counts as taken whole. No rebuild
touches it. A lost or damaged file costs what was counted, and begins again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import apsw

from perdure.config import CapsConfig
from perdure.errors import BudgetSpent, MeterFault
from perdure.models.chat import Usage
from perdure.models.meter.caps import Spent, broken, periods
from perdure.transactions import transaction

BUSY_MS = 10_000
KEPT_DAYS = 400  # a year to look back on
_TABLE = """
CREATE TABLE IF NOT EXISTS call(
  id INTEGER PRIMARY KEY, at_s REAL NOT NULL, job TEXT NOT NULL, role TEXT NOT NULL, model TEXT NOT NULL,
  n_input INTEGER NOT NULL, n_output INTEGER NOT NULL, n_cache_read INTEGER NOT NULL, n_cache_write INTEGER NOT NULL,
  money REAL, took_ms REAL, outcome TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS call_at ON call(at_s);
"""
_SUM = "count(*), coalesce(sum(n_input + n_output + n_cache_read + n_cache_write), 0), coalesce(sum(money), 0.0), " \
       "count(*) - count(money)"  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """Who asks which model."""

    job: str
    role: str
    model: str  # "provider:model"


class Meter:
    """The record of one home. Any process and thread may write."""

    def __init__(self, home: Path, *, now: Callable[[], datetime]) -> None:
        """Nothing is made before the first call. now: aware, in the zone whose days count."""
        self._path = home / "run" / "meter.db"
        self._now = now

    def begin(self, asked: Asked, most: Usage, money: float | None, caps: CapsConfig) -> int:
        """Write down a call at the most that it may take; returns its number. Raises BudgetSpent, MeterFault."""
        now = self._now()
        with self._opened() as db, transaction(db):
            why = broken(caps, _spent(db, asked.job, now), most, money, now)
            if why:
                raise BudgetSpent(why)
            db.execute("DELETE FROM call WHERE at_s < ?", (now.timestamp() - KEPT_DAYS * 86400,))
            row = (now.timestamp(), *vars(asked).values(), *vars(most).values(), money)
            db.execute(f"INSERT INTO call VALUES(NULL, {', '.join('?' * len(row))}, NULL, 'open')", row)
            return db.last_insert_rowid()

    def end(self, call: int, usage: Usage, money: float | None, *, took_ms: float, outcome: str) -> None:
        """Write down what a call came to. Raises MeterFault: then it counts as when it began."""
        fields = "n_input = ?, n_output = ?, n_cache_read = ?, n_cache_write = ?, money = ?, took_ms = ?, outcome = ?"
        with self._opened() as db, transaction(db):
            row = (*vars(usage).values(), money, round(took_ms, 1), outcome, call)
            db.execute(f"UPDATE call SET {fields} WHERE id = ?", row)

    def spent(self, job: str = "") -> dict[str, Spent]:
        """What this "job" and all together came to in this "day" and "month". Raises MeterFault."""
        if not self._path.exists():
            return dict.fromkeys(("job", "day", "month"), Spent())
        with self._opened() as db:
            return _spent(db, job, self._now())

    def by_job(self) -> dict[tuple[str, str, str], Spent]:
        """What each (job, role, model) came to this month, the dearest in tokens first. Raises MeterFault."""
        if not self._path.exists():
            return {}
        since_s = periods(self._now()).month_at.timestamp()
        query = f"SELECT job, role, model, {_SUM} FROM call WHERE at_s >= ? GROUP BY 1, 2, 3 ORDER BY 5 DESC, 1, 2, 3"
        with self._opened() as db:
            return {(job, role, model): Spent(*sums) for job, role, model, *sums in db.execute(query, (since_s,))}

    @contextlib.contextmanager
    def _opened(self) -> Iterator[apsw.Connection]:
        """A connection for one use; a damaged file is thrown away and begun again. Raises MeterFault."""
        try:
            db = self._connected()
        except (apsw.NotADBError, apsw.CorruptError):
            self._discard()
            db = self._connected()
        try:
            yield db
        except apsw.Error as error:
            if isinstance(error, apsw.CorruptError):
                self._discard()  # the next one begins again
            raise MeterFault(f"{self._path} ({error})") from error
        finally:
            db.close()

    def _discard(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def _connected(self) -> apsw.Connection:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            db = apsw.Connection(str(self._path))
            self._path.chmod(0o600)
            db.set_busy_timeout(BUSY_MS)
            db.pragma("journal_mode", "wal")
            db.pragma("synchronous", 2)  # what was spent stays spent after a power cut
            db.execute(_TABLE)
        except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.BusyError, apsw.FullError, apsw.IOError, OSError) as error:
            raise MeterFault(f"{self._path} ({error})") from error
        return db


def _spent(db: apsw.Connection, job: str, now: datetime) -> dict[str, Spent]:
    at = periods(now)
    day_s, month_s = at.day_at.timestamp(), at.month_at.timestamp()
    query = f"SELECT {_SUM} FROM call WHERE at_s >= ?"
    return {
        "job": _sums(db, f"{query} AND job = ?", (day_s, job)),
        "day": _sums(db, query, (day_s,)),
        "month": _sums(db, query, (month_s,)),
    }


def _sums(db: apsw.Connection, query: str, values: tuple[float | str, ...]) -> Spent:
    (row,) = db.execute(query, values)
    return Spent(*row)
