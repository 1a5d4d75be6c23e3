"""What a home holds of its owner, in as few words as another home needs to see what it lacks.

A run is told from other states of it by its metadata, which names the hash of its bytes and what was forgotten of it;
a file of the journal by its length and hash. Files of a journal only grow, but for what is forgotten in them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from perdure.archive import metadata
from perdure.archive.archive import Archive
from perdure.archive.stage import is_lines_name
from perdure.errors import DamagedRun
from perdure.types import Run

_STATE_CHARS = 32


class Lines(NamedTuple):
    """A file of a journal, to its last whole line."""

    n_bytes: int
    sha256: str


class Entry(NamedTuple):
    """A run."""

    state: str  # of its metadata: 32 hex digits of their sha256
    n_bytes: int  # as captured


def entry(run: Run) -> Entry:
    """How a run stands in an inventory."""
    return Entry(hashlib.sha256(metadata.encode(run)).hexdigest()[:_STATE_CHARS], run.n_bytes)


def runs(archive: Archive, user: str) -> dict[str, Entry]:
    """Every run of a user, by id. One whose metadata cannot be read counts as lacking: the other home may have it."""
    found = {}
    for held in sorted(archive.ledger.all(user), key=lambda held: (held.packed or "", held.run_id)):
        try:
            found[held.run_id] = entry(archive.run(held))
        except DamagedRun:
            continue
    return found


def lines(folder: Path) -> dict[str, Lines]:
    """Every file of one user's journal, by `<writer>/<month>.jsonl`."""
    paths = {f"{path.parent.name}/{path.name}": path for path in sorted(folder.glob("*/*.jsonl"))}
    return {name: _lines(whole_lines(path)) for name, path in paths.items() if is_lines_name(name)}


def whole_lines(path: Path) -> bytes:
    """What a file holds, without a last line that is being written."""
    raw = path.read_bytes()
    return raw[: raw.rfind(b"\n") + 1]


def _lines(raw: bytes) -> Lines:
    return Lines(len(raw), hashlib.sha256(raw).hexdigest())


def news(raw: bytes, known: Lines | None) -> bytes:
    """What a file holds that another home does not which has it in this state; the whole where that grew otherwise."""
    if known and _lines(raw[: known.n_bytes]) == known:
        return raw[known.n_bytes :]
    return raw


def lacking(ours: Mapping[str, Entry], theirs: Mapping[str, Entry]) -> list[str]:
    """The ids of their runs that we have not, or not in that state; oldest first."""
    return sorted(name for name, one in theirs.items() if name not in ours or ours[name].state != one.state)


def differing(ours: Mapping[str, Lines], theirs: Mapping[str, Lines]) -> list[str]:
    """Their files that we have not, or in another state."""
    return sorted(name for name, one in theirs.items() if ours.get(name) != one)
