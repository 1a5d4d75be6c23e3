"""What an address may hold, and how names stand in it."""

import pytest
from starlette.datastructures import QueryParams

from perdure.errors import UsageError
from perdure.surfaces.page import addresses
from perdure.surfaces.page.render import key
from perdure.surfaces.page.views import forest, search

SECRET = "/work/password=hunter2hunter2"


def test_an_address_says_no_more_than_a_page_may_cost():
    many = QueryParams([("tag", f"t{n}") for n in range(21)])
    assert addresses.faults(many) == {"tag": "at most 20 at once"}
    assert addresses.faults(QueryParams({"q": "x" * 1000})) == {}
    assert addresses.faults(QueryParams({"q": "x" * 1001})) == {"q": "at most 1,000 characters"}
    together = QueryParams([(name, f"{n}{'x' * 900}") for name in ("tag", "agent") for n in range(7)])
    assert addresses.faults(together) == {"": "at most 12,000 characters together"}
    with pytest.raises(UsageError, match="tag: at most 20"):
        addresses.check(many)
    assert search.too_much(many) == ["Tag: at most 20 at once."]
    asked = search.asked(many)
    assert len(asked.chosen["tag"]) == 20 and len(search.asked(QueryParams({"q": "x" * 5000})).words) == 1000


def test_a_name_that_may_not_be_shown_stands_in_addresses_by_a_key():
    made = key(SECRET)
    assert made.startswith("~") and key("/work/tide") == "/work/tide" and key("/a/\u202etide").startswith("~")
    assert addresses.named(made, lambda: ["/work/tide", SECRET]) == SECRET
    assert addresses.named(made, list) == made
    assert addresses.options([SECRET]) == [(made, "/work/password=[secret:password]")]


def test_a_filter_of_a_name_with_a_secret_goes_there_and_back_without_it():
    asked = search.asked(QueryParams({"project": key(SECRET)}), lambda _: [SECRET])
    assert search.narrowed(asked, None)[0].projects == (SECRET,)
    ways = [asked.href(), asked.toggled("project", "/b"), *(chip.label + chip.href for chip in search.chips(asked))]
    assert "hunter2" not in "".join(ways) and asked.toggled("project", SECRET) == "/search"
    wanted = forest.wanted(QueryParams({"tag": key(SECRET)}), lambda _: [SECRET])
    assert wanted.chosen == {"tag": SECRET}
    assert "hunter2" not in wanted.href() + "".join(chip.label + chip.href for chip in forest.chips(wanted))


@pytest.mark.parametrize("cursor", ["9" * 5000, "1000", "-1", "x"])
def test_a_place_of_any_length_that_is_none_is_refused(cursor):
    with pytest.raises(UsageError, match="no place"):
        search.asked(QueryParams({"cursor": cursor}))


def test_characters_that_turn_text_are_not_taken_from_an_address():
    asked = search.asked(QueryParams({"q": "a\u202eb", "since": "\u202e7d", "tag": "x\u202e"}))
    assert "\u202e" not in asked.words + asked.since + "".join(chip.label for chip in search.chips(asked))


@pytest.mark.parametrize("said", ["-1", "x", "٣", "1.5", "9" * 9, "9" * 5000, "1000"])
def test_a_list_has_no_place_beyond_its_end_and_none_that_is_no_number(said):
    with pytest.raises(UsageError, match="no place") as raised:
        addresses.place(said, 1000)
    assert len(str(raised.value)) < 100
    assert addresses.place("999", 1000) == 999 and addresses.place("") == 0
