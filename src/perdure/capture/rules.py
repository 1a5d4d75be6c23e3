"""What a capture must know of the settings: who, where, what never, how long. Standard library only.

`config` is the reader of config.toml; what it said is kept as a line of JSON in the home's cache, with the marks by
which a change is noticed, so that a hook does not parse the settings in every process. Derived: delete it at will.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from perdure.capture.files import make_folder, replace
from perdure.environ import environment, user_home

if TYPE_CHECKING:
    from perdure.config import Config

_FORMAT = 4
_NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME")  # variables from which the operating-system user is told


class Remote(NamedTuple):
    """Where a machine that keeps nothing itself sends what it captures."""

    url: str = ""  # "" on a machine that keeps its own home
    ca: str = ""  # path of a certificate authority
    plain: bool = False  # http:// may reach beyond this machine


class Rules(NamedTuple):
    """Who captures here, and what is never captured."""

    home: Path
    user: str
    machine: str
    exclude: tuple[str, ...]  # glob patterns of folders
    user_home: Path
    limit_ms: int  # a hook ends after so long
    asked_for: tuple[str, ...] = ("person",)  # whose prompts are recalled for: person, agent (a sub-agent's), machine
    remote: Remote = Remote()
    agent: str = "default"  # whose mind the runtimes here are
    alarm_bytes: int = 256_000_000  # more than this waiting in the outbox is reported
    alarm_age_s: int = 24 * 3600  # so is anything that waited longer


def read(home: Path) -> Rules:
    """The rules of a home: as they were read last, unless config.toml or who we are has changed since.

    Raises ConfigFault.
    """
    place, marks = home / "cache" / "hooks.json", _marks(home)
    try:
        kept = json.loads(place.read_bytes())
        if kept["marks"] == marks:
            return _rules(home, kept)
    except (OSError, ValueError, KeyError, TypeError):
        pass  # none yet, or none of ours: it is made anew
    made = _load(home)
    kept = {"marks": marks, "user": made.user, "machine": made.machine, "limit_ms": made.limit_ms}
    kept |= {"exclude": list(made.exclude), "asked_for": list(made.asked_for), "remote": list(made.remote)}
    kept |= {"agent": made.agent, "alarm_bytes": made.alarm_bytes, "alarm_age_s": made.alarm_age_s}
    make_folder(place.parent)
    replace(place, json.dumps(kept).encode(), sync=False)
    return made


def of(home: Path, config: Config, *, user: str, user_home: Path) -> Rules:
    """The rules that these settings make."""
    live = config.live
    whose = (("person", True), ("agent", live.subagents), ("machine", live.machine_turns))
    asked_for = tuple(name for name, is_on in whose if is_on and (live.recall or live.floor))
    capture, remote = config.capture, Remote(config.remote.url, config.remote.ca, config.remote.plain)
    return Rules(
        home, user, config.machine, capture.exclude, user_home, config.hooks.limit_ms, asked_for, remote, config.agent,
        capture.outbox_alarm_bytes, capture.outbox_alarm_age_s,
    )  # fmt: skip


def _rules(home: Path, kept: dict[str, Any]) -> Rules:
    exclude, asked_for = tuple(kept["exclude"]), tuple(kept["asked_for"])
    more = Remote(*kept["remote"]), kept["agent"], kept["alarm_bytes"], kept["alarm_age_s"]
    return Rules(home, kept["user"], kept["machine"], exclude, user_home(), kept["limit_ms"], asked_for, *more)


def _marks(home: Path) -> list[Any]:
    """What must be as it was for the kept rules to hold."""
    try:
        found = (home / "config.toml").stat()
        file = [found.st_mtime_ns, found.st_size, found.st_ino]
    except FileNotFoundError:
        file = []
    return [_FORMAT, file, os.uname().nodename, os.getuid(), *map(environment, _NAMES)]


def _load(home: Path) -> Rules:
    from perdure import config  # tomllib and dataclasses: a hook pays for them once, not each time

    found = config.load(home)
    return of(home, found, user=found.user, user_home=user_home())
