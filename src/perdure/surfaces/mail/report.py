"""How the mail of a home is: a file that the answering process writes, and `doctor` reads. Derived; nobody's text."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from perdure import disk


class MailReport(msgspec.Struct, frozen=True):
    """The last that is known."""

    pid: int
    at: datetime  # of the last look for mail
    problem: str = ""


def write_report(home: Path, problem: str = "") -> None:
    """Write the report of this process."""
    disk.make_folder(home / "run")
    report = MailReport(os.getpid(), datetime.now(UTC), problem)
    disk.replace_file(home / "run" / "mail.json", msgspec.json.encode(report), sync=False)


def read_report(home: Path) -> MailReport | None:
    """Return the last report; None if no mail was ever answered here."""
    try:
        return msgspec.json.decode((home / "run" / "mail.json").read_bytes(), type=MailReport)
    except (OSError, msgspec.MsgspecError):
        return None
