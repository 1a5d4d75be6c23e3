"""Serve a home whose jobs go by the clock of a file, in which a test writes the time.

python clocked_home.py HOME CLOCK
"""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path

from perdure.home import open_home
from perdure.service.server import HomeServer, Intervals


def serve(home_path: Path, clock_path: Path) -> None:
    """Serve until killed; the clock is looked at every 0.1 s."""
    last_at = datetime.fromisoformat(clock_path.read_text())

    def read_clock() -> datetime:
        nonlocal last_at
        if text := clock_path.read_text():  # it may just be written
            last_at = datetime.fromisoformat(text)
        return last_at

    with open_home(home_path) as home:
        HomeServer(home, intervals=Intervals(tick_s=0.1), now=read_clock).run()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), Path(sys.argv[2]))
