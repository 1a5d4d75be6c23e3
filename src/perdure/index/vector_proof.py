"""Compare the vectors of two indexes by the nearest chunks of probes: the proof of a rebuild."""

from __future__ import annotations

from perdure.index import vector_search
from perdure.index.store import IndexConnection
from perdure.index.vector_search import SlabInfo, SlabRows
from perdure.models.embedder import Vectors
from perdure.types import Filters

VectorSide = tuple[IndexConnection, SlabRows, SlabInfo]


def list_differing_chunks(old_side: VectorSide, new_side: VectorSide, *, n_probes: int, k: int) -> list[str]:
    """Return "turn/n" of those probes whose k nearest chunks differ between two indexes. Probes are spread
    over the old one.
    """
    differing_names = []
    for name, probe in _choose_probes(old_side, n_probes):
        if _find_neighbours(old_side, probe, k) != _find_neighbours(new_side, probe, k):
            differing_names.append(name)
    return differing_names


def _choose_probes(side: VectorSide, n: int) -> list[tuple[str, Vectors]]:
    index, slab, info = side
    chunks = [
        chunk_number
        for (chunk_number,) in index.select("SELECT chunk FROM vector WHERE slab = ? AND row >= 0", info.id)
    ]
    found_chunks, vectors = vector_search.fetch_vectors(index, slab, info, chunks[:: max(1, len(chunks) // n)][:n])
    return [(_describe_chunk(index, int(chunk)), vectors[i : i + 1]) for i, chunk in enumerate(found_chunks)]


def _find_neighbours(side: VectorSide, probe: Vectors, k: int) -> list[str]:
    index, slab, info = side
    with index.begin_read():
        (nearest_rows,) = vector_search.find_nearest(index, slab, info, probe, filters=Filters(), k=k)
        return [_describe_chunk(index, int(chunk)) for chunk in nearest_rows.chunks]


def _describe_chunk(index: IndexConnection, chunk: int) -> str:
    """Return the id of the turn or memory of a chunk, and the position of the chunk in it."""
    query = """SELECT coalesce(turn_id, memory_id), n FROM chunk LEFT JOIN turn ON turn.id = chunk.turn
        LEFT JOIN memory ON memory.id = -chunk.turn WHERE chunk.id = ?"""
    owner, n = index.select(query, chunk)[0]
    return f"{owner}/{n}"
