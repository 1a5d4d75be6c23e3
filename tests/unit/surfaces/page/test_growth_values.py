"""What the charts of growth are made of."""

from datetime import UTC, date, datetime, timedelta

from perdure.index.injections import UsageWeek
from perdure.index.statistics import Growth, MonthGrowth
from perdure.service.health import AnswerLogEntry
from perdure.surfaces.web.views.statistics import (
    MAX_MONTHS,
    MIN_MONTHS,
    GrowthCounts,
    fill_months,
    make_panels,
    summarise_growth,
)

TODAY = date(2026, 3, 18)  # a Wednesday
NOTHING = GrowthCounts(Growth([], {}), {}, (), ())


def answered(day, outcome, took_ms):
    at = datetime(2026, 3, day, 12, tzinfo=UTC).isoformat()
    return AnswerLogEntry("answered", at, "prompt", outcome, took_ms, "ada")


def chart(counted, name):
    return next(one for one in make_panels(counted, TODAY) if one.name == name)


def rows(counted, name):
    return dict(chart(counted, name).chart.rows)


def test_months_have_no_gaps_and_a_bounded_count():
    found = fill_months([MonthGrowth("2025-11", 1), MonthGrowth("2026-02", 2)])
    assert [month.month for month in found] == ["2025-09", "2025-10", "2025-11", "2025-12", "2026-01", "2026-02"]
    assert [month.n_runs for month in found] == [0, 0, 1, 0, 0, 2] and len(found) == MIN_MONTHS
    long = fill_months([MonthGrowth("2020-01"), MonthGrowth("2026-02")])
    assert len(long) == MAX_MONTHS and long[0].month == "2024-03"
    assert fill_months([]) == []


def test_the_archive_is_summed_up_month_by_month():
    months = [MonthGrowth("2026-01", 1, 10, 1000), MonthGrowth("2026-03", 2, 20, 500)]
    counted = GrowthCounts(Growth(months, {}), {"2026-03": 7}, (), ())
    assert rows(counted, "archive")["2026-02"] == ("1.0 kB",) and rows(counted, "archive")["2026-03"] == ("1.5 kB",)
    assert rows(counted, "turns")["2026-03"] == ("20", "7")
    assert summarise_growth(counted) == "30 turns in 3 runs since 2026-01, 1.5 kB as they were captured."


def test_use_is_the_share_of_judged_cues():
    """7 + 3 cues of the one week and 2 of the other were looked at; 4 + 1 and 1 of them were used: 6 of 12, a half."""
    weeks = [UsageWeek(date(2026, 3, 9), 6, 7, 3, 4, 1, 2), UsageWeek(date(2026, 3, 16), 1, 2, 0, 1, 0, 0)]
    counted = GrowthCounts(NOTHING.growth, {}, weeks, ())
    assert chart(counted, "use").note.startswith("50% of 12 were used.")
    assert rows(counted, "use")["2026-03-09"] == ("10", "5") and rows(counted, "use")["2026-03-02"] == ("0", "0")


def test_silence_and_latency_count_only_answered_messages():
    """On the 17th: 3 of 4 silent; took 10, 20, 30 and 40 ms, so half lie at 20 or below and 95 % at 40 or below."""
    lines = [answered(17, "silent", 10 * n) for n in (1, 2, 3)] + [answered(17, "injected", 40)]
    lines += [answered(17, "skipped", 9000), answered(10, "injected", 5)]
    counted = GrowthCounts(NOTHING.growth, {}, (), tuple(lines))
    assert rows(counted, "silence")["2026-03-16"] == ("75%",)
    assert rows(counted, "silence")["2026-03-09"] == ("0%",)
    assert rows(counted, "silence")["2026-03-02"] == ("–",)
    assert rows(counted, "latency")["2026-03-17"] == ("20 ms", "40 ms")
    assert rows(counted, "latency")[str(TODAY)] == ("–", "–")


def test_chart_without_numbers_gives_a_hint():
    for one in make_panels(NOTHING, TODAY):
        assert one.chart is None and one.hint
    assert summarise_growth(NOTHING) == ""


def test_memories_of_every_week_are_shown():
    counted = GrowthCounts(Growth([], {TODAY - timedelta(days=2): 4}), {}, (), ())
    assert rows(counted, "memories")["2026-03-16"] == ("4",) and rows(counted, "memories")["2026-03-09"] == ("0",)
