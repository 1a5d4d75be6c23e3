"""A question in an address, and what is shown of its answer."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from starlette.datastructures import QueryParams

from perdure.errors import UsageError
from perdure.surfaces.page.views import search
from perdure.types import Facets, Filters, Found, Hit, Memory

NOW = datetime(2026, 5, 2, 12, tzinfo=UTC)
HIT = Hit("t1", "r1", "talk", "", "pi", "box", "a", None, "user", "person", "text", None, "words", 1.0, user="ada")


def question(address):
    return search.asked(QueryParams(address))


def test_an_address_says_the_whole_question():
    address = "q=tide+port&runtime=pi&runtime=codex&project=-&since=7d&mode=keyword"
    asked = question(address)
    assert asked.words == "tide port" and asked.chosen == {"runtime": ("pi", "codex"), "project": ("-",)}
    assert question(asked.href().partition("?")[2]) == asked
    assert question("").is_empty and question("q=+&tag=").is_empty and question("").href() == "/search"


def test_a_filter_is_added_and_taken_away():
    asked = question("q=x&runtime=pi&cursor=20")
    both = asked.toggled("runtime", "codex")
    assert both == "/search?q=x&runtime=pi&runtime=codex", "the first page of it"
    assert question(both.partition("?")[2]).toggled("runtime", "pi") == "/search?q=x&runtime=codex"
    assert [chip.href for chip in search.chips(question("q=x&tag=a&until=2026-01-01"))] == [
        "/search?q=x&until=2026-01-01", "/search?q=x&tag=a",
    ]  # fmt: skip


def test_the_filters_of_a_question():
    found, wrong = search.narrowed(question("project=-&project=/w/a&role=tool&kind=call&agent=a&tag=b&machine=m"), NOW)
    assert not wrong
    assert found == Filters(
        projects=("", "/w/a"), roles=("tool",), kinds=("call",), agents=("a",), tags=("b",), machines=("m",)
    )


def test_until_holds_the_day_that_it_names_and_a_moment_ends_there():
    day, _ = search.narrowed(question("until=2026-05-01"), NOW)
    assert day.until_at == datetime(2026, 5, 2).astimezone(UTC)
    moment, _ = search.narrowed(question("until=7d"), NOW)
    assert moment.until_at == NOW - timedelta(days=7)
    for last in ("9999-12-31", "9999-12-30"):
        search.narrowed(question(f"until={last}"), NOW)


def test_a_wrong_time_is_said_beside_its_field():
    found, wrong = search.narrowed(question("since=yesterdayish&until=2026-13-01"), NOW)
    assert set(wrong) == {"since", "until"} and "yesterdayish" in wrong["since"] and found == Filters()


@pytest.mark.parametrize("cursor", ["-1", "x", "1000", "٣", "1e3"])
def test_a_place_in_the_list_that_is_none_is_refused(cursor):
    with pytest.raises(UsageError):
        question(f"q=x&cursor={cursor}")


def test_spans_mark_the_one_that_is_chosen():
    spans = search.spans(question("q=x&since=7d"), NOW)
    assert [span.label for span in spans if span.is_chosen] == ["last week"]
    assert [span.label for span in search.spans(question("since=7d&until=2026-01-01"), NOW) if span.is_chosen] == []


def test_hits_stand_with_their_session_and_unranked_ones_stay_in_their_order():
    a, b = replace(HIT, conversation="a"), replace(HIT, conversation="b")
    ranked = search.by_session([a, b, a, replace(a, user="bob")], is_ranked=True)
    assert [[hit.conversation + hit.user for hit in each] for each in ranked] == [["aada", "aada"], ["bada"], ["abob"]]
    assert [len(each) for each in search.by_session([a, a, b, a], is_ranked=False)] == [2, 1, 1]


def test_facets_that_tell_nothing_apart_are_left_out_unless_they_are_chosen():
    counts = {"runtime": {"pi": 3}, "project": {"/w/a/tide": 2, "": 1}, "role": {"user": 2, "assistant": 1}}
    groups = {group.label: group for group in search.groups(question("q=x"), Facets(counts))}
    assert set(groups) == {"Project", "Said by"}
    assert [(one.label, one.n, one.href) for one in groups["Project"].first] == [
        ("tide", 2, "/search?q=x&project=%2Fw%2Fa%2Ftide"), ("no project", 1, "/search?q=x&project=-"),
    ]  # fmt: skip
    (chosen,) = [
        group for group in search.groups(question("q=x&runtime=pi"), Facets(counts)) if group.label == "Client"
    ]
    assert chosen.first[0].is_chosen and chosen.first[0].href == "/search?q=x"


def test_many_values_of_a_facet_stand_behind_the_first():
    counts = {"tag": {f"t{n}": 1 for n in range(30)}}
    (group,) = search.groups(question("q=x"), Facets(counts))
    assert len(group.first) + len(group.rest) == 30 and 0 < len(group.first) < 12


def test_how_many_turns_match_is_said_only_where_it_was_counted():
    found = Found((HIT,))
    assert search.count(found, Facets({"role": {"user": 1, "tool": 1500}})) == "1,501 turns"
    assert search.count(found, Facets({"role": {"user": 20000}}, is_partial=True)) == "more than 20,000 turns"
    assert search.count(found, Facets({})) == ""


def test_what_could_not_be_done_is_said_in_words():
    found = Found((), degraded=("vector", "index"), n_behind=2, n_unembedded=3, dropped=("the",))
    said = " ".join(search.notices(found, is_waiting=False))
    for words in ("words alone", "3 pieces", "perdure rebuild", "2 runs", "the."):
        assert words in said
    assert search.notices(Found(()), is_waiting=False) == []
    assert "still being loaded" in search.notices(Found(()), is_waiting=True)[0]


MEMORY = Memory(
    "mem-1", "The tide server listens on port 8642.", "fact", "tide-server/port", "default", None, NOW, NOW, "owner",
    "remembered",
)  # fmt: skip


@pytest.mark.parametrize(
    ("words", "filters", "is_shown"),
    [
        (("ports",), Filters(), True),
        (("ostrich", "tide"), Filters(), True),
        (("ostrich",), Filters(), False),
        (("port",), Filters(projects=("/work",)), False),
        (("port",), Filters(projects=("",)), True),
        (("port",), Filters(since_at=NOW), True),
        (("port",), Filters(since_at=NOW + timedelta(seconds=1)), False),
        (("port",), Filters(until_at=NOW), False),
        (("port",), Filters(until_at=NOW + timedelta(seconds=1)), True),
    ],
)
def test_a_memory_stands_beside_the_hits_for_a_word_in_it_and_only_where_the_filters_fit(words, filters, is_shown):
    assert search.is_beside(MEMORY, words, filters) is is_shown
