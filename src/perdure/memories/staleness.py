"""Tell which files and versions that a memory names have changed since it was stated.

Only files below the memory's project on this disk count, by the time of their last change. Files that a checkout wrote
at once with the repository do not: a new clone gives each file a new time. A file that is gone is not counted, because
nothing here knows that it was ever there.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from perdure.regex import lazy_re

_MAX_CHARS, _MAX_NAMES = 4_000, 40  # of a memory's text, and of the names in it that are looked up
_MAX_BYTES = 1 << 18  # a larger list of dependencies is not read
_SAME_TIME_S = 1.0  # a home keeps times less finely than a disk
_CHECKOUT_S = 600  # files written this soon after the repository belong to its checkout
_LISTS_OF_VERSIONS = (
    "pyproject.toml", "requirements.txt", "setup.cfg", "package.json", "Cargo.toml", "go.mod", ".tool-versions",
)  # fmt: skip
_AROUND = "`'\"“”‘’«»()[]{}<>,;:!?*"
_LINE_NUMBER = lazy_re(r"(?::\d+){1,2}$")
_VERSION = lazy_re(r"(?<![\w./-])([A-Za-z][\w./-]{1,60}?)(?:[ \t]{1,3}|==|@|~=|>=)v?(\d{1,5}(?:\.\d{1,5}){1,3})\b")

_LISTED_VERSION = (  # the name at any place of a line, an operator, a version: `"react": "^18.2"`, `numpy>=2,<3`
    r"(?im)^[^#\n]{{0,200}}?(?<![\w.-]){name}[\"']?[ \t]{{0,9}}[:=@~^<>]{{0,3}}[ \t]{{0,9}}[\"']?[~^<>=]{{0,2}}[ \t]?"
    r"v?(\d{{1,5}}(?:\.\d{{1,5}}){{0,3}})"
)


def describe_changes(words: str, project: str | None, stated_at: datetime | None) -> str:
    """Return what has changed of the files and versions in a memory's words since it was stated, "" if nothing has.

    project: its folder; without one, or where it lies on another machine, nobody can tell.
    """
    if not project or not project.startswith("/") or "\0" in project or stated_at is None:
        return ""
    folder, words = Path(project), words[:_MAX_CHARS]
    since = max(stated_at.timestamp() + _SAME_TIME_S, _find_checkout_time(folder))
    changed_at = [instant for name in _list_names(words) if (instant := _find_change(folder, name)) is not None]
    n_changed = sum(instant > since for instant in changed_at)
    parts = [_format_files(n_changed, len(changed_at))] if n_changed else []
    return "; ".join([*parts, *_list_new_versions(folder, words, since)])


def _format_files(n_changed: int, n_files: int) -> str:
    if n_files == 1:
        return "its file has changed since"
    return f"{n_changed} of its {n_files} files {'has' if n_changed == 1 else 'have'} changed since"


def _list_names(words: str) -> list[str]:
    """Return the words that may name a file: those with a dot or a slash inside, without marks and line numbers."""
    names = (_LINE_NUMBER.sub("", word.lstrip(_AROUND).rstrip(_AROUND + ".")) for word in words.split())
    return list(dict.fromkeys(name for name in names if "." in name.strip("./") or "/" in name.strip("/")))[:_MAX_NAMES]


def _find_change(project: Path, name: str) -> float | None:
    """Return when a file below the project was changed, in seconds; None for every other path."""
    path = Path(name)
    if path.is_absolute():
        path = path.relative_to(project) if path.is_relative_to(project) else Path("..")
    if ".." in path.parts:
        return None
    try:
        state = (project / path).lstat()
    except (OSError, ValueError):  # not there, or no name that a disk can hold
        return None
    return state.st_mtime if stat.S_ISREG(state.st_mode) else None


def _find_checkout_time(project: Path) -> float:
    """Return until when a file's time may be that of its checkout; 0.0 outside a repository.

    Git writes `description` once, when it makes the repository.
    """
    try:
        return (project / ".git" / "description").lstat().st_mtime + _CHECKOUT_S
    except OSError:
        return 0.0


def _list_new_versions(project: Path, words: str, since: float) -> Iterator[str]:
    """Yield "pyproject.toml has numpy 2.1 now" for each version in the text that a list of the project is ahead of."""
    stated = {name.lower(): version for name, version in _VERSION.findall(words)}
    for file_name in _LISTS_OF_VERSIONS if stated else ():
        if (_find_change(project, file_name) or 0.0) <= since:
            continue
        with (project / file_name).open("rb") as file:
            listed = file.read(_MAX_BYTES).decode("utf-8", "replace")
        for name, version in stated.items():
            found = re.search(_LISTED_VERSION.format(name=re.escape(name)), listed)
            if found and _is_ahead(found[1], version):
                yield f"{file_name} has {name} {found[1]} now"


def _is_ahead(listed: str, stated: str) -> bool:
    """Return whether a listed version is newer than the stated one, as far as both say it."""
    new, old = ([int(number) for number in version.split(".")] for version in (listed, stated))
    return new[: len(old)] > old[: len(new)]
