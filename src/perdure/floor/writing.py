"""What writing a page from what was said needs of a home, and how one process does it at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from perdure.capture.files import locked
from perdure.errors import Busy
from perdure.floor.floor import Floor
from perdure.floor.heard import Ear
from perdure.floor.questions import Limits
from perdure.models.chat import Chat

T = TypeVar("T")


@dataclass(frozen=True)
class Writing:
    """What it needs."""

    home: Path
    floor: Floor
    ear: Ear
    chat: Callable[[], Chat | None]  # the summariser; None: by rules
    follow: Callable[[], int]  # bring the index up to date; how many captures it lacks after that
    limits: Limits
    now: Callable[[], datetime]

    def alone(self, job: str, work: Callable[[], T], kept: Callable[[str], T]) -> T:
        """What the work returns, done by no other process meanwhile and with all captures indexed; where that cannot be
        had, `kept` with the reason.
        """
        lock = self.home / f".{job}.lock"
        try:
            with locked(lock, wait_s=0):
                return kept("another process is still bringing the index up to date") if self.follow() else work()
        except Busy as error:
            if error.detail != str(lock):
                raise
            return kept("another process is at it")
