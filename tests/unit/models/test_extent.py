"""Which text gets which vector, as docs/decisions/009-embedders.md says."""

import pytest

from perdure.models.extent import extent


@pytest.mark.parametrize(
    ("author", "n", "expected"),
    [("person", 0, None), ("person", 9, None), ("agent", 0, 400), ("agent", 1, 0), ("machine", 0, 400),
     ("tool", 0, 400), ("tool", 7, 0)],
)  # fmt: skip
def test_by_author(author, n, expected):
    assert extent(author, n) == expected
