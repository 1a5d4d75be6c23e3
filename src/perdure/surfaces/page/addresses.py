"""What stands in an address: no more than a page can cost, and no name that may not be shown. Pure.

A name of a project, a tag, a machine … stands in addresses and forms as it is where all of it may be shown, and by a
key that says nothing of it where not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from starlette.datastructures import QueryParams

from perdure.errors import UsageError
from perdure.surfaces.page.render import KEY, clean, key, shown

MOST_CHARS = 1_000  # of one value
MOST_VALUES = 20  # of one name
MOST_PLACES = 100_000_000  # of a list that is leafed through
MOST_TOGETHER = 12_000  # characters of all, as they are written in an address: every link of a page repeats them


def faults(query: QueryParams) -> dict[str, str]:
    """Name -> what is wrong with what the address says of it; "" -> with all together.

    >>> faults(QueryParams([("tag", "x")] * 21)), faults(QueryParams([("tag", "x")] * 20))
    ({'tag': 'at most 20 at once'}, {})
    """
    said = Counter(name for name, _ in query.multi_items())
    wrong = {name: f"at most {MOST_VALUES} at once" for name, n in said.items() if n > MOST_VALUES}
    long = [name for name, value in query.multi_items() if len(value) > MOST_CHARS]
    wrong |= dict.fromkeys(long, f"at most {MOST_CHARS:,} characters")
    if len(str(query)) > MOST_TOGETHER:
        wrong[""] = f"at most {MOST_TOGETHER:,} characters together"
    return wrong


def check(query: QueryParams) -> None:
    """Raise UsageError for an address that says more than a page may cost."""
    for name, why in faults(query).items():
        raise UsageError(f"{clean(name[:20]) or 'this address'}: {why}")


def place(said: str, most: int = MOST_PLACES) -> int:
    """The place in a list from which an address asks for more; "" is its beginning. Raises UsageError.

    >>> place(""), place("40")
    (0, 40)
    """
    if said and not (said.isascii() and said.isdecimal() and len(said) < len(str(MOST_PLACES)) and int(said) < most):
        raise UsageError(f"the list has no place {said[:9]!r}: ask for its first page again")
    return int(said or 0)


def named(said: str, known: Callable[[], Iterable[str]]) -> str:
    """The name that an address means: one of these by its key, or what it says. known: is asked for a key alone."""
    return next((name for name in known() if key(name) == said), said) if said.startswith(KEY) else said


def options(names: Iterable[str]) -> list[tuple[str, str]]:
    """(value, label) of each name, for a form."""
    return [(key(name), shown(name)) for name in names]
