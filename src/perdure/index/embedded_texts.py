"""Read the texts that are embedded for chunks. It imports no numpy.

A short turn ("yes, the second one") says little alone, so the end of what somebody else said before it in its thread is
embedded with it, no more than its own words (docs/evaluation/recall.md, context vectors). Nothing records which turn
that was: it is found by position, so whoever inserts, moves or deletes a turn drops the vectors of the turn after it
(`write.py`), and the next embedding makes them anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from perdure.index.encoding import build_embedded_text
from perdure.index.store import IndexConnection

SHORT_CHARS = 400  # a text of this length or longer is embedded alone
MIN_BEFORE_CHARS, MAX_BEFORE_CHARS = 20, 200  # of the end of the turn before it; no longer than the text itself

_CHUNKS = """SELECT chunk.id, turn.author, turn.role, turn.speaker, chunk.stated_ms, text, chunk.kind, turn.thread,
    turn.offset
  FROM chunk JOIN chunk_text ON chunk_text.id = chunk.id LEFT JOIN turn ON turn.id = chunk.turn
  WHERE chunk.id IN ({})"""  # a memory has no turn
_BEFORE = """SELECT before.role, before.speaker, text FROM
    (SELECT id, role, speaker FROM turn WHERE thread = ? AND offset < ? AND said ORDER BY offset DESC LIMIT 1) AS before
  JOIN chunk ON chunk.turn = before.id AND chunk.kind = ? JOIN chunk_text ON chunk_text.id = chunk.id
  ORDER BY chunk.n DESC LIMIT 1"""


_HAS_NEW = """SELECT EXISTS (SELECT 1 FROM slab
  WHERE user = ?1 AND n_rows > 0 AND listed < (SELECT coalesce(max(id), 0) FROM chunk WHERE user = ?1))"""


def has_new_chunks(index: IndexConnection, user: str) -> bool:
    """Return True if anything of this user came in since their missing vectors were listed."""
    number = index.find_name("user", user)
    return number is not None and bool(index.select(_HAS_NEW, number)[0][0])


class EmbeddedText(NamedTuple):
    """The text that is embedded for a chunk."""

    text: str
    text_alone: str  # without the end of the turn before it, as earlier releases embedded it
    is_short: bool  # True if the end of the turn before it belongs to it


def read_embedded_texts(index: IndexConnection, chunks: Sequence[int]) -> dict[int, EmbeddedText]:
    """Return the text that is embedded for each of these chunks; chunks that are gone by now are left out."""
    said_kind = index.find_name("kind", "text")
    texts: dict[int, EmbeddedText] = {}
    rows = index.select_in(_CHUNKS, chunks)
    for chunk, author, role, speaker, stated_ms, text, kind, thread, offset in rows:
        is_short = thread is not None and kind == said_kind and len(text) < SHORT_CHARS
        rows_before = index.select(_BEFORE, thread, offset, said_kind) if is_short else ()
        n_before = max(MIN_BEFORE_CHARS, min(MAX_BEFORE_CHARS, len(text)))
        before = "".join(
            f"{role_before}: {words[-n_before:]}"
            for role_before, speaker_before, words in rows_before
            if (role_before, speaker_before) != (role, speaker)
        )
        texts[chunk] = EmbeddedText(
            build_embedded_text(author, role, stated_ms, text, before=before),
            build_embedded_text(author, role, stated_ms, text),
            is_short,
        )
    return texts
