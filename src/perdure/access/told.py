"""What a person was told of what the scanner kept from a model: each text once, whatever process or session met it.

`run/told-<user>.json` holds names of texts (digests) and where they stand, never their words; what one user was told no
other counts as told. It is a cache: without it a person is told once more.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from perdure.disk import make_folder, replace_file
from perdure.errors import PerdureError

DIGEST_CHARS = 8  # shown of a text's digest: enough to identify it
_MOST = 2000  # the newest names that are kept


def untold(home: Path, user: str, found: Iterable[str]) -> list[str]:
    """The names among these that nobody was told of."""
    known = places(home, user)
    return [name for name in found if name not in known]


def mark(home: Path, user: str, fresh: Mapping[str, str]) -> None:
    """Count names as told from now on. fresh: name -> where it stands."""
    if not fresh:
        return
    kept = dict([*places(home, user).items(), *fresh.items()][-_MOST:])
    with contextlib.suppress(OSError, PerdureError):  # an unwritable home shows them again
        make_folder(file_of(home, user).parent)
        replace_file(file_of(home, user), json.dumps(kept).encode(), sync=False)


def lines(fresh: Sequence[str]) -> list[str]:
    """What a person is told of alerts, in one line; none where there are none."""
    more = f" (and {len(fresh) - 1} more)" if len(fresh) > 1 else ""
    return [f"Perdure: {fresh[0]}{more}. `perdure floor alerts` lists what is kept from models."] if fresh else []


def places(home: Path, user: str) -> dict[str, str]:
    """Name of a text -> where it stood when somebody was told of it, oldest first."""
    try:
        found = json.loads(file_of(home, user).read_bytes())
    except (OSError, ValueError):
        return {}
    known = found if isinstance(found, dict) else {}
    return {str(name): str(where) for name, where in known.items() if " " not in str(name)}  # names were once words


def file_of(home: Path, user: str) -> Path:
    """Where it is kept what a user was told."""
    return home / "run" / f"told-{user}.json"
