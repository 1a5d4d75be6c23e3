"""A module that only a home needs: loaded at its first use; without it the error says that this is the client."""

from __future__ import annotations

import subprocess
import sys

import pytest

from perdure.errors import ClientOnly
from perdure.lazy_module import LazyModule, is_installed


def test_module_is_imported_at_its_first_use() -> None:
    code = "import sys; from perdure.lazy_module import LazyModule as L; m = L('colorsys'); assert 'colorsys' not in "
    code += "sys.modules; assert m.rgb_to_hsv(0, 0, 0) == (0, 0, 0); assert 'colorsys' in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_missing_module_says_that_this_is_the_client() -> None:
    with pytest.raises(ClientOnly, match="A home of yours needs `perdure`"):
        _ = LazyModule("no_such_module_here").anything
    with pytest.raises(ClientOnly):
        _ = LazyModule("no_such_module_here.below").anything


def test_name_that_the_module_lacks_stays_an_error() -> None:
    with pytest.raises(AttributeError):
        _ = LazyModule("json").no_such_name


def test_installed_packages_are_known() -> None:
    assert is_installed("json") and not is_installed("no_such_module_here")
