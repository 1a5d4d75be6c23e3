"""The check of a memory's path: a pseudo-hierarchy such as `user/preferences/editor`, never a place on a disk. Pure.

A path keeps the spelling it was given; two are the same when their `folded` forms are.
"""

from __future__ import annotations

import unicodedata

from perdure.errors import UsageError
from perdure.patterns import late

MAX_PATH_BYTES = 256  # in UTF-8; a file name on common file systems has at most 255, should an export use it as one
_CONTROL = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))  # also what turns or hides text: U+202E, U+200B
_DRIVE = late(r"[A-Za-z]:")


def checked(path: str) -> str:
    """Return the path without its optional `.md` suffix, or raise UsageError that says what to change.

    >>> checked("user/preferences/editor.md")
    'user/preferences/editor'
    """
    fault = _fault(path)
    if fault:
        raise UsageError(f"the memory path {_shown(path)} {fault}")
    return path[:-3] if path.lower().endswith(".md") else path


def checked_project(project: str | None) -> str | None:
    """Return the project of a memory as it is, or raise UsageError where it is longer than a path may be."""
    if project is not None and len(project.encode("utf-8", "surrogatepass")) > MAX_PATH_BYTES:
        raise UsageError(f"the project {_shown(project)} is longer than {MAX_PATH_BYTES} bytes: name a folder above it")
    return project


def folded(path: str) -> str:
    """Return the form in which paths are compared: composed and without case.

    >>> folded("User/Café") == folded("user/cafe\\u0301")
    True
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def is_everywhere(path: str, kind: str) -> bool:
    """Whether a memory belongs to no project unless one is named: it is about the person, not about the work.

    >>> is_everywhere("user/name", "fact"), is_everywhere("staging-server/port", "fact")
    (True, False)
    """
    return kind == "preference" or folded(path).startswith("user/")


def _fault(path: str) -> str:
    """Return what is wrong with a path and what to do about it; empty when nothing is."""
    if any(unicodedata.category(c) in _CONTROL for c in path):
        return "holds a control character: write it with letters, digits, - and /"
    if len(path.encode()) > MAX_PATH_BYTES:
        return f"is longer than {MAX_PATH_BYTES} bytes: shorten it"
    if path.startswith("/") or "\\" in path or _DRIVE.match(path):
        return "looks like a place on a disk: write it relative, with / between its parts, e.g. user/preferences/editor"
    parts = (path[:-3] if path.lower().endswith(".md") else path).split("/")
    if any(part.strip() in ("", ".", "..") for part in parts):
        return "has an empty part, . or ..: name every part, e.g. user/preferences/editor"
    if any(part != part.strip() for part in parts):
        return "has a space at the edge of a part: remove it"
    return ""


def _shown(path: str) -> str:
    """Return a path as an error may show it: quoted, nothing in it acts on a terminal, never long."""
    return ascii(path if len(path) <= 80 else path[:79] + "…")
