"""The meter and the caps: sums worked out by hand, several processes, lost and damaged files."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from perdure.config import CapsConfig, PriceConfig
from perdure.errors import BudgetSpent, MeterFault
from perdure.models.chat import TokenUsage
from perdure.models.cost_meter import (
    KEPT_DAYS,
    EstimateError,
    Meter,
    ModelCall,
    Spending,
    compute_money,
    find_periods,
)
from perdure.sqlite import apsw

ZONE = timezone(timedelta(hours=9))
NOON = datetime(2026, 12, 31, 12, 30, tzinfo=ZONE)
MINE = ModelCall("mine", "miner", "openai:m-1")
NO_CAPS = CapsConfig()


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def meter(tmp_path: Path, clock: Clock) -> Meter:
    return Meter(tmp_path, now=clock)


def spend(
    meter: Meter, n_tokens: int, cost: float | None = None, asked: ModelCall = MINE, caps: CapsConfig = NO_CAPS
) -> None:
    call = meter.begin(asked, TokenUsage(n_tokens), cost, caps)
    meter.end(call, TokenUsage(n_tokens), cost, took_ms=5, outcome="done")


def test_call_has_its_price() -> None:
    """1,000 at 3 + 4,000 from the cache at 0.3 + 2,000 into it at 3.75 + 200 out at 15, a million each:
    0.003 + 0.0012 + 0.0075 + 0.003 = 0.0147.
    """
    price = PriceConfig(3.0, 15.0, cache_read=0.3, cache_write=3.75)
    assert compute_money(TokenUsage(1000, 200, 4000, 2000), price) == 0.0147
    assert (
        compute_money(TokenUsage(1000, 200, 4000, 2000), PriceConfig(3.0, 15.0)) == 0.024
    )  # 7,000 at 3, and 200 at 15
    assert (
        compute_money(TokenUsage(1000, 200), None) is None and compute_money(TokenUsage(1000, 200), PriceConfig()) == 0
    )


@pytest.mark.parametrize(
    ("now", "day", "month", "next_day", "next_month"),
    [
        ((2026, 1, 31, 23, 59), (2026, 1, 31), (2026, 1, 1), (2026, 2, 1), (2026, 2, 1)),
        ((2028, 2, 29, 0, 0), (2028, 2, 29), (2028, 2, 1), (2028, 3, 1), (2028, 3, 1)),
        ((2026, 12, 5, 12, 0), (2026, 12, 5), (2026, 12, 1), (2026, 12, 6), (2027, 1, 1)),
    ],
)
def test_periods_are_days_and_months(now: tuple[int, ...], day, month, next_day, next_month) -> None:
    wanted = tuple(datetime(*parts, tzinfo=ZONE) for parts in (day, month, next_day, next_month))
    assert tuple(find_periods(datetime(*now, tzinfo=ZONE))) == wanted  # type: ignore[misc, arg-type]


def test_reading_creates_no_file(meter: Meter, tmp_path: Path) -> None:
    assert (
        meter.read_spending("mine") == dict.fromkeys(("job", "day", "month"), Spending())
        and meter.read_spending_by_job() == {}
    )
    assert list(tmp_path.iterdir()) == []


def test_sums_by_job_day_and_month(meter: Meter, clock: Clock) -> None:
    spend(meter, 100, 0.5)
    spend(meter, 20, None)
    spend(meter, 3, 0.25, ModelCall("models", "helper", "gguf:x"))
    assert meter.read_spending("mine") == {
        "job": Spending(2, 120, 0.5, 1), "day": Spending(3, 123, 0.75, 1), "month": Spending(3, 123, 0.75, 1),
    }  # fmt: skip
    assert meter.read_spending_by_job() == {
        MINE: Spending(2, 120, 0.5, 1),
        ModelCall("models", "helper", "gguf:x"): Spending(1, 3, 0.25, 0),
    }
    clock.now = NOON - timedelta(days=1)  # still in December
    assert meter.read_spending("mine")["month"] == Spending(3, 123, 0.75, 1)
    clock.now = NOON + timedelta(hours=12)  # the first of January
    assert meter.read_spending("mine") == dict.fromkeys(("job", "day", "month"), Spending())


def test_sums_are_apart_by_effort(meter: Meter) -> None:
    low, high = (ModelCall("mine", "miner", "openai:m-1", effort) for effort in ("low", "high"))
    for n_tokens, asked in ((100, low), (20, low), (900, high)):
        spend(meter, n_tokens, asked=asked)
    assert list(meter.read_spending_by_job().items()) == [
        (high, Spending(1, 900, 0.0, 1)),
        (low, Spending(2, 120, 0.0, 2)),
    ]


def test_estimates_are_compared_with_the_reports(meter: Meter) -> None:
    """Estimated 100 + 60, reported (80 + 30) + 50: 160 of 160, no error. The third call reported nothing."""
    for n_estimated, usage in ((100, TokenUsage(80, 9, 20, 10)), (60, TokenUsage(50, 1)), (None, TokenUsage(7, 7))):
        call = meter.begin(MINE, usage, None, NO_CAPS)
        meter.end(call, usage, None, took_ms=5, outcome="done", n_estimated_input=n_estimated)
    assert meter.read_estimate_errors() == {MINE.model: (2, 160, 160)}
    assert EstimateError(1, 110, 100).share == pytest.approx(0.1)
    assert EstimateError(1, 5, 0).share == 5.0


OLD_TABLE = """
CREATE TABLE call(
  id INTEGER PRIMARY KEY, at_s REAL NOT NULL, job TEXT NOT NULL, role TEXT NOT NULL, model TEXT NOT NULL,
  n_input INTEGER NOT NULL, n_output INTEGER NOT NULL, n_cache_read INTEGER NOT NULL, n_cache_write INTEGER NOT NULL,
  money REAL, took_ms REAL, outcome TEXT NOT NULL);
"""
OLD_INSERT = "INSERT INTO call VALUES(NULL, ?, 'mine', 'miner', 'openai:m-1', 5, 0, 0, 0, NULL, NULL, 'open')"


def test_file_of_an_earlier_version_goes_on_in_both(meter: Meter, tmp_path: Path) -> None:
    """Its calls have no effort; and that version can still write, because its table is as it was."""
    (tmp_path / "run").mkdir()
    old = apsw.Connection(str(tmp_path / "run" / "meter.db"))
    old.execute(OLD_TABLE)
    old.execute(OLD_INSERT, (NOON.timestamp(),))
    spend(meter, 9)
    old.execute(OLD_INSERT, (NOON.timestamp(),))
    assert meter.read_spending_by_job() == {MINE: Spending(3, 19, 0.0, 3)} and meter.read_estimate_errors() == {}
    old.close()


CAPPED = [
    ("job_tokens", 100, "100 of 150 spent, and this call can cost 60; available again 2027-01-01 00:00"),
    ("day_tokens", 100, "100 of 150 spent, and this call can cost 60; available again 2027-01-01 00:00"),
    ("month_tokens", 100, "100 of 150 spent, and this call can cost 60; available again 2027-01-01 00:00"),
]


@pytest.mark.parametrize(("cap", "spent", "said"), CAPPED)
def test_cap_names_its_limit_and_its_end(meter: Meter, cap: str, spent: int, said: str) -> None:
    caps = CapsConfig(**{cap: 150})
    spend(meter, spent, caps=caps)
    with pytest.raises(BudgetSpent) as caught:
        meter.begin(MINE, TokenUsage(10, 50), None, caps)
    assert caught.value.detail == f"models.caps.{cap}: {said}"
    spend(meter, 50, caps=caps)  # what still fits is asked


def test_cap_in_money_stops_the_call(meter: Meter, clock: Clock) -> None:
    clock.now = datetime(2026, 12, 5, 12, tzinfo=ZONE)
    caps = CapsConfig(month_money=2)
    spend(meter, 9, 1.5, caps=caps)
    clock.now += timedelta(days=20)
    with pytest.raises(
        BudgetSpent, match=r"month_money: 1\.5000 of 2 spent, and this call can cost 0\.6000; .* 2027-01-01"
    ):
        meter.begin(MINE, TokenUsage(9), 0.6, caps)
    spend(meter, 9, 0.5, caps=caps)
    clock.now = datetime(2027, 1, 1, tzinfo=ZONE)
    spend(meter, 9, 2, caps=caps)


def test_job_has_its_own_cap(meter: Meter) -> None:
    caps = CapsConfig(job_tokens=100)
    spend(meter, 100, asked=ModelCall("other", "miner", "m"), caps=caps)
    spend(meter, 100, caps=caps)
    with pytest.raises(BudgetSpent, match="job_tokens"):
        spend(meter, 1, caps=caps)


def test_running_call_counts_at_its_maximum(meter: Meter) -> None:
    caps = CapsConfig(day_tokens=100)
    call = meter.begin(MINE, TokenUsage(10, 70), None, caps)
    with pytest.raises(BudgetSpent):
        meter.begin(MINE, TokenUsage(21), None, caps)
    meter.end(call, TokenUsage(10, 5), None, took_ms=1, outcome="done")
    spend(meter, 85, caps=caps)


def test_old_calls_are_dropped(meter: Meter, clock: Clock, tmp_path: Path) -> None:
    spend(meter, 1)
    clock.now = NOON + timedelta(days=KEPT_DAYS + 1)
    spend(meter, 2)
    clock.now = NOON
    assert meter.read_spending()["month"] == Spending(1, 2, 0.0, 1)


def test_a_lost_or_damaged_file_begins_again(meter: Meter, tmp_path: Path) -> None:
    spend(meter, 5)
    place = tmp_path / "run" / "meter.db"
    assert place.stat().st_mode & 0o777 == 0o600
    place.write_bytes(b"not a database, whatever it is" * 100)
    spend(meter, 7)
    assert meter.read_spending()["day"].n_tokens == 7
    place.unlink()
    assert meter.read_spending()["day"] == Spending()


def test_damage_within_the_file_is_found_once(meter: Meter, tmp_path: Path) -> None:
    for _ in range(200):
        spend(meter, 5)
    place = tmp_path / "run" / "meter.db"
    raw = place.read_bytes()
    place.write_bytes(raw[:4096] + b"\xff" * (len(raw) - 4096))
    with pytest.raises(MeterFault):
        spend(meter, 7)
    spend(meter, 7)
    assert meter.read_spending()["day"].n_tokens == 7


def test_unwritable_meter_stops_the_call(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "run").write_text("a file where a folder should be")
    with pytest.raises(MeterFault, match=r"meter\.db"):
        Meter(tmp_path, now=clock).begin(MINE, TokenUsage(1), None, NO_CAPS)


RACE = """
import sys
from datetime import datetime, UTC
from pathlib import Path
from perdure.config import CapsConfig
from perdure.errors import BudgetSpent
from perdure.models.chat import TokenUsage
from perdure.models.cost_meter import Meter, ModelCall
meter = Meter(Path(sys.argv[1]), now=lambda: datetime(2026, 12, 31, 12, tzinfo=UTC))
n = 0
for _ in range(40):
    try:
        call = meter.begin(ModelCall("mine", "miner", "m"), TokenUsage(10), None, CapsConfig(day_tokens=500))
    except BudgetSpent:
        continue
    n += 1
    meter.end(call, TokenUsage(10), None, took_ms=1, outcome="done")
print(n)
"""


def test_several_processes_keep_a_cap_together(tmp_path: Path) -> None:
    words = [sys.executable, "-c", RACE, str(tmp_path)]
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [process.communicate()[0] for process in running]
    done = [int(output) for output in outputs]
    assert sum(done) == 50, done  # of 120 tried, 500 tokens allow for 50


KILLED = """
import os
import signal
meter.begin(ModelCall("mine", "miner", "m"), TokenUsage(10, 90), 0.5, CapsConfig())
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_recorded_call_survives_a_kill(tmp_path: Path) -> None:
    made, _, _ = RACE.partition("n = 0")
    done = subprocess.run([sys.executable, "-c", made + KILLED, str(tmp_path)], check=False)
    assert done.returncode == -9
    found = Meter(tmp_path, now=lambda: datetime(2026, 12, 31, 12, tzinfo=ZONE))
    assert found.read_spending()["month"] == Spending(1, 100, 0.5, 0)
