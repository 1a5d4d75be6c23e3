"""Every address of the page: what the application serves, and what tests visit."""

from __future__ import annotations

from perdure.surfaces.page.views import (
    asking,
    care,
    diary,
    floor,
    forest,
    forgetting,
    growth,
    machines,
    memories,
    memory,
    overview,
    proposals,
    quality,
    reader,
    recall,
    search,
    sharing,
    use,
)
from perdure.surfaces.page.visits import View

TABLE: tuple[View, ...] = (
    *overview.ROWS,
    *search.ROWS,
    *forest.ROWS,
    *reader.ROWS,
    *forgetting.ROWS,
    *memories.ROWS,
    *memory.ROWS,
    *proposals.ROWS,
    *asking.ROWS,
    *recall.ROWS,
    *use.ROWS,
    *floor.ROWS,
    *diary.ROWS,
    *growth.ROWS,
    *quality.ROWS,
    *machines.ROWS,
    *sharing.ROWS,
    *care.ROWS,
)
