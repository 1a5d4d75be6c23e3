"""How the bot of a home is: a file that the polling process writes, and `doctor` reads. Derived; nobody's text."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from perdure import disk


class BotReport(msgspec.Struct, frozen=True):
    """The last that is known of the bot."""

    name: str  # without its @; "" if Telegram never said it
    pid: int
    at: datetime  # of the last answer to a poll, or of the problem
    problem: str = ""


def get_report_path(home: Path) -> Path:
    """Return the path of the report."""
    return home / "run" / "telegram.json"


def write_report(home: Path, name: str, problem: str = "") -> None:
    """Write the report of this process."""
    disk.make_folder(home / "run")
    report = BotReport(name, os.getpid(), datetime.now(UTC), problem)
    disk.replace_file(get_report_path(home), msgspec.json.encode(report), sync=False)


def read_report(home: Path) -> BotReport | None:
    """Return the last report; None if no bot ever ran here."""
    try:
        return msgspec.json.decode(get_report_path(home).read_bytes(), type=BotReport)
    except (OSError, msgspec.MsgspecError):
        return None
