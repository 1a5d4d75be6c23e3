"""What the embedders bring and cost: quality, what int8 loses, speed and memory, and the texts of a real archive.

    python -m benchmarks.embedding quality      # each tier alone, and 0.5 / 0.5 with BM25, beside BM25 alone
    python -m benchmarks.embedding precision    # neighbours and quality after int8 and fp16
    python -m benchmarks.embedding reference    # our int8 models and batches against float32 (needs onnx, and .cache)
    python -m benchmarks.embedding speed        # texts a second, load, query, memory: each in a process of its own
    python -m benchmarks.embedding texts        # kinds of text in real transcripts, and what each costs
    python -m benchmarks.embedding heads        # long messages by all their chunks, or by their beginning
    python -m benchmarks.embedding lanes        # a query behind 98 bulk texts, with and without lanes (feature row X33)

`--data DIR` is the folder with `retrieval/` and `transcripts/`. Vectors are kept in benchmarks/out for the next time.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import apsw
import numpy as np

from benchmarks.common import OUT, save, spread, table, timed
from benchmarks.quality import SETS, load, scorer
from perdure import formats, text
from perdure.capture.lines import split_lines
from perdure.index.encoding import HEAD_CHARS, count_embedded_chars
from perdure.index.projection import project_run
from perdure.models import local_embedders
from perdure.models.embedder import (
    Embedder,
    ModelTag,
    TextKind,
    ValidatingEmbedder,
    Vectors,
    quantise,
    restore,
    to_unit_length,
)
from perdure.models.lanes import EmbeddingLanes
from perdure.models.local_embedders import WordPiece
from perdure.types import Run, Source

DATA = Path(__file__).parents[2] / "shared" / "data"
SHOWN = ("R@5", "R@10", "All@10", "MRR", "nDCG@10")
TIERS: dict[str, Callable[[int], Embedder]] = {
    "minilm": lambda threads: local_embedders.MiniLM(threads=threads),
    "static": lambda _: local_embedders.StaticEmbedder(),
}
APART = "5-adversarial"
K = 50


# ------------------------------------------------------------------------------------------------------- quality


@dataclass(frozen=True)
class Pieces:
    """The chunks of a set's documents, with the date in front, and which document each is of."""

    texts: list[str]
    of_doc: np.ndarray[Any, Any]


def pieces(docs: Sequence[dict[str, Any]]) -> Pieces:
    texts, of_doc = [], []
    for n, doc in enumerate(docs):
        lead = f"[{doc['ts']}] " if doc.get("ts") else ""
        for low, high in text.split(doc["text"], max_chars=2000, overlap_chars=200):
            texts.append(lead + doc["text"][low:high])
            of_doc.append(n)
    return Pieces(texts, np.array(of_doc))


def embedded(name: str, embedder: Embedder, texts: Sequence[str], kind: TextKind) -> Vectors:
    """Vectors of these texts, from benchmarks/out when they were made before."""
    OUT.mkdir(exist_ok=True)
    digest = hashlib.sha256("\0".join((embedder.tag.key, kind, *texts)).encode()).hexdigest()[:16]
    path = OUT / f"vectors-{name}-{digest}.npy"
    if not path.exists():
        with timed() as clock:
            found = ValidatingEmbedder(embedder).embed(texts, kind)
        print(f"  {name}: {len(texts)} {kind} texts, {clock.cpu_s:.0f} CPU s", flush=True)
        np.save(path, found)
    return np.load(path)


def by_document(scores: np.ndarray[Any, Any], of_doc: np.ndarray[Any, Any], n_docs: int) -> np.ndarray[Any, Any]:
    """The best of a document's chunks."""
    best = np.full(n_docs, -np.inf)
    np.maximum.at(best, of_doc, scores)
    return best


def scaled(scores: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Min-max over the documents of the group."""
    low, high = scores.min(), scores.max()
    return (scores - low) / (high - low) if high > low else np.zeros_like(scores)


class Words:
    """BM25 by FTS5 with stemming over one group, as the index does it; stop-words leave the query."""

    def __init__(self, module: ModuleType, texts: Sequence[str]) -> None:
        self._module = module
        self._db = apsw.Connection(":memory:")
        self._db.execute("CREATE VIRTUAL TABLE t USING fts5(x, tokenize='porter unicode61 remove_diacritics 2')")
        self._db.executemany(
            "INSERT INTO t(rowid, x) VALUES (?, ?)", [(n, self._plain(t)) for n, t in enumerate(texts)]
        )
        self._n = len(texts)

    def _plain(self, words: str) -> str:
        return " ".join(self._module.tokens(words)) if self._module.CJK.search(words) else words

    def scores(self, query: str) -> np.ndarray[Any, Any]:
        found = np.zeros(self._n)
        terms = dict.fromkeys(t for t in self._module.tokens(query))
        match = " OR ".join(f'"{t}"' for t in terms)
        for n, score in self._db.execute("SELECT rowid, -bm25(t) FROM t WHERE t MATCH ?", (match,)) if match else ():
            found[n] = score
        return found


def quality(data: Path) -> None:
    module = scorer(data / "retrieval")
    result = {}
    for name in SETS:
        found = load(data / "retrieval", name)
        rows = []
        for label, run in rank_questions(module, found, {t: _vectors(t, found) for t in TIERS}).items():
            average, _ = module.score(run, found.queries, exclude=(APART,))
            rows.append({"of": label, **{m: round(average["ALL"][m] * 100, 1) for m in SHOWN}})
        result[name] = rows
        table(f"{name}, {average['ALL']['n']} questions", rows)
    save("embedding-quality", result)


def _vectors(tier: str, found: Any) -> tuple[Vectors, Vectors]:
    embedder = TIERS[tier](1)
    docs, queries = pieces(found.docs).texts, [q["query"] for q in found.queries]
    return embedded(f"{found.name}-{tier}", embedder, docs, "document"), embedded(
        f"{found.name}-{tier}", embedder, queries, "query"
    )


def rank_questions(
    module: ModuleType, found: Any, tiers: dict[str, tuple[Vectors, Vectors]]
) -> dict[str, list[dict[str, Any]]]:
    """Rankings of every question: BM25, each tier alone, each tier fused with BM25."""
    cut = pieces(found.docs)
    groups: dict[str, list[int]] = {}
    for n, doc in enumerate(found.docs):
        groups.setdefault(doc["group"], []).append(n)
    runs: dict[str, list[dict[str, Any]]] = {}
    words = {group: Words(module, [_dated(found.docs[n]) for n in mine]) for group, mine in groups.items()}
    for q, query in enumerate(found.queries):
        mine = np.array(groups[query["group"]])
        here = np.isin(cut.of_doc, mine)
        local = np.searchsorted(mine, cut.of_doc[here])
        legs = {"BM25": words[query["group"]].scores(query["query"])}
        for tier, (docs, queries) in tiers.items():
            legs[tier] = by_document(docs[here] @ queries[q], local, len(mine))
            legs[f"{tier} + BM25"] = 0.5 * scaled(legs[tier]) + 0.5 * scaled(legs["BM25"])
        for label, scores in legs.items():
            order = np.argsort(-scores, kind="stable")[:K]
            ranked = [found.docs[mine[n]]["id"] for n in order if label != "BM25" or scores[n] > 0]
            runs.setdefault(label, []).append({"qid": query["qid"], "ranked": ranked})
    return runs


def _dated(doc: dict[str, Any]) -> str:
    return f"[{doc['ts']}] {doc['text']}" if doc.get("ts") else str(doc["text"])


# ----------------------------------------------------------------------------------------------------- precision


def precision(data: Path) -> None:
    """R@10 and nearest neighbours with the vectors kept in int8 (a scale each) and in fp16, against float32."""
    module = scorer(data / "retrieval")
    rows = []
    for name in SETS[:2]:
        found = load(data / "retrieval", name)
        for tier in TIERS:
            docs, queries = _vectors(tier, found)
            for label, kept in {
                "float32": docs,
                "fp16": to_unit_length(docs.astype(np.float16)),
                "int8": restore(quantise(docs)),
            }.items():
                run = rank_questions(module, found, {tier: (kept, queries)})[tier]
                average, _ = module.score(run, found.queries, exclude=(APART,))
                rows.append({
                    "set": name, "tier": tier, "kept as": label, "bytes": _bytes(label, docs.shape[1]),
                    "R@10": round(average["ALL"]["R@10"] * 100, 2),
                    "same 10 nearest %": round(_overlap((docs, queries), (kept, queries)), 2),
                    "least cosine": round(float((docs * kept).sum(axis=1).min()), 5),
                })  # fmt: skip
    table("vectors as they are kept", rows)
    save("embedding-precision", {"kept": rows})


def _bytes(label: str, dimension: int) -> int:
    return {"float32": 4 * dimension, "fp16": 2 * dimension, "int8": dimension + 4}[label]


def _overlap(whole: tuple[Vectors, Vectors], other: tuple[Vectors, Vectors]) -> float:
    """Percent of each question's ten nearest chunks of the whole set that stay among the ten. (documents, queries)"""
    exact, found = (np.argsort(-(queries @ docs.T), axis=1, kind="stable")[:, :10] for docs, queries in (whole, other))
    return float(np.mean([len(set(a) & set(b)) for a, b in zip(exact, found, strict=True)]) * 10)


def reference(data: Path) -> None:
    """The models as carried, against the float32 originals, on LoCoMo; and what a batch does to the int8 graph."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
    import build_weights as build  # type: ignore[import-not-found]
    from minilm_float import FloatMiniLM  # type: ignore[import-not-found]

    module, found = scorer(data / "retrieval"), load(data / "retrieval", "locomo_dev")
    exact_model, ids = FloatMiniLM(), local_embedders.MiniLM()._to_token_ids
    potion = build.tensors(build.fetch(build.POTION, build.ROOT / ".cache/weights")[0])["embeddings"].astype(np.float32)
    tables = {"float32": potion, "fp16": potion.astype(np.float16).astype(np.float32)}
    docs, queries = pieces(found.docs).texts, [query["query"] for query in found.queries]
    makers: dict[str, Callable[[Sequence[str]], Vectors]] = {
        "minilm float32": lambda texts: np.array([exact_model.embed(ids(words)) for words in texts]),
        "minilm int8, one text a run": lambda texts: _batched(
            local_embedders.check_weights(local_embedders.MINILM_MODEL), texts, 1
        ),
        "minilm int8, 16 texts a run": lambda texts: _batched(
            local_embedders.check_weights(local_embedders.MINILM_MODEL), texts, 16
        ),
        **{f"static {name}": lambda texts, table=table: _summed(table, texts) for name, table in tables.items()},
        "static int8": lambda texts: local_embedders.StaticEmbedder().embed(texts, "document"),
    }
    rows, exact = [], {}
    for label, make in makers.items():
        with timed() as clock:
            vectors, asked = make(docs), make(queries)
        tier = exact.setdefault(label.split()[0], vectors)
        runs = rank_questions(module, found, {"x": (vectors, asked)})
        average, _ = module.score(runs["x + BM25"], found.queries, exclude=(APART,))
        alone, _ = module.score(runs["x"], found.queries, exclude=(APART,))
        cosines = (vectors * tier).sum(axis=1)
        rows.append({
            "model": label, "R@10 alone": round(alone["ALL"]["R@10"] * 100, 1),
            "fused": round(average["ALL"]["R@10"] * 100, 1), "cosine mean": round(float(cosines.mean()), 4),
            "least": round(float(cosines.min()), 4),
            "same 10 nearest %": round(_overlap((tier, tier[:200]), (vectors, tier[:200])), 1),
            "CPU s": round(clock.cpu_s, 1),
        })  # fmt: skip
    table("models as carried, against float32 (LoCoMo, categories 1-4)", rows)
    save("embedding-reference", {"rows": rows})


def _batched(graph: Path, texts: Sequence[str], n_texts: int) -> Vectors:
    """Vectors of texts sorted by length, so many a run, padded to the longest."""
    session, model = local_embedders._open_session(graph, 1), local_embedders.MiniLM()
    ids = [model._to_token_ids(words) for words in texts]
    order = sorted(range(len(ids)), key=lambda n: len(ids[n]))
    found = np.zeros((len(texts), local_embedders.MINILM_DIMENSION), np.float32)
    for start in range(0, len(order), n_texts):
        mine = order[start : start + n_texts]
        rows = np.zeros((len(mine), max(len(ids[n]) for n in mine)), np.int64)
        mask = np.zeros_like(rows)
        for row, n in enumerate(mine):
            rows[row, : len(ids[n])], mask[row, : len(ids[n])] = ids[n], 1
        found[mine] = session.run(None, {"input_ids": rows, "attention_mask": mask})[0]
    return found


def _summed(table_: Vectors, texts: Sequence[str]) -> Vectors:
    cutter = WordPiece(local_embedders.read_vocabulary(local_embedders.STATIC_VOCABULARY))
    rows = [[n for n in cutter.to_token_ids(words) if n != 1] for words in texts]
    return to_unit_length(
        np.array([table_[row].sum(axis=0) if row else np.zeros(local_embedders.STATIC_DIMENSION) for row in rows])
    )


# --------------------------------------------------------------------------------------------------------- speed


def speed(data: Path) -> None:
    """Each tier and thread count in a fresh process."""
    rows = []
    for tier, threads in (("minilm", 1), ("minilm", 2), ("static", 1)):
        command = [sys.executable, "-m", "benchmarks.embedding", "one", "--tier", tier, "--threads", str(threads)]
        done = subprocess.run([*command, "--data", str(data)], capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    table("speed (texts/s by the wall; per CPU second in brackets)", rows)
    save("embedding-speed", {"rows": rows})


def one(data: Path, tier: str, threads: int) -> None:
    """The figures of one tier, as a line of JSON."""
    found = load(data / "retrieval", "locomo_dev")
    short = pieces(found.docs).texts[:512]
    long = [t for t in pieces(load(data / "retrieval", "beam_dev").docs).texts if len(t) > 1500][:64]
    before = _rss_mb()
    with timed() as loading:
        embedder = ValidatingEmbedder(TIERS[tier](threads))
        embedder.embed(["hello"], "query")
    loaded = _rss_mb()
    row: dict[str, Any] = {
        "tier": tier,
        "threads": threads,
        "load s": round(loading.wall_s, 2),
        "load CPU s": round(loading.cpu_s, 2),
    }
    for label, texts in (("turns", short), ("2,000 chars", long)):
        with timed() as clock:
            embedder.embed(texts, "document")
        row[label] = f"{len(texts) / clock.wall_s:,.0f} ({len(texts) / clock.cpu_s:,.0f})"
    row |= {f"query {name} ms": value for name, value in _query_ms(embedder, found).items() if name != "max"}
    print(
        json.dumps({**row, "RSS loaded MB": loaded - before, "RSS peak MB": _peak_mb() - before, "python MB": before})
    )


def _query_ms(embedder: Embedder, found: Any) -> dict[str, float]:
    walls = []
    for query in found.queries[:200]:
        start = time.perf_counter()
        embedder.embed([query["query"]], "query")
        walls.append((time.perf_counter() - start) * 1000)
    return spread(walls)


def _rss_mb() -> int:
    gc.collect()
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) // 1024


def _peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


# --------------------------------------------------------------------------------------------------------- texts


def transcript_chunks(folder: Path) -> Iterator[tuple[str, str, int, str]]:
    """(kind, author, place of the chunk in its part of the turn, masked text) of every chunk."""
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix in (".jsonl", ".json")):
        if path.name == "MANIFEST.jsonl":
            continue
        data = path.read_bytes()
        runtime = formats.detect(data[:65536], str(path))
        for origin, body in _streams(runtime, data, path):
            parsed = formats.parse(
                runtime, split_lines(body), spawned=origin.parent_session is not None and not origin.fork
            )
            for row in project_run(_run(runtime, origin.session, len(body)), parsed):
                for turn in row.turns:
                    yield from _numbered(turn)


def _streams(runtime: str, data: bytes, path: Path) -> Iterator[tuple[Any, bytes]]:
    if formats.is_append_only(runtime, data[:65536]):
        yield formats.identify(runtime, data[:65536], str(path)), data
        return
    for origin, lines in formats.emit(runtime, data, path=str(path)):
        yield origin, b"".join(line if line.endswith(b"\n") else line + b"\n" for line in lines)


def _run(runtime: str, session: str, n_bytes: int) -> Run:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Run("r" * 26, Source("u", runtime, session), "m", "default", None, session, 0, n_bytes, "", None, None, now)


def _numbered(turn: Any) -> Iterator[tuple[str, str, int, str]]:
    place, last = 0, ""
    for chunk in turn.chunks:
        place = place + 1 if chunk.kind == last else 0
        last = chunk.kind
        yield chunk.kind, turn.turn.author, place, chunk.text


CLASSES: dict[str, Callable[[str, str, int], bool]] = {  # of (kind, author, place of the chunk in its part)
    "said by people": lambda kind, author, _: kind == "text" and author == "person",
    "said by agents": lambda kind, author, _: kind == "text" and author == "agent",
    "said by machines": lambda kind, author, _: kind == "text" and author not in ("person", "agent"),
    "thought": lambda kind, _author, _: kind == "thinking",
    "called: first chunk": lambda kind, _, place: kind == "call" and place == 0,
    "called: the rest": lambda kind, _, place: kind == "call" and place > 0,
    "returned: first chunk": lambda kind, _, place: kind == "result" and place == 0,
    "returned: the rest": lambda kind, _, place: kind == "result" and place > 0,
}


def texts(data: Path) -> None:
    with timed() as clock:
        chunks = list(transcript_chunks(data / "transcripts"))
    print(f"  {len(chunks)} chunks in {clock.cpu_s:.1f} CPU s")
    rows = []
    for label, is_in in CLASSES.items():
        mine = [(author, place, words) for kind, author, place, words in chunks if is_in(kind, author, place)]
        rows.append({"what": "all", **_cost(label, [words for _, _, words in mine])})
        given = [
            words[: count_embedded_chars(author, place)]
            for author, place, words in mine
            if count_embedded_chars(author, place) != 0
        ]
        if given and label != "said by people":
            rows.append({"what": "as decided", **_cost(label, given)})
    table("real transcripts: texts that differ, and CPU s to embed each kind (1 thread, from a sample of 60)", rows)
    save("embedding-texts", {"rows": rows})


def _cost(label: str, mine: list[str]) -> dict[str, Any]:
    different = list(dict.fromkeys(mine))
    sample = [different[n] for n in np.random.default_rng(1).permutation(len(different))[:60]]
    row: dict[str, Any] = {
        "texts": label,
        "chunks": len(mine),
        "different": len(different),
        "MB": round(sum(map(len, different)) / 1e6, 2),
    }
    for tier, make in TIERS.items():
        embedder = make(1)
        embedder.embed(["warm"], "document")
        with timed() as clock:
            embedder.embed(sample, "document")
        row[f"{tier} CPU s"] = round(clock.cpu_s / max(1, len(sample)) * len(different), 1)
    return row


def heads(data: Path) -> None:
    """How much of a message to embed (BEAM: a person's has 215 characters at the median, an agent's 3,700)."""
    module, found = scorer(data / "retrieval"), load(data / "retrieval", "beam_dev")
    cut = pieces(found.docs)
    is_first = np.r_[True, cut.of_doc[1:] != cut.of_doc[:-1]][:, None]
    by_user = np.array([found.docs[n]["speaker"] == "user" for n in cut.of_doc])[:, None]
    rows = []
    for tier, make in TIERS.items():
        whole, queries = _vectors(tier, found)
        head = embedded(f"beam_dev-{tier}-heads", make(1), [t[: HEAD_CHARS + 20] for t in cut.texts], "document")
        kept = {
            "all chunks": whole,
            "first chunk": np.where(is_first, whole, 0),
            "head of the first chunk": np.where(is_first, head, 0),
            "head of every chunk": head,
            "person: all; agent: first chunk": np.where(by_user | is_first, whole, 0),
            "person: all; agent: head of every chunk": np.where(by_user, whole, head),
            "person: all; agent: head of the first": np.where(by_user, whole, np.where(is_first, head, 0)),
        }
        for label, vectors in kept.items():
            runs = rank_questions(module, found, {tier: (vectors.astype(np.float32), queries)})
            rows.append({"tier": tier, "embedded": label, "vectors": int((vectors != 0).any(axis=1).sum())})
            rows[-1] |= _by_speaker(module, found, runs[tier], runs[f"{tier} + BM25"])
    table("BEAM, 144 questions: how much of a message is embedded (R@10; gold by a person: 132, by an agent: 32)", rows)
    save("embedding-heads", {"rows": rows})


Ranked = list[dict[str, Any]]


def _by_speaker(module: ModuleType, found: Any, alone: Ranked, fused: Ranked) -> dict[str, Any]:
    speaker = {doc["id"]: doc["speaker"] for doc in found.docs}
    row = {}
    for label, run in (("alone", alone), ("fused", fused)):
        average, _ = module.score(run, found.queries)
        row[label] = round(average["ALL"]["R@10"] * 100, 1)
    for who in ("user", "assistant"):
        asked = [{**q, "gold": [d for d in q["gold"] if speaker[d] == who]} for q in found.queries]
        average, _ = module.score(fused, [q for q in asked if q["gold"]])
        row[f"fused, gold by {who}"] = round(average["ALL"]["R@10"] * 100, 1)
    return row


# --------------------------------------------------------------------------------------------------------- lanes


class Slow:
    """An embedder that takes a fixed time for each text, as a large one behind an endpoint does."""

    def __init__(self, text_s: float) -> None:
        self.tag = ModelTag(f"slow-{text_s * 1000:.0f}-ms", 8, "0" * 64)
        self._text_s = text_s

    def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:  # noqa: ARG002
        time.sleep(self._text_s * len(texts))
        return np.ones((len(texts), 8), np.float32)


def lanes(data: Path) -> None:
    """98 bulk texts are queued, then a query comes: once in a lane of its own, once behind them."""
    beam = [t for t in pieces(load(data / "retrieval", "beam_dev").docs).texts if len(t) > 1500]
    models: dict[str, Callable[[], Embedder]] = {
        "minilm, 1 thread": lambda: ValidatingEmbedder(local_embedders.MiniLM(threads=1)),
        "minilm, 2 threads": lambda: ValidatingEmbedder(local_embedders.MiniLM(threads=2)),
        "slow, 180 ms a text": lambda: Slow(0.18),
    }
    rows = []
    for label, make in models.items():
        for lane in ("bulk", "query", "idle"):
            rows.append(
                {"embedder": label, "query goes": lane, **_behind(make(), beam, lane, 12 if lane == "query" else 1)}
            )
    table("a query while 98 texts of 2,000 characters are queued (ms, median)", rows)
    save("embedding-lanes", {"rows": rows})


def _behind(embedder: Embedder, beam: Sequence[str], lane: str, n_runs: int) -> dict[str, Any]:
    embedder.embed(["warm"], "query")
    answers = []
    for run in range(n_runs):
        queue = EmbeddingLanes(embedder, item_chars=1000)
        waiting = [queue.submit([t], kind="document", lane="bulk") for t in (beam[:98] if lane != "idle" else ())]
        if waiting and lane == "query":
            time.sleep(0.05 + 0.03 * run)  # any moment of an item in flight
        answer = queue.submit(["why did it fail?"], kind="query", lane="bulk" if lane == "bulk" else "query").result()
        answers.append(answer)
        queue.close()
    return {
        "bulk ahead": answers[0].depth_before["bulk"],
        **{
            n: round(statistics.median(getattr(a, n) for a in answers), 1)
            for n in ("queued_ms", "compute_ms", "total_ms")
        },
        "total p95": spread([a.total_ms for a in answers])["p95"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "what", choices=("quality", "precision", "reference", "speed", "texts", "heads", "lanes", "one")
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--tier", default="minilm")
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    if not local_embedders.has_weights(local_embedders.MINILM_MODEL):
        raise SystemExit("no weights here: make weights")
    if chosen.what == "one":
        one(chosen.data, chosen.tier, chosen.threads)
    else:
        globals()[chosen.what](chosen.data)


if __name__ == "__main__":
    main()
