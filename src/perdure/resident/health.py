"""Whether the resident home does its work: when each part last proved it, and what is wrong if that is too long ago.

A part proves itself by real work (a write into the index, a search, a round of the keeper), never by being alive.
"""

from __future__ import annotations

import contextlib
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from perdure.capture import log

STALE_S = 40.0  # longer without a proof is wrong; with the watchdog's minute an alert comes within two
PARTS = {
    "keeper": "the thread that archives and indexes stands still",
    "write": "nothing could be written into the index",
    "read": "no search came back",
    "http": "the API answered nobody",
}
_ALWAYS = ("keeper", "write", "read")  # the others count from their first proof on


@dataclass
class Vitals:
    """The last proof of each part, in seconds of the monotonic clock. Threads write, any thread reads."""

    started_at: datetime
    proofs_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_ALWAYS, time.monotonic()))
    trouble: dict[str, str] = field(default_factory=dict)  # part -> code of its last failure since its last proof
    n_behind: int = 0  # runs that are archived and not yet indexed
    counts: Counter[str] = field(default_factory=Counter)  # since this process began

    def prove(self, part: str) -> None:
        """This part has just done real work."""
        self.proofs_s[part] = time.monotonic()
        self.trouble.pop(part, None)

    def ages_s(self) -> dict[str, float]:
        """Part -> seconds since its last proof."""
        now_s = time.monotonic()
        return {part: round(now_s - at_s, 1) for part, at_s in dict(self.proofs_s).items()}


def problems(
    ages_s: Mapping[str, float], trouble: Mapping[str, str], *, outbox_age_s: float, failing: str, stale_s: float
) -> list[str]:
    """What is wrong, in words; nothing when all is well. outbox_age_s: how long the oldest capture has waited.

    >>> problems({"keeper": 1, "write": 61, "read": 1}, {"write": "busy"}, outbox_age_s=0, failing="", stale_s=40)
    ['nothing could be written into the index for 61 s (busy)']
    """
    found = [
        f"{PARTS[part]} for {age_s:.0f} s" + (f" ({trouble[part]})" if part in trouble else "")
        for part, age_s in ages_s.items()
        if age_s > stale_s
    ]
    if outbox_age_s > stale_s:
        found.append(f"captures wait in the outbox for {outbox_age_s:.0f} s")
    if failing:
        found.append(f"recall fails ({failing})")
    return found


class Answered(msgspec.Struct, frozen=True):
    """An answer to an event of a client, as the log has it."""

    what: str
    at: str
    kind: str = ""
    outcome: str = ""
    took_ms: float = 0.0
    user: str | None = None  # None: an earlier version noted it
    why: str = ""  # recall was silent, or was not asked

    @property
    def is_silent(self) -> bool:
        """Whether recall had its say and said nothing; a floor may have been given."""
        return came_to(self.outcome, self.why) == "silent"

    @property
    def answered_at(self) -> datetime:
        """When."""
        return datetime.fromisoformat(self.at)


def answers(home: Path, user: str, *, since_at: datetime | None = None, is_admin: bool = False) -> Iterator[Answered]:
    """The answers to a user's messages (since then), oldest first. Those of which no user was noted count for who sees
    to the home.
    """
    for raw in log.lines(home, what="answered", since_at=since_at):
        try:
            line = _decoder.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
        if line.what == "answered" and line.kind == "prompt" and (line.user == user or (is_admin and not line.user)):
            yield line


_decoder = msgspec.json.Decoder(Answered)


def came_to(outcome: str, why: str) -> str:
    """What an answer came to for recall: one that gave a floor and said why it recalled nothing was silent.

    >>> came_to("injected", ""), came_to("injected", "nothing fits"), came_to("skipped", "a command")
    ('injected', 'silent', 'skipped')
    """
    return "silent" if outcome == "injected" and why else outcome


def summary(lines: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Answers to messages in numbers: how many came out how, and how long they took.

    lines: those of the log that say "answered". Silence is an outcome; a skipped message asked for nothing.
    """
    asked = [line for line in lines if line.get("kind") == "prompt"]
    took = sorted(float(line.get("took_ms", 0)) for line in asked if line.get("outcome") in ("injected", "silent"))
    outcomes = Counter(came_to(str(line.get("outcome")), str(line.get("why") or "")) for line in asked)
    return {"outcomes": dict(sorted(outcomes.items())), "p50_ms": rank(took, 0.5), "p95_ms": rank(took, 0.95)}


def rank(ordered: Sequence[float], share: float) -> float | None:
    """The value below which a share of them lies; None of none.

    >>> rank([1, 2, 3, 4], 0.5), rank([], 0.5)
    (2, None)
    """
    return ordered[min(len(ordered) - 1, max(0, round(share * len(ordered)) - 1))] if ordered else None


def allow_files(wanted: int = 65_536) -> None:
    """Let this process open as many files as it may, up to so many: every connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(ValueError, OSError):  # a system with a bound of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def rss_bytes() -> int:
    """Memory that this process holds now; at its most, where the system does not say."""
    try:
        n_pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return n_pages * resource.getpagesize()
