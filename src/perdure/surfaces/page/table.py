"""Every address of the page: what the application serves, and what tests visit."""

from __future__ import annotations

from perdure.surfaces.page.views import diary, floor, overview
from perdure.surfaces.page.visits import View

TABLE: tuple[View, ...] = (*overview.ROWS, *floor.ROWS, *diary.ROWS)
