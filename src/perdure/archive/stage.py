"""Runs and journal lines received from another home and not merged yet: an archive folder in the home's cache.

Invariant: a run here has a metadata file only when its bytes are here, and both belong to the owner. An
interrupted sync leaves whole runs here and the next one continues from them; losing them only means that
they are sent again.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

import msgspec

from perdure import disk
from perdure.archive import run_files
from perdure.archive.archive import FORMAT, get_stored_sha256
from perdure.errors import DamagedRun
from perdure.identity import check_user, is_run_id, make_run_id
from perdure.types import Run

_STAGE_FOLDER = Path("cache", "sync")
_JOURNAL_FILE = re.compile(r"(w[0-9a-f]{16})/([0-9]{4}-(?:0[1-9]|1[0-2]))\.jsonl\Z")
_METADATA_GLOB = "*/*/*.metadata.json"


def drop_staged_runs(home: Path) -> None:
    """Delete the staged runs: something in them may have been forgotten."""
    shutil.rmtree(home / _STAGE_FOLDER / "archive" / "runs", ignore_errors=True)


def is_journal_file_name(name: str) -> bool:
    """Return True if this is the name of a file of a journal, `<writer>/<month>.jsonl`.

    >>> is_journal_file_name("w0123456789abcdef/2026-01.jsonl"), is_journal_file_name("../2026-01.jsonl")
    (True, False)
    """
    return bool(_JOURNAL_FILE.match(name))


def decode_foreign_run(raw: bytes, user: str) -> Run:
    """Decode the metadata of a run from another home.

    Raises DamagedRun unless the run belongs to this user and its id follows from its source, offset and time.
    """
    run = run_files.decode_run(raw, location="metadata from another home")
    source = run.source
    if source.user != user or not 0 <= run.from_offset <= run.to_offset or source.generation < 0:
        raise DamagedRun(f"{run.run_id!r:.40} (not a run of {user})")
    if not is_run_id(run.run_id) or run.run_id != make_run_id(source, run.from_offset, run.started_at):
        raise DamagedRun(f"{run.run_id!r:.40} (its id does not match its source)")
    return run


class SyncStage:
    """The folder of one home for incoming runs and journal lines. One sync at a time uses it, under its lock file."""

    def __init__(self, home: Path, user: str) -> None:
        self.path = home / _STAGE_FOLDER
        self.user = check_user(user)
        self._archive = self.path / "archive"

    def prepare(self) -> None:
        """Make the folder; keep the runs that an earlier sync left."""
        disk.make_folder(self._archive)
        disk.write_file(self._archive / "FORMAT", f"{FORMAT}\n".encode(), sync=False)
        self.clear_lines()

    def clear(self) -> None:
        """Delete everything that is staged, once it was merged."""
        drop_staged_runs(self.path.parents[len(_STAGE_FOLDER.parts) - 1])
        self.clear_lines()

    def clear_lines(self) -> None:
        """Delete the staged lines of journals."""
        shutil.rmtree(self._archive / "journal", ignore_errors=True)

    def put(self, run: Run, stored_bytes: bytes) -> None:
        """Stage a run. Raises DamagedRun when its bytes do not match its metadata."""
        if hashlib.sha256(stored_bytes).hexdigest() != get_stored_sha256(run):
            raise DamagedRun(run.run_id)
        metadata_path = self._archive / run_files.to_metadata_path(self.user, run.run_id)
        disk.make_folder(metadata_path.parent)
        disk.write_file(self._archive / run_files.to_blob_path(self.user, run.run_id), stored_bytes, sync=False)
        disk.replace_file(metadata_path, run_files.encode_run(run), sync=False)

    def put_lines(self, name: str, lines: bytes) -> None:
        """Stage lines of a file of a journal."""
        path = self._archive / "journal" / self.user / name
        disk.make_folder(path.parent)
        disk.write_file(path, lines, sync=False)

    def load_runs(self) -> dict[str, Run]:
        """Return the whole runs, by id; delete what a crash left of others."""
        runs = {}
        for path in (self._archive / "runs").glob(_METADATA_GLOB):
            blob_path = path.with_name(path.name.replace(".metadata.json", ".jsonl"))
            try:
                run = decode_foreign_run(path.read_bytes(), self.user)
                if hashlib.sha256(blob_path.read_bytes()).hexdigest() != get_stored_sha256(run):
                    raise DamagedRun(run.run_id)
            except (DamagedRun, FileNotFoundError, msgspec.MsgspecError):
                path.unlink(missing_ok=True)
            else:
                runs[run.run_id] = run
        return runs
