"""When a later turn of an agent takes back an earlier one."""

from __future__ import annotations

import pytest

from perdure.recall.retractions import retracts, settles

WRONG = "The checkout timeouts are caused by the connection pool being too small."


@pytest.mark.parametrize(
    "later",
    [
        "My diagnosis was wrong: the checkout timeouts come from a DNS lookup without a cache.",
        "The connection pool was not the cause of the checkout timeouts.",
        "The real cause of the checkout timeouts is a DNS lookup.",
        "Turned out the checkout timeouts come from a DNS lookup.",
        "Correction: the checkout timeouts do not come from the connection pool.",
        "Actually the checkout timeouts come from DNS; the pool is fine.",
        "The checkout timeouts aren't caused by the pool, DNS is slow.",
    ],
)
def test_a_diagnosis_is_taken_back(later):
    assert retracts(later, WRONG) and settles(later, WRONG)
    assert not retracts(WRONG, later)


def test_a_fix_settles_and_takes_nothing_back():
    later = "Fixed the checkout timeouts by a cache for DNS."
    assert settles(later, WRONG) and not retracts(later, WRONG)


def test_a_later_claim_of_the_same_is_told_first_and_marks_nothing():
    later = (
        "Payment webhooks are rejected for a bad signature; the queue of webhooks was never more than 3 percent full."
    )
    earlier = "Payment webhooks are lost because of a full queue."
    assert settles(later, earlier) and not retracts(later, earlier)
    assert not settles("Look at the payment webhooks in the queue.", earlier)


def test_a_turn_that_claims_nothing_is_not_taken_back():
    later = "The connection pool was not the cause of the checkout timeouts."
    assert not retracts(later, "Asked the payment team about the checkout timeouts and their connection pool.")


@pytest.mark.parametrize(
    "later",
    [
        "The invoice parser was wrong about dates.",  # of something else
        "Look at the checkout timeouts and the connection pool once more.",  # goes on
        "Fixed the colours of the login page.",
        "",
    ],
)
def test_other_turns_leave_it_standing(later):
    assert not settles(later, WRONG)
