"""Ingest files and deltas into the archive. The one place where formats, privacy and archive meet.

An import reads each source from its beginning, so that a rewrite is noticed, and stores only what is new.
It does not open a file whose size and time are those of its last import.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from stat import S_ISREG

import msgspec
from msgspec.structs import replace

from perdure import formats
from perdure.archive.archive import Archive, Delta, StoreResult
from perdure.archive.manifest import RunRecord
from perdure.archive.merge import to_base_session
from perdure.archive.run_files import split_source_lines
from perdure.archive.tombstones import Tombstones
from perdure.capture import enqueue, policy, settle, transcripts
from perdure.capture.lines import Line
from perdure.capture.settle import Answer, Attempt
from perdure.capture.transcripts import count_complete_bytes, escape_text, find_lines_end, to_plain_name
from perdure.config import Config
from perdure.errors import Busy, FormatFault, UsageError
from perdure.identity import find_project
from perdure.types import OTHER_LINES, PROMPTS_ONLY, Origin, Source, Span

HEAD_BYTES = 1 << 16  # enough to detect the format and the session
_PIECE_BYTES = 1 << 26  # a larger file is captured in runs of about this size
_BATCH_BYTES = 1 << 25  # deltas that are made durable together
_BATCH_RUNS = 512

TombstonesByUser = dict[str, Tombstones]
Progress = Callable[[int, int], None]  # files done, bytes done


class IngestResult(msgspec.Struct):
    """The result of an import, in counts and by name."""

    n_files: int = 0  # files examined
    n_unchanged: int = 0  # not opened: unchanged since the last import
    n_runs: int = 0  # new runs
    n_bytes: int = 0  # new bytes
    n_rewritten: int = 0  # sources that had been rewritten and were captured as a new generation
    by_runtime: Counter[str] = msgspec.field(default_factory=Counter)  # new runs
    left_out: list[tuple[str, str]] = []  # (path, why), by the owner's own rules
    refused: list[tuple[str, str]] = []  # (path, why) of files of no known format
    n_recovered_prompts: int = 0  # new lines of prompt histories
    n_recovered_sessions: int = 0  # deleted sessions with such lines

    def count_recovered(self, origin: Origin, n_lines: int) -> None:
        """Count the new lines of one session, if they are of a prompt history."""
        if origin.runtime.endswith(PROMPTS_ONLY) and origin.session != OTHER_LINES and n_lines:
            self.n_recovered_prompts += n_lines
            self.n_recovered_sessions += 1


class IngestRules(msgspec.Struct, frozen=True):
    """The settings of an ingest: for whom it captures, and what it never captures."""

    home: Path
    config: Config
    user: str
    user_home: Path
    tags: tuple[str, ...] = ()
    forced_runtime: str | None = None  # runtime to read every file as
    sender: Delta | None = None  # the template of another machine's capture, which knows where it was made

    def find_refusal(self, origin: Origin) -> str | None:
        """Return why nothing of this session may be copied, or None."""
        capture_rules = policy.make_rules(self.home, self.config, user=self.user, user_home=self.user_home)
        return enqueue.get_refusal(capture_rules, msgspec.to_builtins(origin))

    def make_delta(self, origin: Origin, data: bytes, *, path: str | None, from_offset: int = 0) -> Delta:
        """Make a delta of this owner."""
        if self.sender is not None:
            return replace(self.sender, origin=origin, data=data, from_offset=from_offset)
        return Delta(
            origin=origin,
            user=self.user,
            machine=self.config.machine,
            agent=self.config.agent,
            data=data,
            from_offset=from_offset,
            project=find_project(origin.cwd),
            path=to_plain_path(path),
            tags=tuple(to_plain_name(tag) for tag in self.tags),
        )


def import_files(
    archive: Archive,
    rules: IngestRules,
    paths: Iterable[Path],
    *,
    tombstones: TombstonesByUser,
    now: datetime,
    progress: Progress | None = None,
) -> IngestResult:
    """Capture every transcript among these files; report the files that fail or are left out, and never raise
    for one.
    """
    totals = IngestResult()
    batch = _DeltaBatch(archive, tombstones, now, totals)
    n_bytes = 0
    for path in paths:
        totals.n_files += 1
        signature = _read_signature(path)
        try:
            if signature is None:
                totals.refused.append((str(path), "cannot be read"))
            elif _is_seen(archive, path, signature):
                totals.n_unchanged += 1
            else:
                _import_file(archive, rules, path, batch, signature)
        except (FormatFault, UsageError) as error:
            totals.refused.append((str(path), str(error)))
        except OSError as error:
            totals.refused.append((str(path), error.strerror or str(error)))
        n_bytes += signature[0] if signature else 0
        if progress:
            progress(totals.n_files, n_bytes)
    batch.flush()
    return totals


def store_delta(
    archive: Archive, delta: Delta, *, transcript: Path | None, tombstones: TombstonesByUser, now: datetime
) -> Answer:
    """Store the bytes of a delta, in whatever way that takes; return the archive's last answer.

    transcript: the file that the delta comes from, if it still exists.
    """
    batch = _DeltaBatch(archive, tombstones, now, IngestResult())
    attempts = settle.settle_delta(delta.from_offset, has_transcript=transcript is not None)
    return settle.run_attempts(attempts, lambda attempt: batch.send(delta, attempt, transcript))


def capture_lines(
    archive: Archive,
    rules: IngestRules,
    origin: Origin,
    lines: Sequence[bytes],
    *,
    path: str | None,
    tombstones: TombstonesByUser,
    now: datetime,
) -> StoreResult:
    """Append the emitted lines of a known session that the archive does not have yet.

    Raises Busy when another process wrote to the session meanwhile.
    """
    batch = _DeltaBatch(archive, tombstones, now, IngestResult())
    _append_lines(archive, rules, origin, lines, path=path, batch=batch, is_live=True)
    batch.flush()
    if batch.unsettled:
        raise Busy(f"session {origin.session}")
    if batch.last_result is not None:
        return batch.last_result
    generation = archive.ledger.get_generation(rules.user, origin.runtime, origin.session)
    source = Source(rules.user, origin.runtime, origin.session, generation)
    end = archive.ledger.get_end(source)
    return StoreResult("already", end, generation, archive.find_holder(source, 0, end))


def list_line_spans(archive: Archive, user: str, origin: Origin) -> dict[bytes, Span]:
    """Return where each stored line of a session is, of the source's last generation; forgotten lines are not there."""
    generation = archive.ledger.get_generation(user, origin.runtime, origin.session)
    entries = archive.ledger.list_source_runs(Source(user, origin.runtime, origin.session, generation))
    return {
        line.raw: Span(entry.run_id, *line.span)
        for entry in sorted(entries, key=lambda entry: entry.from_offset)
        for line in archive.read_lines(entry)
    }


def take_again(
    archive: Archive,
    rules: IngestRules,
    paths: Iterable[Path],
    lost: Sequence[RunRecord],
    *,
    tombstones: TombstonesByUser,
    now: datetime,
) -> list[str]:
    """Store lost runs again from the transcripts that hold exactly their bytes; return the ids of those stored."""
    records_by_session: dict[tuple[str, str], list[RunRecord]] = {}
    for record in lost:
        session = (record.source.runtime, to_base_session(record.source.session))
        records_by_session.setdefault(session, []).append(record)
    stored_ids: dict[str, None] = {}
    for path in paths:
        with contextlib.suppress(OSError, FormatFault, UsageError):  # what cannot be read holds nothing
            for origin, read in _open_streams(rules, path):
                for record in records_by_session.get((origin.runtime, origin.session), ()):
                    data = read(record.start, record.end) if record.run not in stored_ids else b""
                    if hashlib.sha256(data).hexdigest() == record.sha256 and not rules.find_refusal(origin):
                        delta = rules.make_delta(origin, data, path=str(path.absolute()), from_offset=record.start)
                        archive.store_again(record, delta, now=now, tombstones=tombstones)
                        stored_ids[record.run] = None
    return list(stored_ids)


def _open_streams(rules: IngestRules, path: Path) -> Iterator[tuple[Origin, Callable[[int, int], bytes]]]:
    """Yield each session of a file, with a function that returns the bytes of its source between two offsets."""
    if _read_signature(path) is None:
        return
    with path.open("rb") as file:
        header = file.read(HEAD_BYTES)
    runtime = rules.forced_runtime or formats.detect(header, str(path.absolute()))
    if runtime is None:
        return
    if formats.is_append_only(runtime, header):
        yield (
            clean_origin(add_noted_fields(formats.identify(runtime, header, str(path.absolute())), path)),
            partial(_read_part, path),
        )
        return
    for origin, lines in formats.emit(runtime, path):
        data = b"".join(line + b"\n" for line in lines)
        yield clean_origin(add_noted_fields(origin, path)), partial(_cut, data)


def _cut(data: bytes, low: int, high: int) -> bytes:
    return data[low:high]


def _read_part(path: Path, low: int, high: int) -> bytes:
    """Return the bytes of a file between two offsets."""
    with path.open("rb") as file:
        file.seek(low)
        return file.read(high - low)


def _read_signature(path: Path) -> tuple[int, int] | None:
    """Return (size, mtime in ns) of a file, including SQLite's write-ahead log; None when it cannot be read."""
    try:
        status = path.stat()
    except OSError:
        return None
    if not S_ISREG(status.st_mode):  # reading a pipe would block
        return None
    wal_path = path.with_name(path.name + "-wal")
    wal_status = wal_path.stat() if path.suffix == ".db" and wal_path.exists() else None
    return (
        status.st_size + (wal_status.st_size if wal_status else 0),
        max(status.st_mtime_ns, wal_status.st_mtime_ns if wal_status else 0),
    )


def _is_seen(archive: Archive, path: Path, signature: tuple[int, int]) -> bool:
    last_signature = archive.ledger.get_seen(escape_text(str(path.absolute())))
    return last_signature is not None and (last_signature[0], last_signature[1]) == signature


def _import_file(
    archive: Archive, rules: IngestRules, path: Path, batch: _DeltaBatch, signature: tuple[int, int]
) -> None:
    with path.open("rb") as file:
        header = file.read(HEAD_BYTES)
    if not header.strip():
        batch.totals.n_unchanged += 1
        return
    runtime = rules.forced_runtime or formats.detect(header, str(path.absolute()))
    if runtime is None:
        raise FormatFault(str(path))
    full_path = str(path.absolute())
    is_append_only = formats.is_append_only(runtime, header)
    if runtime == "gemini-cli" and is_append_only and transcripts.is_blank(path):
        batch.totals.n_unchanged += 1
        return
    if is_append_only:
        origin = clean_origin(add_noted_fields(formats.identify(runtime, header, full_path), path))
        refusal = rules.find_refusal(origin)
        if refusal:
            batch.totals.left_out.append((full_path, refusal))
            return
        _import_lines(rules, origin, path, batch)
    else:
        _import_document(archive, rules, runtime, path, batch)
    batch.mark_seen(full_path, signature)


def add_noted_fields(origin: Origin, path: Path) -> Origin:
    """Return the origin with what its client notes next to the transcript: the folder, and of what it is a fork."""
    if origin.runtime not in transcripts.CLIENTS_WITH_NOTED_FOLDER or origin.cwd is not None:
        return origin
    origin = replace(origin, cwd=transcripts.read_session_folder(path.absolute()))
    fork = transcripts.read_noted_fork(path.absolute()) if origin.parent_session is None else ""
    return replace(origin, parent_session=fork, fork=True) if fork else origin


def _import_lines(rules: IngestRules, origin: Origin, path: Path, batch: _DeltaBatch) -> None:
    """Capture a file that grows by lines; one of several pieces at once, a smaller one together with others."""
    pieces = _read_pieces(path)
    first_piece, second_piece = next(pieces, None), next(pieces, None)
    if first_piece is None:
        return
    delta = rules.make_delta(origin, first_piece[1], path=str(path.absolute()))
    if second_piece is None:
        batch.add(delta)
        return
    batch.flush()
    answer = settle.run_attempts(settle.put_stream("transcript", 0), lambda attempt: batch.send(delta, attempt, path))
    if not answer.is_done:
        raise OSError(f"{path} changed while it was read; the next import tries again")


def _read_pieces(path: Path, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, complete lines) of a file, in pieces that fit into memory; a longer line makes a longer piece."""
    offset, remainder = start, b""
    with path.open("rb") as file:
        file.seek(start)
        while block := file.read(_PIECE_BYTES):
            remainder += block
            cut = remainder.rfind(b"\n") + 1
            if len(block) == _PIECE_BYTES and cut:
                yield offset, remainder[:cut]
                offset, remainder = offset + cut, remainder[cut:]
    if count_complete_bytes(remainder):
        yield offset, remainder


def _import_document(archive: Archive, rules: IngestRules, runtime: str, path: Path, batch: _DeltaBatch) -> None:
    """Capture a source that is not append-only: the lines that its adapter emits and the archive lacks."""
    batch.flush()
    origins: set[Origin] = set()
    for emitted_origin, lines in emit_missing(runtime, path):
        origin = clean_origin(add_noted_fields(emitted_origin, path))
        refusal = rules.find_refusal(origin)
        if refusal:
            batch.totals.left_out.append((f"{path} ({origin.session})", refusal))
        elif not _has_transcript(archive, rules, origin):
            if origin in origins:  # its earlier lines must count as stored
                batch.flush()
            origins.add(origin)
            n_lines = _append_lines(archive, rules, origin, lines, path=str(path.absolute()), batch=batch)
            batch.totals.count_recovered(origin, n_lines)


def emit_missing(runtime: str, path: Path) -> list[tuple[Origin, list[bytes]]]:
    """Return the sessions of a document; of a prompt history, those whose transcripts the client has deleted."""
    sessions = formats.emit(runtime, path)
    if not runtime.endswith(PROMPTS_ONLY):
        return sessions
    present_ids = transcripts.list_session_ids(path)
    return [(origin, lines) for origin, lines in sessions if origin.session not in present_ids]


def _has_transcript(archive: Archive, rules: IngestRules, origin: Origin) -> bool:
    """Return True if these are prompts of a session whose transcript is in the archive."""
    client = origin.runtime.removesuffix(PROMPTS_ONLY)
    return client != origin.runtime and archive.ledger.get_end(Source(rules.user, client, origin.session)) > 0


def _append_lines(
    archive: Archive,
    rules: IngestRules,
    origin: Origin,
    lines: Sequence[bytes],
    *,
    path: str | None,
    batch: _DeltaBatch,
    is_live: bool = False,
) -> int:
    """Add the lines of a session that its source lacks, after those that it has; return how many.

    is_live: the lines describe the current state, so a state that returned counts; a document may be old.
    """
    generation = archive.ledger.get_generation(rules.user, origin.runtime, origin.session)
    source = Source(rules.user, origin.runtime, origin.session, generation)
    end, stored_lines = _read_stored_lines(archive, source)
    new_lines = formats.list_new_lines(origin.runtime, stored_lines, lines, is_live=is_live)
    new_lines = _drop_forgotten(batch, rules, source, end, origin, new_lines)
    if new_lines:
        data = b"".join(line + b"\n" for line in new_lines)
        batch.add(rules.make_delta(origin, data, path=path, from_offset=end))
    return len(new_lines)


def _read_stored_lines(archive: Archive, source: Source) -> tuple[int, list[bytes]]:
    """Return (end of the source, its stored lines in order)."""
    lines: list[bytes] = []
    for entry in sorted(archive.ledger.list_source_runs(source), key=lambda entry: entry.from_offset):
        lines += [line.raw for line, _ in split_source_lines(archive.read_run(entry), archive.read(entry))]
    return archive.ledger.get_end(source), lines


def _drop_forgotten(
    batch: _DeltaBatch, rules: IngestRules, source: Source, end: int, origin: Origin, lines: Sequence[bytes]
) -> list[bytes]:
    """Return the lines that no tombstone names: an adapter emits a forgotten message again and again."""
    tombstones = batch.tombstones.get(rules.user)
    if not tombstones or not lines:
        return list(lines)
    placed_lines, offset = [], end
    for raw in lines:
        placed_lines.append((Line(offset, raw), offset + len(raw) + 1))
        offset += len(raw) + 1
    spawned = origin.parent_session is not None and not origin.fork
    turns = formats.parse(source.runtime, [line for line, _ in placed_lines], spawned=spawned).turns
    turn_by_offset = tombstones.find_forgotten_lines(source, placed_lines, turns)
    remaining = [line.raw for line, _ in placed_lines if line.offset not in turn_by_offset]
    return [raw for raw in remaining if not tombstones.has_forgotten_line(source, raw)]


class _DeltaBatch:
    """Deltas on their way into the archive, made durable together; after that their files count as seen."""

    def __init__(self, archive: Archive, tombstones: TombstonesByUser, now: datetime, totals: IngestResult) -> None:
        self.totals = totals
        self.tombstones = tombstones
        self._archive = archive
        self._now = now
        self.last_result: StoreResult | None = None
        self.unsettled: list[Delta] = []  # what the archive could not join to anything
        self._deltas: list[Delta] = []
        self._seen_files: list[tuple[str, tuple[int, int]]] = []

    def add(self, delta: Delta) -> None:
        self._deltas.append(delta)
        if len(self._deltas) >= _BATCH_RUNS or sum(len(d.data) for d in self._deltas) >= _BATCH_BYTES:
            self.flush()

    def mark_seen(self, path: str, signature: tuple[int, int]) -> None:
        self._seen_files.append((path, signature))

    def send(self, delta: Delta, attempt: Attempt, transcript: Path | None = None) -> Answer:
        """Store the bytes of an attempt at once; return the answer to the last piece, or to the first that is not
        wholly stored.
        """
        answer, generation = settle.NOT_SENT, attempt.generation
        for piece in _read_attempt(delta, attempt, transcript):
            placed = replace(piece, generation=generation)
            (result,) = self._archive.store([placed], now=self._now, tombstones=self.tombstones)
            self._count_result(placed, result)
            answer, generation = _to_answer(result), result.generation
            if not answer.is_done:
                break
        return answer

    def flush(self) -> None:
        deltas, self._deltas = self._deltas, []
        results = self._archive.store(deltas, now=self._now, tombstones=self.tombstones)
        for delta, result in zip(deltas, results, strict=True):
            self._count_result(delta, result)
            answer = settle.run_attempts(
                settle.put_stream("delta", delta.from_offset), partial(self.send, delta), _to_answer(result)
            )
            self.unsettled += [] if answer.is_done else [delta]
        for path, (n_bytes, mtime_ns) in self._seen_files:
            self._archive.ledger.set_seen(escape_text(path), n_bytes, mtime_ns, "")
        self._seen_files = []

    def _count_result(self, delta: Delta, result: StoreResult) -> None:
        self.last_result = result
        if result.outcome == "stored":
            self.totals.n_runs += 1
            self.totals.n_bytes += result.n_bytes
            self.totals.by_runtime[delta.origin.runtime] += 1
            self.totals.n_rewritten += int(result.generation > 0 and delta.from_offset == 0)


def _read_attempt(delta: Delta, attempt: Attempt, transcript: Path | None) -> Iterator[Delta]:
    """Yield the bytes of an attempt as deltas."""
    if attempt.stream == "transcript":
        start = find_lines_end(transcript, attempt.from_offset) if transcript else 0
        for offset, piece in _read_pieces(transcript, start) if transcript else ():
            yield replace(delta, data=piece, from_offset=offset)
        return
    origin, low = delta.origin, delta.from_offset
    if attempt.stream == "separate":
        name = f"{origin.session}~{hashlib.sha256(delta.data).hexdigest()[:12]}"
        origin, low = replace(origin, session=name), 0
    yield replace(delta, origin=origin, data=delta.data[attempt.from_offset - low :], from_offset=attempt.from_offset)


def _to_answer(result: StoreResult) -> Answer:
    return Answer(result.outcome, result.to_offset, result.generation)


def clean_origin(origin: Origin) -> Origin:
    """Return the origin with strings that every file name, table and terminal can hold: no NUL, no lone surrogates."""
    return replace(
        origin,
        runtime=to_plain_name(origin.runtime),
        session=to_plain_name(origin.session),
        conversation=to_plain_name(origin.conversation),
        parent_session=to_plain_name(origin.parent_session) if origin.parent_session is not None else None,
        cwd=to_plain_name(origin.cwd) if origin.cwd is not None else None,
    )


def to_plain_path(path: str | None) -> str | None:
    """Return a path as text; bytes that are no text are written as escapes."""
    return None if path is None else escape_text(path)
