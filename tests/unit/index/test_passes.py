"""Which searches a query becomes."""

from hypothesis import given
from hypothesis import strategies as st

from perdure.index.passes import Plan, last, passes, plan, relaxed

COUNTS = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(0, 100), max_size=8)


def test_the_rarest_terms_fill_the_budget():
    """3 + 10 = 13 fit into 15; 20 more do not. 60 of 100 chunks is more than a quarter."""
    found = plan({"the": 60, "wal": 3, "mode": 20, "error": 10}, budget=15, n_chunks=100)
    assert found == Plan(("wal", "error"), ("mode",), ("the",))


def test_terms_that_never_occur_are_not_asked_for():
    assert plan({"wal": 0, "mode": 2}, budget=15, n_chunks=100) == Plan(("mode",))
    assert plan({"wal": 0}, budget=15, n_chunks=100) == Plan(())
    assert passes(Plan(())) == [] and last(Plan(())) is None


def test_where_every_term_is_everywhere_the_rarest_still_counts():
    found = plan({"the": 90, "of": 80}, budget=10, n_chunks=100)
    assert found == Plan((), ("of",), ("the",))
    assert passes(found) == [] and last(found) == '"of"'


def test_equally_frequent_terms_are_taken_in_the_order_of_their_letters():
    assert plan({"b": 4, "a": 4, "c": 4}, budget=8, n_chunks=100).rare == ("a", "b")


def test_rare_terms_make_candidates_and_common_ones_only_together():
    assert passes(Plan(("wal",))) == ['"wal"']
    assert passes(Plan(("wal",), ("mode",))) == ['("wal") NOT ("mode")', '("wal") AND ("mode")']
    assert passes(Plan((), ("a", "b"))) == ['"a" AND "b"']
    assert list(relaxed(Plan((), ("a", "b", "c", "d")))) == ['"a" AND "b" AND "c"', '"a" AND "b"']


def test_operators_in_terms_stay_words():
    assert passes(Plan(('say "hi" NOT',), ("a) OR (b",)))[0] == '("say ""hi"" NOT") NOT ("a) OR (b")'


@given(COUNTS, st.integers(1, 200))
def test_no_term_is_lost_and_the_budget_holds(counts, budget):
    found = plan(counts, budget=budget, n_chunks=100)
    every = (*found.rare, *found.common, *found.dropped)
    assert sorted(every) == sorted(term for term, n in counts.items() if n)
    assert sum(counts[term] for term in found.rare) <= budget
    assert not every or passes(found) or last(found)
