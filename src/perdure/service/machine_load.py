"""How busy this machine is: processor, memory, disk. Standard library only; a value that is unknown is left out."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

SAMPLE_S = 0.5  # between the two looks at the processor
_STAT, _MEMORY = Path("/proc/stat"), Path("/proc/meminfo")


def measure_machine(folder: Path, *, sample_s: float = SAMPLE_S) -> dict[str, float]:
    """Return the share of the processors that was busy, the load of a minute, and bytes of memory and of the disk that
    holds a folder.
    """
    values: dict[str, float] = {}
    with contextlib.suppress(OSError, ValueError):
        busy, total = _read_times(_STAT.read_text())
        time.sleep(sample_s)
        busy_later, total_later = _read_times(_STAT.read_text())
        values["cpu_busy"] = round((busy_later - busy) / max(1, total_later - total), 3)
    with contextlib.suppress(OSError, AttributeError):
        values["load"] = round(os.getloadavg()[0], 2)
    with contextlib.suppress(OSError, ValueError, KeyError):
        memory = read_memory(_MEMORY.read_text())
        values["memory_bytes"] = memory["MemTotal"]
        values["memory_free_bytes"] = memory["MemAvailable"]
    with contextlib.suppress(OSError):
        usage = shutil.disk_usage(folder)
        values["disk_bytes"], values["disk_free_bytes"] = usage.total, usage.free
    return values


def _read_times(stat: str) -> tuple[int, int]:
    """Return (busy, all) ticks of the processors since the start.

    >>> _read_times("cpu  10 0 5 80 5 0 0 0 0 0\\ncpu0 1 2 3")
    (15, 100)
    """
    ticks = [int(word) for word in stat.splitlines()[0].split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def read_memory(meminfo: str) -> dict[str, int]:
    """Return the bytes of each line of /proc/meminfo.

    >>> read_memory("MemTotal:  8 kB")
    {'MemTotal': 8192}
    """
    lines = (line.split() for line in meminfo.splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if len(words) == 3}
