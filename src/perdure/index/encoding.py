"""Encode values for the index: instants, names, texts, weeks and the texts that get vectors. Pure; it imports no numpy.

It is the one place that decides which chunks get a vector, in which order, how much of each, and in which
words. The text that is embedded differs a little from the text that is shown: date and role stand before
it, so that "what did I say in May" has something to be near to. The hash of this text is the key of its
vector in the cache: another wording embeds everything again. Nothing is read or written here.
"""

from __future__ import annotations

import hashlib
import zlib
from datetime import UTC, date, datetime, time, timedelta

from msgspec import Struct

from perdure.types import Author

# instants, names, texts and weeks -----------------------------------------------------------------------------


def to_ms(instant: datetime | None) -> int | None:
    """Convert an instant to whole milliseconds since 1970."""
    return None if instant is None else int(instant.timestamp() * 1000)


def from_ms(stated_ms: int | None) -> datetime | None:
    """Convert milliseconds since 1970 to an aware instant."""
    return None if stated_ms is None else datetime.fromtimestamp(stated_ms / 1000, UTC)


def to_scope_token(number: int) -> str:
    """Return the word that stands for a name inside MATCH; no tokenizer splits or stems it.

    >>> to_scope_token(7)
    'z7z'
    """
    return f"z{number}z"


_MIN_PACKED_BYTES = 200  # a shorter text gains nothing


def pack_text(text: str) -> str | bytes:
    """Return a text as the index stores it: compressed, unless that gains nothing."""
    data = text.encode()
    packed = zlib.compress(data) if len(data) >= _MIN_PACKED_BYTES else data
    return packed if len(packed) < len(data) else text


def unpack_text(stored: str | bytes) -> str:
    """Return a stored text.

    >>> unpack_text(pack_text("port 8443 " * 50)) == "port 8443 " * 50, pack_text("port 8443")
    (True, 'port 8443')
    """
    return stored if isinstance(stored, str) else zlib.decompress(stored).decode()


HALF_YEAR_WEEKS = 26  # weeks


def build_week_sql(column: str) -> str:
    """Return the SQL for the Monday (yyyy-mm-dd, UTC) of the week of a column of instants in milliseconds."""
    return f"date({column} / 1000, 'unixepoch', '-6 days', 'weekday 1')"


def build_month_sql(column: str) -> str:
    """Return the SQL for the month (yyyy-mm, UTC) of a column of instants in milliseconds."""
    return f"strftime('%Y-%m', {column} / 1000, 'unixepoch')"


def get_monday(day: date) -> date:
    """Return the first day of a day's week.

    >>> get_monday(date(2026, 3, 18)), get_monday(date(2026, 3, 16))
    (datetime.date(2026, 3, 16), datetime.date(2026, 3, 16))
    """
    return day - timedelta(days=day.weekday())


def list_mondays(today: date, n_weeks: int = HALF_YEAR_WEEKS) -> list[date]:
    """Return the Mondays of the last n weeks, oldest first; the last one is of this week."""
    return [get_monday(today) - timedelta(weeks=n_weeks_ago) for n_weeks_ago in range(n_weeks - 1, -1, -1)]


def get_day_start(day: date) -> datetime:
    """Return the first instant of a day, in UTC."""
    return datetime.combine(day, time(), UTC)


# embedded texts -----------------------------------------------------------------------------------------------

HEAD_CHARS = 400  # about 100 tokens, 20 ms of one core; 150 lose one answer in twenty (docs/evaluation/speed.md)
RESULT_CHARS = 150  # of the output of a tool, which recall does not tell: more than half of all text


class EmbeddingPolicy(Struct, frozen=True):
    """One class of chunks that is embedded. `count_embedded_chars` says how much of each chunk, by its author."""

    kind: str  # text, thinking, call, result or picture
    by_people: bool | None = None  # True: only turns of people; False: only other turns; None: both


MEMORY_KIND = "memory"  # role and kind of the one chunk of a memory, which has no turn
PICTURE_KIND = "picture"  # of the chunks that were read in the pictures of a turn
OWN_WRITE = ("own", "write")  # facet of a turn that writes into Perdure by a call
WEB_CALL = ("web", "call")  # facet of a turn that asks for something from the web by a call
EMBEDDING_POLICIES = (  # in the order of embedding; kinds that are missing here are found by keyword only
    EmbeddingPolicy(MEMORY_KIND),
    EmbeddingPolicy("text", by_people=True),
    EmbeddingPolicy("text", by_people=False),
    EmbeddingPolicy("thinking"),
    EmbeddingPolicy("call"),
    EmbeddingPolicy(PICTURE_KIND),
    EmbeddingPolicy("result"),
)


def count_embedded_chars(author: Author, chunk: int) -> int | None:
    """Return how many characters from the start of a chunk to embed: 0 for none, None for all.

    chunk: the chunk's number in its part of the turn, from 0; later chunks of a part repeat the same subject.

    >>> count_embedded_chars("person", 3), count_embedded_chars("agent", 0), count_embedded_chars("tool", 1)
    (None, 400, 0)
    """
    if author == "person":
        return None
    if chunk:
        return 0
    return RESULT_CHARS if author == "tool" else HEAD_CHARS


def build_embedded_text(
    author: Author | None, role: str | None, stated_ms: int | None, text: str, *, before: str = ""
) -> str:
    """Return the text that is embedded for a chunk; author and role are None for a memory.

    before: the end of the turn before it, with its role.

    >>> build_embedded_text("person", "user", 1778198400000, "We moor at the quay.")
    '[8 May 2026] user: We moor at the quay.'
    >>> build_embedded_text("person", "user", None, "At the quay.", before="assistant: Where do we moor?")
    'assistant: Where do we moor?\\nuser: At the quay.'
    """
    said = f"{role or MEMORY_KIND}: {text[: count_embedded_chars(author or 'person', 0)]}"
    return _format_day(stated_ms) + (f"{before}\n{said}" if before else said)


def _format_day(stated_ms: int | None) -> str:
    if stated_ms is None:
        return ""
    instant = datetime.fromtimestamp(stated_ms / 1000, UTC)
    return f"[{instant.day} {_MONTHS[instant.month - 1]} {instant.year}] "


_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip


def hash_embedded_text(embedded_text: str) -> bytes:
    """Return the 32-byte key of a text in the cache: SHA-256 of its UTF-8, as in `models.embedder.hash_text`."""
    return hashlib.sha256(embedded_text.encode("utf-8", "surrogatepass")).digest()
