"""Which text gets which vector, as docs/decisions/009-embedders.md says."""

import pytest

from perdure.models.extent import extent


@pytest.mark.parametrize(
    ("kind", "n", "expected"),
    [("text", 0, None), ("text", 9, None), ("thinking", 2, None), ("call", 0, 400), ("call", 1, 0),
     ("result", 0, 400), ("result", 5, 0)],
)  # fmt: skip
def test_by_kind(kind, n, expected):
    assert extent(kind, n) == expected
    assert extent(kind, n, is_cheap=True) is None
