"""Which text gets which vector, as docs/decisions/009-embedders.md says."""

import pytest

from perdure.index.encoding import count_embedded_chars


@pytest.mark.parametrize(
    ("author", "n", "expected"),
    [("person", 0, None), ("person", 9, None), ("agent", 0, 400), ("agent", 1, 0), ("machine", 0, 400),
     ("tool", 0, 400), ("tool", 7, 0)],
)  # fmt: skip
def test_extent_depends_on_the_author(author, n, expected):
    assert count_embedded_chars(author, n) == expected
