"""The embedding cache: (model tag, SHA-256 of a text) -> its vector in int8. A cache, but one that survives rebuilds.

`cache/embeddings.db`. It holds vectors of documents only; those of several models lie side by side and never meet.
No text is in it, but a vector tells much about its text: what is forgotten is deleted here by the text's hash, and
overwritten with zeros. Losing the file costs embedding everything again, nothing else.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import apsw
import numpy as np
import numpy.typing as npt

from perdure.errors import Busy, DiskFull, ReadOnlyHome, TextRefused
from perdure.models.embedder import Embedder, Kind, ModelTag
from perdure.models.vectors import Quantised, Vectors, quantise, restore, text_hash
from perdure.transactions import transaction

SCHEMA = 1  # a file with another number is thrown away: it is a cache
BUSY_MS = 10_000
_TABLES = """
CREATE TABLE model(id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE);
CREATE TABLE vector(model INTEGER NOT NULL, text_sha256 BLOB NOT NULL, scale REAL NOT NULL, numbers BLOB NOT NULL,
  UNIQUE(text_sha256, model))
"""


class Known(NamedTuple):
    """What the cache has of some texts."""

    places: npt.NDArray[np.intp]  # which of them, ascending
    vectors: Quantised  # theirs, in that order


class Cache:
    """One connection to the file. Threads may share it: calls take turns."""

    def __init__(self, path: Path) -> None:
        """Open it, or make an empty one. Raises ReadOnlyHome, DiskFull."""
        self._path = path
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._db = self._opened()
        except (apsw.NotADBError, apsw.CorruptError):
            self._discard()
            self._db = self._opened()
        except (apsw.CantOpenError, apsw.ReadOnlyError, OSError) as error:
            raise ReadOnlyHome(str(path)) from error
        except apsw.FullError as error:
            raise DiskFull(str(path)) from error

    def _opened(self) -> apsw.Connection:
        db = apsw.Connection(str(self._path))
        self._path.chmod(0o600)
        db.set_busy_timeout(BUSY_MS)
        db.pragma("journal_mode", "wal")
        db.pragma("synchronous", 1)
        db.pragma("secure_delete", True)
        if db.pragma("user_version") != SCHEMA:
            with _writing(db, self._path):
                _make_tables(db)
        return db

    def _discard(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def close(self) -> None:
        """Release the file."""
        self._db.close()

    def get(self, tag: ModelTag, hashes: Sequence[bytes]) -> Known:
        """The vectors that it has of texts given by their hashes."""
        query = "SELECT scale, numbers FROM vector WHERE text_sha256 = ? AND model = ?"
        with self._lock:
            model = self._number(tag)
            found = [(n, row) for n, name in enumerate(hashes) for row in self._db.execute(query, (name, model))]
        values = np.frombuffer(b"".join(row[1] for _, row in found), np.int8).reshape(len(found), tag.dimension)
        scales = np.array([row[0] for _, row in found], np.float32)
        return Known(np.array([n for n, _ in found], np.intp), Quantised(values, scales))

    def put(self, tag: ModelTag, hashes: Sequence[bytes], vectors: Vectors) -> None:
        """Keep vectors under their texts' hashes; what is already there stays. Durable at the next checkpoint."""
        values, scales = quantise(vectors)
        with self._lock, _writing(self._db, self._path):
            model = self._made(tag)
            rows = [(model, h, float(s), v.tobytes()) for h, s, v in zip(hashes, scales, values, strict=True)]
            self._db.executemany("INSERT OR IGNORE INTO vector VALUES (?, ?, ?, ?)", rows)

    def forget(self, hashes: Iterable[bytes]) -> int:
        """Delete every model's vectors of these texts, also from the log beside the file. Returns how many there were.

        Raises Busy when another process reads the old ones for too long; they are deleted then, but not yet wiped.
        """
        with self._lock:
            before = self._db.total_changes()
            with _writing(self._db, self._path):
                self._db.executemany("DELETE FROM vector WHERE text_sha256 = ?", [(h,) for h in hashes])
            n_gone = self._db.total_changes() - before
            (blocked, _, _) = next(iter(self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")))
        if blocked:
            raise Busy(str(self._path))
        return n_gone

    def counts(self) -> dict[str, int]:
        """Vectors of each model, by its tag's key."""
        query = "SELECT key, count(text_sha256) FROM model LEFT JOIN vector ON vector.model = model.id GROUP BY key"
        with self._lock:
            return dict(self._db.execute(query))

    def drop(self, tag: ModelTag) -> None:
        """Delete everything of a model, e.g. of one that was replaced."""
        with self._lock, _writing(self._db, self._path):
            model = self._number(tag)
            self._db.execute("DELETE FROM vector WHERE model = ?", (model,))
            self._db.execute("DELETE FROM model WHERE id = ?", (model,))

    def _number(self, tag: ModelTag) -> int:
        """The number of a model in this file; 0, which none has, when it was never seen."""
        rows = self._db.execute("SELECT id FROM model WHERE key = ?", (tag.key,))
        return next((int(row[0]) for row in rows), 0)

    def _made(self, tag: ModelTag) -> int:
        number = self._number(tag)
        if number:
            return number
        self._db.execute("INSERT INTO model(key) VALUES (?)", (tag.key,))
        return self._db.last_insert_rowid()


@contextlib.contextmanager
def _writing(db: apsw.Connection, path: Path) -> Iterator[None]:
    """One transaction. Raises Busy."""
    try:
        with transaction(db):
            yield
    except apsw.BusyError as error:
        raise Busy(str(path)) from error


def _make_tables(db: apsw.Connection) -> None:
    if db.pragma("user_version") == SCHEMA:  # another process was faster
        return
    for name in ("vector", "model"):
        db.execute(f"DROP TABLE IF EXISTS {name}")
    for statement in _TABLES.split(";"):
        db.execute(statement)
    db.pragma("user_version", SCHEMA)


class Cached:
    """An embedder that asks the cache first, so that no document is ever embedded twice. Queries pass through."""

    def __init__(self, inner: Embedder, cache: Cache) -> None:
        """inner: a careful embedder; only finite vectors of length 1 are to be kept."""
        self._inner = inner
        self._cache = cache

    @property
    def tag(self) -> ModelTag:
        """The inner one's."""
        return self._inner.tag

    def embed(self, texts: Sequence[str], kind: Kind) -> Vectors:
        """As the socket says; documents as the cache holds them, in int8 precision, whether they are new or not."""
        if kind == "query":
            return self._inner.embed(texts, kind)
        first = {text_hash(text): text for text in texts}
        names = list(first)
        known = self._cache.get(self.tag, names)
        rows = dict(zip(known.places.tolist(), restore(known.vectors), strict=True))
        new = [n for n in range(len(names)) if n not in rows]
        rows.update(zip(new, self._new([names[n] for n in new], first), strict=True))
        places = {name: n for n, name in enumerate(names)}
        found = [rows[places[text_hash(text)]] for text in texts]
        return np.stack(found) if found else np.zeros((0, self.tag.dimension), np.float32)

    def _new(self, names: Sequence[bytes], texts: dict[bytes, str]) -> Vectors:
        if not names:
            return np.zeros((0, self.tag.dimension), np.float32)
        vectors = self._inner.embed([texts[name] for name in names], "document")
        self._cache.put(self.tag, names, vectors)
        return restore(quantise(vectors))


class Filled(NamedTuple):
    """How embedding many texts ended."""

    n_done: int
    refused: tuple[int, ...]  # places of the texts that the model has no vector for


def fill(embedder: Embedder, texts: Sequence[str]) -> Filled:
    """Have an embedder (a `Cached` one) embed documents; a text that it refuses costs only itself.

    Raises ModelFault for every other failure: then the rest has no vectors yet, and a later call takes it up.
    """
    try:
        embedder.embed(texts, "document")
    except TextRefused:
        if len(texts) == 1:
            return Filled(0, (0,))
        half = len(texts) // 2
        low, high = fill(embedder, texts[:half]), fill(embedder, texts[half:])
        return Filled(low.n_done + high.n_done, (*low.refused, *(n + half for n in high.refused)))
    return Filled(len(texts), ())
