"""Mine conversations: a model makes memories of ten messages at a time.

One batch is one question and one event. The event holds the new memories and the mined range, so a
crash, a bad answer or a spent budget leaves the home as it was before that batch, and nothing is sent
twice. One process mines a home at a time. Mining reads the messages of people and agents. It never
reads a session that is still going on, one with the tag of mining itself, one that may not be kept, or
text that Perdure injected into a session.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from perdure import log
from perdure.access.fence import make_nonce
from perdure.access.redact import mask
from perdure.archive.archive import Archive
from perdure.archive.memory_events import MinedRange
from perdure.disk import lock_file, make_folder, replace_file
from perdure.errors import BadAnswer, BudgetSpent, Busy, DamagedRun, ModelFault, ModelLate, ModelRefused, NotFound
from perdure.index import memory_rows, session_turns
from perdure.index.session_turns import MINING_TAG, SourceTurn, UnminedSource
from perdure.memories import mining_answer, mining_question
from perdure.memories.gate import EXPLANATIONS
from perdure.memories.mining_answer import MiningDecision, MiningInput, OperationRefusal
from perdure.memories.mining_question import MiningMessage
from perdure.memories.store import Memories
from perdure.models.chat import Chat, ChatMessage, TokenUsage
from perdure.text import clip, tokens
from perdure.types import EXTERNAL_RUNTIMES, Memory, Origin, Run, Turn


class BatchFailures:
    """The failure counts of one home (`run/mining.json`). Derived: losing it costs a few more tries.

    A writer holds the lock of mining.
    """

    def __init__(self, home: Path) -> None:
        """Read the counts. No file is made before the first failure."""
        self._path = home / "run" / "mining.json"
        self._counts = _read_counts(self._path)

    def count_of(self, batch: str) -> int:
        """Return how often a batch failed."""
        return self._counts.get(batch, 0)

    def add_failure(self, batch: str) -> int:
        """Count one more failure of a batch; return the new count."""
        self._counts[batch] = self.count_of(batch) + 1
        self._write()
        return self._counts[batch]

    def clear(self, batch: str) -> None:
        """Remove the count of a batch: it is mined."""
        if self._counts.pop(batch, None) is not None:
            self._write()

    def count_stuck(self, limit: int) -> int:
        """Count the batches that failed at least `limit` times."""
        return sum(n >= limit for n in self._counts.values())

    def _write(self) -> None:
        make_folder(self._path.parent)
        replace_file(self._path, json.dumps(self._counts).encode(), sync=False)


def _read_counts(path: Path) -> dict[str, int]:
    try:
        counts = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return {name: n for name, n in counts.items() if isinstance(n, int)} if isinstance(counts, dict) else {}


MINING_JOB = "mine"
MAX_TRIES = 3  # failures of one batch; then it waits until `retry_failed`
_SEARCHED_CHARS = 400  # of a message, in the search for related memories
_RRF_K = 60  # k of reciprocal rank fusion, as in recall
_MAX_MESSAGE_CHARS = 20_000  # of a message; the rest is ignored
_MAX_CACHED_BYTES = 16_000_000  # of cached runs; then the oldest are dropped

MiningProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class MiningRequest:
    """The sessions and batches to mine."""

    include_active: bool = False  # also sessions that were active a moment ago
    include_subagents: bool = False
    sessions: tuple[str, ...] = ()  # native ids of sessions or conversations; empty: all
    excluded_sessions: tuple[str, ...] = ()  # the session that asks
    max_batches: int | None = None  # batches
    retry_failed: bool = False  # also batches that failed MAX_TRIES times
    dry_run: bool = False  # only count, without a call


@dataclass
class MiningResult:
    """The result of one mining pass: counts, cost, and the work that is left."""

    n_batches: int = 0
    n_messages: int = 0
    n_calls: int = 0
    n_new: int = 0
    n_reinforced: int = 0  # memories that were said again, and so reinforced
    n_known: int = 0  # operations `skip`: known already
    refusals: list[OperationRefusal] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)  # reason -> number of sessions
    n_bad_answers: int = 0  # unusable answers
    n_stuck: int = 0  # batches that failed too often
    n_left: int = 0  # batches still to be mined
    usage: TokenUsage = field(default_factory=TokenUsage)
    cost: float | None = None  # None if no price is known
    n_tokens: int = 0  # of a dry run: about how many would be sent
    stop_reason: str = ""  # why it ended early
    fault: ModelFault | None = None  # the fault that ended it

    def add_usage(self, usage: TokenUsage) -> None:
        """Add the usage of one call."""
        total = self.usage
        self.usage = TokenUsage(
            total.n_input + usage.n_input,
            total.n_output + usage.n_output,
            total.n_cache_read + usage.n_cache_read,
            total.n_cache_write + usage.n_cache_write,
        )


@dataclass(frozen=True)
class Miner:
    """The parts of a home that mining needs. chat: None only for a dry run."""

    home: Path
    archive: Archive
    memories: Memories
    chat: Chat | None
    find_related: Callable[[str, Callable[[Memory], bool]], Sequence[Memory]]
    find_refusal: Callable[[Origin], str | None]  # the reason why a session may not be kept, or None
    idle: timedelta
    max_tokens: int
    now: Callable[[], datetime]

    def mine(
        self,
        request: MiningRequest,
        *,
        stop: Callable[[], bool] = lambda: False,
        progress: MiningProgress | None = None,
    ) -> MiningResult:
        """Mine new messages, batch by batch.

        Stop when everything is done, `request.max_batches` is reached, or the model or `stop` ends the pass.
        """
        if request.dry_run:
            return _MiningPass(self, request, stop, progress).run()
        lock_path = self.home / ".mining.lock"
        try:
            with lock_file(lock_path, wait_s=0):
                return _MiningPass(self, request, stop, progress).run()
        except Busy as error:
            if error.detail != str(lock_path):
                raise
            return MiningResult(stop_reason="another process is mining this home")


@dataclass(frozen=True)
class _PendingBatch:
    """One batch still to be mined."""

    unmined: UnminedSource
    messages: tuple[SourceTurn, ...]  # the messages
    all_turns: tuple[SourceTurn, ...]  # every turn of the source

    @property
    def name(self) -> str:
        return f"{self.unmined.source}\t{self.messages[0].offset}"


class _MiningPass:
    """One pass over all sources."""

    def __init__(
        self, miner: Miner, request: MiningRequest, stop: Callable[[], bool], progress: MiningProgress | None
    ) -> None:
        self._miner = miner
        self._request = request
        self._stop = stop
        self._progress = progress or (lambda *_: None)
        self._reader = TurnReader(miner.archive)
        self._failures = BatchFailures(miner.home)
        self.result = MiningResult()

    def run(self) -> MiningResult:
        unmined_sources = self._choose_sources()
        n_batches = sum(-(-unmined.n_left // mining_question.BATCH_SIZE) for unmined in unmined_sources)
        pending_batches = self._iter_batches(unmined_sources)
        for n_mined, batch in enumerate(pending_batches):
            self._progress(n_mined, n_batches)
            if self._is_over():
                self.result.n_left += 1 + sum(1 for _ in pending_batches)
                break
            self._mine_batch(batch)
        return self.result

    def _choose_sources(self) -> list[UnminedSource]:
        """Return the sources that may be mined; count the others with the reason."""
        memories = self._miner.memories
        index, user = memories.index(), memories.user
        unmined_sources = session_turns.list_unmined_sources(index, user)
        if not unmined_sources:
            return []
        tagged_conversations, newest_at = (
            session_turns.find_tagged_conversations(index, user, MINING_TAG),
            session_turns.find_last_times(index, user),
        )
        chosen_sources = []
        for unmined in unmined_sources:
            reason = self._find_skip_reason(unmined, tagged_conversations, newest_at.get(unmined.conversation))
            if reason:
                self.result.skipped[reason] += 1
            else:
                chosen_sources.append(unmined)
        return chosen_sources

    def _find_skip_reason(
        self, unmined: UnminedSource, tagged_conversations: set[str], last_at: datetime | None
    ) -> str:
        """Return why a source is skipped; "" if it is mined."""
        request, names = self._request, {unmined.session, unmined.conversation}
        if unmined.runtime in EXTERNAL_RUNTIMES:
            return "a document of another program"
        if names & set(request.excluded_sessions):
            return "it is the session that asks"
        if request.sessions and not names & set(request.sessions):
            return "not asked for"
        if unmined.conversation in tagged_conversations:
            return f"tagged {MINING_TAG}"
        if unmined.is_subagent and not request.include_subagents:
            return "a sub-agent's"
        if not request.include_active and last_at is not None and last_at > self._miner.now() - self._miner.idle:
            return "still going on"
        origin = Origin(
            unmined.runtime,
            unmined.session,
            unmined.conversation,
            unmined.parent_session,
            unmined.cwd or unmined.project,
        )
        return self._miner.find_refusal(origin) or ""

    def _iter_batches(self, unmined_sources: Sequence[UnminedSource]) -> Iterator[_PendingBatch]:
        """Yield the batches of these sources, each after the one before is done; count the batches that fail."""
        memories = self._miner.memories
        mined_ranges = memory_rows.list_mined_ranges(memories.index(), memories.user)
        for unmined in unmined_sources:
            all_turns = tuple(session_turns.list_turns_of_source(memories.index(), memories.user, unmined))
            messages = [turn for turn in all_turns if turn.is_message]
            for message_numbers in mining_question.split_batches(
                [turn.offset for turn in messages], mined_ranges.get(unmined.source, ())
            ):
                pending_batch = _PendingBatch(unmined, tuple(messages[n] for n in message_numbers), all_turns)
                if self._failures.count_of(pending_batch.name) >= MAX_TRIES and not self._request.retry_failed:
                    self.result.n_stuck += 1
                else:
                    yield pending_batch

    def _is_over(self) -> bool:
        if (
            self._request.max_batches is not None
            and self.result.n_batches + self.result.n_bad_answers >= self._request.max_batches
        ):
            self.result.stop_reason = self.result.stop_reason or "the limit of batches is reached"
        elif self._stop():
            self.result.stop_reason = self.result.stop_reason or "stopped"
        return bool(self.result.stop_reason)

    def _mine_batch(self, batch: _PendingBatch) -> None:
        """Mine one batch. Record a batch without text as mined, without a call."""
        archived_turns = [
            archived_turn
            for position in batch.messages
            if (archived_turn := self._reader.read_turn(position)) is not None
        ]
        if len(archived_turns) < len(batch.messages):
            self.result.skipped["cannot be read"] += 1
            return
        messages = self._to_messages(batch, archived_turns)
        if self._request.dry_run:
            self._count_tokens(messages)
            return
        decision = MiningDecision([], [], 0)
        if messages:
            mining_input, question_text = self._build_question(batch, messages)
            answer = self._ask_model(batch, question_text, len(messages))
            if answer is None:
                return
            decision = self._decide(answer, mining_input)
        if self._reader.is_unchanged(archived_turns):  # else the next pass reads what was not forgotten
            self._store_batch(
                batch,
                mining_question.to_mined_range(batch.unmined.source, archived_turns[0].turn, archived_turns[-1].turn),
                len(messages),
                decision,
            )

    def _to_messages(self, batch: _PendingBatch, archived_turns: Sequence[ArchivedTurn]) -> list[MiningMessage]:
        """Return the messages for the miner: those with text."""
        messages: list[MiningMessage] = []
        for archived_turn in archived_turns:
            message_text = mask(archived_turn.turn.text("text"))[:_MAX_MESSAGE_CHARS].strip()
            if message_text:
                trust = mining_question.rate_trust(
                    archived_turn.turn, self._iter_turns_before(batch, archived_turn.turn.offset)
                )
                span = mining_question.to_span(archived_turn.run.run_id, archived_turn.turn)
                messages.append(
                    MiningMessage(
                        len(messages) + 1, archived_turn.turn.author, message_text, archived_turn.stated_at, span, trust
                    )
                )
        return messages

    def _iter_turns_before(self, batch: _PendingBatch, offset: int) -> Iterator[Turn]:
        """Yield the turns before an offset, the nearest first."""
        for position in reversed([position for position in batch.all_turns if position.offset < offset]):
            archived_turn = self._reader.read_turn(position)
            if archived_turn is not None:
                yield archived_turn.turn

    def _count_tokens(self, messages: Sequence[MiningMessage]) -> None:
        question_text, _ = mining_question.build_question(
            messages, (), nonce=make_nonce(), max_tokens=self._miner.max_tokens
        )
        self.result.n_tokens += tokens(mining_question.SYSTEM_PROMPT) + tokens(question_text) if messages else 0
        self.result.n_batches += 1
        self.result.n_messages += len(messages)

    def _build_question(self, batch: _PendingBatch, messages: Sequence[MiningMessage]) -> tuple[MiningInput, str]:
        """Return the miner's input and the question made from it."""
        memories, unmined = self._miner.memories, batch.unmined
        known_memories = self._find_known(messages, unmined)
        question_text, n_known = mining_question.build_question(
            messages,
            known_memories,
            nonce=make_nonce(),
            max_tokens=self._miner.max_tokens,
        )
        condition = "kind = ? AND superseded_by IS NULL AND NOT retired AND agent = ?"
        known_insights = memory_rows.list_memories(
            memories.index(), memories.user, condition, mining_question.INSIGHT_KIND, unmined.agent
        )
        mining_input = MiningInput(
            messages,
            known_memories[:n_known],
            [m for m in known_insights if m.project in (None, unmined.project)],
            unmined.agent,
            unmined.project,
            unmined.runtime,
            unmined.conversation,
        )
        return mining_input, question_text

    def _find_known(self, messages: Sequence[MiningMessage], unmined: UnminedSource) -> list[Memory]:
        """Return the memories nearest to these messages, by the ranks that each message gives them."""
        scores: defaultdict[str, float] = defaultdict(float)
        memories_by_id: dict[str, Memory] = {}
        for message in messages:
            related_memories = self._miner.find_related(clip(message.text, _SEARCHED_CHARS), unmined.can_know)
            for rank, memory in enumerate(related_memories, start=1):
                scores[memory.memory_id] += 1 / (_RRF_K + rank)
                memories_by_id[memory.memory_id] = memory
        ranked_ids = sorted(memories_by_id, key=lambda memory_id: (-scores[memory_id], memory_id))
        return [memories_by_id[memory_id] for memory_id in ranked_ids[: mining_question.MAX_KNOWN]]

    def _ask_model(self, batch: _PendingBatch, question_text: str, n_messages: int) -> list[dict[str, object]] | None:
        """Return the operations that the model answers; None if it gave no usable answer."""
        assert self._miner.chat is not None
        self.result.n_calls += 1
        try:
            chat_messages = [ChatMessage("system", mining_question.SYSTEM_PROMPT), ChatMessage("user", question_text)]
            reply = self._miner.chat.reply(chat_messages, schema=mining_question.build_schema(n_messages))
        except BudgetSpent as error:
            self.result.n_calls -= 1  # no call was made
            self._stop_with(error)
        except (BadAnswer, ModelRefused, ModelLate) as error:
            self._record_failure(batch, error)
        except ModelFault as error:
            self._stop_with(error)
        else:
            self.result.add_usage(reply.usage)
            if reply.value is not None:
                return list(reply.value["operations"])
            self._record_failure(batch, BadAnswer(self._miner.chat.name))
        return None

    def _record_failure(self, batch: _PendingBatch, error: ModelFault) -> None:
        """Record that a batch failed. One bad answer does not stop the next batch."""
        self.result.n_bad_answers += 1
        self.result.add_usage(error.usage if isinstance(error.usage, TokenUsage) else TokenUsage())
        n_failures = self._failures.add_failure(batch.name)
        self._log_batch(batch, result="failed", code=error.code, tries=n_failures)
        if not isinstance(error, BadAnswer):
            self._stop_with(error)

    def _stop_with(self, error: ModelFault) -> None:
        self.result.fault, self.result.stop_reason = error, str(error)
        self.result.n_left += 1

    def _decide(self, answer: list[dict[str, object]], mining_input: MiningInput) -> MiningDecision:
        decision = mining_answer.decide_operations(answer, mining_input)
        self.result.refusals += decision.refusals
        self.result.n_known += decision.n_skipped
        if decision.refusals:
            codes = Counter(refusal.code for refusal in decision.refusals)
            log.append_entry(self._miner.home, "mining", result="refused", operations=dict(codes))
        return decision

    def _store_batch(
        self, pending_batch: _PendingBatch, mined_range: MinedRange, n_messages: int, decision: MiningDecision
    ) -> None:
        """Store a batch: the new memories, what the write gate discarded, and the mined range, in one event."""
        mined_at = self._miner.now().isoformat()
        discards = [(refusal.code, mined_at) for refusal in decision.refusals if refusal.code in EXPLANATIONS]
        results = self._miner.memories.keep_all(decision.drafts, by="miner", batch=mined_range, discards=discards)
        self._failures.clear(pending_batch.name)
        n_new = sum(result.is_new for result in results)
        self.result.n_new += n_new
        self.result.n_reinforced += len(results) - n_new
        self.result.n_batches += 1
        self.result.n_messages += n_messages
        self._log_batch(pending_batch, result="done", messages=n_messages, new=n_new, again=len(results) - n_new)

    def _log_batch(self, batch: _PendingBatch, **fields: object) -> None:
        log.append_entry(
            self._miner.home, "mining", run_id=batch.messages[0].run_id, offset=batch.messages[0].offset, **fields
        )


class ArchivedTurn(NamedTuple):
    """A turn read from the archive."""

    run: Run
    turn: Turn

    @property
    def stated_at(self) -> datetime:
        """The time at which it was said: at most the time of its capture."""
        return min(self.turn.stated_at or self.run.captured_at, self.run.captured_at)


class TurnReader:
    """Reads turns from the archive, without injected text; caches the last runs."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._runs: dict[str, dict[int, ArchivedTurn]] = {}
        self._sizes: dict[str, int] = {}

    def read_turn(self, position: SourceTurn) -> ArchivedTurn | None:
        """Return the turn at a position; None if it cannot be read any more."""
        if position.run_id not in self._runs:
            self._load_run(position.run_id)
        return self._runs[position.run_id].get(position.offset)

    def is_unchanged(self, archived_turns: Sequence[ArchivedTurn]) -> bool:
        """Return True if nothing of these turns' runs was forgotten since they were read."""
        for run in {archived_turn.run.run_id: archived_turn.run for archived_turn in archived_turns}.values():
            try:
                current_run = self._archive.read_run(self._archive.get_entry(run.run_id))
            except (NotFound, DamagedRun):
                return False
            if current_run.forgotten != run.forgotten:
                return False
        return True

    def _load_run(self, run_id: str) -> None:
        while self._runs and sum(self._sizes.values()) > _MAX_CACHED_BYTES:
            oldest_run_id = next(iter(self._runs))
            del self._runs[oldest_run_id], self._sizes[oldest_run_id]
        self._runs[run_id], self._sizes[run_id] = {}, 0
        try:
            run, parsed = self._archive.read_turns(self._archive.get_entry(run_id))
        except (NotFound, DamagedRun):
            return
        self._runs[run_id] = {turn.offset: ArchivedTurn(run, turn) for turn in parsed.turns}
        self._sizes[run_id] = run.n_bytes
