"""What a query waits for while 98 bulk texts are queued: with lanes, without, idle; and what recall pays for it.

Row X33 of the feature list, with its fields. "Without lanes" is one queue, first come first served: the query is
submitted behind the bulk. The default embedder is measured, and a slow one that takes as long for each text as an
endpoint would.

    python -m benchmarks.lanes
    python -m benchmarks.lanes --recall --keep /var/tmp/bench     # recall at 100,000 chunks, idle and under bulk
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import corpus
from benchmarks.common import save, spread, table
from benchmarks.latency import fill, measured, messages
from benchmarks.search import build, folder
from perdure.config import EmbedderConfig
from perdure.index import store, vector_search
from perdure.models.embedder import Embedder, TextKind, Vectors
from perdure.models.lanes import EmbeddingLanes, Lane
from perdure.models.local_embedders import LOCAL_ITEM_CHARS, choose_embedder
from perdure.testing import FakeEmbedder
from perdure.types import Filters

N_BULK = 98
N_ROUNDS = 5
BULK_CHARS = 1_500
QUERY = "why did the cluster fail last night"
PAUSE_S = 0.05  # between two recalls: bulk goes on meanwhile, and each recall meets an item in flight
SLOW_S = 0.085  # of a text: 98 of them make the eight seconds that the row names


class Slow:
    """An embedder that takes its time."""

    def __init__(self) -> None:
        self._inner = FakeEmbedder()
        self.tag = self._inner.tag

    def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        time.sleep(SLOW_S * len(texts))
        return self._inner.embed(texts, kind)


def asked(embedder: Embedder, texts: Sequence[str], lane: Lane) -> dict[str, Any]:
    """One query behind bulk texts, by a lane of its own or by theirs; medians over rounds."""
    rounds = []
    for _ in range(N_ROUNDS):
        lanes = EmbeddingLanes(embedder, item_chars=LOCAL_ITEM_CHARS)
        lanes.submit(["warm"], kind="query", lane="query").result()
        for text in texts:
            lanes.submit([text], kind="document", lane="bulk")
        time.sleep(0.02)  # until the first of them is in flight: the query has to let that finish
        answer = lanes.submit([QUERY], kind="query", lane=lane).result()
        rounds.append((answer.queued_ms, answer.compute_ms, answer.total_ms, sum(answer.depth_before.values())))
        lanes.close()
    queued, compute, total = (spread([each[n] for each in rounds])["p50"] for n in range(3))
    return {"depth before": rounds[0][3], "queued_ms": queued, "compute_ms": compute, "total_ms": total}


def table_x33(made: corpus.Corpus) -> list[dict[str, Any]]:
    texts = [" ".join(made.sentences[n * 30 : n * 30 + 30])[:BULK_CHARS] for n in range(N_BULK)]
    default = choose_embedder(EmbedderConfig()).embedder
    assert default is not None
    rows = []
    for name, embedder in ((str(default.tag), default), (f"{SLOW_S * 1000:.0f} ms a text", Slow())):
        for how, queue, lane in (("idle", [], "query"), ("lanes", texts, "query"), ("one queue", texts, "bulk")):
            rows.append({"embedder": name, "query": how, **asked(embedder, queue, lane)})  # type: ignore[arg-type]
    return rows


@contextmanager
def bulk(lanes: EmbeddingLanes, texts: Sequence[str]) -> Iterator[None]:
    """Bulk work that never ends while this lasts."""
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            lanes.submit(texts, kind="document", lane="bulk").result()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def recall_under_bulk(made: corpus.Corpus, keep: Path | None, n_chunks: int) -> list[dict[str, Any]]:
    embedder = choose_embedder(EmbedderConfig()).embedder
    assert embedder is not None
    with folder(keep) as place:
        path = place / f"search-{n_chunks}-300.db"
        if not path.exists():
            build(path, made, n_chunks, 300, (("ada", 1.0),))
        index, lanes = store.IndexConnection(path), EmbeddingLanes(embedder, item_chars=LOCAL_ITEM_CHARS)
        space = fill(index, vector_search.SlabFiles(place), embedder.tag.dimension, embedder.tag.key)
        texts = [" ".join(made.sentences[n * 8 : n * 8 + 8]) for n in range(8)]
        everything = [message for kind in messages(made).values() for message in kind][::3]
        how: dict[str, Any] = {"pause_s": PAUSE_S}
        rows = [{"recall": "idle", **measured(index, lanes, space, Filters(), everything, **how)}]
        with bulk(lanes, texts):
            rows.append({"recall": "under bulk", **measured(index, lanes, space, Filters(), everything, **how)})
        lanes.close()
        index.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recall", action="store_true", help="recall at so many chunks, idle and under bulk, too")
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--keep", type=Path, help="folder for the index, reused by the next run")
    options = parser.parse_args()
    made = corpus.make()
    result: dict[str, Any] = {"x33": table_x33(made)}
    table(f"a query behind {N_BULK} bulk texts of {BULK_CHARS} characters, ms (median of {N_ROUNDS})", result["x33"])
    if options.recall:
        result["recall"] = recall_under_bulk(made, options.keep, options.chunks)
        table(f"recall at {options.chunks:,} chunks, ms", result["recall"])
    save("lanes", result)


if __name__ == "__main__":
    main()
