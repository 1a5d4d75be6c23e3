"""Work that one process of a home does at a time, whichever it is: the clock, the archive's store.

Each worker process tries to take the lock of a role; the kernel frees it with its holder, and the next one goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from perdure import log
from perdure.disk import lock_file, make_folder
from perdure.errors import Busy, PerdureError

_LOOK_S = 1.0


def hold_role(
    home: Path, name: str, run: Callable[[threading.Event], None], stop_event: threading.Event
) -> None:  # fmt: skip
    """Call `run` while this process holds the role, until stopped."""
    make_folder(home / "run" / "workers")
    while not stop_event.is_set():
        try:
            with lock_file(home / "run" / "workers" / f"role-{name}", wait_s=0):
                run(stop_event)
        except Busy:
            pass
        except (PerdureError, OSError) as error:
            code = str(getattr(error, "code", type(error).__name__))
            log.append_entry(home, "failed", client="worker", kind=name, code=code)
        stop_event.wait(_LOOK_S)
