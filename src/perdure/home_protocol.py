"""What a home answers, wherever it is: `perdure.open()` gives one of this machine, `perdure.connect()` one of another.

`tests/contract/test_home.py` asks both the same questions and compares the answers.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from perdure.types import Filters, Live, Memory, MemoryKind, Recalled, SearchResult

if TYPE_CHECKING:  # 30 ms; only a context needs it
    from perdure.context import Context


class HomeProtocol(Protocol):
    """One home, opened for one user."""

    user: str

    def search(
        self,
        query: str,
        *,
        filters: Filters | None = None,
        limit: int = 20,
        mode: str | None = None,
    ) -> SearchResult:
        """Return the turns that match, best first."""

    def recall(
        self,
        message: str,
        *,
        now: datetime | None = None,
        cwd: str | None = None,
        all_projects: bool = False,
        mode: str | None = None,
        explain: bool = False,
        as_of: datetime | None = None,
    ) -> Recalled:
        """Return the few turns and memories that matter for a message."""

    def context(
        self,
        message: str,
        *,
        cwd: str | None = None,
        platform: str = "api",
        session: Live | None = None,
        now: datetime | None = None,
        mode: str | None = None,
    ) -> Context:
        """Return the context of one message for any model."""

    def remember(
        self, text: str, *, kind: MemoryKind = "fact", path: str = "", cwd: str | None = None, **more: Any
    ) -> Memory:
        """Store a memory; if the current one says the same, reinforce it."""

    def close(self) -> None:
        """Release every file and connection."""
