"""What calls changed, in the words of each client."""

import pytest

from perdure.surfaces.page import diffs
from perdure.surfaces.page.diffs import Row, changes

PATCH = """*** Begin Patch
*** Update File: a.py
@@ def f():
 one
-two
+three
*** Add File: b.py
+new
*** End Patch"""


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("Edit", {"file_path": "a.py", "old_string": "one\ntwo", "new_string": "one\nthree"}),
        ("MultiEdit", {"file_path": "a.py", "edits": [{"old_string": "one\ntwo", "new_string": "one\nthree"}]}),
        ("edit", {"path": "a.py", "edits": [{"oldText": "one\ntwo", "newText": "one\nthree"}]}),
        ("edit", {"filePath": "a.py", "oldString": "one\ntwo", "newString": "one\nthree"}),
        ("replace", {"file_path": "a.py", "old_string": "one\ntwo", "new_string": "one\nthree"}),
        ("str_replace_based_edit_tool", {"command": "str_replace", "path": "a.py", "old_str": "one\ntwo",
                                         "new_str": "one\nthree"}),
    ],
)  # fmt: skip
def test_an_edit_is_the_lines_that_differ(name, given):
    (change,) = changes(name, given)
    assert change.path == "a.py" and (change.n_added, change.n_removed) == (1, 1)
    assert change.rows == (Row("same", "one"), Row("del", "two"), Row("add", "three"))


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("Write", {"file_path": "a.py", "content": "x\ny"}),
        ("write", {"path": "a.py", "content": "x\ny"}),
        ("write_file", {"file_path": "a.py", "content": "x\ny"}),
        ("create", {"path": "a.py", "file_text": "x\ny"}),
        ("str_replace_based_edit_tool", {"command": "create", "path": "a.py", "file_text": "x\ny"}),
        ("str_replace_based_edit_tool", {"command": "insert", "path": "a.py", "insert_line": 3, "insert_text": "x\ny"}),
        ("NotebookEdit", {"notebook_path": "a.py", "new_source": "x\ny"}),
    ],
)
def test_a_write_is_all_added(name, given):
    (change,) = changes(name, given)
    assert change == diffs.Change("a.py", (Row("add", "x"), Row("add", "y")), 2, 0)


@pytest.mark.parametrize(
    "given",
    [PATCH, {"input": PATCH}, {"patchText": PATCH}, {"command": ["bash", "-lc", f"apply_patch <<'EOF'\n{PATCH}\nEOF"]}],
)
def test_a_patch_is_a_change_for_each_file(given):
    first, second = changes("apply_patch", given)
    assert first.path == "a.py" and [row.kind for row in first.rows] == ["gap", "same", "del", "add"]
    assert second == diffs.Change("b.py", (Row("add", "new"),), 1, 0)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("Bash", {"command": "sed -i s/a/b/ f"}),
        ("Read", {"file_path": "a.py"}),
        ("create_issue", {"title": "x", "content": "y"}),  # names no file
        ("Edit", {"file_path": "a.py", "old_string": "x", "new_string": "x"}),
        ("Edit", {"file_path": 3, "old_string": None, "new_string": ["x"]}),
        ("Edit", {"edits": [None, 3, "x"]}),
        ("x", "text"), ("x", None), ("x", 3), ("x", [1]),
    ],
)  # fmt: skip
def test_what_says_no_change_has_none(name, given):
    assert changes(name, given) == ()


def test_a_long_edit_is_not_compared_line_by_line_and_says_what_it_leaves_out():
    """1,000 lines by 1,000 others: 2,000 rows, of which 120 are shown."""
    old, new = "\n".join(f"a{n}" for n in range(1000)), "\n".join(f"b{n}" for n in range(1000))
    (change,) = changes("Edit", {"file_path": "x", "old_string": old, "new_string": new})
    assert (change.n_added, change.n_removed) == (1000, 1000)
    assert (len(change.rows), change.n_more) == (diffs.MOST_ROWS, 2000 - diffs.MOST_ROWS)
