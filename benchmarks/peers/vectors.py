"""Vectors of all-MiniLM-L6-v2 in float32, kept in a file: each text is embedded once for all peers and all runs.

The peers use the same model, so none is better or worse for it. The processor time that a vector took is kept with it,
and counts for each peer that asks for the text. It runs in the peers' own Pythons.
"""

import hashlib
import os
import sqlite3
import time

import numpy as np
import serve

BATCH = 256


class Vectors:
    """Unit vectors of texts. Without a file each text is embedded whenever it is asked for."""

    def __init__(self, model_folder, file=None):
        self._folder = model_folder
        self._model = None
        self._db = sqlite3.connect(file or ":memory:", timeout=60)
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS vector(text BLOB PRIMARY KEY, numbers BLOB, cpu_s REAL) WITHOUT ROWID"
        )

    def encode(self, texts):
        """Return the vectors of texts as rows."""
        keys = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]
        rows = {key: self._read(key) for key in keys}
        missing = {key: text for key, text in zip(keys, texts) if rows[key] is None}  # noqa: B905 - old Pythons
        todo = sorted(missing, key=lambda key: len(missing[key]))
        for low in range(0, len(todo), BATCH):
            part = todo[low : low + BATCH]
            began_s = time.process_time()
            rows.update(zip(part, self._embed([missing[key] for key in part])))  # noqa: B905
            cpu_s = (time.process_time() - began_s) / len(part)
            with self._db:
                self._db.executemany(
                    "INSERT OR REPLACE INTO vector VALUES (?, ?, ?)",
                    [(key, rows[key].tobytes(), cpu_s) for key in part],
                )
        return np.stack([rows[key] for key in keys])

    def _read(self, key):
        row = self._db.execute("SELECT numbers, cpu_s FROM vector WHERE text = ?", (key,)).fetchone()
        if row is None:
            return None
        serve.saved["cpu_s"] += row[1]
        return np.frombuffer(row[0], np.float32)

    def _embed(self, texts):
        if self._model is None:
            from sentence_transformers import SentenceTransformer

            self._model = SentenceTransformer(str(self._folder))
        vectors = self._model.encode(texts, batch_size=32, normalize_embeddings=True, show_progress_bar=False)
        return np.asarray(vectors, np.float32)


def open_vectors(model_folder):
    """Return the vectors that PERDURE_PEER_VECTORS keeps, or None where nothing is kept."""
    file = os.environ.get("PERDURE_PEER_VECTORS")
    return Vectors(model_folder, file) if file else None
