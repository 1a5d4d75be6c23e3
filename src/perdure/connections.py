"""The open parts of one home, which its rooms share: settings, archive, index, journals, vectors, models.

`prepare_folder` checks the folder before. Each part opens when it is first used, and `close` releases all of them.
Nothing here decides anything: the rooms do.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self

from perdure import config as settings
from perdure import disk, log
from perdure.access.redact import mask
from perdure.archive.archive import Archive
from perdure.archive.forget import TombstoneCache
from perdure.archive.journal import Journal
from perdure.archive.tombstones import Tombstones
from perdure.errors import Busy, HomeMissing, HomeNotPrivate, ModelFault, NotFound, PackageMissing, UsageError
from perdure.formats.run_turns import parse_run
from perdure.identity import find_project
from perdure.index import catchup, store, visibility
from perdure.lazy_module import is_installed
from perdure.types import Grant, Principal

# Loaded where they are used, because a hook and a recall by words need none of them: numpy and the models (0.2 s).
if TYPE_CHECKING:
    from perdure.archive_store.exchange import StoreExchange
    from perdure.index.home_pictures import HomePictures
    from perdure.index.home_vectors import HomeVectors, PendingQueryVector
    from perdure.index.rebuild import IndexPlace
    from perdure.models.chat import Chat
    from perdure.models.embedder import Embedder, Vectors
    from perdure.models.roles import Roles
    from perdure.pictures.reader import PictureReader

_INGEST_S = 0.5  # a capture or a search embeds new chunks for so long, where there are vectors already

Progress = Callable[[int, int], None]  # (done, all)


class Connections:
    """The open parts of one home, for one principal. Use it from one thread, and close it."""

    def __init__(
        self,
        path: Path,
        config: settings.Config,
        user: str,
        *,
        writable: bool,
        read_grants: Callable[[], tuple[Grant, ...]],
        embedder: Embedder | None = None,
        chats: Mapping[str, Chat] | None = None,
    ) -> None:
        """read_grants: returns what others let the user read at this moment."""
        self.path = path
        self.config = config
        self.user = user
        self.writable = writable
        self.chats = chats
        self.picture_reader: PictureReader | None = None  # instead of the engine that is installed
        self.catch_up_elsewhere: Callable[[float], None] | None = None  # asks the thread that keeps the index
        self.is_offline = False  # leave the archive's store alone
        self.is_used_remotely = False  # from another machine: the folders it names do not lie on this disk
        self.archive = Archive(path, parse=parse_run, writable=writable)
        self.place = _choose_place(path, config.index)
        self._read_grants = read_grants
        self._embedder = embedder
        self._index: store.IndexConnection | None = None
        self._vectors: HomeVectors | None = None
        self._roles: Roles | None = None
        self._tombstone_caches: dict[str, TombstoneCache] = {}  # by user
        self._exchange: StoreExchange | None = None

    def share_models(self, other: Self) -> None:
        """Use the models of another thread's connections, which are closed last."""
        self._vectors = self._open_vectors(shared=other.vectors())
        self.chats, self._roles = other.chats, other.roles()

    def close(self) -> None:
        """Release every file. Nothing is lost by not calling it."""
        if self._vectors is not None:
            self._vectors.close()
            self._vectors = None
        self.close_index()
        if self._exchange is not None:
            self._exchange.close()
            self._exchange = None
        self.archive.close()

    @property
    def principal(self) -> Principal:
        """The user with what others let them read at this moment."""
        return Principal(self.user, self._read_grants())

    def project_of(self, cwd: str | None) -> str | None:
        """Return the project of a folder; for another machine return what it sent, which names no folder of this
        disk.
        """
        if self.is_used_remotely:
            return cwd if cwd and "\0" not in cwd else None
        return find_project(cwd)

    def owners(self) -> list[str]:
        """Return the users who let the principal read anything."""
        return sorted({grant.owner for grant in visibility.list_grants_in_force(self.principal, utc_now())})

    def exchange(self) -> StoreExchange | None:
        """Return the exchange with the archive's store; None where the settings name none, or this home only reads.

        Raises ConfigFault, PackageMissing.
        """
        if self._exchange is None and self.config.archive.store and self.writable and not self.is_offline:
            from perdure.archive_store.exchange import StoreExchange
            from perdure.objects import open_objects

            rules = self.config.archive
            objects = open_objects(rules.store, endpoint=rules.store_endpoint, plain=rules.store_plain)
            self._exchange = StoreExchange(self.path, self.archive, objects, rules.store)
        return self._exchange

    def is_store_new(self) -> bool:
        """Return True if the archive has a store from which nothing was collected yet."""
        exchange = self.exchange()
        return exchange is not None and exchange.is_new

    def publish_quietly(self, *, wait_s: float = 60.0) -> None:
        """Put what is new into the archive's store, if it has one that answers; else it waits, and the log says so.

        wait_s: for another process that publishes.
        """
        exchange = self.exchange()
        fault = exchange.publish_quietly(wait_s=wait_s) if exchange else None
        if fault is not None:
            log.append_entry(self.path, "store-away", code=fault.code)

    # journals ---------------------------------------------------------------------------------------------

    def journal(self, user: str | None = None) -> Journal:
        """Return the journal of a user (the principal unless named)."""
        return Journal(self.path / "archive" / "journal" / (user or self.user), home=self.path)

    def users_with_journal(self) -> list[str]:
        """Return the users for whom a journal exists."""
        return [path.name for path in (self.path / "archive" / "journal").glob("*") if path.is_dir()]

    def tombstones(self) -> dict[str, Tombstones]:
        """Return what was forgotten, by user; users who forgot nothing are left out."""
        for user in self.users_with_journal():
            self._tombstone_caches.setdefault(user, TombstoneCache(self.journal(user)))
        by_user = {user: cache.get_tombstones() for user, cache in self._tombstone_caches.items()}
        return {user: tombstones for user, tombstones in by_user.items() if tombstones}

    def drop_tombstones(self, user: str) -> None:
        """Stop applying the tombstones of a user who was erased."""
        self._tombstone_caches.pop(user, None)

    # index ------------------------------------------------------------------------------------------------

    def index(self, *, create: bool = False) -> store.IndexConnection:
        """Return the index in use now; another process may have swapped it since the last call."""
        if self._index is not None and not self._index.is_current(self.path):
            self.close_index()
        if self._index is None:
            self._index = self.place.open(writable=self.writable, create=create and self.writable)
        if self._index.HAS_WALL:
            self._index.limit_to([self.user, *self.owners()])
        return self._index

    def has_index(self) -> bool:
        """Return True if there is an index."""
        return self.place.has_index()

    def index_with_memories(self) -> store.IndexConnection:
        """Return the index, with everything that the journals say of memories."""
        index = self.index(create=True)
        if self.writable:
            catchup.catch_up_journals(index, self.archive, self.user)
        return index

    def follow_journals(self) -> None:
        """Bring the index up to the principal's journal."""
        catchup.catch_up_journals(self.index(create=True), self.archive, self.user)

    def close_index(self) -> None:
        """Close the index; the next use opens it again."""
        if self._index is not None:
            self._index.close()
            self._index = None

    def delete_index(self) -> None:
        """Delete the index, and what is left of others."""
        self.close_index()
        self.place.delete()

    # vectors ----------------------------------------------------------------------------------------------

    def vectors(self) -> HomeVectors:
        """Return the vectors of this home."""
        if self._vectors is None:
            self._vectors = self._open_vectors()
        return self._vectors

    def _open_vectors(self, *, shared: HomeVectors | None = None) -> HomeVectors:
        from perdure.index.home_vectors import HomeVectors

        embedder = self.config.models.embedder
        return HomeVectors(self.path, embedder, writable=self.writable, embedder=self._embedder, shared=shared)

    # pictures ---------------------------------------------------------------------------------------------

    def pictures(self) -> HomePictures:
        """Return what reads the pictures of this home."""
        from perdure.index.home_pictures import HomePictures

        return HomePictures(self.path, reader=self.picture_reader)

    def may_have_pictures(self) -> bool:
        """Was any picture ever read here? Asked before anything is loaded."""
        return (self.path / "cache" / "pictures.db").exists()

    def may_have_vectors(self) -> bool:
        """Were vectors ever made here? Asked before anything heavy is loaded."""
        is_elsewhere = self.config.index.engine != "sqlite"  # another machine may have made them
        return is_elsewhere or (self.path / "vectors").exists() or (self.path / "cache" / "embeddings.db").exists()

    def embed_new(self, index: store.IndexConnection, user: str = "") -> None:
        """Where a user has vectors, embed their new chunks for a moment; what fails is left to the next call."""
        if not self.may_have_vectors():
            return
        try:
            if self.vectors().has_any(index, user or self.user):
                self.vectors().fill(index, user or self.user, limit_s=_INGEST_S, fresh_only=True)
        except (Busy, ModelFault, NotFound):
            return

    def ask_vectors(
        self, index: store.IndexConnection, texts: Sequence[str], mode: str | None
    ) -> tuple[PendingQueryVector | None, bool]:
        """Start to embed texts. Return (the pending vectors, whether they were wanted and cannot be had)."""
        if mode == "keyword" or not any(map(str.strip, texts)):
            return None, False
        if mode is None and not self.may_have_vectors():
            return None, False
        owners = self.owners()
        if mode is None and not any(self.vectors().has_any(index, user) for user in (self.user, *owners)):
            return None, False
        pending = self.vectors().embed_queries(index, self.user, texts, others=owners)
        return pending, pending is None

    # models -----------------------------------------------------------------------------------------------

    def chat(self, role: str, *, job: str, model: str = "", effort: str = "") -> Chat | None:
        """Return the model that the settings give a role, for one job; None where none is set and rules do its work.

        role: resident, miner, helper or summariser. job: caps and the meter go by this name. model: another one of the
        role's provider. effort: instead of the one of the settings. Secrets are masked in all that is
        sent. Raises ConfigFault for settings that make no sense.
        """
        return self.roles().get_chat(role, job=job, model=model, effort=effort)

    def roles(self) -> Roles:
        """Return the models of this home, and the meter of what they cost."""
        if self._roles is None:
            from perdure.models.roles import Roles

            self._roles = Roles(self.path, self.config.models, mask=mask, chats=self.chats)
        return self._roles


def _choose_place(path: Path, index: settings.IndexConfig) -> IndexPlace:
    """Return where the settings say that the index is. Raises PackageMissing without the package for Postgres."""
    if index.engine == "sqlite":
        return store.IndexFolder(path)
    if not is_installed("psycopg"):
        raise PackageMissing("index.engine = 'postgres' needs psycopg: pip install 'perdure[postgres]'")
    from perdure.index.index_database import IndexDatabase

    return IndexDatabase(index)


def pending_rows(pending: PendingQueryVector | None) -> Vectors | None:
    """Wait for the vectors that were asked for; None when the model failed."""
    try:
        return pending.wait().vectors if pending else None
    except ModelFault:
        return None


def utc_now() -> datetime:
    """Return this moment in UTC."""
    return datetime.now(UTC)


def prepare_folder(folder: Path, *, create: bool, read_only: bool) -> bool:
    """Make sure that a folder can hold a home and is its owner's alone; return True if it can be written.

    create: make a missing folder, unless it is to be only read. Raises HomeMissing, NetworkFileSystem, UsageError,
    HomeNotPrivate.
    """
    if not folder.exists():
        if not create or read_only:
            raise HomeMissing(str(folder))
        disk.refuse_network_share(folder)
        disk.make_folder(folder)
    disk.refuse_network_share(folder)
    if read_only:
        return False
    status = folder.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise UsageError(f"{folder} is not a folder")
    if status.st_uid != os.geteuid():
        raise HomeNotPrivate(str(folder))
    if stat.S_IMODE(status.st_mode) & 0o077:
        try:
            folder.chmod(0o700)
        except OSError as error:
            raise HomeNotPrivate(str(folder)) from error
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
