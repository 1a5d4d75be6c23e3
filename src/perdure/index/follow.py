"""Following the journals: what they say of memories, of what was recalled and measured, event by event, as rows.

New lines of a journal are applied to the rows they touch; where a journal was rewritten or merged, all of it is
replayed and only what differs is written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from perdure.archive.journal import places, tails, was_rewritten
from perdure.index import injections, measured
from perdure.index import memories as rows
from perdure.index.journals import last_read, read_until
from perdure.index.rows import ChunkRow
from perdure.index.store import Connection
from perdure.index.values import ms
from perdure.index.wording import MEMORY
from perdure.index.write import Scope, delete_chunks, insert_chunk
from perdure.memories import events, replay
from perdure.memories.paths import folded
from perdure.memories.replay import Chain, Noted, State
from perdure.types import Memory

_TYPES = (*rows.TYPES, measured.TYPE)


def follow(index: Connection, folders: Iterable[Path]) -> int:
    """Bring the memories up to these journals; returns how many rows were written."""
    return sum(_follow_one(index, folder) for folder in folders)


def _follow_one(index: Connection, folder: Path) -> int:
    with index.writing():
        known, now = read_until(index, folder.name), places(folder)
        since = {} if was_rewritten(known, now) else known
        found, read = tails(folder, since, now, _TYPES)
        fresh, last = list(map(rows.noted, found)), last_read(index, folder.name)
        if since != known or (fresh and fresh[0].order <= last):
            found, read = tails(folder, {}, now, _TYPES)
            fresh = list(map(rows.noted, found))
            written = _replay_all(index, folder.name, fresh)
            for kept in (injections, measured):
                kept.clear(index, index.name("user", folder.name))
        else:
            written = _apply(index, folder.name, fresh)
        if fresh:
            for kept in (injections, measured):
                kept.write(index, index.name("user", folder.name), fresh)
        newest = max([last, *(event.order for event in fresh)])
        index.set_meta(
            **{f"journal:{folder.name}": msgspec.json.encode(read).decode(), f"journal-last:{folder.name}": newest}
        )
        index.settle_counts()
    return written


# writing ------------------------------------------------------------------------------------------------------


def _apply(index: Connection, user: str, fresh: Sequence[Noted]) -> int:
    """Apply events that come after all others to the rows that they touch."""
    if not fresh:
        return 0
    ids, chains = replay.named(fresh)
    before = _touched(index, user, ids, chains, fresh)
    mined = rows.mined(index, user) if any(event.data.get("batch") for event in fresh) else {}
    state = State({memory.memory_id: memory for memory in before}, mined, _judged(index, user, fresh))
    for event in fresh:
        replay.apply(state, event)
    replay.settle(state)
    return _write(index, user, before, state)


def _touched(index: Connection, user: str, ids: set[str], chains: set[Chain], fresh: Sequence[Noted]) -> list[Memory]:
    """The memories that are named, with the whole of every chain that they are or will be in."""
    own = rows.of_ids(index, user, sorted(ids))
    places = {memory.memory_id: replay.chain_of(memory) for memory in own}
    chains = chains | set(places.values())
    for op in (op for event in fresh if event.type == events.TYPE for op in event.data["ops"]):
        if op["op"] == "create":
            places.setdefault(op["id"], Chain(op["agent"], op.get("project") or "", folded(op["path"])))
        elif op["id"] in places:
            old = places[op["id"]]
            places[op["id"]] = Chain(old.agent, op.get("project", old.project) or "", folded(op.get("path", old.path)))
            chains.add(places[op["id"]])
    found = {memory.memory_id: memory for memory in own}
    for chain in chains:
        found.update((memory.memory_id, memory) for memory in rows.of_chain(index, user, chain))
    return list(found.values())


def _replay_all(index: Connection, user: str, every: Sequence[Noted]) -> int:
    """Replay a whole journal, and write what then differs."""
    state = replay.replayed(every)
    number = index.name("user", user)
    found = index.rows("SELECT body FROM memory WHERE user = ?", number)
    before = [rows.decoded(body) for (body,) in found]
    index.db.execute("DELETE FROM mined WHERE user = ?", (number,))
    index.db.execute("DELETE FROM judged WHERE user = ?", (number,))
    return _write(index, user, before, state)


def _judged(index: Connection, user: str, fresh: Iterable[Noted]) -> set[str]:
    """Which of the injections that these events judge were judged before."""
    number = index.known("user", user)
    asked = [event.data["nonce"] for event in fresh if event.type == events.USED and "nonce" in event.data]
    query = "SELECT nonce FROM judged WHERE user = ? AND nonce = ?"
    return {nonce for one in asked for (nonce,) in index.rows(query, number, one)}


def _write(index: Connection, user: str, before: Iterable[Memory], state: State) -> int:
    old = {memory.memory_id: memory for memory in before}
    number = index.name("user", user)
    n = 0
    for name in old.keys() - state.memories.keys():
        _delete(index, number, name)
        n += 1
    for name, memory in state.memories.items():
        if old.get(name) != memory:
            _put(index, number, memory, old.get(name))
            n += 1
    stretches = [(number, source, *stretch) for source, known in state.mined.items() for stretch in known]
    index.db.executemany("INSERT OR IGNORE INTO mined VALUES (?, ?, ?, ?)", stretches)
    index.db.executemany("INSERT OR IGNORE INTO judged VALUES (?, ?)", [(number, nonce) for nonce in state.judged])
    return n


def _put(index: Connection, user: int, memory: Memory, old: Memory | None) -> None:
    """Write a memory's row, and its piece where what filters and words see of it has changed."""
    chain = replay.chain_of(memory)
    values = {
        "memory_id": memory.memory_id, "user": user, "agent": memory.agent, "project": chain.project,
        "path": memory.path, "place": chain.path, "kind": memory.kind, "text": memory.text, "trust": memory.trust,
        "conversation": memory.conversation, "stated_ms": ms(memory.stated_at), "recorded_ms": ms(memory.recorded_at),
        "ended_ms": ms(memory.ended_at), "superseded_by": memory.superseded_by, "retired": int(memory.retired),
        "pinned": int(memory.pinned), "body": msgspec.json.encode(memory),
    }  # fmt: skip
    columns, marks = ", ".join(values), ", ".join("?" * len(values))
    kept = ", ".join(f"{name} = excluded.{name}" for name in values)
    index.db.execute(
        f"INSERT INTO memory({columns}) VALUES ({marks}) ON CONFLICT(user, memory_id) DO UPDATE SET {kept}",
        tuple(values.values()),
    )
    (key,) = rows.numbers(index, user, [memory.memory_id]).values()
    if old is None or old.sources != memory.sources:
        index.db.execute("DELETE FROM memory_source WHERE memory = ?", (key,))
        index.db.executemany("INSERT INTO memory_source VALUES (?, ?, ?, ?)", [(key, *s) for s in memory.sources])
    if old is None or _seen(old) != _seen(memory):
        delete_chunks(index, -key)
        if not memory.retired:
            _insert_piece(index, user, key, memory)


def _seen(memory: Memory) -> tuple[Any, ...]:
    """What decides how a memory is found."""
    return memory.retired, memory.project, memory.agent, memory.text, memory.stated_at


def _insert_piece(index: Connection, user: int, key: int, memory: Memory) -> None:
    scope = Scope(
        user, index.name("project", memory.project or ""), index.name("conversation", memory.conversation),
        index.name("runtime", memory.runtime), index.name("machine", ""), index.name("agent", memory.agent), (),
    )  # fmt: skip
    tie = int.from_bytes(hashlib.blake2b(memory.memory_id.encode(), digest_size=8).digest(), "big", signed=True)
    role = index.name("role", MEMORY)
    insert_chunk(index, 0, -key, ChunkRow(0, MEMORY, memory.text, tie), scope, role, ms(memory.stated_at))


def _delete(index: Connection, user: int, memory_id: str) -> None:
    (key,) = rows.numbers(index, user, [memory_id]).values()
    delete_chunks(index, -key)
    index.db.execute("DELETE FROM memory_source WHERE memory = ?", (key,))
    index.db.execute("DELETE FROM memory WHERE id = ?", (key,))
