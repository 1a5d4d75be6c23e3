"""Forgetting: from what a person points at to the last byte of it, and a user who leaves with everything."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from perdure import config as settings
from perdure import disk
from perdure.access import block_cache, shown_alerts
from perdure.archive import forget, memory_events, stage
from perdure.archive.forget import ForgetTarget
from perdure.archive.memory_events import STORED
from perdure.capture import credential, policy, session_file, transcripts
from perdure.captures import Captures
from perdure.connections import Connections, utc_now
from perdure.errors import (
    ArchiveFault,
    Busy,
    CredentialFault,
    DeliveryMissing,
    HomeFault,
    IndexFault,
    MemoryMissing,
    NotFound,
    UsageError,
)
from perdure.identity import make_memory_id
from perdure.index import keyword, runs, visibility
from perdure.index.memory_replay import get_chain
from perdure.regex import lazy_re
from perdure.runs import Runs
from perdure.sharing import grants
from perdure.sharing.room import UNFINISHED_ERASURE
from perdure.sqlite import apsw
from perdure.text import index_terms, query_terms
from perdure.types import STORE_RUNTIMES, Filters, ForgetItem, ForgetReport, ForgetRequest, Grant, Memory, Principal
from perdure.upkeep import UNSETTLED, Upkeep

# Every opening of a home applies tombstones: the other rooms are loaded when there is something to forget.
if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.archive.verify import VerifyResult
    from perdure.floor.forget import FloorLine
    from perdure.floor.room import FloorRoom
    from perdure.memories.room import MemoryRoom

_MEMORY_ID_PREFIX = "mem-"
_DETACHED: dict[str, Any] = {"how": "imported", "sources": (), "made_from": (), "conversation": ""}  # from what it was


class Forgetting:
    """Everything that a home's principal forgets.

    memories, floor: return the other rooms. drop_floor: makes the next use of the floor read it again.
    forget_passwords: deletes the app passwords of the principal's machines.
    """

    def __init__(
        self,
        connections: Connections,
        captures: Captures,
        upkeep: Upkeep,
        runs: Runs,
        *,
        memories: Callable[[], MemoryRoom],
        floor: Callable[[], FloorRoom],
        drop_floor: Callable[[], None],
        forget_passwords: Callable[[], None],
    ) -> None:
        self._connections = connections
        self._captures = captures
        self._upkeep = upkeep
        self._runs = runs
        self._memories = memories
        self._floor = floor
        self._drop_floor = drop_floor
        self._forget_passwords = forget_passwords
        self._archive = connections.archive
        self._path = connections.path
        self._user = connections.user

    # what a person asks for ---------------------------------------------------------------------------------

    def preview(self, request: ForgetRequest) -> ForgetReport:
        """Return what a request would delete. Raises NotFound, UsageError."""
        targets, memories, lines = self._select(request)
        return self._add_what_stays(_make_report(targets, memories, lines), request.query, targets, lines)

    def delete(self, request: ForgetRequest, *, digest: str) -> ForgetReport:
        """Delete what the preview with this digest showed. Raises UsageError if something else matches by now."""
        targets, memories, lines = self._select(request)
        report = _make_report(targets, memories, lines)
        if report.digest != digest:
            raise UsageError("nothing was deleted: something else matches by now; look at it again")
        memory_ids = [memory.memory_id for memory in memories]
        output_files = self._forget_outputs(targets, memories, request.query)
        changed = self.apply(targets, memories=memory_ids, floor_lines=lines)
        report = self._add_what_stays(replace(report, rewritten_runs=tuple(changed)), request.query, targets, ())
        return replace(report, output_files=tuple(output_files))

    def _add_what_stays(
        self, report: ForgetReport, query: str, targets: Sequence[ForgetTarget], lines: Sequence[FloorLine]
    ) -> ForgetReport:
        """Return a report with what holds the same words and stays. lines: those that are going to be deleted."""
        found = self.floor_lines_quoting(targets, report.memories) + (self.list_floor_lines(query) if query else [])
        rows = {(line.name, line.line): line.op for line in found}
        for line in lines:
            rows.pop((line.name, line.line), None)
        left_lines = tuple((name, line, op) for (name, line), op in rows.items())
        output_files = self._forget_outputs(targets, report.memories, query, is_dry=True)
        left_files = [str(path.relative_to(self._path)) for path in self.list_files_left(targets, query)]
        left_files = [name for name in left_files if not name.startswith(tuple(output_files))]
        return replace(
            report, left_lines=left_lines, left_files=tuple(left_files), output_files=tuple(output_files)
        )  # fmt: skip

    def _select(self, request: ForgetRequest) -> tuple[list[ForgetTarget], list[Memory], list[FloorLine]]:
        """Return the (turns, memories, lines of the floor) of a request, with the memories that were made from them."""
        self._upkeep.catch_up()
        lines: list[FloorLine] = []
        if request.query:
            targets = self.plan_by_query(request.query, filters=request.filters)
            named_memories = [] if request.filters != Filters() else self.memories_by_query(request.query)
            if request.with_floor:
                lines = [line for line in self.list_floor_lines(request.query) if line.op != "file"]
        else:
            memory_ids_by_name = {name: self._find_memory_ids(name) for name in request.ids}
            targets = self.plan(
                [name for name, memory_ids in memory_ids_by_name.items() if not memory_ids], cascade=request.cascade
            )
            named_memories = self.memories_of(
                memories=[memory_id for memory_ids in memory_ids_by_name.values() for memory_id in memory_ids]
            )
        if record_ids := self._find_record_ids(named_memories):
            targets = list({(t.run.run_id, t.turn_id): t for t in (*targets, *self.plan(record_ids))}.values())
        return targets, self.memories_of(targets, [memory.memory_id for memory in named_memories]), lines

    def _find_record_ids(self, memories: Iterable[Memory]) -> list[str]:
        """Return the turns of the records in other products' stores of which these memories were imported."""
        records = (memory for memory in memories if memory.how == "imported" and memory.runtime in STORE_RUNTIMES)
        turn_ids = (turn_id for memory in records for _, turn_id in self._memories().turns_of(memory))
        return list(dict.fromkeys(filter(None, turn_ids)))

    def _find_memory_ids(self, name: str) -> list[str]:
        """Return the ids of the memories that a name means: itself, or all that was stated at this path; none if it is
        not a path.

        Raises UsageError for a name that could mean something else as well: nothing is deleted on a guess.
        """
        if name.startswith(_MEMORY_ID_PREFIX):
            return [name]
        try:
            stated = self._memories().history(name)
        except (MemoryMissing, UsageError):  # no memory has this path, or it cannot be a path
            return []
        if self._is_id(name):
            raise UsageError(f"{name!r} is both the path of a memory and the beginning of an id: write the id in full")
        if len({get_chain(memory) for memory in stated}) > 1:
            ids = ", ".join(memory.memory_id for memory in stated)
            raise UsageError(f"several projects have memories at {name!r}: give the ids to delete ({ids})")
        return [memory.memory_id for memory in stated]

    def _is_id(self, name: str) -> bool:
        try:
            self._runs.resolve(name)
        except (NotFound, UsageError):  # not an id, too short, or the beginning of several ids
            return False
        return True

    # the plan ---------------------------------------------------------------------------------------------

    def plan(self, ids: Sequence[str], *, cascade: bool = True) -> list[ForgetTarget]:
        """Return what forgetting these turns, runs or conversations would delete. Forgets nothing yet.

        cascade: with a run also the runs below it.
        """
        self._upkeep.index_all()
        targets: dict[tuple[str, str], ForgetTarget] = {}
        for identifier in ids:
            kind, name = (
                ("memory", identifier) if identifier.startswith(_MEMORY_ID_PREFIX) else self._runs.resolve(identifier)
            )
            for target in self._plan_for(kind, name, cascade=cascade):
                targets[target.run.run_id, target.turn_id] = target
        return self._add_summaries(targets.values())

    def _add_summaries(self, targets: Iterable[ForgetTarget]) -> list[ForgetTarget]:
        """Return the targets with the summaries of them that sessions of our own hold."""
        named = list(targets)
        summaries = forget.target_summaries(self._archive, named)
        return list({(target.run.run_id, target.turn_id): target for target in (*named, *summaries)}.values())

    def _plan_for(self, kind: str, name: str, *, cascade: bool) -> list[ForgetTarget]:
        if kind == "turn":
            run_id, offset = self._runs.locate_turn(name)
            return forget.target_turns(self._archive, self._runs.own(run_id), {offset})
        if kind == "conversation":
            run_ids = [view.run_id for view in self._runs.conversation(name) if view.user == self._user]
            if not run_ids:  # what others share is theirs to forget
                raise NotFound(name)
        else:
            run_ids = [name, *(view.run_id for view in self._runs.descendants(name))] if cascade else [name]
        captured = {self._runs.find_captured_run(run_id) for run_id in run_ids}
        whole = [self._runs.own(run_id) for run_id in sorted(captured) if run_id in run_ids]
        sidechains = sorted(run_id for run_id in run_ids if run_id not in captured)
        return forget.target_runs(self._archive, whole) + [
            target for run_id in sidechains for target in self._plan_sidechain(run_id)
        ]

    def _plan_sidechain(self, run_id: str) -> list[ForgetTarget]:
        stored = self._runs.own(self._runs.find_captured_run(run_id))
        offsets = runs.list_turn_offsets(self._connections.index(), self._connections.principal, run_id)
        return forget.target_turns(self._archive, stored, offsets)

    def plan_by_query(self, query: str, *, filters: Filters | None = None) -> list[ForgetTarget]:
        """Return what forgetting every turn that a query finds (all of its words must match) would delete."""
        self._upkeep.index_all()
        turns = keyword.find_turns_with_all_words(
            self._connections.index(), Principal(self._user), query, filters=filters or Filters()
        )
        return self.plan(turns)

    def memories_by_query(self, query: str) -> list[Memory]:
        """Return every memory that contains all words of a query, whatever its state, with what was made of it."""
        index = self._connections.index_with_memories()
        terms = [index.tokenize(term) for term in query_terms(query)]
        ids = [
            memory.memory_id
            for memory in self._memories().list_memories(every=True)
            if terms and all(_contains(index.tokenize(index_terms(memory.text)), term) for term in terms)
        ]
        return self.memories_of(memories=ids)

    def memories_of(self, doomed: Sequence[ForgetTarget] = (), memories: Sequence[str] = ()) -> list[Memory]:
        """Return the memories that go with these turns and memories: those that were made of them."""
        from perdure.floor.forget import add_file_states

        try:
            candidates = sorted(self._memories().list_memories(every=True), key=lambda memory: memory.order)
        except IndexFault:  # what was made of the turns goes all the same, by its sources
            if memories:
                raise
            return []
        ids = [self._memories().get(identifier).memory_id for identifier in memories]
        versions = add_file_states(self._connections.journal(), forget.add_versions(candidates, ids))
        return forget.add_descendants(candidates, [*versions, *forget.list_memories_from(candidates, doomed)])

    def floor_lines_quoting(self, doomed: Sequence[ForgetTarget], memories: Iterable[Memory] = ()) -> list[FloorLine]:
        """Return every line that repeats one of these turns or memories, where `list_floor_lines` looks.

        Lines made of a memory are left out. A person wrote the others, so they stay until the person deletes them
        (`floor.forget_line`, and `floor.forget_asked` for cards and proposals).
        """
        texts = [target.turn.text("text", "pasted") for target in doomed if target.turn is not None]
        return self._find_floor_lines("", [*texts, *(memory.text for memory in memories)])

    def list_floor_lines(self, query: str) -> list[FloorLine]:
        """Return every line with all words of a query, in any version of any agent's pages, cards, proposals and files.

        `apply` forgets those that are not of files; files go with their memories.
        """
        return self._find_floor_lines(query, ())

    def _find_floor_lines(self, query: str, texts: Sequence[str]) -> list[FloorLine]:
        from perdure.floor import forget, notes

        floor = self._floor()
        for name in floor.list_pages():
            floor.read(name)  # this records an edit by hand
        matches = forget.make_matcher(query, texts)
        lines = forget.find_lines(self._connections.journal(), lambda raw: matches(notes.parse_line(raw).words))
        return [line for line in lines if not notes.parse_line(line.line).memory]

    def list_files_left(self, doomed: Sequence[ForgetTarget], query: str = "") -> list[Path]:
        """Return the files in the home that may hold these turns, or words, and that forgetting does not reach.

        These are damaged files that were set aside, which nothing can search reliably, and files that Perdure did not
        write, such as an export.
        """
        from perdure.floor import forget

        turn_texts = [target.turn.text("text", "pasted") for target in doomed if target.turn is not None]
        matches = forget.make_matcher(query, turn_texts)
        floor = self._floor()
        own_pages = {floor.folder / name for name in floor.list_pages()}  # `list_floor_lines` finds what they say
        tops = [*self._path.iterdir(), *(self._path / "archive").iterdir()]
        paths = {
            path
            for top in tops
            if top.name not in _MANAGED_FOLDERS
            for path in (top, *top.rglob("*"))
            if path not in own_pages and path.is_file() and not path.is_symlink()
        }
        return [
            path
            for path in sorted(paths)
            if _is_set_aside(name := path.relative_to(self._path), self._user)
            or _has_matching_line(path, name.as_posix(), matches)
        ]

    # the deed ---------------------------------------------------------------------------------------------

    def apply(
        self,
        doomed: Sequence[ForgetTarget],
        *,
        memories: Sequence[str] = (),
        floor_lines: Sequence[FloorLine] = (),
        now: datetime | None = None,
    ) -> list[str]:
        """Forget these turns and memories everywhere in this home, with every memory that was made of one of them.

        floor_lines: lines, cards and proposals that go too. Return the ids of the runs that were rewritten.
        """
        if not doomed and not memories and not floor_lines:
            return []
        self._captures.drain()
        now, journal = now or utc_now(), self._connections.journal()
        forgotten = self.memories_of(memories=memories) if memories else []
        self._forget_state(doomed, forgotten)
        if doomed or forgotten:
            forget.record_tombstones(journal, doomed, forgotten, now=now)
        if floor_lines:
            from perdure.floor import forget as floor_forget

            floor_forget.record_tombstones(journal, floor_lines, now=now)
            self._drop_floor()
        changed = self.apply_tombstones()
        self._upkeep.exchange_quietly()
        return changed

    def _forget_state(self, doomed: Sequence[ForgetTarget], memories: Sequence[Memory]) -> None:
        """Delete what programs keep of these turns and memories: while their words are known, so before all else."""
        from perdure.state.store import StateFile, get_path

        if not get_path(self._path, self._user).exists():
            return
        turns = [target.turn for target in doomed if target.turn is not None]
        texts = [part.text for turn in turns for part in turn.parts] + [memory.text for memory in memories]
        sessions = {target.run.conversation for target in doomed}
        paths = {memory.path for memory in memories if memory.how == STORED}
        with contextlib.closing(StateFile(self._path, self._user)) as state:
            state.forget(texts, paths=paths, sessions=sessions)

    def _forget_outputs(
        self, doomed: Sequence[ForgetTarget], memories: Sequence[Memory], query: str, *, is_dry: bool = False
    ) -> list[str]:  # fmt: skip
        """Delete messages that wait for a target, and outputs of commands, with these words; return their paths.

        Nobody but the home's own user has them deleted: they belong to no user. is_dry: delete nothing.
        """
        from perdure.delivery.queue import DeliveryQueue
        from perdure.floor import forget
        from perdure.jobs import JobLog

        if self._user != self._connections.config.user:
            return []
        texts = [target.turn.text("text", "pasted") for target in doomed if target.turn is not None]
        matches = forget.make_matcher(query, [*texts, *(memory.text for memory in memories)])
        queue, job_log = DeliveryQueue(self._path, self._connections.config.delivery), JobLog(self._path)
        paths: list[str] = []
        for delivery_id in queue.list_holding(matches):
            with contextlib.suppress(Busy, DeliveryMissing):  # it is being sent: list_files_left names it
                if not is_dry:
                    queue.drop(delivery_id)
                paths.append(f"deliveries/{delivery_id}")
        for job in job_log.list_holding(matches):
            if not is_dry:
                job_log.drop_outputs(job, matches)
            paths.append(f"run/jobs/{job}.json")
        return paths

    def apply_tombstones(self) -> list[str]:
        """Apply what is recorded as forgotten and not yet applied; return the ids of the runs that changed."""
        changed: list[str] = []
        applied: list[str] = []
        stated_in: list[str] = []
        is_merge = bool(self._archive.ledger.get_meta(UNSETTLED))
        for user in self._connections.users_with_journal():
            journal = self._connections.journal(user)
            pending = forget.list_unapplied(self._archive, journal)
            if pending:
                changed += forget.apply_to_archive(self._archive, journal, user, pending)
            if pending or is_merge:
                gone = forget.collect_forgotten(self._archive, journal)
                self._forget_on_floors(user, gone)  # before the memories go, by which its lines are known
                run_ids = forget.apply_to_memories(journal, gone)
                stated_in += run_ids if user == self._user else ()
                applied += pending
        if applied:
            transcripts.delete_pending_texts(self._path)
            stage.drop_staged_runs(self._path)
        if applied or is_merge:
            is_clean = self._upkeep.clean_index()
            block_cache.delete(self._path)  # not before: until now a recall could still find the forgotten words
            if is_clean:
                self._archive.ledger.set_applied(applied)
        if stated_in:
            self._memories().restate(stated_in)
        return changed

    def _forget_on_floors(self, user: str, gone: forget.ForgottenItems) -> None:
        """Delete what is gone from every agent's floor of a user, working copies included."""
        from perdure.floor import forget, pages

        owner = self._connections.config.user
        journal = self._connections.journal(user)
        forget.apply_tombstones(journal, gone, lambda agent: self._path / pages.to_agent_folder(agent, user, owner))
        floor_cache(self._path, user).unlink(missing_ok=True)

    # a user who leaves ------------------------------------------------------------------------------------

    def erase_user(self) -> int:
        """Delete everything of the principal's; return how many runs there were.

        Deletes runs, packs, journal, index, floor, machines, grants to and from them, and the parts of the logs that
        may carry their words. Nothing is remembered of it, so an import of the same transcripts captures them again.
        Raises Busy when another process keeps old pages in use: call it again, and it goes on. Raises StoreFault or
        IndexUnreachable, and deletes nothing, when the archive has a store that cannot be used, or the index a server
        that is away. Others are answered from the old index until the new one is made.
        """
        from perdure.agent_queue import AgentQueue
        from perdure.jobs import JobLog

        self._captures.drain()
        self._connections.has_index()
        if (exchange := self._connections.exchange()) is not None:
            exchange.erase_user(self._user)
        self._archive.ledger.set_meta(UNFINISHED_ERASURE, "yes")
        self._forget_passwords()
        n_runs = self._archive.erase(self._user)
        grants.delete_grants_to(self._path, self._user)
        grants.delete_cache(self._path)
        delete_user_files(self._path, self._user)
        self._connections.drop_tombstones(self._user)
        self._upkeep.replace_index()
        JobLog(self._path).drop_user(self._user)
        AgentQueue(self._path).drop_user(self._user)
        self._erase_floors()
        block_cache.delete(self._path)  # once more: until now a recall could still find their words
        self._archive.ledger.wipe()
        self._archive.ledger.drop_meta(UNFINISHED_ERASURE)
        return n_runs

    def erase_private(self, kept: Sequence[Grant]) -> tuple[int, int]:
        """Delete everything of the principal's that these grants do not cover; return the number of (turns, memories).

        kept: grants of theirs that stay. What was shared stays word for word, and a kept note outlives the turns behind
        it. Of a private run only its place in time and its folder remain.
        """
        from perdure.floor import forget as floor_forget

        self._captures.drain()
        self._upkeep.index_all()
        index = self._connections.index_with_memories()
        runs_to_keep, memories_to_keep = visibility.list_granted(index, self._detach_notes(kept))
        targets = self._plan_private(runs_to_keep)
        all_memories = self._memories().list_memories(every=True)
        kept_texts = {memory.text for memory in all_memories if memory.memory_id in memories_to_keep}
        memories = [memory.memory_id for memory in all_memories if memory.text not in kept_texts]
        lines = floor_forget.find_lines(self._connections.journal(), lambda _: True)
        self.apply(targets, memories=memories, floor_lines=lines)
        self._erase_floors()
        delete_user_files(self._path, self._user)
        return len(targets), len(memories)

    def _plan_private(self, runs_to_keep: set[str]) -> list[ForgetTarget]:
        """Return what forgetting every other run would delete. A copy of a turn that is kept stays: deleting it
        would delete that turn.
        """
        index, principal = self._connections.index(), Principal(self._user)
        targets: list[ForgetTarget] = []
        kept_turns: set[object] = set()
        for entry in self._archive.ledger.list_runs(self._user):
            run_ids = set(runs.list_runs_in(index, principal, entry.run_id))
            if run_ids & runs_to_keep:
                kept_turns |= {key for target in forget.target_runs(self._archive, [entry]) for key in _to_keys(target)}
                targets += [target for run_id in run_ids - runs_to_keep for target in self._plan_sidechain(run_id)]
            else:
                targets += forget.target_runs(self._archive, [entry])
        return [target for target in targets if not kept_turns.intersection(_to_keys(target))]

    def _detach_notes(self, kept: Sequence[Grant]) -> list[Grant]:
        """Give each kept note words of its own: a memory that names no turn or memory behind it. Return the grants."""
        notes = {grant.value: grant.grant_id for grant in kept if grant.scope == "memory"}
        memories = [self._memories().get(memory_id) for memory_id in notes]
        copies = {
            memory.memory_id: replace(memory, memory_id=make_memory_id(utc_now(), secrets.token_bytes(3)), **_DETACHED)
            for memory in memories
            if memory.sources or memory.made_from
        }
        if copies:
            ops = [memory_events.build_create_op(memory) for memory in copies.values()]
            data = memory_events.build_event_data(ops, by="owner")
            self._connections.journal().append(memory_events.EVENT_TYPE, data, now=utc_now())
            self._connections.follow_journals()
            new_ids = {notes[memory_id]: memory.memory_id for memory_id, memory in copies.items()}
            grants.move_notes(self._path, self._user, new_ids)
        return [
            replace(grant, value=copies[grant.value].memory_id) if grant.value in copies else grant for grant in kept
        ]

    def export_user(self, target: Path) -> VerifyResult:
        """Write everything of the principal's as a home of its own, prove that it is whole, and return the proof.

        target: a new folder. Raises ArchiveFault, and leaves nothing there, when it differs from this home.
        """
        from perdure.archive.verify import verify

        self._captures.drain()
        folders = {folder: folder.name.partition("~")[0] for folder in self._floor_folders()}
        with self._archive.block_writes():
            copy_user(self._path, self._user, target, folders)
            proof = verify(target)
            n_runs = sum(1 for _ in self._archive.ledger.list_runs(self._user))
        if not proof.ok or proof.n_runs != n_runs:
            shutil.rmtree(target)
            raise ArchiveFault(f"{self._path}: not exported, because `perdure verify` finds problems")
        return proof

    def linked_floors(self) -> list[Path]:
        """Return the folders outside `agents` to which links there lead: `erase_user` deletes only the links."""
        return [folder.resolve() for folder in self._floor_folders() if folder.is_symlink()]

    def _floor_folders(self) -> list[Path]:
        """Return the folders of the principal's pages, one for each agent."""
        from perdure.floor import pages

        owner = self._connections.config.user
        return [
            folder
            for folder in sorted((self._path / "agents").glob("*"))
            if pages.is_folder_of(folder.name, self._user, owner)
        ]

    def _erase_floors(self) -> None:
        """Delete the principal's pages of every agent, and the cache of them."""
        for folder in self._floor_folders():
            if folder.is_symlink():
                folder.unlink()
            else:
                shutil.rmtree(folder)
        floor_cache(self._path, self._user).unlink(missing_ok=True)
        self._drop_floor()


_MANAGED_FOLDERS = ("archive", "runs", "packs", "manifest", "cache", "vectors")  # forgetting reaches every byte there
_MANAGED_FILES = (  # and in files whose paths begin so; the last two hold no words
    "index.db", "index-", "run/floor-", "run/http.db", "run/meter.db",
)  # fmt: skip
_JOURNAL_FILE = lazy_re(r"archive/journal/[^/]+/[^/]+/[0-9-]+\.jsonl\Z")
_ESCAPED_CHARACTER = lazy_re(r"\\u([0-9a-fA-F]{4})")


def _is_set_aside(name: Path, user: str) -> bool:
    """Is this a damaged file of a user, which may hold anything?"""
    is_damaged_line = ".torn-" in name.name or ".damaged-" in name.name
    return name.parts[:3] == ("archive", "quarantine", user) or (
        name.parts[:3] == ("archive", "journal", user) and is_damaged_line
    )


def _has_matching_line(path: Path, name: str, matches: Callable[[str], bool]) -> bool:
    """Has a file that forgetting does not reach a matching line? name: its path in the home."""
    if name.startswith(_MANAGED_FILES) or _JOURNAL_FILE.match(name):
        return False
    with contextlib.suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
        return any(matches(_ESCAPED_CHARACTER.sub(lambda found: chr(int(found[1], 16)), line)) for line in file)
    return False


def _to_keys(target: ForgetTarget) -> set[object]:
    """Return the keys by which a turn and its copies are one."""
    if target.turn is None:
        return set()
    words = tuple(part.text for part in target.turn.parts)
    keys: set[object] = {target.turn.native_id, (target.turn.stated_at, words)}
    return keys - {None}


def floor_cache(home: Path, user: str) -> Path:
    """Return the file that spares the next process to read a user's floor from the journal."""
    return home / "run" / f"floor-{user}.json"


def _make_report(
    targets: Sequence[ForgetTarget], memories: Sequence[Memory], lines: Sequence[FloorLine]
) -> ForgetReport:
    names = sorted([f"{target.run.run_id} {target.turn_id}" for target in targets])
    names += sorted(memory.memory_id for memory in memories)
    names += sorted("\0".join(line) for line in lines)
    return ForgetReport(
        tuple(map(_to_item, targets)),
        tuple(memories),
        tuple((line.name, line.line) for line in lines),
        hashlib.sha256("\n".join(names).encode()).hexdigest(),
    )


def _to_item(target: ForgetTarget) -> ForgetItem:
    role, stated_at = (target.turn.role, target.turn.stated_at) if target.turn else (None, None)
    return ForgetItem(target.turn_id, target.run.run_id, role, stated_at, target.preview, target.run.path or "")


def _contains(tokens: Sequence[str], term: Sequence[str]) -> bool:
    """Do the tokens of a term stand in a row among those of a text?"""
    n = len(term)
    return any(list(tokens[start : start + n]) == list(term) for start in range(len(tokens) - n + 1))


_TRUTH_FOLDERS = ("runs", "packs", "journal", "manifest")  # folders of the archive, with a folder for each user
_PERSONAL_FILES = (  # in `run/`: these hold names, paths, session ids and error messages of all users together
    "log.jsonl", "log.1.jsonl", "hook-failures.jsonl", "told.json", "mining.json", "alert", "failing",
)  # fmt: skip
_BUSY_MS = 5_000
_IGNORE_LOCKS = shutil.ignore_patterns("*.lock", "*.tmp", ".lock")


def copy_user(home: Path, user: str, target: Path, floors: Mapping[Path, str]) -> None:
    """Write all of a user's truth as a home of its own, to a folder that is empty or does not exist yet.

    floors: folder of pages -> its name below `agents/` there. The caller blocks writes to the archive. Raises
    UsageError.
    """
    from perdure.state import store as state_store

    if target.resolve().is_relative_to(home.resolve()):
        raise UsageError(f"{target} is inside the home; name a folder outside it")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} exists already; name a new folder")
    disk.make_folder(target)
    target.chmod(0o700)
    archive = target / "archive"
    disk.make_folder(archive)
    shutil.copy2(home / "archive" / "FORMAT", archive / "FORMAT")
    for folder_name in _TRUTH_FOLDERS:
        _copy_folder(home / "archive" / folder_name / user, archive / folder_name / user)
    for folder, agent_name in floors.items():
        _copy_folder(folder, target / "agents" / agent_name)
    off_record = policy.read_incognito_list(home, user, is_own=user == settings.load(home).user)
    if off_record:  # sessions that must never be captured stay excluded there
        disk.write_file(target / "incognito", off_record)
    state_store.copy(home, user, target)
    disk.write_file(target / "config.toml", f"user = {json.dumps(user)}\n".encode())
    disk.sync_files([path for path in target.rglob("*") if path.is_file()], root=target)


def _copy_folder(source: Path, target: Path) -> None:
    if source.is_dir():
        disk.make_folder(target.parent)
        shutil.copytree(source, target, ignore=_IGNORE_LOCKS)
        for path in (target, *target.rglob("*")):
            path.chmod(0o700 if path.is_dir() else 0o600)


def delete_user_files(home: Path, user: str) -> None:
    """Delete the files of a user in this home outside of archive, index and floor."""
    from perdure.state import store as state_store

    transcripts.delete_pending_texts(home)
    block_cache.delete(home)
    for name in _PERSONAL_FILES:
        (home / "run" / name).unlink(missing_ok=True)
    policy.delete_incognito_lines(home, user)
    shown_alerts.get_file(home, user).unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.truncate(home / "run" / "serve.log", 0)  # a process may be writing to it
    _delete_requests(home / "run" / "http.db", user)
    for path in (home / "outbox").glob("*"):
        if path.is_file() and _read_owner(path) == user:
            path.unlink(missing_ok=True)
    session_file.delete_files(home, user)
    state_store.delete(home, user)
    _delete_credential(home, user)
    if user == settings.load(home).user:  # its targets are theirs
        shutil.rmtree(home / "deliveries", ignore_errors=True)
        shutil.rmtree(home / "telegram", ignore_errors=True)
        shutil.rmtree(home / "mail", ignore_errors=True)


def _delete_requests(path: Path, user: str) -> None:
    """Delete a user's rows from the server's request log, which it may have open; delete a damaged file as a whole."""
    if not path.exists():
        return
    try:
        with contextlib.closing(apsw.Connection(str(path))) as db:
            db.set_busy_timeout(_BUSY_MS)
            db.pragma("secure_delete", 1)
            for table in ("request", "session"):
                db.execute(f"DELETE FROM {table} WHERE user = ?", (user,))
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except (apsw.NotADBError, apsw.CorruptError, apsw.SQLError):
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
    except apsw.Error as error:
        raise HomeFault(str(path)) from error


def _read_owner(path: Path) -> str | None:
    """Return the owner of a delta; None if the file is no delta or cannot be read."""
    try:
        with path.open("rb") as file:
            header = json.loads(file.readline())
    except (OSError, ValueError):
        return None
    return str(header.get("user")) if isinstance(header, dict) else None


def _delete_credential(home: Path, user: str) -> None:
    """Delete the credential that this home holds for a machine of the user; leave it if it cannot be read."""
    with contextlib.suppress(CredentialFault):
        own_credential = credential.read_credential(home)
        if own_credential is not None and own_credential.user_id == user:
            (home / credential.CREDENTIAL_FILE).unlink(missing_ok=True)
