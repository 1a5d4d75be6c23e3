"""The six commands say, to the letter, what the SDK's own back end for a folder says."""

import re
import tempfile
from pathlib import Path

import pytest
from anthropic.lib.tools import ToolError as SdkError
from anthropic.lib.tools._beta_builtin_memory_tool import BetaLocalFilesystemMemoryTool
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from perdure.errors import ToolError
from perdure.surfaces.memory_tool import commands
from rig.memory_tool import MemoryTree


class Theirs:
    """The SDK's tool over a folder, but for what docs/memory-tool.md names as different."""

    def __init__(self, folder):
        self.tool = BetaLocalFilesystemMemoryTool(str(folder))

    def call(self, command):
        before = {path for path in self.tool.memory_root.rglob("*") if path.is_dir()}
        try:
            return self.tool.call(command)
        except Exception:
            for path in sorted(self.tool.memory_root.rglob("*"), reverse=True):
                if path.is_dir() and path not in before:  # a rename that failed leaves the folders of its destination
                    path.rmdir()
            raise


def outcome(tool, command, error):
    """(whether it went well, the words)."""
    try:
        return True, plain(tool.call(command))
    except error as refused:
        return False, str(refused)
    except (OSError, ValueError) as failed:  # of theirs: what it has no words for
        return False, type(failed).__name__


def plain(said):
    """An answer with the sizes of folders left out: on a disk these are the file system's."""
    if not said.startswith("Here're the files"):
        return said
    head, first, *rows = said.split("\n")
    rows = [re.sub(r"^\S+\t(.*/)$", r"-\t\1", row) for row in rows]
    return "\n".join([head, re.sub(r"^\S+\t", "-\t", first), *rows])


NAMES = ("a.md", "b.md", "c", ".hidden", "ü", "日本.md", "a b", "A.md")
TEXTS = ("", "\n", "one", "one\n", "one\ntwo\nthree\n", "one\n\none\n\n", "ß\r\nzwei\r\n", "aaaa", "a\fb\x0bc\u2028d\n")
PARTS = ("", "one", "two\nthree", "\n", "a", "aa", "\r", "ß", "x\n\n", "none")
ODD = (
    "/memories", "/memories/", "/memories//a.md", "/memories/./a.md", "/memories/c/../a.md", "/memories/../x", "/etc/x",
    "", "memories/a.md", "/memories/a.md/", "/memories/..", "/memories/c/../../../etc", "/memories/%2e%2e/a.md",
    "/memories/..\\a.md",
)  # fmt: skip
FEW = ("/memories/a.md", "/memories/b.md", "/memories/c/a.md")
path = st.one_of(
    st.sampled_from(FEW),
    st.sampled_from([*FEW, "/memories/c", "/memories/c/.hidden", "/memories/d/c"]),
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map(lambda parts: "/memories/" + "/".join(parts)),
    st.sampled_from(ODD),
)
text, part = st.sampled_from(TEXTS), st.sampled_from(PARTS)
number, few = st.integers(-2, 6), st.sampled_from(FEW)
command = st.one_of(
    st.fixed_dictionaries({"command": st.just("view"), "path": path}),
    st.fixed_dictionaries({"command": st.just("view"), "path": few, "view_range": st.lists(number, max_size=3)}),
    st.fixed_dictionaries({"command": st.just("view"), "path": few, "view_range": st.tuples(number, number).map(list)}),
    st.fixed_dictionaries({"command": st.just("create"), "path": path, "file_text": text}),
    st.fixed_dictionaries({"command": st.just("create"), "path": path, "file_text": st.text("ab\n", max_size=9)}),
    st.fixed_dictionaries({"command": st.just("str_replace"), "path": path, "old_str": part, "new_str": part}),
    st.fixed_dictionaries({"command": st.just("insert"), "path": path, "insert_line": number, "insert_text": part}),
    st.fixed_dictionaries({"command": st.just("delete"), "path": path}),
    st.fixed_dictionaries({"command": st.just("rename"), "old_path": path, "new_path": path}),
)  # fmt: skip
begun = st.lists(text, min_size=3, max_size=3).map(
    lambda texts: [{"command": "create", "path": p, "file_text": t} for p, t in zip(FEW, texts, strict=True)]
)
LIST = {"command": "view", "path": "/memories"}


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sequence=st.builds(list.__add__, begun, st.lists(command, min_size=5, max_size=25)))
@example(
    sequence=[
        {"command": "create", "path": "/memories/a/b/c/d.md", "file_text": "x"},
        {"command": "rename", "old_path": "/memories/a/b", "new_path": "/memories/z/y"},
        {"command": "delete", "path": "/memories/z/y/c/d.md"},
        {"command": "view", "path": "/memories/z"},
    ]
)
@example(sequence=[{"command": "create", "path": "/memories/a", "file_text": "x" * 1536}])
def test_any_command_sequence_answers_like_the_sdk(sequence, tmp_path):
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        ours, theirs = MemoryTree(), Theirs(folder)
        for one in [step for given in sequence for step in (given, LIST)]:
            expected, said = outcome(theirs, one, SdkError), outcome(ours, one, ToolError)
            if not expected[0] and expected[1].endswith("Error"):
                assert not said[0], one  # theirs has no words for it (a file in the place of a folder)
            else:
                assert said == expected, one


def test_folder_size_matches_the_size_on_this_disk(tmp_path):
    theirs = BetaLocalFilesystemMemoryTool(str(tmp_path))
    theirs.call({"command": "create", "path": "/memories/a/b.md", "file_text": "12"})
    if Path(tmp_path / "memories").stat().st_size != commands.FOLDER_BYTES:
        pytest.skip("folders have another size on this file system")
    ours = MemoryTree()
    ours.call({"command": "create", "path": "/memories/a/b.md", "file_text": "12"})
    assert ours.call(LIST) == theirs.call(LIST)


def test_a_million_lines_are_not_shown(tmp_path):
    ours, theirs = MemoryTree(), Theirs(tmp_path)
    ours.texts["a"] = "\n" * commands.MAX_LINES
    (theirs.tool.memory_root / "a").write_text("\n" * commands.MAX_LINES)
    one = {"command": "view", "path": "/memories/a"}
    assert outcome(ours, one, ToolError) == outcome(theirs, one, SdkError)
    assert not outcome(ours, one, ToolError)[0]
