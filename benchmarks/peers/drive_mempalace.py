"""MemPalace: a palace for each group, each text a drawer as `mempalace_add_drawer` files it, its wing the project.

Arguments: MODEL FOLDER.

Its search as it comes: the nearest drawers by vectors, ranked again with BM25. Its model is all-MiniLM-L6-v2, whose
file ChromaDB downloads at its first use; where that cannot be reached the same weights run in sentence-transformers.
It is told to use no language model.
"""

import os
import re
import sys
from pathlib import Path

path, folder = sys.argv[1:]
os.environ.update(HOME=folder, ANONYMIZED_TELEMETRY="False", HF_HUB_OFFLINE="1", MEMPALACE_EMBEDDING_MODEL="minilm")

from chromadb.utils.embedding_functions import ONNXMiniLM_L6_V2  # noqa: E402 - the settings above are read on import
from serve import serve  # noqa: E402
from vectors import Vectors, open_vectors  # noqa: E402

vectors = open_vectors(path) or Vectors(path)
ONNXMiniLM_L6_V2._download_model_if_not_exists = lambda _self: None
ONNXMiniLM_L6_V2._forward = lambda _self, documents, _batch_size=32: vectors.encode(list(documents))

from mempalace.palace import get_collection  # noqa: E402
from mempalace.searcher import search_memories  # noqa: E402

BATCH = 500  # drawers that are written at a time
EVERYWHERE = "everywhere"  # wing of a text without a project
palaces: dict = {}


def to_wing(project):
    return re.sub(r"\W+", "_", project).strip("_")[-100:] or EVERYWHERE


def take(group, texts):
    palaces[group] = str(Path(folder) / f"palace-{len(palaces)}")
    drawers = get_collection(palaces[group], create=True)
    for low in range(0, len(texts), BATCH):
        part = texts[low : low + BATCH]
        drawers.upsert(
            ids=[f"drawer-{n}" for n in range(low, low + len(part))],
            documents=[row["text"] for row in part],
            metadatas=[
                {"wing": to_wing(row["project"]), "room": "turns", "source_file": row["id"], "chunk_index": 0}
                for row in part
            ],
        )
    return 0


def ask(group, text, k, project):
    answer = search_memories(text, palaces[group], wing=to_wing(project) if project else None, n_results=k)
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return [hit["source_path"] for hit in answer["results"]]


serve(take, ask)
