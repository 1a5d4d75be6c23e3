"""The composition root: a home on disk becomes the objects that work on it. The only file that knows them all.

A home is opened for one principal, and everything read through it is theirs. What is captured is durable before
a call returns; the index follows, and a failure of the index never fails a capture.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import apsw
import msgspec

from perdure import config as settings
from perdure import forget as forgetting
from perdure import intake, mounts
from perdure.archive import archive as archives
from perdure.archive import stage
from perdure.archive.archive import Answer, Archive, Delta
from perdure.archive.journal import Journal, keep_all_writers, keep_writers
from perdure.archive.store import Held
from perdure.archive.tombstones import Tombstones
from perdure.authority import watch as watching
from perdure.authority.grants import Given, Grants, granted
from perdure.capture import files, later, log, outbox, places, post, privacy
from perdure.capture import rules as capturing
from perdure.errors import (
    ArchiveFault,
    Busy,
    ConfigFault,
    DamagedRun,
    DiskFull,
    EditRefused,
    FormatFault,
    HomeMissing,
    HomeNotPrivate,
    IndexFault,
    IndexMissing,
    MemoryMissing,
    ModelFault,
    NotFound,
    PerdureError,
    ReadOnlyHome,
    ThinHome,
    UnsupportedPlatform,
    UsageError,
    UserMissing,
)
from perdure.forget import Doomed
from perdure.formats.of_run import parse_run
from perdure.identity import check_user, project_of
from perdure.index import catchup, keyword, runs, visible
from perdure.index import store as indexes
from perdure.recall import plan as planning
from perdure.recall.indexed import Indexed
from perdure.recall.rank import to_embed
from perdure.recall.recall import by_rank, recall
from perdure.recall.scope import scope
from perdure.text import index_terms, one_line, query_terms
from perdure.types import (
    Columns,
    Facets,
    Filters,
    Found,
    Grant,
    GrantScope,
    Hit,
    Identity,
    Live,
    Memory,
    MemoryKind,
    Node,
    Origin,
    Parsed,
    Plan,
    Principal,
    Recalled,
    Run,
    RunView,
    Source,
    Span,
)

# Loaded where they are used, because a hook and a recall by words need none of them: numpy and the models (0.2 s), and
# what only care needs (verify, backup, rebuild, digest, raw: 10 ms).
if TYPE_CHECKING:
    from perdure.authority.machines import Machines
    from perdure.context import Context
    from perdure.floor.diary import Paged
    from perdure.floor.floor import Floor
    from perdure.floor.layers import Layers, Suspect
    from perdure.floor.noting import Noted
    from perdure.floor.recent import Updated
    from perdure.index.embed import Filled
    from perdure.index.exchanges import Asked as AskedTurn
    from perdure.index.exchanges import Exchange, Quoted
    from perdure.index.growth import Brought, Growth
    from perdure.index.injections import Injections
    from perdure.index.rebuild import Rebuilt
    from perdure.index.talk import Talk
    from perdure.memories.consolidation import Proposal
    from perdure.mind.consolidate import Applied, Reword, Undone
    from perdure.mind.exchange import Exported, Taken, Terms
    from perdure.mind.memories import Memories
    from perdure.mind.mine import Mined, Wish
    from perdure.mind.shared import Shared
    from perdure.mind.stated import Stated
    from perdure.mind.use import Judged
    from perdure.models.chat import Chat
    from perdure.models.embedder import Embedder
    from perdure.models.roles import Roles
    from perdure.models.vectors import Vectors as Rows
    from perdure.vectors import Asked, Status, Vectors
    from perdure.verify import Verified

_SEARCH_CATCH_UP_S = 1.0  # a search brings the index up to date for so long, then answers and says what is missing
_PROBE = "perdure health probe"
_UNERASED = "unfinished-erasure"  # in the ledger, while a user is being erased; it names nobody
_UNSETTLED = "unsettled-merge"  # in the ledger, while what a merge brought may hold what was forgotten here
HELPER = "helper"  # the role, and what a recall that had to do without its model says
HELPER_S = 1.0  # so long may a helper model plan a recall, unless told otherwise

_RELATED = 24  # memories that the miner's choice of the related ones begins with
_INGEST_S = 0.5  # so long does a capture or a search embed what is new, where there are vectors already
MODES = ("hybrid", "keyword", "semantic")

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Transcript:
    """A captured run with what its bytes say."""

    run: Run
    parsed: Parsed
    abandoned: frozenset[int]  # offsets of turns on branches that the session left


@dataclass(frozen=True)
class Merged:
    """What came in from another home."""

    n_runs: int
    n_events: int
    n_forgotten: int  # runs here that the other home's tombstones changed
    damaged: tuple[str, ...] = ()  # what could not be taken: its bytes there are not those that were captured
    left_out: tuple[str, ...] = ()  # users of the other home who were not asked for
    n_without_effect: int = 0  # of the events: machines and grants, which count only in the home that made them


class Home:
    """One home, opened for one principal. Use it from one thread, and close it."""

    def __init__(
        self,
        path: Path,
        config: settings.Config,
        principal: Principal,
        *,
        writable: bool,
        embedder: Embedder | None = None,
        chats: Mapping[str, Chat] | None = None,
    ) -> None:
        """Use `perdure.open()`, which checks the place first."""
        self.path = path
        self.config = config
        self.user = principal.user
        self.writable = writable
        self.archive = Archive(path, parse=lambda run, lines: parse_run(run, lines).turns, writable=writable)
        self._index: indexes.Connection | None = None
        self._embedder = embedder
        self._vectors: Vectors | None = None
        self._watches: dict[str, forgetting.Watch] = {}  # by user
        self._chats = chats
        self._roles: Roles | None = None
        self._floor: Floor | None = None
        self._authority: watching.Watch | None = None
        self._is_elsewhere = False  # used from another machine: the folders that are named are not of this disk
        if writable:
            self._finish_forgetting()
            self._drop_stale_index()

    def __enter__(self) -> Home:
        """Nothing is acquired that `open` did not."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close."""
        self.close()

    def beside(self, *, read_only: bool = False, identity: Identity | None = None) -> Home:
        """This home once more, for another thread: the models are shared, and this one is closed last.

        identity: whose it is used as, and from which machine; as this one unless given.
        """
        config = replace(self.config, machine=identity.machine) if identity else self.config
        principal = Principal(check_user(identity.user)) if identity else Principal(self.user)
        if (config.machine, principal.user) != (self.config.machine, self.user):
            config = replace(config, floor=replace(config.floor, place=""))  # it says where this machine stands
        other = Home(self.path, config, principal, writable=self.writable and not read_only)
        other._is_elsewhere = self._is_elsewhere or identity is not None
        other._vectors = self._made_vectors(writable=other.writable, beside=self.vectors())
        other._chats, other._roles = self._chats, self.roles()
        other._authority = self.authority()
        return other

    def close(self) -> None:
        """Release every file. Nothing is lost by not calling it."""
        if self._vectors is not None:
            self._vectors.close()
            self._vectors = None
        if self._index is not None:
            self._index.close()
            self._index = None
        self.archive.close()

    @property
    def principal(self) -> Principal:
        """Whose home this is being used as, with what others let them read at this moment."""
        return Principal(self.user, granted(self.path, self.authority, self.user, _now()))

    def users(self) -> list[str]:
        """Everybody of whom this home holds anything: runs, or a journal. By name."""
        return sorted({*self.archive.ledger.users(), *self._users_with_journal()})

    def check_is_here(self) -> None:
        """Raise UserMissing where this home holds nothing of the principal's, and nobody is half erased."""
        if self.user not in self.users() and not self.archive.ledger.meta(_UNERASED):
            raise UserMissing(self.user)

    def project(self, cwd: str | None) -> str | None:
        """The project of a folder; where another machine asks, what it sent: that names no folder of this disk."""
        if self._is_elsewhere:
            return cwd if cwd and "\0" not in cwd else None
        return project_of(cwd)

    # capture ----------------------------------------------------------------------------------------------

    def capture(  # noqa: PLR0913 - what a caller may know of a session; all but three have defaults
        self,
        data: bytes,
        *,
        runtime: str,
        session: str,
        from_offset: int = 0,
        conversation: str | None = None,
        parent_session: str | None = None,
        parent_run_id: str | None = None,
        cwd: str | None = None,
        path: str | None = None,
        tags: Sequence[str] = (),
        generation: int | None = None,
    ) -> Answer:
        """Keep bytes of a session; what the answer calls stored is durable. Owner and machine are the home's own.

        data: complete lines (an unfinished last one is left for the next call). from_offset: their place in the
        session's stream. An answer of "accepted" asks for the bytes from its `to_offset`, "diverged" for
        `generation=answer.generation + 1`, "gap" for the bytes from its `to_offset`.
        """
        origin = intake.clean(Origin(runtime, session, conversation or session, parent_session, cwd))
        rules = self._rules(tags=tuple(tags))
        post.check(self._capture_rules(), msgspec.to_builtins(origin))
        delta = replace(
            rules.delta(origin, data, path=path, from_offset=from_offset),
            generation=generation, parent_run_id=parent_run_id,
        )  # fmt: skip
        (answer,) = self.archive.store([delta], now=_now(), tombstones=self._tombstones())
        self._follow()
        return answer

    def receive(self, deltas: Sequence[Delta]) -> list[Answer]:
        """Keep what other machines captured, durably and together; owner and machine are the deltas' own.

        Each answer is one as `capture` gives it.
        """
        return self.archive.store(deltas, now=_now(), tombstones=self._tombstones())

    def receive_emitted(self, delta: Delta) -> Answer:
        """The same of lines that an adapter made of a source which is not append-only: those that the archive lacks are
        put behind what it has.
        """
        rules = replace(self._rules(tags=delta.tags), user=delta.user, sender=delta)
        lines = delta.data.removesuffix(b"\n").split(b"\n")
        return intake.capture_lines(
            self.archive, rules, delta.origin, lines, path=delta.path, tombstones=self._tombstones(), now=_now()
        )

    def received_refusal(self, origin: Origin) -> str | None:
        """Why nothing of another machine's session may be kept here, or None. The folders that are excluded here are
        folders of this machine.
        """
        return post.refusal(self._capture_rules()._replace(exclude=()), msgspec.to_builtins(intake.clean(origin)))

    def capture_messages(
        self,
        messages: Iterable[Mapping[str, Any]],
        *,
        session: str,
        cwd: str | None = None,
        now: datetime | None = None,
    ) -> Answer:
        """Keep what was said in a session since the last call, as messages of Anthropic's or OpenAI's format.

        Give the person's own words, without what was put beside them. now: when they were said, where they do not say
        so themselves. Two writers of one session wait for each other.
        """
        at = (now or _now()).isoformat()
        lines = [msgspec.json.encode({"timestamp": at, **message}) + b"\n" for message in messages]
        with files.locked(self.path / ".messages.lock"):
            generation = self.archive.ledger.generation(self.user, "messages", session)
            end = self.archive.ledger.end(Source(self.user, "messages", session, generation))
            return self.capture(b"".join(lines), runtime="messages", session=session, from_offset=end, cwd=cwd)

    def _capture_rules(self) -> capturing.Rules:
        """The rules by which a hook captures, for this home's user; no folder is excluded on another machine."""
        rules = capturing.of(self.path, self.config, user=self.user, user_home=settings.user_home())
        return rules._replace(exclude=()) if self._is_elsewhere else rules

    def refusal(self, origin: Origin) -> str | None:
        """Why nothing of a session may be kept (it is incognito, or its project is excluded), or None."""
        return post.refusal(self._capture_rules(), msgspec.to_builtins(intake.clean(origin)))

    def post(self, origin: Origin, data: bytes, *, from_offset: int, path: str | None, tags: Sequence[str] = ()) -> int:
        """Put a live capture into the outbox: acknowledged when this returns, archived by the next process.

        Returns how many bytes were taken: an unfinished last line is not, and belongs to the next call.
        """
        fields = msgspec.to_builtins(origin)
        return post.post(self._capture_rules(), fields, data, from_offset=from_offset, path=path, tags=tags)

    def post_file(
        self, origin: Origin, path: Path, *, from_offset: int | None = None, tags: Sequence[str] = ()
    ) -> tuple[int, int]:
        """Post the complete lines that a transcript gained since its last capture; returns (offset, bytes posted)."""
        fields = msgspec.to_builtins(origin)
        return post.post_file(self._capture_rules(), fields, path, from_offset=from_offset, tags=tags)

    def post_lines(self, origin: Origin, lines: Sequence[bytes], *, path: str) -> int:
        """Post the lines of a session that were not posted yet, as its adapter made them; returns how many."""
        return post.post_lines(self._capture_rules(), msgspec.to_builtins(origin), lines, path=path)

    def drain(self, *, limit_s: float | None = None) -> int:
        """Move what waits in the outbox into the archive, for so long; returns how many deltas are settled."""
        if not any((self.path / "outbox").glob("*.delta")):
            return 0
        n_done, ends_s = 0, time.monotonic() + limit_s if limit_s is not None else None
        with files.locked(self.path / "outbox" / ".lock"):
            for item in outbox.waiting(self.path / "outbox"):
                if ends_s is not None and time.monotonic() > ends_s:
                    break
                try:
                    self._settle(item)
                except Exception as error:
                    if _is_of_the_home(error):
                        raise
                    log.note(self.path, "set-aside", code=getattr(error, "code", type(error).__name__))
                    outbox.set_aside(item.path)  # no delta of ours, or damaged: it holds up no other
                    continue
                item.path.unlink(missing_ok=True)
                n_done += 1
        return n_done

    def _settle(self, item: outbox.Waiting) -> None:
        """Archive one delta of the outbox.

        Bytes that do not join what the archive holds (their transcript was rewritten, or the archive is an older
        one that was restored) bring in the whole transcript again; where that is gone, they become a source of
        their own. What was acknowledged is kept in any case.
        """
        origin = msgspec.convert(item.head["origin"], Origin)
        if item.head["from_offset"] is None:
            self._take_lines(item, origin)
            return
        delta = Delta(
            origin=origin, user=item.head["user"], machine=item.head["machine"], agent=self.config.agent,
            data=item.data, from_offset=item.head["from_offset"], project=project_of(origin.cwd),
            path=item.head["path"], tags=tuple(item.head["tags"]),
        )  # fmt: skip
        if self._stored(delta):
            return
        if delta.path and Path(delta.path).is_file():
            rules = replace(self._rules(tags=delta.tags), user=delta.user)
            tombstones = self._tombstones()
            intake.capture_file(self.archive, rules, origin, Path(delta.path), tombstones=tombstones, now=_now())
            if self._stored(delta):
                return
        name = f"{origin.session}~{hashlib.sha256(delta.data).hexdigest()[:12]}"
        self._stored(replace(delta, origin=replace(origin, session=name), from_offset=0))

    def _take_lines(self, item: outbox.Waiting, origin: Origin) -> None:
        """Archive lines that an adapter emitted, where the archive lacks them."""
        rules = replace(self._rules(tags=tuple(item.head["tags"])), user=item.head["user"])
        lines = item.data.removesuffix(b"\n").split(b"\n")
        intake.capture_lines(
            self.archive, rules, origin, lines, path=item.head["path"], tombstones=self._tombstones(), now=_now()
        )

    def _stored(self, delta: Delta) -> bool:
        tombstones = self._tombstones()
        (answer,) = self.archive.store([delta], now=_now(), tombstones=tombstones)
        settled = intake.settle(self.archive, delta, answer, tombstones=tombstones, now=_now())
        return settled[-1].outcome in ("stored", "already")

    def import_files(
        self,
        paths: Iterable[Path] | None = None,
        *,
        tags: Sequence[str] = (),
        runtime: str | None = None,
        index: bool = True,
        progress: Progress | None = None,
    ) -> intake.Imported:
        """Capture transcripts: these files and folders, or every supported agent's own places.

        index: bring the index up to date as well; without it, the next search or `catch_up` does.
        """
        if privacy.paused(self.path, _now()):
            raise UsageError("capture is paused (`perdure resume` ends that); nothing was copied")
        self.drain()
        rules = self._rules(tags=tuple(tags), forced=runtime)
        done = intake.import_files(
            self.archive, rules, self.sources(paths), tombstones=self._tombstones(), now=_now(), progress=progress
        )
        if index and done.n_runs:
            with contextlib.suppress(IndexFault):  # what is captured is kept; `search` says what is wrong
                self.catch_up()
                self._embed_new(self.index())
        return done

    def sources(self, paths: Iterable[Path] | None = None) -> list[Path]:
        """The files that an import would look at: never those of the home itself."""
        if paths is None:
            return [path for _, path in places.find(settings.user_home(), settings.environment)]
        own = self.path.resolve()
        found = [below for path in paths for below in places.below(path)]
        return [path for path in found if not path.resolve().is_relative_to(own)]

    def _rules(self, *, tags: tuple[str, ...] = (), forced: str | None = None) -> intake.Rules:
        return intake.Rules(self.path, self.config, self.user, settings.user_home(), tags, forced)

    # index ------------------------------------------------------------------------------------------------

    def index(self, *, create: bool = False) -> indexes.Connection:
        """The index in use now; another process may have swapped it since the last call."""
        if self._index is not None and not self._index.is_current(self.path):
            self._index.close()
            self._index = None
        if self._index is None:
            self._index = indexes.open_current(self.path, writable=self.writable, create=create and self.writable)
        return self._index

    def catch_up(
        self,
        *,
        limit_s: float | None = None,
        progress: Progress | None = None,
        note: Callable[[catchup.Projected], None] | None = None,
        everyone: bool = False,
    ) -> catchup.CaughtUp:
        """Bring the index up to date with the archive, making it if there is none, and keep what people state in what
        is new. note gets each run. everyone: follow the journals of all users, not only the principal's.
        """
        started_s, index = time.monotonic(), self.index(create=True)
        user = None if everyone else self.user
        done = catchup.catch_up(index, self.archive, limit_s=limit_s, progress=progress, note=note, user=user)
        if self._may_have_stated():
            left_s = None if limit_s is None else max(0.0, limit_s - (time.monotonic() - started_s))
            with contextlib.suppress(Busy):  # what another process is at, it finishes
                done.n_memories += self.keep_stated(limit_s=left_s).n_new
        return done

    def _may_have_stated(self) -> bool:
        """Whether something was captured at which the rules of statements have not looked; asked before they load."""
        if not (self.writable and self.config.memories.stated):
            return False
        looked_at = int(self.archive.ledger.meta(f"stated:{self.user}") or 0)
        return self.archive.ledger.last_change() > looked_at

    def embed_new(self, user: str = "") -> None:
        """Where a user (the principal unless named) has vectors, embed what just came in, for a moment; whatever fails
        is left to the next time.
        """
        index = self.index()
        if self._may_have_vectors() and self.vectors().has_new(index, user or self.user):
            self._embed_new(index, user)

    def _follow(self) -> None:
        """Catch up after a capture; whatever is wrong with the index does not concern the capture. What is stated is
        kept by whoever looks next: the rules take a tenth of a second to load, and a capture does not wait for them.
        """
        try:
            if self.writable and (indexes.current(self.path) or self.archive.ledger.last_change() <= 1):
                catchup.catch_up(self.index(create=True), self.archive, limit_s=_SEARCH_CATCH_UP_S)
                self._embed_new(self.index())
        except (IndexFault, PerdureError):
            return

    def rebuild(self, *, progress: Progress | None = None) -> Rebuilt:
        """Make a new index beside the old one, with its vectors, prove that it answers the same, and swap."""
        from perdure.index.rebuild import rebuild

        self.drain()
        carry = self.vectors().carry if self._may_have_vectors() else None
        result = rebuild(self.path, self.archive, carry=carry, progress=progress)
        self.index()
        if carry is not None:
            self.vectors().sweep()
        return result

    def digest(self) -> str:
        """The digest of everything the index says; equal in homes that hold the same."""
        from perdure.index.digest import digest

        self.catch_up()
        catchup.follow_journals(self.index(), self.archive)
        return digest(self.index())

    # vectors ----------------------------------------------------------------------------------------------

    def vectors(self) -> Vectors:
        """The vectors of this home."""
        if self._vectors is None:
            self._vectors = self._made_vectors(writable=self.writable)
        return self._vectors

    def _made_vectors(self, *, writable: bool, beside: Vectors | None = None) -> Vectors:
        from perdure.vectors import Vectors

        embedder = self.config.models.embedder
        return Vectors(self.path, embedder, writable=writable, embedder=self._embedder, beside=beside)

    def embed(
        self, *, most: int | None = None, limit_s: float | None = None, progress: Progress | None = None
    ) -> Filled:
        """Give what was captured its vectors, at most so many or for so long; what is left goes on next time.

        progress gets (chunks done, all). Raises NotFound without an embedder, Busy while another process is at it,
        ModelFault when the model fails: then what was done until there stays.
        """
        self.drain()
        self.catch_up()
        return self.vectors().fill(self.index(), self.user, most=most, limit_s=limit_s, progress=progress)

    def vector_status(self) -> Status:
        """How far the vectors have come, and what is waiting."""
        return self.vectors().status(self.index(), self.user)

    def _may_have_vectors(self) -> bool:
        """Whether vectors were ever made here; asked before anything heavy is loaded."""
        return (self.path / "vectors").exists() or (self.path / "cache" / "embeddings.db").exists()

    def _embed_new(self, index: indexes.Connection, user: str = "") -> None:
        """Where there are vectors, embed what just came in; whatever fails is left to the next time."""
        if not self._may_have_vectors():
            return
        try:
            if self.vectors().has_any(index, user or self.user):
                self.vectors().fill(index, user or self.user, limit_s=_INGEST_S, fresh_only=True)
        except (Busy, ModelFault, NotFound):
            return

    # models -----------------------------------------------------------------------------------------------

    def chat(self, role: str, *, job: str) -> Chat | None:
        """The model that the settings give a role, for one job; None where none is set, and rules do its work.

        role: resident, miner, helper or summariser. job: whose calls these are; its caps and the meter go by this name.
        Secrets are masked in all that is sent. Raises ConfigFault for settings that cannot be meant.
        """
        return self.roles().chat(role, job=job)

    def roles(self) -> Roles:
        """The models of this home, and the meter of what they cost."""
        if self._roles is None:
            from perdure.access.redact import mask
            from perdure.models.roles import Roles

            self._roles = Roles(self.path, self.config.models, mask=mask, chats=self._chats)
        return self._roles

    # reading ----------------------------------------------------------------------------------------------

    def search(
        self,
        query: str,
        *,
        filters: Filters | None = None,
        limit: int = 20,
        mode: str | None = None,
        scan: bool = False,
    ) -> Found:
        """The turns that match, best first. Without a usable index the archive itself is scanned, and that is said.

        mode: hybrid (words and meaning), keyword or semantic; hybrid where there are vectors, unless named. An answer
        that had to do without vectors has all that the words find, and "vector" in `degraded`.
        """
        if limit < 1:
            raise UsageError("the limit must be at least 1")
        if mode is not None and mode not in MODES:
            raise UsageError(f"mode {mode!r} (known: {', '.join(MODES)})")
        chosen = filters or Filters()
        try:
            if scan:
                raise IndexFault("asked for a scan")
            index = self._index_for_search()
            n_behind = self._catch_up_for_search(index)
            found = self._search(index, query, chosen, limit, mode)
            return replace(found, n_behind=n_behind)
        except IndexFault:
            from perdure import raw

            return raw.search(self.archive, self.principal, query, filters=chosen, limit=limit)

    def facets(self, query: str, *, filters: Filters | None = None) -> Facets:
        """How many of the turns that match have which runtime, machine, project, tag, agent, role and kind."""
        return keyword.facets(self.index(), self.principal, query, filters=filters or Filters())

    def _search(self, index: indexes.Connection, query: str, filters: Filters, limit: int, mode: str | None) -> Found:
        asked, failed = self._asked(index, [query], mode)
        vectors = _answered(asked)
        if asked is not None and vectors is not None and vectors.any():
            from perdure.index import hybrid

            seen, words = hybrid.Asked(asked.space, vectors), mode != "semantic"
            found = hybrid.search(index, self.principal, query, seen, filters=filters, limit=limit, words=words)
            timings, depth = _waited(asked)
            return replace(found, timings_ms=timings, depth=depth)
        found = keyword.search(index, self.principal, query, filters=filters, limit=limit)
        return replace(found, degraded=("vector",)) if failed or asked is not None else found

    def _asked(self, index: indexes.Connection, texts: Sequence[str], mode: str | None) -> tuple[Asked | None, bool]:
        """(the texts on their way to become vectors, whether they were wanted and cannot be had)."""
        if mode == "keyword" or not any(map(str.strip, texts)):
            return None, False
        if mode is None and not (self._may_have_vectors() and self._has_vectors(index)):
            return None, False
        asked = self.vectors().ask(index, self.user, texts, others=self._sharing())
        return asked, asked is None

    def _has_vectors(self, index: indexes.Connection) -> bool:
        """Whether there are vectors of the principal, or of anybody who shares something with them."""
        return any(self.vectors().has_any(index, user) for user in (self.user, *self._sharing()))

    def _sharing(self) -> list[str]:
        """The owners who let the principal read anything."""
        return sorted({grant.owner for grant in visible.in_force(self.principal, _now())})

    def _index_for_search(self) -> indexes.Connection:
        """The index. Where there is none, what waits is archived first, and a home that held nothing gets its first."""
        try:
            return self.index()
        except IndexMissing:
            held_any = self.archive.ledger.counts()[0] > 0
            with contextlib.suppress(DiskFull, ReadOnlyHome, Busy):  # what is archived is scanned all the same
                if self.writable and self.drain() and not held_any:
                    return self.index(create=True)
            raise

    def _catch_up_for_search(self, index: indexes.Connection) -> int:
        """Bring the index up to date if that can be; returns how many of the principal's runs it lacks."""
        if self.writable:
            with contextlib.suppress(DiskFull, ReadOnlyHome, Busy):  # what is there is searched all the same
                self.drain()
                done = self.catch_up(limit_s=_SEARCH_CATCH_UP_S)
                if done.n_runs or done.n_memories:
                    self._embed_new(index)
                if not done.n_behind:
                    return 0
        return catchup.behind(index, self.archive, self.user)

    # recall -----------------------------------------------------------------------------------------------

    def recall(  # noqa: PLR0913 - what may be known of a message; all but itself have defaults
        self,
        message: str,
        *,
        now: datetime | None = None,
        cwd: str | None = None,
        all_projects: bool = False,
        session: Live | None = None,
        already: Collection[str] = (),
        mode: str | None = None,
        explain: bool = False,
        as_of: datetime | None = None,
        helper_s: float = HELPER_S,
    ) -> Recalled:
        """The few turns and memories that matter for a message, or silence. Writes no event: what was found is not used
        by that.

        now: what "yesterday" is counted from. cwd: recall only from its project and from what has none. session: one
        that is going on, whose own turns need not be said again. already: turns it has been told before. mode:
        "keyword" to use no model. explain: fill `passed_over`. as_of: answer by what had been stated until then,
        as if nothing was said since. helper_s: so long may the helper model plan, where one is set. What could not be
        done is named in `degraded`.
        """
        if mode not in (None, "keyword", "hybrid"):
            raise UsageError(f"mode {mode!r} (known: hybrid, keyword)")
        wanted = planning.plan(message, now=now or datetime.now().astimezone())
        wanted, failed = self._helped(wanted, 0.0 if mode == "keyword" else helper_s)
        try:
            found = self._recalled(wanted, cwd, all_projects, session, already, mode, explain, as_of)
        except (IndexFault, Busy) as error:
            return Recalled((), wanted, silent=f"recall failed: {error}", degraded=("index",))
        return replace(found, degraded=(*found.degraded, HELPER)) if failed else found

    def _helped(self, wanted: Plan, helper_s: float) -> tuple[Plan, bool]:
        """(the plan, by the helper model where there is one and there is time for it; whether it failed)."""
        if not self.config.models.roles.helper.provider and HELPER not in (self._chats or {}):
            return wanted, False
        if not wanted.queries or helper_s <= 0:
            return wanted, False
        from perdure.mind.planning import helped

        try:
            chat = self.chat(HELPER, job="recall")
        except ConfigFault:
            return wanted, True
        return helped(wanted, chat, timeout_s=helper_s) if chat else (wanted, False)

    def _recalled(
        self, wanted: Plan, cwd: str | None, all_projects: bool, session: Live | None, already: Collection[str],
        mode: str | None, explain: bool, as_of: datetime | None,
    ) -> Recalled:  # fmt: skip
        index = self.index()
        n_behind = self._catch_up_for_search(index)
        asked, failed = self._asked(index, to_embed(wanted), mode)
        filters = scope(
            wanted.message, here=self.project(cwd), projects=runs.names(index, self.principal, "project"),
            everywhere=all_projects, held=(session,) if session else (),
        )  # fmt: skip
        filters = replace(filters, until_at=as_of)
        with index.reading(), asked.lanes.holding() if asked else contextlib.nullcontext():
            found = recall(
                Indexed(index, self.principal, filters, asked.space if asked else None, as_of), wanted,
                vectors=lambda: _answered(asked), model=asked.tag.name if asked else "",
                already=already, explain=explain, suspicious=self.floor.suspicious,
            )  # fmt: skip
            found = by_rank(found) if visible.of(index, self.principal).owners else found
        return _with_asked(found, asked, (("vector",) if failed else ()) + (("behind",) if n_behind else ()))

    def run(self, run_id: str) -> RunView:
        """A run with everything derived about it. Raises NotFound for what is not the principal's."""
        return runs.run(self.index(), self.principal, run_id)

    def behind(self, span: Span) -> tuple[RunView, str | None]:
        """(the run of a stretch, the id of the first turn there or None for one that is gone). Raises NotFound."""
        from perdure.index import memories

        return self.run(span.run_id), memories.turn_in(self.index(), span)

    def columns(self, run_id: str) -> Columns:
        """The six columns of a run."""
        return runs.columns(self.index(), self.principal, run_id)

    def projects(self, *, is_own: bool = False) -> list[str]:
        """The projects of which the principal may read anything, by their paths, "" for what has none.

        is_own: those of their own runs alone, for what is to be made of them.
        """
        if is_own:
            return runs.names(self.index(create=True), Principal(self.user), "project")
        return self.names("project")

    def names(self, kind: Literal["project", "tag", "runtime", "machine", "agent"]) -> list[str]:
        """The names of a kind that stand on anything that the principal may read."""
        return runs.names(self.index(create=True), self.principal, kind)

    def said_by_month(self) -> dict[str, int]:
        """How many messages of a person there are of each month (yyyy-mm, in UTC)."""
        return runs.said_by_month(self.index(), self.principal)

    def growth(self) -> Growth:
        """How much of the principal's own there is by month and by week."""
        from perdure.index import growth

        index, own = self.index(create=True), Principal(self.user)
        with index.reading():
            return growth.Growth(growth.by_month(index, own), growth.memories_by_week(index, own))

    def brought(self) -> dict[str, Brought]:
        """What each machine captured of the principal's own, by its name."""
        from perdure.index import growth

        return growth.by_machine(self.index(create=True), Principal(self.user))

    def descendants(self, run_id: str) -> list[RunView]:
        """The runs below a run."""
        return runs.descendants(self.index(), self.principal, run_id)

    def forest(
        self, filters: Filters | None = None, *, root: str | None = None, limit: int = 500, offset: int = 0
    ) -> list[Node]:
        """The trees of the newest so many runs, whole, newest first, behind so many newer trees.

        filters: agents, projects, runtimes, machines, tags, and since when a run was active.
        """
        return runs.forest(self.index(), self.principal, filters or Filters(), root=root, limit=limit, offset=offset)

    def resolve(self, prefix: str) -> tuple[str, str]:
        """("turn" | "run" | "conversation" | "memory", full id) for the beginning of an id. Raises NotFound."""
        if prefix.startswith("mem-"):
            return "memory", self.holding(prefix).get(prefix).memory_id
        return runs.resolve(self.index(), self.principal, prefix)

    def transcript(self, run_id: str) -> Transcript:
        """A captured run and its turns, read from the archive; masked where it is another's. Raises NotFound."""
        held = self._readable(run_id)
        run, lines = self.archive.load(held)
        parsed = parse_run(run, lines)
        if held.user != self.user:
            from perdure.access import masked

            run, parsed = masked.run(run), masked.parsed(parsed)
        try:
            abandoned = frozenset(runs.abandoned_turns(self.index(), run_id))
        except IndexFault:
            abandoned = frozenset()
        return Transcript(run, parsed, abandoned)

    def jsonl(self, run_id: str) -> bytes:
        """The bytes of a captured run: to its owner as they were captured (what was forgotten is gone), to others with
        every secret masked. Raises NotFound.
        """
        held = self._readable(run_id)
        raw = self.archive.read(held)
        if held.user == self.user:
            return raw
        from perdure.access import masked

        return masked.lines(raw)

    def lines_of(self, run_id: str, offsets: Collection[int]) -> list[bytes]:
        """The lines of a captured run that begin at these offsets of its source, as `jsonl` has them."""
        held = self._readable(run_id)
        raw = [line.raw for line in self.archive.lines(held) if line.offset in offsets]
        if held.user == self.user:
            return raw
        from perdure.access import masked

        return [masked.lines(line) for line in raw]

    def _readable(self, run_id: str) -> Held:
        """A captured run of the principal's, or of one who lets them read it."""
        held = self.archive.held(run_id)
        if held.user != self.user:
            if not self._sharing():
                raise NotFound(run_id)
            try:
                runs.run(self.index(), self.principal, run_id)
            except IndexFault as error:  # nothing says that it may be read
                raise NotFound(run_id) from error
        return held

    def preview(self, turn_id: str) -> str:
        """The beginning of a turn (or a memory) on one line, masked. Raises NotFound."""
        if turn_id.startswith("mem-"):
            return one_line(self.holding(turn_id).get(turn_id).text, 100)
        run_id, offset = self.locate(turn_id)
        (found,) = forgetting.single_turns(self.archive, self._readable(run_id), {offset})
        return found.preview

    def _held(self, run_id: str) -> Held:
        held = self.archive.held(run_id)
        if held.user != self.user:
            raise NotFound(run_id)
        return held

    def conversation(self, conversation: str) -> list[RunView]:
        """The captured runs of a conversation in the order in which they were said."""
        return runs.runs_of_conversation(self.index(), self.principal, conversation)

    def openings(self, run_ids: Iterable[str]) -> dict[str, RunView]:
        """The run with which the conversation of each of these runs begins."""
        return runs.openings(self.index(), self.principal, run_ids)

    def offsets(self, run_id: str) -> set[int]:
        """Offsets of the turns of a run (an inline sidechain, say) in the bytes that hold them. Raises NotFound."""
        self.run(run_id)
        return runs.turn_offsets(self.index(), self.principal, run_id)

    def locate(self, turn_id: str) -> tuple[str, int]:
        """(captured run, offset) of a turn."""
        run_id, offset, _ = runs.run_of_turn(self.index(), self.principal, turn_id)
        return run_id, offset

    def talk(self, name: str) -> Talk:
        """The line of talk in which a run or a turn stands: its turns, piece by piece. Raises NotFound."""
        from perdure.index.talk import Talk

        return Talk(self.index(), self.principal, name)

    # memories ---------------------------------------------------------------------------------------------

    @property
    def memories(self) -> Memories:
        """The memories of the principal, of nobody else."""
        from perdure.mind.memories import Memories

        return Memories(
            self.user, self.config.agent, self.journal(), index=self._with_memories, follow=self._follow_journals,
            forgotten=lambda: self._tombstones().get(self.user), now=_now, suspicious=self.floor.suspicious,
        )  # fmt: skip

    @property
    def shared(self) -> Shared:
        """The memories of others that the principal may read."""
        from perdure.mind.shared import Shared

        return Shared(self.principal, self.index)

    def holding(self, identifier: str) -> Memories | Shared:
        """Where the memory of an id is looked up: among the principal's own, or else among what others share."""
        try:
            self.memories.get(identifier)
        except MemoryMissing:
            self.shared.get(identifier)
            return self.shared
        return self.memories

    def _with_memories(self) -> indexes.Connection:
        """The index, with everything that the journals say of memories."""
        index = self.index(create=True)
        if self.writable:
            catchup.follow_journals(index, self.archive, self.user)
        return index

    def _follow_journals(self) -> None:
        catchup.follow_journals(self.index(create=True), self.archive, self.user)

    def remember(
        self,
        text: str,
        *,
        kind: MemoryKind = "fact",
        path: str = "",
        cwd: str | None = None,
        session: Live | None = None,
        **more: Any,
    ) -> Memory:
        """Keep a memory, durably; one that says what is current already is reinforced.

        cwd: it belongs to the project there; to none without. session: the one in which it is said, which need not be
        told it. more: the other fields of `perdure.mind.memories.Draft` (trust, stated_at, pinned, entities, …).
        """
        from perdure.memories.paths import checked_project
        from perdure.mind.memories import Draft

        held = session.conversation if session else ""
        draft = Draft(text, kind, path, checked_project(self.project(cwd)), conversation=held, **more)
        kept = self.memories.keep(draft, by="agent" if draft.trust == "agent" else "owner")
        with contextlib.suppress(IndexFault, PerdureError):
            self._embed_new(self.index())
        return kept.memory

    def mine(
        self,
        wish: Wish | None = None,
        *,
        stop: Callable[[], bool] | None = None,
        progress: Progress | None = None,
    ) -> Mined | None:
        """Make memories of what people and agents said and no pass has mined yet; None where no model is set for it.

        Ten messages are one question to the model of the role `miner`. What ends a pass early is said in the answer,
        and everything until then stays. progress gets (batches done, all).
        """
        from perdure.mind.mine import JOB, Miner, Wish

        wanted = wish or Wish()
        chat = None if wanted.dry else self.chat("miner", job=JOB)
        if chat is None and not wanted.dry:
            return None
        if self.writable:
            self.drain()
            self.catch_up()
        mining = self.config.mining
        miner = Miner(
            self.path, self.archive, self.memories, chat, self._related, self.refusal,
            timedelta(minutes=mining.idle_min), mining.question_tokens, _now,
        )  # fmt: skip
        done = miner.mine(wanted, stop=stop or (lambda: False), progress=progress)
        done.money = self.roles().cost("miner", done.usage)
        if done.n_new:
            with contextlib.suppress(IndexFault, PerdureError):
                self._embed_new(self.index())
        return done

    def _related(self, words: str, fits: Callable[[Memory], bool]) -> list[Memory]:
        """The memories nearest to some words, of those that fit, best first."""
        return [memory for memory, _ in self._memories_like(words, limit=_RELATED, fits=fits, is_own=True)]

    def insights(self, *, cwd: str | None = None, max_tokens: int = 600) -> list[Memory]:
        """The insights to have at hand: all that are sure enough (confidence 0.4), surest first, within the budget.

        cwd: those of its project and those of none; of all projects without it.
        """
        from perdure.mind import insights

        here = (self.project(cwd), None)
        every = [m for m in self.memories.listed(kind=insights.KIND) if cwd is None or m.project in here]
        return insights.at_hand(every, max_tokens=max_tokens)

    def proposals(self) -> list[Proposal]:
        """What could be tidied up among the memories. Changes nothing."""
        from perdure.mind import consolidate

        return consolidate.proposals(self.memories)

    def consolidate(self, ids: Sequence[str] | None = None, *, kind: str = "", reword: Reword | None = None) -> Applied:
        """Apply proposals, all when none is named; `undo` takes it back.

        kind: only those of this kind (chain, lift, merge, split, retire). reword: what words that which is made of
        several; the model of the role `summariser` unless given, if there is one, else rules.
        """
        from perdure.mind import consolidate, wording

        chat = self.chat("summariser", job="consolidate") if reword is None else None
        reword = wording.by(chat) if chat is not None else reword
        done = consolidate.apply(self.memories, ids, kind=kind, reword=reword)
        with contextlib.suppress(IndexFault, PerdureError):
            self._embed_new(self.index())
        return done

    def undo(self, event_id: str = "") -> Undone:
        """Take back a consolidation, the last one unless its event is named."""
        from perdure.mind import consolidate

        return consolidate.undo(self.memories, event_id)

    def judge_use(
        self, *, limit_s: float | None = None, now: datetime | None = None, stop: Callable[[], bool] | None = None
    ) -> Judged:
        """Note, of every injection whose answer is whole by now and that was not judged yet, what of it was used."""
        from perdure.mind.use import Judge

        self.drain()
        self.catch_up()
        found = Judge(self.user, self.journal(), self.index()).judge(now=now or _now(), limit_s=limit_s, stop=stop)
        if found.n_injections:
            self._follow_journals()
        return found

    def pieces(self, turn_ids: Sequence[str]) -> dict[str, list[Hit]]:
        """The first pieces, masked, of those of these turns that the principal may read: what a search sees of them."""
        return keyword.pieces(self.index(), self.principal, turn_ids)

    def asked(self, runtime: str, session: str, *, since_at: datetime, until_at: datetime) -> list[AskedTurn]:
        """What the principal asked in a session between two moments, in order."""
        from perdure.index import exchanges

        return exchanges.asked(self.index(), self.user, runtime, session, since_at=since_at, until_at=until_at)

    def exchange(self, runtime: str, session: str, at: datetime) -> Exchange | None:
        """What the principal asked in a session at a moment, and what was answered; None where nothing was."""
        from perdure.index import exchanges

        return exchanges.exchange(self.index(), self.user, runtime, session, at)

    def quoted(self, turn_id: str) -> Quoted | None:
        """One turn with who said it, when and where; None where there is none that the principal may read."""
        from perdure.index import exchanges

        return exchanges.quoted(self.index(), self.principal, turn_id)

    @property
    def injections(self) -> Injections:
        """What was put beside the principal's messages, and what of it was used."""
        from perdure.index.injections import Injections

        return Injections(self._with_memories(), self.user, self.journal().root)

    def search_memories(
        self, query: str, *, limit: int = 20, every: bool = False, touch: bool = False, mode: str | None = None
    ) -> list[tuple[Memory, float]]:
        """Memories that match by words and meaning, best first, with their scores. Retired ones are never found.

        every: superseded ones too. touch: note that those found were used; without it nothing is written. mode:
        "keyword" to use no model.
        """
        if limit < 1:
            raise UsageError("the limit must be at least 1")
        found = self._memories_like(query, limit=limit, fits=lambda memory: every or memory.is_current, mode=mode)
        own = [memory.memory_id for memory, _ in found if not memory.shared_by]
        if touch and own:
            self._note_used(own, by="search")
        return found

    def _memories_like(
        self, query: str, *, limit: int, fits: Callable[[Memory], bool], is_own: bool = False, mode: str | None = None
    ) -> list[tuple[Memory, float]]:
        """is_own: of the principal alone, for what is to be made of them."""
        from perdure.index import recollect

        index = self._with_memories()
        asked, _ = self._asked(index, [query], mode)
        vectors = _answered(asked)
        seen = None
        if asked is not None and vectors is not None and vectors.any():
            from perdure.index.hybrid import Asked as Seen

            seen = Seen(asked.space, vectors)
        principal = Principal(self.user) if is_own else self.principal
        return recollect.search(index, principal, query, seen, limit=limit, fits=fits)

    def export_memories(self, folder: Path, *, prefix: str = "", every: bool = False) -> Exported:
        """Write memories as Markdown into a folder, a file each. A file that holds anything else is left as it is.

        prefix: of the path. every: also what was superseded or retired.
        """
        from perdure.mind import exchange

        if folder.resolve().is_relative_to(self.path.resolve()):
            raise UsageError(f"{folder} lies in the home itself; name a folder outside of it")
        return exchange.export(self.memories, folder, prefix=prefix, every=every)

    def import_memories(self, paths: Iterable[Path], *, terms: Terms | None = None) -> Taken:
        """Take in Markdown: an export under its ids, instructions and notes statement by statement.

        terms: how far they are trusted, and which project they belong to; the owner's words, of their repository.
        """
        from perdure.mind import exchange

        taken = exchange.take(self.memories, paths, terms or exchange.Terms())
        with contextlib.suppress(IndexFault, PerdureError):
            self._embed_new(self.index())
        return taken

    def _note_used(self, ids: Sequence[str], *, by: str) -> None:
        """Note that memories were used outside any session."""
        from perdure.memories import events

        self.journal().append(events.USED, {"runtime": "", "session": "", "cues": list(ids), "by": by}, now=_now())
        self._follow_journals()

    def keep_stated(self, *, limit_s: float | None = None) -> Stated:
        """Keep what people plainly stated in what was captured since the last call: preferences, decisions, facts.

        By rules, without a model. Interrupted, the next call goes on; what was kept already is kept once.
        """
        from perdure.mind import stated

        if not (self.writable and self.config.memories.stated):
            return stated.Stated()
        done = stated.keep(self.memories, self.archive, limit_s=limit_s)
        self._note_stated()
        return done

    def _note_stated(self) -> None:
        """Bring notes.md up to what was stated; what keeps a page from being written is said by the floor."""
        if self.config.memories.stated and self.config.floor.note_stated:
            from perdure.floor.noting import note_stated

            try:
                note_stated(self.floor, self._with_memories(), self.user)
            except EditRefused as error:
                self.floor.alerts.append(str(error))

    # the floor and the context ----------------------------------------------------------------------------

    @property
    def floor(self) -> Floor:
        """The floor of this home's agent, of the principal."""
        if self._floor is None:
            from perdure.floor import pages
            from perdure.floor.floor import Floor
            from perdure.floor.state import Watch

            place = pages.folder_of(self.config.agent, self.user, self.config.user)
            watch = Watch(self.journal(), self._floor_kept(self.user), is_kept=self.writable)
            self._floor = Floor(
                self.config.agent, self.path / place, self.journal(), watch, writable=self.writable, now=_now
            )
        return self._floor

    def note(self, text: str, *, by: str = "owner", cwd: str | None = None, sources: Sequence[Span] = ()) -> Noted:
        """Put a note at the end of notes.md, in the place of what it corrects; one that says nothing new is not added.

        by: owner or agent. cwd: it is shown in the project there; everywhere without. sources: the turns behind it, so
        that it goes when one of them is forgotten. Raises EditRefused.
        """
        from perdure.floor.noting import note

        return note(self.floor, text, by=by, project=self.project(cwd), sources=sources)

    def layers(self, *, cwd: str | None = None, platform: str = "api", now: datetime | None = None) -> Layers:
        """C₀ as it stands, for a session that begins now: each layer within its budget, in their order.

        cwd: of its project; what belongs to another stays away. platform: where the session runs, for the variables of
        the system prompt. What looks like an injection is left out, and said in `alerts`.
        """
        from perdure.floor import layers

        self._hear()
        now, floor, project = now or datetime.now().astimezone(), self.floor, self.project(cwd)
        material = layers.Material(
            pages={name: floor.read(name) for name in layers.needed(layers.diary_day(now))},
            cards=[card for card in floor.cards() if card.project in (None, project)],
            insights=self._insight_texts(cwd),
            variables={
                "platform": platform, "agent": self.config.agent, "user": self.user, "machine": self.config.machine,
                "project": Path(project).name if project else "",
            },
            today=layers.diary_day(now), project=project, facts=self._facts(cwd),
        )  # fmt: skip
        return layers.assembled(material, self.config.floor, floor.suspicious)

    def held_back(self, *, cwd: str | None = None) -> list[Suspect]:
        """What reads like an order to a model and was not allowed: in the floor of a session there, or met by recall.

        `floor.allow(text, where=where)` lets one through.
        """
        from perdure.access import told
        from perdure.floor import held

        found = list(self.layers(cwd=cwd).suspects)
        with contextlib.suppress(IndexFault):
            found += held.suspects(self.index(), self.user, told.places(self.path, self.user), self.floor.suspicious)
        return found

    def here(self, *, cwd: str | None = None, now: datetime | None = None, lead: str = "Now") -> str:
        """The line that says what time it is and where one is."""
        from perdure.floor import layers

        facts, _ = layers.clean(self._facts(cwd), self.floor.suspicious)
        return layers.here(now or datetime.now().astimezone(), facts, lead=lead)

    def _facts(self, cwd: str | None) -> dict[str, str]:
        place = self.config.floor.place
        return {"machine": self.config.machine, "place": place, "project": self.project(cwd) or ""}

    def _hear(self) -> None:
        """Keep what was stated in the last captures, for a moment, if nobody has yet: the next session is to know."""
        with contextlib.suppress(IndexFault, DiskFull, ReadOnlyHome, Busy):
            if self.writable:
                self.drain()
                if self._may_have_stated():
                    self.catch_up(limit_s=_SEARCH_CATCH_UP_S)

    def update_recent(self, *, rebuild: bool = False, stop: Callable[[], bool] | None = None) -> Updated:
        """Bring recent.md up to what was said since the last time: by the model of the role `summariser`, one call,
        or by rules where there is none. With nothing new nobody is asked and nothing is written.

        rebuild: make it anew, from the memories and what was said last. What kept it as it was is said in the answer.
        """
        from perdure.floor.recent import JOB, Recent

        self.drain()
        recent = Recent(**self._writing(JOB, self.config.floor.recent_tokens), memories=self._by_weight)
        return recent.update(rebuild=rebuild, stop=stop or (lambda: False))

    def write_diary(self, day: date | None = None, *, stop: Callable[[], bool] | None = None) -> Paged:
        """Write the diary's page of a day, a letter to the next session, unless somebody wrote it; of the last day
        that is over and on which anything was said unless named. The day turns at 06:00.
        """
        from perdure.floor.diary import JOB, Diary

        self.drain()
        return Diary(**self._writing(JOB, self.config.floor.diary_tokens)).write(day, stop=stop or (lambda: False))

    def _writing(self, job: str, page_tokens: int) -> dict[str, Any]:
        """The fields of `floor.writing.Writing`, for a page of so many tokens.

        One that fills an answer to the brim would be cut off in it, and so may have three quarters of one.
        """
        from perdure.floor.heard import Ear
        from perdure.floor.questions import Limits

        most, floor = self.config.models.roles.summariser.max_output_tokens * 3 // 4, self.floor
        return {
            "home": self.path, "floor": floor, "now": _local_now,
            "ear": Ear(self.user, self.config.agent, self.archive, self.index, self.refusal, floor.suspicious),
            "chat": lambda: self.chat("summariser", job=job), "follow": lambda: self.catch_up().n_behind,
            "limits": Limits(page_tokens, most, self.config.floor.question_tokens),
        }  # fmt: skip

    def _by_weight(self) -> list[Memory]:
        """The agent's current memories: pinned ones first, then those last said or used, the most used before."""
        mine = [memory for memory in self.memories.listed() if memory.agent == self.config.agent]
        return sorted(mine, key=lambda m: (m.pinned, m.renewed_at or m.stated_at, m.n_used, m.memory_id), reverse=True)

    def _insight_texts(self, cwd: str | None) -> list[str]:
        """The insights at hand; none where there is no usable index: the floor does not depend on it."""
        try:
            found = self.insights(cwd=cwd, max_tokens=self.config.floor.insights_tokens)
        except (IndexFault, Busy):
            return []
        return [memory.text for memory in found]

    def context(
        self,
        message: str,
        *,
        window: Sequence[Mapping[str, Any]] = (),
        floor: Layers | None = None,
        cwd: str | None = None,
        platform: str = "api",
        session: Live | None = None,
        already: Collection[str] = (),
        now: datetime | None = None,
        mode: str | None = None,
    ) -> Context:
        """What any model is to read for a message: C₀, the session so far, the message, and what was recalled for it.

        window: the session's messages before this one, as the provider's format has them. floor: that of an earlier
        context of the same session, which stays as it was when that began. session, already: as in `recall`. The answer
        gives the messages of either wire format. It takes in what was captured and edited until now, and notes nothing
        of what it gives.
        """
        from perdure.access import fence
        from perdure.archive.journal import writer_id
        from perdure.context import Context

        now = now or datetime.now().astimezone()
        found = self.recall(message, now=now, cwd=cwd, session=session, already=already, mode=mode)
        return Context(
            floor=floor or self.layers(cwd=cwd, platform=platform, now=now), message=message, recalled=found,
            here=self.here(cwd=cwd, now=now), window=tuple(window),
            nonce=fence.derived_nonce(writer_id(self.path), message, now.isoformat()),
        )  # fmt: skip

    # forgetting -------------------------------------------------------------------------------------------

    def journal(self, user: str | None = None) -> Journal:
        """The journal of a user (the principal unless named)."""
        return Journal(self.path / "archive" / "journal" / (user or self.user), home=self.path)

    def _tombstones(self) -> dict[str, Tombstones]:
        for user in self._users_with_journal():
            self._watches.setdefault(user, forgetting.Watch(self.journal(user)))
        found = {user: watch.tombstones() for user, watch in self._watches.items()}
        return {user: tombstones for user, tombstones in found.items() if tombstones}

    def _users_with_journal(self) -> list[str]:
        return [path.name for path in (self.path / "archive" / "journal").glob("*") if path.is_dir()]

    def doomed(self, ids: Sequence[str], *, cascade: bool = True) -> list[Doomed]:
        """What forgetting these turns, runs or conversations would take away. Forgets nothing yet."""
        self._gather()
        found: dict[tuple[str, str], Doomed] = {}
        for identifier in ids:
            kind, name = self.resolve(identifier)
            for item in self._doomed_one(kind, name, cascade=cascade):
                found[item.run.run_id, item.turn_id] = item
        return list(found.values())

    def _doomed_one(self, kind: str, name: str, *, cascade: bool) -> list[Doomed]:
        if kind == "turn":
            run_id, offset = self.locate(name)
            return forgetting.single_turns(self.archive, self._held(run_id), {offset})
        if kind == "conversation":
            top = [view.run_id for view in self.conversation(name) if view.user == self.user]
            if not top:  # what others share is theirs to forget
                raise NotFound(name)
        else:
            top = [name, *(view.run_id for view in self.descendants(name))] if cascade else [name]
        captured = {self._captured_in(run_id) for run_id in top}
        whole = [self._held(run_id) for run_id in sorted(captured) if run_id in top]
        inside = sorted(run_id for run_id in top if run_id not in captured)
        return forgetting.whole_runs(self.archive, whole) + [i for r in inside for i in self._doomed_sidechain(r)]

    def _captured_in(self, run_id: str) -> str:
        view = self.run(run_id)
        return str(view.parent_run_id) if view.sidechain else run_id

    def _doomed_sidechain(self, run_id: str) -> list[Doomed]:
        held = self._held(self._captured_in(run_id))
        return forgetting.single_turns(self.archive, held, runs.turn_offsets(self.index(), self.principal, run_id))

    def doomed_by_query(self, query: str, *, filters: Filters | None = None) -> list[Doomed]:
        """Every turn that a query finds (all of its words must stand in it), to be forgotten."""
        self._gather()
        turns = keyword.every(self.index(), Principal(self.user), query, filters=filters or Filters())
        return self.doomed(turns)

    def doomed_memories_by_query(self, query: str) -> list[Memory]:
        """Every memory in which all words of a query stand, whatever became of it, with what was made of one."""
        index = self._with_memories()
        terms = [index.tokens(term) for term in query_terms(query)]
        named = [
            memory.memory_id
            for memory in self.memories.listed(every=True)
            if terms and all(_holds(index.tokens(index_terms(memory.text)), term) for term in terms)
        ]
        return self.doomed_memories(memories=named)

    def _gather(self) -> None:
        """Bring everything that was captured into the index: what is to be forgotten must be seen first."""
        if self.writable:
            self.drain()
            self.catch_up()

    def forget(
        self, doomed: Sequence[Doomed], *, memories: Sequence[str] = (), now: datetime | None = None
    ) -> list[str]:
        """Forget these turns and memories everywhere in this home, with every memory that was made of one of them;
        returns the ids of the runs that were rewritten.
        """
        if not doomed and not memories:
            return []
        self.drain()
        named = self.doomed_memories(memories=memories) if memories else []
        forgetting.record(self.journal(), doomed, named, now=now or _now())
        return self._finish_forgetting()

    def doomed_memories(self, doomed: Sequence[Doomed] = (), memories: Sequence[str] = ()) -> list[Memory]:
        """The memories that go with these turns and memories: those that were made of them."""
        from perdure.floor.forget import with_states

        try:
            every = sorted(self.memories.listed(every=True), key=lambda memory: memory.order)
        except IndexFault:  # what was made of the turns goes all the same, by its sources
            if memories:
                raise
            return []
        named = forgetting.with_versions(every, [self.memories.get(identifier).memory_id for identifier in memories])
        named = with_states(self.journal(), named)
        return forgetting.with_descendants(every, [*named, *forgetting.of_turns(every, doomed)])

    def repeating(self, doomed: Sequence[Doomed]) -> list[tuple[str, str]]:
        """(page, line) of every line of the floor that repeats one of these turns word for word, and was not made of a
        memory: a person wrote it, so it stays until they take it away (`floor.forget_line`). For cards and proposals
        their id stands in the place of the page (`floor.forget_asked`).
        """
        from perdure.floor import forget, notes

        said = [item.turn.text("text", "pasted") for item in doomed if item.turn is not None]
        texts = [(name, self.floor.read(name)) for name in self.floor.names()]
        texts += [(card.id, card.text) for card in self.floor.cards()]
        texts += [(wanted.id, wanted.text) for wanted in self.floor.proposals(every=True)]
        found = forget.repeating(texts, said)
        return [(name, raw) for name, raw in found if not notes.read(raw).memory]

    def erase(self) -> int:
        """Delete everything of the principal's: runs, packs, journal, index, floor, machines, grants to and from them,
        and what may carry their words in the logs. Returns how many runs there were. Raises Busy when another process
        keeps old pages in use: done again, it goes on.

        Nothing is remembered of it, so an import of the same transcripts captures them again.
        """
        from perdure import leaving
        from perdure.jobs.book import Book

        self.drain()
        self.archive.ledger.set_meta(_UNERASED, "yes")
        n_runs = self.archive.erase(self.user)
        leaving.wipe(self.path, self.user)
        indexes.remove(indexes.files(self.path))
        (self.path / "index.db").unlink(missing_ok=True)
        self._index = None
        self._discard_vectors()
        Book(self.path).drop(self.user)
        self._erase_floors()
        self._watches.pop(self.user, None)
        catchup.catch_up(self.index(create=True), self.archive)
        catchup.follow_journals(self.index(), self.archive)
        self.archive.ledger.wipe()
        self.archive.ledger.drop_meta(_UNERASED)
        return n_runs

    def export(self, target: Path) -> Verified:
        """Write everything of the principal's as a home of its own, prove that it is whole, and return the proof.

        target: a new folder. Raises ArchiveFault, and leaves nothing there, when it is not what lies here.
        """
        from perdure import leaving
        from perdure.verify import verify

        self.drain()
        floors = {folder: folder.name.partition("~")[0] for folder in self._floors()}
        with self.archive.still():
            leaving.copy(self.path, self.user, target, floors)
            found = verify(target)
            n_runs = sum(1 for _ in self.archive.ledger.all(self.user))
        if not found.ok or found.n_runs != n_runs:
            shutil.rmtree(target)
            raise ArchiveFault(f"{self.path}: not exported, because `perdure verify` finds problems")
        return found

    def linked_floors(self) -> list[Path]:
        """The folders outside `agents` that links of the principal's there lead to: `erase` takes only the links."""
        return [folder.resolve() for folder in self._floors() if folder.is_symlink()]

    def _floors(self) -> list[Path]:
        """The folders of the principal's pages, one for each agent."""
        from perdure.floor import pages

        found = sorted((self.path / "agents").glob("*"))
        return [folder for folder in found if pages.is_of(folder.name, self.user, self.config.user)]

    def _erase_floors(self) -> None:
        """Delete the principal's pages of every agent, and what is kept of them."""
        for folder in self._floors():
            if folder.is_symlink():
                folder.unlink()
            else:
                shutil.rmtree(folder)
        self._floor_kept(self.user).unlink(missing_ok=True)
        self._floor = None

    def _finish_forgetting(self) -> list[str]:
        """Apply tombstones that are recorded and not yet applied, to the archive and then to the index."""
        changed: list[str] = []
        done: list[str] = []
        left: list[str] = []
        is_merge = bool(self.archive.ledger.meta(_UNSETTLED))
        for user in self._users_with_journal():
            todo = forgetting.unapplied(self.archive, self.journal(user))
            if todo:
                changed += forgetting.apply(self.archive, self.journal(user), user, todo)
            if todo or is_merge:
                gone = forgetting.gone(self.archive, self.journal(user))
                self._forget_on_floors(user, gone)  # before the memories go, by which its lines are known
                stated_in = forgetting.apply_to_memories(self.journal(user), gone)
                left += stated_in if user == self.user else ()
                done += todo
        if done:
            later.drop(self.path)
            stage.drop(self.path)
        if (done or is_merge) and self._clean_index():
            self.archive.ledger.set_applied(done)
        self._look_again(left)
        return changed

    def _look_again(self, runs: Sequence[str]) -> None:
        """Keep what is still stated in runs of which some memory was forgotten."""
        if runs and self.config.memories.stated:
            from perdure.mind import stated

            with contextlib.suppress(IndexFault):  # the next capture makes an index
                stated.look_again(self.memories, self.archive, runs)
                self._note_stated()

    def _forget_on_floors(self, user: str, gone: forgetting.Gone) -> None:
        """Take what is gone out of every agent's floor of a user, the working copies included."""
        from perdure.floor import forget, pages

        forget.apply(self.journal(user), gone, lambda agent: self.path / pages.folder_of(agent, user, self.config.user))
        self._floor_kept(user).unlink(missing_ok=True)

    def _floor_kept(self, user: str) -> Path:
        return self.path / "run" / f"floor-{user}.json"

    def _clean_index(self) -> bool:
        """Project the rewritten runs again and leave no old page behind. A broken index is made anew instead.

        False when another process kept an old page in use: the next opening cleans it.
        """
        if not indexes.files(self.path):
            self._discard_vectors()
            return True
        try:
            with files.locked(self.path / ".rebuild.lock", wait_s=0.2):
                used = indexes.current(self.path)
                indexes.remove(path for path in indexes.files(self.path) if path != used)
                if used:
                    if catchup.catch_up(self.index(), self.archive).n_behind:
                        return False
                    catchup.follow_journals(self.index(), self.archive)
                    self.index().checkpoint()
                    self._clean_vectors()
        except Busy:
            return False
        except IndexFault:
            indexes.remove(indexes.files(self.path))
            (self.path / "index.db").unlink(missing_ok=True)
            self._index = None
            self._discard_vectors()
        return True

    def _clean_vectors(self) -> None:
        """Leave no vector of what the index no longer holds. Raises Busy."""
        if self._may_have_vectors():
            self.vectors().settle(self.index())
            self.vectors().sweep()

    def _discard_vectors(self) -> None:
        """Without an index nothing says which vectors are of something forgotten: all go."""
        if self._may_have_vectors():
            self.vectors().discard()

    # machines and grants ----------------------------------------------------------------------------------

    def authority(self) -> watching.Watch:
        """What this home knows of machines and grants; it may be shared between threads."""
        if self._authority is None:
            self._authority = watching.Watch(self.path, is_kept=self.writable)
        return self._authority

    @property
    def machines(self) -> Machines:
        """The machines that may speak for the users of this home."""
        from perdure.authority.machines import Machines

        return Machines(self.path, self.authority(), now=_now)

    @property
    def grants(self) -> Grants:
        """What the principal gave to others, and others to them."""
        return Grants(self.path, self.user, self.authority(), now=_now)

    def share(self, grantee: str, scope: GrantScope, value: str, *, until_at: datetime | None = None) -> Given:
        """Let another user read a run with all that is below it, or what has a tag, a project or an agent; later ones
        too, masked, until a date or until it is revoked. Raises NotFound for a run that is not the principal's.

        value: of a project its path, as runs carry it.
        """
        if scope == "run":
            value = self._own_run(value)
        elif scope == "project":
            value = value.rstrip("/") or value
        return self.grants.give(grantee, scope, value, until_at=until_at)

    def _own_run(self, prefix: str) -> str:
        self._gather()
        kind, run_id = self.resolve(prefix)
        if kind != "run":
            raise UsageError(f"{prefix} is a {kind}; a run can be shared (`perdure tree` shows their ids)")
        if (holder := self._captured_in(run_id)) != run_id:
            raise UsageError(f"{run_id} lies inside of run {holder}, and is read there: share that one")
        self._held(run_id)
        return run_id

    def n_covered(self, grant: Grant) -> int:
        """How many runs of the principal's a grant of theirs covers now."""
        from perdure.index.covered import n_covered

        self._gather()
        return n_covered(self.index(create=True), Principal(self.user), grant)

    # privacy switches -------------------------------------------------------------------------------------

    def pause(self, *, until_at: datetime | None = None, reason: str = "") -> None:
        """Capture nothing until then, or until `resume`."""
        privacy.pause(self.path, privacy.Pause(_now(), until_at, reason))

    def resume(self) -> bool:
        """Capture again. Returns whether capture had been paused."""
        return privacy.resume(self.path)

    def paused(self) -> privacy.Pause | None:
        """The pause in force, or None."""
        return privacy.paused(self.path, _now())

    def keep_off_record(self, runtime: str, session: str) -> None:
        """Never capture this session, now or by a later import."""
        privacy.keep_off_record(self.path, self.user, runtime, session)

    # care -------------------------------------------------------------------------------------------------

    def verify(self, *, progress: Progress | None = None) -> Verified:
        """Prove the archive."""
        from perdure.verify import verify

        return verify(self.path, progress=progress)

    def pack(self, *, idle_days: int | None = None, progress: Progress | None = None) -> tuple[int, int]:
        """Pack conversations idle for so long; returns (conversations, runs) that were packed."""
        days = self.config.archive.pack_after_days if idle_days is None else idle_days
        before_s = int(time.time()) - days * 86400 + (1 if days == 0 else 0)
        n_packs = n_runs = 0
        for user, runtime, conversation in self.archive.ledger.idle_conversations(before_s):
            packed = self.archive.pack(user, runtime, conversation)
            n_packs, n_runs = n_packs + bool(packed), n_runs + packed
            if progress:
                progress(n_packs, n_runs)
        return n_packs, n_runs

    def merge(self, other: Path, *, users: Collection[str] | None = None, progress: Progress | None = None) -> Merged:
        """Take everything of these users from another home's archive: of this home's own one, unless others are named.

        In whatever order homes merge, they end the same. Machines and grants of the other home count for nothing here.
        """
        root, wanted = other / "archive", sorted({check_user(name) for name in users or (self.user,)})
        try:
            archives.check_format(root)
        except FileNotFoundError as error:
            raise HomeMissing(str(other)) from error
        self.drain()
        self.archive.ledger.set_meta(_UNSETTLED, "yes")  # until what was forgotten on either side is gone on both
        n_events, n_without_effect = self._take_journals(root / "journal", wanted)
        changed = self._finish_forgetting()
        damaged: list[str] = []
        n_runs = self._take_runs(root, wanted, damaged, progress)
        self._drop_stale_index()
        self._finish_forgetting()
        self.archive.ledger.drop_meta(_UNSETTLED)
        left_out = tuple(name for name in archives.users_in(root) if name not in wanted)
        return Merged(n_runs, n_events, len(changed), tuple(damaged), left_out, n_without_effect)

    def _take_journals(self, root: Path, users: Iterable[str]) -> tuple[int, int]:
        """Take the lines of these users' journals; (how many were new, how many of them count for nothing here)."""
        before = self.authority().seen().made(watching.without_effect)
        n_events = sum(self.journal(name).take(root / name) for name in users)
        watching.note(self.path)  # what came with it is looked at at once
        return n_events, len(self.authority().seen().made(watching.without_effect) - before)

    def _take_runs(self, root: Path, users: Iterable[str], damaged: list[str], progress: Progress | None) -> int:
        """Take the runs of these users; returns how many changed anything here."""
        tombstones, n_runs = self._tombstones(), 0
        every = (item for name in users for item in archives.stored_runs(root, user=name, damaged=damaged))
        for n_seen, item in enumerate(every, start=1):
            try:
                n_runs += self.archive.adopt(item, tombstones)
            except DamagedRun:
                damaged.append(item[0].run_id)
            if progress:
                progress(n_seen, n_runs)
        return n_runs

    def _drop_stale_index(self) -> None:
        """Make an index anew that knows runs which a merge put elsewhere: it cannot unlearn them."""
        if not self.archive.ledger.meta("stale-index"):
            return
        if self._index is not None:
            self._index.close()
            self._index = None
        had_one = indexes.current(self.path) is not None
        indexes.remove(indexes.files(self.path))
        (self.path / "index.db").unlink(missing_ok=True)
        if had_one:
            self.catch_up()
            if self._may_have_vectors():
                self.vectors().carry(None, self.index())
                self.vectors().sweep()
        self.archive.ledger.drop_meta("stale-index")

    def backup(
        self, target: Path, *, prove: bool = True, progress: Callable[[int], None] | None = None
    ) -> tuple[int, str]:
        """Write a backup and prove it by restoring it beside; returns (size in bytes, digest)."""
        from perdure.archive import backup as backups

        self.drain()
        with self.archive.still():
            proven = self.verify()
            if not proven.ok:
                raise ArchiveFault(f"{self.path}: not backed up, because `perdure verify` finds problems")
            keep_writers(self.path)
            n_bytes = backups.write(self.path, target, proven.digest, progress=progress)
        if prove:
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=".perdure-prove-") as place:
                restore(target, Path(place) / "home")
        return n_bytes, proven.digest

    def probe(self) -> float:
        """Prove that the whole path works here: write, archive, index, search and forget in a scratch home on the
        same disk. Returns the seconds it took; raises what fails.
        """
        started = time.monotonic()
        place = self.path / "cache" / f"probe-{threading.get_ident()}"
        try:
            files.make_folder(place)
            with Home(place, self.config, self.principal, writable=True) as scratch:
                line = msgspec.json.encode({"role": "user", "content": _PROBE, "timestamp": _now().isoformat()})
                scratch.capture(line + b"\n", runtime="messages", session="probe")
                hits = scratch.search(_PROBE).hits
                if len(hits) != 1 or not scratch.forget(scratch.doomed([hits[0].turn_id])):
                    raise ArchiveFault("what was written was not found again")
                if scratch.search(_PROBE).hits or not scratch.verify().ok:
                    raise ArchiveFault("what was forgotten was found again")
        finally:
            shutil.rmtree(place, ignore_errors=True)
        return time.monotonic() - started

    def alarm(self) -> str | None:
        """What to say about an outbox that does not drain, once an incident."""
        limits = self.config.capture
        return outbox.alarm(
            self.path / "outbox", max_bytes=limits.outbox_alarm_bytes, max_age_s=limits.outbox_alarm_age_s, now=_now()
        )


def open_home(
    path: str | Path | None = None,
    *,
    user: str | None = None,
    create: bool = True,
    read_only: bool = False,
    embedder: Embedder | None = None,
    chats: Mapping[str, Chat] | None = None,
) -> Home:
    """Open a home, made if there is none. The principal is fixed here: the operating-system user unless named.

    embedder: your own, on the socket of `perdure.models.embedder`, instead of the one that the settings name.
    chats: your own models by role, on the socket of `perdure.models.chat`, in the same way.

    Raises HomeMissing (with create=False), HomeNotPrivate, NetworkFileSystem, UnsupportedPlatform, NewerFormat,
    ReadOnlyHome, ThinHome (the home is elsewhere), ConfigFault.
    """
    if sys.platform.startswith("win"):
        raise UnsupportedPlatform(sys.platform)
    place = settings.home_path(path)
    if not place.exists():
        if not create or read_only:
            raise HomeMissing(str(place))
        mounts.refuse_network(place)
        files.make_folder(place)
    mounts.refuse_network(place)
    writable = not read_only and _prepare(place)
    config = settings.load(place)
    if config.remote.url:
        raise ThinHome(config.remote.url)
    principal = Principal(check_user(user or config.user))
    try:
        return Home(place, config, principal, writable=writable, embedder=embedder, chats=chats)
    except ReadOnlyHome:
        return Home(place, config, principal, writable=False, embedder=embedder, chats=chats)


def _prepare(place: Path) -> bool:
    """Make sure that the home is its owner's alone; returns whether it can be written."""
    found = place.stat()
    if not stat.S_ISDIR(found.st_mode):
        raise UsageError(f"{place} is not a folder")
    if found.st_uid != _effective_user():
        raise HomeNotPrivate(str(place))
    if stat.S_IMODE(found.st_mode) & 0o077:
        try:
            place.chmod(0o700)
        except OSError as error:
            raise HomeNotPrivate(str(place)) from error
    return _is_writable(place)


def _effective_user() -> int:
    return os.geteuid()


def _is_writable(place: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=place):
            return True
    except OSError:
        return False


def restore(source: Path, target: Path) -> Verified:
    """Make a home from a backup, and prove that it holds what was backed up. Raises ArchiveFault if not."""
    from perdure.archive import backup as backups
    from perdure.verify import verify

    was_there = target.exists()
    try:
        wanted = backups.read(source, target)
        found = verify(target)
        if not found.ok or found.digest != wanted:
            raise ArchiveFault(f"{source}: the restored archive is not the one that was backed up")
        keep_all_writers(target)
    except ArchiveFault:  # half a home would look like one; nothing was there before
        shutil.rmtree(target, ignore_errors=True)
        if was_there:
            files.make_folder(target)
        raise
    return found


def _holds(tokens: Sequence[str], term: Sequence[str]) -> bool:
    """Whether the tokens of a term stand in a row among those of a text."""
    n = len(term)
    return any(list(tokens[at : at + n]) == list(term) for at in range(len(tokens) - n + 1))


def _answered(asked: Asked | None) -> Rows | None:
    """What was asked, as vectors; None when the model fails."""
    try:
        return asked.answer().vectors if asked else None
    except ModelFault:
        return None


def _with_asked(found: Recalled, asked: Asked | None, degraded: tuple[str, ...]) -> Recalled:
    """What recall found, with what the vectors took, or that they failed."""
    if asked is None or not found.timings_ms:
        return replace(found, degraded=degraded)
    if asked.pending.exception() is not None:
        return replace(found, degraded=("vector", *degraded))
    timings, depth = _waited(asked)
    return replace(found, degraded=degraded, timings_ms={**timings, **found.timings_ms}, depth=depth)


def _waited(asked: Asked) -> tuple[dict[str, float], dict[str, int]]:
    """(what the vectors took, lane -> texts that waited before them)."""
    answer = asked.answer()
    timings = {"queued": answer.queued_ms, "compute": answer.compute_ms}
    return timings, {str(lane): n for lane, n in answer.depth_before.items()}


def _is_of_the_home(error: Exception) -> bool:
    """Whether a delta failed for the home's sake (a full disk, a lock), so that it is to be tried again."""
    is_of_the_delta = isinstance(error, (UsageError, FormatFault))
    return isinstance(error, (PerdureError, OSError, MemoryError, apsw.Error)) and not is_of_the_delta


def _now() -> datetime:
    return datetime.now(UTC)


def _local_now() -> datetime:
    return datetime.now().astimezone()
