"""A slab: the vectors of one owner and one model in one index, in segment files that are mapped, never loaded.

Derived. A segment has room for ROWS rows and holds them column by column: for each row its chunk's number, what
filters test (so that a filter narrows the scan itself), and the vector in int8 with its scale, as the cache has it.
How many rows count says the index file, in the transaction that names their chunks: what a crash left behind them
is overwritten. A row is written once; forgetting it puts zeros in its place. Who writes holds the index's write lock.
"""

from __future__ import annotations

import mmap
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from perdure.capture.files import faults, make_folder
from perdure.errors import DimensionMismatch, VectorRefused, VectorsMissing
from perdure.models.vectors import Quantised, Vectors, quantise

ROWS = 16384  # in a segment: 7 MB at 384 numbers a vector; empty ones take no room on disk
NUMBERS = ("run", "project", "conversation", "runtime", "machine", "agent", "role", "kind")
NOTHING = -1  # in the place of a name's number where there is none
NO_TIME = np.iinfo(np.int64).min  # in the place of a time that nobody knows
_WIDE = ("chunk", "tie", "stated_ms")

Ints = npt.NDArray[np.int64]


class Fields(NamedTuple):
    """What a row says of its chunk, beside the vector."""

    chunk: int
    tie: int
    stated_ms: int  # or NO_TIME
    numbers: tuple[int, ...]  # as NUMBERS; NOTHING where there is none


class Segment(NamedTuple):
    """Some rows of a slab, mapped; all arrays have one entry a row."""

    first: int  # number of its first row in the slab
    columns: Mapping[str, npt.NDArray[Any]]  # chunk, tie, stated_ms: int64; scale: float32; NUMBERS: int32
    values: npt.NDArray[np.int8]  # (n, dimension): times scale, the vectors


class Slab:
    """The files of one slab. Reading maps what it needs and keeps it mapped."""

    def __init__(self, folder: Path, dimension: int) -> None:
        """Nothing is opened yet."""
        self.folder = folder
        self.dimension = dimension
        self._layout, self._n_bytes = _layout(dimension)
        self._mapped: dict[int, Mapping[str, npt.NDArray[Any]]] = {}

    def segments(self, n_rows: int) -> Iterator[Segment]:
        """The first `n_rows` rows, segment by segment. Raises VectorsMissing."""
        for first in range(0, n_rows, ROWS):
            n = min(ROWS, n_rows - first)
            yield self._segment(first // ROWS, n)

    def gather(self, rows: Ints) -> tuple[Quantised, Ints, Ints]:
        """(vectors, chunk numbers, ties) of some rows, in the order given. Raises VectorsMissing."""
        vectors = Quantised(np.zeros((len(rows), self.dimension), np.int8), np.zeros(len(rows), np.float32))
        chunks, ties = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        for number in np.unique(rows // ROWS).tolist():
            at = np.flatnonzero(rows // ROWS == number)
            inside = rows[at] % ROWS
            part = self._segment(number, ROWS)
            vectors.values[at], vectors.scales[at] = part.values[inside], part.columns["scale"][inside]
            chunks[at], ties[at] = part.columns["chunk"][inside], part.columns["tie"][inside]
        return vectors, chunks, ties

    def _segment(self, number: int, n: int) -> Segment:
        if number not in self._mapped:
            self._mapped[number] = self._map(number)
        mapped = self._mapped[number]
        columns = {name: column[:n] for name, column in mapped.items() if name != "values"}
        return Segment(number * ROWS, columns, mapped["values"][:n])

    def _map(self, number: int) -> Mapping[str, npt.NDArray[Any]]:
        path = self._path(number)
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError as error:
            raise VectorsMissing(str(path)) from error
        try:
            if os.fstat(descriptor).st_size != self._n_bytes:
                raise VectorsMissing(f"{path} (cut short)")
            view = mmap.mmap(descriptor, self._n_bytes, prot=mmap.PROT_READ)
        finally:
            os.close(descriptor)
        return {
            name: np.frombuffer(view, place.type, ROWS * place.width, place.offset).reshape(place.shape)
            for name, place in self._layout.items()
        }

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:05d}.segment"

    def append(self, n_rows: int, fields: Sequence[Fields], vectors: Vectors) -> None:
        """Write rows behind the first `n_rows`, durably. They count once the index says so.

        vectors: (n, dimension). Raises VectorRefused for rows of zeros, NaN or infinity; DimensionMismatch.
        """
        if vectors.shape != (len(fields), self.dimension):
            raise DimensionMismatch(f"{vectors.shape} in a slab of {self.dimension}")
        if not np.isfinite(vectors).all() or not vectors.any(axis=1).all():
            raise VectorRefused(f"{len(vectors)} rows of {self.dimension}")
        small = quantise(vectors)
        columns = {**_columns(fields), "scale": small.scales, "values": small.values}
        done = 0
        while done < len(fields):
            number, at = divmod(n_rows + done, ROWS)
            n = min(ROWS - at, len(fields) - done)
            self._write(number, [(at, {name: column[done : done + n] for name, column in columns.items()})])
            done += n

    def wipe(self, rows: Ints) -> None:
        """Put zeros where these rows are, durably."""
        empty = {n: np.zeros((1, *p.shape[1:]), p.type) for n, p in self._layout.items()}
        for number in np.unique(rows // ROWS).tolist():
            self._write(number, [(row % ROWS, empty) for row in rows[rows // ROWS == number].tolist()])

    def _write(self, number: int, what: Sequence[tuple[int, Mapping[str, npt.NDArray[Any]]]]) -> None:
        """Write columns into a segment, each from its row on, and wait for the disk."""
        make_folder(self.folder)
        path = self._path(number)
        with faults(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                self._write_open(descriptor, what)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _write_open(self, descriptor: int, what: Sequence[tuple[int, Mapping[str, npt.NDArray[Any]]]]) -> None:
        if os.fstat(descriptor).st_size != self._n_bytes:
            os.ftruncate(descriptor, self._n_bytes)
        for at, columns in what:
            for name, column in columns.items():
                place = self._layout[name]
                raw = np.ascontiguousarray(column, place.type).tobytes()
                _write_all(descriptor, raw, place.offset + at * place.row_bytes)

    def is_whole(self, n_rows: int) -> bool:
        """Whether the files of so many rows are there."""
        numbers = range(-(-n_rows // ROWS))
        return all(p.exists() and p.stat().st_size == self._n_bytes for p in map(self._path, numbers))

    def remove(self) -> None:
        """Delete the files; who has them mapped keeps them until it lets go."""
        self._mapped.clear()
        shutil.rmtree(self.folder, ignore_errors=True)


class _Place(NamedTuple):
    """Where a column lies in a segment."""

    offset: int
    type: type[np.generic]
    shape: tuple[int, ...]

    @property
    def width(self) -> int:
        return self.shape[1] if len(self.shape) > 1 else 1

    @property
    def row_bytes(self) -> int:
        return self.width * np.dtype(self.type).itemsize


def _layout(dimension: int) -> tuple[Mapping[str, _Place], int]:
    """(column -> its place, bytes of a segment). Widest first, so that each begins on a multiple of its size."""
    shapes: list[tuple[str, type[np.generic], tuple[int, ...]]] = [
        *((name, np.int64, (ROWS,)) for name in _WIDE),
        ("scale", np.float32, (ROWS,)),
        *((name, np.int32, (ROWS,)) for name in NUMBERS),
        ("values", np.int8, (ROWS, dimension)),
    ]
    found: dict[str, _Place] = {}
    offset = 0
    for name, type_, shape in shapes:
        found[name] = _Place(offset, type_, shape)
        offset += ROWS * found[name].row_bytes
    return found, offset


def _columns(fields: Sequence[Fields]) -> dict[str, npt.NDArray[Any]]:
    wide = np.array([f[:3] for f in fields], np.int64).reshape(len(fields), 3)
    numbers = np.array([f.numbers for f in fields], np.int32).reshape(len(fields), len(NUMBERS))
    found: dict[str, npt.NDArray[Any]] = {name: wide[:, i] for i, name in enumerate(_WIDE)}
    return found | {name: numbers[:, i] for i, name in enumerate(NUMBERS)}


def _write_all(descriptor: int, raw: bytes, offset: int) -> None:
    view = memoryview(raw)
    while view:
        n = os.pwrite(descriptor, view, offset)
        view, offset = view[n:], offset + n
