"""What people plainly stated becomes memories: by rules, turn by turn, each with its source.

Only what a person typed counts, and only captures of a session that is the owner's own. The id of such a memory
follows from its words and the time at which they were said, so that a second look, another copy of the session or
another home makes the same memory and not a second one. How far this has come is noted in the ledger: losing that
costs another look.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from perdure.archive.archive import Archive
from perdure.archive.store import Held
from perdure.capture.openings import is_command
from perdure.errors import DamagedRun, NotFound
from perdure.formats.of_run import parse_run, without_injected
from perdure.identity import memory_id
from perdure.memories import claims
from perdure.memories.paths import is_everywhere
from perdure.memories.statements import Statement, stated
from perdure.mind.batches import span_of
from perdure.mind.memories import Draft, Memories
from perdure.text import normalised
from perdure.types import Run, Turn

_PART = 200  # runs looked at between two notes of how far this has come


@dataclass
class Stated:
    """What a look at new captures kept."""

    n_turns: int = 0  # that a person typed
    n_new: int = 0
    n_again: int = 0  # known already: said before, or looked at twice


def mark_of(user: str) -> str:
    """The ledger's name for how far the rules have looked at an owner's captures."""
    return f"stated:{user}"


def keep(memories: Memories, archive: Archive, *, limit_s: float | None = None) -> Stated:
    """Keep the statements of every capture since the last call, for so long."""
    done = Stated()
    ends_s = None if limit_s is None else time.monotonic() + limit_s
    ledger, mark = archive.ledger, mark_of(memories.user)
    upto = ledger.last_change()
    while helds := ledger.changes(int(ledger.meta(mark) or 0), limit=_PART, user=memories.user):
        for held in helds:
            _keep_run(memories, archive, held, done)
            is_over = ends_s is not None and time.monotonic() > ends_s
            if is_over:
                break
        ledger.set_meta(mark, str(held.change))
        if is_over:
            return done
    if upto > int(ledger.meta(mark) or 0):  # what is left is of others
        ledger.set_meta(mark, str(upto))
    return done


def look_again(memories: Memories, archive: Archive, runs: Iterable[str]) -> Stated:
    """Keep what is stated in these runs: what stood for it was forgotten together with something else."""
    done = Stated()
    for run_id in runs:
        with contextlib.suppress(NotFound):
            _keep_run(memories, archive, archive.held(run_id), done)
    return done


def _keep_run(memories: Memories, archive: Archive, held: Held, done: Stated) -> None:
    try:
        run, lines = archive.load(held)
    except DamagedRun:  # `verify` says so
        return
    parsed = without_injected(parse_run(run, lines), partial(archive.injected, run))
    for turn in parsed.turns:
        if turn.author != "person" or turn.is_summary:
            continue
        done.n_turns += 1
        drafts = [_draft(memories.user, run, turn, found) for found in _statements(turn)]
        if drafts:
            kept = memories.keep_all(drafts, by="rules")
            done.n_new += sum(item.is_new for item in kept)
            done.n_again += sum(not item.is_new for item in kept)


def _statements(turn: Turn) -> Iterator[Statement]:
    """What a person's turn plainly states, in what was typed."""
    for part in turn.parts:
        if part.kind == "text" and not is_command(part.text):
            yield from stated(part.text)


def _draft(user: str, run: Run, turn: Turn, found: Statement) -> Draft:
    stated_at = min(turn.stated_at or run.ended_at or run.captured_at, run.captured_at)
    path = claims.path_for(found.text, found.kind)
    name = f"{user}\0{stated_at.isoformat()}\0{normalised(found.text)}"
    project = None if is_everywhere(path, found.kind) else run.project
    return Draft(
        text=found.text, kind=found.kind, project=project, stated_at=stated_at, how="stated",
        sources=(span_of(run.run_id, turn),), runtime=run.source.runtime,
        conversation=run.conversation, agent=run.agent,
        memory_id=memory_id(stated_at, hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()),
    )  # fmt: skip
