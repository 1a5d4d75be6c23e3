"""The vectors of a home: its embedder, the lanes to it, the cache and the slabs of its index, joined.

Whatever fails here, words are still found: who asks gets None, or an error that says which part is missing.
A new model fills a slab of its own, and until that is complete the old one answers, asked by its own model.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from perdure.capture.files import locked
from perdure.config import EmbedderConfig
from perdure.errors import ConfigFault, IndexFault, NotFound
from perdure.index import embed, hybrid, vector
from perdure.index import store as indexes
from perdure.index.embed import Filled, Lane
from perdure.index.store import Connection
from perdure.index.vector import Shelf, Slot, Space
from perdure.models.choose import LOCAL_ITEM_CHARS, Chosen, choose
from perdure.models.embedder import Careful, Embedder, ModelTag
from perdure.models.lanes import LANES, Answer, Lanes
from perdure.models.store import Cache, Cached
from perdure.models.vectors import Vectors as Rows
from perdure.models.vectors import restore

_PROBES = 20  # chunks whose neighbours are compared between an old index and its rebuilt one
_PROBE_K = 24
_CHECK = "The harbour master signs the tide table."


@dataclass(frozen=True)
class SlabStatus:
    """How far the vectors of one model have come."""

    tag: str
    n_embedded: int
    n_missing: int
    n_refused: int  # texts for which the model has none
    is_complete: bool
    answers: bool  # whether searches use it


@dataclass(frozen=True)
class Status:
    """What there is of vectors, and what is waiting."""

    model: str  # tag of the embedder that is set, "" for none
    notice: str
    slabs: tuple[SlabStatus, ...]
    cached: dict[str, int]  # vectors in the cache by tag
    depth: dict[str, int]  # chunks that wait, by lane
    waiting_s: float | None  # how long the oldest capture that is not embedded has been here


@dataclass(frozen=True)
class Asked:
    """What is asked, as vectors, and where they may be compared."""

    space: Space
    lanes: Lanes
    pending: Future[Answer]

    @property
    def tag(self) -> ModelTag:
        """Of the model that is asked."""
        return self.lanes.embedder.tag

    def answer(self) -> Answer:
        """One vector for each text, and what they waited for. Raises ModelFault."""
        return self.pending.result()


class Vectors:
    """One home's. Close it."""

    def __init__(
        self,
        home: Path,
        config: EmbedderConfig,
        *,
        writable: bool,
        embedder: Embedder | None = None,
        beside: Vectors | None = None,
    ) -> None:
        """embedder: used instead of the one that the settings name. beside: those of another thread, whose model,
        lanes and cache are shared; they must be closed after these.
        """
        self.home = home
        self.writable = writable
        self._shelf = Shelf(home)
        self._first: Vectors = beside._first if beside else self  # who holds what is shared
        self._making = threading.RLock()
        self._lanes: dict[str, Lanes] = {}
        self._cache: Cache | None = None
        self.chosen: Chosen = beside.chosen if beside else _chosen(config, embedder)
        self._made_by = "" if embedder else msgspec.json.encode(config).decode()

    def close(self) -> None:
        """Let what is being embedded finish, and release every file."""
        for lanes in self._lanes.values():
            lanes.close()
        if self._cache is not None:
            self._cache.close()
        self._lanes, self._cache = {}, None

    def waiting(self) -> dict[str, int]:
        """Texts of each lane that wait for a model or are with it at this moment; any thread may ask."""
        depths = [lanes.depth() for lanes in list(self._first._lanes.values())]
        return {lane: sum(depth[lane] for depth in depths) for lane in LANES}

    @property
    def tag(self) -> ModelTag | None:
        """Of the embedder that is set."""
        return self.chosen.embedder.tag if self.chosen.embedder else None

    # asking -----------------------------------------------------------------------------------------------

    def ask(self, index: Connection, user: str, texts: Sequence[str], *, others: Collection[str] = ()) -> Asked | None:
        """Queries on their way to become vectors, and where to compare them; None when there is nowhere.

        others: owners who share what they have; of theirs, the vectors of the same model are compared as well.
        """
        first, *rest = [self._slots(index, name) for name in (user, *others)]
        chosen = next(filter(None, map(self._answering, (first, *rest))), None)
        if chosen is None:
            return None
        slot, lanes = chosen
        pending = lanes.submit(texts, kind="query", lane="query")
        beside = [s for slots in rest for s in slots if s.tag == slot.tag and s.n_rows and s.id != slot.id]
        spaces = tuple(Space(other, self._shelf.slab(index, other)) for other in beside)
        return Asked(Space(slot, self._shelf.slab(index, slot), spaces), lanes, pending)

    def _slots(self, index: Connection, user: str) -> list[Slot]:
        number = index.known("user", user)
        return vector.slots(index, number) if number is not None else []

    def has_any(self, index: Connection, user: str) -> bool:
        """Whether there are vectors to search in."""
        return any(slot.n_rows for slot in self._slots(index, user))

    def has_new(self, index: Connection, user: str) -> bool:
        """Whether anything came in, of whomever, since what an owner's vectors lack was listed."""
        number = index.known("user", user)
        slots = vector.slots(index, number) if number is not None else []
        return any(slot.n_rows and slot.listed < embed.newest(index) for slot in slots)

    def _answering(self, slots: Sequence[Slot]) -> tuple[Slot, Lanes] | None:
        """The slab that answers and its model: the set one's when complete, else a complete older one's, else
        the set one's as far as it has come.
        """
        if self.tag is None:
            return None
        filled = [slot for slot in slots if slot.n_rows]
        ours = [slot for slot in filled if slot.tag == self.tag.key]
        older = [slot for slot in reversed(filled) if slot.is_complete and slot not in ours]
        for slot in [*(s for s in ours if s.is_complete), *older, *ours]:
            lanes = self._lanes_of(slot.tag, slot.made_by)
            if lanes is not None:
                return slot, lanes
        return None

    def _lanes_of(self, key: str, made_by: str) -> Lanes | None:
        """The lanes to the model of a tag: the one that is set, or the one that these settings name."""
        shared = self._first
        with shared._making:
            if key not in shared._lanes:
                chosen = self.chosen if self.tag and self.tag.key == key else _remade(made_by)
                if chosen.embedder is None or chosen.embedder.tag.key != key:
                    return None
                shared._lanes[key] = shared._opened(chosen.embedder, chosen.item_chars)
            return shared._lanes[key]

    def _opened(self, embedder: Embedder, item_chars: int) -> Lanes:
        inner = Cached(embedder, self.cache()) if self.writable else embedder
        return Lanes(inner, turn=self.home / "cache" / "embed.turn" if self.writable else None, item_chars=item_chars)

    def cache(self) -> Cache:
        """The embedding cache."""
        shared = self._first
        with shared._making:
            if shared._cache is None:
                shared._cache = Cache(self.home / "cache" / "embeddings.db")
            return shared._cache

    # filling ----------------------------------------------------------------------------------------------

    def fill(
        self,
        index: Connection,
        user: str,
        *,
        most: int | None = None,
        limit_s: float | None = None,
        fresh_only: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Filled:
        """Embed what an owner's chunks lack, or only what came in since they were listed.

        Raises NotFound without an embedder, Busy when another process is at it, ModelFault when the model fails.
        """
        if self.tag is None:
            raise NotFound(self.chosen.notice or "no embedder")
        number = index.known("user", user)
        if number is None:
            return Filled()
        with locked(self.home / ".embed.lock", wait_s=0):
            slot = self._sound_slot(index, number, self.tag)
            done = embed.fill(
                index,
                self._shelf,
                slot,
                self._embed,
                most=most,
                limit_s=limit_s,
                fresh_only=fresh_only,
                progress=progress,
            )
            self._drop_replaced(index, number, self.tag.key)
        return done

    def _embed(self, texts: Sequence[str], lane: Lane) -> Rows:
        assert self.tag is not None
        lanes = self._lanes_of(self.tag.key, self._made_by)
        assert lanes is not None
        return lanes.submit(texts, kind="document", lane=lane).result().vectors

    def _sound_slot(self, index: Connection, user: int, tag: ModelTag) -> Slot:
        """The slab to fill, made anew (from the cache, as far as that goes) when its files are gone."""
        slot = vector.slot(index, user, tag.key)
        if slot is not None and not self._shelf.slab(index, slot).is_whole(slot.n_rows):
            vector.drop_slot(index, self._shelf, slot)
        with index.writing():
            return vector.make_slot(index, user, tag.key, tag.dimension, made_by=self._made_by)

    def _drop_replaced(self, index: Connection, user: int, key: str) -> None:
        """Once the set model's slab is complete, those of others go."""
        slots = vector.slots(index, user)
        if any(slot.tag == key and slot.is_complete for slot in slots):
            for slot in slots:
                if slot.tag != key:
                    vector.drop_slot(index, self._shelf, slot)

    # care -------------------------------------------------------------------------------------------------

    def status(self, index: Connection, user: str) -> Status:
        """What there is for an owner."""
        number = index.known("user", user)
        slots = vector.slots(index, number) if number is not None else []
        chosen = self._answering(slots)
        found = tuple(
            SlabStatus(slot.tag, *embed.counts(index, slot), slot.is_complete, bool(chosen and chosen[0] == slot))
            for slot in slots
        )
        return Status(
            model=self.tag.key if self.tag else "", notice=self.chosen.notice, slabs=found,
            cached=self.cache().counts() if self.writable else {},
            depth=self._depth(index, slots), waiting_s=embed.oldest_waiting_s(index, self._current(slots)),
        )  # fmt: skip

    def _current(self, slots: Sequence[Slot]) -> Slot | None:
        return next((slot for slot in slots if self.tag and slot.tag == self.tag.key), None)

    def _depth(self, index: Connection, slots: Sequence[Slot]) -> dict[str, int]:
        """Chunks that wait for the set model: those of the list by bulk, what came in since by ingest."""
        slot = self._current(slots)
        left = slot.n_left if slot else 0
        return {"query": 0, "ingest": embed.n_missing(index, slot) - left if slot else 0, "bulk": left}

    def check(self) -> tuple[str, Answer]:
        """Embed a sentence as a query would be: (tag, what it took). Raises NotFound, ModelFault."""
        if self.tag is None:
            raise NotFound(self.chosen.notice or "no embedder")
        lanes = self._lanes_of(self.tag.key, self._made_by)
        assert lanes is not None
        return str(self.tag), lanes.submit([_CHECK], kind="query", lane="query").result()

    def settle(self, index: Connection) -> None:
        """Remove from slabs and cache what left the index: after this no vector of a forgotten text is on disk.

        Raises Busy when another process holds the old pages in use.
        """
        if not embed.is_unsettled(index):
            return
        index.checkpoint()
        gone = embed.gone(index)
        if (self.home / "cache" / "embeddings.db").exists():
            self.cache().forget(gone.names)
        embed.wipe(index, self._shelf)
        embed.settle(index, gone)
        index.checkpoint()
        self._refill(index)

    def _refill(self, index: Connection) -> None:
        """Vectors from the cache for chunks that were projected anew and say what they said before."""
        if (self.home / "cache" / "embeddings.db").exists():
            for slot in vector.slots(index):
                embed.carry(index, self._shelf, slot, partial(self._known, _tag(slot.tag)))

    def discard(self) -> None:
        """Delete every vector: when the index that says which to keep is gone, nothing else is sure to be enough."""
        self.close()
        for path in (self.home / "cache").glob("embeddings.db*"):
            path.unlink(missing_ok=True)
        self._shelf.sweep([])

    def sweep(self) -> None:
        """Delete the slabs of indexes that are no more."""
        self._shelf.sweep(map(_generation, indexes.files(self.home)))

    # rebuilding -------------------------------------------------------------------------------------------

    def carry(self, old: Connection | None, fresh: Connection) -> tuple[str, ...]:
        """Give a rebuilt index its vectors from the cache; returns the chunks whose neighbours then differ."""
        differing: list[str] = []
        for user, tag, made_by in self._to_carry(old, fresh):
            with fresh.writing():
                slot = vector.make_slot(fresh, fresh.name("user", user), tag.key, tag.dimension, made_by=made_by)
            embed.carry(fresh, self._shelf, slot, partial(self._known, tag))
            differing += self._differing(old, fresh, user, tag.key) if old else []
        return tuple(differing)

    def _to_carry(self, old: Connection | None, fresh: Connection) -> list[tuple[str, ModelTag, str]]:
        """(user, tag, settings) of the slabs that an old index had; of the set model where there is none to ask."""
        if old is not None:
            names = old.names("user")
            return [(names[slot.user], _tag(slot.tag), slot.made_by) for slot in vector.slots(old)]
        if self.tag is None or not (self.home / "cache" / "embeddings.db").exists():
            return []
        held = self.cache().counts().get(self.tag.key, 0)
        return [(user, self.tag, self._made_by) for user in fresh.names("user").values() if held]

    def _known(self, tag: ModelTag, names: Sequence[bytes]) -> tuple[list[int], Rows]:
        known = self.cache().get(tag, names)
        return known.places.tolist(), restore(known.vectors)

    def _differing(self, old: Connection, fresh: Connection, user: str, key: str) -> list[str]:
        """Of some chunks that both have, those whose nearest chunks are not the same in both."""
        both = [(i, vector.slot(i, i.name("user", user), key)) for i in (old, fresh)]
        sizes = {embed.counts(i, slot)[0] for i, slot in both if slot}
        if len(sizes) != 1:
            return []
        (_, before), (_, after) = both
        assert before and after
        return hybrid.differing(
            (old, self._shelf.slab(old, before), before), (fresh, self._shelf.slab(fresh, after), after),
            n_probes=_PROBES, k=_PROBE_K,
        )  # fmt: skip


def _chosen(config: EmbedderConfig, embedder: Embedder | None) -> Chosen:
    return Chosen(Careful(embedder), LOCAL_ITEM_CHARS) if embedder else choose(config)


def _remade(made_by: str) -> Chosen:
    """The embedder of earlier settings, if it can still be had."""
    if not made_by:
        return Chosen(None)
    try:
        return choose(msgspec.json.decode(made_by, type=EmbedderConfig))
    except (ConfigFault, msgspec.MsgspecError):
        return Chosen(None)


def _tag(key: str) -> ModelTag:
    """A model's tag from its key.

    >>> _tag("mini@384#ab12")
    ModelTag(name='mini', dimension=384, sha='ab12')
    """
    head, _, sha = key.rpartition("#")
    name, _, dimension = head.rpartition("@")
    return ModelTag(name, int(dimension), sha)


def _generation(path: Path) -> str | None:
    try:
        connection = Connection(path, writable=False)
    except IndexFault:
        return None
    try:
        return connection.meta("generation")
    finally:
        connection.close()
