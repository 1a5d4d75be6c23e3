"""The status bar: counts are never rounded up, and the colour follows the warning of the session."""

from __future__ import annotations

import pytest

from perdure.surfaces.chat.status_bar import SessionStatus, list_pieces


@pytest.mark.parametrize(
    ("n_tokens", "window", "shown"),
    [
        (0, 128_000, "tokens: 0/128k (0%)"),
        (999, 8192, "tokens: 999/8k (12%)"),
        (89_599, 128_000, "tokens: 89k/128k (69%)"),
        (89_600, 128_000, "tokens: 89k/128k (70%)"),
        (108_800, 128_000, "tokens: 108k/128k (85%)"),
        (130_000, 128_000, "tokens: 130k/128k (101%)"),
    ],
)
def test_tokens(n_tokens: int, window: int, shown: str) -> None:
    status = SessionStatus("s", n_tokens, window, "openai:m", is_high=n_tokens >= 0.7 * window)
    colour, text = list_pieces(status)[0]
    assert (text, colour) == (shown, "yellow" if n_tokens >= 0.7 * window else "green")


def test_activity_cost_and_mode_stand_beside_the_model() -> None:
    status = SessionStatus("s", 1, 10, "m", money=0.5, activity="compressing…", mode="plan", tools="no sandbox")
    assert [(colour, text) for colour, text in list_pieces(status)][1:] == [
        ("yellow", " compressing…"), ("", " · cost 0.5000"), ("", " · m"), ("yellow", " · plan"),
        ("yellow", " · no sandbox"),
    ]  # fmt: skip
