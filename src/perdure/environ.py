"""The environment of this process: which home, which folder of the user, which variables. Its only reader.

Standard library only and cheap to import, because a hook needs it in every process.
"""

from __future__ import annotations

import os
from pathlib import Path


def find_home_path(explicit: str | Path | None = None) -> Path:
    """Return the home to use: the argument, else PERDURE_HOME, else ~/.perdure. It need not exist."""
    path = explicit or os.environ.get("PERDURE_HOME") or Path.home() / ".perdure"
    return Path(path).expanduser().absolute()


def read_variable(name: str) -> str | None:
    """Return an environment variable that a client or a shell defines (CODEX_HOME, NO_COLOR, …), or None."""
    return os.environ.get(name)


def find_user_home() -> Path:
    """Return the folder in which agents keep their transcripts by default."""
    return Path.home()
