"""Commands of the memory tool: no path leaves its root, and a malformed command is refused."""

import doctest

import pytest

from perdure.errors import ToolError
from perdure.floor import state
from perdure.surfaces.memory_tool import commands, tool
from rig.memory_tool import MemoryTree


@pytest.mark.parametrize(
    "bad",
    [
        "/memories/../x", "/memories/a/../../x", "/memoriesX", "/memoriesX/a", "/memories../x", "/etc/passwd", "",
        "memories/a", "/", "..", "/memories/\0", "/memories/a\0/../../../etc", "/memories/a\nb",
        "/memories/\u202egnp.md",
        "/memories/\u200b..", "/memories/" + "a" * 256, "/memories/" + "a/" * 1024, "/memories/" + "x" * 1_000_000,
        "/memories/\udc80", "/memories/../memories/a.md", "C:\\memories\\a", "\\memories\\a", "file:///memories/a",
    ],
)  # fmt: skip
def test_no_path_leaves_the_root(bad):
    with pytest.raises(ToolError) as refused:
        commands.resolve_path(bad)
    assert len(str(refused.value)) < 1200 and str(refused.value).isprintable()
    ours = MemoryTree()
    with pytest.raises(ToolError):
        ours.call({"command": "create", "path": bad, "file_text": "x"})
    with pytest.raises(ToolError):
        ours.call({"command": "rename", "old_path": "/memories/a", "new_path": bad})
    assert not ours.texts and not ours.folders


@pytest.mark.parametrize(
    "odd",
    [
        "%2e%2e",
        "%2e%2e%2fetc",
        "..\\..\\etc",
        "\u2024\u2024",
        "\uff0e\uff0e",
        "\u2025",
        "..\u2215etc",
        "...",
        ".. ",
        "~",
        "$HOME",
        "-rf",
        "C:",
    ],
)
def test_name_with_dots_is_only_a_name(odd):
    assert commands.resolve_path(f"/memories/{odd}/x.md") == f"{odd}/x.md"


@pytest.mark.parametrize(
    "given",
    [
        {}, {"command": "format"}, {"command": None}, {"command": "view"}, {"command": "view", "path": 7},
        {"command": "create", "path": "/memories/a"}, {"command": "create", "path": "/memories/a", "file_text": ["x"]},
        {"command": "insert", "path": "/memories/a", "insert_line": "1", "insert_text": "x"},
        {"command": "insert", "path": "/memories/a", "insert_line": True, "insert_text": "x"},
        {"command": "view", "path": "/memories", "view_range": "1,2"},
        {"command": "view", "path": "/memories", "view_range": [1, None]},
    ],
)  # fmt: skip
def test_malformed_command_is_refused(given):
    with pytest.raises(ToolError):
        MemoryTree().call(given)


@pytest.mark.parametrize("module", [commands, tool, state])
def test_examples_in_docstrings_are_true(module):
    found = doctest.testmod(module)
    assert found.attempted > 0 and found.failed == 0
