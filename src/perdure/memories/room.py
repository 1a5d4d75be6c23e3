"""The memories of one home: kept, found, mined, tidied up, and judged by their use.

`Memories` holds and changes them; this room adds what needs the rest of a home: vectors, models, captures.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.archive import injections, memory_events
from perdure.captures import Captures
from perdure.connections import Connections, Progress, pending_rows, utc_now
from perdure.errors import IndexFault, MemoryMissing, PerdureError, RecallMissing, UsageError
from perdure.identity import find_project
from perdure.index import memory_rows, runs
from perdure.memories.store import Memories, SharedMemories
from perdure.types import Memory, MemoryHit, Principal
from perdure.upkeep import Upkeep

# Loaded where they are used: a recall by words needs none of them.
if TYPE_CHECKING:
    from perdure.index.injections import InjectionLog, ShadowBlock
    from perdure.memories.consolidate import ConsolidationResult, Reword, UndoResult
    from perdure.memories.cue_use import UseResult
    from perdure.memories.gate import RepositoryFact
    from perdure.memories.host_answer import HostStatement
    from perdure.memories.host_mining import HostMiner, SettleResult
    from perdure.memories.host_question import HostCandidate
    from perdure.memories.markdown_io import ExportResult, ImportResult, ImportTerms
    from perdure.memories.mine import MiningRequest, MiningResult
    from perdure.memories.other_stores.plan import StoreTerms
    from perdure.memories.other_stores.take_in import StoreImport
    from perdure.memories.proposals import ConsolidationProposal
    from perdure.memories.stated import StatementsResult

_RELATED = 24  # memories that the miner's choice of the related ones begins with


def list_repository_facts(project: str | None) -> Sequence[RepositoryFact]:
    """Return what the manifests in a project's folder say."""
    from perdure.memories import repository

    return repository.list_facts(project)


@dataclass(kw_only=True)
class MemoryRoom(Memories):
    """The memories of a home's principal, and of nobody else.

    write_notes: brings notes.md up to what was stated; takes the ids of memories that now hold elsewhere.
    allow_text: lets a text through that reads like an order to a model; takes the text and its place.
    """

    connections: Connections
    captures: Captures
    upkeep: Upkeep
    write_notes: Callable[[Collection[str]], None]
    allow_text: Callable[[str, str], None]

    def review(self, ids: Collection[str], *, is_accepted: bool) -> list[Memory]:
        """Accept memories that wait for review, or refuse them: then they stay retired. Return each once.

        What is accepted is also allowed, if it reads like an order to a model: its owner has read it. Raises
        MemoryMissing, and UsageError for one that does not wait; then none is changed.
        """
        memories = super().review(ids, is_accepted=is_accepted)
        for memory in memories if is_accepted else ():
            if self.find_order(memory):
                self.allow_text(memory.text, memory.memory_id)
        return memories

    @property
    def shared(self) -> SharedMemories:
        """The memories of others that the principal may read."""
        return SharedMemories(self.connections.principal, self.connections.index)

    @property
    def injections(self) -> InjectionLog:
        """What was put beside the principal's messages, and what of it was used."""
        from perdure.index.injections import InjectionLog

        return InjectionLog(self.connections.index_with_memories(), self.user, self.journal.root)

    def label_cue(self, nonce: str, cue: str, label: str) -> None:
        """Keep a person's label of one cue: "wrong", or "" to take it back.

        Raises RecallMissing, and UsageError where that recall has no such cue.
        """
        if cue not in {reason.cue for reason in self.injections.get(nonce).reasons}:
            raise UsageError(f"this recall has no cue {cue!r}")
        self.journal.append(memory_events.LABELLED, {"nonce": nonce, "cue": cue, "label": label}, now=utc_now())

    def list_shadow_blocks(self) -> list[ShadowBlock]:
        """Return the blocks that were recorded in shadow, oldest first, each with its label."""
        from perdure.index.injections import ShadowBlock, to_injection

        events = self.journal.read(type_=injections.SHADOW)
        labels = self.labels(events[0].happened_at) if events else {}
        blocks = (to_injection(event.data, event.happened_at) for event in events)
        return [
            ShadowBlock(block, event.data, labels.get((block.nonce, ""), ""))
            for event, block in zip(events, blocks, strict=True)
            if block.reasons
        ]

    def label_block(self, nonce: str, label: str) -> None:
        """Keep a person's label of a block that was recorded in shadow: "right", "wrong", or "" to take it back.

        Raises RecallMissing.
        """
        if nonce not in {event.data["nonce"] for event in self.journal.read(type_=injections.SHADOW)}:
            raise RecallMissing(f"nothing was recorded in shadow as {nonce}")
        self.journal.append(memory_events.LABELLED, {"nonce": nonce, "cue": "", "label": label}, now=utc_now())

    def labels(self, since_at: datetime) -> dict[tuple[str, str], str]:
        """Return (nonce, cue) -> label that the principal gave since a moment; the last one counts.

        cue: "" for a whole block in shadow.
        """
        events = self.journal.read_since(since_at, memory_events.LABELLED)
        labels = {(event.data["nonce"], event.data["cue"]): event.data["label"] for event in events}
        return {key: label for key, label in labels.items() if label}

    def holder_of(self, identifier: str) -> Memories | SharedMemories:
        """Return the store that holds the memory of an id: the principal's own, or that of others' shared memories."""
        try:
            self.get(identifier)
        except MemoryMissing:
            self.shared.get(identifier)
            return self.shared
        return self

    # search -----------------------------------------------------------------------------------------------

    def search(
        self,
        query: str,
        *,
        limit: int = 20,
        every: bool = False,
        touch: bool = False,
        mode: str | None = None,
        paths: Collection[str] | None = None,
    ) -> list[MemoryHit]:
        """Return memories that match by words and meaning, best first, with their scores. Retired ones never match.

        every: superseded ones too. touch: note that those found were used; without it nothing is written. mode:
        "keyword" to use no model. paths: only the principal's own memories at exactly these paths.
        """
        if limit < 1:
            raise UsageError("the limit must be at least 1")

        def is_asked_for(memory: Memory) -> bool:
            is_at_path = paths is None or (memory.path in paths and not memory.shared_by)
            return is_at_path and (every or memory.is_current)

        hits = self._nearest(query, limit=limit, fits=is_asked_for, mode=mode)
        own_ids = [hit.memory.memory_id for hit in hits if not hit.memory.shared_by]
        if touch and own_ids:
            self._note_used(own_ids, by="search")
        return hits

    def _nearest(
        self, query: str, *, limit: int, fits: Callable[[Memory], bool], is_own: bool = False, mode: str | None = None
    ) -> list[MemoryHit]:
        """is_own: search the principal's alone, for what will be made of them."""
        index = self.connections.index_with_memories()
        pending, _ = self.connections.ask_vectors(index, [query], mode)
        rows = pending_rows(pending)
        query_vectors = None
        if pending is not None and rows is not None and rows.any():
            from perdure.index.vector_search import QueryVector

            query_vectors = QueryVector(pending.space, rows, self.connections.config.search.vector_weight)
        principal = Principal(self.user) if is_own else self.connections.principal
        return memory_rows.search_memories(index, principal, query, query_vectors, limit=limit, fits=fits)

    def _note_used(self, ids: Sequence[str], *, by: str) -> None:
        """Note that memories were used outside any session."""
        self.journal.append(
            memory_events.USED, {"runtime": "", "session": "", "cues": list(ids), "by": by}, now=utc_now()
        )
        self.connections.follow_journals()

    # making -----------------------------------------------------------------------------------------------

    def mine(
        self,
        request: MiningRequest | None = None,
        *,
        stop: Callable[[], bool] | None = None,
        progress: Progress | None = None,
    ) -> MiningResult | None:
        """Make memories of messages that no pass has mined yet; None if no model is set for it.

        Ten messages are one question to the model of the role `miner`. The answer says what ended a pass early, and
        everything until then stays. progress gets (batches done, all).
        """
        from perdure.memories.mine import MINING_JOB, Miner, MiningRequest

        request = request or MiningRequest()
        chat = None if request.dry_run else self.connections.chat("miner", job=MINING_JOB)
        if chat is None and not request.dry_run:
            return None
        self.upkeep.index_all()
        mining = self.connections.config.mining
        miner = Miner(
            self.connections.path,
            self.connections.archive,
            self,
            chat,
            self._find_related,
            self.captures.refusal,
            timedelta(minutes=mining.idle_min),
            mining.question_tokens,
            utc_now,
        )
        result = miner.mine(request, stop=stop or (lambda: False), progress=progress)
        result.cost = self.connections.roles().compute_cost("miner", result.usage)
        if result.n_new:
            self.embed_new()
        return result

    def host_miner(self) -> HostMiner:
        """Return what asks the host's own model about candidates, and settles its answers."""
        from perdure.memories.host_mining import HostMiner

        return HostMiner(self.connections.path, self.connections.archive, self, self.captures.refusal)

    def request_candidates(self, *, cwd: str | None, session: str = "") -> list[HostCandidate]:
        """Return the lines of the newest session of a folder's project, or of this session, that may be worth a memory.

        They count as asked about, so that `settle` takes an answer.
        """
        self.upkeep.index_all()
        return self.host_miner().request_candidates(self.connections.project_of(cwd), session=session)

    def settle(
        self, statements: Sequence[HostStatement], none_codes: Sequence[str] | None = None, *, cwd: str | None = None
    ) -> SettleResult:
        """Keep what the host's own model answered about its candidates; see `HostMiner.settle`.

        cwd: the folder in whose project an answer "none" to all is meant; any project without it.
        """
        self.upkeep.index_all()
        miner = self.host_miner()
        conversations = miner.list_conversations(self.connections.project_of(cwd)) if cwd else None
        result = miner.settle(statements, none_codes, conversations=conversations)
        if any(keep_result.is_new for keep_result in result.kept):
            self.embed_new()
        return result

    def _find_related(self, text: str, fits: Callable[[Memory], bool]) -> list[Memory]:
        """Return the memories nearest to a text, of those that fit, best first."""
        return [hit.memory for hit in self._nearest(text, limit=_RELATED, fits=fits, is_own=True)]

    def keep_stated(self, *, limit_s: float | None = None) -> StatementsResult:
        """Keep what people told the agent to keep in new captures, by explicit forms.

        By rules, without a model. If interrupted, the next call goes on; nothing is kept twice.
        """
        from perdure.memories import stated

        if not (self.connections.writable and self.connections.config.memories.stated):
            return stated.StatementsResult()
        result = stated.keep_statements(self, self.connections.archive, limit_s=limit_s)
        self.write_notes(())
        return result

    def restate(self, run_ids: Sequence[str]) -> None:
        """Keep what is still stated in runs of which some memory was forgotten."""
        if run_ids and self.connections.config.memories.stated:
            from perdure.memories import stated

            with contextlib.suppress(IndexFault):  # the next capture makes an index
                stated.restate(self, self.connections.archive, run_ids)
                self.write_notes(())

    def embed_new(self) -> None:
        """Embed new memories where there are vectors; what fails is left to the next call."""
        with contextlib.suppress(IndexFault, PerdureError):
            self.connections.embed_new(self.connections.index())

    def insights(self, *, cwd: str | None = None, max_tokens: int = 600) -> list[Memory]:
        """Return the insights that are sure enough (confidence 0.4), surest first, within the budget.

        cwd: those of its project and those of none; of all projects without it.
        """
        from perdure.memories import mining_question

        projects = (self.connections.project_of(cwd), None)
        candidates = [
            m for m in self.list_memories(kind=mining_question.INSIGHT_KIND) if cwd is None or m.project in projects
        ]
        return mining_question.choose_surest(candidates, max_tokens=max_tokens)

    def list_by_weight(self) -> list[Memory]:
        """Return the agent's current memories: pinned first, then those last said or used, the most used before."""
        memories = [memory for memory in self.list_memories() if memory.agent == self.agent]
        return sorted(
            memories, key=lambda m: (m.pinned, m.renewed_at or m.stated_at, m.n_used, m.memory_id), reverse=True
        )

    # tidying up -------------------------------------------------------------------------------------------

    def proposals(self, kind: str = "") -> list[ConsolidationProposal]:
        """Return what could be tidied up among the memories. Changes nothing.

        kind: only those of this kind (guess, narrow, chain, lift, merge, split, retire); `retire` only if it is named.
        """
        from perdure.memories import consolidate, stated

        guess_ids = stated.find_guesses(self, self.connections.archive)
        return consolidate.list_proposals(self, kind=kind, guess_ids=guess_ids)

    def consolidate(
        self, ids: Sequence[str] | None = None, *, kind: str = "", reword: Reword | None = None
    ) -> ConsolidationResult:
        """Apply proposals, those of `proposals` when none is named; `undo` takes it back.

        kind: only those of this kind, as for `proposals`. reword: words a memory that is
        made of several; the model of the role `summariser` unless given, if there is one, else rules.
        """
        from perdure.memories import consolidate, stated

        chat = self.connections.chat("summariser", job="consolidate") if reword is None else None
        reword = consolidate.make_reword(chat) if chat is not None else reword
        result = consolidate.apply_proposals(
            self,
            ids,
            kind=kind,
            reword=reword,
            guess_ids=stated.find_guesses(self, self.connections.archive),
        )
        self.write_notes([memory_id for proposal in result.proposals for memory_id, _ in proposal.new_projects])
        self.embed_new()
        return result

    def undo(self, event_id: str = "") -> UndoResult:
        """Take back a consolidation, the last one unless its event is named."""
        from perdure.memories import consolidate

        result = consolidate.undo_consolidation(self, event_id)
        self.write_notes(result.memories)
        return result

    def mark_used_cues(
        self, *, limit_s: float | None = None, now: datetime | None = None, stop: Callable[[], bool] | None = None
    ) -> UseResult:
        """Judge which cues were used, for every injection whose answer is complete and was not judged yet."""
        from perdure.memories.cue_use import UseJudge

        self.captures.drain()
        self.upkeep.catch_up()
        judge = UseJudge(self.user, self.journal, self.connections.index())
        result = judge.mark_used(now=now or utc_now(), limit_s=limit_s, stop=stop)
        if result.n_injections:
            self.connections.follow_journals()
        return result

    # other products ---------------------------------------------------------------------------------------

    def import_store(
        self,
        store: str,
        path: Path | None = None,
        *,
        terms: StoreTerms | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> StoreImport:
        """Import the memories of another product: its records as turns, and the memories that pass the write gate.

        store: one of STORE_RUNTIMES. path: None for where this user has it. dry_run: change nothing. progress: gets
        (memories done, all). Raises UsageError for a store that cannot be read, or while capture is paused.
        """
        from perdure.memories.other_stores import plan, take_in

        terms = terms or plan.StoreTerms(project=self.find_named_project)
        contents = take_in.read_store(store, path)
        store_plan = plan.plan_import(self, store, contents, terms)
        if dry_run:
            return take_in.StoreImport(store_plan)
        result = take_in.take_in(self, self.captures, contents, store_plan, terms=terms, progress=progress)
        self.upkeep.catch_up()
        self.embed_new()
        return result

    def find_named_project(self, name: str) -> str | None:
        """Return the project of a name in another product's store: the one known folder of that name, or the name."""
        if not name or name.startswith("/"):
            return find_project(name or None)
        known_projects = runs.list_names(self.connections.index_with_memories(), self.connections.principal, "project")
        folders = [project for project in known_projects if project.endswith(f"/{name}")]
        return folders[0] if len(folders) == 1 else name

    def export_to(self, form: str, folder: Path, *, prefix: str = "", replace: bool = False) -> ExportResult:
        """Write the current memories into a folder in the form that another product reads.

        form: one of `other_stores.export.FORMS`. replace: overwrite files with other content. Raises UsageError for a
        folder inside the home, or one that cannot be written.
        """
        from perdure.memories import markdown_io
        from perdure.memories.other_stores import export

        self._check_outside(folder)
        memories = [memory for memory in self.list_memories(prefix=prefix) if memory.agent == self.agent]
        files = export.render_files(form, memories, user=self.user)
        return markdown_io.write_files(folder, files, can_replace=lambda _: replace)

    def _check_outside(self, folder: Path) -> None:
        if folder.resolve().is_relative_to(self.connections.path.resolve()):
            raise UsageError(f"{folder} is inside the home; give a folder outside the home")

    # Markdown ---------------------------------------------------------------------------------------------

    def export_markdown(self, folder: Path, *, prefix: str = "", every: bool = False) -> ExportResult:
        """Write memories as Markdown into a folder, a file each. A file that holds anything else is left alone.

        prefix: of the path. every: also superseded and retired ones.
        """
        from perdure.memories import markdown_io

        self._check_outside(folder)
        return markdown_io.export_files(self, folder, prefix=prefix, every=every)

    def import_markdown(self, paths: Iterable[Path], *, terms: ImportTerms | None = None) -> ImportResult:
        """Import Markdown: an export under its ids, instructions and notes statement by statement.

        terms: how far they are trusted, and which project they belong to; the owner's words, of their repository.
        """
        from perdure.memories import markdown_io

        result = markdown_io.import_files(self, paths, terms or markdown_io.ImportTerms())
        self.embed_new()
        return result
