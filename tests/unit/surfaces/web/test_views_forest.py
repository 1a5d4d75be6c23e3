"""What an address asks of the forest, and the entries that its trees become."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import fields
from starlette.datastructures import QueryParams

from perdure.errors import UsageError
from perdure.surfaces.web.views import forest
from perdure.types import Node, RunView

NOW = datetime(2026, 5, 2, 12, tzinfo=UTC)


def run(name, *, session="s", conversation="s", offset=0, **more):
    given = {
        "run_id": name, "user": "ada", "machine": "box", "runtime": "pi", "agent": "default", "project": "/w/tide",
        "conversation": conversation, "session": session, "root_run_id": name, "intent": f"{name} begins",
        "started_at": NOW, "ended_at": NOW, "captured_at": NOW, "n_turns": 2, "n_tokens": 10, "from_offset": offset,
        "to_offset": offset + 10, "sidechain": False, "fork": False, "title": "", "skipped": {}, "jsonl_sha256": "",
    }  # fmt: skip
    lists = dict.fromkeys(("tags", "readable_by", "models"), ())
    unsaid = dict.fromkeys(("parent_run_id", "path", "cwd"))
    zeros = {field.name: 0 for field in fields(RunView)}
    return RunView(**{**zeros, **lists, **unsaid, **given, **more})


def test_deltas_of_a_session_are_one_entry_with_sub_agents_below():
    spawned = Node(run("sub", session="s/a", conversation="s"), ())
    third = Node(run("c", offset=20, models=("m2",), ended_at=NOW + timedelta(hours=1)), ())
    second = Node(run("b", offset=10, tags=("night",)), (third, spawned))
    top = forest.make_entry(Node(run("a", models=("m1",)), (second,)), "ada")
    assert (top.run.run_id, top.first.run_id, top.n_runs, top.n_turns, top.n_tokens) == ("c", "a", 3, 6, 30)
    assert top.title == "a begins" and top.models == ["m1", "m2"] and top.tags == ["night"] and top.owner == ""
    assert [one.run_id for one in top.listed] == ["c", "b", "a"]
    (below,) = top.below
    assert below.kinship == "sub-agent" and below.run.run_id == "sub" and below.n_runs == 1


def test_long_session_lists_its_newest_parts():
    node = Node(run("d2000", offset=20000), ())
    for n in reversed(range(2000)):
        node = Node(run(f"d{n}", offset=n * 10), (node,))
    top = forest.make_entry(node, "ada")
    assert top.n_runs == 2001 and [one.run_id for one in top.listed][:2] == ["d2000", "d1999"] and len(top.listed) < 10


def test_runs_too_deep_are_counted_and_not_drawn():
    node = Node(run("leaf", session="leaf"), ())
    for n in range(400):
        node = Node(run(f"r{n}", session=f"s{n}"), (node,))
    depth, at = 0, forest.make_entry(node, "bob")
    assert at.owner == "ada"
    while at.below:
        depth, at = depth + 1, at.below[0]
    assert depth < 20 and at.n_left_out == 1


def test_days_are_named_and_one_continues_across_pages():
    entries = [forest.make_entry(Node(run(f"r{n}", ended_at=NOW - timedelta(days=n)), ()), "ada") for n in (0, 0, 1, 9)]
    last = (NOW - timedelta(days=9)).astimezone().date().isoformat()
    found = list(forest.group_by_day(entries, NOW, last))
    assert [(day.name, len(day.entries)) for day in found][:2] == [("Today", 2), ("Yesterday", 1)]
    assert [day.is_continued for day in found] == [False, False, True]


def test_address_describes_the_view():
    asked = forest.parse_query(QueryParams("runtime=pi&project=-&since=7d&flat=1&root=abcd&cursor=60&after=2026-05-01"))
    assert asked.href() == "/runs?runtime=pi&project=-&since=7d&root=abcd&flat=1"
    assert {chip.label for chip in forest.list_chips(asked)} == {
        "Client: pi", "Project: no project", "Since: last week", "Below abcd",
    }  # fmt: skip
    found = forest.to_filters(asked, NOW)
    assert found.projects == ("",) and found.since_at == NOW - timedelta(days=7)
    for wrong in ("-1", "x", "9" * 12):
        with pytest.raises(UsageError):
            forest.parse_query(QueryParams({"cursor": wrong}))


def test_custom_period_stays_among_the_choices():
    asked = forest.parse_query(QueryParams("since=2026-01-01"))
    assert ("2026-01-01", "since 2026-01-01") in forest.list_since_choices(asked)
    assert len(forest.list_since_choices(forest.parse_query(QueryParams("since=7d")))) == 4


def test_titles_are_masked_and_on_one_line():
    secret = "ghp_" + "a1b2c3d4e5f6" * 3
    top = forest.make_entry(Node(run("a", title=f"use {secret}\nnow", intent=f"with {secret}"), ()), "ada")
    assert secret not in top.title + top.intent and "\n" not in top.title
