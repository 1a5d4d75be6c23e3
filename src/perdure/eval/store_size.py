"""Measure what a smaller store still answers: the quality of recall at several sizes, for each stored token.

Every document of a set becomes one memory, and nothing else is stored. The questions are cut into two halves, and each
half is the past of the other: it was asked, recall told what it tells, and the memories that answer it count as used.
Then memories are retired until a size is left, chosen by chance, by age or by use, or `consolidate` applies all of its
proposals. A retired memory answers nothing: the curve shows which choice costs least.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from perdure.archive import injections, memory_events
from perdure.eval import bench, measures
from perdure.eval.bench import BenchSetup, GroupMemory, find_bench_time
from perdure.eval.datasets import EvalDoc, EvalQuestion, load_dataset
from perdure.eval.recall_quality import SHIPPED, is_answerable
from perdure.home import Home, open_home
from perdure.memories import consolidate
from perdure.memories.cue_use import compute_expected_share
from perdure.memories.store import MAX_TEXT_BYTES, MemoryDraft
from perdure.models.embedder import Embedder
from perdure.text import tokens
from perdure.types import Memory

SHARES = (0.75, 0.5, 0.25)  # of the tokens of the whole store
HALF = 0.5  # share that is left when what consolidate leaves is cut further, by use
N_DRAWS = 5  # random stores of one size; a question counts with its mean over them
PAST_ROUNDS = 8  # times that each question of the past was asked, one a day: consolidate retires what was told as often
WHOLE, RANDOM, NEWEST, USED = "all", "random", "newest", "most used"  # ways to choose what is kept
CONSOLIDATED, CONSOLIDATED_HALF = "consolidated", "consolidated, half by use"
TIDIED = "merged and split"  # what `perdure consolidate` proposes unless it is asked to retire what was not used
RETIRED = {
    n: f"none told {n} times for nothing" for n in (8, 24)
}  # the rule of `consolidate --only retire`; asked thrice
RANDOM_ALIKE = ", random"  # a random store as large as the one of this name
_SESSION = {"runtime": "eval", "session": "past", "agent": ""}


@dataclass(frozen=True, slots=True)
class StoreRow:
    """One store: how it was chosen, its size, and what it answers."""

    way: str
    share: float  # of the tokens of the whole store that was aimed at; 1.0 without a limit
    n_memories: float  # that are not retired, in all groups; the mean of the halves
    n_tokens: float
    n_groups: int
    told: measures.ConfidenceInterval  # share of what answers a question that stands in the cues
    found: measures.ConfidenceInterval  # the same, in the first ten of the ranking
    useful: measures.ConfidenceInterval  # share of the cues told that answer the question; the rest is noise
    over_random: measures.ConfidenceInterval | None  # told, over a random store of the same size; paired by question

    @property
    def told_per_1000_tokens(self) -> float:
        """The share told, in per cent, for 1,000 tokens in the store of one group."""
        return 100 * self.told.at * 1000 * self.n_groups / self.n_tokens if self.n_tokens else 0.0


@dataclass(frozen=True, slots=True)
class StoreSizeReport:
    """The curve of one set."""

    name: str
    n_questions: int
    rows: tuple[StoreRow, ...]

    @property
    def figures(self) -> Mapping[str, Any]:
        """The rows as plain values, for JSON."""
        rows = [{**asdict(row), "told_per_1000_tokens": row.told_per_1000_tokens} for row in self.rows]
        return {"name": self.name, "n_questions": self.n_questions, "past_rounds": PAST_ROUNDS, "rows": rows}

    def text(self) -> str:
        """Format the curve as a table for people."""
        whole = self.rows[0]
        lines = [
            f"{self.name}: {whole.n_memories:,.0f} memories, {whole.n_tokens:,.0f} tokens, {self.n_questions} "
            "questions (per cent; 95 % of resamples)",
            "",
            f"{'kept':38}{'memories':>9}{'tokens':>8}{'size':>6}  {'told':19}{'per 1,000':>9}  {'R@10':19}"
            f"{'useful':19}over random",
        ]
        return "\n".join((*lines, *(_format_row(row, whole) for row in self.rows)))


def _format_row(row: StoreRow, whole: StoreRow) -> str:
    size = f"{100 * row.n_tokens / whole.n_tokens:.0f} %" if whole.n_tokens else "–"
    difference = format_interval(row.over_random, sign="+") if row.over_random else "–"
    shares = f"{format_interval(row.told):19}{row.told_per_1000_tokens:>9.1f}  {format_interval(row.found):19}"
    shares += f"{format_interval(row.useful):19}"
    return f"{row.way:38}{row.n_memories:>9,.0f}{row.n_tokens:>8,.0f}{size:>6}  {shares}{difference}"


def format_interval(interval: measures.ConfidenceInterval, *, sign: str = "") -> str:
    """Format a share and its interval in per cent."""
    at, low, high = (f"{100 * value:{sign}.1f}" for value in (interval.at, interval.low, interval.high))
    return f"{at} [{low}, {high}]"


def run(
    source: Path = SHIPPED,
    *,
    embedder: Embedder | None = None,
    vectors: bool = True,
    home: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> StoreSizeReport:
    """Measure the curve of a set, a folder in the normalised layout or LoCoMo's own file.

    home: a scratch home to keep. progress gets (stores measured, all stores).
    """
    data = load_dataset(source)
    questions = [question for question in data.questions if is_answerable(question)]
    docs_by_group = data.group_docs()
    measurements: dict[StoreKey, StoreMeasurement] = {}
    with tempfile.TemporaryDirectory(prefix="perdure-eval-") as scratch:
        for n_half in (0, 1):
            past, present = questions[n_half::2], questions[1 - n_half :: 2]
            folder = (home or Path(scratch)) / f"half-{n_half}"
            with open_stores(docs_by_group, folder, embedder, vectors=vectors) as stores:
                live_past(stores, past)
                for n_done, (key, measurement) in enumerate(_measure_stores(stores, present)):
                    measurements.setdefault(key, StoreMeasurement()).extend(measurement)
                    if progress:
                        progress(n_half * N_STORES + n_done + 1, 2 * N_STORES)
    return StoreSizeReport(data.name, len(questions), tuple(_build_rows(measurements, len(docs_by_group))))


# stores and their past --------------------------------------------------------------------------------------------


@contextmanager
def open_stores(
    docs_by_group: Mapping[str, Sequence[EvalDoc]], folder: Path, embedder: Embedder | None, *, vectors: bool
) -> Iterator[dict[str, GroupMemory]]:
    """Yield group -> its store, in a new home below a folder: a memory for each document, and no turns."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ExitStack() as stack:
        yield {
            group: _fill_store(stack.enter_context(open_home(folder, user=f"g{n}", embedder=embedder)), docs, vectors)
            for n, (group, docs) in enumerate(docs_by_group.items())
        }


def _fill_store(home: Home, docs: Sequence[EvalDoc], vectors: bool) -> GroupMemory:
    drafts = [MemoryDraft(_to_memory_text(doc), stated_at=doc.stated_at) for doc in docs]
    doc_ids_by_memory: dict[str, tuple[str, ...]] = {}
    for doc, result in zip(docs, home.memories.keep_all(drafts, by="owner"), strict=True):
        memory_id = result.memory.memory_id
        doc_ids_by_memory[memory_id] = (*doc_ids_by_memory.get(memory_id, ()), doc.doc_id)
    if vectors:
        home.upkeep.embed()
    asked_at = find_bench_time(docs) + timedelta(days=PAST_ROUNDS)
    return GroupMemory(home, docs, {}, vectors, doc_ids_by_memory, asked_at)


def _to_memory_text(doc: EvalDoc) -> str:
    """Return the text of a document without its role, as much of it as a memory may hold."""
    plain_text = doc.text.removeprefix(f"{doc.speaker}: ") if doc.speaker in ("user", "assistant") else doc.text
    return plain_text.encode()[:MAX_TEXT_BYTES].decode(errors="ignore")


def live_past(stores: Mapping[str, GroupMemory], past: Sequence[EvalQuestion]) -> None:
    """Write what would have happened: each question was asked on PAST_ROUNDS days, and what answers it was used."""
    for n_question, question in enumerate(past):
        store = stores[question.group]
        first_at = find_bench_time(store.docs)
        result = bench.recall_question(store, question, BenchSetup())
        cues = _list_cue_memories(store, result.packed)
        used_ids = [cue for cue in cues if set(store.doc_ids_by_memory[cue]) & set(question.gold)]
        for n_round in range(PAST_ROUNDS if cues else 0):
            nonce, asked_at = f"past-{n_question}-{n_round}", first_at + timedelta(days=n_round)
            data = {**_SESSION, "nonce": nonce, "digest": "", "turns": cues}
            store.home.journal().append(injections.EVENT_TYPE, data, now=asked_at)
            used_data = memory_events.build_used_data(nonce, used_ids, used_at=asked_at, **_SESSION)
            store.home.journal().append(memory_events.USED, used_data, now=asked_at)
    for store in stores.values():
        store.home.connections.follow_journals()


def _list_cue_memories(store: GroupMemory, doc_ids: Sequence[str]) -> list[str]:
    """Return the memories of documents, in their order, each once."""
    memory_by_doc = {doc_id: memory_id for memory_id, ids in store.doc_ids_by_memory.items() for doc_id in ids}
    return list(dict.fromkeys(memory_by_doc[doc_id] for doc_id in doc_ids if doc_id in memory_by_doc))


# smaller stores ---------------------------------------------------------------------------------------------------

StoreKey = tuple[str, float]  # (way, share)
MemoryOrder = Callable[[Sequence[Memory]], Sequence[Memory]]  # the memories to keep come first
N_STORES = 5 + len(RETIRED) * 2 + len(SHARES) * 3  # of one half; random ones of one size count as one


@dataclass
class StoreMeasurement:
    """What one store, or the mean of several random ones, answers to the questions of a half, or of both."""

    told: list[float] = field(default_factory=list)  # of each question
    found: list[float] = field(default_factory=list)
    sizes: list[tuple[float, float]] = field(default_factory=list)  # (memories, tokens) of each half
    useful: list[float | None] = field(default_factory=list)  # None where nothing was told

    def extend(self, other: StoreMeasurement) -> None:
        """Add the questions of another half."""
        self.told += other.told
        self.found += other.found
        self.useful += other.useful
        self.sizes += other.sizes


def _measure_stores(
    stores: Mapping[str, GroupMemory], questions: Sequence[EvalQuestion]
) -> Iterator[tuple[StoreKey, StoreMeasurement]]:
    yield (WHOLE, 1.0), measure_store(stores, questions)
    with _consolidated(stores):
        yield (TIDIED, 1.0), measure_store(stores, questions)
    smaller_stores: dict[str, Callable[[], AbstractContextManager[None]]] = {
        CONSOLIDATED: partial(_consolidated, stores, with_unused=True)
    }
    smaller_stores |= {way: partial(_retired_unused, stores, n_told) for n_told, way in RETIRED.items()}
    for way, shrink in smaller_stores.items():
        with shrink():
            yield (way, 1.0), measure_store(stores, questions)
            budgets = _count_group_tokens(stores)
        yield (way + RANDOM_ALIKE, 1.0), _measure_draws(stores, questions, budgets)
    whole_budgets = _count_group_tokens(stores)
    with _consolidated(stores, with_unused=True), _retired(stores, sort_by_use, _scale(whole_budgets, HALF)):
        yield (CONSOLIDATED_HALF, HALF), measure_store(stores, questions)
    for share in SHARES:
        budgets = _scale(whole_budgets, share)
        yield (RANDOM, share), _measure_draws(stores, questions, budgets)
        for way, order in ((NEWEST, sort_by_age), (USED, sort_by_use)):
            with _retired(stores, order, budgets):
                yield (way, share), measure_store(stores, questions)


def _count_group_tokens(stores: Mapping[str, GroupMemory]) -> dict[str, int]:
    return {group: _count_tokens(_list_kept(store)) for group, store in stores.items()}


def _scale(budgets: Mapping[str, int], share: float) -> dict[str, int]:
    return {group: round(share * budget) for group, budget in budgets.items()}


def _measure_draws(
    stores: Mapping[str, GroupMemory], questions: Sequence[EvalQuestion], budgets: Mapping[str, int]
) -> StoreMeasurement:
    """Return the mean of N_DRAWS random stores, question by question."""
    draws = []
    for seed in range(N_DRAWS):
        with _retired(stores, partial(sort_by_chance, seed=seed), budgets):
            draws.append(measure_store(stores, questions))
    sizes = zip(*(draw.sizes[0] for draw in draws), strict=True)
    n_memories, n_tokens = (sum(values) / N_DRAWS for values in sizes)
    return StoreMeasurement(
        [sum(values) / N_DRAWS for values in zip(*(draw.told for draw in draws), strict=True)],
        [sum(values) / N_DRAWS for values in zip(*(draw.found for draw in draws), strict=True)],
        [(n_memories, n_tokens)],
        [_average(values) for values in zip(*(draw.useful for draw in draws), strict=True)],
    )


def _average(values: Iterable[float | None]) -> float | None:
    known_values = [value for value in values if value is not None]
    return sum(known_values) / len(known_values) if known_values else None


def measure_store(stores: Mapping[str, GroupMemory], questions: Sequence[EvalQuestion]) -> StoreMeasurement:
    """Ask every question of the stores as they are now."""
    results = [bench.recall_question(stores[question.group], question, BenchSetup()) for question in questions]
    kept_memories = [memory for store in stores.values() for memory in _list_kept(store)]
    return StoreMeasurement(
        [measures.recall_at(result.packed, result.question.gold, len(result.packed)) for result in results],
        [measures.recall_at(result.ranked, result.question.gold, 10) for result in results],
        [(len(kept_memories), _count_tokens(kept_memories))],
        [
            len({*result.packed} & {*result.question.gold}) / len({*result.packed}) if result.packed else None
            for result in results
        ],
    )


def _list_kept(store: GroupMemory) -> list[Memory]:
    """Return the memories that are not retired: recall can tell superseded ones, too."""
    return [memory for memory in store.home.memories.list_memories(every=True) if not memory.retired]


def _count_tokens(memories: Iterable[Memory]) -> int:
    return sum(tokens(memory.text) for memory in memories)


@contextmanager
def _retired_unused(stores: Mapping[str, GroupMemory], n_told: int) -> Iterator[None]:
    """Retire what was told so often and never used, and restore it at the end."""
    with _retired_ids({
        group: [memory.memory_id for memory in _list_kept(store) if memory.n_injected >= n_told and not memory.n_used]
        for group, store in stores.items()
    }, stores):  # fmt: skip
        yield


@contextmanager
def _retired(stores: Mapping[str, GroupMemory], order: MemoryOrder, budgets: Mapping[str, int]) -> Iterator[None]:
    """Retire what does not fit into the budget of tokens of each group, and restore it at the end."""
    with _retired_ids(
        {group: choose_retired(order(_list_kept(store)), budgets[group]) for group, store in stores.items()}, stores
    ):
        yield


@contextmanager
def _retired_ids(retired_ids: Mapping[str, Sequence[str]], stores: Mapping[str, GroupMemory]) -> Iterator[None]:
    for is_retired in (True, False):
        for group, store in stores.items():
            if retired_ids[group]:
                store.home.memories.change(list(retired_ids[group]), retired=is_retired)
                store.follow_changes()
        if is_retired:
            yield


def choose_retired(ordered_memories: Sequence[Memory], max_tokens: int) -> list[str]:
    """Return the ids of the memories that do not fit into a budget; the first ones are kept, as many as fit."""
    retired_ids, n_tokens = [], 0
    for memory in ordered_memories:
        n_memory_tokens = tokens(memory.text)
        if n_tokens + n_memory_tokens > max_tokens:
            retired_ids.append(memory.memory_id)
        else:
            n_tokens += n_memory_tokens
    return retired_ids


def sort_by_chance(memories: Sequence[Memory], *, seed: int) -> list[Memory]:
    """Return memories in a random order, which does not depend on their ids."""
    ordered_memories = sorted(memories, key=lambda memory: (memory.stated_at, memory.text))
    random.Random(seed).shuffle(ordered_memories)
    return ordered_memories


def sort_by_age(memories: Sequence[Memory]) -> list[Memory]:
    """Return memories, the newest first."""
    return sorted(memories, key=lambda memory: (-memory.stated_at.timestamp(), memory.text))


def sort_by_use(memories: Sequence[Memory]) -> list[Memory]:
    """Return memories by their expected share of use, as `perdure memories utility` lists them; of equals, newest."""
    newest_first = sort_by_age(memories)
    shares = {memory.memory_id: compute_expected_share(memory.n_injected, memory.n_used) for memory in newest_first}
    return sorted(newest_first, key=lambda memory: -shares[memory.memory_id])


@contextmanager
def _consolidated(stores: Mapping[str, GroupMemory], *, with_unused: bool = False) -> Iterator[None]:
    """Apply every proposal of `consolidate` in each store, and undo it at the end.

    with_unused: also those to retire what was told often and never used, which have to be asked for.
    """
    undone_stores = []
    for store in stores.values():
        asked_at = store.asked_at or find_bench_time(store.docs)
        memories = replace(store.home.memories, now=partial(_return_time, asked_at))
        offers = consolidate.list_proposals(memories)
        offers += consolidate.list_proposals(memories, kind="retire") if with_unused else []
        ids = [offer.proposal_id for offer in offers]
        result = consolidate.apply_proposals(memories, ids)
        for proposal in result.proposals:
            for memory in proposal.new_memories:
                store.doc_ids_by_memory[memory.memory_id] = _list_origins(store, memory)
        if result.event_id:
            undone_stores.append((store, result.event_id))
            store.follow_changes()
    yield
    for store, event_id in undone_stores:
        consolidate.undo_consolidation(store.home.memories, event_id)
        store.follow_changes()


def _return_time(asked_at: datetime) -> datetime:
    return asked_at


def _list_origins(store: GroupMemory, memory: Memory) -> tuple[str, ...]:
    """Return the documents of the memories that a memory was made from."""
    origin_ids = (doc_id for origin in memory.made_from for doc_id in store.doc_ids_by_memory[origin])
    return tuple(dict.fromkeys(origin_ids))


# the curve --------------------------------------------------------------------------------------------------------


def _build_rows(measurements: Mapping[StoreKey, StoreMeasurement], n_groups: int) -> Iterator[StoreRow]:
    """Yield the rows, the largest aim first; each beside random stores of its size."""
    for (way, share), measurement in sorted(measurements.items(), key=lambda item: -item[0][1]):
        random_key = (RANDOM, share) if share < 1 else (way + RANDOM_ALIKE, 1.0)
        is_compared = random_key in measurements and way != RANDOM
        n_memories, n_tokens = (sum(values) / len(values) for values in zip(*measurement.sizes, strict=True))
        yield StoreRow(
            way,
            share,
            n_memories,
            n_tokens,
            n_groups,
            measures.bootstrap(measurement.told),
            measures.bootstrap(measurement.found),
            measures.bootstrap([value for value in measurement.useful if value is not None]),
            measures.bootstrap_differences(measurement.told, measurements[random_key].told) if is_compared else None,
        )
