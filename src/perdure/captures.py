"""How bytes of sessions come into a home: from a caller, a hook's outbox, another machine, or an import.

Each capture is durable before its call returns. The archive takes it; the index follows later, in `upkeep`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from perdure import config as settings
from perdure import disk, formats, log
from perdure.archive import ingest
from perdure.archive.archive import Delta, StoreResult
from perdure.archive.manifest import RunRecord
from perdure.capture import enqueue, host_memories, policy, session_file, transcripts
from perdure.capture.enqueue import OutboxDelta
from perdure.connections import Connections, Progress, utc_now
from perdure.errors import ArchiveFault, FormatFault, IndexFault, PerdureError, SessionHeld, UsageError
from perdure.formats import external
from perdure.identity import find_project
from perdure.index import runs
from perdure.sqlite import apsw
from perdure.types import MCP_RUNTIME, Origin, Span

_LOCK_WAIT_S = 60.0  # for another process that empties the outbox, where nobody waits for an answer


class Captures:
    """What comes into one home, for one principal."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._archive = connections.archive
        self._path = connections.path

    # at once ----------------------------------------------------------------------------------------------

    def store(self, origin: Origin, delta: Delta) -> StoreResult:
        """Store the bytes of one session. Raises UsageError where nothing of it may be kept."""
        enqueue.check_allowed(self.rules(), msgspec.to_builtins(origin))
        (answer,) = self._archive.store([delta], now=utc_now(), tombstones=self._connections.tombstones())
        self._connections.publish_quietly()
        return answer

    def delta(
        self, origin: Origin, data: bytes, *, path: str | None, from_offset: int, tags: Sequence[str] = ()
    ) -> Delta:
        """Return bytes of a session as a delta of this machine and user."""
        return self._ingest_rules(tags=tuple(tags)).make_delta(origin, data, path=path, from_offset=from_offset)

    def receive(self, deltas: Sequence[Delta]) -> list[StoreResult]:
        """Store what other machines captured, durably and together; owner and machine are the deltas' own.

        Each answer is one as `Home.capture` gives it.
        """
        answers = self._archive.store(deltas, now=utc_now(), tombstones=self._connections.tombstones())
        self._connections.publish_quietly()
        return answers

    def receive_emitted(self, delta: Delta) -> StoreResult:
        """Append the adapter-generated lines that the archive does not have yet."""
        rules = replace(self._ingest_rules(tags=delta.tags), user=delta.user, sender=delta)
        lines = delta.data.removesuffix(b"\n").split(b"\n")
        tombstones = self._connections.tombstones()
        return ingest.capture_lines(
            self._archive, rules, delta.origin, lines, path=delta.path, tombstones=tombstones, now=utc_now()
        )

    def store_document(self, origin: Origin, lines: Sequence[bytes], *, path: str) -> tuple[bool, dict[bytes, Span]]:
        """Store the lines of an external document that the archive lacks.

        Return whether this is another version than the last one, and where each stored line is; a line that was
        forgotten is not there. Raises UsageError where nothing of it may be kept.
        """
        self.check_not_paused()
        rules = self._ingest_rules()
        if refusal := self.refusal(origin):
            raise UsageError(refusal)
        origin, tombstones = ingest.clean_origin(origin), self._connections.tombstones()
        result = ingest.capture_lines(
            self._archive, rules, origin, lines, path=path, tombstones=tombstones, now=utc_now()
        )
        return result.outcome == "stored", ingest.list_line_spans(self._archive, rules.user, origin)

    def capture_document(
        self, address: str, document: str, *, cwd: str | None, dry_run: bool = False
    ) -> Literal["new", "changed", "unchanged"]:
        """Store a document that an MCP server gave, if it changed since the last time; dry_run: only compare.

        Raises UsageError while capture is paused, or if the folder is excluded.
        """
        origin = ingest.clean_origin(Origin(MCP_RUNTIME, address, address, cwd=cwd))
        rows = [external.ExternalRow(words, tuple(above)) for above, words in host_memories.split_paragraphs(document)]
        lines = external.make_lines(origin.session, rows, changed_at=utc_now())
        stored_lines = ingest.list_line_spans(self._archive, self._connections.user, origin)
        if not formats.list_new_lines(origin.runtime, stored_lines, lines, is_live=True):
            return "unchanged"
        if not dry_run:
            self.store_document(origin, lines, path=address)
        return "changed" if stored_lines else "new"

    def list_documents(self, source: str) -> list[str]:
        """Return the addresses of the documents that were stored of an MCP server. source: its name in the settings."""
        addresses = self._archive.ledger.list_sessions(self._connections.user, MCP_RUNTIME)
        return [address for address in addresses if address.startswith(f"{source}:")]

    def find_store_document(self, store: str, name: str, list_rows: Callable[[str], Sequence[bytes]]) -> str:
        """Return the name of the document that holds the records of a store: `name`, or an earlier one that has more
        than half of them already, because the store was moved or copied, or its project has got a folder.

        list_rows: of a name of a document, the lines of the records in it.
        """
        names = self._archive.ledger.list_sessions(self._connections.user, store)
        if name in names:
            return name
        best_name, n_best = name, len(list_rows(name)) // 2
        for known_name in names:
            origin = ingest.clean_origin(Origin(store, known_name, known_name))
            stored_lines = ingest.list_line_spans(self._archive, self._connections.user, origin)
            n_stored = sum(line in stored_lines for line in list_rows(known_name))
            if n_stored > n_best:
                best_name, n_best = known_name, n_stored
        return best_name

    # what may not be kept ---------------------------------------------------------------------------------

    def refusal(self, origin: Origin) -> str | None:
        """Return why nothing of a session may be kept (it is incognito, or its project is excluded), or None."""
        return enqueue.get_refusal(self.rules(), msgspec.to_builtins(ingest.clean_origin(origin)))

    def refusal_of_received(self, origin: Origin) -> str | None:
        """Return why nothing of another machine's session may be kept here, or None.

        Folders that are excluded here are folders of this machine, so they do not count.
        """
        return enqueue.get_refusal(self.rules()._replace(exclude=()), msgspec.to_builtins(ingest.clean_origin(origin)))

    def pause(self, *, until_at: datetime | None = None, reason: str = "") -> None:
        """Capture nothing until a moment, or until `resume`."""
        policy.pause_capture(self._path, policy.CapturePause(utc_now(), until_at, reason))

    def resume(self) -> bool:
        """Capture again. Return True if capture had been paused."""
        return policy.resume_capture(self._path)

    def current_pause(self) -> policy.CapturePause | None:
        """Return the pause in force, or None."""
        return policy.read_pause(self._path, utc_now())

    def mark_incognito(self, runtime: str, session: str) -> None:
        """Never capture this session, now or by a later import."""
        policy.mark_incognito(self._path, self._connections.user, runtime, session)

    # the outbox -------------------------------------------------------------------------------------------

    def enqueue(
        self, origin: Origin, data: bytes, *, from_offset: int, path: str | None, tags: Sequence[str] = ()
    ) -> int:
        """Put a live capture into the outbox: it is acknowledged when this returns; the next process archives it.

        Return how many bytes were taken: an unfinished last line is not, and belongs to the next call.
        """
        fields = msgspec.to_builtins(origin)
        return enqueue.enqueue_bytes(self.rules(), fields, data, from_offset=from_offset, path=path, tags=tags)

    def enqueue_file(
        self, origin: Origin, path: Path, *, from_offset: int | None = None, tags: Sequence[str] = ()
    ) -> tuple[int, int]:
        """Enqueue the complete lines that a transcript gained since its last capture; return (offset, bytes taken)."""
        fields = msgspec.to_builtins(origin)
        return enqueue.enqueue_file(self.rules(), fields, path, from_offset=from_offset, tags=tags)

    def enqueue_lines(self, origin: Origin, lines: Sequence[bytes], *, path: str) -> int:
        """Enqueue the lines of a session that its adapter made and nobody enqueued yet; return how many."""
        return enqueue.enqueue_lines(self.rules(), msgspec.to_builtins(origin), lines, path=path)

    def outbox_warning(self) -> str | None:
        """Return what to say about an outbox that does not drain, once an incident."""
        limits = self._connections.config.capture
        return enqueue.raise_alarm(
            self._path / "outbox",
            max_bytes=limits.outbox_alarm_bytes,
            max_age_s=limits.outbox_alarm_age_s,
            now=utc_now(),
        )

    def has_waiting(self) -> bool:
        """Does a capture wait in the outbox, or a session that somebody holds or left?"""
        return any((self._path / "outbox").glob("*.delta")) or any(session_file.list_sessions(self._path))

    def count_waiting(self) -> int:
        """Return how many captures wait in the outbox."""
        return len(enqueue.list_deltas(self._path / "outbox"))

    def drain(self, *, limit_s: float | None = None, newest_first: bool = False) -> int:
        """Move the outbox into the archive, for at most so many seconds; return how many deltas were settled.

        newest_first: begin with the session that was captured last. With a limit, a drain of another process is not
        waited for longer than that (Busy).
        """
        self._drain_sessions()
        if not any((self._path / "outbox").glob("*.delta")):
            return 0
        n_settled, ends_s = 0, time.monotonic() + limit_s if limit_s is not None else None
        lock_path, wait_s = self._path / "outbox" / ".lock", _LOCK_WAIT_S if limit_s is None else limit_s
        with disk.lock_file(lock_path, wait_s=wait_s):
            for item in enqueue.read_deltas(self._path / "outbox", newest_first=newest_first):
                if ends_s is not None and time.monotonic() > ends_s:
                    break
                try:
                    self._settle(item)
                except Exception as error:
                    if _is_fault_of_home(error):
                        raise
                    log.append_entry(self._path, "set-aside", code=getattr(error, "code", type(error).__name__))
                    enqueue.set_aside(item.path)  # no delta of ours, or damaged: it holds up no other
                    continue
                item.path.unlink(missing_ok=True)
                n_settled += 1
        return n_settled

    def _drain_sessions(self) -> None:
        """Archive what killed processes left of sessions that Perdure held itself."""
        for session in session_file.list_sessions(self._path):
            with contextlib.suppress(SessionHeld), session_file.SessionFile(self._path, session) as file:
                try:
                    self.archive_session(file)
                except Exception as error:
                    if _is_fault_of_home(error):
                        raise
                    file.set_aside()  # no session of ours, or damaged: it holds up no other
                file.delete()

    def archive_session(self, file: session_file.SessionFile) -> None:
        """Move the entries of a session's file into the archive. They are durable there when this returns.

        The file keeps them until its holder begins it anew.
        """
        header, entries = file.read()
        if not entries:
            return
        origin = msgspec.convert(header["origin"], Origin)
        tags = header.get("tags", ())
        delta = self.delta(origin, entries, path=None, from_offset=header["from_offset"], tags=tags)
        delta = replace(delta, user=header["user"], machine=header["machine"], agent=header["agent"])
        answer = self._store_delta(delta)
        if answer.outcome == "accepted":  # a part of it was archived before its process died
            n_known_bytes = answer.to_offset - delta.from_offset
            answer = self._store_delta(replace(delta, data=entries[n_known_bytes:], from_offset=answer.to_offset))
        elif answer.outcome in ("diverged", "gap"):  # a merge or a backup gave the log another end than it had
            known_lines = ingest.list_line_spans(self._archive, delta.user, origin)
            new_lines = [line + b"\n" for line in entries.split(b"\n") if line and line not in known_lines]
            answer = self._store_delta(replace(delta, data=b"".join(new_lines), from_offset=answer.to_offset))
        if answer.outcome not in ("stored", "already"):
            raise ArchiveFault(f"session {origin.session}: {answer.outcome} at {delta.from_offset}")

    def _store_delta(self, delta: Delta) -> StoreResult:
        (answer,) = self._archive.store([delta], now=utc_now(), tombstones=self._connections.tombstones())
        return answer

    def _settle(self, item: OutboxDelta) -> None:
        """Archive one delta of the outbox."""
        origin = msgspec.convert(item.header["origin"], Origin)
        path, tombstones = item.header["path"], self._connections.tombstones()
        if item.header["from_offset"] is None:
            rules = replace(self._ingest_rules(tags=tuple(item.header["tags"])), user=item.header["user"])
            lines = item.data.removesuffix(b"\n").split(b"\n")
            ingest.capture_lines(self._archive, rules, origin, lines, path=path, tombstones=tombstones, now=utc_now())
            return
        delta = Delta(
            origin=origin,
            user=item.header["user"],
            machine=item.header["machine"],
            agent=self._connections.config.agent,
            data=item.data,
            from_offset=item.header["from_offset"],
            project=find_project(origin.cwd),
            path=path,
            tags=tuple(item.header["tags"]),
        )
        transcript = Path(path) if path and Path(path).is_file() else None
        ingest.store_delta(self._archive, delta, transcript=transcript, tombstones=tombstones, now=utc_now())

    # import -----------------------------------------------------------------------------------------------

    def import_files(
        self,
        paths: Iterable[Path] | None = None,
        *,
        tags: Sequence[str] = (),
        runtime: str | None = None,
        progress: Progress | None = None,
    ) -> ingest.IngestResult:
        """Capture transcripts: these files and folders, or every supported agent's own. The index is not touched."""
        self.check_not_paused()
        self.drain()
        rules = self._ingest_rules(tags=tuple(tags), forced=runtime)
        sources, tombstones = self.transcripts_to_import(paths), self._connections.tombstones()
        result = ingest.import_files(
            self._archive, rules, sources, tombstones=tombstones, now=utc_now(), progress=progress
        )
        self._connections.publish_quietly()
        return result

    def take_again(
        self, lost: Sequence[RunRecord], paths: Iterable[Path] | None = None, *, runtime: str | None = None
    ) -> list[str]:
        """Store lost runs again from these transcripts, or every supported agent's own; return the ids of those stored.

        Raises UsageError while capture is paused.
        """
        self.check_not_paused()
        rules, sources = self._ingest_rules(forced=runtime), self.transcripts_to_import(paths)
        tombstones = self._connections.tombstones()
        return ingest.take_again(self._archive, rules, sources, lost, tombstones=tombstones, now=utc_now())

    def check_not_paused(self) -> None:
        """Raise UsageError while capture is paused."""
        if policy.read_pause(self._path, utc_now()):
            raise UsageError("capture is paused, so nothing was copied; `perdure resume` ends the pause")

    def transcripts_to_import(self, paths: Iterable[Path] | None = None) -> list[Path]:
        """Return the files that an import would look at: never those of the home itself."""
        if paths is None:
            sources = list(transcripts.find_sources(settings.find_user_home(), settings.read_variable))
            return sources + (self._find_host_files() if self._connections.config.capture.host_memories else [])
        home = self._path.resolve()
        files = [file for path in paths for file in transcripts.find_files_below(path)]
        return [file for file in files if not file.resolve().is_relative_to(home)]

    def _find_host_files(self) -> list[Path]:
        """Return the host files of this user and of all projects that the index knows, and of the current folder."""
        folders: list[str] = []
        with contextlib.suppress(IndexFault):
            folders = runs.list_names(self._connections.index(), self._connections.principal, "project")
        return list(host_memories.find_files([*folders, find_project(str(Path.cwd())) or ""]))

    # rules ------------------------------------------------------------------------------------------------

    def rules(self) -> policy.CaptureRules:
        """Return the rules by which a hook captures for this user; on another machine no folder is excluded."""
        connections = self._connections
        rules = policy.make_rules(
            self._path, connections.config, user=connections.user, user_home=settings.find_user_home()
        )
        return rules._replace(exclude=()) if connections.is_used_remotely else rules

    def _ingest_rules(self, *, tags: tuple[str, ...] = (), forced: str | None = None) -> ingest.IngestRules:
        connections = self._connections
        return ingest.IngestRules(
            self._path, connections.config, connections.user, settings.find_user_home(), tags, forced
        )


def _is_fault_of_home(error: Exception) -> bool:
    """Did a delta fail because of the home (a full disk, a lock), so that it must be tried again?"""
    is_fault_of_delta = isinstance(error, (UsageError, FormatFault))
    return isinstance(error, (PerdureError, OSError, MemoryError, apsw.Error)) and not is_fault_of_delta
