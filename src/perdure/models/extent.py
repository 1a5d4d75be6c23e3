"""How much of a chunk gets a vector; the figures are in docs/decisions/009-embedders.md. Pure.

A text that a person typed is embedded whole. Of everything else (an agent's answer, a thought, a tool
call, an output) only the beginning is embedded, which tells its subject: with more, long texts push
short ones out of the ten nearest. The rest can still be found by its words.
"""

from __future__ import annotations

from perdure.types import Author

HEAD_CHARS = 400  # about 100 tokens; 20 ms of one core


def count_embedded_chars(author: Author, chunk: int) -> int | None:
    """Return how many characters from the start of a chunk to embed: 0 for none, None for all.

    chunk: the chunk's number in its part of the turn, from 0; later chunks of a part repeat the same subject.

    >>> count_embedded_chars("person", 3), count_embedded_chars("agent", 0), count_embedded_chars("tool", 1)
    (None, 400, 0)
    """
    if author == "person":
        return None
    return HEAD_CHARS if chunk == 0 else 0
