"""Amounts as people read them."""

from __future__ import annotations


def size(n_bytes: int) -> str:
    """Bytes for people: 1.4 MB."""
    value = float(n_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def plural(n: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
