"""Verify: prove the archive, and say in words what is wrong with it and what to do."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from perdure.archive import metadata, packs
from perdure.archive.archive import stored_sha256
from perdure.archive.journal import Journal
from perdure.errors import DamagedRun
from perdure.types import Run

Severity = Literal["problem", "notice"]


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be."""

    severity: Severity  # a problem means that something is lost or at risk; a notice, that nothing is
    where: str
    what: str
    advice: str


@dataclass
class Verified:
    """What was checked, and what was found."""

    n_runs: int = 0
    n_packs: int = 0
    n_bytes: int = 0
    n_events: int = 0
    findings: list[Finding] = field(default_factory=list)
    digest: str = ""  # of everything that the archive holds; equal in a restored backup

    @property
    def ok(self) -> bool:
        """Whether nothing is lost or at risk."""
        return not any(finding.severity == "problem" for finding in self.findings)


def verify(home: Path, *, progress: Callable[[int, int], None] | None = None) -> Verified:
    """Read every byte of the archive and check it against what was recorded. Changes nothing."""
    root, result = home / "archive", Verified()
    seen: dict[str, str] = {}
    for run, stored, where in _everything(root, result):
        result.n_runs += 1
        result.n_bytes += len(stored)
        result.findings += _check_run(run, stored, where)
        if seen.setdefault(run.run_id, stored_sha256(run)) != stored_sha256(run):
            result.findings.append(_problem(where, "two copies of one run differ", _RESTORE))
        if progress:
            progress(result.n_runs, result.n_bytes)
    events = _check_journals(root, home, result)
    result.findings += _check_debris(root)
    result.findings += _check_modes(root)
    result.digest = _digest(seen, events)
    return result


_RESTORE = "restore it from a backup (`perdure restore`) and import the client's transcript again if it still exists"


def _problem(where: str, what: str, advice: str) -> Finding:
    return Finding("problem", where, what, advice)


def _everything(root: Path, result: Verified) -> Iterator[tuple[Run, bytes, str]]:
    """(run, its stored bytes, where) of all that can be read; what cannot be is a finding."""
    for path in sorted((root / "runs").glob("*/*/*.metadata.json")):
        where = str(path.relative_to(root))
        blob = path.with_name(path.name.replace(".metadata.json", ".jsonl"))
        try:
            yield metadata.decode(path.read_bytes(), where=where), blob.read_bytes(), where
        except DamagedRun as error:
            result.findings.append(_problem(where, f"its metadata cannot be read ({error.detail})", _RESTORE))
        except FileNotFoundError:
            result.findings.append(_problem(where, "its bytes are missing", _RESTORE))
    for path in sorted((root / "packs").glob("*/*.jsonl.zst")):
        where = str(path.relative_to(root))
        result.n_packs += 1
        try:
            for run, stored in packs.read_all(path):
                yield run, stored, f"{where} ({run.run_id})"
        except DamagedRun as error:
            result.findings.append(_problem(where, f"the pack is damaged ({error.detail})", _RESTORE))


def _check_run(run: Run, stored: bytes, where: str) -> Iterator[Finding]:
    actual = hashlib.sha256(stored).hexdigest()
    if actual == stored_sha256(run):
        lines = list(metadata.source_lines(run, stored))
        if lines and lines[-1][1] != run.to_offset:
            yield _problem(where, "its lines do not add up to its byte range", _RESTORE)
    elif run.forgotten and actual == run.sha256:
        advice = "run any command that writes (for example `perdure import`): it finishes the forgetting"
        yield _problem(where, "a forget was interrupted before it reached these bytes", advice)
    else:
        yield _problem(where, "its bytes are not those that were captured", _RESTORE)


def _check_journals(root: Path, home: Path, result: Verified) -> list[str]:
    ids = []
    for folder in sorted((root / "journal").glob("*")):
        journal = Journal(folder, home=home)
        events = journal.read()
        result.n_events += len(events)
        ids += [event.id for event in events]
        for damage in journal.damage():
            torn = damage.why.startswith("torn")
            result.findings.append(
                Finding(
                    "notice" if torn else "problem",
                    f"{damage.path.relative_to(root)}, line {damage.line}",
                    damage.why,
                    "nothing to do: the next write sets it aside" if torn else _RESTORE,
                )
            )
        for path in sorted((*folder.glob("*/*.torn-*"), *folder.glob("*/*.damaged-*"))):
            what = "a torn line that was set aside" if ".torn-" in path.name else "a damaged line that was set aside"
            advice = "nothing to do; delete it when you have looked at it"
            result.findings.append(Finding("notice", str(path.relative_to(root)), what, advice))
    return ids


def _check_debris(root: Path) -> Iterator[Finding]:
    """Bytes without metadata: a capture that a crash cut short, never acknowledged."""
    for path in sorted((root / "runs").glob("*/*/*")):
        name = path.name
        if name.endswith((".tmp", ".next")):
            yield Finding("notice", str(path.relative_to(root)), "left by a write that was cut short", "delete it")
        elif name.endswith(".jsonl") and not path.with_name(name.replace(".jsonl", ".metadata.json")).exists():
            what = "bytes of a capture that was cut short before it was acknowledged"
            yield Finding("notice", str(path.relative_to(root)), what, "nothing to do: the next capture replaces it")


def _check_modes(root: Path) -> Iterator[Finding]:
    for path in (root, *(p for p in root.rglob("*"))):
        if stat.S_IMODE(path.lstat().st_mode) & 0o077:
            yield _problem(str(path.relative_to(root.parent)), "others can read it", f"chmod go= '{path}'")


def _digest(runs: dict[str, str], events: list[str]) -> str:
    found = hashlib.sha256()
    for line in (*(f"{run_id} {sha}" for run_id, sha in sorted(runs.items())), *sorted(events)):
        found.update(line.encode() + b"\n")
    return found.hexdigest()
