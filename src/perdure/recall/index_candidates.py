"""Read candidates from the index: for one principal, one scope, one snapshot. Reads only.

Ranking applies the filters inside the query, so nothing outside the scope takes a place among the best.
A neighbour is in the same thread as its turn, and not part of what a live session holds. The rarity of
a word is counted over everything of the principal and what others let them read. Turns of others are
neither "you" nor "the agent". Turns are named by ids outside and by numbers inside; everything that is
read once is cached for one recall.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from queue import SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from perdure.access.redact import mask
from perdure.index import keyword, memory_replay, memory_rows, visibility
from perdure.index.encoding import MEMORY_KIND, PICTURE_KIND, WEB_CALL, from_ms, to_ms
from perdure.index.fuse import Matrix, Neighbours, Scores, compute_rarity
from perdure.index.store import IndexConnection
from perdure.index.visibility import ReadScope
from perdure.recall.candidates import MAX_CLOSING, MAX_STEPS, CandidateDetail, Exchange, NameSighting, TurnFact
from perdure.recall.truth import Belief, Beliefs
from perdure.types import Filters, Hit, Memory, Principal, Role, Window

if TYPE_CHECKING:  # it imports numpy, which keyword recall does not need
    from perdure.index.vector_search import VectorSpace

N_NEWEST_TURNS = 3  # newest turns kept for one name
N_NAME_CHUNKS = 24  # chunks with a name's words that are read to check its exact spelling
MAX_LOOKED_UP_CHUNKS = 2000  # chunks with a name's words; a more frequent name is left to ranking
NearChunks: TypeAlias = "list[list[tuple[int, float]]]"  # for each query: chunks with their cosines, nearest first
CHUNKS_PER_TURN = 2  # chunks fetched for each wanted turn: several chunks of one turn may be near
_SELECT_FACTS = """SELECT id, role, author, stated_ms, said, speaker,
    EXISTS (SELECT 1 FROM workflow_turn WHERE workflow_turn.turn = turn.id)
  FROM turn WHERE id IN ({})"""


class _BegunSearch:
    """A search of vectors beside the caller, with its result or its error."""

    def __init__(self, wait_for_queries: Callable[[], Matrix | None], find: Callable[[Matrix], NearChunks]) -> None:
        self._wait_for_queries, self._find = wait_for_queries, find
        self._result: NearChunks | None = None
        self._error: Exception | None = None
        self.has_ended = Event()
        thread = _idle_threads.pop() if _idle_threads else _SearchThread()
        thread.searches.put(self)

    def run(self) -> None:
        """Search; in another thread."""
        try:
            queries = self._wait_for_queries()
            self._result = None if queries is None else self._find(queries)
        except Exception as error:  # noqa: BLE001 - the caller gets it
            self._error = error

    def get_result(self) -> NearChunks | None:
        """Wait, and return the result; None without queries. Raises what the search raised."""
        self.has_ended.wait()
        if self._error is not None:
            raise self._error
        return self._result


class _SearchThread(Thread):
    """A thread for one search after the other: to start one, a recall would wait until it runs."""

    def __init__(self) -> None:
        super().__init__(name="perdure-vectors", daemon=True)
        self.searches: SimpleQueue[_BegunSearch] = SimpleQueue()
        self.start()

    def run(self) -> None:
        while True:
            search = self.searches.get()
            try:
                search.run()
            finally:
                search.has_ended.set()
            _idle_threads.append(self)
            del search  # and what it found


_idle_threads: list[_SearchThread] = []  # as many as there were recalls at once
os.register_at_fork(after_in_child=_idle_threads.clear)  # a child has none of its parent's threads


class IndexCandidates(Struct):
    """Candidates from an index. space: where vectors are compared; None without vectors."""

    index: IndexConnection
    principal: Principal
    filters: Filters
    space: VectorSpace | None = None
    as_of: datetime | None = None  # beliefs are judged by what had been stated until then; None: now
    agent: str | None = None  # whose memories are read, beside those of no agent and what others share; None: all
    dropped_words: dict[str, None] = {}  # words of queries too frequent to rank by
    _numbers_by_id: dict[str, int] = {}  # turn id -> number
    _ids_by_number: dict[int, str] = {}
    _matched_chunks: dict[int, int] = {}  # turn -> its best matching chunk
    _detail_cache: dict[tuple[int, int | None], CandidateDetail] = {}  # by number and chunk
    _memories_by_key: dict[int, Memory] = {}  # by number
    _chain_cache: dict[memory_replay.MemoryChain, tuple[Memory, ...]] = {}
    _shared_chain_cache: dict[int, tuple[Memory, ...]] = {}  # by a memory in them
    _begun_searches: dict[tuple[int, Window | None], _BegunSearch] = {}
    _fact_cache: dict[tuple[int, int | None], TurnFact] = {}  # by number and chunk
    _vector_cache: dict[int, Matrix | None] = {}  # of turns that were read; None: no vector
    _cosine_cache: dict[int, float | None] = {}  # of turns that were compared; None: no vector
    _compared_with: Matrix | None = None  # the queries of these cosines

    @property
    def _visible(self) -> ReadScope:
        """The part of others' data that may be read."""
        return visibility.get_read_scope(self.index, self.principal)

    # the legs -------------------------------------------------------------------------------------------------

    def search_keyword(self, queries: Sequence[str], k: int, window: Window | None = None) -> list[Scores]:
        """Return the BM25 of each turn's best chunk."""
        return [self._score_words(query, k, self._narrow_filters(window)) for query in queries]

    def _score_words(self, query: str, k: int, filters: Filters) -> Scores:
        candidates = keyword.find_candidates(self.index, self.principal, query, filters=filters, limit=k)
        self.dropped_words.update(dict.fromkeys(candidates.dropped))
        return self._take_best_turns(((item.turn, item.chunk, item.score) for item in candidates.scored), k)

    def begin_vector_search(
        self, wait_for_queries: Callable[[], Matrix | None], k: int, windows: Sequence[Window | None]
    ) -> None:
        """Compare vectors in files in a thread of its own, while the caller searches words."""
        if self.space is None or not self.space.is_in_files:
            return
        for window in windows:
            self._begun_searches[k, window] = _BegunSearch(wait_for_queries, self._prepare_search(k, window))

    def _prepare_search(self, k: int, window: Window | None) -> Callable[[Matrix], NearChunks]:
        assert self.space is not None
        return self.space.prepare_search(
            self.index, filters=self._narrow_filters(window), k=k * CHUNKS_PER_TURN, read_scope=self._visible
        )

    def search_vectors(self, queries: Matrix, k: int, window: Window | None = None) -> list[Scores]:
        """Cosine of the nearest chunk of each turn."""
        if self.space is None:
            return []
        begun_search = self._begun_searches.pop((k, window), None)
        if begun_search:  # meanwhile, read what ranking asks of the turns that words found
            self._compare(list(self._matched_chunks), queries)
            self._read_facts([turn for turn in self._matched_chunks if turn > 0])
        chunk_scores = begun_search.get_result() if begun_search else None
        if chunk_scores is None:
            chunk_scores = self._prepare_search(k, window)(queries)
        chunks = sorted({chunk for near_chunks in chunk_scores for chunk, _ in near_chunks})
        turns_by_chunk = dict(self.index.select_in("SELECT id, turn FROM chunk WHERE id IN ({})", chunks))
        return [
            self._take_best_turns(
                ((turns_by_chunk[c], c, cosine) for c, cosine in near_chunks if c in turns_by_chunk), k
            )
            for near_chunks in chunk_scores
        ]

    def _take_best_turns(self, scored: Iterable[tuple[int, int, float]], k: int) -> Scores:
        """Return the first k turns of (turn, chunk, score), which come best first; each is shown by its first
        chunk.
        """
        best_scores: dict[int, float] = {}
        for turn, chunk, score in scored:
            if turn not in best_scores and len(best_scores) < k:
                best_scores[turn] = score
                self._matched_chunks.setdefault(turn, chunk)
        return self._key_by_id(best_scores)

    def get_vectors(self, ids: Sequence[str]) -> dict[str, Matrix]:
        """Return the vectors of the chunks of each turn that has any."""
        numbers = [self._numbers_by_id[turn_id] for turn_id in ids if turn_id in self._numbers_by_id]
        self._load_vectors([turn for turn in numbers if turn not in self._vector_cache])
        return {
            self._ids_by_number[turn]: rows for turn in numbers if (rows := self._vector_cache.get(turn)) is not None
        }

    def _load_vectors(self, turns: Sequence[int]) -> None:
        """Cache the vectors of these turns."""
        if self.space is None or not turns:
            return
        self._vector_cache.update(dict.fromkeys(turns))
        owners, vectors = self.space.fetch_of_turns(self.index, turns)
        rows_by_turn: dict[int, list[int]] = {}
        for row, turn in enumerate(owners):
            rows_by_turn.setdefault(turn, []).append(row)
        self._vector_cache.update((turn, vectors[rows]) for turn, rows in rows_by_turn.items())

    def compute_cosines(self, ids: Sequence[str], queries: Matrix) -> Scores:
        """Return the best cosine of any chunk of each turn with any query."""
        turns = [self._numbers_by_id[turn_id] for turn_id in ids if turn_id in self._numbers_by_id]
        self._compare(turns, queries)
        return {
            self._ids_by_number[turn]: cosine for turn in turns if (cosine := self._cosine_cache.get(turn)) is not None
        }

    def _compare(self, turns: Sequence[int], queries: Matrix) -> None:
        """Cache the best cosine of each of these turns with any query."""
        if self._compared_with is not queries:
            self._compared_with, self._cosine_cache = queries, {}
        new_turns = [turn for turn in turns if turn not in self._cosine_cache]
        if self.space is None or not new_turns:
            return
        self._cosine_cache.update(dict.fromkeys(new_turns))
        owners, vectors = self.space.fetch_of_turns(self.index, new_turns)
        for turn, cosine in zip(owners, (vectors @ queries.T).max(axis=1).tolist(), strict=True):
            known_cosine = self._cosine_cache[turn]
            self._cosine_cache[turn] = cosine if known_cosine is None else max(cosine, known_cosine)

    # what stands around them ----------------------------------------------------------------------------------

    def find_neighbours(self, ids: Sequence[str], reach: int) -> Neighbours:
        """Return the turns of people and agents before and after in the same thread; tool calls and results are
        skipped.
        """
        numbers = [self._numbers_by_id[turn_id] for turn_id in ids if turn_id in self._numbers_by_id]
        offsets = [(sign, distance) for distance in range(1, reach + 1) for sign in ("<", ">")]
        columns = ", ".join(_NEIGHBOUR_SQL[sign].format(distance - 1) for sign, distance in offsets)
        rows = self.index.select_in(f"SELECT id, {columns} FROM turn AS here WHERE id IN ({{}})", numbers)
        near_turns = {turn for row in rows for turn in row[1:] if turn is not None}
        near_turns = self._remember_visible(near_turns)
        return {
            self._ids_by_number[row[0]]: [
                (self._ids_by_number[turn], distance)
                for (_, distance), turn in zip(offsets, row[1:], strict=True)
                if turn in near_turns
            ]
            for row in rows
        }

    def find_exchanges(self, ids: Sequence[str]) -> dict[str, Exchange]:
        """Return the places in the thread, as far as the person's messages may be seen."""
        numbers = [self._numbers_by_id[turn_id] for turn_id in ids if turn_id in self._numbers_by_id]
        rows = self.index.select_in(_EXCHANGE_SQL, [number for number in numbers if number > 0])
        openers = self._remember_visible({opener for _, opener, _, _ in rows if opener is not None})
        return {
            self._ids_by_number[turn]: Exchange(
                self._ids_by_number[opener] if opener in openers else "", n_steps, next_role in (None, "user")
            )
            for turn, opener, n_steps, next_role in rows
        }

    def find_closings(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the ends of the talks, as far as they may be seen."""
        numbers = [self._numbers_by_id[turn_id] for turn_id in ids if turn_id in self._numbers_by_id]
        rows = self.index.select_in(_CLOSING_SQL, [number for number in numbers if number > 0])
        near_rows = [(turn, closing) for turn, closing, n_after in rows if n_after <= MAX_CLOSING]
        visible = self._remember_visible({closing for _, closing in near_rows if closing is not None})
        return {
            self._ids_by_number[turn]: self._ids_by_number[closing] for turn, closing in near_rows if closing in visible
        }

    def _remember_visible(self, turns: set[int]) -> set[int]:
        """Return those of these turns near a candidate that may be seen, and remember their ids."""
        in_sessions = keyword.find_turns_in_sessions(self.index, self.filters, sorted(turns))
        visible = turns - in_sessions - self._find_later(turns)
        visible -= self._find_others(sorted(visible), is_readable=False)
        self._key_by_id(dict.fromkeys(sorted(visible), 0.0))
        return visible

    def _find_later(self, turns: set[int]) -> set[int]:
        """Return those of these turns that were said after `as_of`."""
        if self.as_of is None:
            return set()
        as_of_ms = to_ms(self.as_of)
        rows = self.index.select_in("SELECT id, stated_ms FROM turn WHERE id IN ({})", sorted(turns))
        return {turn for turn, stated_ms in rows if stated_ms is None or as_of_ms is None or stated_ms >= as_of_ms}

    def _find_others(self, turns: Sequence[int], *, is_readable: bool) -> set[int]:
        """Return those of these turns that belong to others: the readable ones, or the others."""
        if not self._visible.other_owners:
            return set()
        query = """SELECT turn.id, turn.run FROM turn JOIN run ON run.id = turn.run
            WHERE turn.id IN ({}) AND run.user IS DISTINCT FROM ?"""
        rows = self.index.select_in(query, turns, self._visible.own_user)
        readable_runs = visibility.filter_readable(self.index, self._visible, {run for _, run in rows})
        return {turn for turn, run in rows if (run in readable_runs) == is_readable}

    def get_rarities(self, words: Sequence[str]) -> dict[str, tuple[int, float]]:
        """Return how often words occur in everything that may be read."""
        counts, total = keyword.count_term_frequencies(self.index, self.principal, words)
        return {word: (n_chunks, compute_rarity(n_chunks, total)) for word, n_chunks in counts.items()}

    def find_names(self, names: Sequence[str]) -> dict[str, NameSighting]:
        """Find names exactly as they are written; one that is nearly everywhere is only counted."""
        counts, total = keyword.count_term_frequencies(self.index, self.principal, names)
        return {name: self._locate_name(name, n_chunks, total) for name, n_chunks in counts.items()}

    def _locate_name(self, name: str, n_chunks: int, total: int) -> NameSighting:
        if not n_chunks or n_chunks > MAX_LOOKED_UP_CHUNKS:
            return NameSighting(n_chunks, compute_rarity(n_chunks, total))
        name_pattern = re.compile(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])", re.IGNORECASE)
        name_chunks = keyword.find_name_matches(
            self.index, self.principal, name, filters=self.filters, limit=N_NAME_CHUNKS
        )
        chunks_by_turn = {hit.turn: hit.chunk for hit in reversed(name_chunks) if name_pattern.search(hit.text)}
        newest_turns = list(reversed(chunks_by_turn))[:N_NEWEST_TURNS]
        for turn in newest_turns:
            self._matched_chunks.setdefault(turn, chunks_by_turn[turn])
        n_held = n_chunks if chunks_by_turn else 0
        return NameSighting(
            n_held, compute_rarity(n_held, total), tuple(self._key_by_id(dict.fromkeys(newest_turns, 0.0)))
        )

    def find_from_web(self, ids: Sequence[str]) -> frozenset[str]:
        """Return those of these turns of agents that follow a web call, back to the last message of a person."""
        numbers = [number for turn_id in ids if (number := self._numbers_by_id.get(turn_id, 0)) > 0]
        rows = self.index.select_in(_AFTER_WEB_CALL, numbers, *WEB_CALL)
        return frozenset(self._ids_by_number[turn] for (turn,) in rows)

    def get_facts(self, ids: Sequence[str]) -> dict[str, TurnFact]:
        """Return the speaker and time of each of these turns."""
        numbers = [self._numbers_by_id[turn_id] for turn_id in ids if turn_id in self._numbers_by_id]
        self._read_facts([number for number in numbers if number > 0])
        facts_by_id = {m.memory_id: TurnFact(_get_role(m), m.stated_at) for m in self._get_memories(numbers).values()}
        keys = {number: (number, self._matched_chunks.get(number)) for number in numbers}
        return facts_by_id | {
            self._ids_by_number[number]: self._fact_cache[key]
            for number, key in keys.items()
            if key in self._fact_cache
        }

    def _read_facts(self, turns: Sequence[int]) -> None:
        """Cache the speaker and time of each of these turns."""
        unread = [turn for turn in turns if (turn, self._matched_chunks.get(turn)) not in self._fact_cache]
        rows = self.index.select_in(_SELECT_FACTS, unread)
        turns_by_chunk = {self._matched_chunks[turn]: turn for turn in unread if turn in self._matched_chunks}
        text_kind = self.index.find_name("kind", "text")
        kinds = self.index.select_in("SELECT id, kind FROM chunk WHERE id IN ({})", list(turns_by_chunk))
        call_turns = {turns_by_chunk[chunk] for chunk, kind in kinds if kind != text_kind}
        others_turns = self._find_others(unread, is_readable=True)
        for turn, role, author, stated_ms, is_said, speaker, is_of_workflow in rows:
            self._fact_cache[turn, self._matched_chunks.get(turn)] = TurnFact(
                "system" if turn in others_turns or author == "machine" else role,
                from_ms(stated_ms),
                (bool(is_said) or author == "machine") and turn not in call_turns,
                speaker,
                author == "machine",
                bool(is_of_workflow),
            )

    def get_details(self, ids: Sequence[str]) -> dict[str, CandidateDetail]:
        """Return the details of each of these turns, with the text of the chunk that matched, or its first chunk."""
        keys = {
            candidate_id: (number, self._matched_chunks.get(number))
            for candidate_id in ids
            if (number := self._numbers_by_id.get(candidate_id)) is not None
        }
        unread_ids = [candidate_id for candidate_id, key in keys.items() if key not in self._detail_cache]
        details_by_id = self._read_details(unread_ids) if unread_ids else {}
        self._detail_cache.update((keys[candidate_id], detail) for candidate_id, detail in details_by_id.items())
        return {
            candidate_id: self._detail_cache[key] for candidate_id, key in keys.items() if key in self._detail_cache
        }

    def _read_details(self, ids: Sequence[str]) -> dict[str, CandidateDetail]:
        memories = self._get_memories([self._numbers_by_id[candidate_id] for candidate_id in ids]).values()
        hits = self.read_hits(dict.fromkeys(ids, 0.0))
        before = keyword.read_text_before(self.index, hits)
        details_by_id = {
            hit.turn_id: CandidateDetail(
                hit.turn_id,
                hit.run_id,
                hit.conversation,
                "system" if hit.author == "machine" else hit.role,
                hit.stated_at,
                hit.machine,
                hit.runtime,
                hit.text,
                user=hit.user,
                is_shared=hit.user != self.principal.user,
                chunk=hit.chunk,
                is_left=hit.abandoned,
                is_call=hit.kind == "call",
                is_in_picture=hit.kind == PICTURE_KIND,
                before_call=before.get((hit.turn_id, hit.chunk), ""),
                project=hit.project if hit.user == self.principal.user else mask(hit.project or "") or None,
            )
            for hit in hits
        }
        return details_by_id | {memory.memory_id: _to_detail(memory, self.principal.user) for memory in memories}

    def read_hits(self, scores: Scores, *, limit: int | None = None) -> list[Hit]:
        """Return the turns among these candidates as hits with these scores, in this order. The text of each is the
        chunk that matched, or its first chunk.
        """
        numbers = [(self._numbers_by_id[turn_id], turn_id) for turn_id in scores if turn_id in self._numbers_by_id]
        turns = {number: scores[turn_id] for number, turn_id in numbers if number > 0}
        turns = dict(list(turns.items())[:limit])
        unmatched = [turn for turn in turns if turn not in self._matched_chunks]
        first_chunks = dict(self.index.select_in("SELECT turn, id FROM chunk WHERE turn IN ({}) AND n = 0", unmatched))
        chunks = [(self._matched_chunks.get(turn) or first_chunks.get(turn), score) for turn, score in turns.items()]
        return keyword.read_hits(self.index, [(chunk, score) for chunk, score in chunks if chunk is not None])

    # memories -------------------------------------------------------------------------------------------------

    def find_beliefs(self, ids: Sequence[str]) -> Beliefs:
        """Return the memories among these ids and those made of these turns, each with what became of it."""
        if self.index.find_name("role", MEMORY_KIND) is None:
            return {}
        numbers = [self._numbers_by_id[candidate_id] for candidate_id in ids if candidate_id in self._numbers_by_id]
        keys_by_turn = memory_rows.find_numbers_by_turn(self.index, [number for number in numbers if number > 0])
        memories_by_number = self._get_memories(
            [*(n for n in numbers if n < 0), *(-m for each in keys_by_turn.values() for m in each)]
        )
        beliefs_by_number = {
            n: [
                self._build_belief(-m, memories_by_number[-m])
                for m in keys_by_turn.get(n, ())
                if -m in memories_by_number
            ]
            for n in numbers
            if n > 0
        }
        beliefs_by_number |= {
            n: [self._build_belief(n, memories_by_number[n])] for n in numbers if n in memories_by_number
        }
        return {self._ids_by_number[n]: each for n, each in beliefs_by_number.items() if each}

    def _get_memories(self, numbers: Sequence[int]) -> dict[int, Memory]:
        """Return the memories that may be read, by their negative numbers."""
        keys = sorted({-key for key in numbers if key < 0})
        missing_keys = [key for key in keys if key not in self._memories_by_key]
        readable = memory_rows.list_readable(self.index, self._visible, missing_keys) if missing_keys else {}
        self._memories_by_key |= {
            key: memory
            for key, memory in readable.items()
            if memory.shared_by or self.agent is None or memory.agent in ("", self.agent)
        }
        return {-key: self._memories_by_key[key] for key in keys if key in self._memories_by_key}

    def _build_belief(self, number: int, memory: Memory) -> Belief:
        """Return what became of a memory, judged by what had been stated until `as_of`."""
        chain = self._get_shared_chain(number) if memory.shared_by else self._get_chain(memory_replay.get_chain(memory))
        chain_memory = next((member for member in chain if member.memory_id == memory.memory_id), memory)
        current = next((member for member in chain if member.is_current), None)
        return Belief(chain_memory, chain, None if current is None or self._is_in_live_session(current) else current)

    def _get_chain(self, chain: memory_replay.MemoryChain) -> tuple[Memory, ...]:
        """Return the memories of a chain in its state at `as_of`; remember their ids."""
        if chain not in self._chain_cache:
            chain_memories = memory_rows.list_chain(self.index, self.principal.user, chain)
            if self.as_of is not None:
                chain_memories = memory_replay.settle_chain(
                    memory for memory in chain_memories if memory.stated_at <= self.as_of
                )
            for number, memory in zip(self._get_keys(chain_memories), chain_memories, strict=True):
                self._memories_by_key.setdefault(number, memory)
                self._remember_id(-number, memory.memory_id)
            self._chain_cache[chain] = tuple(chain_memories)
        return self._chain_cache[chain]

    def _get_shared_chain(self, number: int) -> tuple[Memory, ...]:
        """Return the readable part of the chain of another owner's memory."""
        if number not in self._shared_chain_cache:
            rows = memory_rows.list_shared_chain(self.index, self._visible, -number, as_of=self.as_of)
            for key, memory in rows:
                self._memories_by_key.setdefault(key, memory)
                self._remember_id(-key, memory.memory_id)
            self._shared_chain_cache[number] = tuple(memory for _, memory in rows)
        return self._shared_chain_cache[number]

    def _get_keys(self, chain_memories: Sequence[Memory]) -> list[int]:
        user = self.index.find_name("user", self.principal.user) or 0
        keys_by_id = memory_rows.find_numbers(self.index, user, [memory.memory_id for memory in chain_memories])
        return [keys_by_id[memory.memory_id] for memory in chain_memories]

    def _is_in_live_session(self, memory: Memory) -> bool:
        """Return True if a live session holds a memory: it was said there, and not compacted away since."""
        return any(
            live.conversation == memory.conversation and (live.since_at is None or memory.stated_at >= live.since_at)
            for live in self.filters.held
        )

    # numbers and names ----------------------------------------------------------------------------------------

    def _narrow_filters(self, window: Window | None) -> Filters:
        if window is None:
            return self.filters
        until_at = min(window.until_at, self.filters.until_at or window.until_at)
        return replace(self.filters, since_at=window.since_at, until_at=until_at)

    def _key_by_id(self, scores: Mapping[int, float]) -> Scores:
        unnamed = [turn for turn in scores if turn not in self._ids_by_number]
        for number, candidate_id in self.index.select_in(
            "SELECT id, turn_id FROM turn WHERE id IN ({})", [n for n in unnamed if n > 0]
        ):
            self._remember_id(number, candidate_id)
        for number, memory in self._get_memories(unnamed).items():
            self._remember_id(number, memory.memory_id)
        return {self._ids_by_number[turn]: score for turn, score in scores.items() if turn in self._ids_by_number}

    def _remember_id(self, number: int, candidate_id: str) -> None:
        self._numbers_by_id[candidate_id], self._ids_by_number[number] = number, candidate_id


def _get_role(memory: Memory) -> Role:
    """Return the role that a memory has for the person who asks."""
    if memory.shared_by:
        return "system"
    return "user" if memory.trust == "owner" else "assistant"


def _to_detail(memory: Memory, user: str) -> CandidateDetail:
    return CandidateDetail(
        memory.memory_id,
        "",
        memory.conversation,
        "user" if memory.trust == "owner" else "assistant",
        memory.stated_at,
        "",
        memory.runtime,
        memory.text,
        memory,
        user=memory.shared_by or user,
        is_shared=bool(memory.shared_by),
        project=memory.project,
    )


_AFTER_WEB_CALL = """SELECT here.id FROM turn AS here WHERE here.id IN ({}) AND here.author = 'agent' AND EXISTS (
    SELECT 1 FROM turn AS near JOIN turn_facet ON turn_facet.turn = near.id
    WHERE turn_facet.facet = (SELECT id FROM facet WHERE kind = ? AND value = ?)
      AND near.run = here.run AND near.offset <= here.offset
      AND near.offset > coalesce((SELECT offset FROM turn WHERE run = here.run AND offset < here.offset
        AND author = 'person' ORDER BY offset DESC LIMIT 1), -1))"""
_EXCHANGE_SQL = f"""WITH here AS MATERIALIZED (SELECT turn.id, turn.thread, turn.offset,
      (SELECT said_before.id FROM turn AS said_before WHERE said_before.thread = turn.thread AND said_before.said
        AND said_before.role = 'user' AND said_before.offset < turn.offset
        ORDER BY said_before.offset DESC LIMIT 1) AS opener
    FROM turn WHERE turn.id IN ({{}}) AND turn.author = 'agent')
  SELECT here.id, here.opener,
    (SELECT count(*) FROM (SELECT 1 FROM turn WHERE thread = here.thread AND said AND offset < here.offset
      AND offset > coalesce((SELECT offset FROM turn WHERE turn.id = here.opener), -1) LIMIT {MAX_STEPS})),
    (SELECT role FROM turn WHERE thread = here.thread AND said AND offset > here.offset ORDER BY offset LIMIT 1)
  FROM here"""  # a person's message, and what the agent said for it; a join would let Postgres read every turn
_CLOSING_SQL = f"""SELECT here.id,
    (SELECT id FROM turn WHERE thread = here.thread AND said AND role = 'assistant' ORDER BY offset DESC LIMIT 1),
    (SELECT count(*) FROM (SELECT 1 FROM turn WHERE thread = here.thread AND said AND offset > here.offset
      LIMIT {MAX_CLOSING + 1}))
  FROM turn AS here WHERE here.id IN ({{}})"""
_NEIGHBOUR_SQL = {
    sign: f"""(SELECT id FROM turn WHERE thread = here.thread AND offset {sign} here.offset AND said
      ORDER BY offset {order} LIMIT 1 OFFSET {{}})"""
    for sign, order in (("<", "DESC"), (">", "ASC"))
}  # SQL: the n-th turn before or after another one, among turns that were said
