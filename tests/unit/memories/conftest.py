"""The memories of one owner over a journal and an index in a folder, with a clock that a test moves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.access.scan import scan
from perdure.memories.store import Memories
from rig.floor import Clock
from rig.index_rows import START, ArchiveFile


class MemoryBox(ArchiveFile):
    """An archive, an index that follows it, and the memories of its users."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.clock = Clock(START)
        self.tombstones = None

    def open(self, user: str = "ada", agent: str = "default") -> Memories:
        return Memories(
            user, agent, self.get_journal(user), lambda: self.index, lambda: self.follow(user) and None,
            lambda: self.tombstones, self.clock, scan, lambda _: (),
        )  # fmt: skip


@pytest.fixture
def box(tmp_path: Path) -> Iterator[MemoryBox]:
    memory_box = MemoryBox(tmp_path)
    yield memory_box
    memory_box.close()


@pytest.fixture
def memories(box: MemoryBox) -> Memories:
    return box.open()
