"""The charts of growth and of recall quality, and the cache of their figures."""

from datetime import UTC, date, datetime, timedelta

from perdure.eval.recall_quality import StoredMeasurement, compare_measurements
from perdure.index.injections import UsageWeek
from perdure.index.statistics import Growth, MonthGrowth
from perdure.report.answers import AnswerLogEntry
from perdure.surfaces.web.views.statistics import (
    MAX_MONTHS,
    MIN_MONTHS,
    GrowthCounts,
    TtlCache,
    fill_months,
    make_panels,
    make_recall_chart,
    make_verdicts,
    summarise_growth,
    summarise_quality,
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
    assert summarise_growth(counted) == "30 turns in 3 runs since 2026-01, 1.5 kB captured."


def test_use_is_the_share_of_judged_cues():
    """7 + 3 cues of the one week and 2 of the other were looked at; 4 + 1 and 1 of them were used: 6 of 12, a half."""
    weeks = [UsageWeek(date(2026, 3, 9), 6, 7, 3, 4, 1, 2), UsageWeek(date(2026, 3, 16), 1, 2, 0, 1, 0, 0)]
    counted = GrowthCounts(NOTHING.growth, {}, weeks, ())
    assert chart(counted, "use").note.startswith("50% of 12 cues were used.")
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


BEGUN = datetime(2026, 3, 1, tzinfo=UTC)


def measured(at, low, high, *, days=0, questions="q1"):
    figures = {
        "interval": {"R@10": {"at": at, "low": low, "high": high}},
        "systems": {"recall": {"R@10": at, "nDCG@10": at - 0.1}},
    }
    return StoredMeasurement(BEGUN + timedelta(days=days), "0.1", "m", "laptop", questions, figures)


def test_change_within_chance_is_the_same():
    now = measured(0.8, 0.75, 0.85)
    assert compare_measurements(measured(0.74, 0.7, 0.8), now) == "better"
    assert compare_measurements(measured(0.75, 0.7, 0.8), now) == "the same"
    assert compare_measurements(measured(0.86, 0.8, 0.9), now) == "worse"


def test_measurement_is_compared_with_the_last_of_same_questions():
    times = make_verdicts([
        measured(0.5, 0.4, 0.6), measured(0.9, 0.85, 0.95, questions="q2"), measured(0.8, 0.7, 0.9, days=2),
    ])  # fmt: skip
    assert [one.than for one in times] == ["", "", "better"]
    assert summarise_quality(times[-1]).endswith("80.0% of the evidence; better than the last measurement.")
    assert summarise_quality(times[0]).endswith("50.0% of the evidence.")


def test_chart_shows_measurements_of_the_same_questions():
    times = make_verdicts(
        [measured(0.5, 0.4, 0.6), measured(0.9, 0.8, 1, questions="q2"), measured(0.8, 0.7, 0.9, days=2)]
    )
    found = make_recall_chart(times)
    assert [numbers for _, numbers in found.rows] == [("50.0%", "40.0%"), ("80.0%", "70.0%")]
    assert make_recall_chart(times[:2]) is None


def test_value_is_reused_until_it_expires():
    now = [0.0]
    fresh, made = TtlCache(max_age_s=60, now_s=lambda: now[0]), []

    def make():
        made.append(now[0])
        return len(made)

    assert fresh.get_or_make("ada", make) == 1
    now[0] = 59.9
    assert fresh.get_or_make("ada", make) == 1
    now[0] = 60.0
    assert fresh.get_or_make("ada", make) == 2 and made == [0.0, 60.0]


def test_value_of_one_user_is_not_given_to_another():
    fresh = TtlCache(now_s=lambda: 0.0)
    assert (fresh.get_or_make("ada", lambda: "ada's"), fresh.get_or_make("bob", lambda: "bob's")) == ("ada's", "bob's")


def test_number_of_kept_values_is_limited():
    fresh = TtlCache(now_s=lambda: 0.0)
    for n in range(40):
        fresh.get_or_make(n, lambda n=n: n)
    assert fresh.get_or_make(39, lambda: "again") == 39
    assert fresh.get_or_make(0, lambda: "again") == "again"
