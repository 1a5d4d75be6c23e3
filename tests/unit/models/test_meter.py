"""The meter and the caps: sums worked out by hand, several processes, lost and damaged files."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from perdure.config import CapsConfig, PriceConfig
from perdure.errors import BudgetSpent, MeterFault
from perdure.models.chat import Usage
from perdure.models.meter.caps import Spent, money, periods
from perdure.models.meter.store import KEPT_DAYS, Asked, Meter

ZONE = timezone(timedelta(hours=9))
NOON = datetime(2026, 12, 31, 12, 30, tzinfo=ZONE)
MINE = Asked("mine", "miner", "openai:m-1")
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
    meter: Meter, n_tokens: int, cost: float | None = None, asked: Asked = MINE, caps: CapsConfig = NO_CAPS
) -> None:
    call = meter.begin(asked, Usage(n_tokens), cost, caps)
    meter.end(call, Usage(n_tokens), cost, took_ms=5, outcome="done")


def test_what_a_call_costs() -> None:
    """1,000 at 3 + 4,000 from the cache at 0.3 + 2,000 into it at 3.75 + 200 out at 15, a million each:
    0.003 + 0.0012 + 0.0075 + 0.003 = 0.0147.
    """
    price = PriceConfig(3.0, 15.0, cache_read=0.3, cache_write=3.75)
    assert money(Usage(1000, 200, 4000, 2000), price) == 0.0147
    assert money(Usage(1000, 200, 4000, 2000), PriceConfig(3.0, 15.0)) == 0.024  # 7,000 at 3, and 200 at 15
    assert money(Usage(1000, 200), None) is None and money(Usage(1000, 200), PriceConfig()) == 0


@pytest.mark.parametrize(
    ("now", "day", "month", "next_day", "next_month"),
    [
        ((2026, 1, 31, 23, 59), (2026, 1, 31), (2026, 1, 1), (2026, 2, 1), (2026, 2, 1)),
        ((2028, 2, 29, 0, 0), (2028, 2, 29), (2028, 2, 1), (2028, 3, 1), (2028, 3, 1)),
        ((2026, 12, 5, 12, 0), (2026, 12, 5), (2026, 12, 1), (2026, 12, 6), (2027, 1, 1)),
    ],
)
def test_days_and_months(now: tuple[int, ...], day, month, next_day, next_month) -> None:
    wanted = tuple(datetime(*parts, tzinfo=ZONE) for parts in (day, month, next_day, next_month))
    assert tuple(periods(datetime(*now, tzinfo=ZONE))) == wanted  # type: ignore[misc, arg-type]


def test_nothing_is_made_by_looking(meter: Meter, tmp_path: Path) -> None:
    assert meter.spent("mine") == dict.fromkeys(("job", "day", "month"), Spent()) and meter.by_job() == {}
    assert list(tmp_path.iterdir()) == []


def test_sums_by_job_day_and_month(meter: Meter, clock: Clock) -> None:
    spend(meter, 100, 0.5)
    spend(meter, 20, None)
    spend(meter, 3, 0.25, Asked("models", "helper", "gguf:x"))
    assert meter.spent("mine") == {
        "job": Spent(2, 120, 0.5, 1), "day": Spent(3, 123, 0.75, 1), "month": Spent(3, 123, 0.75, 1),
    }  # fmt: skip
    assert meter.by_job() == {
        ("mine", "miner", "openai:m-1"): Spent(2, 120, 0.5, 1), ("models", "helper", "gguf:x"): Spent(1, 3, 0.25, 0),
    }  # fmt: skip
    clock.now = NOON - timedelta(days=1)  # still in December
    assert meter.spent("mine")["month"] == Spent(3, 123, 0.75, 1)
    clock.now = NOON + timedelta(hours=12)  # the first of January
    assert meter.spent("mine") == dict.fromkeys(("job", "day", "month"), Spent())


CAPPED = [
    ("job_tokens", 100, "100 of 150 spent, and this call may take 60; free again 2027-01-01 00:00"),
    ("day_tokens", 100, "100 of 150 spent, and this call may take 60; free again 2027-01-01 00:00"),
    ("month_tokens", 100, "100 of 150 spent, and this call may take 60; free again 2027-01-01 00:00"),
]


@pytest.mark.parametrize(("cap", "spent", "said"), CAPPED)
def test_a_cap_says_which_how_much_and_until_when(meter: Meter, cap: str, spent: int, said: str) -> None:
    caps = CapsConfig(**{cap: 150})
    spend(meter, spent, caps=caps)
    with pytest.raises(BudgetSpent) as caught:
        meter.begin(MINE, Usage(10, 50), None, caps)
    assert caught.value.detail == f"models.caps.{cap}: {said}"
    spend(meter, 50, caps=caps)  # what still fits is asked


def test_a_cap_in_money(meter: Meter, clock: Clock) -> None:
    clock.now = datetime(2026, 12, 5, 12, tzinfo=ZONE)
    caps = CapsConfig(month_money=2)
    spend(meter, 9, 1.5, caps=caps)
    clock.now += timedelta(days=20)
    with pytest.raises(
        BudgetSpent, match=r"month_money: 1\.5000 of 2 spent, and this call may take 0\.6000; .* 2027-01-01"
    ):
        meter.begin(MINE, Usage(9), 0.6, caps)
    spend(meter, 9, 0.5, caps=caps)
    clock.now = datetime(2027, 1, 1, tzinfo=ZONE)
    spend(meter, 9, 2, caps=caps)


def test_a_jobs_cap_is_its_own(meter: Meter) -> None:
    caps = CapsConfig(job_tokens=100)
    spend(meter, 100, asked=Asked("other", "miner", "m"), caps=caps)
    spend(meter, 100, caps=caps)
    with pytest.raises(BudgetSpent, match="job_tokens"):
        spend(meter, 1, caps=caps)


def test_a_call_that_goes_on_counts_at_its_most(meter: Meter) -> None:
    caps = CapsConfig(day_tokens=100)
    call = meter.begin(MINE, Usage(10, 70), None, caps)
    with pytest.raises(BudgetSpent):
        meter.begin(MINE, Usage(21), None, caps)
    meter.end(call, Usage(10, 5), None, took_ms=1, outcome="done")
    spend(meter, 85, caps=caps)


def test_old_calls_are_dropped(meter: Meter, clock: Clock, tmp_path: Path) -> None:
    spend(meter, 1)
    clock.now = NOON + timedelta(days=KEPT_DAYS + 1)
    spend(meter, 2)
    clock.now = NOON
    assert meter.spent()["month"] == Spent(1, 2, 0.0, 1)


def test_a_lost_or_damaged_file_begins_again(meter: Meter, tmp_path: Path) -> None:
    spend(meter, 5)
    place = tmp_path / "run" / "meter.db"
    assert place.stat().st_mode & 0o777 == 0o600
    place.write_bytes(b"not a database, whatever it is" * 100)
    spend(meter, 7)
    assert meter.spent()["day"].n_tokens == 7
    place.unlink()
    assert meter.spent()["day"] == Spent()


def test_damage_within_the_file_is_found_once(meter: Meter, tmp_path: Path) -> None:
    for _ in range(200):
        spend(meter, 5)
    place = tmp_path / "run" / "meter.db"
    raw = place.read_bytes()
    place.write_bytes(raw[:4096] + b"\xff" * (len(raw) - 4096))
    with pytest.raises(MeterFault):
        spend(meter, 7)
    spend(meter, 7)
    assert meter.spent()["day"].n_tokens == 7


def test_where_nothing_can_be_written_nothing_is_asked(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "run").write_text("a file where a folder should be")
    with pytest.raises(MeterFault, match=r"meter\.db"):
        Meter(tmp_path, now=clock).begin(MINE, Usage(1), None, NO_CAPS)


RACE = """
import sys
from datetime import datetime, UTC
from pathlib import Path
from perdure.config import CapsConfig
from perdure.errors import BudgetSpent
from perdure.models.chat import Usage
from perdure.models.meter.store import Asked, Meter
meter = Meter(Path(sys.argv[1]), now=lambda: datetime(2026, 12, 31, 12, tzinfo=UTC))
n = 0
for _ in range(40):
    try:
        call = meter.begin(Asked("mine", "miner", "m"), Usage(10), None, CapsConfig(day_tokens=500))
    except BudgetSpent:
        continue
    n += 1
    meter.end(call, Usage(10), None, took_ms=1, outcome="done")
print(n)
"""


def test_several_processes_keep_a_cap_together(tmp_path: Path) -> None:
    words = [sys.executable, "-c", RACE, str(tmp_path)]
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    done = [int(process.communicate()[0]) for process in running]
    assert sum(done) == 50, done  # of 120 tried, 500 tokens allow for 50


KILLED = """
import os
import signal
meter.begin(Asked("mine", "miner", "m"), Usage(10, 90), 0.5, CapsConfig())
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_written_survives_its_process(tmp_path: Path) -> None:
    made, _, _ = RACE.partition("n = 0")
    done = subprocess.run([sys.executable, "-c", made + KILLED, str(tmp_path)], check=False)
    assert done.returncode == -9
    found = Meter(tmp_path, now=lambda: datetime(2026, 12, 31, 12, tzinfo=ZONE))
    assert found.spent()["month"] == Spent(1, 100, 0.5, 0)
