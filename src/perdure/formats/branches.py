"""Sessions that are trees: which entries lie on branches that were left. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def abandoned(links: Sequence[tuple[str, str | None]]) -> frozenset[str]:
    """Return the ids that are not on the way from the last entry to its root.

    links: (entry id, parent id) of every entry of the session, in the order of the file. A parent that is not
    among them ends the way. Of an id that occurs twice the later link counts.

    >>> sorted(abandoned([("a", None), ("b", "a"), ("c", "a")]))
    ['b']
    """
    parents = dict(links)
    live = set()
    at = links[-1][0] if links else None
    while at is not None and at in parents and at not in live:
        live.add(at)
        at = parents[at]
    return frozenset(parents) - live
