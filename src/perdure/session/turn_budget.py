"""How much one message of a person may cost: answers, tokens, money and time. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.formats.perdure import Message


@dataclass(frozen=True)
class TurnBudget:
    """The limits of one message; 0 is no limit."""

    max_turns: int = 0  # answers of the model
    max_tokens: int = 0  # of all answers, what the model reads included
    max_money: float = 0.0  # in the currency of `models.prices`
    max_s: float = 0.0  # seconds from the message on


@dataclass
class TurnSpending:
    """What the answers to one message have cost so far."""

    n_turns: int = 0
    n_tokens: int = 0
    money: float | None = 0.0  # None: the price of an answer is unknown

    def add(self, answer: Message) -> None:
        """Count an answer of the model."""
        self.n_turns += 1
        if usage := answer.usage:
            self.n_tokens += usage.n_input + usage.n_output + usage.n_cache_read + usage.n_cache_write
            self.money = None if self.money is None or usage.money is None else self.money + usage.money

    def find_spent(self, budget: TurnBudget, *, took_s: float = 0.0) -> str:
        """Return the limit that leaves no room for another answer; "" if there is room.

        >>> TurnSpending(n_turns=3).find_spent(TurnBudget(max_turns=3))
        'max_turns = 3'
        """
        if budget.max_turns and self.n_turns >= budget.max_turns:
            return f"max_turns = {budget.max_turns}"
        if budget.max_tokens and self.n_tokens >= budget.max_tokens:
            return f"max_tokens = {budget.max_tokens} ({self.n_tokens:,} spent)"
        if budget.max_money and self.money is None:
            return f"max_money = {budget.max_money:g} (models.prices has no price for this model)"
        if budget.max_money and self.money is not None and self.money >= budget.max_money:
            return f"max_money = {budget.max_money:g} ({self.money:.4f} spent)"
        return f"max_s = {budget.max_s:g}" if budget.max_s and took_s >= budget.max_s else ""
