"""Mining: what a model makes of conversations, ten messages at a time.

One batch is one question and one event, which holds both what was made and which stretch was mined: a crash, a bad
answer or a spent budget leaves the home as it was before that batch, and nothing is sent twice. One process mines a
home at a time. It reads what people and agents said; it never reads a session that is going on, one that was tagged as
its own, one that may not be kept, or what Perdure itself put into a session.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

from perdure.access.fence import new_nonce
from perdure.access.redact import mask
from perdure.archive.archive import Archive
from perdure.capture import log
from perdure.capture.files import locked
from perdure.errors import BadAnswer, BudgetSpent, Busy, DamagedRun, ModelFault, ModelLate, ModelRefused, NotFound
from perdure.formats.of_run import parse_run, without_injected
from perdure.index import memories as rows
from perdure.index import mining as mines
from perdure.index.mining import TAG, Lode, Place
from perdure.memories.events import Batch
from perdure.mind import batches, insights, operations, prompts
from perdure.mind.batches import Message
from perdure.mind.memories import Draft, Memories
from perdure.mind.operations import Refusal, Shown, Topic
from perdure.mind.tries import Tries
from perdure.models.chat import Chat, Usage
from perdure.models.chat import Message as Asked
from perdure.text import clip, tokens
from perdure.types import Memory, Origin, Run, Turn

JOB = "mine"
MAX_TRIES = 3  # of one batch; then it waits until somebody asks for it again
_SEARCHED_CHARS = 400  # of a message, when related memories are looked for
_RANK = 60  # of reciprocal rank fusion, as in recall
_MOST_TEXT_CHARS = 20_000  # of a message that are looked at at all
_KEPT_BYTES = 16_000_000  # of runs that were read, before the first of them are let go

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Wish:
    """What is to be mined."""

    now: bool = False  # also sessions that were going on a moment ago
    subagents: bool = False
    sessions: tuple[str, ...] = ()  # only these (native ids of sessions or conversations); all when empty
    without: tuple[str, ...] = ()  # never these: the session that asks
    most: int | None = None  # batches
    again: bool = False  # also what failed MAX_TRIES times
    dry: bool = False  # only count


@dataclass
class Mined:
    """What a pass did, and what it left."""

    n_batches: int = 0
    n_messages: int = 0
    n_calls: int = 0
    n_new: int = 0
    n_again: int = 0  # memories that were said again
    n_known: int = 0  # operations that said: known already
    refused: list[Refusal] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)  # why -> sessions
    n_bad: int = 0  # answers that were none
    n_stuck: int = 0  # batches that failed too often
    n_left: int = 0  # batches that are still to be mined
    usage: Usage = field(default_factory=Usage)
    money: float | None = None  # what that costs; None where no price is known
    n_tokens: int = 0  # of a dry run: about what would be sent
    stopped: str = ""  # why it ended early
    fault: ModelFault | None = None  # that ended it

    def count(self, usage: Usage) -> None:
        """Add what a call took."""
        old = self.usage
        self.usage = Usage(
            old.n_input + usage.n_input, old.n_output + usage.n_output,
            old.n_cache_read + usage.n_cache_read, old.n_cache_write + usage.n_cache_write,
        )  # fmt: skip


@dataclass(frozen=True)
class Miner:
    """What mining needs of a home. chat: None only for a dry run."""

    home: Path
    archive: Archive
    memories: Memories
    chat: Chat | None
    related: Callable[[str, Callable[[Memory], bool]], Sequence[Memory]]
    refusal: Callable[[Origin], str | None]  # why a session may not be kept
    idle: timedelta
    most_tokens: int
    now: Callable[[], datetime]

    def mine(self, wish: Wish, *, stop: Callable[[], bool] = lambda: False, progress: Progress | None = None) -> Mined:
        """Mine what is new, batch by batch, until all is done, `wish.most` is reached, or a model or `stop` ends it."""
        if wish.dry:
            return _Pass(self, wish, stop, progress).run()
        lock = self.home / ".mining.lock"
        try:
            with locked(lock, wait_s=0):
                return _Pass(self, wish, stop, progress).run()
        except Busy as error:
            if error.detail != str(lock):
                raise
            return Mined(stopped="another process is mining this home")


@dataclass(frozen=True)
class _Todo:
    """One batch that is to be mined."""

    lode: Lode
    places: tuple[Place, ...]  # the messages
    around: tuple[Place, ...]  # every turn of the source

    @property
    def name(self) -> str:
        return f"{self.lode.source}\t{self.places[0].offset}"


class _Pass:
    """One pass over everything."""

    def __init__(self, miner: Miner, wish: Wish, stop: Callable[[], bool], progress: Progress | None) -> None:
        self._miner = miner
        self._wish = wish
        self._stop = stop
        self._progress = progress or (lambda *_: None)
        self._reader = _Reader(miner.archive)
        self._tries = Tries(miner.home)
        self._rare: list[Topic] = []
        self.done = Mined()

    def run(self) -> Mined:
        memories, lodes = self._miner.memories, self._chosen()
        if lodes:
            self._rare = operations.never_used(rows.every(memories.index(), memories.user))
        n_all = sum(-(-lode.n_left // batches.SIZE) for lode in lodes)
        todo = self._todo(lodes)
        for n_done, item in enumerate(todo):
            self._progress(n_done, n_all)
            if self._is_over():
                self.done.n_left += 1 + sum(1 for _ in todo)
                break
            self._take(item)
        return self.done

    def _chosen(self) -> list[Lode]:
        """The sources that may be mined; the others are counted with the reason."""
        memories = self._miner.memories
        index, user = memories.index(), memories.user
        lodes = mines.lodes(index, user)
        if not lodes:
            return []
        own, newest = mines.tagged(index, user, TAG), mines.newest(index, user)
        chosen = []
        for lode in lodes:
            why = self._why_not(lode, own, newest.get(lode.conversation))
            if why:
                self.done.skipped[why] += 1
            else:
                chosen.append(lode)
        return chosen

    def _why_not(self, lode: Lode, own: set[str], last_at: datetime | None) -> str:
        """Why a source is left alone; "" when it is not."""
        wish, names = self._wish, {lode.session, lode.conversation}
        if names & set(wish.without):
            return "it is the session that asks"
        if wish.sessions and not names & set(wish.sessions):
            return "not asked for"
        if lode.conversation in own:
            return f"tagged {TAG}"
        if lode.is_subagent and not wish.subagents:
            return "a sub-agent's"
        if not wish.now and last_at is not None and last_at > self._miner.now() - self._miner.idle:
            return "still going on"
        origin = Origin(lode.runtime, lode.session, lode.conversation, lode.parent_session, lode.cwd or lode.project)
        return self._miner.refusal(origin) or ""

    def _todo(self, lodes: Sequence[Lode]) -> Iterator[_Todo]:
        """The batches of these sources, each read off when the one before is done; those that fail are counted."""
        memories = self._miner.memories
        mined = rows.mined(memories.index(), memories.user)
        for lode in lodes:
            around = tuple(mines.places(memories.index(), memories.user, lode))
            said = [place for place in around if place.is_said]
            for batch in batches.stretches([place.offset for place in said], mined.get(lode.source, ())):
                item = _Todo(lode, tuple(said[n] for n in batch), around)
                if self._tries.of(item.name) >= MAX_TRIES and not self._wish.again:
                    self.done.n_stuck += 1
                else:
                    yield item

    def _is_over(self) -> bool:
        if self._wish.most is not None and self.done.n_batches + self.done.n_bad >= self._wish.most:
            self.done.stopped = self.done.stopped or "as many batches as were asked for"
        elif self._stop():
            self.done.stopped = self.done.stopped or "told to stop"
        return bool(self.done.stopped)

    def _take(self, item: _Todo) -> None:
        """Mine one batch. One in which no words are left is noted as mined without a call."""
        reads = [read for place in item.places if (read := self._reader.turn(place)) is not None]
        if len(reads) < len(item.places):
            self.done.skipped["cannot be read"] += 1
            return
        messages = self._messages(item, reads)
        if self._wish.dry:
            self._weigh(messages)
            return
        drafts: list[Draft] = []
        if messages:
            shown, asked = self._question(item, messages)
            answer = self._answer(item, asked, len(messages))
            if answer is None:
                return
            drafts = self._decided(answer, shown)
        if self._reader.is_unchanged(reads):  # else something was forgotten meanwhile: the next pass reads what is left
            self._keep(item, batches.batch_of(item.lode.source, reads[0].turn, reads[-1].turn), len(messages), drafts)

    def _messages(self, item: _Todo, reads: Sequence[_Read]) -> list[Message]:
        """What the miner is to read: every message that has words."""
        found: list[Message] = []
        for read in reads:
            said = mask(read.turn.text("text"))[:_MOST_TEXT_CHARS].strip()
            if said:
                trust = batches.trust_of(read.turn, self._before(item, read.turn.offset))
                span = batches.span_of(read.run.run_id, read.turn)
                found.append(Message(len(found) + 1, read.turn.author, said, read.said_at, span, trust))
        return found

    def _before(self, item: _Todo, offset: int) -> Iterator[Turn]:
        """The turns before one, the nearest first."""
        for place in reversed([place for place in item.around if place.offset < offset]):
            read = self._reader.turn(place)
            if read is not None:
                yield read.turn

    def _weigh(self, messages: Sequence[Message]) -> None:
        asked, _ = prompts.question(messages, (), (), nonce=new_nonce(), most_tokens=self._miner.most_tokens)
        self.done.n_tokens += tokens(prompts.SYSTEM) + tokens(asked) if messages else 0
        self.done.n_batches += 1
        self.done.n_messages += len(messages)

    def _question(self, item: _Todo, messages: Sequence[Message]) -> tuple[Shown, str]:
        """(what the miner is shown, in which words)."""
        memories, lode = self._miner.memories, item.lode
        known = self._known(messages, lode)
        asked, n_known = prompts.question(
            messages, known, prompts.rarely(self._rare), nonce=new_nonce(), most_tokens=self._miner.most_tokens
        )
        current = "kind = ? AND superseded_by IS NULL AND NOT retired AND agent = ?"
        surest = rows.every(memories.index(), memories.user, current, insights.KIND, lode.agent)
        shown = Shown(
            messages, known[:n_known], [m for m in surest if m.project in (None, lode.project)],
            frozenset(self._rare), lode.agent, lode.project, lode.runtime, lode.conversation,
        )  # fmt: skip
        return shown, asked

    def _known(self, messages: Sequence[Message], lode: Lode) -> list[Memory]:
        """The memories nearest to what these messages say, by the ranks that each message gives them."""
        scores: defaultdict[str, float] = defaultdict(float)
        found: dict[str, Memory] = {}
        for message in messages:
            related = self._miner.related(clip(message.text, _SEARCHED_CHARS), lode.may_know)
            for rank, memory in enumerate(related, start=1):
                scores[memory.memory_id] += 1 / (_RANK + rank)
                found[memory.memory_id] = memory
        best = sorted(found, key=lambda name: (-scores[name], name))
        return [found[name] for name in best[: prompts.MAX_KNOWN]]

    def _answer(self, item: _Todo, asked: str, n_messages: int) -> list[dict[str, object]] | None:
        """The operations that the model answers; None when it gave no answer that can be used."""
        assert self._miner.chat is not None
        self.done.n_calls += 1
        try:
            question = [Asked("system", prompts.SYSTEM), Asked("user", asked)]
            reply = self._miner.chat.reply(question, schema=prompts.schema(n_messages))
        except BudgetSpent as error:
            self.done.n_calls -= 1  # nothing was asked
            self._end(error)
        except (BadAnswer, ModelRefused, ModelLate) as error:
            self._fail(item, error)
        except ModelFault as error:
            self._end(error)
        else:
            self.done.count(reply.usage)
            if reply.value is not None:
                return list(reply.value["operations"])
            self._fail(item, BadAnswer(self._miner.chat.name))
        return None

    def _fail(self, item: _Todo, error: ModelFault) -> None:
        """Note that a batch failed; one bad answer does not keep the next batch from being asked for."""
        self.done.n_bad += 1
        self.done.count(error.usage if isinstance(error.usage, Usage) else Usage())
        n_tries = self._tries.add(item.name)
        self._note(item, result="failed", code=error.code, tries=n_tries)
        if not isinstance(error, BadAnswer):
            self._end(error)

    def _end(self, error: ModelFault) -> None:
        self.done.fault, self.done.stopped = error, str(error)
        self.done.n_left += 1

    def _decided(self, answer: list[dict[str, object]], shown: Shown) -> list[Draft]:
        decided = operations.decided(answer, shown)
        self.done.refused += decided.refused
        self.done.n_known += decided.n_skipped
        if decided.refused:
            codes = Counter(refusal.code for refusal in decided.refused)
            log.note(self._miner.home, "mining", result="refused", operations=dict(codes))
        return decided.drafts

    def _keep(self, item: _Todo, batch: Batch, n_messages: int, drafts: Sequence[Draft]) -> None:
        """Write the batch: what was made and which stretch was mined, in one event."""
        kept = self._miner.memories.keep_all(drafts, by="miner", batch=batch)
        self._tries.drop(item.name)
        n_new = sum(one.is_new for one in kept)
        self.done.n_new += n_new
        self.done.n_again += len(kept) - n_new
        self.done.n_batches += 1
        self.done.n_messages += n_messages
        self._note(item, result="done", messages=n_messages, new=n_new, again=len(kept) - n_new)

    def _note(self, item: _Todo, **fields: object) -> None:
        log.note(self._miner.home, "mining", run_id=item.places[0].run_id, offset=item.places[0].offset, **fields)


class _Read(NamedTuple):
    """A turn as it was read."""

    run: Run
    turn: Turn

    @property
    def said_at(self) -> datetime:
        """When it was said: at most when it was captured."""
        return min(self.turn.stated_at or self.run.captured_at, self.run.captured_at)


class _Reader:
    """Turns read from the archive, without what was injected; the last runs are kept at hand."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._runs: dict[str, dict[int, _Read]] = {}
        self._sizes: dict[str, int] = {}

    def turn(self, place: Place) -> _Read | None:
        """The turn that stands there; None when it cannot be read any more."""
        if place.run_id not in self._runs:
            self._load(place.run_id)
        return self._runs[place.run_id].get(place.offset)

    def is_unchanged(self, reads: Sequence[_Read]) -> bool:
        """Whether nothing of these turns' runs was forgotten since they were read."""
        for run in {read.run.run_id: read.run for read in reads}.values():
            try:
                now = self._archive.run(self._archive.held(run.run_id))
            except (NotFound, DamagedRun):
                return False
            if now.forgotten != run.forgotten:
                return False
        return True

    def _load(self, run_id: str) -> None:
        while self._runs and sum(self._sizes.values()) > _KEPT_BYTES:
            oldest = next(iter(self._runs))
            del self._runs[oldest], self._sizes[oldest]
        self._runs[run_id], self._sizes[run_id] = {}, 0
        try:
            run, lines = self._archive.load(self._archive.held(run_id))
        except (NotFound, DamagedRun):
            return
        parsed = without_injected(parse_run(run, lines), partial(self._archive.injected, run))
        self._runs[run_id] = {turn.offset: _Read(run, turn) for turn in parsed.turns}
        self._sizes[run_id] = run.n_bytes
