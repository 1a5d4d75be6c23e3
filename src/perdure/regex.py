"""Regular expressions that are compiled when they are first used.

Compiling one takes 0.1 to 3 ms, and a process that answers one question uses few of those in its modules.
"""

from __future__ import annotations

import re
from typing import Any, cast


class _LazyPattern:
    """A pattern that is compiled at its first use; then it gives out the methods of the real pattern."""

    def __init__(self, expression: str | bytes, flags: int) -> None:
        self._expression = expression
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        """Return a method of the compiled pattern; it is kept here, so that the next use costs nothing more."""
        method = getattr(re.compile(self._expression, self._flags), name)
        setattr(self, name, method)
        return method


def lazy_re(expression: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern to be used by its methods (`search`, `sub`, …). Its first use raises any error in it.

    >>> lazy_re("[0-9]+").findall("2 of 10")
    ['2', '10']
    """
    return cast("re.Pattern[str]", _LazyPattern(expression, flags))
