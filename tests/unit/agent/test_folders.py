"""No path leads out of the folders of an agent, and only plain files are opened."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from perdure.agent.folders import ProjectFolders
from perdure.errors import ToolError


@pytest.mark.parametrize("path", [
    "/etc/passwd", "../mind/config.toml", "~/.bashrc", "link/passwd", "src/../../x", "/proc/self/environ",
    "/dev/zero", "", "a\0b", "/proc/self/root/etc/passwd", "//etc/passwd", "src/./../../mind/x",
])  # fmt: skip
@pytest.mark.parametrize("is_write", [False, True])
def test_a_path_outside_is_refused(path: str, is_write: bool, folders: ProjectFolders) -> None:
    with pytest.raises(ToolError):
        folders.check(path, is_write=is_write)


@pytest.mark.parametrize("path", ["Makefile", "src", "./src/new/a.py", "src/../Makefile", "new.txt"])
def test_a_path_inside_is_allowed(path: str, folders: ProjectFolders) -> None:
    assert folders.check(path, is_write=True).is_relative_to(folders.root)


def test_full_outputs_can_only_be_read(folders: ProjectFolders) -> None:
    path = str(folders.readable[0] / "shell-1.txt")
    assert folders.check(path)
    with pytest.raises(ToolError, match="only be read"):
        folders.check(path, is_write=True)


def test_a_home_inside_the_project_stays_closed(tmp_path: Path) -> None:
    home = tmp_path / ".perdure"
    home.mkdir()
    folders = ProjectFolders(tmp_path, home, tmp_path)
    for path in (".perdure/config.toml", "x/../.perdure/agents/default/agent.yaml", str(home)):
        with pytest.raises(ToolError, match="home of Perdure"):
            folders.check(path)


def test_a_symlink_put_in_after_the_check_is_not_followed(folders: ProjectFolders, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "a.txt").write_text("secret")
    (folders.root / "src/a.txt").write_text("plain")
    checked = folders.check("src/a.txt")
    (folders.root / "src").rename(folders.root / "was")
    (folders.root / "src").symlink_to(secret)
    with pytest.raises(ToolError):
        folders.open_file(checked)
    with pytest.raises(ToolError):
        folders.replace(checked, b"x")
    assert (secret / "a.txt").read_text() == "secret"


def test_a_file_that_becomes_a_symlink_is_not_followed(folders: ProjectFolders, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    path = folders.root / "a.txt"
    path.write_text("plain")
    checked = folders.check("a.txt")
    path.unlink()
    path.symlink_to(tmp_path / "secret.txt")
    with pytest.raises(ToolError, match="changed just now"):
        folders.open_file(checked)


def test_what_is_no_plain_file_is_not_opened(folders: ProjectFolders) -> None:
    os.mkfifo(folders.root / "fifo")
    with pytest.raises(ToolError, match="no plain file"):
        folders.open_file(folders.check("fifo"))
    with pytest.raises(ToolError, match="no plain file"):
        folders.replace(folders.check("fifo"), b"")
    with pytest.raises(ToolError, match="folder"):
        folders.open_file(folders.check("src"))
    with pytest.raises(ToolError, match="folder"):
        folders.open_file(folders.check("."))


def test_a_write_keeps_the_mode_and_leaves_nothing_behind(folders: ProjectFolders) -> None:
    path = folders.root / "run.sh"
    path.write_text("old")
    path.chmod(0o751)
    assert not folders.replace(folders.check("run.sh"), b"new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o751
    assert folders.replace(folders.check("deep/er/a.txt"), b"x")
    assert not [name for _, _, names in os.walk(folders.root) for name in names if name.endswith(".tmp")]


def test_a_hard_link_to_a_page_is_cut_by_a_write(folders: ProjectFolders) -> None:
    page = folders.home / "config.toml"
    (folders.root / "innocent.txt").hardlink_to(page)
    folders.replace(folders.check("innocent.txt"), b"evil")
    assert page.read_text() == ""


def test_a_missing_file_names_similar_ones(folders: ProjectFolders) -> None:
    with pytest.raises(ToolError, match="Similar: Makefile"):
        folders.open_file(folders.check("Makefil"))
