"""Where recall looks: the project at hand and what belongs to none; others when they are named. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from perdure.types import Filters, Live

UNSCOPED = ""  # the project of what has none
_MIN_CHARS = 3  # of a project's name that counts as one when it stands in a message


def scope(
    message: str, *, here: str | None, projects: Iterable[str], everywhere: bool, held: Collection[Live] = ()
) -> Filters:
    """What may be recalled. here: the project at hand, None when there is none: then nothing is left out.

    projects: all that are known, by their paths.

    >>> scope("as in tidepool", here="/w/web", projects=["/w/web", "/w/tidepool", "/w/bank"], everywhere=False).projects
    ('/w/tidepool', '/w/web', '')
    """
    if everywhere or here is None:
        return Filters(held=tuple(held))
    named = sorted(path for path in projects if path not in ("", here) and _is_named(path, message))
    return Filters(projects=(*named, here, UNSCOPED), held=tuple(held))


def _is_named(path: str, message: str) -> bool:
    """Whether the last part of a project's path stands in the message as a word of its own."""
    name = path.rstrip("/").rpartition("/")[2]
    if len(name) < _MIN_CHARS:
        return False
    return re.search(rf"(?<![\w/.-]){re.escape(name)}(?![\w-])", message, re.IGNORECASE) is not None
