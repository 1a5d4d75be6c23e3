"""What came in from another home and is not merged yet: an archive folder of its own, in the home's cache.

Invariant: a run in it has its metadata file only when its bytes are there, and both are of the owner. A sync that was
cut short leaves whole runs here, and the next one goes on from them; to lose them costs only that they are sent again.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

import msgspec

from perdure.archive import metadata
from perdure.archive.archive import FORMAT, stored_sha256
from perdure.capture import files
from perdure.errors import DamagedRun
from perdure.identity import check_user, is_run_id, run_id
from perdure.types import Run

_PLACE = Path("cache", "sync")
_LINES = re.compile(r"(w[0-9a-f]{16})/([0-9]{4}-(?:0[1-9]|1[0-2]))\.jsonl\Z")
_METADATA = "*/*/*.metadata.json"


def drop(home: Path) -> None:
    """Keep none of the runs: something in them may have been forgotten."""
    shutil.rmtree(home / _PLACE / "archive" / "runs", ignore_errors=True)


def is_lines_name(name: str) -> bool:
    """Whether this is the name of a file of a journal, `<writer>/<month>.jsonl`.

    >>> is_lines_name("w0123456789abcdef/2026-01.jsonl"), is_lines_name("../2026-01.jsonl")
    (True, False)
    """
    return bool(_LINES.match(name))


def checked(raw: bytes, user: str) -> Run:
    """The run that metadata of another home describes. Raises DamagedRun unless it is one of this user's whose id
    follows from what it is.
    """
    run = metadata.decode(raw, where="metadata from another home")
    source = run.source
    if source.user != user or not 0 <= run.from_offset <= run.to_offset or source.generation < 0:
        raise DamagedRun(f"{run.run_id!r:.40} (not a run of {user})")
    if not is_run_id(run.run_id) or run.run_id != run_id(source, run.from_offset, run.started_at):
        raise DamagedRun(f"{run.run_id!r:.40} (its id does not follow from what it is)")
    return run


class Stage:
    """The folder of one home. One sync at a time uses it: `locked`."""

    def __init__(self, home: Path, user: str) -> None:
        """Nothing is made yet."""
        self.path = home / _PLACE
        self.user = check_user(user)
        self._archive = self.path / "archive"

    def prepare(self) -> None:
        """Make the folder; runs that an earlier sync left stay."""
        files.make_folder(self._archive)
        files.write(self._archive / "FORMAT", f"{FORMAT}\n".encode(), sync=False)
        self.clear_lines()

    def clear(self) -> None:
        """Hold nothing: it was merged."""
        drop(self.path.parents[len(_PLACE.parts) - 1])
        self.clear_lines()

    def clear_lines(self) -> None:
        """Hold no lines of journals."""
        shutil.rmtree(self._archive / "journal", ignore_errors=True)

    def put(self, run: Run, stored: bytes) -> None:
        """Hold a run. Raises DamagedRun when its bytes are not those that its metadata says."""
        if hashlib.sha256(stored).hexdigest() != stored_sha256(run):
            raise DamagedRun(run.run_id)
        described = self._archive / metadata.metadata_name(self.user, run.run_id)
        files.make_folder(described.parent)
        files.write(self._archive / metadata.blob_name(self.user, run.run_id), stored, sync=False)
        files.replace(described, metadata.encode(run), sync=False)

    def put_lines(self, name: str, lines: bytes) -> None:
        """Hold lines of a file of a journal."""
        path = self._archive / "journal" / self.user / name
        files.make_folder(path.parent)
        files.write(path, lines, sync=False)

    def held(self) -> dict[str, Run]:
        """The whole runs, by id; what a crash left of others goes."""
        found = {}
        for path in (self._archive / "runs").glob(_METADATA):
            blob = path.with_name(path.name.replace(".metadata.json", ".jsonl"))
            try:
                run = checked(path.read_bytes(), self.user)
                if hashlib.sha256(blob.read_bytes()).hexdigest() != stored_sha256(run):
                    raise DamagedRun(run.run_id)
            except (DamagedRun, FileNotFoundError, msgspec.MsgspecError):
                path.unlink(missing_ok=True)
            else:
                found[run.run_id] = run
        return found
