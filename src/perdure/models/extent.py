"""How much of a chunk gets a vector: docs/decisions/009-embedders.md, with the figures. Pure.

Words of people, agents and programs, and thoughts: all of it. A tool call and a tool's output: the head of the first
chunk, which says what was done and how it went. The rest of an output is found by its words alone.
"""

from __future__ import annotations

HEAD_CHARS = 400  # of a call or an output: about 100 tokens


def extent(kind: str, n: int, *, is_cheap: bool = False) -> int | None:
    """How many characters from the start of a chunk to embed: 0 for none, None for all.

    kind: text, thinking, call or result. n: the chunk's place among those of its part, from 0. is_cheap: the embedder
    is the static tier, which can afford everything.

    >>> extent("text", 3), extent("result", 0), extent("result", 1), extent("result", 1, is_cheap=True)
    (None, 400, 0, None)
    """
    if is_cheap or kind not in ("call", "result"):
        return None
    return HEAD_CHARS if n == 0 else 0
