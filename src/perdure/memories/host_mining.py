"""Let the host's own model settle candidates: it is asked once about each, and what it keeps becomes memories.

No key and no model of Perdure's own is needed. A question is recorded before it is given (`archive.host_questions`); an
answer is one event that holds the new memories and what they settle, so a second answer changes nothing, and a crash
leaves nothing half done. A turn that was forgotten, or that the principal does not own, is no source.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from perdure.access.redact import mask
from perdure.archive import host_questions
from perdure.archive.archive import Archive
from perdure.archive.host_questions import KEEP, NONE, HostQuestion
from perdure.disk import lock_file
from perdure.errors import UsageError
from perdure.formats.fixes import find_fixes
from perdure.index import session_turns
from perdure.index.session_turns import SourceTurn
from perdure.memories import gate, host_answer, host_question, mining_question
from perdure.memories.host_answer import HostStatement
from perdure.memories.host_question import HostCandidate, HostTurn
from perdure.memories.mine import TurnReader
from perdure.memories.mining_answer import MiningInput, OperationRefusal
from perdure.memories.mining_question import MiningMessage
from perdure.memories.store import KeepResult, Memories, MemoryDraft
from perdure.types import Origin, Run

RECENT = timedelta(days=7)  # an older session is not asked about
MAX_SESSIONS = 3  # newest sessions of a project that are looked at
MAX_HOOK_BYTES = 6_000_000  # of a session that are read while a client waits: 3 MB took 85 ms
MAX_TURNS = 3000  # newest turns of a session that are read
_LOCK_WAIT_S = 5.0  # for another answer
_MAX_FIX_TEXTS = 2  # texts of the agent between a failure and its success


@dataclass(frozen=True)
class HostChoice:
    """The candidates of one session, before anybody is asked about them."""

    runtime: str
    conversation: str
    until_at: datetime | None
    candidates: tuple[HostCandidate, ...]

    def to_question(self, shown: Sequence[HostCandidate]) -> HostQuestion:
        """Return the question about those candidates for which there was room."""
        kinds = {candidate.turn_id: candidate.kind for candidate in shown}
        return HostQuestion(self.runtime, self.conversation, self.until_at, kinds)


@dataclass
class SettleResult:
    """The result of one answer."""

    kept: list[KeepResult] = field(default_factory=list)
    n_none: int = 0  # candidates that hold nothing worth keeping
    refusals: list[OperationRefusal] = field(default_factory=list)
    n_known: int = 0  # statements and candidates that an earlier answer settled


@dataclass(frozen=True)
class HostMiner:
    """The parts of a home that are needed to ask and to settle."""

    home: Path
    archive: Archive
    memories: Memories
    find_refusal: Callable[[Origin], str | None]  # the reason why a session may not be kept, or None

    # asking -----------------------------------------------------------------------------------------------

    def choose_candidates(
        self, project: str | None, *, without: str = "", only: str = "", limit_s: float | None = None
    ) -> HostChoice | None:
        """Return the candidates of the newest session of a project that has any; None if none has.

        without: the conversation that begins now. only: no other conversation than this one. limit_s: for somebody who
        waits: about so many seconds, and only the newest MAX_HOOK_BYTES of a session.
        """
        ends_s = None if limit_s is None else time.monotonic() + limit_s
        memories = self.memories
        questions = host_questions.read_questions(memories.journal, memories.now())
        conversations = session_turns.iter_recent_conversations(
            memories.index(), memories.user, memories.agent, project, memories.now() - RECENT
        )
        matching = (c for c in conversations if c.origin.conversation == (only or c.origin.conversation) != without)
        for conversation in islice(matching, MAX_SESSIONS):
            origin = conversation.origin
            if self.find_refusal(origin):
                continue
            choice = self._choose_of(origin, conversation.last_at, questions, ends_s)
            if choice.candidates:
                return choice
        return None

    def _choose_of(
        self, origin: Origin, last_at: datetime, questions: Sequence[HostQuestion], ends_s: float | None
    ) -> HostChoice:
        """Return the candidates of one conversation after the time up to which it was asked about."""
        asked_until_at = host_questions.find_last_time(questions, origin.runtime, origin.conversation)
        if asked_until_at is not None and last_at <= asked_until_at:
            return HostChoice(origin.runtime, origin.conversation, last_at, ())
        turns, known_ids = self._read_conversation(origin.conversation, ends_s)
        known_ids |= {
            turn.turn_id
            for turn in turns
            if asked_until_at is not None and (turn.stated_at is None or turn.stated_at <= asked_until_at)
        }
        candidates = host_question.choose_candidates(turns, known_ids)
        clean_candidates = tuple(c for c in candidates if not self.memories.scan_text(c.quote))
        return HostChoice(origin.runtime, origin.conversation, last_at, clean_candidates)

    def _read_conversation(self, conversation: str, ends_s: float | None = None) -> tuple[list[HostTurn], set[str]]:
        """Return the newest turns of a conversation in their order, and the ids of those that are known.

        ends_s: when to stop reading, on the monotonic clock; then only the newest MAX_HOOK_BYTES are read.
        """
        reader = TurnReader(self.archive)
        turns: list[HostTurn] = []
        known_ids: set[str] = set()
        rows = session_turns.list_conversation_turns(self.memories.index(), self.memories.user, conversation)
        rows = rows[-MAX_TURNS:]
        if ends_s is not None:
            small_runs = self._list_newest_runs([row.run_id for row in rows])
            rows = [row for row in rows if row.run_id in small_runs]
        for row in rows:
            if ends_s is not None and time.monotonic() > ends_s:
                return [], set()
            archived_turn = reader.read_turn(SourceTurn(row.run_id, row.offset, "", True, None))
            if archived_turn is not None:
                turns.append(HostTurn(row.turn_id, row.run_id, archived_turn.turn, archived_turn.stated_at))
                known_ids |= {row.turn_id} if row.is_known else set()
        return turns, known_ids

    def _list_newest_runs(self, run_ids: Sequence[str]) -> set[str]:
        """Return the newest of these runs that together have at most MAX_HOOK_BYTES. run_ids: oldest first."""
        newest_runs: set[str] = set()
        n_bytes = 0
        for run_id in reversed(dict.fromkeys(run_ids)):
            entry = self.archive.get_entry(run_id)
            n_bytes += entry.to_offset - entry.from_offset
            if n_bytes > MAX_HOOK_BYTES:
                break
            newest_runs.add(run_id)
        return newest_runs

    def request_candidates(self, project: str | None, *, session: str = "") -> list[HostCandidate]:
        """Return the candidates of the newest session of a project, because somebody wants to settle them now.

        session: of this session alone. New ones are recorded as asked. Without new ones, return those that the newest
        question left open. Raises UsageError for a session that is not one of the last days in this project.
        """
        if session and session not in self.list_conversations(project, n_max=None):
            days = f"the last {RECENT.days} days"
            raise UsageError(f"this folder has no session {session!r} of {days}: `perdure tree` lists sessions")
        choice = self.choose_candidates(project, only=session)
        if choice is None:
            return self._list_pending({session} if session else self.list_conversations(project))
        question, receiver = choice.to_question(choice.candidates), {"runtime": "", "session": "", "agent": ""}
        data = host_questions.build_data(question, receiver)
        self.memories.journal.append(host_questions.EVENT_TYPE, data, now=self.memories.now())
        return list(choice.candidates)

    def list_conversations(self, project: str | None, *, n_max: int | None = MAX_SESSIONS + 1) -> set[str]:
        """Return the newest conversations of a project: those that can be asked about. n_max: None for all."""
        memories = self.memories
        conversations = session_turns.iter_recent_conversations(
            memories.index(), memories.user, memories.agent, project, memories.now() - RECENT
        )
        return {conversation.origin.conversation for conversation in islice(conversations, n_max)}

    def _list_pending(self, conversations: Collection[str]) -> list[HostCandidate]:
        """Return the candidates that the newest question about some conversations left open, as far as their turns can
        be read.
        """
        journal, now = self.memories.journal, self.memories.now()
        questions = [q for q in host_questions.read_questions(journal, now) if q.conversation in conversations]
        pending_ids = set(host_answer.list_pending(questions, host_questions.read_settled(journal, now)))
        if not pending_ids:
            return []
        turns, _ = self._read_conversation(questions[0].conversation)
        statements = [host_question.build_statement(turn) for turn in turns if turn.turn_id in pending_ids]
        candidates = [*filter(None, statements), *host_question.list_fixes(turns)]
        kinds = questions[0].asked
        return [c for c in candidates if c.turn_id in pending_ids and kinds[c.turn_id] == c.kind]

    # settling ---------------------------------------------------------------------------------------------

    def settle(
        self,
        statements: Sequence[HostStatement],
        none_codes: Sequence[str] | None = None,
        *,
        conversations: Collection[str] | None = None,
    ) -> SettleResult:
        """Keep statements, and settle candidates that hold nothing. Changes nothing that was settled before.

        none_codes: those candidates; an empty sequence for all that the newest question left open, None for none.
        conversations: the newest question about these; about any if None.
        """
        with lock_file(self.home / ".settle.lock", wait_s=_LOCK_WAIT_S):
            return self._settle(statements, none_codes, conversations)

    def _settle(
        self,
        statements: Sequence[HostStatement],
        none_codes: Sequence[str] | None,
        conversations: Collection[str] | None,
    ) -> SettleResult:
        journal, result = self.memories.journal, SettleResult()
        now = self.memories.now()
        questions, settled = host_questions.read_questions(journal, now), host_questions.read_settled(journal, now)
        drafts: list[MemoryDraft] = []
        outcomes: dict[str, str] = {}
        for statement in statements[: host_answer.MAX_STATEMENTS]:
            decision = self._decide(statement, questions, settled)
            if isinstance(decision, OperationRefusal):
                result.refusals.append(decision)
            elif decision is None:
                result.n_known += 1
            else:
                draft, turn_ids = decision
                drafts.append(draft)
                outcomes |= dict.fromkeys(turn_ids, KEEP)
        if none_codes is not None and not none_codes:
            named_questions = [q for q in questions if conversations is None or q.conversation in conversations]
            none_ids = host_answer.list_pending(named_questions, {**settled, **outcomes})
        else:
            none_ids = self._find_none(none_codes or (), questions, {**settled, **outcomes}, result)
        result.n_none = len(none_ids)
        outcomes = dict.fromkeys(none_ids, NONE) | outcomes
        discards = [(r.code, self.memories.now().isoformat()) for r in result.refusals if r.code in gate.EXPLANATIONS]
        result.kept = self.memories.keep_all(drafts, by="agent", discards=discards, settled=list(outcomes.items()))
        return result

    def _decide(
        self, statement: HostStatement, questions: Sequence[HostQuestion], settled: Collection[str]
    ) -> tuple[MemoryDraft, tuple[str, ...]] | OperationRefusal | None:
        """Return the draft of a statement with its turns, why it is refused, or None for turns that are settled."""
        turn_ids = host_answer.find_turns(statement.codes, questions)
        if isinstance(turn_ids, OperationRefusal):
            return turn_ids
        if set(turn_ids) <= set(settled):
            return None
        question = next(question for question in questions if set(turn_ids) <= set(question.asked))
        mining_input = self._read_sources(question, turn_ids)
        if mining_input is None:
            return OperationRefusal("turns", "a turn cannot be read any more")
        draft = host_answer.decide_statement(statement, turn_ids, mining_input, user=self.memories.user)
        if isinstance(draft, OperationRefusal):
            return draft
        refusal = self.memories.find_refusal(draft)
        return OperationRefusal(refusal.reason, refusal.why) if refusal else (draft, turn_ids)

    def _find_none(
        self,
        codes: Sequence[str],
        questions: Sequence[HostQuestion],
        settled: Collection[str],
        result: SettleResult,
    ) -> list[str]:
        """Return the turns that hold nothing; note in the result what cannot be settled."""
        decisions = [host_answer.find_turns([code], questions) for code in codes]
        result.refusals += [refusal for refusal in decisions if isinstance(refusal, OperationRefusal)]
        named_ids = [turn_id for turns in decisions if not isinstance(turns, OperationRefusal) for turn_id in turns]
        result.n_known += sum(turn_id in settled for turn_id in named_ids)
        return [turn_id for turn_id in dict.fromkeys(named_ids) if turn_id not in settled]

    def _read_sources(self, question: HostQuestion, turn_ids: Sequence[str]) -> MiningInput | None:
        """Return the turns that a statement names, as messages of the miner; None if one cannot be read."""
        turns, _ = self._read_conversation(question.conversation)
        positions = {turn.turn_id: n for n, turn in enumerate(turns)}
        if not set(turn_ids) <= set(positions):
            return None
        sources = [
            source
            for turn_id in sorted(turn_ids, key=positions.__getitem__)
            for source in _list_sources(turns, positions[turn_id], question.asked[turn_id])
        ]
        run = self._read_run(turns[sources[-1].position].run_id)
        source = run.source
        origin = Origin(source.runtime, source.session, run.conversation, run.parent_session, run.cwd or run.project)
        if self.find_refusal(origin):
            return None
        messages = [_to_message(n, source, turns) for n, source in enumerate(sources, start=1)]
        return MiningInput(
            messages,
            (),
            agent=run.agent,
            project=run.project,
            runtime=question.runtime,
            conversation=question.conversation,
        )

    def _read_run(self, run_id: str) -> Run:
        return self.archive.read_run(self.archive.get_entry(run_id))


class _SourceText(NamedTuple):
    """A turn on which a statement rests, by its position in the session, and the words that count."""

    position: int
    words: str


def _list_sources(turns: Sequence[HostTurn], position: int, kind: str) -> list[_SourceText]:
    """Return the sources of a candidate: its turn; of a fix, its failure, the agent's last words, and its success."""
    turn = turns[position].turn
    if kind == host_question.STATEMENT:
        return [_SourceText(position, turn.text("text"))]
    fixes = [fix for fix in find_fixes(turn.turn for turn in turns[: position + 1]) if fix.passed is turn]
    if not fixes:
        return [_SourceText(position, "")]
    first = next(n for n, turn in enumerate(turns) if turn.turn is fixes[-1].failed)
    between = range(first + 1, position)
    texts = [_SourceText(n, turns[n].turn.text("text")) for n in between if turns[n].turn.author == "agent"]
    description = host_question.describe_fix(fixes[-1])
    agent_texts = [source for source in texts if source.words][-_MAX_FIX_TEXTS:]
    return [_SourceText(first, description), *agent_texts, _SourceText(position, description)]


def _to_message(number: int, source: _SourceText, turns: Sequence[HostTurn]) -> MiningMessage:
    """Return a source as a message of the miner, masked."""
    host_turn = turns[source.position]
    turn = host_turn.turn
    trust = mining_question.rate_trust(turn, (earlier.turn for earlier in reversed(turns[: source.position])))
    span = mining_question.to_span(host_turn.run_id, turn)
    return MiningMessage(number, turn.author, mask(source.words), host_turn.stated_at, span, trust)
