"""How what is kept grew, in a real home: of the user who asks, and of nobody else."""

import json
from datetime import UTC, datetime

import pytest

import perdure
from perdure.index.statistics import MonthGrowth


def line(role, said, at):
    return json.dumps({"role": role, "content": said, "timestamp": at}).encode() + b"\n"


@pytest.fixture
def place(tmp_path):
    place = tmp_path / "home"
    place.mkdir(mode=0o700)
    (place / "config.toml").write_text('machine = "desk"\n[models.embedder]\nkind = "off"\n')
    return place


def test_growth_is_the_users_own_by_month_week_and_machine(place):
    first = line("user", "The quay is wet.", "2026-01-31T23:00:00Z")
    second = line("user", "And now?", "2026-02-01T01:00:00Z") + line("assistant", "Dry.", "2026-02-01T01:01:00Z")
    with perdure.open(place, user="bob") as home:
        home.capture(first * 1, runtime="messages", session="bobs")
        home.remember("Bob's cat is called Miso.", kind="fact", path="cat")
    with perdure.open(place, user="ada") as home:
        home.capture(first, runtime="messages", session="s1")
        home.capture(second, runtime="messages", session="s2")
        home.remember("The gate is green.", kind="fact", path="gate")
        found, brought, now = home.runs.growth(), home.runs.captures_by_machine(), datetime.now(UTC)
    this = f"{now:%Y-%m}"
    months = {month.month: month for month in found.months}
    assert months["2026-01"] == MonthGrowth("2026-01", 1, 1, 0) and months["2026-02"] == MonthGrowth("2026-02", 1, 2, 0)
    assert months[this].n_bytes == len(first) + len(second)
    (monday,) = found.memories
    assert found.memories[monday] == 1 and monday.weekday() == 0 and 0 <= (now.date() - monday).days < 7
    assert list(brought) == ["desk"] and brought["desk"].n_runs == 2
    assert abs((now - brought["desk"].captured_at).total_seconds()) < 60


def test_an_empty_home_has_not_grown(place):
    with perdure.open(place, user="ada") as home:
        found = home.runs.growth()
        assert (found.months, found.memories, home.runs.captures_by_machine()) == ([], {}, {})
