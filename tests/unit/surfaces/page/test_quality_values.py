"""Whether recall got better: by what chance explains, and only of the same questions."""

from datetime import UTC, datetime, timedelta

from perdure.eval.kept import Measured, verdict
from perdure.surfaces.page.views.quality import chart, compared, sentence

BEGUN = datetime(2026, 3, 1, tzinfo=UTC)


def measured(at, low, high, *, days=0, questions="q1"):
    figures = {
        "interval": {"R@10": {"at": at, "low": low, "high": high}},
        "systems": {"recall": {"R@10": at, "nDCG@10": at - 0.1}},
    }
    return Measured(BEGUN + timedelta(days=days), "0.1", "m", "laptop", questions, figures)


def test_only_what_chance_does_not_explain_is_better_or_worse():
    now = measured(0.8, 0.75, 0.85)
    assert verdict(measured(0.74, 0.7, 0.8), now) == "better"
    assert verdict(measured(0.75, 0.7, 0.8), now) == "the same"
    assert verdict(measured(0.86, 0.8, 0.9), now) == "worse"


def test_a_time_is_compared_with_the_one_before_that_asked_the_same():
    times = compared([
        measured(0.5, 0.4, 0.6), measured(0.9, 0.85, 0.95, questions="q2"), measured(0.8, 0.7, 0.9, days=2),
    ])  # fmt: skip
    assert [one.than for one in times] == ["", "", "better"]
    assert sentence(times[-1]).endswith("80.0% of what answers a question; better than when it was measured before.")
    assert sentence(times[0]).endswith("50.0% of what answers a question.")


def test_the_chart_is_of_the_same_questions():
    times = compared([measured(0.5, 0.4, 0.6), measured(0.9, 0.8, 1, questions="q2"), measured(0.8, 0.7, 0.9, days=2)])
    found = chart(times)
    assert [numbers for _, numbers in found.rows] == [("50.0%", "40.0%"), ("80.0%", "70.0%")]
    assert chart(times[:2]) is None
