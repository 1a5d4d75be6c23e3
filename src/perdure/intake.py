"""Intake: files and deltas on their way into the archive. The one place where formats, privacy and archive meet.

Import reads each source from its beginning, so that a rewrite is noticed, and stores only what is new. A file
whose size and time are those of its last import is not opened at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from stat import S_ISREG

import msgspec

from perdure import formats
from perdure.archive.archive import Answer, Archive, Delta
from perdure.archive.metadata import source_lines
from perdure.archive.tombstones import Tombstones
from perdure.capture import gemini, post
from perdure.capture import rules as capturing
from perdure.capture.origin import escaped, plain
from perdure.capture.whole import complete
from perdure.config import Config
from perdure.errors import Busy, FormatFault, UsageError
from perdure.identity import project_of
from perdure.types import Line, Origin, Source

HEAD_BYTES = 1 << 16  # enough to tell a format and its session by
_PIECE_BYTES = 1 << 26  # a larger file is captured in runs of about this size
_BATCH_BYTES = 1 << 25  # deltas that are made durable together
_BATCH_RUNS = 512

Tombs = dict[str, Tombstones]
Progress = Callable[[int, int], None]  # files done, bytes done


@dataclass
class Imported:
    """What an import did, in counts and by name."""

    n_files: int = 0  # looked at
    n_unchanged: int = 0  # not opened: as they were at the last import
    n_runs: int = 0  # new runs
    n_bytes: int = 0  # new bytes
    n_rewritten: int = 0  # sources that had been rewritten and were captured as a new generation
    by_runtime: Counter[str] = field(default_factory=Counter)  # new runs
    left_out: list[tuple[str, str]] = field(default_factory=list)  # (path, why), by the owner's own rules
    refused: list[tuple[str, str]] = field(default_factory=list)  # (path, why) of what no format claims


@dataclass(frozen=True)
class Rules:
    """Who captures, and what is never captured."""

    home: Path
    config: Config
    user: str
    user_home: Path
    tags: tuple[str, ...] = ()
    forced: str | None = None  # runtime to read every file as
    sender: Delta | None = None  # another machine's capture, which knows where it was made

    def refusal(self, origin: Origin) -> str | None:
        """Why nothing of this session may be copied, or None."""
        rules = capturing.of(self.home, self.config, user=self.user, user_home=self.user_home)
        return post.refusal(rules, msgspec.to_builtins(origin))

    def delta(self, origin: Origin, data: bytes, *, path: str | None, from_offset: int = 0) -> Delta:
        """A delta of this owner's."""
        if self.sender is not None:
            return replace(self.sender, origin=origin, data=data, from_offset=from_offset)
        return Delta(
            origin=origin, user=self.user, machine=self.config.machine, agent=self.config.agent, data=data,
            from_offset=from_offset, project=project_of(origin.cwd), path=plain_path(path),
            tags=tuple(plain(tag) for tag in self.tags),
        )  # fmt: skip


def import_files(
    archive: Archive,
    rules: Rules,
    paths: Iterable[Path],
    *,
    tombstones: Tombs,
    now: datetime,
    progress: Progress | None = None,
) -> Imported:
    """Capture every transcript among these files; never fails for one of them, and says what it left out."""
    done = Imported()
    batch = _Batch(archive, tombstones, now, done)
    n_bytes = 0
    for path in paths:
        done.n_files += 1
        signature = _signature(path)
        try:
            if signature is None:
                done.refused.append((str(path), "cannot be read"))
            elif _was_seen(archive, path, signature):
                done.n_unchanged += 1
            else:
                _import_one(archive, rules, path, batch, signature)
        except (FormatFault, UsageError) as error:
            done.refused.append((str(path), str(error)))
        except OSError as error:
            done.refused.append((str(path), error.strerror or str(error)))
        n_bytes += signature[0] if signature else 0
        if progress:
            progress(done.n_files, n_bytes)
    batch.flush()
    return done


def capture_file(
    archive: Archive, rules: Rules, origin: Origin, path: Path, *, tombstones: Tombs, now: datetime
) -> None:
    """Capture a whole transcript of a known session, as far as the archive lacks it."""
    batch = _Batch(archive, tombstones, now, Imported())
    for offset, piece in _pieces(path):
        batch.add(rules.delta(origin, piece, path=str(path.absolute()), from_offset=offset))
    batch.flush()


def capture_lines(
    archive: Archive, rules: Rules, origin: Origin, lines: Sequence[bytes], *, path: str | None, tombstones: Tombs,
    now: datetime,
) -> Answer:  # fmt: skip
    """Put emitted lines of a known session behind what the archive has of it, as far as it lacks them.

    Raises Busy when another process wrote to the session meanwhile.
    """
    batch = _Batch(archive, tombstones, now, Imported())
    _append(archive, rules, origin, lines, path=path, batch=batch, is_live=True)
    batch.flush()
    if batch.unsettled:
        raise Busy(f"session {origin.session}")
    if batch.last is not None:
        return batch.last
    generation = archive.ledger.generation(rules.user, origin.runtime, origin.session)
    source = Source(rules.user, origin.runtime, origin.session, generation)
    end = archive.ledger.end(source)
    return Answer("already", end, generation, archive.holder(source, 0, end))


def _signature(path: Path) -> tuple[int, int] | None:
    """(size, mtime in ns) of a file, with what SQLite keeps beside it; None when it cannot be looked at."""
    try:
        stat = path.stat()
    except OSError:
        return None
    if not S_ISREG(stat.st_mode):  # a pipe would be waited for without end
        return None
    beside = path.with_name(path.name + "-wal")
    extra = beside.stat() if path.suffix == ".db" and beside.exists() else None
    return (stat.st_size + (extra.st_size if extra else 0), max(stat.st_mtime_ns, extra.st_mtime_ns if extra else 0))


def _was_seen(archive: Archive, path: Path, signature: tuple[int, int]) -> bool:
    seen = archive.ledger.seen(escaped(str(path.absolute())))
    return seen is not None and (seen[0], seen[1]) == signature


def _import_one(archive: Archive, rules: Rules, path: Path, batch: _Batch, signature: tuple[int, int]) -> None:
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if not head.strip():
        batch.done.n_unchanged += 1
        return
    runtime = rules.forced or formats.detect(head, path.name)
    if runtime is None:
        raise FormatFault(str(path))
    where = str(path.absolute())
    is_append_only = formats.is_append_only(runtime, head)
    if runtime == "gemini-cli" and is_append_only and gemini.is_blank(path):
        batch.done.n_unchanged += 1
        return
    if is_append_only:
        origin = clean(_placed(formats.identify(runtime, head, where), path))
        refusal = rules.refusal(origin)
        if refusal:
            batch.done.left_out.append((where, refusal))
            return
        _import_lines(archive, rules, origin, path, batch)
    else:
        _import_document(archive, rules, runtime, path, batch)
    batch.seen(where, signature)


def _placed(origin: Origin, path: Path) -> Origin:
    """The origin with the folder that is noted beside the transcript, where the transcript does not say."""
    if origin.runtime != "gemini-cli" or origin.cwd is not None:
        return origin
    return replace(origin, cwd=gemini.folder(path.absolute()))


def _import_lines(archive: Archive, rules: Rules, origin: Origin, path: Path, batch: _Batch) -> None:
    """Capture a file that grows by lines; one that was rewritten behind its first piece becomes a generation whole."""
    n_pieces = 0
    for delta in _deltas(rules, origin, path):
        batch.add(delta)
        n_pieces += 1
    if n_pieces < 2:
        return
    batch.flush()
    if batch.unsettled and not _recapture(archive, rules, origin, path, batch):
        raise OSError(f"{path} changed while it was read; the next import tries again")


def _recapture(archive: Archive, rules: Rules, origin: Origin, path: Path, batch: _Batch) -> bool:
    """Find the generation that all pieces of a file continue, newest first, or open the next."""
    batch.unsettled.clear()
    latest = archive.ledger.generation(rules.user, origin.runtime, origin.session)
    for generation in (*range(latest, -1, -1), latest + 1):
        if all(batch.put(replace(delta, generation=generation)) for delta in _deltas(rules, origin, path)):
            return True
    return False


def _deltas(rules: Rules, origin: Origin, path: Path) -> Iterator[Delta]:
    return (rules.delta(origin, data, path=str(path.absolute()), from_offset=at) for at, data in _pieces(path))


def _pieces(path: Path) -> Iterator[tuple[int, bytes]]:
    """(offset, complete lines) of a file, in pieces of bearable size; a longer line makes a longer piece."""
    offset, rest = 0, b""
    with path.open("rb") as file:
        while block := file.read(_PIECE_BYTES):
            rest += block
            cut = rest.rfind(b"\n") + 1
            if len(block) == _PIECE_BYTES and cut:
                yield offset, rest[:cut]
                offset, rest = offset + cut, rest[cut:]
    if complete(rest):
        yield offset, rest


def _import_document(archive: Archive, rules: Rules, runtime: str, path: Path, batch: _Batch) -> None:
    """Capture a source that is not append-only: the lines that its adapter emits and the archive lacks."""
    for emitted, lines in formats.emit(runtime, path):
        origin = clean(_placed(emitted, path))
        refusal = rules.refusal(origin)
        if refusal:
            batch.done.left_out.append((f"{path} ({origin.session})", refusal))
            continue
        batch.flush()
        _append(archive, rules, origin, lines, path=str(path.absolute()), batch=batch)


def _append(
    archive: Archive, rules: Rules, origin: Origin, lines: Sequence[bytes], *, path: str | None, batch: _Batch,
    is_live: bool = False,
) -> None:  # fmt: skip
    """Add the lines of a session that its source lacks, behind those that it has. is_live: they say what stands now, so
    that a state which returned counts; a document may be old.
    """
    generation = archive.ledger.generation(rules.user, origin.runtime, origin.session)
    source = Source(rules.user, origin.runtime, origin.session, generation)
    end, stored = _stored_lines(archive, source)
    fresh = formats.anew(origin.runtime, stored, lines, is_live=is_live)
    fresh = _unforgotten(batch, rules, source, end, origin, fresh)
    if fresh:
        data = b"".join(line + b"\n" for line in fresh)
        batch.add(rules.delta(origin, data, path=path, from_offset=end))


def _stored_lines(archive: Archive, source: Source) -> tuple[int, list[bytes]]:
    """(end of the source, its stored lines in order)."""
    found: list[bytes] = []
    for held in sorted(archive.ledger.runs_of(source), key=lambda held: held.from_offset):
        found += [line.raw for line, _ in source_lines(archive.run(held), archive.read(held))]
    return archive.ledger.end(source), found


def _unforgotten(
    batch: _Batch, rules: Rules, source: Source, end: int, origin: Origin, lines: Sequence[bytes]
) -> list[bytes]:
    """The lines that no tombstone concerns: an adapter emits a forgotten message again and again."""
    tombstones = batch.tombstones.get(rules.user)
    if not tombstones or not lines:
        return list(lines)
    placed, offset = [], end
    for raw in lines:
        placed.append((Line(offset, raw), offset + len(raw) + 1))
        offset += len(raw) + 1
    spawned = origin.parent_session is not None and not origin.fork
    turns = formats.parse(source.runtime, [line for line, _ in placed], spawned=spawned).turns
    doomed = tombstones.doomed(source, placed, turns)
    kept = [line.raw for line, _ in placed if line.offset not in doomed]
    return [raw for raw in kept if not tombstones.holds_line(source, raw)]


class _Batch:
    """Deltas on their way into the archive, made durable together; then their files count as seen."""

    def __init__(self, archive: Archive, tombstones: Tombs, now: datetime, done: Imported) -> None:
        self.done = done
        self.tombstones = tombstones
        self._archive = archive
        self._now = now
        self.last: Answer | None = None
        self.unsettled: list[Delta] = []  # what the archive could not join to anything
        self._deltas: list[Delta] = []
        self._seen: list[tuple[str, tuple[int, int]]] = []

    def add(self, delta: Delta) -> None:
        self._deltas.append(delta)
        if len(self._deltas) >= _BATCH_RUNS or sum(len(d.data) for d in self._deltas) >= _BATCH_BYTES:
            self.flush()

    def seen(self, path: str, signature: tuple[int, int]) -> None:
        self._seen.append((path, signature))

    def put(self, delta: Delta) -> bool:
        """Store a delta at once, in its generation and no other; whether the archive holds all of it then."""
        (answer,) = self._archive.store([delta], now=self._now, tombstones=self.tombstones)
        answers = [answer]
        if answer.outcome == "accepted":
            answers = settle(self._archive, delta, answer, tombstones=self.tombstones, now=self._now)
        for settled in answers:
            self._note(delta, settled)
        return answers[-1].outcome in ("stored", "already")

    def flush(self) -> None:
        answers = self._archive.store(self._deltas, now=self._now, tombstones=self.tombstones)
        for delta, answer in zip(self._deltas, answers, strict=True):
            outcome = answer.outcome
            for settled in settle(self._archive, delta, answer, tombstones=self.tombstones, now=self._now):
                self._note(delta, settled)
                outcome = settled.outcome
            self.unsettled += [delta] if outcome in ("diverged", "gap") else []
        self._deltas = []
        for path, (n_bytes, mtime_ns) in self._seen:
            self._archive.ledger.set_seen(escaped(path), n_bytes, mtime_ns, "")
        self._seen = []

    def _note(self, delta: Delta, answer: Answer) -> None:
        self.last = answer
        if answer.outcome == "stored":
            self.done.n_runs += 1
            self.done.n_bytes += answer.n_bytes
            self.done.by_runtime[delta.origin.runtime] += 1
            self.done.n_rewritten += int(answer.generation > 0 and delta.from_offset == 0)


def settle(archive: Archive, delta: Delta, answer: Answer, *, tombstones: Tombs, now: datetime) -> list[Answer]:
    """Do what an answer asks for: send the rest, or open a generation; returns every answer on the way."""
    answers = [answer]
    if answer.outcome == "accepted":
        rest = replace(
            delta, data=delta.data[answer.to_offset - delta.from_offset :], from_offset=answer.to_offset,
            generation=answer.generation,
        )  # fmt: skip
        answers += archive.store([rest], now=now, tombstones=tombstones)
    elif answer.outcome == "diverged" and delta.from_offset == 0:
        answers += _other_generation(archive, delta, answer.generation, tombstones=tombstones, now=now)
    return answers


def _other_generation(archive: Archive, delta: Delta, latest: int, *, tombstones: Tombs, now: datetime) -> list[Answer]:
    """Find the generation that these bytes continue, newest first, or open the next."""
    for generation in (*range(latest - 1, -1, -1), latest + 1):
        attempt = replace(delta, generation=generation)
        (answer,) = archive.store([attempt], now=now, tombstones=tombstones)
        if answer.outcome != "diverged":
            return [answer, *settle(archive, attempt, answer, tombstones=tombstones, now=now)[1:]]
    return []


def clean(origin: Origin) -> Origin:
    """The origin with strings that every file name, table and terminal can hold: no NUL, no lone surrogates."""
    return replace(
        origin,
        runtime=plain(origin.runtime),
        session=plain(origin.session),
        conversation=plain(origin.conversation),
        parent_session=plain(origin.parent_session) if origin.parent_session is not None else None,
        cwd=plain(origin.cwd) if origin.cwd is not None else None,
    )


def plain_path(path: str | None) -> str | None:
    """A path as text; one whose bytes are no text has its odd bytes written as escapes."""
    return None if path is None else escaped(path)
