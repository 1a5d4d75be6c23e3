"""Regular expressions that are compiled when they are first used.

Compiling one takes 0.1 to 3 ms, and a process that answers one question uses few of those that its modules hold.
"""

from __future__ import annotations

import re
from typing import Any, cast


class _Late:
    """Stands for a pattern until it is asked to find something; then it hands on the pattern's own methods."""

    def __init__(self, expression: str | bytes, flags: int) -> None:
        self._expression = expression
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        """Only asked for what is not there yet: what it returns is kept, so that the next use costs nothing more."""
        found = getattr(re.compile(self._expression, self._flags), name)
        setattr(self, name, found)
        return found


def late(expression: str, flags: int = 0) -> re.Pattern[str]:
    """A pattern to be used by its methods (`search`, `sub`, …). An error in it is raised by its first use.

    >>> late("[0-9]+").findall("2 of 10")
    ['2', '10']
    """
    return cast("re.Pattern[str]", _Late(expression, flags))
