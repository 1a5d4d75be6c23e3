"""Where Perdure runs: which home, whose folder, which variables. The only reader of the environment.

Standard library only and cheap to import, because a hook needs it in every process.
"""

from __future__ import annotations

import os
from pathlib import Path


def home_path(explicit: str | Path | None = None) -> Path:
    """The home to use: the argument, else PERDURE_HOME, else ~/.perdure. It need not exist."""
    chosen = explicit or os.environ.get("PERDURE_HOME") or Path.home() / ".perdure"
    return Path(chosen).expanduser().absolute()


def environment(name: str) -> str | None:
    """An environment variable that a client or a shell defines (CODEX_HOME, NO_COLOR, …), or None."""
    return os.environ.get(name)


def user_home() -> Path:
    """The folder in which agents keep their transcripts by default."""
    return Path.home()
