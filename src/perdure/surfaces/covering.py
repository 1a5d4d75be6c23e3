"""How much a grant covers, for who looks at it."""

from __future__ import annotations

from perdure.authority.grants import Given
from perdure.errors import IndexFault, NotFound
from perdure.home import Home


def n_covered(home: Home, given: Given) -> int | None:
    """How many runs it covers now: none where its run was erased, None where there is no index to ask."""
    try:
        return home.n_covered(given.grant)
    except NotFound:
        return 0
    except IndexFault:
        return None
