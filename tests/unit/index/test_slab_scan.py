"""The scan against brute force: exact on what is stored, near to exact on what was given, in every order and kernel."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.index import slab as scan
from perdure.index import slab as slabs
from perdure.index.slab import ChunkFields, Slab
from perdure.models.embedder import quantise, restore, to_unit_length


def fields(n, ties=None):
    return [ChunkFields(1000 + i, ties[i] if ties is not None else i, i, (i % 5,) * 8) for i in range(n)]


def made(folder, vectors, ties=None):
    slab = Slab(folder, vectors.shape[1])
    slab.append(0, fields(len(vectors), ties), vectors)
    return slab


def everything(_):
    return None


def test_nearest_rows_are_worked_out_by_hand(tmp_path):
    """Three rows of two numbers, all multiples of 1/5: (1, 0), (0.6, 0.8), (0, 1), asked by (0.8, 0.6).

    Cosines 0.8, 0.48 + 0.48 = 0.96 and 0.6. In int8 (0.6, 0.8) is (95, 127): its cosine with the query is
    (95 * 0.8 + 127 * 0.6) / sqrt(95**2 + 127**2) = 152.2 / 158.6 = 0.959648.
    """
    slab = made(tmp_path / "1", np.array([[1, 0], [0.6, 0.8], [0, 1]], np.float32))
    (near,) = scan.scan_nearest(slab, 3, np.array([[0.8, 0.6]], np.float32), k=2, allowed=everything)
    assert near.rows.tolist() == [1, 0] and near.chunks.tolist() == [1001, 1000]
    assert near.scores.tolist() == [pytest.approx(152.2 / (95**2 + 127**2) ** 0.5, abs=1e-6), 0.8]


@given(seed=st.integers(0, 10**6), n=st.integers(1, 300), k=st.integers(1, 40), n_queries=st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_scan_is_exact_on_the_stored_vectors(tmp_path_factory, seed, n, k, n_queries):
    dice = np.random.default_rng(seed)
    vectors, queries = to_unit_length(dice.normal(size=(n, 16))), to_unit_length(dice.normal(size=(n_queries, 16)))
    stored = restore(quantise(vectors)).astype(np.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slabs, "ROWS_PER_SEGMENT", 64)
        slab = made(tmp_path_factory.mktemp("s") / "1", vectors)
        allow = dice.random(n) < dice.choice([0.05, 0.5, 1.0])
        found = scan.scan_nearest(slab, n, queries, k=k, allowed=lambda s: allow[s.first : s.first + len(s.values)])
    for near, query in zip(found, queries, strict=True):
        exact = np.where(allow, stored @ query.astype(np.float64), -np.inf)
        assert near.scores.tolist() == pytest.approx(sorted(exact[allow])[::-1][:k], abs=3e-6)
        assert allow[near.rows].all() and len(set(near.rows.tolist())) == len(near.rows) == min(k, allow.sum())
        assert near.scores.tolist() == pytest.approx(exact[near.rows].tolist(), abs=3e-6)


@pytest.mark.parametrize("shape", ["spread", "clustered"])
def test_int8_scan_finds_nearly_all_of_24_neighbours(tmp_path, shape):
    """Of the 24 nearest by float32, how many are found. The rest is lost in int8, as the cache keeps documents,
    between neighbours whose cosines differ by less than 0.002; of what is stored nothing is lost (above).
    """
    dice = np.random.default_rng(5)
    centres = dice.normal(size=(50, 384)) * (0 if shape == "spread" else 1.4)
    vectors = to_unit_length(centres[dice.integers(0, 50, 20_000)] + dice.normal(size=(20_000, 384)))
    queries = to_unit_length(centres[dice.integers(0, 50, 40)] + dice.normal(size=(40, 384)))
    slab = made(tmp_path / "1", vectors)
    found = scan.scan_nearest(slab, len(vectors), queries, k=24, allowed=everything)
    exact = queries @ vectors.T
    recalls, worst = [], 0.0
    for near, scores in zip(found, exact, strict=True):
        best = np.argsort(-scores)[:24]
        recalls.append(len(set(best.tolist()) & set(near.rows.tolist())) / 24)
        worst = max(worst, float(scores[best[-1]] - scores[near.rows].min()))
    assert np.mean(recalls) >= 0.975
    assert worst < 0.002


def test_equal_scores_are_ordered_by_tie_number(tmp_path, monkeypatch):
    """500 copies of one text in two orders: the same ties come out, the lowest."""
    monkeypatch.setattr(slabs, "ROWS_PER_SEGMENT", 64)
    dice = np.random.default_rng(3)
    one = to_unit_length(dice.normal(size=(1, 8)))
    ties = dice.permutation(500)
    answers = []
    for name, order in (("a", ties), ("b", ties[::-1])):
        slab = made(tmp_path / name, np.repeat(one, 500, axis=0), [int(t) for t in order])
        (near,) = scan.scan_nearest(slab, 500, one, k=10, allowed=everything)
        answers.append(slab.gather(near.rows)[2].tolist())
    assert answers == [list(range(10))] * 2


def test_every_kernel_gives_the_same_whole_numbers():
    dice = np.random.default_rng(1)
    rows = dice.integers(-127, 128, (1300, 384), dtype=np.int8)
    queries = dice.integers(-127, 128, (3, 384), dtype=np.int8)
    exact = queries.astype(np.int64) @ rows.T.astype(np.int64)
    assert (scan.multiply_with_numpy(rows, queries) == exact).all()
    for some in (queries, queries[:1]):
        assert (scan.choose_fastest_kernel()(rows, some) == some.astype(np.int64) @ rows.T.astype(np.int64)).all()


def test_extremes_do_not_overflow():
    most = np.full((2, 1024), 127, np.int8)
    assert scan.multiply_with_numpy(most, -most[:1]).tolist() == [[-127 * 127 * 1024] * 2]


def test_empty_filter_and_empty_slab_give_nothing(tmp_path):
    slab = made(tmp_path / "1", to_unit_length(np.random.default_rng(0).normal(size=(5, 4))))
    query = to_unit_length(np.ones((1, 4)))
    (near,) = scan.scan_nearest(slab, 5, query, k=3, allowed=lambda s: np.zeros(len(s.values), np.bool_))
    assert near.rows.tolist() == [] and near.scores.tolist() == []
    (near,) = scan.scan_nearest(slab, 0, query, k=3, allowed=everything)
    assert near.rows.tolist() == []
