"""Slabs: what is written is read again, whatever lies behind the rows that count is not, and zeros wipe."""

import numpy as np
import pytest

from perdure.errors import DimensionMismatch, VectorRefused, VectorsMissing
from perdure.index import slab as slabs
from perdure.index.slab import NO_NUMBER, NO_TIME, ChunkFields, Slab
from perdure.models.embedder import restore, to_unit_length


def fields(n, first=0):
    return [ChunkFields(100 + first + i, -i, NO_TIME, (i, NO_NUMBER, 3, 4, 5, 6, 7, 8)) for i in range(n)]


def rows(n, dimension=8, seed=0):
    return to_unit_length(np.random.default_rng(seed).normal(size=(n, dimension)))


@pytest.fixture
def small_segments(monkeypatch):
    monkeypatch.setattr(slabs, "ROWS_PER_SEGMENT", 8)


@pytest.fixture
def slab(tmp_path, small_segments):
    return Slab(tmp_path / "1", 8)


def test_int8_row_is_worked_out_by_hand(tmp_path):
    """(0.6, 0.8): the largest is 0.8, so a step is 0.8 / 127 = 0.0062992; 0.6 / 0.0062992 = 95.25, rounded 95."""
    slab = Slab(tmp_path / "1", 2)
    slab.append(0, [ChunkFields(7, 9, 11, tuple(range(8)))], np.array([[0.6, 0.8]], np.float32))
    (segment,) = slab.iter_segments(1)
    assert segment.values.tolist() == [[95, 127]]
    assert segment.columns["scale"].tolist() == [pytest.approx(0.8 / 127)]
    assert [int(segment.columns[name][0]) for name in ("chunk", "tie", "stated_ms", "run", "kind")] == [7, 9, 11, 0, 7]


def test_rows_across_segments_read_back(slab):
    vectors = rows(30)
    slab.append(0, fields(5), vectors[:5])
    slab.append(5, fields(25, 5), vectors[5:])
    assert [len(segment.values) for segment in slab.iter_segments(30)] == [8, 8, 8, 6]
    small, chunks, ties = slab.gather(np.array([29, 0, 8, 7]))
    assert chunks.tolist() == [129, 100, 108, 107] and ties.tolist() == [-24, 0, -3, -2]
    assert np.abs(restore(small) - vectors[[29, 0, 8, 7]]).max() < 0.005


def test_rows_beyond_the_committed_ones_are_overwritten(slab):
    """A crash between the append and the index's commit: the next append takes the same place."""
    slab.append(0, fields(2), rows(2, seed=1))
    slab.append(2, fields(5), rows(5, seed=2))
    slab.append(2, fields(3, 50), rows(3, seed=3))
    (segment,) = slab.iter_segments(5)
    assert segment.columns["chunk"].tolist() == [100, 101, 150, 151, 152]


def test_reader_sees_rows_appended_after_its_mapping(slab, tmp_path):
    slab.append(0, fields(2), rows(2))
    reader = Slab(tmp_path / "1", 8)
    assert len(next(reader.iter_segments(2)).values) == 2
    slab.append(2, fields(3, 2), rows(3, seed=4))
    assert next(reader.iter_segments(5)).columns["chunk"].tolist() == [100, 101, 102, 103, 104]


def test_wiped_rows_leave_no_byte(slab, tmp_path):
    vectors = rows(20)
    slab.append(0, fields(20), vectors)
    small, _, _ = slab.gather(np.array([3, 12]))
    slab.wipe(np.array([3, 12]))
    raw = b"".join(path.read_bytes() for path in (tmp_path / "1").iterdir())
    assert not any(row.tobytes() in raw for row in small.values)
    kept, chunks, _ = slab.gather(np.array([2, 3, 4]))
    assert chunks.tolist() == [102, 0, 104] and not kept.values[1].any() and kept.values[0].any()


@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf])
def test_vector_without_a_direction_is_refused(slab, bad):
    vectors = rows(3)
    vectors[1] = bad
    with pytest.raises(VectorRefused):
        slab.append(0, fields(3), vectors)
    with pytest.raises(DimensionMismatch):
        slab.append(0, fields(3), rows(3, dimension=9))


def test_missing_and_short_files_are_reported(slab, tmp_path):
    slab.append(0, fields(20), rows(20))
    assert slab.is_whole(20)
    (tmp_path / "1" / "00001.segment").unlink()
    fresh = Slab(tmp_path / "1", 8)
    assert not fresh.is_whole(20) and fresh.is_whole(8)
    with pytest.raises(VectorsMissing):
        list(fresh.iter_segments(20))
    with (tmp_path / "1" / "00000.segment").open("r+b") as file:
        file.truncate(10)
    with pytest.raises(VectorsMissing):
        list(Slab(tmp_path / "1", 8).iter_segments(3))


def test_files_are_private(slab, tmp_path):
    slab.append(0, fields(1), rows(1))
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "1").iterdir()} == {0o600}
    assert (tmp_path / "1").stat().st_mode & 0o777 == 0o700
