"""What a warm recall costs by the size of the index, what may be seen of it, and the length of the message.

The index is filled through the real projection and write path with synthetic runs; its vectors are random (their
number and length decide the time, not their meaning), the model that embeds each message is the real one. Beside it:
the messages' embedding alone, and reading the slab's bytes once (the floor of an exact scan).

    python -m benchmarks.latency --chunks 100000
    python -m benchmarks.latency --chunks 100000 --memories 20000
    python -m benchmarks.latency --chunks 100000 --memories 20000 --helper    # and with a model that plans each recall
    python -m benchmarks.latency --chunks 1000000 --keep /var/tmp/bench       # reuses the index it finds there
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from msgspec.structs import replace

from benchmarks import corpus
from benchmarks.common import machine, save, spread, table, timed
from benchmarks.search import ADA, build, folder
from perdure.archive import memory_events
from perdure.archive.journal import encode_event
from perdure.config import EmbedderConfig
from perdure.errors import ModelLate
from perdure.index import embed, store, vector_search
from perdure.index.apply_journals import apply_journals
from perdure.index.slab import choose_fastest_kernel
from perdure.models.chat import Chat, ChatMessage, ChatReply, check_reply
from perdure.models.gguf import GgufChat
from perdure.models.lanes import EmbeddingLanes
from perdure.models.local_embedders import choose_embedder
from perdure.models.settings import ModelSettings
from perdure.queries import HELPER_S
from perdure.recall.index_candidates import IndexCandidates
from perdure.recall.plan import choose_filters, plan, plan_with_model
from perdure.recall.rank import list_texts_to_embed
from perdure.recall.recall import recall
from perdure.recall.recaller import RecallContext
from perdure.types import Filters, Memory
from rig import local_model

NOW = datetime(2026, 1, 1, tzinfo=UTC)
N_MESSAGES = 60
_PART = 5_000  # random vectors that are made at a time
SCOPES = (
    ("everything", Filters()),
    ("40 %", choose_filters("", project="/work/p0", projects=(), all_projects=False)),
    ("1 %", choose_filters("", project="/work/p1", projects=(), all_projects=False)),
)


HELPER_DELAYS_MS = (0, 50, 200, 2000)  # the last one is longer than recall waits for its helper


@dataclass
class DelayedHelper:
    """A helper model that answers after a fixed time: with the message and its two halves as queries."""

    delay_s: float
    name: str = "scripted:helper"

    def reply(
        self, messages: Sequence[ChatMessage], *, timeout_s: float | None = None, schema: Any = None, **_options: Any
    ) -> ChatReply:
        """Wait, and answer; raise ModelLate once the caller's time is over."""
        limit_s = self.delay_s if timeout_s is None else timeout_s
        time.sleep(min(self.delay_s, limit_s))
        if self.delay_s > limit_s:
            raise ModelLate(self.name)
        message = messages[-1].text
        words = message.split()
        half = len(words) // 2
        queries = [query for query in (message, " ".join(words[:half]), " ".join(words[half:])) if query]
        return check_reply(ChatReply(json.dumps({"queries": queries, "names": [], "intent": "fact"})), schema)


def messages(made: corpus.Corpus) -> dict[str, list[str]]:
    """Messages as people type them: a few words, a question, several questions at once, in another script."""
    asked = {
        kind: corpus.queries(made, kind, N_MESSAGES) for kind in ("2-3 words", "question", "identifier", "chinese")
    }
    more = corpus.queries(made, "question", 4 * N_MESSAGES, seed=4)
    several = ["? ".join(q.rstrip("?") for q in more[4 * n : 4 * n + 1 + n % 4]) + "?" for n in range(N_MESSAGES)]
    return {**asked, "one to four questions": several}


def fill(
    index: store.IndexConnection, shelf: vector_search.SlabFiles, dimension: int, tag: str
) -> vector_search.VectorSpace:
    """A slab with a random vector for every chunk."""
    user = index.find_name("user", ADA.user)
    assert user is not None
    with index.begin_write():
        slot = vector_search.find_or_add_slab(index, user, tag, dimension)
    rng = np.random.default_rng(1)
    todo = embed.list_missing(index, slot) if slot.n_rows == 0 else []
    for low in range(0, len(todo), _PART):
        waiting = list(embed._read_pending(index, todo[low : low + _PART]))
        rows = rng.standard_normal((len(waiting), dimension)).astype(np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        embed.write_vectors(index, shelf, slot, waiting, rows, last_listed=todo[0], n_left=0)
    slot = next(found for found in vector_search.list_slabs(index, user) if found.tag == tag)
    return vector_search.VectorSpace(slot, shelf.open_slab(index, slot))


def measured(
    index: store.IndexConnection,
    lanes: EmbeddingLanes,
    space: vector_search.VectorSpace | None,
    filters: Filters,
    asked: Sequence[str],
    *,
    pause_s: float = 0.0,
    helper: Chat | None = None,
) -> dict[str, Any]:
    """Milliseconds of one recall each, embedding included, after a few to warm up; so long a pause before each.

    helper: plans each recall, as it does in a home that names one.
    """
    walls, cpus, embeds, n_cues, n_late = [], [], [], 0, 0
    for n, message in enumerate([*asked[:3], *asked]):
        time.sleep(pause_s)
        wall, cpu = time.perf_counter(), time.process_time()
        wanted, is_late = plan(message, now=NOW), False
        if helper:
            wanted, is_late = plan_with_model(wanted, helper, timeout_s=HELPER_S)
        texts = list_texts_to_embed(wanted)
        pending = lanes.submit(texts, kind="query", lane="query") if space and texts else None
        with index.begin_read(), lanes.pause_bulk():
            found = recall(
                IndexCandidates(index, ADA, filters, space), wanted,
                RecallContext((lambda p=pending: p.result().vectors) if pending else None, lanes.embedder.tag.name),
            )  # fmt: skip
        if n >= 3:
            walls.append((time.perf_counter() - wall) * 1000)
            cpus.append((time.process_time() - cpu) * 1000)
            embeds.append(pending.result().total_ms if pending else 0.0)
            n_cues += bool(found.cues)
            n_late += is_late
    wall_ms, cpu_ms = spread(walls), spread(cpus)
    return {
        "wall p50": wall_ms["p50"], "wall p95": wall_ms["p95"], "cpu p50": cpu_ms["p50"], "cpu p95": cpu_ms["p95"],
        "embed p95": spread(embeds)["p95"], "spoke": f"{n_cues}/{len(asked)}",
        **({"without its answer": f"{n_late}/{len(asked)}"} if helper else {}),
    }  # fmt: skip


def measure_helpers(
    index: store.IndexConnection, lanes: EmbeddingLanes, space: vector_search.VectorSpace, asked: Sequence[str]
) -> list[dict[str, Any]]:
    """Rows without a helper, with scripted ones, and with the small model where `make model` has put it.

    `ratio` is p50 and p95 against the row without a helper, which is measured first and last.
    """
    helpers: dict[str, Chat | None] = {"none": None}
    helpers |= {f"{delay_ms} ms": DelayedHelper(delay_ms / 1000) for delay_ms in HELPER_DELAYS_MS}
    with contextlib.suppress(local_model.Missing):
        path = local_model.file()
        helpers["SmolLM2 135M"] = GgufChat(ModelSettings("gguf:smol", str(path), urlsplit(""), max_output_tokens=200))
    helpers["none, again"] = None
    filters = Filters(memories=True)
    rows = [
        {"helper": name, **measured(index, lanes, space, filters, asked, helper=helper)}
        for name, helper in helpers.items()
    ]
    base = rows[0]
    return [
        {**row, "ratio p50": round(row["wall p50"] / base["wall p50"], 2),
         "ratio p95": round(row["wall p95"] / base["wall p95"], 2)}
        for row in rows
    ]  # fmt: skip


def remember(index: store.IndexConnection, made: corpus.Corpus, n: int, root: Path) -> dict[str, float]:
    """So many memories in a journal of their own, followed by the index; every second one supersedes another."""
    said = corpus.queries(made, "question", n, seed=9)
    path = root / ADA.user / "wbench" / "2026-01.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for at, words in enumerate(said):
            stated = NOW - timedelta(minutes=n - at)
            memory = Memory(
                f"mem-{stated:%Y%m%d-%H%M%S}-{at % 2**24:06x}", words.rstrip("?") + ".", "fact", f"topic-{at // 2}/is",
                "default", None, stated, stated, "owner", "stated",
            )  # fmt: skip
            data = memory_events.build_event_data([memory_events.build_create_op(memory)], by="rules")
            hybrid = f"{stated:%Y-%m-%dT%H:%M:%S}.000Z#{at % 10_000:04d}"
            file.write(encode_event(hybrid, "wbench", at + 1, memory_events.EVENT_TYPE, data) + b"\n")
    with timed() as clock:
        apply_journals(index, [root / ADA.user])
    return {"memories": n, "followed s": round(clock.wall_s, 1)}


def resident_mb() -> float:
    """Memory of this process that is in use, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1]) if Path("/proc/self/statm").exists() else 0
    return round(pages * resource.getpagesize() / 1e6, 0)


def floor_ms(space: vector_search.VectorSpace) -> dict[str, float]:
    """Reading the vectors once, and comparing one query with all of them."""
    product = choose_fastest_kernel()
    query = np.ones((1, space.info.dimension), np.int8)
    reads, scans = [], []
    for _ in range(5):
        with timed() as clock:
            for segment in space.slab.iter_segments(space.info.n_rows):
                np.asarray(segment.values).view(np.int64).sum()
        reads.append(clock.wall_s * 1000)
        with timed() as clock:
            for segment in space.slab.iter_segments(space.info.n_rows):
                product(segment.values, query)
        scans.append(clock.wall_s * 1000)
    return {"read once": round(min(reads), 1), "compare with one query": round(min(scans), 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--chars", type=int, default=300, help="of an average chunk")
    parser.add_argument("--conversations", type=int, default=0, help="that hold them; else of 5 to 60 turns each")
    parser.add_argument("--memories", type=int, default=0, help="memories beside the chunks")
    parser.add_argument("--helper", action="store_true", help="measure recalls that a helper model plans, too")
    parser.add_argument("--keep", type=Path, help="folder for the index, reused by the next run")
    options = parser.parse_args()
    made = corpus.make()
    result: dict[str, Any] = {}
    embedder = choose_embedder(EmbedderConfig()).embedder
    assert embedder is not None
    with folder(options.keep) as place:
        beside = f"-c{options.conversations}" if options.conversations else ""
        beside += f"-{options.memories}" if options.memories else ""
        path = place / f"search-{options.chunks}-{options.chars}{beside}.db"
        is_new = not path.exists()
        if is_new:
            result["build"] = build(path, made, options.chunks, options.chars, (("ada", 1.0),), options.conversations)
        index, lanes = store.IndexConnection(path), EmbeddingLanes(embedder, item_chars=1000)
        if is_new and options.memories:
            result["memories"] = remember(index, made, options.memories, place / f"journal{beside}")
            table("memories", [result["memories"]])
        space = fill(index, vector_search.SlabFiles(place), embedder.tag.dimension, embedder.tag.key)
        result["floor"] = floor_ms(space)
        table(f"the floor: {space.info.n_rows:,} vectors, ms", [result["floor"]])
        asked = messages(made)
        everywhere = Filters(memories=True)
        everything = [message for kind in asked.values() for message in kind]
        result["kinds"] = [
            {"messages": kind, **measured(index, lanes, space, everywhere, texts)} for kind, texts in asked.items()
        ]
        table(f"recall, ms, {options.chunks:,} chunks", result["kinds"])
        result["scopes"] = [
            {"visible": name, **measured(index, lanes, space, replace(filters, memories=True), everything)}
            for name, filters in SCOPES
        ]
        result["scopes"].append({"visible": "by words alone", **measured(index, lanes, None, everywhere, everything)})
        if options.helper:
            result["helpers"] = measure_helpers(index, lanes, space, asked["question"])
            table(f"recall of a question with a helper model, ms, load {machine()['load']}", result["helpers"])
        result["resident MB"] = resident_mb()
        table("memory of this process", [{"resident MB": result["resident MB"]}])
        table("by what may be seen, all messages, ms", result["scopes"])
        lanes.close()
        index.close()
    save(f"latency-{options.chunks}{beside}", result)


if __name__ == "__main__":
    main()
