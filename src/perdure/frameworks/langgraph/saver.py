"""LangGraph's `BaseCheckpointSaver` over a home: each step's state of a thread, in the state file of the user.

A checkpoint is on disk before `put` returns. It is state and no memory: search and recall do not look into it. What is
to be remembered of a graph goes into `PerdureStore` or is captured. `perdure forget` deletes the threads in which a
forgotten text stands.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.base import Checkpoint as GraphCheckpoint
from langgraph.checkpoint.serde.base import SerializerProtocol

from perdure.errors import UsageError
from perdure.frameworks.home_calls import HomeCaller, HomeCalls
from perdure.home import Home
from perdure.state.store import Checkpoint, PendingWrite, StateFile

_CheckpointKey = tuple[str, str, str]  # thread, namespace and id of a checkpoint
_Row = tuple[Checkpoint, Sequence[PendingWrite]]


class PerdureSaver(HomeCaller, BaseCheckpointSaver[int]):
    """The checkpoints of a home. Any thread and event loop may use it, and several processes at once."""

    def __init__(self, home: Home, *, serde: SerializerProtocol | None = None) -> None:
        """serde: as for every checkpointer of LangGraph."""
        super().__init__(serde=serde)
        self._home = HomeCalls(home)

    # reading ----------------------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that a config names, or the newest of its thread; None if there is none."""
        return self._to_tuple(self._home.run(lambda _, state: _read(state, config)))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that a config names, as `get_tuple` does."""
        return self._to_tuple(await self._home.run_async(lambda _, state: _read(state, config)))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, the newest first. config: None for those of all threads. filter: of the metadata."""
        rows = self._home.run(lambda _, state: self._list_rows(state, config, filter, before, limit))
        yield from (found for row in rows if (found := self._to_tuple(row)))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield checkpoints, as `list` does."""
        rows = await self._home.run_async(lambda _, state: self._list_rows(state, config, filter, before, limit))
        for row in rows:
            if found := self._to_tuple(row):
                yield found

    def _list_rows(
        self,
        state: StateFile,
        config: RunnableConfig | None,
        wanted: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Sequence[_Row]:
        configurable = config["configurable"] if config else {}
        checkpoints = state.list_checkpoints(
            thread=configurable.get("thread_id"),
            namespace=configurable.get("checkpoint_ns"),
            id=get_checkpoint_id(config) if config else None,
            before=get_checkpoint_id(before) if before else None,
            limit=None if wanted else limit,
        )
        if wanted:
            metadata = ((checkpoint, self._read_metadata(checkpoint)) for checkpoint in checkpoints)
            checkpoints = [
                checkpoint
                for checkpoint, fields in metadata
                if all(fields.get(key) == value for key, value in wanted.items())
            ][:limit]
        return [(checkpoint, state.list_writes(_to_place(checkpoint))) for checkpoint in checkpoints]

    def _read_metadata(self, checkpoint: Checkpoint) -> dict[str, Any]:
        fields: dict[str, Any] = self.serde.loads_typed((checkpoint.metadata_type, checkpoint.metadata))
        return fields

    def _to_tuple(self, row: _Row | None) -> CheckpointTuple | None:
        if row is None:
            return None
        checkpoint, writes = row
        place = _to_place(checkpoint)
        return CheckpointTuple(
            config=_to_config(place),
            checkpoint=self.serde.loads_typed((checkpoint.type, checkpoint.body)),
            metadata=self.serde.loads_typed((checkpoint.metadata_type, checkpoint.metadata)),
            parent_config=_to_config((*place[:2], checkpoint.parent)) if checkpoint.parent else None,
            pending_writes=[
                (write.task, write.channel, self.serde.loads_typed((write.type, write.body))) for write in writes
            ],
        )

    # writing ----------------------------------------------------------------------------------------------

    def put(
        self,
        config: RunnableConfig,
        checkpoint: GraphCheckpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,  # noqa: ARG002 - every checkpoint holds all of its values
    ) -> RunnableConfig:
        """Write a checkpoint, durably; return the config that names it."""
        row = self._build(config, checkpoint, metadata)
        self._home.run(lambda _, state: state.put_checkpoint(row))
        return _to_config(_to_place(row))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: GraphCheckpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,  # noqa: ARG002 - every checkpoint holds all of its values
    ) -> RunnableConfig:
        """Write a checkpoint, as `put` does."""
        row = self._build(config, checkpoint, metadata)
        await self._home.run_async(lambda _, state: state.put_checkpoint(row))
        return _to_config(_to_place(row))

    def _build(self, config: RunnableConfig, checkpoint: GraphCheckpoint, metadata: CheckpointMetadata) -> Checkpoint:
        configurable = config["configurable"]
        fields = get_checkpoint_metadata(config, metadata)
        body_type, body = self.serde.dumps_typed(checkpoint)
        metadata_type, raw_metadata = self.serde.dumps_typed(fields)
        return Checkpoint(
            str(configurable["thread_id"]),
            configurable.get("checkpoint_ns", ""),
            checkpoint["id"],
            get_checkpoint_id(config) or "",
            str(fields.get("run_id", "")),
            body_type,
            body,
            metadata_type,
            raw_metadata,
        )

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Write what a task wrote after a checkpoint, durably."""
        place, rows = self._build_writes(config, writes, task_id, task_path)
        self._home.run(lambda _, state: state.put_writes(place, rows))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Write what a task wrote, as `put_writes` does."""
        place, rows = self._build_writes(config, writes, task_id, task_path)
        await self._home.run_async(lambda _, state: state.put_writes(place, rows))

    def _build_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> tuple[_CheckpointKey, Sequence[PendingWrite]]:
        configurable = config["configurable"]
        place = (str(configurable["thread_id"]), configurable.get("checkpoint_ns", ""), configurable["checkpoint_id"])
        return place, [
            PendingWrite(
                task_id, WRITES_IDX_MAP.get(channel, number), channel, *self.serde.dumps_typed(value), task_path
            )
            for number, (channel, value) in enumerate(writes)
        ]

    # deleting and copying ---------------------------------------------------------------------------------

    def delete_thread(self, thread_id: str) -> None:
        """Delete all of a thread."""
        self._home.run(lambda _, state: state.delete_threads([thread_id]))

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete all of a thread."""
        await self._home.run_async(lambda _, state: state.delete_threads([thread_id]))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that these runs of a graph made."""
        self._home.run(lambda _, state: state.delete_runs(run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that these runs of a graph made."""
        await self._home.run_async(lambda _, state: state.delete_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all of a thread."""
        self._home.run(lambda _, state: state.copy_thread(source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all of a thread."""
        await self._home.run_async(lambda _, state: state.copy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all but the newest checkpoint of each namespace, or ("delete") whole threads.

        What a `DeltaChannel` of the newest one is built from stays, too. Raises UsageError.
        """
        self._home.run(lambda _, state: self._prune(state, thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete checkpoints, as `prune` does."""
        await self._home.run_async(lambda _, state: self._prune(state, thread_ids, strategy))

    def _prune(self, state: StateFile, threads: Sequence[str], strategy: str) -> None:
        if strategy not in ("keep_latest", "delete"):
            raise UsageError(f"the strategy {strategy!r} is unknown (known: keep_latest, delete)")
        if strategy == "delete":
            state.delete_threads(threads)
            return
        for thread in threads:
            checkpoints = {_to_place(checkpoint): checkpoint for checkpoint in state.list_checkpoints(thread=thread)}
            kept: set[_CheckpointKey] = set()
            for namespace in {place[1] for place in checkpoints}:
                newest = next(place for place in checkpoints if place[1] == namespace)
                n_ancestors = self._count_delta_steps(checkpoints[newest])
                place: _CheckpointKey | None = newest
                while place in checkpoints and n_ancestors >= 0:
                    kept.add(place)
                    place, n_ancestors = (thread, namespace, checkpoints[place].parent), n_ancestors - 1
            state.delete_checkpoints(place for place in checkpoints if place not in kept)

    def _count_delta_steps(self, checkpoint: Checkpoint) -> int:
        """Return how many checkpoints ago the last snapshot of a `DeltaChannel` was; 0 without such a channel."""
        counters = self._read_metadata(checkpoint).get("counters_since_delta_snapshot") or {}
        return max((int(n_steps) for _, n_steps in counters.values()), default=0)


def _to_place(checkpoint: Checkpoint) -> _CheckpointKey:
    return checkpoint.thread, checkpoint.namespace, checkpoint.id


def _to_config(place: _CheckpointKey) -> RunnableConfig:
    thread, namespace, name = place
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": name}}


def _read(state: StateFile, config: RunnableConfig) -> _Row | None:
    configurable = config["configurable"]
    checkpoints = state.list_checkpoints(
        thread=str(configurable["thread_id"]),
        namespace=configurable.get("checkpoint_ns", ""),
        id=get_checkpoint_id(config),
        limit=1,
    )
    return (checkpoints[0], state.list_writes(_to_place(checkpoints[0]))) if checkpoints else None
