"""Every address of the page: what the application serves, and what tests visit."""

from __future__ import annotations

from perdure.surfaces.page.views import diary, floor, memories, memory, overview, proposals
from perdure.surfaces.page.visits import View

TABLE: tuple[View, ...] = (*overview.ROWS, *memories.ROWS, *memory.ROWS, *proposals.ROWS, *floor.ROWS, *diary.ROWS)
