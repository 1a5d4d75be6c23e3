"""The tree of a session: paths, branches, forgotten turns, calls without a result; and no file makes a loop."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from perdure.formats.perdure import Branch, CallEntry, Label, Message, Start, Title
from perdure.session.tree import SessionTree, list_branch_summaries, list_open_calls

AT = datetime(2026, 1, 15, tzinfo=UTC)


def say(entry_id, parent="", role="user", **more):
    return Message(id=entry_id, parent=parent, timestamp=AT, role=role, text=entry_id, **more)


def call(name):
    return CallEntry(id=name, name="read", input={})


def path_ids(tree, leaf=""):
    return [entry.id for entry in tree.find_path(leaf)]


def test_a_branch_leaves_its_siblings_intact():
    tree = SessionTree(
        [say("a"), say("b", "a"), say("c", "b"), Branch(id="d", parent="a", timestamp=AT), say("e", "d")]
    )
    assert path_ids(tree) == ["a", "d", "e"]
    assert path_ids(tree, "c") == ["a", "b", "c"]
    assert tree.list_children()["a"] == ["b", "d"]
    assert [entry.id for entry in tree.list_left("c", "e")] == ["b", "c"]


def test_labels_and_titles_do_not_move_the_leaf():
    tree = SessionTree([
        say("a"),
        Label(id="b", parent="a", timestamp=AT, target="a", text="start"),
        Title(id="c", parent="a", timestamp=AT, text="Plans"),
        Label(id="d", parent="a", timestamp=AT, target="gone", text="x"),
    ])  # fmt: skip
    assert tree.leaf == "a"
    assert tree.list_labels() == {"a": "start"}
    tree.add(Label(id="e", parent="a", timestamp=AT, target="a", text=""))
    assert tree.list_labels() == {}


def test_what_follows_a_forgotten_turn_stays_where_it_was():
    """b was forgotten; a branch begins at it later, when the leaf is elsewhere."""
    tree = SessionTree([say("a")], find_forgotten_turn={"b": "t1"}.get)
    tree.add_forgotten("t1")
    tree.add(say("c", "b"))
    tree.add(Branch(id="d", parent="b", timestamp=AT))
    tree.add(say("e", "d"))
    assert path_ids(tree) == ["a", "d", "e"]
    assert path_ids(tree, "c") == ["a", "c"]
    assert path_ids(tree, "b") == ["a"]  # of a fork that began there
    assert tree.n_forgotten == 1


def test_an_unknown_parent_continues_what_was_written_last():
    assert path_ids(SessionTree([say("a"), say("c", "never written")])) == ["a", "c"]


def test_an_entry_that_comes_twice_counts_once():
    tree = SessionTree([say("a"), say("b", "a"), say("a"), say("c", "b")])
    assert path_ids(tree) == ["a", "b", "c"]
    assert len(tree) == 3


def test_a_call_id_that_a_model_uses_again_is_open_again():
    path = [
        say("a", role="assistant", calls=(call("1"), call("2"))),
        say("b", "a", "tool", call_id="1"),
        say("c", "b", "tool", call_id="2"),
        say("d", "c", "assistant", calls=(call("1"),)),
    ]
    assert list_open_calls(path[:2]) == [call("2")]
    assert list_open_calls(path[:3]) == []
    assert list_open_calls(path) == [call("1")]


def test_one_resumes_after_the_results_of_a_call():
    tree = SessionTree([
        say("a", role="assistant", calls=(call("1"), call("2"))),
        say("b", "a", "tool", call_id="1"),
        say("c", "b", "tool", call_id="2"),
        say("d", "c", "assistant"),
        Branch(id="e", parent="a", timestamp=AT),
    ])  # fmt: skip
    assert [tree.find_resume_point(entry_id) for entry_id in "abcd"] == ["c", "c", "c", "d"]


def test_the_summary_of_a_left_branch_stands_before_the_next_message():
    path = [
        say("a"),
        Branch(id="b", parent="a", timestamp=AT, left="x"),
        Branch(id="c", parent="b", timestamp=AT, summary="We tried nginx."),
        say("d", "c"),
        say("e", "d"),
    ]
    assert list_branch_summaries(path) == {"d": "We tried nginx."}


IDS = st.sampled_from("abcdefgh")


@given(st.lists(st.tuples(IDS, st.sampled_from("abcdefgh?"), st.booleans()), max_size=12))
def test_any_parents_give_a_tree(rows):
    """Whatever a file says: every path ends, begins at the first entry, and every entry is reached."""
    tree = SessionTree()
    for entry_id, parent, is_forgotten in rows:
        if is_forgotten:
            tree.add_forgotten(f"t{entry_id}")
        else:
            tree.add(say(entry_id, parent))
    first = next(iter(tree), None)
    for entry in tree:
        path = tree.find_path(entry.id)
        assert path[0] is first
        assert path[-1] is entry
        assert len({step.id for step in path}) == len(path)
    if len(tree):
        assert tree.get(tree.leaf)


def test_a_start_has_no_parent_in_its_own_log():
    tree = SessionTree([Start(id="a", parent="x", timestamp=AT, session="s", agent="default"), say("b", "a")])
    assert path_ids(tree) == ["a", "b"]
