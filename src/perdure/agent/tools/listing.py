"""Find files by name: those that git knows or does not ignore, or all where there is no repository."""

from __future__ import annotations

import fnmatch
import os
import re
import stat
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from perdure.agent.folders import ProjectFolders
from perdure.agent.tools.output import take_first
from perdure.errors import ToolError
from perdure.models.chat import ToolSpec
from perdure.session.calls import Tool, ToolOutput

GIT_S = 20  # the time that git has to list a repository
MAX_FILES = 200_000
MAX_ALTERNATIVES = 100  # that the braces of a pattern stand for


def build_tool(folders: ProjectFolders) -> Tool:
    """Return the tool glob."""
    spec = ToolSpec(
        "glob",
        "List files by a pattern of names: `*.py` in any folder, `src/**/test_*.py`. What git ignores is left out.",
        {
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "minLength": 1},
                "path": {"type": "string", "description": "the folder to look in (default: the project)"},
            },
            "required": ["pattern"],
            "additionalProperties": False,
        },
    )
    return Tool(spec, lambda given, _: glob_files(folders, given))


def glob_files(folders: ProjectFolders, given: Mapping[str, Any]) -> ToolOutput:
    """Return the paths of the files whose names match, in order of their paths."""
    folder = folders.check(given.get("path") or ".")
    if not folder.is_dir():
        raise ToolError(f"{folders.show(folder)} is no folder")
    expression = compile_pattern(given["pattern"])
    paths = (path for path in list_files(folders, folder) if expression.matches(path))
    shown = (folders.show(folder / path) for path in paths)
    cut = take_first(sorted(shown))
    if not cut.lines:
        return ToolOutput(f"No file matches {given['pattern']!r} in {given.get('path') or 'the project'}.")
    note = ["", "[There are more files: use a narrower pattern, or a path.]"] if cut.is_cut else []
    return ToolOutput("\n".join([*cut.lines, *note]))


def list_files(folders: ProjectFolders, folder: Path) -> Iterator[str]:
    """Yield the plain files of a folder, with paths relative to it; none of the home, none of git's own."""
    n_files = 0
    for path in _list_with_git(folders, folder) or _walk(folder):
        target = folder / path
        try:
            status = target.lstat()
            if stat.S_ISLNK(status.st_mode):
                target = Path(os.path.realpath(target))
                status = target.lstat()
        except OSError:
            continue  # git lists deleted files, too
        if stat.S_ISREG(status.st_mode) and folders.find_zone(target) in ("project", "read-only"):
            n_files += 1
            if n_files > MAX_FILES:
                raise ToolError(f"more than {MAX_FILES:,} files: give a path")
            yield path


def _list_with_git(folders: ProjectFolders, folder: Path) -> list[str]:
    """Return what git lists; empty where there is no repository, or no git."""
    git = folders.find_program("git")
    if git is None:
        return []
    arguments = [git, "-C", str(folder), "-c", "core.fsmonitor=false", "ls-files", "-z", "--cached", "--others"]
    try:
        listing = subprocess.run(
            [*arguments, "--exclude-standard"],
            capture_output=True,
            timeout=GIT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [os.fsdecode(raw) for raw in dict.fromkeys(listing.stdout.split(b"\0")) if raw]


def _walk(folder: Path) -> Iterator[str]:
    for parent, folder_names, names in os.walk(folder):
        folder_names[:] = sorted(name for name in folder_names if name != ".git")
        prefix = os.path.relpath(parent, folder)
        yield from (name if prefix == "." else f"{prefix}/{name}" for name in sorted(names))


def compile_pattern(pattern: str) -> PathPattern:
    """Return the expression of a pattern; without a slash it matches names in any folder. Raises ToolError.

    >>> compile_pattern("*.py").matches("a/b.py"), compile_pattern("a/*.{py,pyi}").matches("a/b/c.py")
    (True, False)
    """
    pattern = pattern.removeprefix("./")
    pattern = pattern if "/" in pattern else f"**/{pattern}"
    return PathPattern([_compile_parts(alternative) for alternative in _expand_braces(pattern)])


class PathPattern:
    """A pattern for paths, whose time grows with the length of path and pattern only: a model writes both."""

    def __init__(self, alternatives: list[list[re.Pattern[str] | None]]) -> None:
        """alternatives: for each the expressions of its parts; None is `**`, any number of folders."""
        self._alternatives = alternatives

    def matches(self, path: str) -> bool:
        """Return True for a path that the pattern means."""
        names = path.split("/")
        return any(_match_parts(parts, names) for parts in self._alternatives)


def _compile_parts(pattern: str) -> list[re.Pattern[str] | None]:
    parts = pattern.split("/")
    parts += ["*"] if parts[-1] == "**" else []
    return [None if part == "**" else re.compile(fnmatch.translate(part.replace("[^", "[!"))) for part in parts]


def _match_parts(parts: list[re.Pattern[str] | None], names: list[str]) -> bool:
    n_matched = {0}  # how many names the parts so far may stand for
    for part in parts:
        if not n_matched:
            return False
        if part is None:
            n_matched = set(range(min(n_matched), len(names) + 1))
        else:
            n_matched = {n + 1 for n in n_matched if n < len(names) and part.match(names[n])}
    return len(names) in n_matched


def _expand_braces(pattern: str) -> list[str]:
    """Return a pattern for each combination of the alternatives in braces. Raises ToolError for very many."""
    patterns = [""]
    for part in re.split(r"(\{[^{}/]*\})", pattern):
        choices = part[1:-1].split(",") if part.startswith("{") and part.endswith("}") else [part]
        patterns = [begin + choice for begin in patterns for choice in choices]
        if len(patterns) > MAX_ALTERNATIVES:
            raise ToolError(f"the pattern has more than {MAX_ALTERNATIVES} alternatives: use fewer braces")
    return patterns
