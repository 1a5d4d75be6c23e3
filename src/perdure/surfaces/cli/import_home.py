"""The home that an import from elsewhere uses: a preview makes none, and a new one can be searched at once."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from perdure.errors import HomeMissing
from perdure.surfaces.cli.common import Shell

if TYPE_CHECKING:
    from perdure.home import Home


@contextmanager
def open_import_home(shell: Shell, *, is_applied: bool) -> Iterator[Home]:
    """Open the home of an import. Without a home, a preview compares with an empty one, which is removed after it."""
    from perdure.home import open_home

    try:
        home = shell.open_home()
    except HomeMissing:
        if is_applied:
            with shell.open_home(create=True) as new_home:
                new_home.upkeep.catch_up()  # the import may fail, and a home without an index cannot be searched
                yield new_home
        else:
            with tempfile.TemporaryDirectory(prefix="perdure-") as folder, open_home(folder) as empty_home:
                yield empty_home
        return
    with home:
        yield home
