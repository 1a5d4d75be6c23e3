"""txtai: an index for each group, dense or hybrid (its own dense and BM25, weighted as it comes).

Arguments: MODEL dense|hybrid.
"""

import sys

from serve import serve
from txtai import Embeddings
from vectors import open_vectors

path, mode = sys.argv[1:]
models: dict = {}  # the model is loaded once and shared
held: dict = {}
vectors = open_vectors(path)
OVER_ASKED = 50  # times k, where only texts of one project count: an index of texts alone cannot filter


def embed(texts):
    return vectors.encode(texts)


def take(group, ids, texts, projects):
    made_by = {"method": "external", "transform": embed} if vectors else {"path": path}
    index = Embeddings({**made_by, "hybrid": mode == "hybrid"}, models=models)
    index.index(list(zip(ids, texts, strict=True)))
    held[group] = index, dict(zip(ids, projects, strict=True))


def ask(group, text, k, project):
    index, projects = held[group]
    ranked = [name for name, _ in index.search(text, k * (OVER_ASKED if project else 1))]
    return [name for name in ranked if not project or projects[name] in (project, "")][:k]


serve(take, ask)
