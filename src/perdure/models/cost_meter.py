"""The meter: the caps on the cost of models, and the record of every call: `run/meter.db`. No text is in it.

A call is recorded before it is sent, at the maximum that it may cost, in the same transaction that
checks the caps. So several processes together keep the caps, and a call whose process was killed counts
with its maximum. No rebuild touches the file. If it is lost or damaged, the counts are lost, and the
record begins again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from perdure.config import CapsConfig, PriceConfig
from perdure.errors import BudgetSpent, MeterFault, MeterFull
from perdure.models.chat import TokenUsage
from perdure.models.settings import CLIENT_OVERHEAD_TOKENS
from perdure.sqlite import apsw, is_disk_full, transaction, use_wal

MILLION = 1_000_000  # tokens: the unit of prices


@dataclass(frozen=True)
class Spending:
    """The total cost of some calls."""

    n_calls: int = 0
    n_tokens: int = 0
    money: float = 0.0  # of the calls with a known price
    n_unpriced: int = 0  # calls whose price is unknown


class BudgetPeriods(NamedTuple):
    """The bounds of the day and the month of an instant, in its own time zone."""

    day_at: datetime
    month_at: datetime
    next_day_at: datetime
    next_month_at: datetime


def find_periods(now: datetime) -> BudgetPeriods:
    """Return the bounds of the day and the month of an instant.

    >>> find_periods(datetime(2026, 12, 31, 15)).next_month_at
    datetime.datetime(2027, 1, 1, 0, 0)
    """
    day_at = now.replace(hour=0, minute=0, second=0, microsecond=0)
    month_at = day_at.replace(day=1)
    next_month_at = (month_at + timedelta(days=32)).replace(day=1)
    return BudgetPeriods(day_at, month_at, day_at + timedelta(days=1), next_month_at)


def compute_money(usage: TokenUsage, price: PriceConfig | None) -> float | None:
    """Return the cost of a call, or None if its model has no price.

    >>> usage = TokenUsage(n_input=1_000, n_output=200, n_cache_read=4_000)
    >>> compute_money(usage, PriceConfig(3.0, 15.0, cache_read=0.3))
    0.0072
    """
    if price is None:
        return None
    input_money = (
        usage.n_input * price.input
        + usage.n_cache_read * (price.cache_read or price.input)
        + usage.n_cache_write * (price.cache_write or price.input)
    )
    return round((input_money + usage.n_output * price.output) / MILLION, 9)


def find_broken_cap(
    caps: CapsConfig, spending: Mapping[str, Spending], max_usage: TokenUsage, cost: float | None, now: datetime
) -> str:
    """Return the cap that a call would break, how much is spent, and when it is free again; "" if it breaks
    none.

    spending: the totals of this "job" in the day, and of all jobs in this "day" and "month"; unfinished
    calls count with their maximum. max_usage, cost: the maximum that this call may take.
    """
    bounds = find_periods(now)
    for period, free_at in (("job", bounds.next_day_at), ("day", bounds.next_day_at), ("month", bounds.next_month_at)):
        period_spending = spending[period]
        token_limit: int = getattr(caps, f"{period}_tokens")
        if token_limit and period_spending.n_tokens + max_usage.n_tokens > token_limit:
            return _describe_broken_cap(
                f"{period}_tokens",
                f"{period_spending.n_tokens:,} of {token_limit:,}",
                f"{max_usage.n_tokens:,}",
                free_at,
            )
        money_limit: float = getattr(caps, f"{period}_money")
        if money_limit and period_spending.money + (cost or 0) > money_limit:
            return _describe_broken_cap(
                f"{period}_money", f"{period_spending.money:.4f} of {money_limit:g}", f"{cost or 0:.4f}", free_at
            )
    return ""


def _describe_broken_cap(cap: str, spent_text: str, call_text: str, free_at: datetime) -> str:
    free_text = f"available again {free_at:%Y-%m-%d %H:%M}"
    return f"models.caps.{cap}: {spent_text} spent, and this call can cost {call_text}; {free_text}"


def find_money_cap(caps: CapsConfig) -> str:
    """Return the first cap in money that is set, or ""."""
    return next((name for name in ("job_money", "day_money", "month_money") if getattr(caps, name)), "")


BUSY_MS = 10_000
KEPT_DAYS = 400  # a year can be shown
_TABLE_SQL = """
CREATE TABLE IF NOT EXISTS call(
  id INTEGER PRIMARY KEY, at_s REAL NOT NULL, job TEXT NOT NULL, role TEXT NOT NULL, model TEXT NOT NULL,
  n_input INTEGER NOT NULL, n_output INTEGER NOT NULL, n_cache_read INTEGER NOT NULL, n_cache_write INTEGER NOT NULL,
  money REAL, took_ms REAL, outcome TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS call_at ON call(at_s);
CREATE TABLE IF NOT EXISTS pause(provider TEXT PRIMARY KEY, until_s REAL NOT NULL);
CREATE TABLE IF NOT EXISTS call_detail(call INTEGER PRIMARY KEY, effort TEXT NOT NULL, n_estimated INTEGER);
"""  # a table of its own, so that an earlier version can write its calls into the same file
_SUM_SQL = (
    "count(*), coalesce(sum(n_input + n_output + n_cache_read + n_cache_write), 0), coalesce(sum(money), 0.0), "
    "count(*) - count(money)"
)


@dataclass(frozen=True)
class ModelCall:
    """The caller and the model of one call."""

    job: str
    role: str
    model: str  # "provider:model"
    effort: str = ""  # the effort of the settings; "" for the model's default


class EstimateError(NamedTuple):
    """How well the input tokens of a model's calls were estimated, against what its provider reported."""

    n_calls: int
    n_estimated: int
    n_reported: int

    @property
    def share(self) -> float:
        """The error of the estimate as a share of the report: +0.1 is 10 % too high."""
        return (self.n_estimated - self.n_reported) / max(1, self.n_reported)


class CutAnswers(NamedTuple):
    """How many answers of a role were cut off by their limit."""

    n_calls: int
    n_cut: int


class Meter:
    """The record of one home. Any process and any thread may write."""

    def __init__(self, home: Path, *, now: Callable[[], datetime]) -> None:
        """Store the path; no file is made before the first call. now: aware, in the time zone whose days count."""
        self._path = home / "run" / "meter.db"
        self._now = now

    def begin(self, model_call: ModelCall, max_usage: TokenUsage, money: float | None, caps: CapsConfig) -> int:
        """Record a call at the maximum that it may cost, and return its number. Raises BudgetSpent, MeterFault."""
        now = self._now()
        with self._open() as db, transaction(db):
            problem = find_broken_cap(caps, _sum_periods(db, model_call.job, now), max_usage, money, now)
            problem = problem or _find_client_limit(db, model_call.model.partition(":")[0], caps, now)
            if problem:
                raise BudgetSpent(problem)
            db.execute("DELETE FROM call WHERE at_s < ?", (now.timestamp() - KEPT_DAYS * 86400,))
            db.execute("DELETE FROM call_detail WHERE call NOT IN (SELECT id FROM call)")
            caller = (model_call.job, model_call.role, model_call.model)
            row = (now.timestamp(), *caller, *vars(max_usage).values(), money)
            db.execute(f"INSERT INTO call VALUES(NULL, {', '.join('?' * len(row))}, NULL, 'open')", row)
            call_id = db.last_insert_rowid()
            db.execute("INSERT INTO call_detail VALUES(?, ?, NULL)", (call_id, model_call.effort))
            return call_id

    def end(
        self, call_id: int, usage: TokenUsage, money: float | None, *, took_ms: float, outcome: str,
        n_estimated_input: int | None = None,
    ) -> None:  # fmt: skip
        """Record the real cost of a call. Raises MeterFault: then the maximum from its beginning still counts.

        n_estimated_input: the estimate of its input tokens, where the provider reported how many there were.
        """
        fields = "n_input = ?, n_output = ?, n_cache_read = ?, n_cache_write = ?, money = ?, took_ms = ?, outcome = ?"
        with self._open() as db, transaction(db):
            row = (*vars(usage).values(), money, round(took_ms, 1), outcome, call_id)
            db.execute(f"UPDATE call SET {fields} WHERE id = ?", row)
            db.execute("UPDATE call_detail SET n_estimated = ? WHERE call = ?", (n_estimated_input, call_id))

    def pause(self, provider: str, until_at: datetime) -> None:
        """Let no call of a provider begin until a moment: it said that it is at its limit. Raises MeterFault."""
        with self._open() as db, transaction(db):
            db.execute("INSERT OR REPLACE INTO pause VALUES(?, ?)", (provider, until_at.timestamp()))

    def read_spending(self, job: str = "") -> dict[str, Spending]:
        """Return the totals of this "job" in the day, and of all jobs in this "day" and "month". Raises MeterFault."""
        if not self._path.exists():
            return dict.fromkeys(("job", "day", "month"), Spending())
        with self._open() as db:
            return _sum_periods(db, job, self._now())

    def read_spending_since(self, since_at: datetime) -> Spending:
        """Return the total of all jobs since a moment. Raises MeterFault."""
        if not self._path.exists():
            return Spending()
        with self._open() as db:
            return _sum_calls(db, f"SELECT {_SUM_SQL} FROM call WHERE at_s >= ?", (since_at.timestamp(),))

    def read_spending_by_job(self) -> dict[ModelCall, Spending]:
        """Return the total of each job, role, model and effort in this month, most tokens first. Raises MeterFault."""
        if not self._path.exists():
            return {}
        since_s = find_periods(self._now()).month_at.timestamp()
        query = (
            f"SELECT job, role, model, coalesce(effort, ''), {_SUM_SQL} FROM call "
            "LEFT JOIN call_detail ON call = id WHERE at_s >= ? GROUP BY 1, 2, 3, 4 ORDER BY 6 DESC, 1, 2, 3, 4"
        )
        with self._open() as db:
            return {ModelCall(*row[:4]): Spending(*row[4:]) for row in db.execute(query, (since_s,))}

    def read_estimate_errors(self) -> dict[str, EstimateError]:
        """Return for each model how its input tokens were estimated this month. Raises MeterFault."""
        if not self._path.exists():
            return {}
        since_s = find_periods(self._now()).month_at.timestamp()
        query = (
            "SELECT model, count(*), sum(n_estimated), sum(n_input + n_cache_read + n_cache_write) FROM call "
            "JOIN call_detail ON call = id WHERE at_s >= ? AND n_estimated IS NOT NULL GROUP BY 1 ORDER BY 1"
        )
        with self._open() as db:
            return {model: EstimateError(*sums) for model, *sums in db.execute(query, (since_s,))}

    def count_cut_answers(self) -> dict[str, CutAnswers]:
        """Return for each role its calls of this month, and how many of them ended at max_output_tokens.

        Raises MeterFault.
        """
        if not self._path.exists():
            return {}
        since_s = find_periods(self._now()).month_at.timestamp()
        query = "SELECT role, count(*), sum(outcome = 'length') FROM call WHERE at_s >= ? GROUP BY 1 ORDER BY 1"
        with self._open() as db:
            return {role: CutAnswers(*counts) for role, *counts in db.execute(query, (since_s,))}

    @contextlib.contextmanager
    def _open(self) -> Iterator[apsw.Connection]:
        """Open a connection for one use; a damaged file is deleted and a new one is made. Raises MeterFault."""
        try:
            db = self._connect()
        except (apsw.NotADBError, apsw.CorruptError):
            self._discard()
            db = self._connect()
        try:
            yield db
        except apsw.Error as error:
            if isinstance(error, apsw.CorruptError):
                self._discard()  # the next use makes a new file
            raise self._to_fault(error) from error
        finally:
            db.close()

    def _to_fault(self, error: Exception) -> MeterFault:
        fault = MeterFull if is_disk_full(error, self._path.parent) else MeterFault
        return fault(f"{self._path} ({error})")

    def _discard(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def _connect(self) -> apsw.Connection:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            db = apsw.Connection(str(self._path))
            self._path.chmod(0o600)
            db.set_busy_timeout(BUSY_MS)
            use_wal(db)
            db.pragma("synchronous", 2)  # the record must survive a power cut
            db.execute(_TABLE_SQL)
        except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.BusyError, apsw.FullError, apsw.IOError, OSError) as error:
            raise self._to_fault(error) from error
        return db


def _find_client_limit(db: apsw.Connection, provider: str, caps: CapsConfig, now: datetime) -> str:
    """Return why an installed client may not be called now, and when it may; "" if it may, or is none."""
    pauses = db.execute("SELECT until_s FROM pause WHERE provider = ? AND until_s > ?", (provider, now.timestamp()))
    for (until_s,) in pauses:
        until_at = datetime.fromtimestamp(until_s, now.tzinfo)
        return f"{provider} is at the limit of its subscription; available again {until_at:%Y-%m-%d %H:%M}"
    if not (caps.day_client_calls and provider in CLIENT_OVERHEAD_TOKENS):
        return ""
    bounds = find_periods(now)
    is_of_client = " OR ".join("model LIKE ?" for _ in CLIENT_OVERHEAD_TOKENS)
    patterns = [f"{name}:%" for name in CLIENT_OVERHEAD_TOKENS]
    query = f"SELECT count(*) FROM call WHERE at_s >= ? AND ({is_of_client})"
    ((n_calls,),) = db.execute(query, (bounds.day_at.timestamp(), *patterns))
    if n_calls < caps.day_client_calls:
        return ""
    free_text = f"available again {bounds.next_day_at:%Y-%m-%d %H:%M}"
    return f"models.caps.day_client_calls: {n_calls} of {caps.day_client_calls} calls made; {free_text}"


def _sum_periods(db: apsw.Connection, job: str, now: datetime) -> dict[str, Spending]:
    bounds = find_periods(now)
    day_s, month_s = bounds.day_at.timestamp(), bounds.month_at.timestamp()
    query = f"SELECT {_SUM_SQL} FROM call WHERE at_s >= ?"
    return {
        "job": _sum_calls(db, f"{query} AND job = ?", (day_s, job)),
        "day": _sum_calls(db, query, (day_s,)),
        "month": _sum_calls(db, query, (month_s,)),
    }


def _sum_calls(db: apsw.Connection, query: str, values: tuple[float | str, ...]) -> Spending:
    (row,) = db.execute(query, values)
    return Spending(*row)
