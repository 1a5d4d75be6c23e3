"""The examples in the docstrings of all modules are true."""

import doctest
import importlib
from pathlib import Path

import pytest

import perdure

ROOT = Path(perdure.__file__).parent
MODULES = sorted(
    ".".join(("perdure", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for path in ROOT.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_docstrings_are_true(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:  # an extra that is not installed
        assert not str(error.name).startswith("perdure")
        pytest.skip(f"{error.name} is not installed")
    assert doctest.testmod(module).failed == 0
