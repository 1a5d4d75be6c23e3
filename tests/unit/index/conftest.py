"""An index for the tests of this slice."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rig.index_rows import IndexFile


@pytest.fixture
def file(tmp_path: Path) -> Iterator[IndexFile]:
    """An empty index with its journals."""
    index_file = IndexFile(tmp_path)
    yield index_file
    index_file.close()
