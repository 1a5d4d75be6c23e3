"""`/quality`: how well this Perdure remembers, by the questions that come with it, and whether it got better or worse.

What `perdure eval` measured is in the journal of the home's own user. It says nothing of anybody's own memory, so
whoever visits may see it. Measuring takes a process of its own: the one that serves goes on answering meanwhile.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perdure.capture import log
from perdure.errors import ModelFault
from perdure.eval.kept import MEASURES, SYSTEMS, Measured, measured, verdict
from perdure.home import Home
from perdure.index.measured import newest
from perdure.jobs.book import Book, Done, Envelope
from perdure.surfaces.page.charts import Chart, Drawn, Series, drawn
from perdure.surfaces.page.visits import Moved, Shown, View, Visit

JOB = "eval"
_LIMIT_S = 600.0  # so long may measuring take; about 10 s where nothing else runs
_COMPARED = ("R@5", "R@10", "MRR", "nDCG@10")  # of the rows of a category
_DRAWN = ("R@10", "nDCG@10")
_SHOWN_TIMES = 40
_READ_TIMES = 200  # so that most of those shown have one before them with the same questions


@dataclass(frozen=True, slots=True)
class Compared:
    """What one time was, beside the time before it with the same questions."""

    time: Measured
    than: str  # better, worse, the same; "" where there is nothing to compare with


def quality(visit: Visit) -> Shown:
    """The page."""
    times = compared(_times(visit.home))
    last = _latest(visit.home.path)
    values: dict[str, Any] = {
        "title": "Quality", "now_measuring": last is not None and last.result == "running",
        "failed": last.why if last is not None and last.result in ("failed", "interrupted") else "",
        "times": times[::-1][:_SHOWN_TIMES], "latest": times[-1].time if times else None,
    }  # fmt: skip
    if times:
        values |= {
            "sentence": sentence(times[-1]), "chart": chart(times), "systems": SYSTEMS, "measures": MEASURES,
            "compared": _COMPARED,
        }  # fmt: skip
    return Shown("quality.html", values)


def _times(home: Home) -> list[Measured]:
    user = home.config.user
    return measured(newest(home.index(create=True), user, home.journal(user).root, limit=_READ_TIMES))


def _latest(home: Path) -> Envelope | None:
    return Book(home).settle(JOB)


def compared(times: Sequence[Measured]) -> list[Compared]:
    """Each time beside the latest before it that asked the same questions."""
    found: list[Compared] = []
    before: dict[str, Measured] = {}
    for time in times:
        was = before.get(time.questions)
        found.append(Compared(time, verdict(was, time) if was else ""))
        before[time.questions] = time
    return found


def sentence(latest: Compared) -> str:
    """How well, and whether that is a change."""
    at = latest.time.figures["interval"]["R@10"]
    said = f"The first ten of recall hold {at['at']:.1%} of what answers a question"
    than = {
        "better": "; better than when it was measured before.",
        "worse": "; worse than when it was measured before.",
        "the same": "; what changed since it was measured before is within chance.",
    }
    return said + than.get(latest.than, ".")


def chart(times: Sequence[Compared]) -> Drawn | None:
    """The measures of recall over the times that asked the latest questions; None of fewer than two."""
    same = [one.time for one in times if one.time.questions == times[-1].time.questions][-_SHOWN_TIMES:]
    if len(same) < 2:
        return None
    series = tuple(Series(name, tuple(time.figures["systems"]["recall"][name] for time in same)) for name in _DRAWN)
    names = tuple(f"{time.at:%Y-%m-%d %H:%M}" for time in same)
    return drawn(Chart("Recall over time", names, series, lambda share: f"{share:.1%}", "lines", top=1.0))


def measure(visit: Visit) -> Moved:
    """Measure now, behind this answer."""
    home = visit.server.home
    visit.server.begin(JOB, lambda: _measure(home))
    return Moved("/quality", "Measuring has begun. This page follows how it ends.")


def _measure(home: Path) -> None:
    ended = Book(home).run(JOB, lambda: _measured(home), trigger="person", now=lambda: datetime.now(UTC))
    log.note(home, "job", job=JOB, result=ended.result, took_ms=ended.took_ms)


def _measured(home: Path) -> Done:
    """Measure in a process of its own, which notes what it found. Raises ModelFault where it fails."""
    words = [sys.executable, "-m", "perdure.surfaces.cli", "eval", "--home", str(home), "--json"]
    try:
        done = subprocess.run(words, capture_output=True, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise ModelFault(f"measuring took longer than {_LIMIT_S:.0f} s") from error
    if done.returncode:
        raise ModelFault(f"`perdure eval` ended with status {done.returncode}")
    return Done("measured on the questions that come with Perdure")


ROWS: tuple[View, ...] = (
    View("GET", "/quality", quality, nav="quality"),
    View("POST", "/quality/measure", measure, nav="quality", is_admin=True, desk="write"),
)
