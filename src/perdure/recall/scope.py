"""Where recall looks: the project at hand and what belongs to none; others when they are named. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace

from perdure.types import Filters, Live

SAID = Filters(  # words and deeds of people and agents, and what was made of them
    roles=("user", "assistant", "memory"), kinds=("text", "call", "memory"), memories=True
)
UNSCOPED = ""  # the project of what has none
_MIN_CHARS = 3  # of a project's name that counts as one when it stands in a message


def scope(
    message: str, *, here: str | None, projects: Iterable[str], everywhere: bool, held: Collection[Live] = ()
) -> Filters:
    """What may be recalled. here: the project at hand, None when there is none: then nothing is left out.

    projects: all that are known, by their paths. What tools answered, thoughts and what no person typed are for
    `search`: long and many, they would take every place.

    >>> scope("as in tidepool", here="/w/web", projects=["/w/web", "/w/tidepool", "/w/bank"], everywhere=False).projects
    ('/w/tidepool', '/w/web', '')
    """
    if everywhere or here is None:
        return replace(SAID, held=tuple(held))
    named = sorted(path for path in projects if path not in ("", here) and _is_named(path, message))
    return replace(SAID, projects=(*named, here, UNSCOPED), held=tuple(held))


def _is_named(path: str, message: str) -> bool:
    """Whether the last part of a project's path stands in the message as a word of its own."""
    name = path.rstrip("/").rpartition("/")[2]
    if len(name) < _MIN_CHARS:
        return False
    return re.search(rf"(?<![\w/.-]){re.escape(name)}(?![\w-])", message, re.IGNORECASE) is not None
