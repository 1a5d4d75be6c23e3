"""A question in an address, and what is shown of its answer."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace
from starlette.datastructures import QueryParams

from perdure.errors import UsageError
from perdure.surfaces.web.views import search
from perdure.types import Facets, Filters, Hit, Memory, SearchResult

NOW = datetime(2026, 5, 2, 12, tzinfo=UTC)
HIT = Hit("t1", "r1", "talk", "", "pi", "box", "a", None, "user", "person", "text", None, "words", 1.0, user="ada")


def question(address):
    return search.parse_question(QueryParams(address))


def test_address_holds_the_whole_question():
    address = "q=tide+port&runtime=pi&runtime=codex&project=-&since=7d&mode=keyword"
    asked = question(address)
    assert asked.words == "tide port" and asked.chosen == {"runtime": ("pi", "codex"), "project": ("-",)}
    assert question(asked.href().partition("?")[2]) == asked
    assert question("").is_empty and question("q=+&tag=").is_empty and question("").href() == "/search"


def test_filter_is_added_and_removed():
    asked = question("q=x&runtime=pi&cursor=20")
    both = asked.toggle_href("runtime", "codex")
    assert both == "/search?q=x&runtime=pi&runtime=codex", "the first page of it"
    assert question(both.partition("?")[2]).toggle_href("runtime", "pi") == "/search?q=x&runtime=codex"
    assert [chip.href for chip in search.list_chips(question("q=x&tag=a&until=2026-01-01"))] == [
        "/search?q=x&until=2026-01-01", "/search?q=x&tag=a",
    ]  # fmt: skip


def test_the_filters_of_a_question():
    found, wrong = search.to_filters(
        question("project=-&project=/w/a&role=tool&kind=call&agent=a&tag=b&machine=m"), NOW
    )
    assert not wrong and found.kinds == ("call",)
    assert found == Filters(
        projects=("", "/w/a"), roles=("tool",), kinds=("call",), agents=("a",), tags=("b",), machines=("m",)
    )


def test_until_includes_its_day_and_ends_at_a_moment():
    day, _ = search.to_filters(question("until=2026-05-01"), NOW)
    assert day.until_at == datetime(2026, 5, 2).astimezone(UTC)
    moment, _ = search.to_filters(question("until=7d"), NOW)
    assert moment.until_at == NOW - timedelta(days=7)
    for last in ("9999-12-31", "9999-12-30"):
        search.to_filters(question(f"until={last}"), NOW)


def test_wrong_time_is_reported_beside_its_field():
    found, wrong = search.to_filters(question("since=yesterdayish&until=2026-13-01"), NOW)
    assert (
        set(wrong) == {"since", "until"}
        and "yesterdayish" in wrong["since"]
        and found == Filters(roles=("user", "assistant"), kinds=("text",))
    )


@pytest.mark.parametrize("cursor", ["-1", "x", "1000", "٣", "1e3"])
def test_invalid_cursor_is_refused(cursor):
    with pytest.raises(UsageError):
        question(f"q=x&cursor={cursor}")


def test_chosen_period_is_marked():
    spans = search.list_spans(question("q=x&since=7d"), NOW)
    assert [span.label for span in spans if span.is_chosen] == ["last week"]
    assert [
        span.label for span in search.list_spans(question("since=7d&until=2026-01-01"), NOW) if span.is_chosen
    ] == []


def test_hits_are_grouped_by_session_and_unranked_keep_order():
    a, b = replace(HIT, conversation="a"), replace(HIT, conversation="b")
    ranked = search.group_by_session([a, b, a, replace(a, user="bob")], is_ranked=True)
    assert [[hit.conversation + hit.user for hit in each] for each in ranked] == [["aada", "aada"], ["bada"], ["abob"]]
    assert [len(each) for each in search.group_by_session([a, a, b, a], is_ranked=False)] == [2, 1, 1]


def test_single_value_facets_are_omitted_unless_chosen():
    counts = {"runtime": {"pi": 3}, "project": {"/w/a/tide": 2, "": 1}, "role": {"user": 2, "assistant": 1}}
    groups = {group.label: group for group in search.list_groups(question("q=x"), Facets(counts))}
    assert set(groups) == {"Project", "Said by"}
    assert [(one.label, one.n, one.href) for one in groups["Project"].first] == [
        ("tide", 2, "/search?q=x&project=%2Fw%2Fa%2Ftide"), ("no project", 1, "/search?q=x&project=-"),
    ]  # fmt: skip
    (chosen,) = [
        group for group in search.list_groups(question("q=x&runtime=pi"), Facets(counts)) if group.label == "Client"
    ]
    assert chosen.first[0].is_chosen and chosen.first[0].href == "/search?q=x"


def test_facet_shows_its_first_values_and_folds_the_rest():
    counts = {"tag": {f"t{n}": 1 for n in range(30)}}
    (group,) = search.list_groups(question("q=x"), Facets(counts))
    assert len(group.first) + len(group.rest) == 30 and 0 < len(group.first) < 12


def test_number_of_matching_turns_is_shown_only_if_counted():
    found = SearchResult((HIT,))
    assert search.describe_count(found, Facets({"role": {"user": 1, "tool": 1500}})) == "1,501 turns"
    assert search.describe_count(found, Facets({"role": {"user": 20000}}, is_partial=True)) == "more than 20,000 turns"
    assert search.describe_count(found, Facets({})) == ""


def test_degraded_search_explains_itself():
    found = SearchResult((), degraded=("vector", "index"), n_behind=2, n_unembedded=3, dropped=("the",))
    said = " ".join(search.list_notices(found, is_waiting=False))
    for words in ("Only words", "3 pieces", "perdure rebuild", "2 runs", "the."):
        assert words in said
    assert search.list_notices(SearchResult(()), is_waiting=False) == []
    assert "still loading" in search.list_notices(SearchResult(()), is_waiting=True)[0]


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
def test_related_memory_shares_a_word_and_fits_the_filters(words, filters, is_shown):
    assert search.is_related_memory(MEMORY, words, filters) is is_shown


def test_only_what_was_said_is_searched_until_one_asks_for_more():
    addresses = ("q=x", "q=x&role=user", "q=x&tools=1", "q=x&role=tool", "q=x&kind=call", "q=x&kind=call&tools=1")
    kinds = [search.to_filters(question(address), NOW)[0].kinds for address in addresses]
    assert kinds == [("text",), ("text",), (), (), ("call",), ("call",)]


def test_near_identical_outputs_are_folded_and_words_never():
    """Four of five words are equal in b (4/6 = 0.67 of all words), two of eight in c (0.25)."""
    said = [replace(HIT, turn_id=name, text="commit one two three four") for name in ("s1", "s2")]
    words = {"a": "commit one two three four", "b": "commit one two three five", "c": "commit one six seven eight"}
    outputs = [replace(HIT, turn_id=name, kind="result", role="tool", text=text) for name, text in words.items()]
    folded = search.fold_similar([outputs[0], said[0], outputs[1], said[1], outputs[2]])
    assert {hit.turn_id: [twin.turn_id for twin in twins] for hit, twins in folded.items()} == {
        "a": ["b"], "s1": [], "s2": [], "c": [],
    }  # fmt: skip
