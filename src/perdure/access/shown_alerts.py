"""Record which scanner alerts a person was shown: each text once, whatever process or session met it.

`run/told-<user>.json` holds digests of texts and their locations, never their words; one user's record
does not count for another. It is a cache: without it, a person is shown the alerts once more.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from perdure.disk import make_folder, replace_file
from perdure.errors import PerdureError

DIGEST_CHARS = 8  # shown of a text's digest: enough to identify it
_MAX_NAMES = 2000  # the newest names that are kept


def list_unshown(home: Path, user: str, names: Iterable[str]) -> list[str]:
    """Return the names among these that were not shown yet."""
    shown_names = read_shown(home, user)
    return [name for name in names if name not in shown_names]


def mark_shown(home: Path, user: str, new_alerts: Mapping[str, str]) -> None:
    """Record names as shown from now on. new_alerts: name -> location."""
    if not new_alerts:
        return
    newest = dict([*read_shown(home, user).items(), *new_alerts.items()][-_MAX_NAMES:])
    with contextlib.suppress(OSError, PerdureError):  # an unwritable home shows them again
        make_folder(get_file(home, user).parent)
        replace_file(get_file(home, user), json.dumps(newest).encode(), sync=False)


def format_alerts(new_alerts: Sequence[str]) -> list[str]:
    """Return the message about alerts, as one line; empty if there are none."""
    suffix = f" (and {len(new_alerts) - 1} more)" if len(new_alerts) > 1 else ""
    return (
        [f"Perdure: {new_alerts[0]}{suffix}. `perdure floor alerts` lists the texts that are left out."]
        if new_alerts
        else []
    )


def read_shown(home: Path, user: str) -> dict[str, str]:
    """Return name of a text -> its location when it was shown, oldest first."""
    try:
        content = json.loads(get_file(home, user).read_bytes())
    except (OSError, ValueError):
        return {}
    shown = content if isinstance(content, dict) else {}
    return {
        str(name): str(location) for name, location in shown.items() if " " not in str(name)
    }  # names were once words


def get_file(home: Path, user: str) -> Path:
    """Return the path of a user's record."""
    return home / "run" / f"told-{user}.json"
