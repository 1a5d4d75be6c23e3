"""The index as recall sees it: one principal, one scope, one snapshot. Reads only.

What ranks looks through the filters inside the query, so nothing outside the scope takes a place among the best. A
neighbour is of the same line of talk as the turn it stands beside, and not of what a going session holds. How rare a
word is is counted over everything of the owner's. Turns are named by their ids outside and by their numbers inside;
what is read once is kept for as long as one recall takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from perdure.index import keyword
from perdure.index.store import Connection
from perdure.index.values import instant
from perdure.recall.candidates import Detail, Fact, Sighting
from perdure.recall.feedback import Matrix, rarity
from perdure.recall.fuse import Scores
from perdure.recall.neighbours import Around
from perdure.types import Filters, Principal, Window

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
    _numbers: dict[str, int] = field(default_factory=dict)  # turn id -> number
    _names: dict[int, str] = field(default_factory=dict)
    _shown: dict[int, int] = field(default_factory=dict)  # turn -> the chunk that matched best
    _vectors: dict[int, Matrix | None] = field(default_factory=dict)  # of turns that were read; None when it has none

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
        found = self.space.nearest(self.index, queries, filters=self._within(within), k=k * CHUNKS_PER_TURN)
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
        near -= keyword.turns_held(self.index, self.filters, sorted(near))
        self._named(dict.fromkeys(sorted(near), 0.0))
        return {
            self._names[row[0]]: [
                (self._names[turn], away) for (_, away), turn in zip(places, row[1:], strict=True) if turn in near
            ]
            for row in rows
        }

    def rarities(self, words: Sequence[str]) -> dict[str, tuple[int, float]]:
        """How often words stand in anything of the owner's."""
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
        shown = {self._shown[turn]: turn for turn in numbers if turn in self._shown}
        text = self.index.known("kind", "text")
        kinds = self._in("SELECT id, kind FROM chunk WHERE id IN ({})", list(shown))
        done = {shown[chunk] for chunk, kind in kinds if kind != text}
        return {
            self._names[turn]: Fact(role, instant(at), bool(said) and turn not in done, who)
            for turn, role, at, said, who in rows
        }

    def details(self, ids: Sequence[str]) -> dict[str, Detail]:
        """What is known of each of these turns, with the text of the chunk that matched, or its first."""
        numbers = [self._numbers[name] for name in ids if name in self._numbers]
        unseen = [turn for turn in numbers if turn not in self._shown]
        first = dict(self._in("SELECT turn, id FROM chunk WHERE turn IN ({}) AND n = 0", unseen))
        chunks = [self._shown.get(turn) or first.get(turn) for turn in numbers]
        hits = keyword.hits(self.index, [(chunk, 0.0) for chunk in chunks if chunk is not None])
        return {
            hit.turn_id: Detail(
                hit.turn_id, hit.run_id, hit.conversation, hit.role, hit.stated_at, hit.machine, hit.runtime, hit.text
            )
            for hit in hits
        }

    # numbers and names ----------------------------------------------------------------------------------------

    def _within(self, window: Window | None) -> Filters:
        if window is None:
            return self.filters
        return replace(self.filters, since_at=window.since_at, until_at=window.until_at)

    def _turns_of(self, chunks: Iterable[int]) -> dict[int, int]:
        return dict(self._in("SELECT id, turn FROM chunk WHERE id IN ({})", sorted(set(chunks))))

    def _named(self, scores: Mapping[int, float]) -> Scores:
        unknown = [turn for turn in scores if turn not in self._names]
        for number, name in self._in("SELECT id, turn_id FROM turn WHERE id IN ({})", unknown):
            self._learn(number, name)
        return {self._names[turn]: score for turn, score in scores.items() if turn in self._names}

    def _learn(self, number: int, name: str) -> None:
        self._numbers[name], self._names[number] = number, name

    def _in(self, query: str, values: Sequence[int]) -> list[tuple[Any, ...]]:
        """The rows of a query with `IN ({})`, however many values there are."""
        parts = [values[low : low + _MARKS] for low in range(0, len(values), _MARKS)]
        return [row for part in parts for row in self.index.rows(query.format(", ".join("?" * len(part))), *part)]


_BESIDE = {
    sign: f"""(SELECT id FROM turn WHERE thread = here.thread AND offset {sign} here.offset AND said
      ORDER BY offset {order} LIMIT 1 OFFSET {{}})"""
    for sign, order in (("<", "DESC"), (">", "ASC"))
}  # the turn so many places before or after another, of those that somebody said
