"""Which programs git would run in a repository, because its settings or hooks say so.

A repository that somebody else made may say that `git status` runs a program (`core.fsmonitor`), that `git diff` does
(`diff.external`), or that a commit does (hooks). Its files can also hold a second, bare repository with such settings.
Nothing is run here: the settings are read as text, and what is not sure counts as a program.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

MAX_SETTINGS_BYTES = 1_000_000
MAX_SUBMODULES = 100
_SECTION = re.compile(r'\s*\[\s*([^\s"\]]*)\s*(?:"(?:[^"\\]|\\.)*")?\s*\]')
_KEY = re.compile(r"\s*([A-Za-z][\w-]*)\s*=?\s*(.*)")
_PROGRAM_KEYS = {
    "fsmonitor", "external", "textconv", "command", "cmd", "clean", "smudge", "process", "program", "driver",
    "sshcommand", "gitproxy", "alternaterefscommand", "editor", "askpass", "helper", "difffilter", "uploadpack",
    "receivepack", "defaultkeycommand", "vcs", "templatedir",
}  # fmt: skip
_NO_PROGRAM = re.compile(r"(?i)(?:true|false|yes|no|on|off|0|1|\"\"|git-lfs [\w ./%-]*)?")  # Git LFS is known


class Repository(NamedTuple):
    """Where the parts of a repository lie."""

    top: Path  # the folder that holds it
    git_folder: Path
    common_folder: Path  # differs from git_folder in a linked worktree


def find_git_programs(folder: Path, *, with_hooks: bool) -> str:
    """Return what of git's settings or hooks would run a program in a folder, for a person; "" if nothing would.

    with_hooks: the command may run any hook; else only the one that runs when git refreshes its index counts.
    """
    repository = find_repository(folder)
    if repository is None:
        return ""
    hooks = repository.common_folder / "hooks"
    for path in _list_settings(repository):
        for section, key, value in _read_settings(path):
            if key == "hookspath":
                hooks = repository.top / Path(value.strip('"')).expanduser()
            elif key == "worktree":
                if not (path.parent / value.strip('"')).resolve().is_relative_to(repository.top.resolve()):
                    return f"core.worktree in {path}"
            elif section.startswith("include") or (key in _PROGRAM_KEYS and not _NO_PROGRAM.fullmatch(value)):
                return f"{section}.{key} in {path}"
    names = [name for name in _list_hooks(hooks) if with_hooks or name == "post-index-change"]
    return f"the hook {hooks / names[0]}" if names else ""


def find_repository(folder: Path) -> Repository | None:
    """Return the repository that git finds from a folder upwards, a bare one too; None if there is none."""
    for top in (folder, *folder.parents):
        marker = top / ".git"
        if marker.is_dir():
            return Repository(top, marker, marker)
        if marker.is_file():
            git_folder = top / _read_text(marker).removeprefix("gitdir:").strip()
            shared = _read_text(git_folder / "commondir").strip()
            return Repository(top, git_folder, (git_folder / shared).resolve() if shared else git_folder)
        if (top / "HEAD").exists() and (top / "objects").is_dir() and (top / "refs").is_dir():
            return Repository(top, top, top)
    return None


def _list_settings(repository: Repository) -> Iterator[Path]:
    """Yield the files with settings of a repository, and of its submodules, in which git looks too."""
    yield repository.common_folder / "config"
    yield repository.git_folder / "config.worktree"
    yield from islice(_list_submodules(repository.common_folder / "modules"), MAX_SUBMODULES)


def _list_submodules(folder: Path) -> Iterator[Path]:
    """Yield the settings of submodules, which may stand in one another."""
    for parent, folder_names, names in os.walk(folder):
        if "HEAD" in names and "config" in names:
            yield Path(parent, "config")
            folder_names[:] = [name for name in folder_names if name == "modules"]


def _read_settings(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield (section, key, value), sections and keys in small letters."""
    section = ""
    for line in _read_text(path).split("\n"):
        while match := _SECTION.match(line):
            section, line = match[1].lower(), line[match.end() :]
        if match := _KEY.match(line):
            yield section, match[1].lower(), match[2].strip()


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_SETTINGS_BYTES).decode("utf-8-sig", "replace")
    except OSError:
        return ""


def _list_hooks(folder: Path) -> list[str]:
    """Return the names of the hooks that git would run."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if not entry.name.endswith(".sample"))
    except OSError:
        return []
    return [name for name in names if (folder / name).is_file() and os.access(folder / name, os.X_OK)]
