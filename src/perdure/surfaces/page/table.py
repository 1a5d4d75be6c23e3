"""Every address of the page: what the application serves, and what tests visit."""

from __future__ import annotations

from perdure.surfaces.page.views import care, diary, floor, growth, machines, overview, quality, sharing
from perdure.surfaces.page.visits import View

TABLE: tuple[View, ...] = (
    *overview.ROWS,
    *floor.ROWS,
    *diary.ROWS,
    *machines.ROWS,
    *sharing.ROWS,
    *care.ROWS,
    *growth.ROWS,
    *quality.ROWS,
)
