"""Sessions that are trees: find the entries on abandoned branches. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def find_abandoned(links: Sequence[tuple[str, str | None]]) -> frozenset[str]:
    """Return the ids that are not on the path from the last entry to its root.

    links: (entry id, parent id) of every entry of the session, in file order. A parent that is not among them
    ends the path. If an id occurs twice, the later link counts.

    >>> sorted(find_abandoned([("a", None), ("b", "a"), ("c", "a")]))
    ['b']
    """
    parents = dict(links)
    live_ids = set()
    entry_id = links[-1][0] if links else None
    while entry_id is not None and entry_id in parents and entry_id not in live_ids:
        live_ids.add(entry_id)
        entry_id = parents[entry_id]
    return frozenset(parents) - live_ids
