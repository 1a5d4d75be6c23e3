"""txtai: an index for each group, dense or hybrid (its own dense and BM25, weighted as it comes).

Arguments: MODEL dense|hybrid.
"""

import sys

from serve import serve
from txtai import Embeddings

path, mode = sys.argv[1:]
models: dict = {}  # the model is loaded once and shared
held: dict = {}


def take(group, ids, texts):
    held[group] = Embeddings({"path": path, "hybrid": mode == "hybrid"}, models=models)
    held[group].index(list(zip(ids, texts, strict=True)))


def ask(group, text, k):
    return [name for name, _ in held[group].search(text, k)]


serve(take, ask)
