"""The environment of this process: which home, which folder of the user, which variables, which time zone. Nothing
else touches it.

Standard library only and cheap to import, because a hook needs it in every process.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path


def find_home_path(explicit: str | Path | None = None) -> Path:
    """Return the home to use: the argument, else PERDURE_HOME, else ~/.perdure. It need not exist."""
    path = explicit or os.environ.get("PERDURE_HOME") or Path.home() / ".perdure"
    return Path(path).expanduser().absolute()


def read_variable(name: str) -> str | None:
    """Return an environment variable that a client or a shell defines (CODEX_HOME, NO_COLOR, …), or None."""
    return os.environ.get(name)


def forbid_reports() -> None:
    """Forbid onnxruntime, before it is loaded, to report this machine to its maker.

    Since 1.31 it keeps a device id and a queue of events in the user's cache, and sends them to Microsoft.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"


# Set in the commands that an agent runs: by Perdure's own, and by those clients as they are known in November 2026.
AGENT_MARKERS = (
    "PERDURE_AGENT", "CLAUDECODE", "CODEX_THREAD_ID", "CODEX_SANDBOX", "CODEX_SANDBOX_NETWORK_DISABLED", "GEMINI_CLI",
    "OPENCODE", "CURSOR_AGENT",
)  # fmt: skip


def find_agent_marker() -> str:
    """Return the variable that says that an agent runs this process, or "". An agent can remove it."""
    return next((name for name in AGENT_MARKERS if os.environ.get(name)), "")


def find_user_home() -> Path:
    """Return the folder in which agents keep their transcripts by default."""
    return Path.home()


_SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "AUTH")


def copy_variables(*, keep: Collection[str] = ()) -> dict[str, str]:
    """Return the variables that a command of a model gets: all but those whose names look like secrets.

    keep: names that are given anyhow.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name in keep or not any(word in name.upper() for word in _SECRET_WORDS)
    }


class LocalZone(tzinfo):
    """This machine's time zone, with the days on which its clocks change. `astimezone()` alone gives the offset of one
    moment, by which what ran in summer ran an hour earlier once the clocks are put back, and would be due again.
    """

    def utcoffset(self, at: datetime | None) -> timedelta | None:
        """Return the offset at a moment of this zone."""
        return at.replace(tzinfo=None).astimezone().utcoffset() if at else None

    def tzname(self, at: datetime | None) -> str | None:
        """Return the name of the offset."""
        return at.replace(tzinfo=None).astimezone().tzname() if at else None

    def dst(self, at: datetime | None) -> timedelta | None:  # noqa: ARG002 - nobody asks
        """Return None: it is not known which part of the offset is for summer."""
        return None

    def fromutc(self, at: datetime) -> datetime:
        """Return a moment in this zone; of an hour that comes twice it says which."""
        return datetime.fromtimestamp(at.replace(tzinfo=UTC).timestamp()).replace(tzinfo=self)


LOCAL_ZONE = LocalZone()


def local_now() -> datetime:
    """Return this moment in the machine's time zone."""
    return datetime.now(LOCAL_ZONE)
