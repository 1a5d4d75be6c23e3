"""Make sure that every wheel and sdist carries the pinned weights of the embedders; without them no build ends well.

A released sdist has them. In a checkout git ignores them: the hook lets `tools/build_weights.py` make them, with numpy
and pip, which are asked for only then: docs/decisions/029-where-the-weights-come-from.md.
"""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def has_pinned_weights(root: Path) -> bool:
    """Return True if each file that weights.json names is there with its hash."""
    pins = root / "src/perdure/models/weights.json"
    return all(
        path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == pin["sha256"]
        for path, pin in ((pins.with_suffix("") / name, pin) for name, pin in json.loads(pins.read_bytes()).items())
    )


class WeightsHook(BuildHookInterface[Any]):
    """The hook that hatchling calls for a wheel, an sdist and an editable install."""

    def dependencies(self) -> list[str]:
        """Return the packages that this build needs beside hatchling."""
        return [] if has_pinned_weights(Path(self.root)) else ["numpy>=2.1", "pip"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's
        """Make the weights if they are missing; exit with the one line that the tool prints if that is impossible."""
        if not has_pinned_weights(Path(self.root)):
            made = subprocess.run([sys.executable, str(Path(self.root) / "tools/build_weights.py")], check=False)
            if made.returncode:
                raise SystemExit(made.returncode)
