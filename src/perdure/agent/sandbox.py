"""A fence around the commands of the shell tool: bubblewrap, where it is installed.

In it everything is read-only but the project, the allowed folders and a /tmp of the session; the network is off unless
the owner allows it; the home of Perdure is read-only and its sockets are out of reach, also where the project holds the
home. It is no wall: a program can still read what its user can read, and spoil the project.
"""

from __future__ import annotations

import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from perdure.agent.folders import ProjectFolders
from perdure.disk import make_folder

PROBE_S = 10
MISSING = "bubblewrap is not installed (Debian, Ubuntu: apt install bubblewrap)"
SWITCHED_OFF = "sandbox = false in agent.yaml"
_HIDDEN = ("/run", "/var/run")  # sockets of other services: docker, dbus, an ssh agent
_GIT_RUNS = ("hooks", "config", "config.worktree")
_RESOLVER = Path("/run/systemd/resolve")  # /etc/resolv.conf points into it


@dataclass(frozen=True)
class Sandbox:
    """How commands are wrapped."""

    arguments: tuple[str, ...] = ()  # before the command; () where there is no sandbox
    problem: str = ""  # why there is none

    @property
    def summary(self) -> str:
        """One sentence for the person."""
        if self.problem:
            return f"Commands run without a sandbox: {self.problem}. Allow only what you would run yourself."
        network = "" if "--unshare-net" in self.arguments else " They reach the network."
        return f"Commands run in a sandbox: they write only in the project.{network}"


def find_sandbox(folders: ProjectFolders, temporary: Path, *, network: bool = False) -> Sandbox:
    """Return the sandbox for a session, after trying it. temporary: what commands see as /tmp."""
    program = folders.find_program("bwrap")
    if program is None:
        return Sandbox(problem=MISSING)
    arguments = (program, *build_arguments(folders, temporary, network=network))
    try:
        probe = subprocess.run([*arguments, "true"], capture_output=True, timeout=PROBE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Sandbox(problem=f"bubblewrap does not start ({error})")
    if probe.returncode:
        return Sandbox(problem=f"bubblewrap does not work here ({probe.stderr.decode(errors='replace').strip()})")
    return Sandbox(arguments)


def build_arguments(folders: ProjectFolders, temporary: Path, *, network: bool) -> list[str]:
    """Return the options of bwrap, in order: a later mount covers an earlier one. Makes folders that it covers."""
    arguments = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    for hidden in _HIDDEN:
        if Path(hidden).is_dir() and not Path(hidden).is_symlink():
            arguments += ["--tmpfs", hidden]
    if network and _RESOLVER.is_dir():
        arguments += ["--ro-bind", str(_RESOLVER), str(_RESOLVER)]
    arguments += ["--bind", str(temporary), "/tmp"]
    for folder in folders.readable:  # full outputs and copies of skills lie in the real /tmp
        arguments += ["--ro-bind", str(folder), str(folder)]
    for folder in (folders.root, *folders.more):
        arguments += ["--bind", str(folder), str(folder)]
    for shared in _list_git_folders(folders.root):
        with suppress(OSError):
            (shared / "hooks").mkdir(exist_ok=True)  # else a command could
        arguments += ["--bind", str(shared), str(shared)]
        for name in _GIT_RUNS:  # they say what git runs, later and outside
            arguments += ["--ro-bind-try", str(shared / name), str(shared / name)]
    if folders.home.is_dir():
        arguments += ["--ro-bind", str(folders.home), str(folders.home)]
        make_folder(folders.home / "run")  # a resident home that begins later makes its socket there
        arguments += ["--tmpfs", str(folders.home / "run")]
    arguments += [] if network else ["--unshare-net"]
    arguments += ["--unshare-pid", "--unshare-ipc", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    return [*arguments, "--chdir", str(folders.start), "--"]


def _list_git_folders(root: Path) -> list[Path]:
    """Return the folder of git: it stands elsewhere in a linked worktree."""
    marker = root / ".git"
    if marker.is_dir():
        return [marker]
    try:
        pointer = Path(marker.read_text(encoding="utf-8").removeprefix("gitdir:").strip())
    except (OSError, UnicodeDecodeError):
        return []
    folder = (root / pointer).resolve()
    return [folder.parents[1]] if folder.parent.name == "worktrees" and folder.parents[1].is_dir() else []
