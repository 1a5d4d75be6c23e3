"""The composition root: a home on disk becomes the objects that work on it. The only file that knows all rooms.

A home is opened for one principal, and everything read through it is theirs. What is captured is durable before
a call returns; the index follows, and a failure of the index never fails a capture. `Home` joins rooms in six verbs
(capture, capture_messages, search, recall, remember, context); all else is a room's: docs/architecture.md.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from perdure import config as settings
from perdure import disk, queries
from perdure.access import fence
from perdure.archive import ingest
from perdure.archive.archive import StoreResult
from perdure.archive.journal import Journal, get_writer_id
from perdure.archive.memory_events import check_project
from perdure.captures import Captures
from perdure.connections import Connections, Progress, prepare_folder, utc_now
from perdure.environ import local_now
from perdure.errors import ClientOnly, ConfigFault, DiskFull, ReadOnlyHome, ThinHome, UnsupportedPlatform
from perdure.forgetting import Forgetting, floor_cache
from perdure.home_protocol import HomeProtocol
from perdure.identity import check_user
from perdure.index import store
from perdure.lazy_module import is_installed
from perdure.runs import Runs
from perdure.sharing.grants import list_grants_to
from perdure.sharing.room import Sharing
from perdure.text import one_line
from perdure.types import Filters, Identity, Live, Memory, MemoryKind, Origin, Principal, Recalled, SearchResult, Source
from perdure.upkeep import Upkeep

# Loaded where they are used, because a hook and a recall by words need none of them: numpy and the models (0.2 s), the
# floor and the memories (30 ms).
if TYPE_CHECKING:
    from perdure.context import Context
    from perdure.floor.layers import Layers
    from perdure.floor.room import FloorRoom
    from perdure.memories.room import MemoryRoom
    from perdure.models.chat import Chat
    from perdure.models.embedder import Embedder
    from perdure.recall.recaller import Recaller


class Home(HomeProtocol):
    """One home, opened for one principal. Use it from one thread, and close it."""

    captures: Captures
    runs: Runs
    upkeep: Upkeep
    sharing: Sharing
    forgetting: Forgetting

    def __init__(
        self,
        path: Path,
        config: settings.Config,
        principal: Principal,
        *,
        writable: bool,
        embedder: Embedder | None = None,
        chats: Mapping[str, Chat] | None = None,
        recaller: Recaller | None = None,
        shared: Home | None = None,
        is_offline: bool = False,
    ) -> None:
        """Use `perdure.open()`, which checks the folder first. shared: a home of another thread, for its models.

        is_offline: leave the archive's store alone.
        """
        self.path = path
        self.config = config
        self.user = principal.user
        self.writable = writable
        self._settings_read_ns: int | None = None  # when the config.toml of `refresh_live_settings` was written
        self.connections = Connections(
            path,
            config,
            principal.user,
            writable=writable,
            read_grants=lambda: list_grants_to(path, self.sharing.grant_cache, principal.user, utc_now()),
            embedder=embedder,
            chats=chats,
        )
        self.connections.is_offline = is_offline
        self._recaller: Recaller | None = shared._recaller if shared else recaller
        self.archive = self.connections.archive
        self.captures = Captures(self.connections)
        self.runs = Runs(self.connections)
        self.upkeep = Upkeep(
            self.connections,
            self.captures,
            keep_statements=lambda limit_s: self.memories.keep_stated(limit_s=limit_s).n_new,
            apply_tombstones=lambda: self.forgetting.apply_tombstones(),  # noqa: PLW0108 - made below
            n_ignored_events=lambda: self.sharing.n_ignored_events(),  # noqa: PLW0108 - made below
        )
        cache = shared.sharing.grant_cache() if shared else None
        self.sharing = Sharing(self.connections, self.runs, index_all=self.upkeep.index_all, cache=cache)
        self.forgetting = Forgetting(
            self.connections,
            self.captures,
            self.upkeep,
            self.runs,
            memories=lambda: self.memories,
            floor=lambda: self.floor,
            drop_floor=lambda: self.__dict__.pop("floor", None) and None,
            forget_passwords=self.sharing.forget_passwords,
        )
        self._publishes_at_end = shared is None
        self._finish_earlier_work()

    def _finish_earlier_work(self) -> None:
        """Do what a merge, a forgetting or an older version left undone; take over an archive that is new here."""
        if self.writable:
            self.forgetting.apply_tombstones()
            self.upkeep.drop_stale_index()
            self.upkeep.drop_old_index()
        if self._publishes_at_end and self.connections.is_store_new():
            self.upkeep.collect_first()

    def __enter__(self) -> Home:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Put what is new into the archive's store, if there is one; release every file. Without it nothing is lost."""
        if self._publishes_at_end:
            self.connections.publish_quietly(wait_s=0)  # another process that publishes takes this along
        self.connections.close()

    def refresh_live_settings(self) -> None:
        """Read the `live` settings again if config.toml changed: what a person sets holds from the next message on.

        A file with a fault changes nothing; `perdure doctor` names the fault.
        """
        try:
            written_ns = (self.path / "config.toml").stat().st_mtime_ns
            if written_ns == self._settings_read_ns:
                return
            self._settings_read_ns = written_ns
            live = settings.load(self.path).live
        except (OSError, ConfigFault):
            return
        self.config = self.config._replace(live=live)
        self.connections.config = self.connections.config._replace(live=live)

    def clone_for_thread(self, *, read_only: bool = False, identity: Identity | None = None) -> Home:
        """Return this home once more, for another thread: the models are shared, and this one is closed last.

        identity: the user and machine that the clone is used as; those of this home unless given.
        """
        config = self.config._replace(machine=identity.machine) if identity else self.config
        principal = Principal(check_user(identity.user)) if identity else Principal(self.user)
        if (config.machine, principal.user) != (self.config.machine, self.user):
            floor = config.floor._replace(place="")  # it says where this machine stands
            config = config._replace(floor=floor)
        clone = Home(self.path, config, principal, writable=self.writable and not read_only, shared=self)
        clone.connections.is_used_remotely = self.connections.is_used_remotely or identity is not None
        clone.connections.share_models(self.connections)
        return clone

    # rooms and connections --------------------------------------------------------------------------------

    @cached_property
    def floor(self) -> FloorRoom:
        """The pages, notes and cards that stand before every session, of this home's agent and principal."""
        from perdure.floor import pages
        from perdure.floor.room import FloorRoom
        from perdure.floor.state import FloorCache

        folder = self.path / pages.to_agent_folder(self.config.agent, self.user, self.config.user)
        journal = self.journal()
        return FloorRoom(
            agent=self.config.agent,
            folder=folder,
            journal=journal,
            cache=FloorCache(journal, floor_cache(self.path, self.user), can_save=self.writable),
            writable=self.writable,
            now=utc_now,
            is_guarded=self.config.floor.guard,
            connections=self.connections,
            captures=self.captures,
            upkeep=self.upkeep,
            memories=lambda: self.memories,
        )

    @cached_property
    def memories(self) -> MemoryRoom:
        """The memories of the principal, and of nobody else."""
        from perdure.memories.room import MemoryRoom, list_repository_facts

        is_owner = self.user == self.config.user  # nobody else learns what lies in the owner's folders
        return MemoryRoom(
            user=self.user,
            agent=self.config.agent,
            journal=self.journal(),
            index=self.connections.index_with_memories,
            follow=self.connections.follow_journals,
            get_tombstones=lambda: self.connections.tombstones().get(self.user),
            now=utc_now,
            scan_text=lambda text: self.floor.find_injections(text),  # noqa: PLW0108 - the floor loads when it is used
            list_facts=list_repository_facts if is_owner else lambda _: (),
            is_reviewed=self.config.memories.review,
            connections=self.connections,
            captures=self.captures,
            upkeep=self.upkeep,
            write_notes=lambda moved: self.floor.write_notes(moved),  # noqa: PLW0108 - the floor loads when it is used
            allow_text=lambda text, location: self.floor.allow(text, location=location),
        )

    @property
    def principal(self) -> Principal:
        """Who this home is used as, with what others let them read at this moment."""
        return self.connections.principal

    def index(self, *, create: bool = False) -> store.IndexConnection:
        """Return the index in use now; another process may have swapped it since the last call."""
        return self.connections.index(create=create)

    def journal(self, user: str | None = None) -> Journal:
        """Return the journal of a user (the principal unless named)."""
        return self.connections.journal(user)

    def chat(self, role: str, *, job: str, model: str = "", effort: str = "") -> Chat | None:
        """Return the model that the settings give a role (resident, miner, helper or summariser), for one job.

        None where none is set, and rules do its work. model: another model of the role's provider.
        effort: instead of the one of the settings. Raises ConfigFault for settings that make no sense.
        """
        return self.connections.chat(role, job=job, model=model, effort=effort)

    # capture ----------------------------------------------------------------------------------------------

    def capture(  # noqa: PLR0913 - a caller may know all of this about a session; all but three have defaults
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
    ) -> StoreResult:
        """Store bytes of a session; what the answer calls stored is durable. Owner and machine are the home's own.

        data: complete lines (an unfinished last one is left for the next call). from_offset: their offset in the
        session's stream. The answer "accepted" asks for the bytes from its `to_offset`, "diverged" for
        `generation=answer.generation + 1`, "gap" for the bytes from its `to_offset`.
        """
        origin = ingest.clean_origin(Origin(runtime, session, conversation or session, parent_session, cwd))
        delta = self.captures.delta(origin, data, path=path, from_offset=from_offset, tags=tags)
        answer = self.captures.store(origin, replace(delta, generation=generation, parent_run_id=parent_run_id))
        self.upkeep.catch_up_after_capture()
        return answer

    def capture_messages(
        self,
        messages: Iterable[Mapping[str, Any]],
        *,
        session: str,
        cwd: str | None = None,
        now: datetime | None = None,
    ) -> StoreResult:
        """Store the messages of a session since the last call, in Anthropic's or OpenAI's format.

        Give the person's own words, without what was put beside them. now: the time of messages that have none. Two
        writers of one session wait for each other.
        """
        time_stamp = (now or utc_now()).isoformat()
        lines = [msgspec.json.encode({"timestamp": time_stamp, **message}) + b"\n" for message in messages]
        with disk.lock_file(self.path / ".messages.lock"):
            generation = self.archive.ledger.get_generation(self.user, "messages", session)
            end = self.archive.ledger.get_end(Source(self.user, "messages", session, generation))
            return self.capture(b"".join(lines), runtime="messages", session=session, from_offset=end, cwd=cwd)

    def import_files(
        self,
        paths: Iterable[Path] | None = None,
        *,
        tags: Sequence[str] = (),
        runtime: str | None = None,
        index: bool = True,
        progress: Progress | None = None,
    ) -> ingest.IngestResult:
        """Capture transcripts: these files and folders, or every supported agent's own.

        index: bring the index up to date as well; without it, the next search or `upkeep.catch_up` does.
        """
        result = self.captures.import_files(paths, tags=tags, runtime=runtime, progress=progress)
        if index and result.n_runs:
            self.upkeep.catch_up_after_import()
        return result

    # search -----------------------------------------------------------------------------------------------

    def search(
        self,
        query: str,
        *,
        filters: Filters | None = None,
        limit: int = 20,
        mode: str | None = None,
        scan: bool = False,
    ) -> SearchResult:
        """Return the turns that match, best first. Without a usable index the archive is scanned, and the result says
        so.

        mode: hybrid (words and meaning), keyword or semantic; hybrid where there are vectors, unless named. A result
        that had to do without vectors has all that the words find, and "vector" in `degraded`.
        """
        request = queries.SearchRequest(query, filters or Filters(), limit, mode)
        return queries.search_turns(self.connections, self.upkeep, request, scan=scan)

    # recall -----------------------------------------------------------------------------------------------

    def recall(  # noqa: PLR0913 - a caller may know all of this about a message; all but itself have defaults
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
        helper_s: float = queries.HELPER_S,
        catch_up_s: float | None = None,
    ) -> Recalled:
        """Return the few turns and memories that matter for a message, or silence. Writes no event.

        now: "yesterday" is counted from here. cwd: recall only from its project and from what has none. session: the
        one that is going on; its own turns are left out. already: turns it was told before. mode: "keyword" to use no
        model. explain: fill `passed_over`. as_of: answer with what had been stated until then. helper_s: the helper
        model may plan for so long, where one is set. catch_up_s: archive and index new captures for at most so long;
        `n_behind` of the answer counts those that are left. `degraded` names what could not be done.
        """
        request = queries.RecallRequest(
            message,
            now=now or local_now(),
            cwd=cwd,
            all_projects=all_projects,
            session=session,
            already=already,
            mode=mode,
            explain=explain,
            as_of=as_of,
            helper_s=helper_s,
            catch_up_s=catch_up_s,
        )
        return queries.recall_cues(
            self.connections,
            self.upkeep,
            request,
            scan_text=lambda text: self.floor.find_injections(text),  # noqa: PLW0108 - the floor loads when it is used
            recaller=self._recaller,
        )

    # remember and context ---------------------------------------------------------------------------------

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
        """Store a memory, durably; if the current one says the same, reinforce it instead.

        cwd: it belongs to the project there; to none without. session: the one in which it is said, which need not be
        told it. more: the other fields of `MemoryDraft` (trust, stated_at, pinned, entities, …).
        """
        from perdure.memories.store import MemoryDraft

        project = check_project(self.connections.project_of(cwd))
        conversation = session.conversation if session else ""
        draft = MemoryDraft(text, kind, path, project, conversation=conversation, **more)
        kept = self.memories.keep(draft, by="agent" if draft.trust == "agent" else "owner")
        self.memories.embed_new()
        return kept.memory

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
        """Return the context of one message for any model: C₀, the session so far, the message, and what was recalled.

        window: the session's messages before this one, in the provider's format. floor: that of an earlier context of
        the same session, which stays as it was when that began. session, already: as in `recall`. The answer gives the
        messages of either wire format. It reads every capture and edit until now, and notes nothing.
        """
        from perdure.context import Context

        now = now or local_now()
        recalled = self.recall(message, now=now, cwd=cwd, session=session, already=already, mode=mode)
        return Context(
            floor=floor or self.floor.layers(cwd=cwd, platform=platform, now=now),
            message=message,
            recalled=recalled,
            location_line=self.floor.location_line(cwd=cwd, now=now),
            window=tuple(window),
            nonce=self._make_nonce(message, now),
        )

    def _make_nonce(self, message: str, now: datetime) -> str:
        """Return the code of a recalled block: the same for the same context, if the home has a writer."""
        try:
            return fence.derive_nonce(get_writer_id(self.path), message, now.isoformat())
        except ReadOnlyHome:  # a copy gets its writer with the first write
            return fence.make_nonce()

    # ids --------------------------------------------------------------------------------------------------

    def resolve(self, prefix: str) -> tuple[str, str]:
        """Return ("turn" | "run" | "conversation" | "memory", full id) for the beginning of an id. Raises NotFound."""
        if prefix.startswith("mem-"):
            return "memory", self.memories.holder_of(prefix).get(prefix).memory_id
        return self.runs.resolve(prefix)

    def preview(self, identifier: str) -> str:
        """Return the beginning of a turn or a memory on one line, masked. Raises NotFound."""
        if identifier.startswith("mem-"):
            return one_line(self.memories.holder_of(identifier).get(identifier).text, 100)
        return self.runs.turn_preview(identifier)


def open_home(
    path: str | Path | None = None,
    *,
    user: str | None = None,
    create: bool = True,
    read_only: bool = False,
    agent: str = "",
    embedder: Embedder | None = None,
    chats: Mapping[str, Chat] | None = None,
    recaller: Recaller | None = None,
    offline: bool = False,
) -> Home:
    """Open a home, made if there is none. The principal is fixed here: the operating-system user unless named.

    agent: whose floor and memories are used, instead of the agent that the settings name.
    embedder: your own, on the socket of `perdure.models.embedder`, instead of the one that the settings name.
    chats: your own models by role, on the socket of `perdure.models.chat`, in the same way.
    recaller: your own way to recall, on the socket of `perdure.recall.recaller`, instead of the one that ships.
    offline: leave the archive's store alone, because somebody waits; whoever opens the home next publishes what is new.

    Raises HomeMissing (with create=False), HomeNotPrivate, NetworkFileSystem, UnsupportedPlatform, NewerFormat,
    ReadOnlyHome, ThinHome (the home is elsewhere), ClientOnly, ConfigFault.
    """
    if sys.platform.startswith("win"):
        raise UnsupportedPlatform(sys.platform)
    folder = settings.find_home_path(path)
    if not is_installed("apsw") and not settings.load(folder).remote.url:
        raise ClientOnly(str(folder))
    writable = prepare_folder(folder, create=create, read_only=read_only)
    config = settings.load(folder)
    if config.remote.url:
        raise ThinHome(config.remote.url)
    config = config._replace(agent=agent) if agent else config
    principal = Principal(check_user(user or config.user))
    options: dict[str, Any] = {"embedder": embedder, "chats": chats, "recaller": recaller, "is_offline": offline}
    try:
        return Home(folder, config, principal, writable=writable, **options)
    except (ReadOnlyHome, DiskFull):  # it can still be read
        return Home(folder, config, principal, writable=False, **options)
