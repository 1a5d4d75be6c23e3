"""Candidates in memory for an evaluation: keyword scores are the product's own, vectors are scanned with numpy.

A scratch home holds each group of a set as one conversation of an owner of its own, so that a group is a memory of
its own: BM25 counts its words alone, and no filter is needed. What stands between this and the real index is speed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol

import numpy as np

from perdure import text
from perdure.eval.datasets import Dataset, Doc
from perdure.home import Home, open_home
from perdure.identity import turn_id
from perdure.index.project import CHUNK_CHARS, OVERLAP_CHARS
from perdure.recall.candidates import Detail, Sighting
from perdure.recall.feedback import Matrix, rarity
from perdure.recall.judge import stem, stems
from perdure.recall.neighbours import Around
from perdure.types import Filters, Role, Source, Window

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant"}
_N_NEWEST = 3


class Embeds(Protocol):
    """What turns texts into vectors of length 1: perdure.models' Embedder, or a test's."""

    @property
    def tag(self) -> str:
        """Which model, in how many dimensions."""

    def embed(self, texts: Sequence[str], kind: str = "document") -> Matrix:
        """One row a text; kind: document or query."""


@dataclass
class Memory:
    """One group: its documents, its home, and its vectors if it has any."""

    home: Home
    docs: Sequence[Doc]
    ids: Mapping[str, str]  # turn id -> document id
    pieces: Matrix | None = None  # one row for each piece of each document, in order
    owner: Sequence[int] = ()  # row -> place of its document; ascending, every document has a row
    _legs: dict[tuple[str, int, Window | None], dict[str, float]] = field(default_factory=dict)
    _place: dict[str, int] = field(init=False)
    _holding: dict[str, list[int]] = field(init=False)
    _details: dict[str, Detail] = field(init=False)
    _first: list[int] = field(init=False)  # place of a document -> its first row; one more for the end

    def __post_init__(self) -> None:
        """Index the places of documents and words."""
        self._place = {doc.doc_id: n for n, doc in enumerate(self.docs)}
        self._details = {doc.doc_id: _detail(doc) for doc in self.docs}
        self._first = np.searchsorted(np.asarray(self.owner), np.arange(len(self.docs) + 1)).tolist()
        self._holding = {}
        for n, doc in enumerate(self.docs):
            for word in stems(doc.text):
                self._holding.setdefault(word, []).append(n)

    def keyword(self, queries: Sequence[str], k: int, within: Window | None = None) -> list[dict[str, float]]:
        """The product's keyword search."""
        return [self._leg(query, k, within) for query in queries]

    def _leg(self, query: str, k: int, within: Window | None) -> dict[str, float]:
        key = (query, k, within)
        if key not in self._legs:
            filters = Filters(since_at=within.since_at, until_at=within.until_at) if within else Filters()
            hits = self.home.search(query, filters=filters, limit=k).hits
            self._legs[key] = {self.ids[hit.turn_id]: hit.score for hit in hits if hit.score > 0 or not query}
        return self._legs[key]

    def nearest(self, queries: Matrix, k: int, within: Window | None = None) -> list[dict[str, float]]:
        """Every piece compared, the best piece of each document taken."""
        if self.pieces is None:
            return []
        return [self._nearest(self.pieces @ query, k, within) for query in queries]

    def _nearest(self, cosines: Matrix, k: int, within: Window | None) -> dict[str, float]:
        best = np.maximum.reduceat(cosines, self._first[:-1])
        if within:
            outside = [n for n, doc in enumerate(self.docs) if not _is_in(doc.stated_at, within)]
            best[outside] = -2.0
        order = np.argsort(-best, kind="stable")[:k]
        return {self.docs[n].doc_id: float(best[n]) for n in order if best[n] > -2.0}

    def vectors(self, ids: Sequence[str]) -> dict[str, Matrix]:
        """The rows of each document."""
        if self.pieces is None:
            return {}
        rows = ((name, self._place[name]) for name in ids)
        return {name: self.pieces[self._first[n] : self._first[n + 1]] for name, n in rows}

    def around(self, ids: Sequence[str], reach: int) -> Around:
        """The documents beside each in its session."""
        return {name: list(self._beside(self._place[name], reach)) for name in ids}

    def _beside(self, place: int, reach: int) -> Iterator[tuple[str, int]]:
        for away in range(1, reach + 1):
            for other in (place - away, place + away):
                if 0 <= other < len(self.docs) and self.docs[other].session == self.docs[place].session:
                    yield self.docs[other].doc_id, away

    def look_up(self, words: Sequence[str]) -> dict[str, Sighting]:
        """Documents that hold a word, or all words of a name in a row."""
        return {word: self._sighting(word) for word in words}

    def _sighting(self, word: str) -> Sighting:
        parts = text.query_terms(word)
        held = [set(self._holding.get(stem(part), ())) for part in parts]
        places = sorted(set.intersection(*held)) if held else []
        if len(parts) > 1:
            whole = re.compile(rf"(?<![A-Za-z0-9_]){re.escape(word)}(?![A-Za-z0-9_])", re.IGNORECASE)
            places = [n for n in places if whole.search(self.docs[n].text)]
        newest = tuple(self.docs[n].doc_id for n in reversed(places))[:_N_NEWEST]
        return Sighting(len(places), rarity(len(places), len(self.docs)), newest)

    def details(self, ids: Sequence[str]) -> dict[str, Detail]:
        """What the set says of each document."""
        return {name: self._details[name] for name in ids}


def _detail(doc: Doc) -> Detail:
    role = _ROLES.get(doc.speaker, "user")
    person = "" if doc.speaker in _ROLES else doc.speaker
    return Detail(doc.doc_id, doc.session, doc.group, role, doc.stated_at, "eval", "messages", doc.text, person)


def _is_in(at: datetime | None, within: Window) -> bool:
    return at is not None and within.since_at <= at < within.until_at


@contextmanager
def memories(data: Dataset, place: Path, embedder: Embeds | None = None) -> Iterator[dict[str, Memory]]:
    """Group -> its memory, in a scratch home under `place`."""
    with ExitStack() as stack:
        yield {
            group: stack.enter_context(_memory(place / "home", f"g{n}", docs, embedder))
            for n, (group, docs) in enumerate(data.groups().items())
        }


@contextmanager
def _memory(place: Path, user: str, docs: Sequence[Doc], embedder: Embeds | None) -> Iterator[Memory]:
    with open_home(place, user=user) as home:
        body, ids = _messages(Source(user, "messages", user), docs)
        home.capture(body, runtime="messages", session=user)
        home.catch_up()
        pieces, owner = embedded(docs, embedder) if embedder else (None, ())
        yield Memory(home, docs, ids, pieces, owner)


def _messages(source: Source, docs: Sequence[Doc]) -> tuple[bytes, dict[str, str]]:
    """The documents as a transcript of messages, and the turn id that each gets."""
    body = bytearray()
    ids: dict[str, str] = {}
    for doc in docs:
        ids[turn_id(source, len(body))] = doc.doc_id
        role = _ROLES.get(doc.speaker, "user")
        message = {"role": role, "content": doc.text.removeprefix(f"{role}: ")}
        if doc.stated_at:
            message["timestamp"] = doc.stated_at.isoformat()
        body += json.dumps(message, ensure_ascii=False).encode() + b"\n"
    return bytes(body), ids


def embedded(docs: Sequence[Doc], embedder: Embeds) -> tuple[Matrix, list[int]]:
    """Vectors of the pieces of documents, with the date in front, and the place of the document of each."""
    texts: list[str] = []
    owner: list[int] = []
    for n, doc in enumerate(docs):
        for low, high in text.split(doc.text, max_chars=CHUNK_CHARS, overlap_chars=OVERLAP_CHARS):
            texts.append(dated(doc.text[low:high], doc.stated_at))
            owner.append(n)
    return np.asarray(embedder.embed(texts, "document"), dtype=np.float32), owner


def dated(words: str, stated_at: datetime | None) -> str:
    """The text whose vector is made: with its date in front when it has one.

    >>> from datetime import UTC
    >>> dated("Ada: done", datetime(2023, 5, 8, tzinfo=UTC))
    '8 May 2023 Ada: done'
    """
    return f"{stated_at.day} {stated_at:%B %Y} {words}" if stated_at else words
