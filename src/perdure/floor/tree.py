"""A tree of texts under names, with the folders that hold them: what the files of an agent are. Pure.

Nothing here is a place on a disk. A path is relative to the root, its parts joined by `/`; the root itself is "". A
folder stays when its last text goes, as on a disk. What cannot be on a disk (a text and a folder of one name, as two
homes may have made them) does not trouble it: both are there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def parents(path: str) -> Iterator[str]:
    """The folders above a path, without the root.

    >>> list(parents("a/b/c.md"))
    ['a', 'a/b']
    """
    parts = path.split("/")[:-1]
    return ("/".join(parts[:n]) for n in range(1, len(parts) + 1))


def is_within(path: str, folder: str) -> bool:
    """Whether a path is this folder, or below it.

    >>> is_within("a/b", "a"), is_within("ab", "a"), is_within("a", "")
    (True, False, True)
    """
    return not folder or path == folder or path.startswith(f"{folder}/")


def within(paths: Iterable[str], folder: str) -> list[str]:
    """Those of some paths that are this one, or below it."""
    return [path for path in paths if is_within(path, folder)]


def put(texts: dict[str, T], folders: set[str], path: str, value: T) -> None:
    """Let there be something at a path, and the folders above it."""
    texts[path] = value
    folders.update(parents(path))


def remove(texts: dict[str, T], folders: set[str], path: str) -> None:
    """Take away what is at a path and below it."""
    for name in within(texts, path):
        del texts[name]
    folders.difference_update(within(folders, path))


def move(texts: dict[str, T], folders: set[str], path: str, to: str) -> None:
    """Give what is at a path and below it another path."""
    moved = {name: texts.pop(name) for name in within(texts, path)}
    below = within(folders, path)
    folders.difference_update(below)
    texts |= {to + name[len(path) :]: value for name, value in moved.items()}
    folders.update(to + name[len(path) :] for name in below)
    if moved or below:
        folders.update(parents(to))


def children(paths: Collection[str], folder: str) -> list[str]:
    """The names right below a folder.

    >>> children(["a", "a/b", "a/b/c", "ab"], "a")
    ['b']
    """
    lead = f"{folder}/" if folder else ""
    return [path[len(lead) :] for path in paths if path.startswith(lead) and "/" not in path[len(lead) :]]
