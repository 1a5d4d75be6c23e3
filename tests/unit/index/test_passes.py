"""Which searches a query becomes."""

from hypothesis import given
from hypothesis import strategies as st

from perdure.index.keyword import MatchPlan, build_last_resort, build_passes, build_relaxed_passes, plan_match

COUNTS = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(0, 100), max_size=8)


def test_the_rarest_terms_fill_the_budget():
    """3 + 10 = 13 fit into 15; 20 more do not. 60 of 100 chunks is more than a quarter."""
    found = plan_match({"the": 60, "wal": 3, "mode": 20, "error": 10}, budget=15, n_chunks=100)
    assert found == MatchPlan(("wal", "error"), ("mode",), ("the",))


def test_terms_that_never_occur_are_not_asked_for():
    assert plan_match({"wal": 0, "mode": 2}, budget=15, n_chunks=100) == MatchPlan(("mode",))
    assert plan_match({"wal": 0}, budget=15, n_chunks=100) == MatchPlan(())
    assert build_passes(MatchPlan(())) == [] and build_last_resort(MatchPlan(())) is None


def test_where_every_term_is_everywhere_the_rarest_still_counts():
    found = plan_match({"the": 90, "of": 80}, budget=10, n_chunks=100)
    assert found == MatchPlan((), ("of",), ("the",))
    assert build_passes(found) == [] and build_last_resort(found) == '"of"'


def test_equally_frequent_terms_are_taken_alphabetically():
    assert plan_match({"b": 4, "a": 4, "c": 4}, budget=8, n_chunks=100).rare == ("a", "b")


def test_rare_terms_give_candidates_and_common_ones_together():
    assert build_passes(MatchPlan(("wal",))) == ['"wal"']
    assert build_passes(MatchPlan(("wal",), ("mode",))) == ['("wal") NOT ("mode")', '("wal") AND ("mode")']
    assert build_passes(MatchPlan((), ("a", "b"))) == ['"a" AND "b"']
    assert list(build_relaxed_passes(MatchPlan((), ("a", "b", "c", "d")))) == ['"a" AND "b" AND "c"', '"a" AND "b"']


def test_operators_in_terms_stay_words():
    assert build_passes(MatchPlan(('say "hi" NOT',), ("a) OR (b",)))[0] == '("say ""hi"" NOT") NOT ("a) OR (b")'


@given(COUNTS, st.integers(1, 200))
def test_no_term_is_lost_and_the_budget_holds(counts, budget):
    found = plan_match(counts, budget=budget, n_chunks=100)
    every = (*found.rare, *found.common, *found.dropped)
    assert sorted(every) == sorted(term for term, n in counts.items() if n)
    assert sum(counts[term] for term in found.rare) <= budget
    assert not every or build_passes(found) or build_last_resort(found)
