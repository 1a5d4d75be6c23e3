"""The embedding cache: (model tag, SHA-256 of a text) -> its vector in int8. A cache, but it survives
rebuilds.

`cache/embeddings.db`. It holds vectors of documents only; vectors of several models are stored side by
side and are never mixed. No text is in it, but a vector tells much about its text: when a text is
forgotten, its vector is deleted here by the text's hash, and overwritten with zeros. If the file is
lost, everything must be embedded again, and nothing else is lost.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from perdure.errors import Busy, DiskFull, ReadOnlyHome, TextRefused
from perdure.models.embedder import (
    Embedder,
    ModelTag,
    QuantisedVectors,
    TextKind,
    Vectors,
    hash_text,
    quantise,
    restore,
)
from perdure.sqlite import apsw, transaction, use_wal

SCHEMA = 1  # a file with another number is deleted: it is a cache
BUSY_MS = 10_000
_TABLES_SQL = """
CREATE TABLE model(id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE);
CREATE TABLE vector(model INTEGER NOT NULL, text_sha256 BLOB NOT NULL, scale REAL NOT NULL, numbers BLOB NOT NULL,
  UNIQUE(text_sha256, model))
"""

Result = TypeVar("Result")


class CachedVectors(NamedTuple):
    """The vectors that the cache has of some texts."""

    positions: npt.NDArray[np.intp]  # positions of these texts in the request, ascending
    vectors: QuantisedVectors  # their vectors, in that order


class VectorCache:
    """One connection to the file. Threads may share it: calls run one at a time."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make an empty one. Raises ReadOnlyHome, DiskFull."""
        self._path = path
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._db = self._open_whole()
        except (apsw.CantOpenError, apsw.ReadOnlyError, OSError) as error:
            raise ReadOnlyHome(str(path)) from error
        except apsw.FullError as error:
            raise DiskFull(str(path)) from error

    def _open_whole(self) -> apsw.Connection:
        try:
            return self._open()
        except (apsw.NotADBError, apsw.CorruptError):
            self._discard()
            return self._open()

    def _open(self) -> apsw.Connection:
        db = apsw.Connection(str(self._path))
        self._path.chmod(0o600)
        db.set_busy_timeout(BUSY_MS)
        use_wal(db)
        db.pragma("synchronous", 1)
        db.pragma("secure_delete", True)
        if db.pragma("user_version") != SCHEMA:
            with _write_transaction(db, self._path):
                _make_tables(db)
        return db

    def _discard(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def _run(self, work: Callable[[], Result]) -> Result:
        """Do some work, one thread at a time. If the file is damaged, begin it again, empty, and do the work there."""
        with self._lock:
            try:
                return work()
            except (apsw.NotADBError, apsw.CorruptError):
                self._db.close()
                self._discard()
                self._db = self._open()
                return work()

    def close(self) -> None:
        """Release the file."""
        self._db.close()

    def get(self, tag: ModelTag, hashes: Sequence[bytes]) -> CachedVectors:
        """Return the cached vectors of texts, given by the texts' hashes."""
        hits = self._run(lambda: self._select_hits(tag, hashes))
        values = np.frombuffer(b"".join(row[1] for _, row in hits), np.int8).reshape(len(hits), tag.dimension)
        scales = np.array([row[0] for _, row in hits], np.float32)
        return CachedVectors(np.array([n for n, _ in hits], np.intp), QuantisedVectors(values, scales))

    def _select_hits(self, tag: ModelTag, hashes: Sequence[bytes]) -> list[tuple[int, tuple[Any, ...]]]:
        query = "SELECT scale, numbers FROM vector WHERE text_sha256 = ? AND model = ?"
        model_id = self._find_model_id(tag)
        return [
            (n, row) for n, text_hash in enumerate(hashes) for row in self._db.execute(query, (text_hash, model_id))
        ]

    def put(self, tag: ModelTag, hashes: Sequence[bytes], vectors: Vectors) -> None:
        """Store vectors under their texts' hashes; existing ones stay. Durable at the next checkpoint.

        Raises Busy, DiskFull.
        """
        values, scales = quantise(vectors)
        rows = [(h, float(s), v.tobytes()) for h, s, v in zip(hashes, scales, values, strict=True)]
        self._run(lambda: self._insert(tag, rows))

    def _insert(self, tag: ModelTag, rows: Sequence[tuple[bytes, float, bytes]]) -> None:
        with _write_transaction(self._db, self._path):
            model_id = self._find_or_add_model(tag)
            self._db.executemany("INSERT OR IGNORE INTO vector VALUES (?, ?, ?, ?)", [(model_id, *row) for row in rows])

    def forget(self, hashes: Iterable[bytes]) -> int:
        """Delete every model's vectors of these texts, also from the log beside the file. Return how many there
        were.

        Raises Busy if another process reads the old ones for too long; they are deleted then, but not yet wiped.
        """
        listed = list(hashes)
        return self._run(lambda: self._delete("IN", listed))

    def forget_others(self, hashes: Iterable[bytes]) -> int:
        """Delete the vectors of all texts but these, as `forget` does."""
        listed = list(hashes)
        return self._run(lambda: self._delete("NOT IN", listed))

    def _delete(self, condition: str, hashes: Sequence[bytes]) -> int:
        self._db.execute("CREATE TEMP TABLE given(text_sha256 BLOB PRIMARY KEY) WITHOUT ROWID")
        try:
            self._db.executemany("INSERT OR IGNORE INTO given VALUES (?)", [(h,) for h in hashes])
            n_changes_before = self._db.total_changes()
            with _write_transaction(self._db, self._path):
                self._db.execute(f"DELETE FROM vector WHERE text_sha256 {condition} (SELECT text_sha256 FROM given)")
            n_deleted = self._db.total_changes() - n_changes_before
        finally:
            self._db.execute("DROP TABLE given")
        (is_blocked, _, _) = next(iter(self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")))
        if is_blocked:
            raise Busy(str(self._path))
        return n_deleted

    def count_by_model(self) -> dict[str, int]:
        """Return the number of vectors of each model, by its tag's key."""
        query = "SELECT key, count(text_sha256) FROM model LEFT JOIN vector ON vector.model = model.id GROUP BY key"
        return self._run(lambda: dict(self._db.execute(query)))

    def drop_model(self, tag: ModelTag) -> None:
        """Delete all vectors of a model, e.g. of one that was replaced."""
        with self._lock, _write_transaction(self._db, self._path):
            model_id = self._find_model_id(tag)
            self._db.execute("DELETE FROM vector WHERE model = ?", (model_id,))
            self._db.execute("DELETE FROM model WHERE id = ?", (model_id,))

    def _find_model_id(self, tag: ModelTag) -> int:
        """Return the number of a model in this file; 0, which is never used, for an unknown model."""
        rows = self._db.execute("SELECT id FROM model WHERE key = ?", (tag.key,))
        return next((int(row[0]) for row in rows), 0)

    def _find_or_add_model(self, tag: ModelTag) -> int:
        model_id = self._find_model_id(tag)
        if model_id:
            return model_id
        self._db.execute("INSERT INTO model(key) VALUES (?)", (tag.key,))
        return self._db.last_insert_rowid()


@contextlib.contextmanager
def _write_transaction(db: apsw.Connection, path: Path) -> Iterator[None]:
    """Run one write transaction. Raises Busy, DiskFull."""
    try:
        with transaction(db):
            yield
    except apsw.BusyError as error:
        raise Busy(str(path)) from error
    except apsw.FullError as error:
        raise DiskFull(str(path)) from error


def _make_tables(db: apsw.Connection) -> None:
    if db.pragma("user_version") == SCHEMA:  # another process was faster
        return
    for name in ("vector", "model"):
        db.execute(f"DROP TABLE IF EXISTS {name}")
    for statement in _TABLES_SQL.split(";"):
        db.execute(statement)
    db.pragma("user_version", SCHEMA)


class CachingEmbedder:
    """An embedder that looks into the cache first, so that no document is embedded twice. Queries pass through."""

    def __init__(self, inner: Embedder, cache: VectorCache) -> None:
        """Wrap an embedder. inner: a validating embedder, because only finite vectors of length 1 may be stored."""
        self._inner = inner
        self._cache = cache

    @property
    def tag(self) -> ModelTag:
        """The tag of the wrapped embedder."""
        return self._inner.tag

    def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        """Return the vectors; see `Embedder.embed`. Documents have the cache's int8 precision, whether they are
        new or not.
        """
        if kind == "query":
            return self._inner.embed(texts, kind)
        texts_by_hash = {hash_text(text): text for text in texts}
        hashes = list(texts_by_hash)
        cached = self._cache.get(self.tag, hashes)
        rows = dict(zip(cached.positions.tolist(), restore(cached.vectors), strict=True))
        new_positions = [n for n in range(len(hashes)) if n not in rows]
        rows.update(zip(new_positions, self._embed_new([hashes[n] for n in new_positions], texts_by_hash), strict=True))
        positions = {digest: n for n, digest in enumerate(hashes)}
        vectors = [rows[positions[hash_text(text)]] for text in texts]
        return np.stack(vectors) if vectors else np.zeros((0, self.tag.dimension), np.float32)

    def _embed_new(self, hashes: Sequence[bytes], texts: dict[bytes, str]) -> Vectors:
        if not hashes:
            return np.zeros((0, self.tag.dimension), np.float32)
        vectors = self._inner.embed([texts[digest] for digest in hashes], "document")
        self._cache.put(self.tag, hashes, vectors)
        return restore(quantise(vectors))


class DocumentEmbedResult(NamedTuple):
    """The result of embedding many documents."""

    n_done: int
    refused_positions: tuple[int, ...]  # positions of the texts for which the model has no vector


def embed_documents(embedder: Embedder, texts: Sequence[str]) -> DocumentEmbedResult:
    """Embed documents with a `CachingEmbedder`; a text that the model refuses does not stop the others.

    Raises ModelFault for every other failure: the remaining texts then have no vectors yet, and a later
    call makes them.
    """
    try:
        embedder.embed(texts, "document")
    except TextRefused:
        if len(texts) == 1:
            return DocumentEmbedResult(0, (0,))
        half = len(texts) // 2
        low, high = embed_documents(embedder, texts[:half]), embed_documents(embedder, texts[half:])
        return DocumentEmbedResult(
            low.n_done + high.n_done, (*low.refused_positions, *(n + half for n in high.refused_positions))
        )
    return DocumentEmbedResult(len(texts), ())
