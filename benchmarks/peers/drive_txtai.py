"""txtai: an index for each group, dense or hybrid (its own dense and BM25, weighted as it comes).

Arguments: MODEL dense|hybrid [FOLDER, in which its indexes are saved].
"""

import sys
from pathlib import Path

from serve import serve
from txtai import Embeddings
from vectors import open_vectors

path, mode, *folder = sys.argv[1:]
models: dict = {}  # the model is loaded once and shared
held: dict = {}
vectors = open_vectors(path)
OVER_ASKED = 50  # times k, where only texts of one project count: an index of texts alone cannot filter


def embed(texts):
    return vectors.encode(texts)


def take(group, texts):
    made_by = {"method": "external", "transform": embed} if vectors else {"path": path}
    index = Embeddings({**made_by, "hybrid": mode == "hybrid"}, models=models)
    index.index([(row["id"], row["text"]) for row in texts])
    held[group] = index, {row["id"]: row["project"] for row in texts}
    if folder:
        index.save(str(Path(folder[0]) / f"index-{len(held)}"))
    return 0


def ask(group, text, k, project):
    index, projects = held[group]
    ranked = [name for name, _ in index.search(text, k * (OVER_ASKED if project else 1))]
    return [name for name in ranked if not project or projects[name] in (project, "")][:k]


serve(take, ask)
