"""An index in a file whose rows were written by its own functions: no home, no archive, no parser."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from perdure.archive import memory_events
from perdure.archive.archive import Archive, Delta
from perdure.archive.journal import Journal
from perdure.formats.run_turns import parse_run
from perdure.identity import make_run_id, make_turn_id
from perdure.index.apply_journals import apply_journals
from perdure.index.projection import project_run
from perdure.index.store import IndexConnection
from perdure.index.write import write_run
from perdure.types import Grant, GrantScope, Memory, Origin, ParsedLines, Part, Principal, Run, Source, Span, Turn

START = datetime(2026, 3, 2, 9, tzinfo=UTC)  # a Monday
TURN_BYTES = 100  # of each turn in its source
ADA, BOB = Principal("ada"), Principal("bob")


def say(text: str, *more_parts: Part, role: str = "user", minute: int | None = 0, **fields: Any) -> Turn:
    """Return a turn with these words; `IndexFile.add_run` gives it its place. minute: None for no time."""
    author = {"user": "person", "assistant": "agent", "tool": "tool"}[role]
    stated_at = None if minute is None else START + timedelta(minutes=minute)
    parts = (*([Part("text", text)] if text else []), *more_parts)
    return Turn(role, fields.pop("author", author), ((0, TURN_BYTES),), parts, stated_at, **fields)  # type: ignore[arg-type]


def reply(text: str, *more_parts: Part, **fields: Any) -> Turn:
    """Return a turn of the agent."""
    return say(text, *more_parts, role="assistant", **fields)


def make_memory(text: str, path: str, *, day: int = 0, n: int = 0, **fields: Any) -> Memory:
    """Return a memory of the owner, stated some days after the start. n: tells apart memories of one day."""
    stated_at = START + timedelta(days=day)
    values: dict[str, Any] = {
        "memory_id": f"mem-{stated_at:%Y%m%d-%H%M%S}-{n:06x}", "text": text, "kind": "fact", "path": path,
        "agent": "default", "project": None, "stated_at": stated_at, "recorded_at": stated_at, "trust": "owner",
        "how": "remembered",
    }  # fmt: skip
    return Memory(**(values | fields))


def make_grant(scope: GrantScope, value: str, *, until_at: datetime | None = None) -> Grant:
    """Return a grant of Ada's to Bob."""
    return Grant("g1", "ada", "bob", scope, value, until_at)


def share(scope: GrantScope, value: str, **fields: Any) -> Principal:
    """Return Bob with one grant of Ada's."""
    return replace(BOB, granted=(make_grant(scope, value, **fields),))


def open_index(folder: Path) -> IndexConnection:
    """Return the index in a folder, made if there is none."""
    return IndexConnection(folder / "index-1.db", create=True)


class IndexFile:
    """An index and the journals of its users, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.index = open_index(folder)

    def close(self) -> None:
        """Release the file."""
        self.index.close()

    def add_run(
        self, session: str, *turns: Turn, user: str = "ada", from_offset: int = 0, runtime: str = "messages",
        generation: int = 0, title: str = "", links: Sequence[tuple[str, str | None]] = (), **fields: Any,
    ) -> Run:  # fmt: skip
        """Write a captured run of a session: its turns, 100 bytes each, from an offset on."""
        source = Source(user, runtime, session, generation)
        placed_turns = [
            turn._replace(lines=((low, low + TURN_BYTES),))
            for low, turn in zip(range(from_offset, 1 << 40, TURN_BYTES), turns, strict=False)
        ]
        times = [turn.stated_at for turn in turns if turn.stated_at is not None]
        first_at = min(times, default=START)
        values: dict[str, Any] = {
            "machine": "laptop", "agent": "default", "project": None, "conversation": session,
            "captured_at": max(times, default=START),
        }  # fmt: skip
        run = Run(
            run_id=make_run_id(source, from_offset, first_at), source=source, from_offset=from_offset,
            to_offset=from_offset + TURN_BYTES * len(turns), sha256=hashlib.sha256(repr(turns).encode()).hexdigest(),
            started_at=min(times, default=None), ended_at=max(times, default=None), **(values | fields),
        )  # fmt: skip
        self.write(run, ParsedLines(tuple(placed_turns), tuple(links), title))
        return run

    def write(self, run: Run, parsed: ParsedLines) -> int:
        """Project a run and write it in one transaction; return the number of chunks."""
        with self.index.begin_write():
            return write_run(self.index, run, parsed, project_run(run, parsed))

    def get_journal(self, user: str = "ada") -> Journal:
        """Return the journal of a user."""
        return Journal(self.folder / "journal" / user, home=self.folder)

    def add_memories(self, *memories: Memory, user: str = "ada", batch: memory_events.MinedRange | None = None) -> None:
        """Append one event that creates these memories, and let the index follow."""
        self.append_ops(*map(memory_events.build_create_op, memories), user=user, batch=batch)
        self.follow(user)

    def append_ops(self, *ops: Any, user: str = "ada", batch: memory_events.MinedRange | None = None) -> None:
        """Append an event with these operations to a user's journal; the index does not follow yet."""
        data = memory_events.build_event_data(ops, by="owner", batch=batch)
        self.get_journal(user).append(memory_events.EVENT_TYPE, data, now=START)

    def follow(self, user: str = "ada") -> int:
        """Apply a user's journal; return how many memory rows were written."""
        return apply_journals(self.index, [self.folder / "journal" / user])


def open_archive(folder: Path) -> Archive:
    """Open the archive in a folder."""
    return Archive(folder, parse=parse_run)


class ArchiveFile(IndexFile):
    """An index and an archive of deltas in one folder, without a home."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.archive = open_archive(folder)
        self.n_deltas = 0
        self.ends: dict[tuple[str, str], int] = {}  # (user, session) -> offset after its last byte

    def capture(self, session: str, text: str, *, user: str = "ada", role: str = "user", **fields: Any) -> str:
        """Store one message as the next delta, a minute after the one before; return the id of its run."""
        self.n_deltas += 1
        now = START + timedelta(minutes=self.n_deltas)
        message = {"role": role, "content": text, "timestamp": now.isoformat()}
        line = json.dumps(message).encode() + b"\n"
        low = self.ends.get((user, session), 0)
        self.ends[user, session] = low + len(line)
        delta = Delta(Origin("messages", session, session), user, "laptop", line, low, **fields)
        (result,) = self.archive.store([delta], now=now, tombstones={})
        assert result.outcome == "stored"
        return str(result.run_id)

    def close(self) -> None:
        """Release the files."""
        self.archive.close()
        super().close()


def get_turn_id(run: Run, n: int) -> str:
    """Return the id of the n-th turn of a run that `IndexFile.add_run` wrote."""
    return make_turn_id(run.source, run.from_offset + n * TURN_BYTES)


def get_span(run: Run, n: int) -> Span:
    """Return the bytes of the n-th turn of a run that `IndexFile.add_run` wrote."""
    low = run.from_offset + n * TURN_BYTES
    return Span(run.run_id, low, low + TURN_BYTES)
