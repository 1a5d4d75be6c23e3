"""What has changed of the files and versions that a memory names."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from perdure.memories.staleness import describe_changes

STATED_AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
OLD, NEW = STATED_AT.timestamp() - 60, STATED_AT.timestamp() + 60


def write(path: Path, changed_at: float, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (changed_at, changed_at))


def describe(project: Path, words: str) -> str:
    return describe_changes(words, str(project), STATED_AT)


def test_files_that_changed_later_are_counted(tmp_path: Path) -> None:
    write(tmp_path / "src/server.py", NEW)
    write(tmp_path / "src/tide gauge.py", NEW)
    write(tmp_path / "src/port.py", OLD)
    write(tmp_path / "README.md", NEW)
    assert describe(tmp_path, "Ports are set in `src/port.py:12`.") == ""
    assert describe(tmp_path, "Ports are set in `src/server.py:12:3`.") == "its file has changed since"
    words = f"See (src/server.py), src/port.py, {tmp_path}/README.md, src/server.py, src/gone.py and example.com."
    assert describe(tmp_path, words) == "2 of its 3 files have changed since"


def test_only_plain_files_below_the_project_count(tmp_path: Path) -> None:
    project = tmp_path / "project"
    write(tmp_path / "secret.env", NEW)
    write(project / "src/a.py", NEW)
    (project / "link.py").symlink_to(tmp_path / "secret.env")
    for words in ("../secret.env", "src/../../secret.env", f"{tmp_path}/secret.env", "src/", "/src", "./..", "link.py"):
        (link := project / "link.py").lstat()
        os.utime(link, (OLD, OLD), follow_symlinks=False)
        assert describe(project, words) == "", words
    assert describe_changes("src/a.py", None, STATED_AT) == describe_changes("src/a.py", "project", STATED_AT) == ""
    assert describe(project, "x" * 5000 + "/a.py src/a.py\0") == describe(project, "a/" * 3000) == ""


def test_a_new_checkout_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path / ".git/description", NEW)
    write(tmp_path / "server.py", NEW + 5)
    assert describe(tmp_path, "The port is set in server.py.") == ""
    write(tmp_path / "server.py", NEW + 3600)
    assert describe(tmp_path, "The port is set in server.py.") == "its file has changed since"


@pytest.mark.parametrize(
    ("words", "file", "text", "expected"),
    [
        ("We use react 17.0.2.", "package.json", '{"dependencies": {"react": "^18.2.0"}}', "react 18.2.0"),
        ("numpy==1.26 is pinned", "pyproject.toml", 'dependencies = ["numpy>=2,<3"]', "numpy 2"),
        ("Built with Python 3.9", ".tool-versions", "node 20.1\npython 3.11.4\n", "python 3.11.4"),
        ("golang.org/x/net v0.4.0 broke TLS", "go.mod", "require golang.org/x/net v0.17.0", "golang.org/x/net 0.17.0"),
        ("We use react 18.2.", "package.json", '{"dependencies": {"react": "^18.2.0"}}', ""),
        ("We use react 19.0.", "package.json", '{"dependencies": {"react": "^18.2.0"}}', ""),
        ("We use react 17.0.", "package.json", '{"dependencies": {"react-dom": "^18.2.0"}}', ""),
        ("We use numpy 1.26.", "requirements.txt", "# numpy==2.0\nnumpy==1.26.4\n", ""),
        ("The port is 8080.1", "package.json", '{"port": 9090}', ""),
    ],
)
def test_versions_that_a_list_is_ahead_of(tmp_path: Path, words: str, file: str, text: str, expected: str) -> None:
    write(tmp_path / file, NEW, text)
    assert describe(tmp_path, words) == (f"{file} has {expected} now" if expected else "")
    write(tmp_path / file, OLD, text)
    assert describe(tmp_path, words) == ""


def test_hostile_words_and_lists_are_read_in_linear_time(tmp_path: Path) -> None:
    names = "".join(f"n{i} 1.0 " for i in range(400))
    elapsed_s = []
    for n in (20_000, 200_000):
        write(tmp_path / "package.json", NEW, "n1 " * (n // 3))
        started = time.process_time()
        describe(tmp_path, names + "a.b" * n)
        elapsed_s.append(time.process_time() - started)
    assert elapsed_s[1] <= max(12 * elapsed_s[0], 0.5)
