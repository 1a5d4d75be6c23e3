"""How much of a chunk gets a vector: docs/decisions/009-embedders.md, with the figures. Pure.

What a person typed: all of it. Everything else (an agent's answer, a thought, a tool call, an output) by its head,
which says what it is about: with more, long texts push short ones out of the ten nearest. The rest has its words.
"""

from __future__ import annotations

from perdure.types import Author

HEAD_CHARS = 400  # about 100 tokens; 20 ms of one core


def extent(author: Author, n: int) -> int | None:
    """How many characters from the start of a chunk to embed: 0 for none, None for all.

    n: the chunk's place in its part of the turn, from 0; later ones of one part say more of the same.

    >>> extent("person", 3), extent("agent", 0), extent("tool", 1)
    (None, 400, 0)
    """
    if author == "person":
        return None
    return HEAD_CHARS if n == 0 else 0
