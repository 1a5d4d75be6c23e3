"""Apply the journals to the index: events about memories, injections and measurements become rows.

New lines of a journal change only the rows that they touch. A journal that was rewritten or merged is
replayed from its start, and only the rows that differ are written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from perdure.archive import memory_events
from perdure.archive.journal import measure_files, read_new_events, was_rewritten
from perdure.archive.memory_events import fold_path
from perdure.index import injections, memory_replay, memory_rows, statistics, workflow_rows
from perdure.index.encoding import MEMORY_KIND, to_ms
from perdure.index.memory_replay import MemoryChain, ReplayEvent, ReplayState
from perdure.index.store import IndexConnection, get_journal_positions, get_last_journal_order
from perdure.index.write import ChunkRow, ChunkScope, delete_chunks, insert_chunk
from perdure.types import Memory

_EVENT_TYPES = (*memory_rows.EVENT_TYPES, statistics.MEASURED_TYPE, workflow_rows.TOPICS_TYPE)


def apply_journals(index: IndexConnection, folders: Iterable[Path]) -> int:
    """Bring the rows up to date with these journals; return how many memory rows were written."""
    return sum(_apply_journal(index, folder) for folder in folders)


def _apply_journal(index: IndexConnection, folder: Path) -> int:
    with index.begin_write():
        old_positions, current_positions = get_journal_positions(index, folder.name), measure_files(folder)
        start_positions = {} if was_rewritten(old_positions, current_positions) else old_positions
        journal_events, new_positions = read_new_events(folder, start_positions, current_positions, _EVENT_TYPES)
        new_events, last_order = (
            list(map(memory_rows.to_replay_event, journal_events)),
            get_last_journal_order(index, folder.name),
        )
        if start_positions != old_positions or (new_events and new_events[0].order <= last_order):
            journal_events, new_positions = read_new_events(folder, {}, current_positions, _EVENT_TYPES)
            new_events = list(map(memory_rows.to_replay_event, journal_events))
            n_written = _replay_journal(index, folder.name, new_events)
            for table_module in (injections, statistics, workflow_rows):
                table_module.clear(index, index.add_name("user", folder.name))
        else:
            n_written = _apply_new_events(index, folder.name, new_events)
        if new_events:
            for table_module in (injections, statistics, workflow_rows):
                table_module.write(index, index.add_name("user", folder.name), new_events)
        newest_order = max([last_order, *(event.order for event in new_events)])
        index.set_meta(
            **{
                f"journal:{folder.name}": msgspec.json.encode(new_positions).decode(),
                f"journal-last:{folder.name}": newest_order,
            }
        )
        index.write_counts()
    return n_written


# writing ------------------------------------------------------------------------------------------------------


def _apply_new_events(index: IndexConnection, user: str, new_events: Sequence[ReplayEvent]) -> int:
    """Apply events that come after all events read so far to the rows that they touch."""
    if not new_events:
        return 0
    ids, chains = memory_replay.find_touched(new_events)
    old_memories = _list_touched_memories(index, user, ids, chains, new_events)
    mined = memory_rows.list_mined_ranges(index, user) if any(event.data.get("batch") for event in new_events) else {}
    state = ReplayState(
        {memory.memory_id: memory for memory in old_memories}, mined, _find_judged_nonces(index, user, new_events)
    )
    for event in new_events:
        memory_replay.apply_event(state, event)
    memory_replay.mark_superseded(state)
    return _write_changes(index, user, old_memories, state)


def _list_touched_memories(
    index: IndexConnection, user: str, ids: set[str], chains: set[MemoryChain], new_events: Sequence[ReplayEvent]
) -> list[Memory]:
    """Return the memories that the events name, with every memory of each chain that they are or will be in."""
    named_memories = memory_rows.get_memories(index, user, sorted(ids))
    chain_by_id = {memory.memory_id: memory_replay.get_chain(memory) for memory in named_memories}
    chains = chains | set(chain_by_id.values())
    for operation in (
        operation for event in new_events if event.type == memory_events.EVENT_TYPE for operation in event.data["ops"]
    ):
        if operation["op"] == "create":
            chain_by_id.setdefault(
                operation["id"],
                MemoryChain(operation["agent"], operation.get("project") or "", fold_path(operation["path"])),
            )
        elif operation["id"] in chain_by_id:
            old_chain = chain_by_id[operation["id"]]
            chain_by_id[operation["id"]] = MemoryChain(
                old_chain.agent,
                operation.get("project", old_chain.project) or "",
                fold_path(operation.get("path", old_chain.path)),
            )
            chains.add(chain_by_id[operation["id"]])
    memory_by_id = {memory.memory_id: memory for memory in named_memories}
    for chain in chains:
        memory_by_id.update((memory.memory_id, memory) for memory in memory_rows.list_chain(index, user, chain))
    return list(memory_by_id.values())


def _replay_journal(index: IndexConnection, user: str, replay_events: Sequence[ReplayEvent]) -> int:
    """Replay a whole journal, and write the rows that differ."""
    state = memory_replay.replay_events(replay_events)
    number = index.add_name("user", user)
    rows_before = index.select("SELECT body FROM memory WHERE user = ?", number)
    old_memories = [memory_rows.decode_memory(body) for (body,) in rows_before]
    index.db.execute("DELETE FROM mined WHERE user = ?", (number,))
    index.db.execute("DELETE FROM judged WHERE user = ?", (number,))
    return _write_changes(index, user, old_memories, state)


def _find_judged_nonces(index: IndexConnection, user: str, new_events: Iterable[ReplayEvent]) -> set[str]:
    """Return the nonces of injections that these events judge and an earlier event has judged already."""
    number = index.find_name("user", user)
    nonces = [event.data["nonce"] for event in new_events if event.type == memory_events.USED and "nonce" in event.data]
    query = "SELECT nonce FROM judged WHERE user = ? AND nonce = ?"
    return {nonce for asked_nonce in nonces for (nonce,) in index.select(query, number, asked_nonce)}


def _write_changes(index: IndexConnection, user: str, old_memories: Iterable[Memory], state: ReplayState) -> int:
    memory_by_id = {memory.memory_id: memory for memory in old_memories}
    number = index.add_name("user", user)
    n_written = 0
    for memory_id in memory_by_id.keys() - state.memories.keys():
        _delete_memory(index, number, memory_id)
        n_written += 1
    for memory_id, memory in state.memories.items():
        if memory_by_id.get(memory_id) != memory:
            _write_memory(index, number, memory, memory_by_id.get(memory_id))
            n_written += 1
    mined_rows = [
        (number, source, *mined_range) for source, mined_ranges in state.mined.items() for mined_range in mined_ranges
    ]
    index.db.executemany("INSERT OR IGNORE INTO mined VALUES (?, ?, ?, ?)", mined_rows)
    index.db.executemany("INSERT OR IGNORE INTO judged VALUES (?, ?)", [(number, nonce) for nonce in state.judged])
    return n_written


def _write_memory(index: IndexConnection, user: int, memory: Memory, old_memory: Memory | None) -> None:
    """Write the row of a memory; write its chunk again when the fields for filters and words have changed."""
    chain = memory_replay.get_chain(memory)
    values = {
        "memory_id": memory.memory_id,
        "user": user,
        "agent": memory.agent,
        "project": chain.project,
        "path": memory.path,
        "place": chain.path,
        "kind": memory.kind,
        "text": memory.text,
        "trust": memory.trust,
        "conversation": memory.conversation,
        "stated_ms": to_ms(memory.stated_at),
        "recorded_ms": to_ms(memory.recorded_at),
        "ended_ms": to_ms(memory.ended_at),
        "superseded_by": memory.superseded_by,
        "retired": memory.retired,
        "pinned": memory.pinned,
        "body": msgspec.json.encode(memory),
    }
    columns, marks = ", ".join(values), ", ".join("?" * len(values))
    updates = ", ".join(f"{name} = excluded.{name}" for name in values)
    index.db.execute(
        f"INSERT INTO memory({columns}) VALUES ({marks}) ON CONFLICT(user, memory_id) DO UPDATE SET {updates}",
        tuple(values.values()),
    )
    (key,) = memory_rows.find_numbers(index, user, [memory.memory_id]).values()
    if old_memory is None or old_memory.sources != memory.sources:
        index.db.execute("DELETE FROM memory_source WHERE memory = ?", (key,))
        index.db.executemany("INSERT INTO memory_source VALUES (?, ?, ?, ?)", [(key, *span) for span in memory.sources])
    if old_memory is None or _get_searched_fields(old_memory) != _get_searched_fields(memory):
        delete_chunks(index, -key)
        if not memory.retired:
            _insert_chunk(index, user, key, memory)


def _get_searched_fields(memory: Memory) -> tuple[Any, ...]:
    """Return the fields that decide how a memory is found."""
    return memory.retired, memory.project, memory.agent, memory.text, memory.stated_at


def _insert_chunk(index: IndexConnection, user: int, key: int, memory: Memory) -> None:
    scope = ChunkScope(
        user,
        index.add_name("project", memory.project or ""),
        index.add_name("conversation", memory.conversation),
        index.add_name("runtime", memory.runtime),
        index.add_name("machine", ""),
        index.add_name("agent", memory.agent),
        (),
    )
    tie = int.from_bytes(hashlib.blake2b(memory.memory_id.encode(), digest_size=8).digest(), "big", signed=True)
    role = index.add_name("role", MEMORY_KIND)
    insert_chunk(index, 0, -key, ChunkRow(0, MEMORY_KIND, memory.text, tie), scope, role, to_ms(memory.stated_at))


def _delete_memory(index: IndexConnection, user: int, memory_id: str) -> None:
    (key,) = memory_rows.find_numbers(index, user, [memory_id]).values()
    delete_chunks(index, -key)
    index.db.execute("DELETE FROM memory_source WHERE memory = ?", (key,))
    index.db.execute("DELETE FROM memory WHERE id = ?", (key,))
