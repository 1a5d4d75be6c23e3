"""Which files a tool call read or wrote, and which skill it invoked, told from its name and input. Pure.

Only what the input says outright counts: a search over a folder touches no file, and a shell command counts
when it is one plain command that prints files. A skill counts when it is invoked or its SKILL.md is read.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from perdure.regex import lazy_re

MAX_PATH_CHARS = 4096  # PATH_MAX on Linux
MAX_NAME_CHARS = 100
_PATH_KEYS = frozenset(("file_path", "path", "notebook_path", "filePath", "absolute_path", "paths", "file_paths"))
_PATCH_KEYS = ("patch", "input", "patchText")
_KINDS = (
    ("skill", lazy_re(r"skill|activate_skill")),
    ("shell", lazy_re(r"bash|shell|exec_command|local_shell|run_shell_command|container\.exec|powershell")),
    ("read", lazy_re(r"read|view|read_file|read_many_files|cat|open_file")),
    ("search", lazy_re(r"glob|ls|find|list(_dir|_directory)?|(file_|code|grep_)?search|search_file_content|r?grep|rg")),
)
_PATCHED = lazy_re(r"^\*\*\* (?:Add File|Update File|Delete File|Move to): (.+?)\s*$", re.M)
_PRINTS = lazy_re(r"""(?:cat|head|tail|nl|sed -n)((?:\s+(?:'[^'\n]*'|"[^"$`\n]*"|[\w./~@%+,:=-]+))+)\s*""")
_WORD = lazy_re(r"""'[^'\n]*'|"[^"\n]*"|\S+""")
_SKILL_FILE = lazy_re(r"skills[/\\]([^/\\\s]{1,100})[/\\]SKILL\.md")


def touched(name: str, given: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (files, skills) of one call, in order, possibly repeating.

    given: the call's input, decoded: an object, or a string for tools that take free text.
    """
    if isinstance(given, str):
        return _patched(given), ()
    if not isinstance(given, dict):
        return (), ()
    kind = _kind(name[:MAX_NAME_CHARS])
    if kind == "skill":
        return (), _skill_name(given)
    if kind == "shell":
        return _of_shell(given)
    if kind == "search":
        return (), ()
    files = _named(given)
    for key in _PATCH_KEYS:
        if key in given:
            files += _patched(given[key])
    return files, _skills_read(files) if kind == "read" else ()


@lru_cache(maxsize=1024)
def _kind(name: str) -> str:
    """Return what a tool of this name does: skill, shell, search, read or other."""
    tool = name.lower()
    return next((kind for kind, names in _KINDS if names.fullmatch(tool)), "other")


def _of_shell(given: dict[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (files, skills) of a shell command given as text or as an argument vector."""
    command = given.get("command", given.get("cmd"))
    if isinstance(command, list):
        command = command[-1] if command else ""
    if not isinstance(command, str):
        return (), ()
    if "*** Begin Patch" in command:
        return _patched(command), ()
    files = _printed(command) if len(command) <= MAX_PATH_CHARS else ()
    return files, _skills_read(files)


def _printed(command: str) -> tuple[str, ...]:
    """Return the files of one plain cat, head, tail, nl or `sed -n`; none when anything else is in it.

    >>> _printed("sed -n '1,240p' src/a.py")
    ('src/a.py',)
    """
    match = _PRINTS.fullmatch(command)
    if match is None:
        return ()
    plain = [word.strip("'\"") for word in _WORD.findall(match[1]) if not word.startswith("-")]
    if command.startswith("sed"):
        plain = plain[1:]  # the script
    return tuple(word for word in plain if word and not word.isdecimal())


def _named(given: dict[str, Any]) -> tuple[str, ...]:
    """Return the values of the keys that name files."""
    found: tuple[str, ...] = ()
    for key, value in given.items():
        if key in _PATH_KEYS:
            found += tuple(filter(_is_path, value)) if isinstance(value, list) else (value,) if _is_path(value) else ()
    return found


def _is_path(value: Any) -> bool:
    """Say whether a value can be a path."""
    return isinstance(value, str) and 0 < len(value) <= MAX_PATH_CHARS and value.isprintable()


def _patched(text: Any) -> tuple[str, ...]:
    """Return the files that an apply_patch body changes."""
    return tuple(_PATCHED.findall(text)) if isinstance(text, str) and "*** " in text else ()


def _skills_read(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the skills whose SKILL.md is among these paths."""
    return tuple(name for path in paths for name in _SKILL_FILE.findall(path)) if paths else ()


def _skill_name(given: dict[str, Any]) -> tuple[str, ...]:
    """Return the skill that a skill tool was asked for, without a leading slash."""
    for key in ("skill", "name", "command"):
        if isinstance(value := given.get(key), str) and 0 < len(value) <= MAX_NAME_CHARS:
            return (value.lstrip("/"),)
    return ()
