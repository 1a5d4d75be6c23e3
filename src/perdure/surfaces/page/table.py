"""Every address of the page: what the application serves, and what tests visit."""

from __future__ import annotations

from perdure.surfaces.page.views import asking, diary, floor, memories, overview, proposals, recall, use
from perdure.surfaces.page.visits import View

TABLE: tuple[View, ...] = (
    *overview.ROWS,
    *memories.ROWS,
    *proposals.ROWS,
    *recall.ROWS,
    *use.ROWS,
    *floor.ROWS,
    *diary.ROWS,
    *asking.ROWS,
)
