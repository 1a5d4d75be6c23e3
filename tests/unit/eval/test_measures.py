import importlib.util
import math
import random
from itertools import pairwise
from pathlib import Path

import pytest

from perdure.eval.measures import (
    auroc,
    bootstrap,
    bootstrap_differences,
    compute_silence_curve,
    find_threshold,
    mean,
    measure_ranking,
    ndcg_at,
    recall_at,
    reciprocal_rank,
)

SCORER = Path(__file__).parents[4] / "shared" / "data" / "retrieval" / "score.py"


def test_ranking_by_hand():
    """Gold a and b; ranked x a y b. R@1 0, R@5 2/2. First gold at 2: 1/2.
    nDCG: (1/log2 3 + 1/log2 5) / (1/log2 2 + 1/log2 3) = (0.63093 + 0.43068) / 1.63093 = 0.65092.
    """
    ranked, gold = ["x", "a", "y", "b"], {"a", "b"}
    assert recall_at(ranked, gold, 1) == 0.0
    assert recall_at(ranked, gold, 2) == 0.5
    assert reciprocal_rank(ranked, gold) == 0.5
    assert ndcg_at(ranked, gold, 10) == pytest.approx(0.65092, abs=1e-5)
    found = measure_ranking(ranked, gold)
    assert (found["Hit@1"], found["Hit@5"], found["All@5"]) == (0.0, 1.0, 1.0)


def test_a_repeated_id_counts_once():
    assert measure_ranking(["a", "a", "b"], {"a", "b"}) == measure_ranking(["a", "b"], {"a", "b"})


def test_auroc_by_hand():
    """Pairs of (0.9, 0.4) against (0.5, 0.1): 0.9 beats both, 0.4 beats one: 3 of 4. All equal: one half."""
    assert auroc([0.9, 0.4], [0.5, 0.1]) == 0.75
    assert auroc([0.5, 0.5], [0.5]) == 0.5


def test_threshold_and_curve_by_hand():
    """Four answerable at 1, 2, 3, 4; at most a quarter silent: one may lie below, so 2 is the highest threshold."""
    assert find_threshold([4.0, 2.0, 3.0, 1.0], 0.25) == 2.0
    assert find_threshold([4.0, 2.0, 3.0, 1.0], 0.0) == 1.0
    assert compute_silence_curve([2.0, 4.0], [1.0, 3.0]) == [
        (1.0, 0.0, 0.0), (2.0, 0.0, 0.5), (3.0, 0.5, 0.5), (4.0, 0.5, 1.0), (math.inf, 1.0, 1.0),
    ]  # fmt: skip


def test_the_curve_never_falls():
    draw = random.Random(1)
    curve = compute_silence_curve([draw.random() for _ in range(50)], [draw.random() for _ in range(50)])
    assert all(a[1] <= b[1] and a[2] <= b[2] for a, b in pairwise(curve))


def test_an_interval_holds_its_mean_and_repeats():
    values = [0.0, 1.0, 1.0, 0.0, 1.0, 0.5]
    found = bootstrap(values)
    assert found.at == pytest.approx(3.5 / 6)
    assert found.low <= found.at <= found.high
    assert found == bootstrap(values)
    assert bootstrap_differences(values, values) == bootstrap([0.0] * 6)


@pytest.mark.shared
@pytest.mark.skipif(not SCORER.exists(), reason=f"there is no {SCORER}")
def test_the_same_as_the_neutral_scorer_on_random_rankings():
    spec = importlib.util.spec_from_file_location("neutral_score", SCORER)
    assert spec
    assert spec.loader
    neutral = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(neutral)
    draw = random.Random(7)
    names = [f"d{n}" for n in range(60)]
    for _ in range(300):
        ranked = draw.choices(names, k=draw.randint(0, 50))
        gold = draw.sample(names, draw.randint(1, 12))
        theirs = neutral.score_one(ranked, gold)
        ours = measure_ranking(ranked, gold)
        assert {name: pytest.approx(ours[name]) for name in theirs} == theirs


def test_the_average_is_over_questions():
    assert mean([{"R@5": 1.0}, {"R@5": 0.0}]) == {"R@5": 0.5}
    assert mean([]) == {}
