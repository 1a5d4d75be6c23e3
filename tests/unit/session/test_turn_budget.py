"""What one message may cost."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from perdure.formats.perdure import Message, UsageEntry
from perdure.session.turn_budget import TurnBudget, TurnSpending


def spend(*usages: UsageEntry) -> TurnSpending:
    spending = TurnSpending()
    for usage in usages:
        spending.add(Message(id="e1", timestamp=datetime(2026, 1, 1, tzinfo=UTC), role="assistant", usage=usage))
    return spending


@pytest.mark.parametrize(("budget", "expected"), [
    (TurnBudget(), ""),
    (TurnBudget(max_turns=3), ""),
    (TurnBudget(max_turns=2), "max_turns = 2"),
    (TurnBudget(max_tokens=31), ""),
    (TurnBudget(max_tokens=30), "max_tokens = 30 (30 spent)"),
    (TurnBudget(max_money=0.31), ""),
    (TurnBudget(max_money=0.3), "max_money = 0.3 (0.3000 spent)"),
    (TurnBudget(max_s=5), "max_s = 5"),
    (TurnBudget(max_s=6), ""),
])  # fmt: skip
def test_a_limit_is_found(budget: TurnBudget, expected: str) -> None:
    """Two answers: 10 + 5 tokens for 0.1, and 1 + 4 + 8 + 2 for 0.2; 5.5 seconds."""
    spending = spend(
        UsageEntry(n_input=10, n_output=5, money=0.1),
        UsageEntry(n_input=1, n_output=4, n_cache_read=8, n_cache_write=2, money=0.2),
    )
    assert spending.find_spent(budget, took_s=5.5) == expected


def test_a_price_that_is_unknown_ends_a_budget_of_money() -> None:
    assert "no price" in spend(UsageEntry(n_output=1)).find_spent(TurnBudget(max_money=1))
