"""mem0, open source, without a language model: every document is added as it is (`infer=False`).

Arguments: MODEL FOLDER dense|hybrid everything|as-it-comes: whether its threshold holds weak hits back.

The vector store is its default, Qdrant, in a local folder. Its keyword leg is fastembed's BM25, whose list of stop
words comes from a model hub; where that cannot be reached the list of scikit-learn stands in for it. Its entities need
spaCy's English model, which is not on the package registry: they are off.
"""

import functools
import os
import sys
from pathlib import Path

path, folder, mode, kept = sys.argv[1:]
THRESHOLD = {"threshold": 0.0} if kept == "everything" else {}
NOBODY = "nobody"  # user of a set without users: mem0 takes no empty name
os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=folder, OPENAI_API_KEY="none", HF_HUB_OFFLINE="1")

from serve import serve  # noqa: E402 - the settings above are read on import
from vectors import open_vectors  # noqa: E402

if mode == "hybrid":
    import fastembed
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    encoder = fastembed.SparseTextEmbedding
    encoder.__init__ = functools.partialmethod(
        encoder.__init__, specific_model_path=folder, stopwords=set(ENGLISH_STOP_WORDS)
    )

from mem0 import Memory  # noqa: E402
from mem0.embeddings.huggingface import HuggingFaceEmbedding  # noqa: E402

vectors = open_vectors(path)
if vectors:
    HuggingFaceEmbedding.embed = lambda _self, text, _action=None: vectors.encode([text])[0].tolist()

memory = Memory.from_config(
    {
        "embedder": {"provider": "huggingface", "config": {"model": path, "embedding_dims": 384}},
        "vector_store": {
            "provider": "qdrant",
            "config": {"path": str(Path(folder) / "qdrant"), "embedding_model_dims": 384, "on_disk": True},
        },
        "history_db_path": str(Path(folder) / "history.db"),
    }
)
if mode == "dense":
    memory.vector_store._bm25_encoder = False  # what it does itself where fastembed is not installed


def take(group, texts):
    for row in texts:
        about = {"doc": row["id"], "project": row["project"]}
        memory.add([{"role": "user", "content": row["text"]}], user_id=group or NOBODY, metadata=about, infer=False)
    return 0


def ask(group, text, k, project):
    filters = {"user_id": group or NOBODY, **({"project": project} if project else {})}
    found = memory.search(text, top_k=k, filters=filters, **THRESHOLD)
    return [row["metadata"]["doc"] for row in found["results"]]


serve(take, ask)
