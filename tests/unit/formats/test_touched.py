"""Files and skills of tool calls."""

import pytest

from perdure.formats.parts import find_files_and_skills


@pytest.mark.parametrize(
    ("name", "given", "files"),
    [
        ("Edit", {"file_path": "a"}, ("a",)),
        ("NotebookEdit", {"notebook_path": "n.ipynb"}, ("n.ipynb",)),
        ("read_many_files", {"paths": ["a", "b", 3]}, ("a", "b")),
        ("read", {"filePath": "/w/a"}, ("/w/a",)),
        ("Grep", {"path": "/w", "pattern": "x"}, ()),
        ("list_directory", {"path": "/w"}, ()),
        ("write", {"path": "bad\nname"}, ()),
        ("write", {"path": ""}, ()),
        ("patch", {"patchText": "*** Update File: a b.py\n*** Move to: c.py"}, ("a b.py", "c.py")),
        ("apply_patch", "*** Begin Patch\n*** Delete File: d.py\n", ("d.py",)),
        ("shell", {"command": ["bash", "-lc", "apply_patch <<'E'\n*** Begin Patch\n*** Add File: x\nE"]}, ("x",)),
        ("exec_command", {"cmd": "sed -n '1,240p' 'a b.md'"}, ("a b.md",)),
        ("Bash", {"command": "head -n 20 a.txt"}, ("a.txt",)),
        ("Bash", {"command": "cat a; rm b"}, ()),
        ("Bash", {"command": "cat $HOME/a"}, ()),
        ("Bash", {"command": "cat *.py"}, ()),
        ("Bash", {"command": "cat < a"}, ()),
        ("Bash", {"command": 3}, ()),
        ("x", [1], ()),
        ("x", None, ()),
    ],
)
def test_touched_files_are_found(name, given, files):
    assert find_files_and_skills(name, given)[0] == files


@pytest.mark.parametrize(
    ("name", "given", "skills"),
    [
        ("Skill", {"skill": "golang"}, ("golang",)),
        ("Skill", {"command": "/notes"}, ("notes",)),
        ("activate_skill", {"name": "docs"}, ("docs",)),
        ("skill", {"other": 1}, ()),
        ("Read", {"file_path": "/h/.claude/skills/notes/SKILL.md"}, ("notes",)),
        ("read", {"path": "C:\\skills\\notes\\SKILL.md"}, ("notes",)),
        ("Write", {"file_path": "/h/skills/notes/SKILL.md"}, ()),
        ("exec_command", {"cmd": "sed -n '1,9p' /h/.agents/skills/beads/SKILL.md"}, ("beads",)),
        ("exec_command", {"cmd": "git add skills/beads/SKILL.md"}, ()),
    ],
)
def test_used_skills_are_found(name, given, skills):
    assert find_files_and_skills(name, given)[1] == skills


def test_a_long_command_is_quick():
    assert find_files_and_skills("Bash", {"command": "cat " + "a " * 500_000}) == ((), ())
    assert find_files_and_skills("Bash", {"command": "cat " + "'a' " * 1000 + ";"}) == ((), ())
