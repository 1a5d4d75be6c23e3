"""Runs and their trees: parents are derived when they are read, so the order of arrival does not matter."""

from datetime import timedelta
from itertools import permutations

import pytest

from perdure.errors import NotFound, UsageError
from perdure.index import runs
from perdure.types import Filters, Part
from rig.index_rows import ADA, BOB, START, TURN_BYTES, get_turn_id, reply, say, share


def outline(nodes):
    """Trees as (session, children), the order kept."""
    return [(node.run.session, outline(node.children)) for node in nodes]


ARRIVALS = {
    "a": {},
    "a later": {"session": "a", "from_offset": TURN_BYTES},
    "b": {"parent_session": "a"},
    "c": {"parent_session": "b"},
    "d": {},
}


def add_arrivals(file, order):
    """Session a in two runs, b spawned by a, c spawned by b, and d on its own; each an hour after the one before."""
    written = {}
    for name in order:
        fields = {"session": name, **ARRIVALS[name]}
        minute = 60 * list(ARRIVALS).index(name)
        written[name] = file.add_run(fields.pop("session"), say(f"words of {name}", minute=minute), **fields)
    return written


@pytest.mark.parametrize("order", list(permutations(ARRIVALS))[::7])
def test_a_forest_is_the_same_in_any_order_of_arrival(file, order):
    """b began after both runs of a, so the nearer one spawned it."""
    written = add_arrivals(file, order)
    forest = runs.build_forest(file.index, ADA, Filters())
    assert outline(forest) == [("d", []), ("a", [("a", [("b", [("c", [])])])])]
    view = runs.read_run(file.index, ADA, written["c"].run_id)
    assert (view.parent_run_id, view.root_run_id) == (written["b"].run_id, written["a"].run_id)
    below = runs.list_descendants(file.index, ADA, written["a"].run_id)
    assert [run.run_id for run in below] == [written[name].run_id for name in ("a later", "b", "c")]


def test_a_named_parent_counts_before_a_derived_one(file):
    written = add_arrivals(file, ARRIVALS)
    named = file.add_run("e", say("named"), parent_session="a", parent_run_id=written["d"].run_id)
    assert runs.read_run(file.index, ADA, named.run_id).parent_run_id == written["d"].run_id


def test_a_loop_of_named_parents_is_cut_and_shown_once(file):
    first = file.add_run("x", say("one"))
    second = file.add_run("y", say("two"), parent_run_id=first.run_id)
    file.add_run("x", say("one"), parent_run_id=second.run_id)
    forest = runs.build_forest(file.index, ADA, Filters())
    assert sorted(str(outline(forest)).count(name) for name in ("'x'", "'y'")) == [1, 1]
    roots = {runs.read_run(file.index, ADA, run.run_id).root_run_id for run in (first, second)}
    assert roots == {min(first.run_id, second.run_id)}


def test_pages_of_a_forest_hold_every_tree_once(file):
    add_arrivals(file, ARRIVALS)
    for n in range(5):
        file.add_run(f"alone{n}", say("words", minute=1000 + n))
    pages = [outline(runs.build_forest(file.index, ADA, Filters(), limit=2, offset=n)) for n in (0, 2, 4, 6, 8)]
    assert [len(page) for page in pages] == [2, 2, 2, 1, 0]
    assert [tree for page in pages for tree in page] == outline(runs.build_forest(file.index, ADA, Filters()))
    assert [session for session, _ in pages[0]] == ["alone4", "alone3"]  # the newest first


def test_run_that_passes_the_filters_stands_alone_without_its_parent(file):
    file.add_run("a", say("top"), project="/w/x", tags=("deck",))
    file.add_run("b", say("below", minute=5), parent_session="a", project="/w/y")
    assert outline(runs.build_forest(file.index, ADA, Filters(projects=("/w/y",)))) == [("b", [])]
    assert outline(runs.build_forest(file.index, ADA, Filters(tags=("deck",)))) == [("a", [])]
    since = Filters(since_at=START + timedelta(minutes=5))
    assert outline(runs.build_forest(file.index, ADA, since)) == [("b", [])]


def test_tree_of_one_run_is_what_stands_below_it(file):
    written = add_arrivals(file, ARRIVALS)
    forest = runs.build_forest(file.index, ADA, Filters(), root=written["b"].run_id)
    assert outline(forest) == [("b", [("c", [])])]
    assert runs.build_forest(file.index, ADA, Filters(), root=written["b"].run_id, offset=1) == []


def test_another_users_run_is_unknown_until_it_is_shared(file):
    run = file.add_run("a", say("words"), title="token=abcdef0123456789abcdef", path="/p", tags=("open",))
    for read in (runs.read_run, runs.list_descendants, runs.read_columns):
        with pytest.raises(NotFound):
            read(file.index, BOB, run.run_id)
    assert runs.build_forest(file.index, BOB, Filters()) == []
    shared = runs.read_run(file.index, share("tag", "open"), run.run_id)
    own = runs.read_run(file.index, ADA, run.run_id)
    assert own.jsonl_sha256 == run.sha256 and shared.jsonl_sha256 == "" and shared.user == "ada"


def test_nothing_above_a_shared_run_is_named(file):
    """The parent is not shared, so for Bob the run is a root."""
    file.add_run("a", say("top"))
    run = file.add_run("b", say("below", minute=5), parent_session="a", tags=("open",))
    view = runs.read_run(file.index, share("tag", "open"), run.run_id)
    assert (view.parent_run_id, view.root_run_id) == (None, run.run_id)


def test_view_sums_up_a_run(file):
    call = Part("call", "{}", "ls")
    run = file.add_run(
        "a", say("first words", n_tokens=3, minute=0), reply("", call, call, n_tokens=7, model="m1", minute=2),
        tags=("z", "b"), title="A title",
    )  # fmt: skip
    view = runs.read_run(file.index, ADA, run.run_id)
    assert (view.n_turns, view.n_user, view.n_assistant, view.n_calls, view.n_tokens) == (2, 1, 1, 2, 10)
    assert (view.duration_ms, view.jsonl_bytes) == (120_000, 2 * TURN_BYTES)
    assert (view.tags, view.models, view.title, view.intent) == (("b", "z"), ("m1",), "A title", "first words")


def test_columns_sort_a_run_by_what_its_pieces_are(file):
    call = Part("call", '{"a": 1}', "ls")
    run = file.add_run(
        "a", say("Where is Oslo?", files=("/w/a.py",)), reply("In Norway.", call, skills=("maps",)),
        say("", Part("result", "nothing"), role="tool"),
    )  # fmt: skip
    columns = runs.read_columns(file.index, ADA, run.run_id)
    assert (columns.user_messages, columns.agent_messages) == (("Where is Oslo?",), ("In Norway.",))
    assert columns.tool_calls == ('ls {"a": 1}',)
    assert (columns.files_touched, columns.skills) == (("/w/a.py",), ("maps",)) and "Oslo" in columns.entities


def test_beginning_of_an_id_is_resolved_if_it_is_clear(file):
    run = file.add_run("session-one", say("words"))
    other = file.add_run("session-two", say("words", minute=900))
    turn_id = get_turn_id(run, 0)
    assert runs.resolve_id(file.index, ADA, turn_id[:10]) == ("turn", turn_id)
    assert runs.resolve_id(file.index, ADA, run.run_id) == ("run", run.run_id)
    assert runs.resolve_id(file.index, ADA, "session-o") == ("conversation", "session-one")
    with pytest.raises(UsageError):
        runs.resolve_id(file.index, ADA, "session-")
    with pytest.raises(UsageError):
        runs.resolve_id(file.index, ADA, run.run_id[:3])
    assert other.run_id != run.run_id
    for principal, prefix in ((BOB, turn_id), (ADA, "nothing-like-it")):
        with pytest.raises(NotFound):
            runs.resolve_id(file.index, principal, prefix)


def test_runs_of_a_conversation_come_in_the_order_of_their_messages(file):
    second = file.add_run("a", say("later", minute=9), from_offset=TURN_BYTES)
    spawned = file.add_run("a/1", say("sub-agent", minute=5), conversation="a")
    first = file.add_run("a", say("first"))
    listed = runs.list_conversation_runs(file.index, ADA, "a")
    assert [run.run_id for run in listed] == [first.run_id, second.run_id, spawned.run_id]
    found = runs.find_first_runs(file.index, ADA, [spawned.run_id, second.run_id, "unknown"])
    assert {run_id: view.run_id for run_id, view in found.items()} == dict.fromkeys(
        (spawned.run_id, second.run_id), first.run_id
    )
    assert runs.list_conversation_runs(file.index, BOB, "a") == []


def test_names_are_listed_only_for_those_who_may_read_a_run(file):
    file.add_run("a", say("words"), project="/w/secret", tags=("deck", "open"))
    file.add_run("b", say("words"), project="/w/own", user="bob")
    assert runs.list_names(file.index, ADA, "project") == ["/w/secret"]
    assert runs.list_names(file.index, BOB, "project") == ["/w/own"]
    shared = share("tag", "open")
    assert runs.list_names(file.index, shared, "project") == ["/w/own", "/w/secret"]
    assert runs.list_names(file.index, shared, "tag") == ["deck", "open"]


def test_messages_of_people_are_counted_by_month(file):
    """March has two messages, April one; a notice, a call without words and an undated message do not count."""
    file.add_run("a", say("one"), say("two"), say("notice", author="machine"), reply("answer"), say("x", minute=None))
    file.add_run("b", say("three", minute=60 * 24 * 30))
    assert runs.count_messages_by_month(file.index, ADA) == {"2026-03": 2, "2026-04": 1}
    assert runs.count_messages_by_month(file.index, BOB) == {}


def test_a_turn_is_located_in_the_run_with_its_bytes(file):
    """The second run holds a newer state of the message: its bytes count, at its offset."""
    first = file.add_run("a", say("draft", native_id="m1"))
    second = file.add_run("a", say("final", native_id="m1"), from_offset=TURN_BYTES)
    place = runs.locate_turn(file.index, ADA, get_turn_id(first, 0))
    assert place == (second.run_id, TURN_BYTES, False)
    assert runs.list_turn_offsets(file.index, ADA, second.run_id) == {TURN_BYTES}
    assert runs.list_turn_offsets(file.index, ADA, first.run_id) == set()
    for principal, turn_id in ((BOB, get_turn_id(first, 0)), (ADA, "tnone")):
        with pytest.raises(NotFound):
            runs.locate_turn(file.index, principal, turn_id)


def test_offsets_of_an_abandoned_branch(file):
    turns = [say(name, link=(name, above)) for name, above in (("a", None), ("b", "a"), ("c", "a"))]
    run = file.add_run("s", *turns, links=[turn.link for turn in turns])
    assert runs.list_abandoned_offsets(file.index, run.run_id) == {TURN_BYTES}
    assert runs.locate_turn(file.index, ADA, get_turn_id(run, 1))[2]
    assert runs.read_run(file.index, ADA, run.run_id).n_abandoned == 1
