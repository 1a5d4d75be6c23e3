"""Read the sentences of a home that may state a value: turns in which a word such as "port" or "version" stands.

A row is one chunk of text that a person or an agent said, as it may be read by its owner; none of a forgotten turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

import msgspec

from perdure.index.encoding import from_ms, to_ms
from perdure.index.store import IndexConnection
from perdure.text import fts_quote

STATING_WORDS = (
    "port version called named renamed decided chose moved switched default uses listens runs lives located instead "
    "branch database endpoint heißt läuft".split()
)  # words beside which people and agents state values
_MAX_OTHERS = 500  # turns from which some are chosen by lot
_MAX_CHUNKS = 2_000  # newest chunks with such a word that are read


class StatedText(NamedTuple):
    """One chunk of a turn that may state a value."""

    turn_id: str
    text: str  # masked
    project: str | None
    conversation: str
    stated_at: datetime | None


_COLUMNS = """turn.turn_id, text, nullif(project.value, ''), conversation.value, turn.stated_ms
    FROM chunk JOIN chunk_text ON chunk_text.id = chunk.id JOIN turn ON turn.id = chunk.turn
      JOIN name AS project ON project.id = chunk.project
      JOIN name AS conversation ON conversation.id = chunk.conversation
    WHERE chunk.user = ? AND chunk.kind = ? AND turn.author IN ('person', 'agent') AND NOT turn.is_summary
      AND NOT turn.abandoned"""


def list_stating(index: IndexConnection, user: str) -> list[StatedText]:
    """Return the newest chunks of an owner in which a stating word stands, newest first."""
    number = index.find_name("user", user)
    if number is None:
        return []
    words = index.match_words(number, f"text : ({' OR '.join(map(fts_quote, STATING_WORDS))})")
    newest = f"SELECT {words.chunk} FROM {words.source} WHERE {words.test} ORDER BY {words.chunk} DESC LIMIT ?"
    query = f"SELECT {_COLUMNS} AND chunk.id IN ({newest}) ORDER BY chunk.id DESC"
    values = (number, index.find_name("kind", "text"), *words.values, _MAX_CHUNKS)
    return [_from_row(*row) for row in index.select(query, *values)]


def list_of_turns(index: IndexConnection, user: str, turn_ids: Iterable[str]) -> list[StatedText]:
    """Return the chunks of these turns of an owner; none of a turn that was forgotten."""
    query = f"""SELECT {_COLUMNS} AND turn.turn_id IN (SELECT value FROM json_each(?)) ORDER BY turn.id, chunk.n"""
    encoded = msgspec.json.encode(sorted(set(turn_ids))).decode()
    values = (index.find_name("user", user), index.find_name("kind", "text"), encoded)
    return [_from_row(*row) for row in index.select(query, *values)]


def list_other_turns(
    index: IndexConnection, user: str, project: str | None, session: str, before_at: datetime
) -> list[str]:
    """Return turns in words of a project that other sessions said before a moment, the newest."""
    query = """SELECT turn.turn_id FROM chunk JOIN turn ON turn.id = chunk.turn JOIN run ON run.id = turn.run
      WHERE chunk.user = ? AND chunk.project = ? AND chunk.kind = ? AND chunk.stated_ms < ? AND run.session <> ?
        AND turn.author IN ('person', 'agent') AND NOT turn.abandoned
      GROUP BY turn.turn_id ORDER BY max(chunk.stated_ms) DESC, turn.turn_id LIMIT ?"""
    numbers = [index.find_name(*name) for name in (("user", user), ("project", project or ""), ("kind", "text"))]
    return [name for (name,) in index.select(query, *numbers, to_ms(before_at), session, _MAX_OTHERS)]


def _from_row(turn_id: str, text: str, project: str | None, conversation: str, stated_ms: int | None) -> StatedText:
    return StatedText(turn_id, text, project, conversation, from_ms(stated_ms))
