"""Verify the archive byte by byte, write a backup of a home, and restore one.

A finding says in words what is wrong and what to do. Verifying changes nothing. A backup has the digest
of the archive, so that a restored home can be verified against it; it contains what cannot be made again,
and no index. Neither a backup nor a restore overwrites anything. Nothing is repaired here.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import stat
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from perdure.archive import manifest, run_files
from perdure.archive.archive import QUARANTINE, get_stored_sha256, list_users
from perdure.archive.journal import Journal, JournalEvent
from perdure.archive.manifest import ArchiveManifest, EventRecord, RunRecord
from perdure.archive.run_files import zstd
from perdure.disk import make_folder, sync_folder, to_perdure_error
from perdure.errors import BackupFault, DamagedRun, UsageError
from perdure.state import store as state_store
from perdure.types import Run

# verify -------------------------------------------------------------------------------------------------------

_MAX_READS = 3  # reads of a run that is being rewritten
Severity = Literal["problem", "notice"]


@dataclass(frozen=True)
class ArchiveFinding:
    """One problem or notice about the archive."""

    severity: Severity  # a problem means that something is lost or at risk; a notice, that nothing is
    where: str
    what: str
    advice: str


@dataclass
class VerifyResult:
    """The result of a verification: what was checked, and the findings."""

    n_runs: int = 0
    n_packs: int = 0
    n_bytes: int = 0
    n_events: int = 0
    findings: list[ArchiveFinding] = field(default_factory=list)
    digest: str = ""  # of everything that the archive holds; equal in a restored backup
    lost_runs: list[RunRecord] = field(default_factory=list)  # missing or damaged
    missing_runs: list[RunRecord] = field(default_factory=list)  # those of them of which no file is left
    damaged_packs: list[Path] = field(default_factory=list)
    lost_events: list[tuple[str, EventRecord]] = field(default_factory=list)  # with their users
    unlisted_runs: list[Run] = field(default_factory=list)  # whole, and not in the manifest
    unlisted_events: dict[str, list[JournalEvent]] = field(default_factory=dict)  # by user
    n_listed: int = 0  # of those runs and events, added to the manifest by now

    @property
    def n_unlisted(self) -> int:
        """Return how many whole runs and events the manifest did not name."""
        return len(self.unlisted_runs) + sum(map(len, self.unlisted_events.values()))

    @property
    def ok(self) -> bool:
        """Return True if nothing is lost or at risk."""
        return not any(finding.severity == "problem" for finding in self.findings)


def verify(
    home: Path, *, ledger_runs: Sequence[RunRecord] = (), progress: Callable[[int, int], None] | None = None
) -> VerifyResult:
    """Read every byte of the archive and check it against what was recorded. Changes nothing.

    ledger_runs: the runs that the ledger names. They count where the manifest says nothing of a run: those of a home
    that an earlier version made.
    """
    root, result = home / "archive", VerifyResult()
    if not root.is_dir():
        result.findings.append(
            _make_problem(str(root), "there is no archive here", "set PERDURE_HOME, or restore a backup")
        )
    manifests = {user: ArchiveManifest(root / manifest.FOLDER / user) for user in list_users(root)}
    whole_runs: dict[str, Run] = {}
    damaged: set[str] = set()  # ids of runs about which something else was found
    hash_by_id: dict[str, str] = {}
    for run, stored_bytes, location in _read_all_runs(root, result, damaged):
        result.n_runs += 1
        result.n_bytes += len(stored_bytes)
        findings = list(_check_run(run, stored_bytes, location))
        result.findings += findings
        if findings:
            damaged.add(run.run_id)
            if location.startswith("packs/"):
                result.damaged_packs.append(root / location.partition(" (")[0])
        else:
            whole_runs[run.run_id] = run
        if hash_by_id.get(run.run_id, get_stored_sha256(run)) != get_stored_sha256(run) and _has_loose_files(root, run):
            result.findings.append(_make_problem(location, "two copies of one run differ", _RESTORE_ADVICE))
        hash_by_id[run.run_id] = get_stored_sha256(run)
        if progress:
            progress(result.n_runs, result.n_bytes)
    events = _check_journals(root, home, result, manifests)
    result.unlisted_runs = [run for run in whole_runs.values() if not manifests[run.source.user].knows(run)]
    for user, known in manifests.items():
        fresh = ArchiveManifest(root / manifest.FOLDER / user)
        expected = {record.run: record for record in known.list_runs()}
        for record in ledger_runs:
            if record.source.user == user and not fresh.names(record.run):
                expected[record.run] = record
        for record, finding in _find_lost_runs(expected, fresh, whole_runs, damaged):
            result.lost_runs.append(record)
            result.findings += [finding] if finding else []
            result.missing_runs += [] if record.run in damaged or record.run in whole_runs else [record]
    result.findings += _check_debris(root)
    result.findings += _check_quarantine(root)
    result.findings += _check_modes(root)
    result.digest = _compute_digest(hash_by_id, events)
    return result


_RESTORE_ADVICE = "restore a backup into a new home (`perdure restore`) and merge it into this one (`perdure merge`)"
_AGAIN_ADVICE = (
    f"`perdure import --again` takes it in from the client's transcript if that still exists; else {_RESTORE_ADVICE}"
)
_ACCEPT_ADVICE = "where there is no copy, `perdure verify --accept-losses` records the loss"


def _make_problem(location: str, description: str, advice: str) -> ArchiveFinding:
    return ArchiveFinding("problem", location, description, advice)


def _read_all_runs(root: Path, result: VerifyResult, damaged: set[str]) -> Iterator[tuple[Run, bytes, str]]:
    """Yield (run, its stored bytes, location) of everything that can be read; add a finding for the rest.

    damaged: gets the ids of the runs that have a finding of their own.
    """
    for path in sorted((root / "runs").glob("*/*/*.metadata.json")):
        location = str(path.relative_to(root))
        try:
            yield *_read_loose_run(path, location), location
        except DamagedRun as error:
            damaged.add(path.name.removesuffix(".metadata.json"))
            result.findings.append(
                _make_problem(location, f"its metadata cannot be read ({error.detail})", _AGAIN_ADVICE)
            )
        except FileNotFoundError:
            if path.exists():  # else it was packed meanwhile; the packs are read last
                damaged.add(path.name.removesuffix(".metadata.json"))
                result.findings.append(_make_problem(location, "its bytes are missing", _AGAIN_ADVICE))
    for path in sorted((root / "packs").glob("*/*.jsonl.zst")):
        location = str(path.relative_to(root))
        result.n_packs += 1
        try:
            for run, stored_bytes in _read_pack_again(path):
                yield run, stored_bytes, f"{location} ({run.run_id})"
        except FileNotFoundError:
            continue
        except DamagedRun as error:
            result.damaged_packs.append(path)
            result.findings.append(_make_problem(location, f"the pack is damaged ({error.detail})", _AGAIN_ADVICE))


def _read_loose_run(path: Path, location: str) -> tuple[Run, bytes]:
    """Read a run and its bytes; read again if another process rewrote them between the two reads."""
    blob_path = path.with_name(path.name.replace(".metadata.json", ".jsonl"))
    for _ in range(_MAX_READS):
        pair = run_files.decode_run(path.read_bytes(), location=location), blob_path.read_bytes()
        if hashlib.sha256(pair[1]).hexdigest() == get_stored_sha256(pair[0]):
            break
    return pair


def _read_pack_again(path: Path) -> list[tuple[Run, bytes]]:
    """Read the runs of a pack; read again if another process replaced it meanwhile."""
    with contextlib.suppress(DamagedRun):
        return run_files.read_pack(path)
    return run_files.read_pack(path)


def _has_loose_files(root: Path, run: Run) -> bool:
    """Return True if a run of a pack also has files of its own; if not, it was packed and rewritten during the
    check.
    """
    return (root / run_files.to_metadata_path(run.source.user, run.run_id)).exists()


def _check_run(run: Run, stored_bytes: bytes, location: str) -> Iterator[ArchiveFinding]:
    actual_sha256 = hashlib.sha256(stored_bytes).hexdigest()
    if actual_sha256 == get_stored_sha256(run):
        lines = list(run_files.split_source_lines(run, stored_bytes))
        if lines and lines[-1][1] != run.to_offset:
            yield _make_problem(location, "its lines do not match its byte range", _RESTORE_ADVICE)
    elif run.forgotten and actual_sha256 == run.sha256:
        advice = "run any command that writes (for example `perdure import`): it completes the deletion"
        yield _make_problem(location, "a forget was interrupted before it reached these bytes", advice)
    else:
        yield _make_problem(location, "its bytes differ from the captured bytes", _AGAIN_ADVICE)


def _find_lost_runs(
    expected: dict[str, RunRecord], fresh: ArchiveManifest, whole_runs: dict[str, Run], damaged: set[str]
) -> Iterator[tuple[RunRecord, ArchiveFinding | None]]:
    """Yield each expected run that is not whole, with a finding for one that is missing or too short.

    expected: by run id, from before the check. fresh: the manifest after it; a run that a merge moved meanwhile is not
    missing.
    """
    for run_id, record in sorted(expected.items()):
        run = whole_runs.get(run_id)
        if fresh.is_removed(run_id) or (run is not None and (run.to_offset >= record.end or fresh.knows(run))):
            continue
        location = str(run_files.to_metadata_path(record.source.user, run_id))
        if run_id in damaged:
            yield record, None
        elif run is not None:
            description = f"it ends at byte {run.to_offset:,} of its session; {record.end:,} were captured"
            yield record, _make_problem(location, description, _RESTORE_ADVICE)
        else:
            session = f"{record.source.runtime} {record.source.session}, bytes {record.start:,} to {record.end:,}"
            advice = f"{_AGAIN_ADVICE}; {_ACCEPT_ADVICE}"
            yield record, _make_problem(location, f"the run is missing ({session})", advice)


def _find_lost_events(
    user: str, lost: Iterable[EventRecord], expected: Iterable[EventRecord]
) -> Iterator[ArchiveFinding]:
    """Yield a problem for each file of a journal that lacks expected events."""
    n_expected = Counter(record.file for record in expected)
    for name, n_lost in sorted(Counter(record.file for record in lost).items()):
        description = f"{n_lost:,} of its {n_expected[name]:,} events are missing"
        yield _make_problem(f"journal/{user}/{name}", description, f"{_RESTORE_ADVICE}; {_ACCEPT_ADVICE}")


def _check_journals(root: Path, home: Path, result: VerifyResult, manifests: dict[str, ArchiveManifest]) -> list[str]:
    ids = []
    for user, known in manifests.items():
        folder = root / "journal" / user
        journal = Journal(folder, home=home)
        events = journal.read()
        result.n_events += len(events)
        ids += [event.id for event in events]
        expected = known.list_events()
        result.unlisted_events[user] = [event for event in events if not known.knows_event(event.key)]
        stored_keys = {event.key for event in events}
        lost_events = [record for key, record in expected.items() if key not in stored_keys]
        result.lost_events += [(user, record) for record in lost_events]
        result.findings += _find_lost_events(user, lost_events, expected.values())
        for damage in journal.find_damage():
            is_torn = damage.reason.startswith("torn")
            result.findings.append(
                ArchiveFinding(
                    "notice" if is_torn else "problem",
                    f"{damage.path.relative_to(root)}, line {damage.line_number}",
                    damage.reason,
                    "nothing to do: the next write sets it aside" if is_torn else _RESTORE_ADVICE,
                )
            )
        for path in sorted((*folder.glob("*/*.torn-*"), *folder.glob("*/*.damaged-*"))):
            description = (
                "a torn line that was set aside" if ".torn-" in path.name else "a damaged line that was set aside"
            )
            advice = "nothing to do; delete it after you have checked it"
            result.findings.append(ArchiveFinding("notice", str(path.relative_to(root)), description, advice))
    return ids


def _check_debris(root: Path) -> Iterator[ArchiveFinding]:
    """Yield a notice for bytes without metadata: a capture that a crash interrupted, never acknowledged."""
    for path in sorted((root / "runs").glob("*/*/*")):
        name = path.name
        if name.endswith((".tmp", ".next")):
            yield ArchiveFinding("notice", str(path.relative_to(root)), "left by an interrupted write", "delete it")
        elif name.endswith(".jsonl") and not path.with_name(name.replace(".jsonl", ".metadata.json")).exists():
            description = "bytes of a capture that was interrupted before it was acknowledged"
            yield ArchiveFinding(
                "notice", str(path.relative_to(root)), description, "nothing to do: the next capture replaces it"
            )


def _check_quarantine(root: Path) -> Iterator[ArchiveFinding]:
    """Yield a notice for each damaged file that was set aside."""
    for path in sorted((root / QUARANTINE).glob("*/*")):
        advice = "nothing to do; delete it after you have checked it"
        yield ArchiveFinding("notice", str(path.relative_to(root)), "a damaged file that was set aside", advice)


def _check_modes(root: Path) -> Iterator[ArchiveFinding]:
    for path in (root, *(p for p in root.rglob("*"))):
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:  # another process is at work
            continue
        if stat.S_IMODE(mode) & 0o077:
            yield _make_problem(str(path.relative_to(root.parent)), "other users can read it", f"chmod go= '{path}'")


def _compute_digest(runs: dict[str, str], events: list[str]) -> str:
    digest = hashlib.sha256()
    for line in (*(f"{run_id} {run_hash}" for run_id, run_hash in sorted(runs.items())), *sorted(events)):
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()


# backup -------------------------------------------------------------------------------------------------------

_KEPT = ("archive", "agents", "config.toml", "incognito", "paused", "writers")
_STATE = "state"  # copied through SQLite: programs may be writing there
_LEVEL = 6
_NOTE = "perdure-backup.txt"


def write_backup(home: Path, target: Path, digest: str, *, progress: Callable[[int], None] | None = None) -> int:
    """Write a backup of a home; return its size in bytes. Never overwrites an existing file."""
    if target.exists():
        raise UsageError(f"{target} exists already")
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    n_files = 0
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            with (
                zstd.ZstdFile(file, "wb", level=_LEVEL) as compressed,
                tarfile.open(fileobj=compressed, mode="w|") as tar,
                tempfile.TemporaryDirectory(prefix="perdure-state-") as copies,
            ):
                _add_text(tar, f"Perdure backup\ndigest {digest}\n")
                state_store.copy_all(home, Path(copies))
                files = [(path, home) for path in _list_files(home)]
                files += [(path, Path(copies)) for path in sorted((Path(copies) / _STATE).glob("*.db"))]
                for path, top in files:
                    tar.add(path, arcname=str(path.relative_to(top)), recursive=False)
                    n_files += 1
                    if progress:
                        progress(n_files)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
        sync_folder(target.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise to_perdure_error(error, target) or UsageError(f"{target} ({error.strerror})") from error
    return target.stat().st_size


def _add_text(tar: tarfile.TarFile, text: str) -> None:
    info = tarfile.TarInfo(_NOTE)
    info.size, info.mode = len(text), 0o600
    tar.addfile(info, io.BytesIO(text.encode()))


def _list_files(home: Path) -> Iterator[Path]:
    for top_name in _KEPT:
        top_path = home / top_name
        inside = sorted(top_path.rglob("*")) if top_path.is_dir() else [top_path] if top_path.exists() else []
        yield from (p for p in inside if p.is_file() and not p.name.endswith((".lock", ".tmp")))


def restore_backup(backup_path: Path, home: Path) -> str:
    """Unpack a backup into a home that does not exist yet; return the digest that its archive must have."""
    if home.exists() and any(home.iterdir()):
        raise UsageError(f"{home} is not empty: restore into a new folder, then move it")
    make_folder(home)
    digest = ""
    try:
        with zstd.ZstdFile(backup_path, "rb") as compressed, tarfile.open(fileobj=compressed, mode="r|") as tar:
            for member in tar:
                if member.name == _NOTE:
                    digest = _read_digest(tar, member)
                elif member.isfile():
                    if not _is_backup_name(home, member.name):
                        raise BackupFault(f"{backup_path} is not a Perdure backup ({member.name!r} is in it)")
                    member.mode = 0o600
                    make_folder((home / member.name).parent)
                    tar.extract(member, home, filter="data")
    except (tarfile.TarError, zstd.ZstdError, EOFError) as error:
        raise BackupFault(f"{backup_path} is not a complete backup ({error})") from error
    if not digest:
        raise BackupFault(f"{backup_path} is not a Perdure backup")
    return digest


def _is_backup_name(home: Path, name: str) -> bool:
    """Return True if `write` puts files with this name into a backup, and the name stays inside the home."""
    return name.split("/", 1)[0] in (*_KEPT, _STATE) and (home / name).resolve().is_relative_to(home.resolve())


def _read_digest(tar: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    stream = tar.extractfile(member)
    words = stream.read(4096).decode("utf-8", "replace").split() if stream else []
    return words[-1] if words[:2] == ["Perdure", "backup"] else ""
