"""Measurements: each script prints its figures beside a limit or a baseline of the same run, and writes JSON."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the rig: worlds, scripted models and processes
