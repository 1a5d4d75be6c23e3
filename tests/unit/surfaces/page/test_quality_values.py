"""Whether recall got better: by what chance explains, and only of the same questions."""

from datetime import UTC, datetime, timedelta

from perdure.eval.recall_quality import StoredMeasurement, compare_measurements
from perdure.surfaces.web.views.statistics import make_recall_chart, make_verdicts, summarise_quality

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
    assert summarise_quality(times[-1]).endswith(
        "80.0% of what answers a question; better than when it was measured before."
    )
    assert summarise_quality(times[0]).endswith("50.0% of what answers a question.")


def test_chart_shows_measurements_of_the_same_questions():
    times = make_verdicts(
        [measured(0.5, 0.4, 0.6), measured(0.9, 0.8, 1, questions="q2"), measured(0.8, 0.7, 0.9, days=2)]
    )
    found = make_recall_chart(times)
    assert [numbers for _, numbers in found.rows] == [("50.0%", "40.0%"), ("80.0%", "70.0%")]
    assert make_recall_chart(times[:2]) is None
