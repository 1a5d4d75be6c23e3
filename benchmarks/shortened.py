"""Vectors cut to their first numbers (`models.embedder.shorten_to`): ranking kept, recall, size and time.

MiniLM and the static model, which Perdure carries, were not trained to be cut. WordLlama was ("Matryoshka": 1,024, 512,
256, 128 and 64 numbers; its package has the first 256). Its weights are read, and none of its code is run:

    python -m pip install --target .cache/wordllama --no-deps wordllama==0.4.0.post1 tokenizers==0.22.2   # MIT, 20 MB
    python -m benchmarks.shortened --keep      # 2 min; without WordLlama where it is not there

For each model and cut: of each question's ten nearest by the whole vectors, how many are among the ten nearest by the
cut ones; R@10 by vectors alone and fused with BM25; bytes of a stored vector; and time of one search over 100,000.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import describe_run, keep_result, table
from benchmarks.embedding import APART, DATA, Pieces, embedded, pieces, rank_questions
from benchmarks.quality import Retrieval, load, scorer
from perdure.eval import measures
from perdure.eval.recall_quality import SHIPPED
from perdure.models import local_embedders
from perdure.models.embedder import Embedder, ModelTag, TextKind, Vectors, quantise, shorten, to_unit_length

CUTS = (384, 256, 192, 128, 64)
NEAREST = 10
N_SEARCHED = 100_000
WORDLLAMA = Path(__file__).parents[1] / ".cache" / "wordllama"
TRAINED = "wordllama, trained for it"


class WordLlama:
    """Means of the token vectors of WordLlama (l2_supercat, 256 of 1,024 numbers), from its package's files."""

    def __init__(self, folder: Path = WORDLLAMA) -> None:
        """Read the weights. Raises ImportError or OSError if they are not there."""
        sys.path.append(str(folder))
        from tokenizers import Tokenizer

        data = (folder / "wordllama/weights/l2_supercat_256.safetensors").read_bytes()
        n_header = int.from_bytes(data[:8], "little")
        ((name, entry),) = ((k, v) for k, v in json.loads(data[8 : 8 + n_header]).items() if k != "__metadata__")
        low, high = entry["data_offsets"]
        flat = np.frombuffer(
            data[8 + n_header + low : 8 + n_header + high], {"F16": "<f2", "F32": "<f4"}[entry["dtype"]]
        )
        self._rows: Vectors = flat.reshape(entry["shape"]).astype(np.float32)
        config = folder / "wordllama/tokenizers/l2_supercat_tokenizer_config.json"
        self._tokenizer = Tokenizer.from_str(config.read_text(encoding="utf-8"))
        self.tag = ModelTag(f"wordllama-{name}", self._rows.shape[1], str(len(data)))

    def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:  # noqa: ARG002 - one form for both
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]
        return to_unit_length(
            np.array([self._rows[row].mean(axis=0) if row else np.zeros(self._rows.shape[1]) for row in ids])
        )


MODELS: dict[str, Callable[[], Embedder]] = {
    "minilm": partial(local_embedders.MiniLM, threads=1), "static": local_embedders.StaticEmbedder, TRAINED: WordLlama,
}  # fmt: skip


def list_nearest(docs: Vectors, queries: Vectors, groups: Sequence[Any]) -> list[set[int]]:
    """Return the numbers of each question's nearest documents, among those of its group."""
    return [set(own[np.argsort(-(docs[own] @ query), kind="stable")[:NEAREST]].tolist())
            for query, own in zip(queries, groups, strict=True)]  # fmt: skip


def measure_cuts(
    module: Any, data: Retrieval, docs: Vectors, queries: Vectors, cut: Pieces
) -> Iterator[dict[str, Any]]:
    """Yield the row of each cut, the whole vectors first."""
    places: dict[str, Any] = {query["group"]: None for query in data.queries}
    for group in places:
        own = [n for n, doc in enumerate(data.docs) if doc["group"] == group]
        places[group] = np.flatnonzero(np.isin(cut.of_doc, own))
    groups = [places[query["group"]] for query in data.queries]
    exact = list_nearest(docs, queries, groups)
    for dimension in (size for size in CUTS if size <= docs.shape[1]):
        kept, asked = shorten(docs, dimension), shorten(queries, dimension)
        near = list_nearest(kept, asked, groups)
        runs = rank_questions(module, data, {"x": (kept, asked)})
        golds = {query["qid"]: query["gold"] for query in data.queries if query["category"] != APART}
        found = {
            name: asdict(measures.bootstrap([
                measures.recall_at(row["ranked"], golds[row["qid"]], 10)
                for row in runs[label] if golds.get(row["qid"])
            ]))
            for name, label in (("R@10", "x"), ("R@10 with words", "x + BM25"))
        }  # fmt: skip
        overlap = measures.bootstrap([len(a & b) / len(a) for a, b in zip(exact, near, strict=True)])
        yield {"numbers": dimension, "same": asdict(overlap), **found}


def time_search(dimension: int) -> float:
    """Return the processor milliseconds of one search over many int8 vectors of this size, the median of 15."""
    rows = np.random.default_rng(0).standard_normal((N_SEARCHED, dimension), dtype=np.float32)
    values, query = quantise(to_unit_length(rows)).values, to_unit_length(rows[:1])[0]
    took = []
    for _ in range(15):
        began_s = time.process_time()
        np.argpartition(-(values @ (query * 127).astype(np.int8).astype(np.int32)), NEAREST)
        took.append(1000 * (time.process_time() - began_s))
    return round(sorted(took)[len(took) // 2], 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--keep", action="store_true", help="keep the result in benchmarks/results")
    options = parser.parse_args()
    module, result = scorer(options.data / "retrieval"), {}
    sets = [load(SHIPPED.parent, SHIPPED.name), load(options.data / "retrieval", "locomo_dev")]
    for data in sets:
        result[data.name] = dict(measure_models(module, data))
    cost = {str(n): {"bytes": n + 4, "search_ms": time_search(n)} for n in CUTS}
    table(f"int8 vectors, and a search over {N_SEARCHED:,} (ms)", [{"numbers": n, **row} for n, row in cost.items()])
    if options.keep:
        keep_result("shortened", {**describe_run(), "sets": result, "cost": cost})


def measure_models(module: Any, data: Retrieval) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of each model that is here."""
    cut = pieces(data.docs)
    for name, make in MODELS.items():
        try:
            model = make()
        except (ImportError, OSError) as error:
            print(f"{name}: not here ({error})")
            continue
        label = f"{data.name}-{name.partition(',')[0]}"
        docs = embedded(label, model, cut.texts, "document")
        queries = embedded(label, model, [query["query"] for query in data.queries], "query")
        rows = list(measure_cuts(module, data, docs, queries, cut))
        shown = [{key: value if key == "numbers" else round(100 * value["at"], 1) for key, value in row.items()}
                 for row in rows]  # fmt: skip
        table(f"{data.name}, {name}", shown)
        yield name, {str(row.pop("numbers")): row for row in rows}


if __name__ == "__main__":
    main()
