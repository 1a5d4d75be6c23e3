"""The files of the package and their trees, each parsed once in a process."""

import importlib.util
from pathlib import Path

import perdure

ROOT = Path(__file__).parents[2]
PACKAGE = Path(perdure.__file__).parent
_SPEC = importlib.util.spec_from_file_location("measure_house", ROOT / "tools" / "measure_house.py")
assert _SPEC and _SPEC.loader
measure = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(measure)
parse = measure.parse
