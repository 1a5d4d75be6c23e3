"""The vectors of a home: joins its embedder, the lanes to it, the cache and the slabs of its index.

Whatever fails here, keyword search still works: a caller gets None, or an error that says which part is
missing. A new model fills a slab of its own; until that is complete the old slab answers, queried with
its own model.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import msgspec

from perdure.config import EmbedderConfig
from perdure.disk import lock_file
from perdure.errors import ConfigFault, DiskFull, EmbedderMissing, IndexFault, ReadOnlyHome
from perdure.index import embed, store, vector_proof, vector_search
from perdure.index.embed import FillResult, Lane
from perdure.index.store import IndexConnection
from perdure.index.vector_search import SlabFiles, SlabInfo, VectorSpace
from perdure.models.embedder import Embedder, ModelTag, ValidatingEmbedder, Vectors, restore
from perdure.models.lanes import LANES, EmbeddingLanes, EmbedResult
from perdure.models.local_embedders import LOCAL_ITEM_CHARS, EmbedderChoice, choose_embedder
from perdure.models.store import CachingEmbedder, VectorCache

_N_PROBES = 20  # chunks whose neighbours are compared between an old index and its rebuilt one
_PROBE_K = 24
_EMBED_WAIT_S = 15.0  # for somebody who embeds; the resident home does it for some seconds at a time
_CHECK_TEXT = "The harbour master signs the tide table."


class SlabStatus(msgspec.Struct, frozen=True):
    """The progress of the vectors of one model."""

    tag: str
    n_embedded: int
    n_missing: int
    n_refused: int  # texts for which the model has no vector
    is_complete: bool
    answers: bool  # True if searches use it


class VectorStatus(msgspec.Struct, frozen=True):
    """The state of all vectors, and of what waits for one."""

    model: str  # tag of the configured embedder, "" for none
    notice: str
    slabs: tuple[SlabStatus, ...]
    cached: dict[str, int]  # vectors in the cache by tag
    depth: dict[str, int]  # waiting chunks by lane
    waiting_s: float | None  # age of the oldest capture that is not embedded


class PendingQueryVector(msgspec.Struct, frozen=True):
    """Queries that are being embedded, and the vectors with which they may be compared."""

    space: VectorSpace
    lanes: EmbeddingLanes
    pending: Future[EmbedResult]

    @property
    def tag(self) -> ModelTag:
        """The tag of the model that embeds them."""
        return self.lanes.embedder.tag

    def wait(self) -> EmbedResult:
        """Wait for one vector for each text; the result says how long they waited. Raises ModelFault."""
        return self.pending.result()


class HomeVectors:
    """The vectors of one home. Close it after use."""

    def __init__(
        self,
        home: Path,
        config: EmbedderConfig,
        *,
        writable: bool,
        embedder: Embedder | None = None,
        shared: HomeVectors | None = None,
    ) -> None:
        """Join the parts. embedder: used instead of the configured one.

        shared: the vectors of another thread, whose model, lanes, cache and files are shared; close those after these.
        """
        self.home = home
        self.writable = writable
        self._lead: HomeVectors = shared._lead if shared else self  # it holds what is shared
        self._slab_files: SlabFiles = (
            shared._lead._slab_files if shared else SlabFiles(home)
        )  # each file is mapped once
        self._lock = threading.RLock()
        self._lanes: dict[str, EmbeddingLanes] = {}
        self._cache: VectorCache | None = None
        self.choice: EmbedderChoice = shared.choice if shared else _choose_embedder(config, embedder)
        self._made_by = "" if embedder else msgspec.json.encode(config).decode()

    def close(self) -> None:
        """Wait for the texts that are being embedded, and release every file."""
        for lanes in self._lanes.values():
            lanes.close()
        if self._cache is not None:
            self._cache.close()
        self._lanes, self._cache = {}, None

    def count_waiting(self) -> dict[str, int]:
        """Count the texts of each lane that wait for a model or are being embedded now; any thread may call this."""
        depths = [lanes.count_waiting_texts() for lanes in list(self._lead._lanes.values())]
        return {lane: sum(depth[lane] for depth in depths) for lane in LANES}

    @property
    def tag(self) -> ModelTag | None:
        """The tag of the configured embedder."""
        return self.choice.embedder.tag if self.choice.embedder else None

    # asking -----------------------------------------------------------------------------------------------

    def embed_queries(
        self, index: IndexConnection, user: str, texts: Sequence[str], *, others: Collection[str] = ()
    ) -> PendingQueryVector | None:
        """Start to embed queries; return them with the vectors to compare, or None when there are none.

        others: owners who share; their vectors of the same model are compared as well.
        """
        user_slabs, *other_users_slabs = [self._list_slabs(index, owner) for owner in (user, *others)]
        answering = next(filter(None, map(self._choose_answering, (user_slabs, *other_users_slabs))), None)
        if answering is None:
            return None
        info, lanes = answering
        pending = lanes.submit(texts, kind="query", lane="query")
        shared_infos = [
            shared_info
            for infos in other_users_slabs
            for shared_info in infos
            if shared_info.tag == info.tag and shared_info.n_rows and shared_info.id != info.id
        ]
        spaces = tuple(
            VectorSpace(other_info, self._slab_files.open_slab(index, other_info)) for other_info in shared_infos
        )
        return PendingQueryVector(VectorSpace(info, self._slab_files.open_slab(index, info), spaces), lanes, pending)

    def _list_slabs(self, index: IndexConnection, user: str) -> list[SlabInfo]:
        number = index.find_name("user", user)
        return vector_search.list_slabs(index, number) if number is not None else []

    def has_any(self, index: IndexConnection, user: str) -> bool:
        """Return True if the user has vectors to search in."""
        return any(info.n_rows for info in self._list_slabs(index, user))

    def find_newest_unembedded(self, index: IndexConnection, user: str) -> int:
        """Return the number of the newest chunk if vectors of the configured model may be missing, else 0."""
        info, newest_chunk = self._find_or_make_info(index, user), embed.find_newest_chunk(index)
        return newest_chunk if info and (info.n_left or info.last_listed < newest_chunk) else 0

    def count_unembedded(self, index: IndexConnection, user: str) -> int:
        """Count the user's chunks that still get a vector of the configured model; 0 without a model."""
        info = self._find_or_make_info(index, user)
        return embed.count_missing(index, info) if info else 0

    def _find_or_make_info(self, index: IndexConnection, user: str) -> SlabInfo | None:
        """Return the slab of the configured model, an empty one before the first vector; None without model or text."""
        number = index.find_name("user", user)
        if self.tag is None or number is None:
            return None
        empty_info = SlabInfo(
            0, number, self.tag.key, self.tag.dimension, n_rows=0, last_listed=0, n_left=0, made_by=""
        )
        return vector_search.find_slab(index, number, self.tag.key) or empty_info

    def _choose_answering(self, infos: Sequence[SlabInfo]) -> tuple[SlabInfo, EmbeddingLanes] | None:
        """Return the slab that answers and its model.

        This is the configured model's slab when it is complete, else a complete older one, else the configured
        model's as far as it is filled.
        """
        if self.tag is None:
            return None
        filled_infos = [info for info in infos if info.n_rows]
        own_infos = [info for info in filled_infos if info.tag == self.tag.key]
        older_infos = [info for info in reversed(filled_infos) if info.is_complete and info not in own_infos]
        for info in [*(own_info for own_info in own_infos if own_info.is_complete), *older_infos, *own_infos]:
            lanes = self._get_lanes(info.tag, info.made_by)
            if lanes is not None:
                return info, lanes
        return None

    def _get_lanes(self, key: str, made_by: str) -> EmbeddingLanes | None:
        """Return the lanes to the model of a tag: the configured model, or the one that these settings name."""
        lead = self._lead
        with lead._lock:
            if key not in lead._lanes:
                choice = self.choice if self.tag and self.tag.key == key else _choose_from_settings(made_by)
                if choice.embedder is None or choice.embedder.tag.key != key:
                    return None
                lead._lanes[key] = lead._open_lanes(choice.embedder, choice.item_chars)
            return lead._lanes[key]

    def _open_lanes(self, embedder: Embedder, item_chars: int) -> EmbeddingLanes:
        cache = self._open_cache_to_read()
        inner_embedder = CachingEmbedder(embedder, cache) if cache else embedder
        return EmbeddingLanes(
            inner_embedder,
            bulk_lock_path=self.home / "cache" / "embed.turn" if self.writable else None,
            item_chars=item_chars,
        )

    def open_cache(self) -> VectorCache:
        """Return the embedding cache; open it if need be."""
        lead = self._lead
        with lead._lock:
            if lead._cache is None:
                lead._cache = VectorCache(self.home / "cache" / "embeddings.db")
            return lead._cache

    def _open_cache_to_read(self) -> VectorCache | None:
        """Return the embedding cache; None where nothing can be written, because even a reader writes there."""
        try:
            return self.open_cache() if self.writable else None
        except (ReadOnlyHome, DiskFull):
            return None

    # filling ----------------------------------------------------------------------------------------------

    def fill(
        self,
        index: IndexConnection,
        user: str,
        *,
        max_chunks: int | None = None,
        limit_s: float | None = None,
        fresh_only: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> FillResult:
        """Embed what an owner's chunks lack, or only the chunks that came in since they were listed.

        Raises EmbedderMissing without an embedder, Busy when another process does it, ModelFault when the model fails.
        """
        if self.tag is None:
            raise EmbedderMissing(self.choice.notice or "no embedder")
        number = index.find_name("user", user)
        if number is None:
            return FillResult()
        name = f".embed-{number}.lock" if index.HAS_WALL else ".embed.lock"  # in a database, each user alone
        with lock_file(self.home / name, wait_s=0):
            info = self._ensure_slab(index, number, self.tag)
            result = embed.fill_slab(
                index,
                self._slab_files,
                info,
                self.embed_documents,
                max_chunks=max_chunks,
                limit_s=limit_s,
                fresh_only=fresh_only,
                progress=progress,
            )
            self._drop_replaced(index, number, self.tag.key)
        return result

    def embed_documents(self, texts: Sequence[str], lane: Lane) -> Vectors:
        """Return the vectors that the configured model gives texts, from the cache where it has them.

        Raises ModelFault. Without an embedder it must not be called.
        """
        assert self.tag is not None
        lanes = self._get_lanes(self.tag.key, self._made_by)
        assert lanes is not None
        return lanes.submit(texts, kind="document", lane=lane).result().vectors

    def _ensure_slab(self, index: IndexConnection, user: int, tag: ModelTag) -> SlabInfo:
        """Return the slab to fill; when its files are gone, start it again (from the cache, as far as that goes)."""
        info = vector_search.find_slab(index, user, tag.key)
        if info is not None and not self._slab_files.open_slab(index, info).is_whole(info.n_rows):
            vector_search.drop_slab(index, self._slab_files, info)
        with index.begin_write():
            return vector_search.find_or_add_slab(index, user, tag.key, tag.dimension, made_by=self._made_by)

    def _drop_replaced(self, index: IndexConnection, user: int, key: str) -> None:
        """Once the configured model's slab is complete, delete those of other models."""
        infos = vector_search.list_slabs(index, user)
        if any(info.tag == key and info.is_complete for info in infos):
            for info in infos:
                if info.tag != key:
                    vector_search.drop_slab(index, self._slab_files, info)

    # care -------------------------------------------------------------------------------------------------

    def get_status(self, index: IndexConnection, user: str) -> VectorStatus:
        """Return the state of an owner's vectors."""
        number = index.find_name("user", user)
        infos = vector_search.list_slabs(index, number) if number is not None else []
        answering = self._choose_answering(infos)
        slab_statuses = tuple(
            SlabStatus(
                info.tag, *embed.count_chunks(index, info), info.is_complete, bool(answering and answering[0] == info)
            )
            for info in infos
        )
        return VectorStatus(
            model=self.tag.key if self.tag else "",
            notice=self.choice.notice,
            slabs=slab_statuses,
            cached=cache.count_by_model() if (cache := self._open_cache_to_read()) else {},
            depth=self._count_depth(index, infos),
            waiting_s=embed.measure_oldest_waiting_s(index, self._find_current(infos)),
        )

    def _find_current(self, infos: Sequence[SlabInfo]) -> SlabInfo | None:
        return next((info for info in infos if self.tag and info.tag == self.tag.key), None)

    def _count_depth(self, index: IndexConnection, infos: Sequence[SlabInfo]) -> dict[str, int]:
        """Count the chunks that wait for the configured model: those on the list as bulk, those that came in since
        as ingest.
        """
        info = self._find_current(infos)
        n_left = info.n_left if info else 0
        return {"query": 0, "ingest": embed.count_missing(index, info) - n_left if info else 0, "bulk": n_left}

    def check_embedder(self) -> tuple[str, EmbedResult]:
        """Embed a sentence as a query; return (tag, result). Raises EmbedderMissing, ModelFault."""
        if self.tag is None:
            raise EmbedderMissing(self.choice.notice or "no embedder")
        lanes = self._get_lanes(self.tag.key, self._made_by)
        assert lanes is not None
        return str(self.tag), lanes.submit([_CHECK_TEXT], kind="query", lane="query").result()

    def delete_removed(self, index: IndexConnection) -> None:
        """Remove deleted texts from slabs and cache: after this no vector of a forgotten text is on disk.

        Raises Busy when another process still reads the old pages, or embeds for long.
        """
        if not embed.has_removed_vectors(index):
            return
        with self._stop_filling():
            index.checkpoint()
            removed = embed.read_removed(index)
            if (self.home / "cache" / "embeddings.db").exists():
                self.open_cache().forget(removed.hashes)
            embed.wipe_removed(index, self._slab_files)
            embed.clear_removed(index, removed)
            index.checkpoint()
            self._refill_from_cache(index)

    @contextlib.contextmanager
    def _stop_filling(self) -> Iterator[None]:
        """Wait until nobody embeds, and let nobody begin: an embedder puts a vector into the cache before it looks
        whether its text is still there. Raises Busy.
        """
        with contextlib.ExitStack() as locks:
            for path in sorted(self.home.glob(".embed*.lock")):
                locks.enter_context(lock_file(path, wait_s=_EMBED_WAIT_S))
            yield

    def _refill_from_cache(self, index: IndexConnection) -> None:
        """Copy vectors from the cache to chunks that were projected again with the same text."""
        if (self.home / "cache" / "embeddings.db").exists():
            for info in vector_search.list_slabs(index):
                embed.fill_from_known(index, self._slab_files, info, partial(self._read_cached, _parse_tag(info.tag)))

    def keep_indexed(self, index: IndexConnection) -> None:
        """Fill the vectors of an index that was made again, and delete every vector that it has no text for.

        Raises Busy when another process still embeds texts of the old index, or reads the old pages.
        """
        with self._stop_filling():
            self.carry_over(None, index)
            if (self.home / "cache" / "embeddings.db").exists():
                self.open_cache().forget_others(embed.list_embedded_hashes(index))
        self.delete_unused_slabs()

    def delete_all(self) -> None:
        """Delete every vector: without the index, which says which ones to keep, nothing less is certain to be
        enough.
        """
        self.close()
        for path in (self.home / "cache").glob("embeddings.db*"):
            path.unlink(missing_ok=True)
        self._slab_files.delete_unused([])

    def delete_unused_slabs(self) -> None:
        """Delete the slabs of indexes that no longer exist."""
        self._slab_files.delete_unused(map(_read_generation, store.list_files(self.home)))

    # rebuilding -------------------------------------------------------------------------------------------

    def carry_over(self, old_index: IndexConnection | None, new_index: IndexConnection) -> tuple[str, ...]:
        """Fill the vectors of a rebuilt index from the cache; return the chunks whose neighbours then differ."""
        differing: list[str] = []
        for user, tag, made_by in self._list_slabs_to_carry(old_index, new_index):
            with new_index.begin_write():
                info = vector_search.find_or_add_slab(
                    new_index, new_index.add_name("user", user), tag.key, tag.dimension, made_by=made_by
                )
            embed.fill_from_known(new_index, self._slab_files, info, partial(self._read_cached, tag))
            differing += self._list_differing(old_index, new_index, user, tag.key) if old_index else []
        return tuple(differing)

    def _list_slabs_to_carry(
        self, old_index: IndexConnection | None, new_index: IndexConnection
    ) -> list[tuple[str, ModelTag, str]]:
        """Return (user, tag, settings) of the slabs of the old index; without an old index, of the configured
        model.
        """
        if old_index is not None:
            names = old_index.list_names("user")
            return [
                (names[info.user], _parse_tag(info.tag), info.made_by) for info in vector_search.list_slabs(old_index)
            ]
        if self.tag is None or not (self.home / "cache" / "embeddings.db").exists():
            return []
        n_cached = self.open_cache().count_by_model().get(self.tag.key, 0)
        return [(user, self.tag, self._made_by) for user in new_index.list_names("user").values() if n_cached]

    def _read_cached(self, tag: ModelTag, hashes: Sequence[bytes]) -> tuple[list[int], Vectors]:
        cached = self.open_cache().get(tag, hashes)
        return cached.positions.tolist(), restore(cached.vectors)

    def _list_differing(self, old_index: IndexConnection, new_index: IndexConnection, user: str, key: str) -> list[str]:
        """Return those probes, of chunks in both indexes, whose nearest chunks differ."""
        infos_by_index = [
            (side_index, vector_search.find_slab(side_index, side_index.add_name("user", user), key))
            for side_index in (old_index, new_index)
        ]
        sizes = {embed.count_chunks(side_index, info)[0] for side_index, info in infos_by_index if info}
        if len(sizes) != 1:
            return []
        (_, old_info), (_, new_info) = infos_by_index
        assert old_info and new_info
        return vector_proof.list_differing_chunks(
            (old_index, self._slab_files.open_slab(old_index, old_info), old_info),
            (new_index, self._slab_files.open_slab(new_index, new_info), new_info),
            n_probes=_N_PROBES,
            k=_PROBE_K,
        )


def _choose_embedder(config: EmbedderConfig, embedder: Embedder | None) -> EmbedderChoice:
    return EmbedderChoice(ValidatingEmbedder(embedder), LOCAL_ITEM_CHARS) if embedder else choose_embedder(config)


def _choose_from_settings(made_by: str) -> EmbedderChoice:
    """Return the embedder of earlier settings, if it is still available."""
    if not made_by:
        return EmbedderChoice(None)
    try:
        return choose_embedder(msgspec.json.decode(made_by, type=EmbedderConfig))
    except (ConfigFault, msgspec.MsgspecError):
        return EmbedderChoice(None)


def _parse_tag(key: str) -> ModelTag:
    """Return a model's tag from its key.

    >>> _parse_tag("mini@384#ab12")
    ModelTag(name='mini', dimension=384, sha='ab12')
    """
    name_and_dimension, _, sha = key.rpartition("#")
    name, _, dimension = name_and_dimension.rpartition("@")
    return ModelTag(name, int(dimension), sha)


def _read_generation(path: Path) -> str | None:
    try:
        connection = IndexConnection(path, writable=False)
    except IndexFault:
        return None
    try:
        return connection.get_meta("generation")
    finally:
        connection.close()
