"""Plain full-text search of SQLite (FTS5 with its own BM25) over a list of texts: one way to fill a block.

A table in memory, which is gone with its object. It knows no stop words, no meaning, no time and no neighbours:
English endings are cut (`porter`), and a text matches if it holds any word of the message. Text in a script without
spaces is one long word for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from perdure.sqlite import apsw

_WORD = re.compile(r"\w+")


class PlainTextSearch:
    """Ranks texts by BM25 as SQLite computes it."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._db = apsw.Connection(":memory:")
        self._db.execute("CREATE VIRTUAL TABLE piece USING fts5(text, tokenize = 'porter unicode61')")
        with self._db:
            self._db.executemany("INSERT INTO piece(rowid, text) VALUES (?, ?)", enumerate(texts))

    @property
    def n_bytes(self) -> int:
        """Bytes of the table, with its index."""
        return int(self._db.pragma("page_count")) * int(self._db.pragma("page_size"))

    def rank(self, message: str) -> Iterator[int]:
        """Yield the positions of the texts that hold a word of the message, best first.

        >>> list(PlainTextSearch(["the port is 8443", "no", "which ports?"]).rank("which port"))
        [2, 0]
        """
        terms = " OR ".join(f'"{word}"' for word in dict.fromkeys(_WORD.findall(message)))
        if terms:
            for (position,) in self._db.execute("SELECT rowid FROM piece WHERE piece MATCH ? ORDER BY rank", (terms,)):
                yield position
