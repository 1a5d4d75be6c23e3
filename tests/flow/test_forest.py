"""The forest: trees stay whole, pages go over trees, and filters leave what they name."""

import pytest

from perdure.types import Filters


def under(nodes):
    """The ids of all runs in some trees."""
    found, todo = [], list(nodes)
    while todo:
        node = todo.pop()
        found.append(node.run.run_id)
        todo += node.children
    return found


@pytest.fixture
def woods(home, message):
    """(home, the ids of the runs of each of three sessions of three deltas, said in turn)."""
    ids, ends = {name: [] for name in "abc"}, dict.fromkeys("abc", 0)
    for n in range(3):
        for at, name in enumerate("abc"):
            data = message("user", f"{name} says {n}", 10 * n + at)
            answer = home.capture(
                data, runtime="messages", session=name, from_offset=ends[name], cwd=f"/w/{name}", tags=(f"t-{name}",)
            )
            ends[name] += len(data)
            ids[name].append(answer.run_id)
    return home, ids


def test_a_page_holds_whole_trees_and_each_tree_is_on_one_page(woods):
    home, ids = woods
    pages = [home.runs.forest(limit=1, offset=n) for n in range(4)]
    assert [sorted(under(page)) for page in pages] == [sorted(ids["c"]), sorted(ids["b"]), sorted(ids["a"]), []]
    assert [page[0].run.run_id for page in pages[:3]] == [ids["c"][0], ids["b"][0], ids["a"][0]]


def test_page_holds_the_trees_of_its_newest_runs(woods):
    home, ids = woods
    nodes = home.runs.forest(limit=4)  # c3 b3 a3 c2: three trees
    assert sorted(under(nodes)) == sorted(ids["a"] + ids["b"] + ids["c"])
    assert sorted(under(home.runs.forest(limit=2, offset=1))) == sorted(ids["b"] + ids["a"])


def test_filters_keep_only_matching_runs(woods, start):
    home, ids = woods
    assert sorted(under(home.runs.forest(Filters(projects=("a",))))) == sorted(ids["a"])
    assert sorted(under(home.runs.forest(Filters(tags=("t-b",))))) == sorted(ids["b"])
    for field in ("runtimes", "machines", "agents", "projects"):
        assert home.runs.forest(Filters(**{field: ("nobody",)})) == []
    nodes = home.runs.forest(Filters(since_at=start.replace(minute=20)))
    assert sorted(under(nodes)) == sorted(each[2] for each in ids.values()) and len(nodes) == 3


def test_runs_that_are_mutual_parents_appear_once(home, message):
    first = home.capture(message("user", "hen", 1), runtime="messages", session="hen").run_id
    second = home.capture(message("user", "egg", 2), runtime="messages", session="egg", parent_run_id=first).run_id
    assert home.runs.get(second).root_run_id == first
    home.index().db.execute("UPDATE run SET parent_run_id = ? WHERE run_id = ?", (second, first))
    assert {home.runs.get(name).root_run_id for name in (first, second)} == {min(first, second)}
    assert sorted(under(home.runs.forest(limit=1))) == sorted([first, second])
    assert home.runs.forest(limit=1, offset=1) == []
    assert [run.run_id for run in home.runs.descendants(first)] == [second]
