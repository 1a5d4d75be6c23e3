"""The line below the input: how full the model's window is, what goes on, the cost, the model, and what tools may do.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SessionStatus:
    """The state of a session that a person sees."""

    session: str  # its id
    n_tokens: int  # of the next question
    window_tokens: int
    model: str
    is_high: bool = False  # at or over `session.warn_percent` of the window
    money: float | None = None  # None: the price is unknown
    activity: str = ""  # "compressing…"
    mode: str = ""  # what tools may do
    tools: str = ""  # "sandbox", "no sandbox", or "no tools"


def list_pieces(status: SessionStatus) -> list[tuple[str, str]]:
    """Return the pieces of the line with their colour: green, yellow, or "".

    >>> status = SessionStatus("s1", 89_600, 128_000, "openai:m", money=0.5, mode="edits", tools="sandbox")
    >>> [text for _, text in list_pieces(status)]
    ['tokens: 89k/128k (70%)', ' · cost 0.5000', ' · openai:m', ' · edits', ' · sandbox']
    """
    percent = 100 * status.n_tokens // status.window_tokens
    used_text = f"{_format_tokens(status.n_tokens)}/{_format_tokens(status.window_tokens)}"
    pieces = [("yellow" if status.is_high else "green", f"tokens: {used_text} ({percent}%)")]
    if status.activity:
        pieces.append(("yellow", f" {status.activity}"))
    if status.money:
        pieces.append(("", f" · cost {status.money:.4f}"))
    pieces.append(("", f" · {status.model}"))
    if status.mode:
        pieces.append(("yellow" if status.mode in ("plan", "yolo") else "", f" · {status.mode}"))
    return [*pieces, *[("yellow" if status.tools == "no sandbox" else "", f" · {status.tools}")] * bool(status.tools)]


def _format_tokens(n_tokens: int) -> str:
    """Shorten a count as the seed shows it; it is never rounded up, so that 70% is shown from 70% on."""
    return f"{n_tokens // 1000}k" if n_tokens >= 1000 else str(n_tokens)
