"""Which programs git would run in a repository, and that commands of git are asked about then."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from perdure.agent.commands import Risk, judge_line
from perdure.agent.folders import ProjectFolders
from perdure.agent.git_programs import find_git_programs


def judge(line: str, folders: ProjectFolders) -> Risk:
    return max(risk.risk for risk in judge_line(line, folders))


@pytest.fixture(name="git_folders")
def fixture_git_folders(folders: ProjectFolders) -> ProjectFolders:
    (folders.root / ".git").rmdir()
    subprocess.run(["git", "init", "--quiet", str(folders.root)], check=True)
    return folders


def add_settings(folder: Path, text: str) -> None:
    with (folder / "config").open("a", encoding="utf-8") as file:
        file.write(text)


def test_a_plain_repository_runs_nothing(git_folders: ProjectFolders) -> None:
    add_settings(
        git_folders.root / ".git", '[core]\n\tfsmonitor = false\n[filter "lfs"]\n\tclean = git-lfs clean -- %f\n'
    )
    assert find_git_programs(git_folders.root, with_hooks=True) == ""
    assert judge("git status && git diff", git_folders) == Risk.READS
    assert judge("git commit -m x", git_folders) == Risk.EDITS


@pytest.mark.parametrize("settings", [
    "[core]\n\tfsmonitor = ./evil\n", "[Core] FsMonitor = ./evil\n", '[diff "x"]\n\ttextconv = ./evil\n',
    "[diff]\nexternal=./evil\n", '[filter "x"]\n\tclean = ./evil\n', "[include]\n\tpath = ../other\n",
    '[includeIf "gitdir:**"]\n\tpath = ../other\n', "[gpg]\n\tprogram = ./evil\n", "[core]\n\tworktree = /etc\n",
    '[a "]"] [core] fsmonitor = ./evil\n',
])  # fmt: skip
def test_settings_that_name_a_program_are_asked_about(settings: str, git_folders: ProjectFolders) -> None:
    add_settings(git_folders.root / ".git", settings)
    for line in ("git status", "git diff", "git add -A", "git commit -m x", "cd src && git status", "git -C src log"):
        assert judge(line, git_folders) == Risk.UNKNOWN, line


def test_a_bare_repository_among_the_files_is_found(git_folders: ProjectFolders) -> None:
    """A clone can bring one along, and git uses its settings when it runs in that folder."""
    inner = git_folders.root / "inner"
    subprocess.run(["git", "init", "--quiet", "--bare", str(inner)], check=True)
    add_settings(inner, '[core]\n\tbare = false\n\tworktree = ..\n\tfsmonitor = "echo > ../ran; false"\n')
    subprocess.run(["git", "-C", str(inner), "status"], capture_output=True, check=False)
    assert (git_folders.root / "ran").exists() or (git_folders.root.parent / "ran").exists()  # git does run it
    assert judge("cd inner && git status", git_folders) == Risk.UNKNOWN
    assert judge("git -C inner status", git_folders) == Risk.UNKNOWN
    assert judge("git status", git_folders) == Risk.READS


def test_hooks_are_asked_about_where_they_would_run(git_folders: ProjectFolders) -> None:
    hooks = git_folders.root / ".git/hooks"
    (hooks / "pre-commit").write_text("#!/bin/sh\n")
    assert judge("git commit -m x", git_folders) == Risk.EDITS  # it cannot be executed
    (hooks / "pre-commit").chmod(0o755)
    assert judge("git commit -m x", git_folders) == Risk.UNKNOWN
    assert judge("git status", git_folders) == Risk.READS
    (hooks / "pre-commit").rename(hooks / "post-index-change")
    assert judge("git status", git_folders) == Risk.UNKNOWN


def test_hooks_in_the_project_are_found(git_folders: ProjectFolders) -> None:
    add_settings(git_folders.root / ".git", "[core]\n\thooksPath = .husky\n")
    (git_folders.root / ".husky").mkdir()
    assert judge("git commit -m x", git_folders) == Risk.EDITS
    (git_folders.root / ".husky/pre-commit").touch(mode=0o755)
    assert judge("git commit -m x", git_folders) == Risk.UNKNOWN


def test_a_linked_worktree_has_the_settings_of_its_repository(git_folders: ProjectFolders, tmp_path: Path) -> None:
    git = ["git", "-C", str(git_folders.root), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "x"], check=True)
    subprocess.run([*git, "worktree", "add", "--quiet", str(tmp_path / "linked")], check=True, capture_output=True)
    assert find_git_programs(tmp_path / "linked", with_hooks=True) == ""
    add_settings(git_folders.root / ".git", "[core]\n\tfsmonitor = ./evil\n")
    assert "core.fsmonitor" in find_git_programs(tmp_path / "linked", with_hooks=False)


def test_submodules_are_looked_at_and_ask_nothing_by_themselves(git_folders: ProjectFolders, tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]
    other = tmp_path / "other"
    subprocess.run(["git", "init", "--quiet", str(other)], check=True)
    subprocess.run([*git, "-C", str(other), "commit", "--quiet", "--allow-empty", "-m", "x"], check=True)
    add = ["submodule", "--quiet", "add", str(other), "deep/sub"]
    subprocess.run([*git, "-C", str(git_folders.root), *add], check=True, capture_output=True)
    for line in ("git status", "cd deep/sub && git status", "git -C deep/sub log"):
        assert judge(line, git_folders) == Risk.READS, line
    add_settings(git_folders.root / ".git/modules/deep/sub", "[core]\n\tfsmonitor = ./evil\n")
    for line in ("git status", "cd deep/sub && git status", "git -C deep/sub log"):
        assert judge(line, git_folders) == Risk.UNKNOWN, line


def test_a_program_of_the_project_is_no_known_one(folders: ProjectFolders, monkeypatch: pytest.MonkeyPatch) -> None:
    """An activated environment of the project is in PATH, and a model may have written into it."""
    programs = folders.root / ".venv/bin"
    programs.mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    (programs / "git").write_text("#!/bin/sh\n")
    (programs / "git").chmod(0o755)
    assert judge("git status", folders) == Risk.UNKNOWN
    assert judge("ls", folders) == Risk.READS
    found = folders.find_program("git")
    assert found is not None and not found.startswith(str(folders.root))
    monkeypatch.setenv("PATH", f"src{os.pathsep}{os.environ['PATH']}")
    (folders.root / "src/ls").touch(mode=0o755)
    assert judge("ls", folders) == Risk.UNKNOWN
