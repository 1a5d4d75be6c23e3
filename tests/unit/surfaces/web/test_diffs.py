"""What calls changed, in the words of each client."""

import pytest

from perdure.surfaces.web import diffs
from perdure.surfaces.web.diffs import DiffRow, list_changes

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
        ("edit_file", {"path": "a.py", "old": "one\ntwo", "new": "one\nthree"}),
        ("replace", {"file_path": "a.py", "old_string": "one\ntwo", "new_string": "one\nthree"}),
        ("str_replace_based_edit_tool", {"command": "str_replace", "path": "a.py", "old_str": "one\ntwo",
                                         "new_str": "one\nthree"}),
    ],
)  # fmt: skip
def test_an_edit_is_the_lines_that_differ(name, given):
    (change,) = list_changes(name, given)
    assert change.path == "a.py" and (change.n_added, change.n_removed) == (1, 1)
    assert change.rows == (DiffRow("same", "one"), DiffRow("del", "two"), DiffRow("add", "three"))


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("Write", {"file_path": "a.py", "content": "x\ny"}),
        ("write_file", {"path": "a.py", "text": "x\ny"}),
        ("write", {"path": "a.py", "content": "x\ny"}),
        ("write_file", {"file_path": "a.py", "content": "x\ny"}),
        ("create", {"path": "a.py", "file_text": "x\ny"}),
        ("str_replace_based_edit_tool", {"command": "create", "path": "a.py", "file_text": "x\ny"}),
        ("str_replace_based_edit_tool", {"command": "insert", "path": "a.py", "insert_line": 3, "insert_text": "x\ny"}),
        ("NotebookEdit", {"notebook_path": "a.py", "new_source": "x\ny"}),
    ],
)
def test_a_write_is_all_added(name, given):
    (change,) = list_changes(name, given)
    assert change == diffs.FileDiff("a.py", (DiffRow("add", "x"), DiffRow("add", "y")), 2, 0)


@pytest.mark.parametrize(
    "given",
    [PATCH, {"input": PATCH}, {"patchText": PATCH}, {"command": ["bash", "-lc", f"apply_patch <<'EOF'\n{PATCH}\nEOF"]}],
)
def test_a_patch_is_a_change_for_each_file(given):
    first, second = list_changes("apply_patch", given)
    assert first.path == "a.py" and [row.kind for row in first.rows] == ["gap", "same", "del", "add"]
    assert second == diffs.FileDiff("b.py", (DiffRow("add", "new"),), 1, 0)


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
def test_call_without_an_edit_has_no_changes(name, given):
    assert list_changes(name, given) == ()


def test_long_edit_is_not_diffed_and_counts_its_omitted_rows():
    """1,000 lines by 1,000 others: 2,000 rows, of which 120 are shown."""
    old, new = "\n".join(f"a{n}" for n in range(1000)), "\n".join(f"b{n}" for n in range(1000))
    (change,) = list_changes("Edit", {"file_path": "x", "old_string": old, "new_string": new})
    assert (change.n_added, change.n_removed) == (1000, 1000)
    assert (len(change.rows), change.n_more) == (diffs.MAX_ROWS, 2000 - diffs.MAX_ROWS)


def test_edits_over_the_diff_budget_are_shown_as_replaced():
    """Lines that alternate, 30 by 30: each of 15 x meets 10, each of 15 y too; 300 pairs for 30 lines are 9,000 steps.
    Room for 20,000 compares two of them; the third shows every line of both sides.
    """
    edit = {"file_path": "a", "old_string": "x\ny\n" * 15, "new_string": "y\nx\nz\n" * 10}
    room = diffs.DiffBudget(steps=20_000)
    compared, again, plain = (list_changes("Edit", edit, room)[0] for _ in range(3))
    assert room.steps == 2_000 and compared == again
    assert compared.n_removed < 30 and (plain.n_removed, plain.n_added) == (30, 30)


def test_repetitive_edit_is_not_diffed_line_by_line():
    """400 lines of which every second repeats take 21 million steps, and a call may hold any number of such edits.

    The first is 400 lines removed and 399 added. Behind what is shown only what each gains and loses counts: 200 x and
    200 y become 133 of each, and 133 z come.
    """
    edit = {"old_string": "x\ny\n" * 200, "new_string": "y\nx\nz\n" * 133}
    (change,) = list_changes("MultiEdit", {"file_path": "a", "edits": [edit] * 3})
    assert change.n_more > 0 and (change.n_removed, change.n_added) == (400 + 2 * 134, 399 + 2 * 133)


def test_patch_of_many_files_shows_the_first_and_counts_the_rest():
    """30 files with a row each, of which 20 are shown."""
    patch = "".join(f"*** Add File: {n}\n+x\n" for n in range(30))
    shown = list_changes("apply_patch", f"*** Begin Patch\n{patch}*** End Patch")
    assert len(shown) == diffs.MAX_FILES + 1 and shown[-1] == diffs.FileDiff("10 more files", (), 10, 0, 10)


def test_long_paths_and_lines_are_cut():
    (change,) = list_changes("Write", {"file_path": "p" * 1_000_000, "content": "c" * 1_000_000})
    assert len(change.path) <= diffs.PATH_CHARS and len(change.rows[0].text) == diffs.ROW_CHARS + 1 and change.is_cut
    (moved,) = list_changes("x", "*** Begin Patch\n*** Update File: a\n" + "*** Move to: b\n" * 5000)
    assert len(moved.path) <= diffs.PATH_CHARS
