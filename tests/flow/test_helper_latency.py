"""The scripted helper of the latency benchmark keeps its time and fits the schema of a plan."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from perdure.recall.plan import plan, plan_with_model

latency = pytest.importorskip("benchmarks.latency", reason="the benchmarks are not here (run from the checkout)")
PLAN = plan("which port does staging use", now=datetime(2026, 1, 1, tzinfo=UTC))


def test_helper_in_time_plans_the_queries() -> None:
    better_plan, has_failed = plan_with_model(PLAN, latency.DelayedHelper(0.0), timeout_s=1.0)
    assert better_plan.by_model and not has_failed
    assert better_plan.queries == ("which port does staging use", "which port", "does staging use")


def test_helper_that_is_late_leaves_the_plan_of_the_rules() -> None:
    assert plan_with_model(PLAN, latency.DelayedHelper(9.0), timeout_s=0.01) == (PLAN, True)
