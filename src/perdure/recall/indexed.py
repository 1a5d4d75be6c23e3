"""The index as recall sees it: one principal, one scope, one snapshot. Reads only.

What ranks looks through the filters inside the query, so nothing outside the scope takes a place among the best. A
neighbour is of the same line of talk as the turn it stands beside, and not of what a going session holds. How rare a
word is is counted over everything of the principal's, and of what others let them read. What another said is no word of
the one who asks: neither "you" nor "the agent". Turns are named by their ids outside and by their numbers inside;
what is read once is kept for as long as one recall takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from perdure.index import keyword, memories, visible
from perdure.index.store import Connection
from perdure.index.values import instant, ms
from perdure.index.visible import Visible
from perdure.index.wording import MEMORY
from perdure.memories import replay
from perdure.recall.candidates import Detail, Fact, Sighting
from perdure.recall.feedback import Matrix, rarity
from perdure.recall.fuse import Scores
from perdure.recall.neighbours import Around
from perdure.recall.truth import Belief, Beliefs
from perdure.types import Filters, Memory, Principal, Role, Window

if TYPE_CHECKING:  # it brings numpy, which recall by words does without
    from perdure.index.vector import Space

N_NEWEST = 3  # turns that a name is shown by
N_READ = 24  # chunks with a name's words that are read to see whether it stands there as it is written
MOST_LOOKED_UP = 2000  # chunks with a name's words: one that is in more is found by ranking, not by its name
CHUNKS_PER_TURN = 2  # chunks fetched for each turn wanted of the vectors: a turn may be near in several
_MARKS = 500  # values in one IN (…)


@dataclass
class Indexed:
    """Candidates out of an index. space: where vectors are compared; None without."""

    index: Connection
    principal: Principal
    filters: Filters
    space: Space | None = None
    as_of: datetime | None = None  # what is believed is judged by what had been stated until then; None for now
    _numbers: dict[str, int] = field(default_factory=dict)  # turn id -> number
    _names: dict[int, str] = field(default_factory=dict)
    _shown: dict[int, int] = field(default_factory=dict)  # turn -> the chunk that matched best
    _read_memories: dict[int, Memory] = field(default_factory=dict)  # by number
    _chains: dict[replay.Chain, tuple[Memory, ...]] = field(default_factory=dict)
    _shared: dict[int, tuple[Memory, ...]] = field(default_factory=dict)  # chains of others, by a memory in them
    _vectors: dict[int, Matrix | None] = field(default_factory=dict)  # of turns that were read; None when it has none

    @property
    def _seen(self) -> Visible:
        """What of others may be read."""
        return visible.of(self.index, self.principal)

    # the legs -------------------------------------------------------------------------------------------------

    def keyword(self, queries: Sequence[str], k: int, within: Window | None = None) -> list[Scores]:
        """BM25 of the best chunk of each turn."""
        return [self._words(query, k, self._within(within)) for query in queries]

    def _words(self, query: str, k: int, filters: Filters) -> Scores:
        found = keyword.candidates(self.index, self.principal, query, filters=filters, limit=k)
        return self._best(((item.turn, item.chunk, item.score) for item in found.scored), k)

    def nearest(self, queries: Matrix, k: int, within: Window | None = None) -> list[Scores]:
        """Cosine of the nearest chunk of each turn."""
        if self.space is None:
            return []
        found = self.space.nearest(
            self.index, queries, filters=self._within(within), k=k * CHUNKS_PER_TURN, seen=self._seen
        )
        turns = self._turns_of([chunk for near in found for chunk, _ in near])
        return [self._best(((turns[c], c, cosine) for c, cosine in near if c in turns), k) for near in found]

    def _best(self, scored: Iterable[tuple[int, int, float]], k: int) -> Scores:
        """The first k turns of (turn, chunk, score) that come best first, each shown by its first chunk."""
        best: dict[int, float] = {}
        for turn, chunk, score in scored:
            if turn not in best and len(best) < k:
                best[turn] = score
                self._shown.setdefault(turn, chunk)
        return self._named(best)

    def vectors(self, ids: Sequence[str]) -> dict[str, Matrix]:
        """The vectors of the chunks of each turn that has any."""
        wanted = [self._numbers[name] for name in ids if name in self._numbers]
        self._read([turn for turn in wanted if turn not in self._vectors])
        return {self._names[turn]: rows for turn in wanted if (rows := self._vectors.get(turn)) is not None}

    def _read(self, turns: Sequence[int]) -> None:
        """Keep what the slab holds of these turns."""
        if self.space is None or not turns:
            return
        self._vectors.update(dict.fromkeys(turns))
        owners, vectors = self.space.of_turns(self.index, turns)
        held: dict[int, list[int]] = {}
        for row, turn in enumerate(owners):
            held.setdefault(turn, []).append(row)
        self._vectors.update((turn, vectors[rows]) for turn, rows in held.items())

    def cosines(self, ids: Sequence[str], queries: Matrix) -> Scores:
        """Of all chunks of a turn the best, for any query."""
        turns = [self._numbers[name] for name in ids if name in self._numbers]
        if self.space is None or not turns:
            return {}
        owners, vectors = self.space.of_turns(self.index, turns)
        best: dict[str, float] = {}
        for turn, cosine in zip(owners, (vectors @ queries.T).max(axis=1).tolist(), strict=True):
            name = self._names[turn]
            best[name] = max(cosine, best.get(name, cosine))
        return best

    # what stands around them ----------------------------------------------------------------------------------

    def around(self, ids: Sequence[str], reach: int) -> Around:
        """What people and agents said before and after in the same line of talk; calls and results are stepped over."""
        numbers = [self._numbers[name] for name in ids if name in self._numbers]
        places = [(sign, away) for away in range(1, reach + 1) for sign in ("<", ">")]
        beside = ", ".join(_BESIDE[sign].format(away - 1) for sign, away in places)
        rows = self._in(f"SELECT id, {beside} FROM turn AS here WHERE id IN ({{}})", numbers)
        near = {turn for row in rows for turn in row[1:] if turn is not None}
        near -= keyword.turns_held(self.index, self.filters, sorted(near)) | self._later(near)
        near -= self._others(sorted(near), readable=False)
        self._named(dict.fromkeys(sorted(near), 0.0))
        return {
            self._names[row[0]]: [
                (self._names[turn], away) for (_, away), turn in zip(places, row[1:], strict=True) if turn in near
            ]
            for row in rows
        }

    def _later(self, turns: set[int]) -> set[int]:
        """Those of these turns that were said after the moment that is asked about."""
        if self.as_of is None:
            return set()
        at = ms(self.as_of)
        rows = self._in("SELECT id, stated_ms FROM turn WHERE id IN ({})", sorted(turns))
        return {turn for turn, stated_ms in rows if stated_ms is None or at is None or stated_ms >= at}

    def _others(self, turns: Sequence[int], *, readable: bool) -> set[int]:
        """Those of these turns that are of others: those that may be read, or those that may not."""
        if not self._seen.owners:
            return set()
        query = (
            "SELECT turn.id, turn.run FROM turn JOIN run ON run.id = turn.run WHERE turn.id IN ({}) AND user IS NOT ?"
        )
        rows = self._in(query, turns, self._seen.own)
        may_read = visible.is_readable(self.index, self._seen, {run for _, run in rows})
        return {turn for turn, run in rows if (run in may_read) == readable}

    def rarities(self, words: Sequence[str]) -> dict[str, tuple[int, float]]:
        """How often words stand in anything that may be read."""
        counts, total = keyword.frequencies(self.index, self.principal, words)
        return {word: (n, rarity(n, total)) for word, n in counts.items()}

    def names(self, names: Sequence[str]) -> dict[str, Sighting]:
        """Names as they are written, letter by letter; one that stands nearly everywhere is only counted."""
        counts, total = keyword.frequencies(self.index, self.principal, names)
        return {name: self._sighting(name, n, total) for name, n in counts.items()}

    def _sighting(self, name: str, n_chunks: int, total: int) -> Sighting:
        if not n_chunks or n_chunks > MOST_LOOKED_UP:
            return Sighting(n_chunks, rarity(n_chunks, total))
        whole = re.compile(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])", re.IGNORECASE)
        found = keyword.naming(self.index, self.principal, name, filters=self.filters, limit=N_READ)
        held = {item.turn: item.chunk for item in reversed(found) if whole.search(item.text)}
        newest = list(reversed(held))[:N_NEWEST]
        for turn in newest:
            self._shown.setdefault(turn, held[turn])
        n = n_chunks if held else 0
        return Sighting(n, rarity(n, total), tuple(self._named(dict.fromkeys(newest, 0.0))))

    def facts(self, ids: Sequence[str]) -> dict[str, Fact]:
        """Who said each of these turns, and when."""
        numbers = [self._numbers[name] for name in ids if name in self._numbers]
        rows = self._in("SELECT id, role, stated_ms, said, speaker FROM turn WHERE id IN ({})", numbers)
        own = self._memories(numbers)
        shown = {self._shown[turn]: turn for turn in numbers if turn in self._shown}
        text = self.index.known("kind", "text")
        kinds = self._in("SELECT id, kind FROM chunk WHERE id IN ({})", list(shown))
        done = {shown[chunk] for chunk, kind in kinds if kind != text}
        found = {m.memory_id: Fact(_role(m), m.stated_at) for m in own.values()}
        others = self._others(numbers, readable=True)
        return found | {
            self._names[turn]: Fact(
                "system" if turn in others else role, instant(at), bool(said) and turn not in done, who
            )
            for turn, role, at, said, who in rows
        }

    def details(self, ids: Sequence[str]) -> dict[str, Detail]:
        """What is known of each of these turns, with the text of the chunk that matched, or its first."""
        every = [self._numbers[name] for name in ids if name in self._numbers]
        own = {m.memory_id: m for m in self._memories(every).values()}
        numbers = [number for number in every if number > 0]
        unseen = [turn for turn in numbers if turn not in self._shown]
        first = dict(self._in("SELECT turn, id FROM chunk WHERE turn IN ({}) AND n = 0", unseen))
        chunks = [self._shown.get(turn) or first.get(turn) for turn in numbers]
        hits = keyword.hits(self.index, [(chunk, 0.0) for chunk in chunks if chunk is not None])
        found = {
            hit.turn_id: Detail(
                hit.turn_id,
                hit.run_id,
                hit.conversation,
                hit.role,
                hit.stated_at,
                hit.machine,
                hit.runtime,
                hit.text,
                user=hit.user,
                is_shared=hit.user != self.principal.user,
                chunk=hit.chunk,
            )
            for hit in hits
        }
        found |= {name: _of_memory(memory, self.principal.user) for name, memory in own.items()}
        return {name: found[name] for name in ids if name in found}

    # memories -------------------------------------------------------------------------------------------------

    def beliefs(self, ids: Sequence[str]) -> Beliefs:
        """The memories among these, and those that were made of these turns, with what became of each."""
        if self.index.known("role", MEMORY) is None:
            return {}
        numbers = [self._numbers[name] for name in ids if name in self._numbers]
        made = memories.from_turns(self.index, [number for number in numbers if number > 0])
        own = self._memories([*(n for n in numbers if n < 0), *(-m for each in made.values() for m in each)])
        found = {n: [self._belief(-m, own[-m]) for m in made.get(n, ()) if -m in own] for n in numbers if n > 0}
        found |= {n: [self._belief(n, own[n])] for n in numbers if n in own}
        return {self._names[n]: each for n, each in found.items() if each}

    def _memories(self, numbers: Sequence[int]) -> dict[int, Memory]:
        """Memories that may be read, by their numbers below zero."""
        wanted = sorted({-number for number in numbers if number < 0})
        unread = [number for number in wanted if number not in self._read_memories]
        self._read_memories |= memories.readable(self.index, self._seen, unread) if unread else {}
        return {-number: self._read_memories[number] for number in wanted if number in self._read_memories}

    def _belief(self, number: int, memory: Memory) -> Belief:
        """What became of a memory, by what had been stated until the moment that is asked about."""
        chain = self._shared_chain(number) if memory.shared_by else self._chain(replay.chain_of(memory))
        known = next((each for each in chain if each.memory_id == memory.memory_id), memory)
        current = next((each for each in chain if each.is_current), None)
        return Belief(known, chain, None if current is None or self._is_held(current) else current)

    def _chain(self, chain: replay.Chain) -> tuple[Memory, ...]:
        """The memories of a chain, as it stood at the moment that is asked about; their ids are known from then on."""
        if chain not in self._chains:
            every = memories.of_chain(self.index, self.principal.user, chain)
            if self.as_of is not None:
                every = replay.settled(memory for memory in every if memory.stated_at <= self.as_of)
            for number, memory in zip(self._keys(every), every, strict=True):
                self._read_memories.setdefault(number, memory)
                self._learn(-number, memory.memory_id)
            self._chains[chain] = tuple(every)
        return self._chains[chain]

    def _shared_chain(self, number: int) -> tuple[Memory, ...]:
        """As `_chain`, of another's memory: what may be read of it."""
        if number not in self._shared:
            rows = memories.shared_chain(self.index, self._seen, -number, as_of=self.as_of)
            for key, memory in rows:
                self._read_memories.setdefault(key, memory)
                self._learn(-key, memory.memory_id)
            self._shared[number] = tuple(memory for _, memory in rows)
        return self._shared[number]

    def _keys(self, every: Sequence[Memory]) -> list[int]:
        user = self.index.known("user", self.principal.user) or 0
        found = memories.numbers(self.index, user, [memory.memory_id for memory in every])
        return [found[memory.memory_id] for memory in every]

    def _is_held(self, memory: Memory) -> bool:
        """Whether a session that is going on holds it: it was said there, and not compacted away since."""
        return any(
            live.conversation == memory.conversation and (live.since_at is None or memory.stated_at >= live.since_at)
            for live in self.filters.held
        )

    # numbers and names ----------------------------------------------------------------------------------------

    def _within(self, window: Window | None) -> Filters:
        if window is None:
            return self.filters
        until = min(window.until_at, self.filters.until_at or window.until_at)
        return replace(self.filters, since_at=window.since_at, until_at=until)

    def _turns_of(self, chunks: Iterable[int]) -> dict[int, int]:
        return dict(self._in("SELECT id, turn FROM chunk WHERE id IN ({})", sorted(set(chunks))))

    def _named(self, scores: Mapping[int, float]) -> Scores:
        unknown = [turn for turn in scores if turn not in self._names]
        for number, name in self._in("SELECT id, turn_id FROM turn WHERE id IN ({})", [n for n in unknown if n > 0]):
            self._learn(number, name)
        for number, memory in self._memories(unknown).items():
            self._learn(number, memory.memory_id)
        return {self._names[turn]: score for turn, score in scores.items() if turn in self._names}

    def _learn(self, number: int, name: str) -> None:
        self._numbers[name], self._names[number] = number, name

    def _in(self, query: str, values: Sequence[int], *more: object) -> list[tuple[Any, ...]]:
        """The rows of a query with `IN ({})`, however many values there are. more: its values behind these."""
        parts = [values[low : low + _MARKS] for low in range(0, len(values), _MARKS)]
        return [
            row for part in parts for row in self.index.rows(query.format(", ".join("?" * len(part))), *part, *more)
        ]


def _role(memory: Memory) -> Role:
    """Who says a memory, to the one who asks."""
    if memory.shared_by:
        return "system"
    return "user" if memory.trust == "owner" else "assistant"


def _of_memory(memory: Memory, user: str) -> Detail:
    return Detail(
        memory.memory_id, "", memory.conversation, "user" if memory.trust == "owner" else "assistant",
        memory.stated_at, "", memory.runtime, memory.text, memory,
        user=memory.shared_by or user, is_shared=bool(memory.shared_by),
    )  # fmt: skip


_BESIDE = {
    sign: f"""(SELECT id FROM turn WHERE thread = here.thread AND offset {sign} here.offset AND said
      ORDER BY offset {order} LIMIT 1 OFFSET {{}})"""
    for sign, order in (("<", "DESC"), (">", "ASC"))
}  # the turn so many places before or after another, of those that somebody said
