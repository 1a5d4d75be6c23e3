"""The archive: runs as captured bytes, durable before they are acknowledged, never overwritten.

Invariant: a run exists when its metadata file does (or a pack holds it), and then its bytes are there too.
Writers take turns under one file lock; readers need none. Nothing here knows a transcript format: what a
line means is handed in where forgetting needs it.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Literal

from perdure.archive import injected, merge, metadata, packs
from perdure.archive.journal import Journal
from perdure.archive.store import Held, Ledger
from perdure.archive.tombstones import Tombstones
from perdure.capture import files
from perdure.capture.lines import first_stamp, last_stamp
from perdure.capture.whole import complete
from perdure.errors import DamagedRun, NewerFormat, NotFound, UsageError
from perdure.identity import check_user, run_id
from perdure.types import Line, Origin, Run, Source, Turn

FORMAT = 1
_CACHED_MANIFESTS = 8
_FILL_RUNS = 5000  # rows in one transaction when the ledger is made anew
_PACK_BYTES = 512_000_000  # a conversation larger than this stays loose: a pack is rewritten in memory

Outcome = Literal["stored", "already", "accepted", "diverged", "gap"]
ParseTurns = Callable[[Run, Sequence[Line]], Sequence[Turn]]


@dataclass(frozen=True)
class Delta:
    """Some bytes of a source, and what is known of them, on their way into the archive."""

    origin: Origin
    user: str
    machine: str
    data: bytes
    from_offset: int = 0
    generation: int | None = None  # None: the latest
    agent: str = "default"
    project: str | None = None
    path: str | None = None
    tags: tuple[str, ...] = ()
    parent_run_id: str | None = None


@dataclass(frozen=True)
class Answer:
    """What the archive says to a delta."""

    outcome: Outcome  # stored; already there; accepted up to `to_offset` (send the rest); diverged; gap
    to_offset: int  # behind the last byte that the archive holds of this source
    generation: int
    run_id: str | None = None  # of the run that was stored, or that holds the last of what was there already
    n_bytes: int = 0  # stored by this call


class Archive:
    """The archive of one home. Open it once a process; not shared between threads."""

    def __init__(self, home: Path, *, parse: ParseTurns, writable: bool = True) -> None:
        """Open the archive of a home, made if need be. Raises NewerFormat and touches nothing if it is too new."""
        self.root = home / "archive"
        self._parse = parse
        self._writable = writable
        self._manifests: dict[Path, tuple[tuple[int, int, int], packs.Manifest, dict[str, packs.PackedRun]]] = {}
        self._by_tool: dict[str, injected.ByTool] = {}  # by user
        self._check_format(writable=writable)
        self.ledger = Ledger(home / "cache" / "ledger.db", writable=writable)
        if self.ledger.is_new:
            with self._locked() if writable else contextlib.nullcontext():
                self._fill_ledger()

    def close(self) -> None:
        """Release the ledger."""
        self.ledger.close()

    def _check_format(self, *, writable: bool) -> None:
        try:
            check_format(self.root)
        except FileNotFoundError:
            if writable:
                files.make_folder(self.root)
                files.replace(self.root / "FORMAT", f"{FORMAT}\n".encode())

    def still(self) -> contextlib.AbstractContextManager[int]:
        """Nobody writes to the archive during this block: for a copy that must be of one moment."""
        return self._locked()

    def _locked(self) -> contextlib.AbstractContextManager[int]:
        return files.locked(self.root / ".lock", wait_s=300)

    # writing ----------------------------------------------------------------------------------------------

    def store(self, deltas: Sequence[Delta], *, now: datetime, tombstones: dict[str, Tombstones]) -> list[Answer]:
        """Answer each delta; what is stored is durable when this returns.

        tombstones: of each user who has any. Deltas of one source must come in the order of their offsets.
        """
        with self._locked():
            self._repair()
            answers: list[Answer] = []
            open_: list[tuple[Run, bytes]] = []
            begun: set[Source] = set()  # whose runs are among the open ones
            for delta in deltas:
                source = self._source(delta)
                if source in begun:
                    self._commit(open_)
                    open_, begun = [], set()
                answer, draft = self._plan(source, delta, now, tombstones.get(delta.user))
                if draft:
                    open_.append(draft)
                    begun.add(source)
                answers.append(answer)
            self._commit(open_)
        return answers

    def _source(self, delta: Delta) -> Source:
        user, origin = check_user(delta.user), delta.origin
        latest = self.ledger.generation(user, origin.runtime, origin.session)
        chosen = latest if delta.generation is None else delta.generation
        if chosen > latest + 1:
            raise UsageError(f"generation {chosen} of {origin.session}: the next is {latest + 1}")
        return Source(user, origin.runtime, origin.session, chosen)

    def _plan(
        self, source: Source, delta: Delta, now: datetime, tombstones: Tombstones | None
    ) -> tuple[Answer, tuple[Run, bytes] | None]:
        """What to answer, and the run to write if there is one."""
        data, low = delta.data[: complete(delta.data)], delta.from_offset
        end = self.ledger.end(source)
        high = low + len(data)
        if low > end:
            return Answer("gap", end, source.generation), None
        if low < end and not self._agrees(source, data, low, min(high, end)):
            return Answer("diverged", end, source.generation), None
        if low < end or not data:
            outcome: Outcome = "accepted" if high > end else "already"
            return Answer(outcome, end, source.generation, self.holder(source, low, min(high, end))), None
        run = self._run(source, delta, data, now)
        stored = data
        if tombstones:
            run, stored = self._scrubbed(run, data, tombstones)
        return Answer("stored", high, source.generation, run.run_id, len(data)), (run, stored)

    def holder(self, source: Source, low: int, high: int) -> str | None:
        """The run that holds the last of the bytes [low, high) of a source."""
        found = self.ledger.runs_of(source, low=low, high=high)
        return found[-1].run_id if found else None

    def _agrees(self, source: Source, data: bytes, low: int, high: int) -> bool:
        """Whether the sent bytes equal the stored ones in [low, high): by hash for whole runs, else by content."""
        for held in self.ledger.runs_of(source, low=low, high=high):
            if held.from_offset >= low and held.to_offset <= low + len(data):
                part = data[held.from_offset - low : held.to_offset - low]
                if hashlib.sha256(part).hexdigest() != held.sha256:
                    return False
            elif not metadata.same_bytes(self.run(held), self.read(held), data[: high - low], low):
                return False
        return True

    def _run(self, source: Source, delta: Delta, data: bytes, now: datetime) -> Run:
        """The metadata of a new run, with everything that capture knows."""
        started = first_stamp(data) or self._time_before(source, delta.from_offset)
        origin = delta.origin
        return Run(
            run_id=run_id(source, delta.from_offset, started),
            source=source,
            machine=delta.machine,
            agent=delta.agent,
            project=delta.project,
            conversation=origin.conversation,
            from_offset=delta.from_offset,
            to_offset=delta.from_offset + len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            started_at=started,
            ended_at=last_stamp(data) or started,
            captured_at=now,
            parent_run_id=delta.parent_run_id,
            parent_session=origin.parent_session,
            fork=origin.fork,
            path=delta.path,
            cwd=origin.cwd,
            tags=tuple(sorted(set(delta.tags))),
            readable_by=(source.user,),
        )

    def _time_before(self, source: Source, offset: int) -> datetime | None:
        """When the run in front of this offset ended: the time of a delta that carries no stamp of its own."""
        before = self.ledger.runs_of(source, high=offset)
        return self.run(before[-1]).ended_at if before and offset else None

    def _scrubbed(self, run: Run, stored: bytes, tombstones: Tombstones) -> tuple[Run, bytes]:
        """The run and its bytes without what the tombstones concern."""
        lines = list(metadata.source_lines(run, stored))
        turns = self._parse(run, [line for line, _ in lines])
        doomed = tombstones.doomed(run.source, lines, turns)
        marked = {line.offset for line, _ in lines if line.raw.startswith(metadata.FORGOTTEN)}
        gone = marked & dict(run.forgotten).keys()
        fresh = {offset: turn for offset, turn in doomed.items() if offset not in gone}
        if not fresh:
            return run, stored
        ranges, body = metadata.forget_lines(run, stored, fresh)
        return replace(run, forgotten=ranges, stored_sha256=hashlib.sha256(body).hexdigest()), body

    def _commit(self, drafts: Sequence[tuple[Run, bytes]]) -> None:
        """Bytes first, then the ledger's intent, then the metadata that makes them exist, then their number."""
        if not drafts:
            return
        runs = [run for run, _ in drafts]
        blobs = [self.root / metadata.blob_name(run.source.user, run.run_id) for run in runs]
        for folder in {blob.parent for blob in blobs}:
            files.make_folder(folder)
        written: list[Path] = []
        try:
            self.ledger.begin(runs)
            for blob, (_, stored) in zip(blobs, drafts, strict=True):
                written.append(blob)
                files.write(blob, stored, sync=False)
            files.sync_all(blobs, root=self.root)
            self._commit_metadata(runs)
        except BaseException:
            self._take_back(runs, written)
            raise
        self.ledger.commit(runs)

    def _commit_metadata(self, runs: Sequence[Run]) -> None:
        paths = [self.root / metadata.metadata_name(run.source.user, run.run_id) for run in runs]
        single = len(runs) == 1
        for path, run in zip(paths, runs, strict=True):
            files.replace(path, metadata.encode(run), sync=single)
        if not single:
            files.sync_all(paths, root=self.root)

    def _take_back(self, runs: Sequence[Run], blobs: Sequence[Path]) -> None:
        """Remove what a failed commit wrote: nothing of it was acknowledged."""
        with contextlib.suppress(OSError):
            for run in runs:
                (self.root / metadata.metadata_name(run.source.user, run.run_id)).unlink(missing_ok=True)
            for blob in blobs:
                blob.unlink(missing_ok=True)

    def _repair(self) -> None:
        """Finish or take back commits that a crash cut short. The caller holds the lock."""
        lost = []
        for held in self.ledger.pending():
            self._finish_put(held)
            path = self.root / metadata.metadata_name(held.user, held.run_id)
            try:
                self.ledger.commit([metadata.decode(path.read_bytes(), where=str(path))])
            except (FileNotFoundError, DamagedRun):  # never committed, or torn by a power cut before it was
                self._unlink_loose(held)
                lost.append(held.run_id)
        if lost:
            self.ledger.drop(lost)

    # reading ----------------------------------------------------------------------------------------------

    def held(self, identifier: str) -> Held:
        """The run of this id. Raises NotFound."""
        found = self.ledger.held(identifier)
        if found is None or found.change is None:
            raise NotFound(identifier)
        return found

    def run(self, held: Held) -> Run:
        """The metadata of a run."""
        if not held.packed:
            path = self.root / metadata.metadata_name(held.user, held.run_id)
            try:
                return metadata.decode(path.read_bytes(), where=str(path))
            except FileNotFoundError:
                held = self._moved(held)
        return self._packed(held).run

    def read(self, held: Held) -> bytes:
        """The stored bytes of a run: as captured, but for lines that were forgotten."""
        if not held.packed:
            try:
                return (self.root / metadata.blob_name(held.user, held.run_id)).read_bytes()
            except FileNotFoundError:
                held = self._moved(held)
        path = self.root / str(held.packed)
        return packs.read(path, self._manifest(path)[1], self._packed(held))

    def lines(self, held: Held) -> list[Line]:
        """The lines of a run with their offsets in the source."""
        return [line for line, _ in metadata.source_lines(self.run(held), self.read(held))]

    def whole(self, held: Held) -> merge.Stored:
        """A run and its bytes, proven to belong together: another process may rewrite them between two reads.

        Not for a caller that holds the archive's lock. Raises DamagedRun when its bytes are not those captured.
        """
        item = self._whole(held)
        if item is None:
            with self._locked() if self._writable else contextlib.nullcontext():
                self._manifests.clear()
                item = self._whole(self.ledger.held(held.run_id) or held)
        if item is None:
            raise DamagedRun(held.run_id)
        return item

    def injected(self, run: Run) -> dict[str, str]:
        """Code -> digest of what was recalled into the session of a run."""
        user = run.source.user
        journal = Journal(self.root / "journal" / user, home=self.root.parent)
        by_tool = self._by_tool.setdefault(user, injected.ByTool(journal))
        return {**by_tool.blocks(), **injected.blocks(journal, run)}

    def load(self, held: Held) -> tuple[Run, list[Line]]:
        """A run, and its lines with their offsets in the source, proven to belong together. Raises DamagedRun."""
        run, stored = self.whole(held)
        return run, [line for line, _ in metadata.source_lines(run, stored)]

    def _moved(self, held: Held) -> Held:
        """The run's new place, after it was packed under our feet. Raises DamagedRun when it is nowhere."""
        found = self.ledger.held(held.run_id)
        if found is None or not found.packed:
            raise DamagedRun(f"{held.run_id} (its files are missing)")
        return found

    def _packed(self, held: Held) -> packs.PackedRun:
        path = self.root / str(held.packed)
        try:
            return self._manifest(path)[2][held.run_id]
        except (KeyError, FileNotFoundError) as error:
            raise DamagedRun(f"{held.run_id} (not in {path})") from error

    def _manifest(self, path: Path) -> tuple[tuple[int, int, int], packs.Manifest, dict[str, packs.PackedRun]]:
        stat = path.stat()
        signature = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
        cached = self._manifests.get(path)
        if cached is None or cached[0] != signature:
            while len(self._manifests) >= _CACHED_MANIFESTS:
                self._manifests.pop(next(iter(self._manifests)))
            known = packs.manifest(path)
            cached = (signature, known, {item.run.run_id: item for item in known.runs})
            self._manifests[path] = cached
        return cached

    def walk(self) -> Iterator[tuple[Run, str | None]]:
        """Every committed run found on disk, with the pack that holds it; reads no ledger."""
        yield from walk(self.root)

    def _fill_ledger(self) -> None:
        """Read the whole archive into an empty ledger. The caller holds the lock."""
        if self.ledger.meta("complete"):
            return
        for path in (self.root / "runs").glob("*/*/*.metadata.json.next"):
            identifier, user = path.name.split(".", 1)[0], path.parent.parent.name
            self._finish_put(Held(identifier, user, 0, 0, "", None, None))
        for packed, group in itertools.groupby(self.walk(), key=lambda pair: pair[1]):
            runs = (run for run, _ in group)
            while some := list(itertools.islice(runs, _FILL_RUNS)):
                self.ledger.commit(some, packed=packed)
        self.ledger.set_meta("complete", "yes")

    # rewriting --------------------------------------------------------------------------------------------

    def scrub(self, helds: Sequence[Held], tombstones: Tombstones) -> list[str]:
        """Apply tombstones to runs that are already stored. Returns the ids of the runs that changed."""
        changed = []
        for held in helds:
            with self._locked():
                if self._scrub_one(self.held(held.run_id), tombstones):
                    changed.append(held.run_id)
                    self.ledger.touched([held.run_id])
        return changed

    def _scrub_one(self, held: Held, tombstones: Tombstones) -> bool:
        run, stored = self.run(held), self.read(held)
        after, body = self._scrubbed(run, stored, tombstones)
        if body == stored:
            return False
        if not held.packed:  # metadata first: it tells how to read either state of the bytes
            files.replace(self.root / metadata.metadata_name(held.user, held.run_id), metadata.encode(after))
            files.replace(self.root / metadata.blob_name(held.user, held.run_id), body)
        self._rewrite_pack(self._pack_of(run), {held.run_id: (after, body)})
        if held.packed:
            self._unlink_loose(held)
        return True

    def _pack_of(self, run: Run) -> Path:
        """Where a run's pack is or would be; a crash while packing leaves a run in both places."""
        return self.root / metadata.pack_name(run.source.user, run.source.runtime, run.conversation)

    def _rewrite_pack(self, path: Path, new: dict[str, tuple[Run, bytes]]) -> None:
        """Put new states of runs into a pack that holds them."""
        if path.exists() and new.keys() & self._manifest(path)[2].keys():
            packs.write(path, [new.get(run.run_id, (run, stored)) for run, stored in packs.read_all(path)])

    def _unlink_loose(self, held: Held) -> None:
        (self.root / metadata.metadata_name(held.user, held.run_id)).unlink(missing_ok=True)
        (self.root / metadata.blob_name(held.user, held.run_id)).unlink(missing_ok=True)

    def pack(self, user: str, runtime: str, conversation: str) -> int:
        """Put every run of a conversation into its pack; returns how many were loose before."""
        with self._locked():
            self._repair()
            helds = self.ledger.conversation(user, runtime, conversation)
            loose = [held for held in helds if not held.packed]
            if not loose or sum(held.to_offset - held.from_offset for held in helds) > _PACK_BYTES:
                return 0
            name = metadata.pack_name(user, runtime, conversation)
            path = self.root / name
            files.make_folder(path.parent)
            packs.write(path, [(self.run(held), self.read(held)) for held in helds])
            for run, stored in packs.read_all(path):  # proven readable before the loose files go
                if hashlib.sha256(stored).hexdigest() != stored_sha256(run):
                    raise DamagedRun(f"{run.run_id} in {path}")
            self.ledger.moved([held.run_id for held in loose], str(name))
            for held in loose:
                self._unlink_loose(held)
            return len(loose)

    def erase(self, user: str) -> int:
        """Delete all runs, packs and events of a user; returns how many runs there were."""
        with self._locked():
            helds = list(self.ledger.all(check_user(user)))
            for kind in ("runs", "packs", "journal"):
                shutil.rmtree(self.root / kind / user, ignore_errors=True)
            self.ledger.erase(user)
            return len(helds)

    def adopt(self, theirs: merge.Stored, tombstones: dict[str, Tombstones]) -> bool:
        """Take a run of another home with its id; whether that changed anything here.

        Of two captures of one range the longer is kept when it continues the shorter. Where captures differ, all are
        kept, as sources of their own. Raises DamagedRun for bytes that are not those that were captured.
        """
        run, stored = theirs
        if hashlib.sha256(stored).hexdigest() != stored_sha256(run):
            raise DamagedRun(run.run_id)
        with self._locked():
            self._repair()
            known = tombstones.get(check_user(run.source.user))
            return self._adopt(self._scrubbed(run, stored, known) if known else theirs)

    def _adopt(self, theirs: merge.Stored) -> bool:
        run = theirs[0]
        family = self.ledger.family(run.source, merge.base_of(run.source.session))
        if any(merge.is_aside(source) for source in (run.source, *family)) or self._clashes(theirs):
            return self._rearrange(theirs, [held for helds in family.values() for held in helds])
        held = self.ledger.held(run.run_id)
        if held is None:
            self._commit([theirs])
            return True
        ours = self._whole(held)
        kept = merge.united(ours, theirs) if ours else theirs
        if kept == ours:
            return False
        self._put(held, kept)
        return True

    def _clashes(self, theirs: merge.Stored) -> bool:
        """Whether a run differs from what is held of its source."""
        run = theirs[0]
        for held in self.ledger.runs_of(run.source, low=run.from_offset, high=run.to_offset):
            if (held.from_offset, held.to_offset, held.sha256) != (run.from_offset, run.to_offset, run.sha256):
                ours = self._whole(held)
                if ours and not merge.agree(ours, theirs):
                    return True
        return False

    def _whole(self, held: Held) -> merge.Stored | None:
        """A run and its bytes, or None when they are damaged."""
        try:
            run, stored = self.run(held), self.read(held)
        except DamagedRun:
            return None
        return (run, stored) if hashlib.sha256(stored).hexdigest() == stored_sha256(run) else None

    def _rearrange(self, theirs: merge.Stored, helds: Sequence[Held]) -> bool:
        """Put all runs of a session where they belong now that this one has come."""
        ours = {held.run_id: item for held in helds if (item := self._whole(held))}
        wanted = {item[0].run_id: item for item in merge.arrange([*ours.values(), theirs])}
        known = {held.run_id: held for held in helds}
        moved = [name for name in wanted if name in known and wanted[name] != ours.get(name)]
        gone = [known[name] for name in ours if name not in wanted]
        if gone or moved:  # an index cannot unlearn a run: it is made anew
            self.ledger.set_meta("stale-index", "yes")
        for name in sorted(wanted.keys() - known.keys()):  # first: so what is replaced next is never the only copy
            self._commit([wanted[name]])
        for name in moved:
            self._put(known[name], wanted[name])
        self._discard(gone)
        return wanted != ours

    def _discard(self, helds: Sequence[Held]) -> None:
        """Take runs out that stand elsewhere now."""
        for held in helds:
            path = self._pack_of(self.run(held))
            if path.exists() and held.run_id in self._manifest(path)[2]:
                rest = [item for item in packs.read_all(path) if item[0].run_id != held.run_id]
                packs.write(path, rest) if rest else path.unlink()
            self._unlink_loose(held)
        self.ledger.drop([held.run_id for held in helds])

    def _put(self, held: Held, item: merge.Stored) -> None:
        """Replace a stored run by another capture of the same id, so that a crash leaves the one or the other."""
        run, stored = item
        if not held.packed:
            blob, described = self._paths(held)
            files.replace(_next(blob), stored)
            files.replace(_next(described), metadata.encode(run))
            self.ledger.reopen(held.run_id)
            _next(blob).replace(blob)
            self._finish_put(held)
        self._rewrite_pack(self._pack_of(run), {held.run_id: item})
        if held.packed:
            self._unlink_loose(held)
        self.ledger.commit([run], packed=held.packed)

    def _finish_put(self, held: Held) -> None:
        """Complete or take back a replacement that was cut short: it counts once its bytes are in their place."""
        blob, described = self._paths(held)
        if _next(described).exists() and not _next(blob).exists():
            _next(described).replace(described)
            files.sync_folder(described.parent)
        _next(described).unlink(missing_ok=True)
        _next(blob).unlink(missing_ok=True)

    def _paths(self, held: Held) -> tuple[Path, Path]:
        """Where the bytes and the metadata of a loose run lie."""
        names = (metadata.blob_name(held.user, held.run_id), metadata.metadata_name(held.user, held.run_id))
        return self.root / names[0], self.root / names[1]


def _next(path: Path) -> Path:
    return path.with_name(path.name + ".next")


def check_format(root: Path) -> None:
    """Raise NewerFormat when a newer Perdure wrote this archive folder; FileNotFoundError when it is none."""
    path = root / "FORMAT"
    try:
        found = int(path.read_text(encoding="ascii").strip() or 0)
    except ValueError as error:
        raise NewerFormat(f"{path} is not a number") from error
    if found > FORMAT:
        raise NewerFormat(f"{path} says {found}, this Perdure knows {FORMAT}")


def stored_sha256(run: Run) -> str:
    """The hash that the run's bytes on disk must have."""
    return run.stored_sha256 or run.sha256


def walk(root: Path) -> Iterator[tuple[Run, str | None]]:
    """Every committed run under an archive folder, with the pack that holds it. Damaged files are passed over."""
    for path in (root / "runs").glob("*/*/*.metadata.json"):
        with contextlib.suppress(DamagedRun, FileNotFoundError):
            yield metadata.decode(path.read_bytes(), where=str(path)), None
    for path in (root / "packs").glob("*/*.jsonl.zst"):  # last: where a run is in both places, the pack counts
        with contextlib.suppress(DamagedRun):
            for item in packs.manifest(path).runs:
                yield item.run, str(path.relative_to(root))


def users_in(root: Path) -> list[str]:
    """Everybody of whom an archive folder holds anything, by name."""
    return sorted({path.name for kind in ("journal", "packs", "runs") for path in (root / kind).glob("*")})


def stored_runs(root: Path, *, user: str, damaged: list[str]) -> Iterator[tuple[Run, bytes]]:
    """Every run of a user under an archive folder with its bytes; read without a ledger, so also from another home.

    What cannot be read, or says that it is another user's, is named in `damaged`.
    """
    for item in _stored_runs(root, user, damaged):
        if item[0].source.user == user:
            yield item
        else:
            damaged.append(item[0].run_id)


def _stored_runs(root: Path, user: str, damaged: list[str]) -> Iterator[tuple[Run, bytes]]:
    for path in sorted((root / "runs" / user).glob("*/*.metadata.json")):
        blob = path.with_name(path.name.replace(".metadata.json", ".jsonl"))
        try:
            item = metadata.decode(path.read_bytes(), where=str(path)), blob.read_bytes()
        except (DamagedRun, FileNotFoundError):
            damaged.append(str(path))
        else:
            yield item
    for path in sorted((root / "packs" / user).glob("*.jsonl.zst")):
        try:
            items = packs.read_all(path)
        except DamagedRun:
            damaged.append(str(path))
        else:
            yield from items
