"""Amounts as people read them."""

from __future__ import annotations

_VOWELS = "aeiou"


def size(n_bytes: float) -> str:
    """Bytes for people, in three digits or so.

    >>> size(512), size(2_500_000), size(640_000)
    ('512 B', '2.5 MB', '640 kB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.0f} {unit}" if unit == "B" or n_bytes >= 100 else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.1f} TB"


def plural(n: int, noun: str) -> str:
    """A count with its noun.

    >>> plural(1, "run"), plural(1200, "run"), plural(2, "memory"), plural(2, "day")
    ('1 run', '1,200 runs', '2 memories', '2 days')
    """
    if n == 1:
        return f"{n} {noun}"
    is_ies = noun.endswith("y") and noun[-2] not in _VOWELS
    return f"{n:,} {noun[:-1]}ies" if is_ies else f"{n:,} {noun}s"


def going(n: int, noun: str, n_memories: int) -> str:
    """How much of a transcript is forgotten, with the memories that go with it.

    >>> going(2, "item", 1), going(0, "item", 3), going(0, "turn", 0)
    ('2 items and 1 memory', '3 memories', '0 turns')
    """
    counts = [plural(n, noun)] if n or not n_memories else []
    return " and ".join([*counts, *([plural(n_memories, "memory")] if n_memories else [])])
