"""What an address may hold, and how names stand in it."""

import pytest
from starlette.datastructures import QueryParams

from perdure.errors import UsageError
from perdure.surfaces.web import visits
from perdure.surfaces.web.render import to_key
from perdure.surfaces.web.views import forest, search

SECRET = "/work/password=hunter2hunter2"


def test_address_holds_no_more_than_a_page_may_cost():
    many = QueryParams([("tag", f"t{n}") for n in range(21)])
    assert visits.find_query_faults(many) == {"tag": "at most 20 at once"}
    assert visits.find_query_faults(QueryParams({"q": "x" * 1000})) == {}
    assert visits.find_query_faults(QueryParams({"q": "x" * 1001})) == {"q": "at most 1,000 characters"}
    together = QueryParams([(name, f"{n}{'x' * 900}") for name in ("tag", "agent") for n in range(7)])
    assert visits.find_query_faults(together) == {"": "at most 12,000 characters together"}
    with pytest.raises(UsageError, match="tag: at most 20"):
        visits.check_query(many)
    assert search.describe_excess(many) == ["Tag: at most 20 at once."]
    asked = search.parse_question(many)
    assert len(asked.chosen["tag"]) == 20 and len(search.parse_question(QueryParams({"q": "x" * 5000})).words) == 1000


def test_name_with_a_secret_is_replaced_by_a_key_in_addresses():
    made = to_key(SECRET)
    assert made.startswith("~") and to_key("/work/tide") == "/work/tide" and to_key("/a/\u202etide").startswith("~")
    assert visits.resolve_key(made, lambda: ["/work/tide", SECRET]) == SECRET
    assert visits.resolve_key(made, list) == made
    assert visits.to_options([SECRET]) == [(made, "/work/password=[secret:password]")]


def test_filter_by_a_secret_name_round_trips_without_showing_it():
    asked = search.parse_question(QueryParams({"project": to_key(SECRET)}), lambda _: [SECRET])
    assert search.to_filters(asked, None)[0].projects == (SECRET,)
    ways = [
        asked.href(),
        asked.toggle_href("project", "/b"),
        *(chip.label + chip.href for chip in search.list_chips(asked)),
    ]
    assert "hunter2" not in "".join(ways) and asked.toggle_href("project", SECRET) == "/search"
    wanted = forest.parse_query(QueryParams({"tag": to_key(SECRET)}), lambda _: [SECRET])
    assert wanted.chosen == {"tag": SECRET}
    assert "hunter2" not in wanted.href() + "".join(chip.label + chip.href for chip in forest.list_chips(wanted))


@pytest.mark.parametrize("cursor", ["9" * 5000, "1000", "-1", "x"])
def test_invalid_place_of_any_length_is_refused(cursor):
    with pytest.raises(UsageError, match="no offset"):
        search.parse_question(QueryParams({"cursor": cursor}))


def test_control_characters_of_an_address_are_refused():
    asked = search.parse_question(QueryParams({"q": "a\u202eb", "since": "\u202e7d", "tag": "x\u202e"}))
    assert "\u202e" not in asked.words + asked.since + "".join(chip.label for chip in search.list_chips(asked))


@pytest.mark.parametrize("said", ["-1", "x", "٣", "1.5", "9" * 9, "9" * 5000, "1000"])
def test_offset_beyond_the_end_or_not_a_number_is_refused(said):
    with pytest.raises(UsageError, match="no offset") as raised:
        visits.parse_offset(said, 1000)
    assert len(str(raised.value)) < 100
    assert visits.parse_offset("999", 1000) == 999 and visits.parse_offset("") == 0
