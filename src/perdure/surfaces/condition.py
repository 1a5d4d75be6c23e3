"""What condition a home is in, and what to do about it: the checks that the doctor and the page share.

They read what is there and change nothing; none of them waits for a lock, a model or another process.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw

from perdure import live
from perdure.capture import failures, log, outbox
from perdure.errors import PerdureError
from perdure.home import Home
from perdure.index import catchup, store
from perdure.resident import health
from perdure.surfaces.amounts import plural, size
from perdure.surfaces.checks import LOW_DISK_BYTES, Check
from perdure.surfaces.moments import ago

_DISK = {
    "runs": "archive/runs",
    "packs": "archive/packs",
    "journal": "archive/journal",
    "index": "index-*.db*",
    "vectors": "vectors",
    "cache": "cache",
}


def examined(examine: Callable[[Home], Iterator[Check]], home: Home) -> list[Check]:
    """The checks of one kind; what raises is a check that failed."""
    try:
        return list(examine(home))
    except (PerdureError, OSError, apsw.Error) as error:
        return [Check(examine.__name__.strip("_").replace("_", " "), "problem", str(error), "see `perdure verify`")]


def disk(home: Path) -> dict[str, int]:
    """Part of a home -> its bytes on disk. Every file is looked at, which takes as long as there are many."""
    return {name: _bytes(home, pattern) for name, pattern in _DISK.items()}


def _bytes(home: Path, pattern: str) -> int:
    """Bytes on disk of a folder, or of the files that match."""
    tops = list(home.glob(pattern))
    found = [path for top in tops for path in (top.rglob("*") if top.is_dir() else [top])]
    return sum(path.stat().st_blocks * 512 for path in found if path.is_file())


def place(home: Home) -> Iterator[Check]:
    """Whether it can be written, and how much room there is."""
    yield Check(
        "home", "ok" if home.writable else "problem", f"{home.path}{'' if home.writable else ' cannot be written'}"
    )
    yield from room(home)


def room(home: Home) -> Iterator[Check]:
    """How much of its disk is free."""
    free = shutil.disk_usage(home.path).free
    low = free < LOW_DISK_BYTES
    yield Check("disk", "problem" if low else "ok", f"{size(free)} free", "free some space" if low else "")


def index(home: Home) -> Iterator[Check]:
    """How far the index is behind the archive."""
    if store.current(home.path) is None and home.archive.ledger.last_change() == 0:
        yield Check("index", "ok", "none yet; the first import makes it")
        return
    n_behind = catchup.behind(home.index(), home.archive)
    state = f"{plural(n_behind, 'run')} behind" if n_behind else "up to date"
    yield Check("index", "notice" if n_behind else "ok", state, "`perdure search` catches up" if n_behind else "")


def waiting(home: Home) -> Iterator[Check]:
    """What was captured and is not archived."""
    state, limits = outbox.backlog(home.path / "outbox"), home.config.capture
    age_s = (datetime.now(UTC) - state.oldest_at).total_seconds() if state.oldest_at else 0
    stuck = state.n_bytes > limits.outbox_alarm_bytes or age_s > limits.outbox_alarm_age_s
    advice = "`perdure import` moves it into the archive; if it stays, look at the disk" if stuck else ""
    yield Check("outbox", "problem" if stuck else "ok", f"{plural(state.n_files, 'capture')} waiting", advice)
    unreadable = list((home.path / "outbox").glob("*.unreadable"))
    if unreadable:
        yield Check(
            "outbox", "problem", f"{plural(len(unreadable), 'capture')} cannot be read", f"look at {unreadable[0]}"
        )


def resident(home: Home, state: Mapping[str, Any] | None) -> Iterator[Check]:
    """What the resident home says of itself."""
    if state is None:
        advice = "`perdure serve` answers hooks faster, and runs the jobs; `perdure service install` starts it at login"
        yield Check("resident home", "notice", "none is running", advice)
    elif state["problems"]:
        advice = f"look at {log.path_of(home.path)}; `perdure serve --stop` and start it again"
        yield Check("resident home", "problem", "; ".join(state["problems"]), advice)
    else:
        ages = ", ".join(f"{part} {age_s:.0f} s ago" for part, age_s in state["proven_s_ago"].items())
        yield Check("resident home", "ok", f"process {state['pid']} works ({ages})")


def answers(home: Home) -> Iterator[Check]:
    """Recall beside messages, by the log of the last day."""
    since_at = datetime.now(UTC) - timedelta(days=1)
    found = health.summary(log.read(home.path, what="answered", since_at=since_at))
    failed = [str(line.get("code")) for line in log.read(home.path, what="failed", since_at=since_at)]
    failing = live.failing(home.path)
    said = ", ".join(f"{n} {outcome}" for outcome, n in found["outcomes"].items()) or "none in the last day"
    if found["p95_ms"] is not None:
        said += f"; half within {found['p50_ms']:.0f} ms, 95 % within {found['p95_ms']:.0f} ms"
    if failing or failed:
        why = f"; {plural(len(failed), 'failure')}, the last: {failed[-1] if failed else failing}"
        yield Check("recall", "problem" if failing else "notice", said + why, f"see {log.path_of(home.path)}")
    else:
        yield Check("recall", "ok", said)


def freshness(home: Home) -> Iterator[Check]:
    """When something was last captured."""
    rows = home.archive.ledger.db.execute("SELECT max(captured_s) FROM run").fetchall()
    newest = rows[0][0]
    if not newest:
        yield Check("captures", "notice", "nothing has been captured yet", "run `perdure import`")
        return
    at = datetime.fromtimestamp(int(newest), UTC)
    yield Check("captures", "ok", f"the last {ago(at, datetime.now(UTC))}")


def mining(home: Home) -> Iterator[Check]:
    """What mining cannot get past; nothing where no model is set for it."""
    from perdure.mind.mine import MAX_TRIES
    from perdure.mind.tries import Tries

    if not home.config.models.roles.miner.provider:
        return
    n_stuck = Tries(home.path).stuck(MAX_TRIES)
    said = f"{n_stuck} times ten messages failed {MAX_TRIES} times" if n_stuck else "nothing failed for good"
    yield Check(
        "mining", "notice" if n_stuck else "ok", said, "`perdure mine --again` tries once more" if n_stuck else ""
    )


def hook_failures(home: Home) -> Iterator[Check]:
    """What hooks noted of their failures."""
    since = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    recent = [item for item in failures.recorded(home.path) if str(item.get("at")) >= since]
    lasting = failures.lasting(home.path)
    if not recent and not lasting:
        return
    kinds = Counter(f"{item.get('stage')}: {item.get('error')}" for item in recent)
    said = ", ".join(f"{n} times {kind}" for kind, n in kinds.most_common(3)) or "none in the last day"
    still = f"; still failing: {', '.join(lasting)}" if lasting else "; none since"
    advice = f"see {home.path / 'run' / 'hook-failures.jsonl'}; nothing is lost: the next event catches up"
    yield Check("hook failures", "problem" if lasting else "notice", said + still, advice)


_LIGHT = (room, index, waiting, answers, freshness, mining, hook_failures)


def lightly(home: Home) -> list[Check]:
    """What can be said of a home that is only read, but for what the resident home says of itself."""
    return [check for examine in _LIGHT for check in examined(examine, home)]
