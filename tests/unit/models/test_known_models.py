"""What is known about models by their names, and the rule for the budget that thoughts and answer share."""

from __future__ import annotations

import pytest

from perdure.models.known_models import (
    find_budget_problem,
    find_token_factor,
    find_window,
    takes_effort,
    thinks,
)


@pytest.mark.parametrize(
    ("provider", "model", "window_tokens"),
    [
        ("anthropic", "claude-sonnet-5", 1_000_000),
        ("anthropic", "claude-opus-4-8", 1_000_000),
        ("anthropic", "claude-opus-4-5-20251101", 200_000),
        ("anthropic", "claude-haiku-4-5", 200_000),
        ("openai", "anthropic/claude-fable-5-1", 1_000_000),
        ("openai", "gpt-5", 400_000),
        ("openai", "gpt-5.4-mini", 400_000),
        ("openai", "gpt-5.6-sol", 1_000_000),
        ("openai", "gpt-5.2-chat-latest", 128_000),
        ("openai", "gpt-4o", 128_000),
        ("openai", "o3-mini", 200_000),
        ("openai", "deepseek-v4-flash", 1_000_000),
        ("openai", "qwen3:4b", 128_000),
        ("claude-cli", "", 200_000),
        ("claude-cli", "sonnet", 200_000),
        ("codex-cli", "", 128_000),
        ("gguf", "~/models/claude.gguf", 8192),
    ],
)
def test_a_known_window_is_that_of_the_model(provider: str, model: str, window_tokens: int) -> None:
    assert find_window(provider, model) == window_tokens
    assert find_window(provider, model, 4096) == 4096


def test_a_default_effort_is_for_models_that_take_one() -> None:
    assert takes_effort("anthropic", "claude-sonnet-5") and takes_effort("anthropic", "claude-opus-4-5")
    assert not takes_effort("anthropic", "claude-haiku-4-5") and not takes_effort("anthropic", "claude-sonnet-4-5")
    assert takes_effort("openai", "gpt-5.4") and takes_effort("openai", "o4-mini")
    assert not any(takes_effort("openai", model) for model in ("gpt-4o", "gpt-5.1-chat-latest", "gpt-5-pro", "o3-pro"))
    assert not takes_effort("gguf", "gpt-5") and not takes_effort("claude-cli", "claude-sonnet-5")


def test_thoughts_are_expected_where_set_or_known() -> None:
    assert thinks("m-1", thinking="on", effort="") and not thinks("m-1", thinking="", effort="high")
    assert thinks("gpt-5.4", thinking="", effort="low") and not thinks("gpt-5.4", thinking="", effort="none")
    assert not thinks("claude-sonnet-5", thinking="off", effort="high")


@pytest.mark.parametrize(
    ("effort", "wanted_tokens"), [("", 12_000), ("high", 12_000), ("medium", 7_000), ("low", 4_000), ("odd", 12_000)]
)
def test_thoughts_and_answer_need_room_for_both(effort: str, wanted_tokens: int) -> None:
    """10,000, 5,000 or 2,000 tokens of thoughts, and 2,000 of answer."""
    assert find_budget_problem(wanted_tokens, effort=effort) == ""
    assert f"max_output_tokens to {wanted_tokens:,} or more" in find_budget_problem(wanted_tokens - 1, effort=effort)
    assert find_budget_problem(16_000, effort=effort) == ""  # the budget of the seed


@pytest.mark.parametrize(
    ("model", "factor"),
    [("claude-sonnet-4-20250514", 1.4), ("anthropic:claude-fable-5", 1.8), ("openai:gpt-5.5", 1.1), ("gguf:x", 1.0)],
)
def test_the_factor_is_that_of_the_tokenizer(model: str, factor: float) -> None:
    assert find_token_factor(model) == factor
