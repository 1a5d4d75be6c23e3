"""Find the memories that the agent of a session wrote in it, by whichever way: they stand in its context already.

The command line in the agent's shell, the MCP server and the memory tool do not know the session. But the session's
transcript holds the call, so the memory's words are looked for in the calls of the session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perdure.archive import memory_events
from perdure.formats.call_text import list_words
from perdure.index import memory_rows, session_turns
from perdure.index.store import IndexConnection
from perdure.types import Live, Memory, Principal

N_LOOKED_AT = 12  # memories that share words with one call
MIN_SHARE = 0.9  # of a memory's words that its call has: a shell's quotes may break one
_MADE_BY_CALLS = ("remembered", "edited", memory_events.FILE)  # values of `how`


def list_written_here(index: IndexConnection, principal: Principal, live: Live) -> set[str]:
    """Return the ids of current memories that this session wrote since its context was last emptied.

    Of an agent's memories that are newer than the session's last indexed turn nobody knows yet who wrote them; they are
    among them until the next turns are indexed.
    """
    with index.begin_read():
        calls = session_turns.list_own_writes(index, principal.user, live)
        memories = list(_iter_alike(index, principal, calls))
        last_at = session_turns.find_last_time(index, principal.user, live.conversation)
    written_ids = {memory.memory_id for memory, call in memories if is_written_by(memory, call)}
    if last_at is None:
        return written_ids
    newest = memory_rows.list_recorded_since(index, principal.user, max(last_at, live.since_at or last_at))
    return written_ids | {memory.memory_id for memory in newest if memory.trust == "agent" and not memory.conversation}


def _iter_alike(index: IndexConnection, principal: Principal, calls: Iterable[str]) -> Iterator[tuple[Memory, str]]:
    """Yield memories that share words with a call, each with the call."""
    for call in calls:
        words = " ".join(dict.fromkeys(list_words(call)))
        for memory in memory_rows.find_by_words(index, principal, words, limit=N_LOOKED_AT):
            yield memory, call


def is_written_by(memory: Memory, call: str) -> bool:
    """Return True if a call holds a memory's words, or names the file that the memory is made of."""
    if memory.how not in _MADE_BY_CALLS:
        return False
    if memory.how == memory_events.FILE and memory.path.partition("/")[2].lower() in call.lower():
        return True
    memory_words, call_words = set(list_words(memory.text)), set(list_words(call))
    return bool(memory_words) and len(memory_words & call_words) >= MIN_SHARE * len(memory_words)
