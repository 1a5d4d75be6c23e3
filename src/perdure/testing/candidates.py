"""Candidates of a few turns that are written down: the socket that recall asks, without an index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np

from perdure import text
from perdure.recall.candidates import Detail, Fact, Sighting
from perdure.recall.feedback import Matrix, rarity
from perdure.recall.fuse import Scores
from perdure.recall.judge import stems
from perdure.recall.truth import Beliefs
from perdure.types import Role, Window

START = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass
class Written:
    """Turns in order, a day apart, all of one line of talk: BM25 is how many of the query's words a turn holds."""

    turns: Mapping[str, tuple[Role, str]]  # id -> (role, text)
    rows: Mapping[str, Sequence[float]] = field(default_factory=dict)  # id -> vector
    asked: list[str] = field(default_factory=list)  # every query so far

    def _at(self, name: str) -> datetime:
        return START + timedelta(days=list(self.turns).index(name))

    def _in(self, name: str, within: Window | None) -> bool:
        return within is None or within.since_at <= self._at(name) < within.until_at

    def keyword(self, queries: Sequence[str], k: int, within: Window | None = None) -> list[Scores]:
        """As the socket says."""
        self.asked += queries
        return [self._leg(query, k, within) for query in queries]

    def _leg(self, query: str, k: int, within: Window | None) -> Scores:
        words = stems(" ".join(text.without_stopwords(text.query_terms(query))))
        scores = {n: float(len(words & stems(t))) if query else 0.0 for n, (_, t) in self.turns.items()}
        found = [n for n, score in scores.items() if (score or not query) and self._in(n, within)]
        order = sorted(found, key=lambda n: (-scores[n], -self._at(n).timestamp() if not query else 0, n))
        return {name: scores[name] for name in order[:k]}

    def nearest(self, queries: Matrix, k: int, within: Window | None = None) -> list[Scores]:
        """As the socket says."""
        legs: list[Scores] = []
        for query in queries:
            scores = {n: float(np.dot(row, query)) for n, row in self.rows.items() if self._in(n, within)}
            legs.append({n: scores[n] for n in sorted(scores, key=lambda n: (-scores[n], n))[:k]})
        return legs

    def vectors(self, ids: Sequence[str]) -> dict[str, Matrix]:
        """As the socket says."""
        return {n: np.array([self.rows[n]], dtype=np.float32) for n in ids if n in self.rows}

    def cosines(self, ids: Sequence[str], queries: Matrix) -> Scores:
        """As the socket says."""
        return {n: float((rows @ queries.T).max()) for n, rows in self.vectors(ids).items()}

    def around(self, ids: Sequence[str], reach: int) -> dict[str, list[tuple[str, int]]]:
        """As the socket says."""
        names = list(self.turns)
        places = {name: names.index(name) for name in ids}
        return {
            name: [
                (names[o], abs(o - at)) for o in range(at - reach, at + reach + 1) if o != at and 0 <= o < len(names)
            ]
            for name, at in places.items()
        }

    def rarities(self, words: Sequence[str]) -> dict[str, tuple[int, float]]:
        """As the socket says."""
        return {word: (seen.n_turns, seen.rarity) for word, seen in self.names(words).items()}

    def names(self, names: Sequence[str]) -> dict[str, Sighting]:
        """As the socket says."""
        held = {name: [n for n, (_, t) in self.turns.items() if stems(name) <= stems(t)] for name in names}
        n_all = len(self.turns)
        return {n: Sighting(len(h), rarity(len(h), n_all), tuple(reversed(h))) for n, h in held.items()}

    def beliefs(self, ids: Sequence[str]) -> Beliefs:  # noqa: ARG002 - turns only
        """As the socket says."""
        return {}

    def facts(self, ids: Sequence[str]) -> dict[str, Fact]:
        """As the socket says."""
        return {n: Fact(self.turns[n][0], self._at(n)) for n in ids}

    def details(self, ids: Sequence[str]) -> dict[str, Detail]:
        """As the socket says."""
        return {
            n: Detail(n, "run", "conv", self.turns[n][0], self._at(n), "laptop", "pi", self.turns[n][1])
            for n in ids if n in self.turns
        }  # fmt: skip
