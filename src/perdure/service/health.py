"""The health of the resident home: when each part last proved that it works, and what is wrong.

A part proves itself by real work (a write into the index, a search, an ingest round), never by being
alive.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import resource
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from perdure import disk, log
from perdure.config import ArchiveConfig, IndexConfig
from perdure.errors import ArchiveFault
from perdure.home import Home

GONE_S = 600.0  # a proxy whose process ended without a word is a problem so long
STALE_S = 40.0  # longest time without a proof; with the watchdog's minute, an alert comes within two
PARTS = {
    "keeper": "the thread that archives and indexes is stuck",
    "write": "the index could not be written",
    "read": "a search did not return",
    "http": "the API does not answer",
}
_M_ARENA_MAX = -8  # of mallopt, in glibc's malloc.h
_PROBE = "perdure health probe"
_PROVEN_FROM_START = ("keeper", "write", "read")  # the others count from their first proof on


class ProxyReport(msgspec.Struct, frozen=True):
    """The state of a proxy, as it reports it itself. Counts are since it began."""

    address: str  # without its secret
    pid: int
    since_at: str
    n_requests: int
    n_edited: int  # that went on with a block, a new one or that of an old message
    n_failed_open: int  # that went on without a new block, because recall failed or was slow
    n_slow: int  # of these, the ones that recall was slow for
    has_ended: bool = False


@dataclass
class HealthState:
    """The last proof of each part, in seconds of the monotonic clock. Threads write, any thread reads."""

    started_at: datetime
    proofs_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_PROVEN_FROM_START, time.monotonic()))
    failure_codes: dict[str, str] = field(default_factory=dict)  # part -> code of its last failure since its last proof
    n_behind: int = 0  # runs that are archived and not yet indexed
    counts: Counter[str] = field(default_factory=Counter)  # since this process began
    proxies: dict[str, tuple[float, ProxyReport]] = field(default_factory=dict)  # address → (when it reported, report)

    def record_proxy(self, report: ProxyReport) -> None:
        """Record the report of a proxy: it answered a request just now, or has ended."""
        self.proxies[report.address] = (time.monotonic(), report)
        if report.has_ended:
            del self.proxies[report.address]

    def list_proxies(self) -> list[dict[str, Any]]:
        """List the last report of each proxy, with its age; not of one whose process ended long ago."""
        now_s = time.monotonic()
        reports = [
            (at_s, report)
            for _, (at_s, report) in sorted(self.proxies.copy().items())
            if now_s - at_s < GONE_S or _is_alive(report.pid)
        ]
        return [{**msgspec.to_builtins(report), "proven_s_ago": round(now_s - at_s, 1)} for at_s, report in reports]

    def record_proof(self, part: str) -> None:
        """Record that this part has just done real work."""
        self.proofs_s[part] = time.monotonic()
        self.failure_codes.pop(part, None)

    def measure_ages_s(self) -> dict[str, float]:
        """Return the seconds since the last proof of each part."""
        now_s = time.monotonic()
        return {part: round(now_s - at_s, 1) for part, at_s in dict(self.proofs_s).items()}


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def list_problems(
    ages_s: Mapping[str, float],
    failure_codes: Mapping[str, str],
    *,
    outbox_age_s: float,
    failure_code: str,
    stale_s: float,
    proxies: Iterable[Mapping[str, Any]] = (),
) -> list[str]:
    """List what is wrong, in words; nothing if all is well. outbox_age_s: how long the oldest capture has waited.

    proxies: as `HealthState.list_proxies` gives them.

    >>> ages_s = {"keeper": 1, "write": 61, "read": 1}
    >>> list_problems(ages_s, {"write": "busy"}, outbox_age_s=0, failure_code="", stale_s=40)
    ['the index could not be written for 61 s (busy)']
    """
    problems = [
        f"{PARTS[part]} for {age_s:.0f} s" + (f" ({failure_codes[part]})" if part in failure_codes else "")
        for part, age_s in ages_s.items()
        if age_s > stale_s
    ]
    if outbox_age_s > stale_s:
        problems.append(f"captures wait in the outbox for {outbox_age_s:.0f} s")
    if failure_code:
        problems.append(f"recall fails ({failure_code})")
    problems += [
        f"the proxy at {proxy['address']} (process {proxy['pid']}) has not answered for {proxy['proven_s_ago']:.0f} s"
        for proxy in proxies
        if proxy["proven_s_ago"] > stale_s
    ]
    return problems


def run_probe(home: Home) -> float:
    """Prove that the whole way works: write, archive, index, search and forget in a scratch home on the same disk.

    Return the seconds it took; raise what fails.
    """
    started_s = time.monotonic()
    folder = home.path / "cache" / f"probe-{threading.get_ident()}"
    try:
        disk.make_folder(folder)
        # nothing of it leaves this disk
        config = home.config._replace(index=IndexConfig(), archive=ArchiveConfig())
        with Home(folder, config, home.principal, writable=True) as scratch:
            message = {"role": "user", "content": _PROBE, "timestamp": datetime.now(UTC).isoformat()}
            scratch.capture(msgspec.json.encode(message) + b"\n", runtime="messages", session="probe")
            hits = scratch.search(_PROBE).hits
            if len(hits) != 1 or not scratch.forgetting.apply(scratch.forgetting.plan([hits[0].turn_id])):
                raise ArchiveFault("the written data was not found")
            if scratch.search(_PROBE).hits or not scratch.upkeep.verify().ok:
                raise ArchiveFault("the forgotten data was found again")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return time.monotonic() - started_s


def raise_file_limit(max_files: int = 65_536) -> None:
    """Let this process open as many files as it may, up to this number: every connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    new_limit = max_files if hard == resource.RLIM_INFINITY else min(max_files, hard)
    if soft != resource.RLIM_INFINITY and soft < new_limit:
        with contextlib.suppress(ValueError, OSError):  # the system has another limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (new_limit, hard))


def share_memory_arenas(n_arenas: int = 2) -> None:
    """Let all threads allocate from so many arenas (glibc): each one that is begun keeps some memory."""
    with contextlib.suppress(OSError, AttributeError):  # another C library: it has no such arenas
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, n_arenas)


def read_rss_bytes() -> int:
    """Return the memory that this process holds now, or its peak if the system does not say."""
    try:
        n_pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        peak_size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak_size if sys.platform == "darwin" else peak_size * 1024
    return n_pages * resource.getpagesize()


def count_deaths(home: Path, *, since_at: datetime) -> int:
    """Count the resident homes since a moment that ended without saying so, and after which another one began.

    A service manager starts it again at once, so that nobody would know otherwise.
    """
    entries = sorted(
        (datetime.fromisoformat(entry["at"]), entry["what"])
        for entry_type in ("serving", "stopped")
        for entry in log.read_entries(home, entry_type=entry_type)
    )
    pairs = itertools.pairwise(entries)
    return sum(at >= since_at and before == kind == "serving" for (_, before), (at, kind) in pairs)
