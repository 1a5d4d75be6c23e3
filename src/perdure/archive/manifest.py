"""The manifest: which runs and which events a home was given, so that `verify` can name what is missing.

One append-only file for each user, writer and month, a JSON object a line. A line is written after the run or event
that it names is durable. It is not synced itself, so it costs a capture nothing: `verify` records again what a crash
or a full disk left out. So a run without a line is only new, and a line without its run is a loss. Lines are facts
that never change: files of several homes can be put together in any order.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from perdure.disk import make_folder
from perdure.errors import PerdureError
from perdure.types import Run, Source

FOLDER = "manifest"  # in the archive


class RunRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line about a run: it was stored, or is expected no longer (a merge moved it, or its loss is accepted)."""

    run: str
    source: Source
    start: int  # byte range of the source
    end: int
    sha256: str  # of the bytes as captured
    removed: bool = False


class EventRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line about an event of the journal: the key that it keeps, and the file that holds it."""

    event: str
    file: str  # <writer>/<month>.jsonl
    removed: bool = False  # its loss is accepted


Record = RunRecord | EventRecord
_run_decoder, _event_decoder = msgspec.json.Decoder(RunRecord), msgspec.json.Decoder(EventRecord)


def make_run_record(run: Run, *, removed: bool = False) -> RunRecord:
    """Return the line about a run."""
    return RunRecord(run.run_id, run.source, run.from_offset, run.to_offset, run.sha256, removed)


def append(path: Path, records: Iterable[Record]) -> None:
    """Append lines to a file of the manifest. Whatever fails is left to the next `verify`: nothing depends on it."""
    raw = b"".join(msgspec.json.encode(record) + b"\n" for record in records)
    with contextlib.suppress(OSError, PerdureError):
        make_folder(path.parent)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            is_torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            os.write(descriptor, b"\n" * is_torn + raw)  # one call: lines of two processes never mix
        finally:
            os.close(descriptor)


class ArchiveManifest:
    """What the manifest of one user says, over all writers and months."""

    def __init__(self, folder: Path) -> None:
        """Read archive/manifest/<user>."""
        self._runs: dict[str, dict[str, RunRecord]] = {}  # run id -> writer -> its last line about the run
        self._events: dict[str, dict[str, EventRecord]] = {}  # key of an event -> writer -> its last line about it
        for path in sorted(folder.glob("*/*.jsonl")):
            for record in _read_records(path):
                if isinstance(record, EventRecord):
                    self._events.setdefault(record.event, {})[path.parent.name] = record
                else:
                    self._runs.setdefault(record.run, {})[path.parent.name] = record

    def knows(self, run: Run) -> bool:
        """Return True if a line names this state of a run."""
        return make_run_record(run) in self._runs.get(run.run_id, {}).values()

    def knows_event(self, key: str) -> bool:
        """Return True if a line says that the journal was given this event."""
        return any(not record.removed for record in self._events.get(key, {}).values())

    def names(self, run_id: str) -> bool:
        """Return True if any line is about this run."""
        return run_id in self._runs

    def is_removed(self, run_id: str) -> bool:
        """Return True if the last line of some writer says that the run is no longer expected."""
        return any(record.removed for record in self._runs.get(run_id, {}).values())

    def list_runs(self) -> list[RunRecord]:
        """Return the longest state of each run that must be there."""
        return [
            max(by_writer.values(), key=lambda record: record.end)
            for run_id, by_writer in sorted(self._runs.items())
            if not self.is_removed(run_id)
        ]

    def list_events(self) -> dict[str, EventRecord]:
        """Return the events that must be there, by key."""
        return {
            key: next(iter(by_writer.values()))
            for key, by_writer in self._events.items()
            if not any(record.removed for record in by_writer.values())
        }


def _read_records(path: Path) -> Iterator[Record]:
    """Yield the lines of a file; a line that a crash tore or zeroed says nothing."""
    for line in path.read_bytes().split(b"\n"):
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
            if line.startswith(b'{"run"'):
                yield _run_decoder.decode(line)
            elif line.startswith(b'{"event"'):
                yield _event_decoder.decode(line)
