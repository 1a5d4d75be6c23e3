"""What is known about models by their names: the size of the window, whether they think, whether they take an effort.

Pure. From the providers' pages and the prices of pydantic's genai-prices, August to November 2026. What is not known is
not guessed: another model has a window of 128,000 tokens, and gets no effort unless the settings say so. A window that
is too small costs a compaction; one that is too large is a refused request.
"""

from __future__ import annotations

import re

DEFAULT_WINDOW_TOKENS = 128_000
GGUF_WINDOW_TOKENS = 8192  # of a model in this process: a larger one takes more memory
_WINDOWS = (  # the first that matches the beginning of a name, after a vendor's prefix as in "anthropic/claude-opus-5"
    (r"claude-(opus|sonnet|haiku|fable|mythos)-([6-9]|5)|claude-opus-4-[78]", 1_000_000),
    (r"claude|opus|sonnet|haiku", 200_000),  # the second to fourth as Claude Code names them
    (r"gpt-5(\.\d+)?-chat|gpt-5\.3$", 128_000),
    (r"gpt-5\.[4-9](?!.*(mini|nano))|gpt-4\.1", 1_000_000),
    (r"gpt-5", 400_000),
    (r"o[34](-|$)", 200_000),
    (r"gpt-3\.5", 16_385),
    (r"gpt-4$|gpt-4-0", 8192),
    (r"deepseek-v4|gemini-([2-9]|flash|pro)|kimi-k3", 1_000_000),
    (r"kimi-k2", 262_144),
)
_TOKEN_FACTORS = ((r"claude-[a-z]+-[5-9]", 1.8), (r"claude", 1.4), (r"gpt-5", 1.1))
_EFFORT_MODELS = {
    "anthropic": r"claude-(opus-4-[5-9]|sonnet-4-6|(opus|sonnet|fable|mythos)-[5-9])",
    "openai": r"(gpt-5|o[34])(?!.*(chat|-pro))",
}
_OWN_NAMES = {"anthropic": r"claude-", "openai": r"(ft:)?(gpt-|chatgpt-|codex-|o\d)"}  # at their own addresses
_THINKERS = r"claude-(sonnet|opus|fable|mythos)-[5-9]|(gpt-5|o[134])(?!.*chat)|deepseek-(v4|reasoner)"

# Of the thoughts of one answer, by effort: the seed's budget of 16,000 tokens was 10,000 for thoughts at high effort.
THOUGHT_TOKENS = {"minimal": 1_000, "low": 2_000, "medium": 5_000, "high": 10_000, "xhigh": 20_000, "max": 40_000}
EFFORTS = ("none", *THOUGHT_TOKENS)  # the words of Anthropic and OpenAI
ANSWER_TOKENS = 2_000  # for the answer beside the thoughts


def find_window(provider: str, model: str, setting: int = 0) -> int:
    """Return the size of a model's context window in tokens: the setting, else the one known for that model.

    >>> find_window("openai", "anthropic/claude-sonnet-5"), find_window("openai", "qwen3:4b")
    (1000000, 128000)
    """
    if setting:
        return setting
    if provider == "gguf":
        return GGUF_WINDOW_TOKENS
    name = model.rpartition("/")[2]
    known = (window for pattern, window in _WINDOWS if re.match(pattern, name))
    return next(known, 200_000 if provider == "claude-cli" else DEFAULT_WINDOW_TOKENS)


def find_token_factor(model: str) -> float:
    """Return how many tokens a model's provider counts for one that `text.tokens` estimates. Its name, with or without
    its provider.

    The estimate is fitted to o200k. Claude's tokenizers are others, and a call of a tool has a frame
    (docs/evaluation/tokens.md).

    >>> find_token_factor("anthropic:claude-sonnet-5"), find_token_factor("openai:qwen3:4b")
    (1.8, 1.0)
    """
    name = model.rpartition("/")[2]
    return next((factor for pattern, factor in _TOKEN_FACTORS if re.search(pattern, name)), 1.0)


def takes_effort(provider: str, model: str) -> bool:
    """Return True if a model at its own provider is known to take a word for the effort; others may refuse it."""
    return provider in _EFFORT_MODELS and re.match(_EFFORT_MODELS[provider], model) is not None


def can_be_model(provider: str, name: str) -> bool:
    """Return False for a name that no model at this provider's own address begins with.

    >>> can_be_model("anthropic", "gpt-5"), can_be_model("openai", "gpt-5"), can_be_model("claude-cli", "opus")
    (False, True, True)
    """
    return provider not in _OWN_NAMES or re.match(_OWN_NAMES[provider], name) is not None


def thinks(model: str, *, thinking: str, effort: str) -> bool:
    """Return True if a model writes thoughts with these settings of a role, as far as its name tells."""
    if thinking == "off" or effort == "none":
        return False
    return thinking == "on" or re.match(_THINKERS, model.rpartition("/")[2]) is not None


def find_budget_problem(max_output_tokens: int, *, effort: str) -> str:
    """Return what is wrong with the budget of a model that thinks, "" if nothing is.

    Thoughts count as output, so they and the answer share `max_output_tokens`: it should hold the thoughts of this
    effort (providers take high if none is set) and 2,000 tokens of answer. This is a rule of thumb.

    >>> find_budget_problem(4096, effort="medium")
    'thoughts count as output: at medium effort set max_output_tokens to 7,000 or more, or answers may be cut off'
    """
    wanted_tokens = THOUGHT_TOKENS.get(effort or "high", THOUGHT_TOKENS["high"]) + ANSWER_TOKENS
    if max_output_tokens >= wanted_tokens:
        return ""
    return (
        f"thoughts count as output: at {effort or 'high'} effort set max_output_tokens to {wanted_tokens:,} or more, "
        "or answers may be cut off"
    )
