"""What the entries of a session add up to: each counted once, on all branches."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from perdure.formats.perdure import Boundary, Branch, Label, Message, ModelChange, ModelUse, Start, Title, UsageEntry
from perdure.session.catalog import summarise_session
from perdure.session.spending import SessionTotals, add_totals, to_totals
from perdure.session.tree import SessionTree

AT = datetime(2026, 1, 15, 9, tzinfo=UTC)


def at(minute):
    return AT + timedelta(minutes=minute)


def answer(entry_id, parent, minute, *, n_input=10, n_output=1, money=0.5, model="m"):
    usage = UsageEntry(n_input=n_input, n_output=n_output, money=money)
    fields = {"id": entry_id, "parent": parent, "timestamp": at(minute), "provider": "p", "model": model}
    return Message(role="assistant", text="x", usage=usage, **fields)


def test_a_session_is_told_by_its_entries():
    """Both branches were paid: 10 + 20 in, 1 + 2 out, 0.5 in money and one answer without a price. The summary cost
    7 in and 3 out, 0.25 in money.
    """
    tree = SessionTree([
        Start(id="a", timestamp=at(0), session="s", agent="default", cwd="/w/house"),
        Message(id="b", parent="a", timestamp=at(1), role="user", text="Plan\nthe attic."),
        answer("c", "b", 2),
        Branch(id="d", parent="b", timestamp=at(3), left="c"),
        answer("e", "d", 4, n_input=20, n_output=2, money=None, model="n"),
        ModelUse(
            id="u", parent="e", timestamp=at(5), job="compact", model="p:q",
            usage=UsageEntry(n_input=7, n_output=3, money=0.25),
        ),
        Boundary(id="f", parent="u", timestamp=at(5), first_kept="e", summary="s", n_before=900),
        Label(id="g", parent="f", timestamp=at(6), target="b", text="start"),
    ])  # fmt: skip
    overview = summarise_session("s", tree)
    assert (overview.title, overview.leaf, overview.model, overview.provider) == ("Plan the attic.", "f", "n", "p")
    assert (overview.created_at, overview.updated_at) == (at(0), at(5))
    assert (overview.n_messages, overview.n_answers, overview.boundaries, overview.n_branches) == (1, 2, ("f",), 1)
    assert overview.totals_by_job == {
        "answers": SessionTotals(n_input=30, n_output=3, money=0.5, n_unpriced=1, n_model_calls=2),
        "compact": SessionTotals(n_input=7, n_output=3, money=0.25, n_model_calls=1),
    }
    assert overview.totals == SessionTotals(n_input=37, n_output=6, money=0.75, n_unpriced=1, n_model_calls=3)
    tree.add(Title(id="h", parent="f", timestamp=at(7), text="Attic"))
    tree.add(ModelChange(id="i", parent="f", timestamp=at(8), model="q:o"))
    overview = summarise_session("s", tree)
    assert (overview.title, overview.model, overview.provider) == ("Attic", "o", "q")


COUNTS = st.integers(0, 10**6)


@given(st.lists(st.tuples(COUNTS, COUNTS, COUNTS, COUNTS), max_size=8), st.randoms(use_true_random=False))
def test_totals_do_not_depend_on_order_or_grouping(rows, random):
    totals = [
        to_totals(UsageEntry(n_input=a, n_output=b, n_cache_read=c, n_cache_write=d, money=a)) for a, b, c, d in rows
    ]
    whole = add_totals(totals)
    shuffled = random.sample(totals, len(totals))
    cut = len(totals) // 2
    assert add_totals(shuffled[:cut]).add(add_totals(shuffled[cut:])) == whole
    assert whole.n_read == sum(a + c + d for a, _, c, d in rows)
