"""The fence around commands, with the real bubblewrap where it is installed."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from perdure.agent.folders import ProjectFolders
from perdure.agent.sandbox import MISSING, Sandbox, build_arguments, find_sandbox
from perdure.agent.tools.shell import ShellTool

needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


@pytest.fixture(name="run")
def fixture_run(folders: ProjectFolders, tmp_path_factory: pytest.TempPathFactory):
    sandbox = find_sandbox(folders, tmp_path_factory.mktemp("tmp"))
    if sandbox.problem:
        pytest.skip(sandbox.problem)
    shell = ShellTool(folders, sandbox, folders.readable[0])
    return lambda command: shell.run({"command": command}, threading.Event())


def test_without_bubblewrap_the_person_is_told(
    folders: ProjectFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    sandbox = find_sandbox(folders, tmp_path)
    assert sandbox == Sandbox(problem=MISSING)
    assert sandbox.summary.startswith("Commands run without a sandbox: bubblewrap is not installed")


def test_later_mounts_cover_earlier_ones(folders: ProjectFolders, tmp_path: Path) -> None:
    """The home is closed after the project is opened, for a home inside the project."""
    arguments = build_arguments(folders, tmp_path, network=False)
    assert arguments.index(str(folders.root)) < arguments.index(str(folders.home))
    assert "--unshare-net" in arguments
    assert "--unshare-net" not in build_arguments(folders, tmp_path, network=True)


@needs_bwrap
def test_commands_write_in_the_project_and_in_their_tmp(run, folders: ProjectFolders) -> None:
    assert not run("echo a > new.txt && echo b > /tmp/b && cat /tmp/b").is_error
    assert (folders.root / "new.txt").read_text() == "a\n"


@needs_bwrap
@pytest.mark.parametrize("line", [
    "echo x > {home}/config.toml", "rm -rf {home}/agents", "mv {home} {home}2", "umount {home}",
    "echo x > .git/hooks/pre-commit", "python3 -c \"open('{home}/agents/default/agent.yaml','w')\"",
    "ln {home}/config.toml a && echo x > a", "mount -o remount,rw {home}",
    "unshare -Ur mount -o remount,rw,bind {home}", "unshare -Urm umount {home}", "touch /etc/x",
    "chmod 777 {home}/config.toml", "echo x >> .git/config", "git config core.fsmonitor ./evil", "rm .git/config",
    "mv .git/hooks .git/other",
])  # fmt: skip
def test_nothing_else_can_be_written(line: str, run, folders: ProjectFolders) -> None:
    (folders.root / ".git/config").write_text("")
    outside = folders.home.parent
    before = sorted(str(path) for path in outside.rglob("*"))
    output = run(line.format(home=folders.home))
    assert output.is_error, output.text
    assert sorted(str(path) for path in outside.rglob("*")) == before
    assert (folders.home / "config.toml").read_text() == ""


@needs_bwrap
def test_git_still_commits(run, folders: ProjectFolders) -> None:
    (folders.root / ".git/hooks").rmdir()
    (folders.root / ".git").rmdir()
    subprocess.run(["git", "init", "--quiet", str(folders.root)], check=True)
    name = "-c user.name=a -c user.email=a@b"
    output = run(f"git add Makefile && git {name} commit -qm x && git checkout -qb topic && git status --short")
    assert not output.is_error, output.text


@needs_bwrap
def test_the_network_is_off(run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert run(f"bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}'").is_error


@needs_bwrap
def test_the_socket_of_the_resident_home_is_out_of_reach(folders: ProjectFolders, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    shell = ShellTool(folders, find_sandbox(folders, tmp_path / "tmp"), folders.readable[0])
    (folders.home / "run/home.sock").touch()  # a resident home that begins after the session
    assert shell.run({"command": f"ls {folders.home}/run"}, threading.Event()).text == "[no output]"


@needs_bwrap
def test_processes_of_others_are_not_seen(run) -> None:
    assert run(f"kill -0 {threading.get_native_id()}").is_error
