from hypothesis import given
from hypothesis import strategies as st

from perdure.recall.diversify import diversify, split_repeats


def _alike(one, other):
    return 1.0 if one[0] == other[0] else 0.0


def test_at_most_one_of_three_near_duplicates_leads():
    """λ 0.5. First a1: 0.5. Then a2 has 0.5·0.98 - 0.5·1 = -0.01, b1 0.5·0.6 = 0.3, c1 0.5·0.4 = 0.2."""
    scores = {"a1": 1.0, "a2": 0.98, "a3": 0.97, "b1": 0.6, "c1": 0.4}
    assert diversify(scores, _alike, relevance=0.5, k=5) == ["a1", "b1", "c1", "a2", "a3"]


def test_only_the_chosen_count_against_a_candidate():
    """b1 and b2 are alike, but with none of them chosen neither is held back: an "MMR" over all candidates would."""
    assert diversify({"a1": 1.0, "b1": 0.9, "b2": 0.9, "c1": 0.5}, _alike, relevance=0.5, k=2) == ["a1", "b1"]


def test_duplicate_is_never_chosen():
    scores = {"a1": 1.0, "a2": 0.98, "b1": 0.1}
    assert diversify(scores, _alike, relevance=1.0, k=3, same_likeness=0.97) == ["a1", "b1"]


def test_repeats_are_split_off_in_their_order():
    ids = ["a1", "b1", "a2", "c1", "b2", "a3"]
    assert split_repeats(ids, lambda item_id: {item_id[0]}, least_shared=1) == (["a1", "b1", "c1"], ["a2", "b2", "a3"])


def test_other_number_or_no_words_repeats_nothing():
    stems = {"a": {"port", "80"}, "b": {"port", "81"}, "c": set(), "d": set(), "e": {"port", "80", "x"}}
    assert split_repeats("abcde", stems.__getitem__, least_shared=0.6) == (["a", "b", "c", "d"], ["e"])


def test_full_relevance_gives_the_ranking():
    assert diversify({"b": 0.5, "a": 0.5, "c": 0.9}, lambda *_: 1.0, relevance=1.0, k=9) == ["c", "a", "b"]


@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=3), st.floats(0, 1), max_size=12),
    st.floats(0, 1),
    st.integers(0, 15),
)
def test_result_is_a_permutation_of_a_subset(scores, relevance, k):
    chosen = diversify(scores, _alike, relevance=relevance, k=k)
    assert len(chosen) == len(set(chosen)) == min(k, len(scores))
    assert set(chosen) <= set(scores)
