"""End a process with all that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress

GRACE_S = 0.5  # between the request to end and the end


def end_process(process: subprocess.Popen[bytes]) -> None:
    """End the process group of a process that leads one: first politely, then at once."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        deadline_s = time.monotonic() + GRACE_S
        while number == signal.SIGTERM and time.monotonic() < deadline_s and _has_members(process):
            time.sleep(0.01)
    with suppress(subprocess.TimeoutExpired):
        process.wait(5)


def _has_members(process: subprocess.Popen[bytes]) -> bool:
    process.poll()
    try:
        os.killpg(process.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
