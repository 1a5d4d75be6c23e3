"""Ask questions of memories: the ranking of recall, the pack, silence and time.

Each group of a set is the memory of one owner in a scratch home, so the product itself is measured: BM25
counts the words of that group alone, and a question finds nothing of another group. Turns are captured,
indexed and embedded like any transcript; ids are translated back to those of the set.

Each question is asked of its own group and, for silence, of another group that cannot know the answer.
`now` is the day after the last turn of a group, so that only the timings depend on the clock.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from perdure import text
from perdure.access import scan
from perdure.eval.datasets import Dataset, EvalDoc, EvalQuestion
from perdure.home import Home, open_home
from perdure.identity import make_turn_id
from perdure.index.fuse import rank_ids
from perdure.index.home_vectors import PendingQueryVector
from perdure.models.embedder import Embedder
from perdure.recall.assess import assess
from perdure.recall.index_candidates import IndexCandidates
from perdure.recall.judge import extract_query_words
from perdure.recall.plan import RECALL_FILTERS, make_verbatim_plan, plan
from perdure.recall.rank import list_texts_to_embed, rank
from perdure.recall.recall import compose
from perdure.recall.recaller import RecallContext
from perdure.recall.tuning import DEFAULT, Tuning
from perdure.types import Plan, Role, Source

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant"}


@dataclass
class GroupMemory:
    """One group: its documents and the home that holds them."""

    home: Home
    docs: Sequence[EvalDoc]
    doc_ids_by_turn: Mapping[str, str]  # turn id -> document id
    has_vectors: bool
    doc_ids_by_memory: dict[str, tuple[str, ...]] = field(default_factory=dict)  # looked up in its sources if unknown
    asked_at: datetime | None = None  # None: the day after the last document
    _query_vectors: dict[tuple[str, ...], PendingQueryVector | None] = field(default_factory=dict)

    def embed_queries(self, texts: Sequence[str]) -> PendingQueryVector | None:
        """Embed texts as queries; each set of texts only once. Returns None without vectors or texts."""
        key = tuple(texts)
        if not self.has_vectors or not key:
            return None
        if key not in self._query_vectors:
            connections = self.home.connections
            self._query_vectors[key] = connections.vectors().embed_queries(connections.index(), self.home.user, texts)
        return self._query_vectors[key]

    def follow_changes(self) -> None:
        """Embed new memories, and forget the queries that were embedded for the vectors as they were before."""
        if self.has_vectors:
            self.home.upkeep.embed()
        self._query_vectors.clear()

    def get_candidates(self, query_vectors: PendingQueryVector | None) -> IndexCandidates:
        """Return the product's own candidates, from every project."""
        return IndexCandidates(
            self.home.index(), self.home.principal, RECALL_FILTERS, query_vectors.space if query_vectors else None
        )

    def list_doc_ids(self, names: Sequence[str], limit: int | None = None) -> tuple[str, ...]:
        """Return the documents of these turns, and of the source turns of these memories, each once, at most
        `limit`.

        The id of an unknown turn is returned as it is.
        """
        doc_ids: dict[str, None] = {}
        for name in names:
            doc_ids.update(dict.fromkeys(self._find_doc_ids(name)))
            if limit is not None and len(doc_ids) >= limit:
                break
        return tuple(doc_ids)[:limit]

    def _find_doc_ids(self, name: str) -> tuple[str, ...]:
        if not name.startswith("mem-"):
            return (self.doc_ids_by_turn.get(name, name),)
        if name not in self.doc_ids_by_memory:
            turns = [turn for _, turn in self.home.memories.sources(name) if turn]
            self.doc_ids_by_memory[name] = tuple(self.doc_ids_by_turn.get(turn, turn) for turn in turns)
        return self.doc_ids_by_memory[name]


@contextmanager
def open_group_memories(
    data: Dataset, folder: Path, embedder: Embedder | None = None, *, vectors: bool = True, stated: bool = True
) -> Iterator[dict[str, GroupMemory]]:
    """Yield group -> its memory, in a home under `folder`; a home that is already there is used again.

    embedder: instead of the configured one. vectors: whether to embed the turns. stated: whether plain
    statements become memories.
    """
    (folder / "home").mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "home" / "config.toml").write_text(f"[memories]\nstated = {str(stated).lower()}\n")
    with ExitStack() as stack:
        memories: dict[str, GroupMemory] = {}
        for n, (group, docs) in enumerate(data.group_docs().items()):
            memory = _open_group_memory(folder / "home", f"g{n}", docs, embedder, vectors)
            memories[group] = stack.enter_context(memory)
            if vectors and embedder is None:  # one model for all: 300 homes with one each would take 15 GB
                embedder = memories[group].home.connections.vectors().choice.embedder
        yield memories


@contextmanager
def _open_group_memory(
    folder: Path, user: str, docs: Sequence[EvalDoc], embedder: Embedder | None, vectors: bool
) -> Iterator[GroupMemory]:
    with open_home(folder, user=user, embedder=embedder) as home:
        doc_ids_by_turn: dict[str, str] = {}
        for session, session_docs in _group_by_session(docs).items():
            body, offsets = _to_transcript(session_docs)
            source = Source(user, "messages", session)
            doc_ids_by_turn |= {make_turn_id(source, offset): doc_id for offset, doc_id in offsets.items()}
            home.capture(body, runtime="messages", session=session, conversation=user)
        home.upkeep.catch_up()
        if vectors:
            home.upkeep.embed()
        yield GroupMemory(home, docs, doc_ids_by_turn, vectors)


def _group_by_session(docs: Sequence[EvalDoc]) -> dict[str, list[EvalDoc]]:
    docs_by_session: dict[str, list[EvalDoc]] = {}
    for doc in docs:
        docs_by_session.setdefault(doc.session or doc.group, []).append(doc)
    return docs_by_session


def _to_transcript(docs: Sequence[EvalDoc]) -> tuple[bytes, dict[int, str]]:
    """Return the documents of a session as a transcript of messages, and offset -> document id."""
    body = bytearray()
    offsets: dict[int, str] = {}
    for doc in docs:
        offsets[len(body)] = doc.doc_id
        role = _ROLES.get(doc.speaker, "user")
        message = {"role": role, "content": doc.text.removeprefix(f"{role}: ")}
        if doc.stated_at:
            message["timestamp"] = doc.stated_at.isoformat()
        body += json.dumps(message, ensure_ascii=False).encode() + b"\n"
    return bytes(body), offsets


K = 20  # length of the rankings that are measured
_NO_DATE = datetime(2026, 1, 1, tzinfo=UTC)
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class BenchSetup:
    """The settings that questions are asked with."""

    tuning: Tuning = DEFAULT
    planning: bool = True


@dataclass(frozen=True, slots=True)
class QuestionResult:
    """The result of one question."""

    question: EvalQuestion
    ranked: tuple[str, ...]  # search stage: before the judge, at most K
    packed: tuple[str, ...] = ()  # the cues, as they stand in the pack
    n_tokens: int = 0
    is_silent: bool = False
    relevance: float = 0.0
    took_ms: float = 0.0


def find_bench_time(docs: Iterable[EvalDoc]) -> datetime:
    """Return the time at which a group is asked: the day after its last turn."""
    return max((doc.stated_at for doc in docs if doc.stated_at), default=_NO_DATE) + timedelta(days=1)


def plan_question(words: str, memory: GroupMemory, setup: BenchSetup) -> tuple[Plan, PendingQueryVector | None]:
    """Plan a question to a memory; return the plan and its query vectors."""
    make_plan = plan if setup.planning else make_verbatim_plan
    query_plan = make_plan(words, now=memory.asked_at or find_bench_time(memory.docs))
    return query_plan, memory.embed_queries(list_texts_to_embed(query_plan))


def rank_question(memory: GroupMemory, question: EvalQuestion, setup: BenchSetup) -> QuestionResult:
    """Run the search stage alone."""
    started = time.perf_counter()
    query_plan, query_vectors = plan_question(question.text, memory, setup)
    with memory.home.index().begin_read():
        ranking = rank(
            memory.get_candidates(query_vectors),
            query_plan,
            query_vectors.wait().vectors if query_vectors else None,
            setup.tuning,
        )
    took_ms = (time.perf_counter() - started) * 1000
    return QuestionResult(question, memory.list_doc_ids(rank_ids(ranking.scores), K), took_ms=took_ms)


def recall_question(memory: GroupMemory, question: EvalQuestion, setup: BenchSetup) -> QuestionResult:
    """Run all of recall; the result has the ranking of its search stage too."""
    started = time.perf_counter()
    query_plan, query_vectors = plan_question(question.text, memory, setup)
    vectors, model = (query_vectors.wait().vectors, query_vectors.tag.name) if query_vectors else (None, "")
    with memory.home.index().begin_read():
        candidates = memory.get_candidates(query_vectors)
        context = RecallContext(vectors=vectors, model=model, scan_text=scan.scan, tuning=setup.tuning)
        assessment = assess(candidates, query_plan, context)
        recalled = compose(candidates, assessment, context)
    took_ms = (time.perf_counter() - started) * 1000
    verdict = assessment.verdict
    return QuestionResult(
        question,
        memory.list_doc_ids(rank_ids(assessment.ranking.scores), K),
        memory.list_doc_ids([cue.turn_id for cue in recalled.cues]),
        recalled.n_tokens,
        not recalled.cues,
        verdict.relevance - verdict.threshold,
        took_ms,
    )


def choose_other_group(groups: Sequence[str], group: str) -> str:
    """Return the next group, which cannot answer a question of this one."""
    return groups[(groups.index(group) + 1) % len(groups)]


BenchSystem = Callable[[GroupMemory, EvalQuestion], QuestionResult]


def search_like_grep(memory: GroupMemory, question: EvalQuestion) -> QuestionResult:
    """Search as a person would with grep: the turns with the most of the words as written, newest first."""
    words = {word for term in extract_query_words(question.text) for word in _WORD.findall(term)}
    counts = [(len(words & set(_WORD.findall(doc.text.lower()))), n) for n, doc in enumerate(memory.docs)]
    best = sorted((item for item in counts if item[0]), reverse=True)[:K]
    return QuestionResult(question, tuple(memory.docs[n].doc_id for _, n in best))


def search_keywords(memory: GroupMemory, question: EvalQuestion) -> QuestionResult:
    """Run the product's keyword search, as `perdure search` does."""
    hits = memory.home.search(question.text, limit=K, mode="keyword").hits
    return QuestionResult(question, memory.list_doc_ids([hit.turn_id for hit in hits if hit.score > 0]))


def take_full_context(memory: GroupMemory, question: EvalQuestion) -> QuestionResult:
    """Take every turn: the cost in tokens of missing nothing."""
    doc_ids = tuple(doc.doc_id for doc in memory.docs)
    return QuestionResult(question, (), doc_ids, sum(text.tokens(doc.text) for doc in memory.docs))


def search_vectors(memory: GroupMemory, question: EvalQuestion) -> QuestionResult:
    """Run the product's semantic search, as `perdure search --mode semantic` does."""
    hits = memory.home.search(question.text, limit=K, mode="semantic").hits
    return QuestionResult(question, memory.list_doc_ids([hit.turn_id for hit in hits]))


def ask_own_groups(data: Dataset, memories: Mapping[str, GroupMemory], system: BenchSystem) -> list[QuestionResult]:
    """Ask every question of its own group."""
    return [system(memories[question.group], question) for question in data.questions]


def ask_other_groups(data: Dataset, memories: Mapping[str, GroupMemory], system: BenchSystem) -> list[QuestionResult]:
    """Ask every question of a group that cannot know the answer."""
    groups = list(memories)
    return [system(memories[choose_other_group(groups, question.group)], question) for question in data.questions]
