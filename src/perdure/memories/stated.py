"""Make memories of what people plainly stated: by rules, turn by turn, each with its kind and its source.

Only text that a person typed counts, and only from captures of the owner's own sessions. The id of such
a memory follows from its words and the time at which they were said, so a second look, another copy of
the session or another home makes the same memory and no second one. The progress is kept in the ledger:
losing it costs another look. The grammar of statements is in `grammar`; no model is asked.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from perdure.archive.archive import Archive
from perdure.archive.store import LedgerEntry
from perdure.capture.events import is_command
from perdure.errors import DamagedRun, NotFound
from perdure.identity import make_memory_id
from perdure.memories.grammar.statements import Statement, stated
from perdure.memories.mining_question import to_span
from perdure.memories.scope import is_said_everywhere
from perdure.memories.store import Memories, MemoryDraft
from perdure.regex import lazy_re
from perdure.text import normalise
from perdure.types import MemoryKind, Run, Turn

# keeping statements -------------------------------------------------------------------------------------------

_BATCH_RUNS = 200  # runs between two records of the progress


@dataclass
class StatementsResult:
    """The result of keeping the statements of captures."""

    n_turns: int = 0  # typed by a person
    n_new: int = 0
    n_reinforced: int = 0  # known already: said before, or read twice


def build_mark(user: str) -> str:
    """Return the ledger's name for the progress of the rules in an owner's captures."""
    return f"stated:{user}"


def keep_statements(memories: Memories, archive: Archive, *, limit_s: float | None = None) -> StatementsResult:
    """Keep the statements of every capture since the last call. limit_s: stop after so many seconds."""
    result = StatementsResult()
    ends_s = None if limit_s is None else time.monotonic() + limit_s
    ledger, mark = archive.ledger, build_mark(memories.user)
    last_change = ledger.get_last_change()
    while entries := ledger.list_changes(int(ledger.get_meta(mark) or 0), limit=_BATCH_RUNS, user=memories.user):
        for entry in entries:
            _keep_run_statements(memories, archive, entry, result)
            is_over = ends_s is not None and time.monotonic() > ends_s
            if is_over:
                break
        ledger.set_meta(mark, str(entry.change))
        if is_over:
            return result
    if last_change > int(ledger.get_meta(mark) or 0):  # the remaining changes belong to other users
        ledger.set_meta(mark, str(last_change))
    return result


def restate(memories: Memories, archive: Archive, run_ids: Iterable[str]) -> StatementsResult:
    """Keep what is stated in these runs again: a memory of it was forgotten together with something else."""
    result = StatementsResult()
    for run_id in run_ids:
        with contextlib.suppress(NotFound):
            _keep_run_statements(memories, archive, archive.get_entry(run_id), result)
    return result


def _keep_run_statements(memories: Memories, archive: Archive, entry: LedgerEntry, result: StatementsResult) -> None:
    try:
        run, parsed = archive.read_turns(entry)
    except DamagedRun:  # `verify` reports it
        return
    for turn in parsed.turns:
        if turn.author != "person" or turn.is_summary:
            continue
        result.n_turns += 1
        drafts = [_build_draft(memories.user, run, turn, statement) for statement in _iter_statements(turn)]
        if drafts:
            keep_results = memories.keep_all(drafts, by="rules")
            result.n_new += sum(keep_result.is_new for keep_result in keep_results)
            result.n_reinforced += sum(not keep_result.is_new for keep_result in keep_results)


def _iter_statements(turn: Turn) -> Iterator[Statement]:
    """Yield the plain statements in the typed text of a person's turn."""
    for part in turn.parts:
        if part.kind == "text" and not is_command(part.text):
            yield from stated(part.text)


def _build_draft(user: str, run: Run, turn: Turn, statement: Statement) -> MemoryDraft:
    stated_at = min(turn.stated_at or run.ended_at or run.captured_at, run.captured_at)
    id_seed = f"{user}\0{stated_at.isoformat()}\0{normalise(statement.text)}"
    return MemoryDraft(
        text=statement.text,
        kind=statement.kind,
        project=None if is_said_everywhere(statement.text) else run.project,
        stated_at=stated_at,
        how="stated",
        sources=(to_span(run.run_id, turn),),
        runtime=run.source.runtime,
        conversation=run.conversation,
        agent=run.agent,
        memory_id=make_memory_id(stated_at, hashlib.sha256(id_seed.encode("utf-8", "surrogatepass")).digest()),
    )


# kinds --------------------------------------------------------------------------------------------------------

_PREFERENCE = lazy_re(
    r"\s*(?:(?:i|we)\s+(?:(?:really|strongly|much|always|usually|do not|don't)\s+)?"
    r"(?:prefer|like|love|hate|dislike|favou?r|want)|prefer)\b",
    re.IGNORECASE,
)
_DECISION = lazy_re(r"\s*we(?:'ve| have)?\s+(?:decided|chose|chosen|agreed|settled)\b", re.IGNORECASE)
_PROCEDURE = lazy_re(
    r"\s*(?:always|never|do not|don't|make sure|remember to|before|after|when|whenever|if|run|use|write|keep|add|avoid"
    r"|check|ensure|commit|test|read|ask|put|call|start|stop|update|install|build|deploy|create|set)\b",
    re.IGNORECASE,
)


def guess_kind(text: str) -> MemoryKind:
    """Return the kind of a statement.

    >>> [guess_kind(text) for text in ("Ich bevorzuge Tabs", "We decided on SQLite", "Run the tests first", "It rains")]
    ['preference', 'decision', 'procedure', 'fact']
    """
    plain_text = text.replace("*", "").replace("`", "")
    for pattern, kind in ((_PREFERENCE, "preference"), (_DECISION, "decision"), (_PROCEDURE, "procedure")):
        if pattern.match(plain_text):
            return kind  # type: ignore[return-value]
    statements = stated(text)
    return statements[0].kind if statements else "fact"
