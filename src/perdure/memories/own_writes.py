"""Find the memories that the agent of a session wrote in it, by whichever way: they stand in its context already.

The command line in the agent's shell, the MCP server and the memory tool do not know the session. But the session's
transcript holds the call, so the memory's words are looked for in the calls of the session.
"""

from __future__ import annotations

from datetime import timedelta

from perdure.archive import memory_events
from perdure.formats.call_text import list_words
from perdure.index import memory_rows, session_turns
from perdure.index.session_turns import OwnWrite
from perdure.index.store import IndexConnection
from perdure.types import Live, Memory, Principal

MIN_SHARE = 0.9  # of a memory's words that its call has: a shell's quotes may break one
MAX_CLOCK_GAP = timedelta(minutes=15)  # a memory's time may be so much before that of its call
N_SEARCHED = 3  # newest calls that made no new memory, and may have said an older one again
N_ALIKE = 8  # memories that are compared with one of them
_MADE_BY_CALLS = ("remembered", "edited", memory_events.FILE)  # values of `how`


def list_written_here(index: IndexConnection, principal: Principal, live: Live) -> set[str]:
    """Return the ids of current memories that this session wrote since its context was last emptied.

    Of an agent's memories that are newer than the session's last indexed turn nobody knows yet who wrote them; they are
    among them until the next turns are indexed.
    """
    with index.begin_read():
        last_at = session_turns.find_last_time(index, principal.user, live.conversation)
        if last_at is None:
            return set()
        writes = session_turns.list_own_writes(index, principal.user, live)
        first_at = min((write.stated_at - MAX_CLOCK_GAP for write in writes if write.stated_at), default=last_at)
        new_memories = memory_rows.list_recorded_since(index, principal.user, min(first_at, last_at))
        written_ids = _match(new_memories, writes)
        repeating = [write for write in writes if "remember" in write.text and not _match(new_memories, [write])]
        written_ids |= _find_said_again(index, principal, repeating[:N_SEARCHED])
    unknown_since = max(last_at, live.since_at or last_at)
    return written_ids | {m.memory_id for m in new_memories if m.trust == "agent" and m.recorded_at > unknown_since}


def _match(memories: list[Memory], writes: list[OwnWrite]) -> set[str]:
    """Return the ids of the memories that one of these calls wrote."""
    calls = [(write.text.lower(), frozenset(list_words(write.text))) for write in writes]
    return {memory.memory_id for memory in memories if any(is_written_by(memory, *call) for call in calls)}


def _find_said_again(index: IndexConnection, principal: Principal, writes: list[OwnWrite]) -> set[str]:
    """Return the ids of older memories that these calls said again."""
    written_ids = set[str]()
    for write in writes:
        words = " ".join(dict.fromkeys(list_words(write.text)))
        written_ids |= _match(memory_rows.find_by_words(index, principal, words, limit=N_ALIKE), [write])
    return written_ids


def is_written_by(memory: Memory, call: str, call_words: frozenset[str]) -> bool:
    """Return True if a call, in lower case, holds a memory's words, or names the file that the memory is made of."""
    if memory.how not in _MADE_BY_CALLS:
        return False
    if memory.how == memory_events.FILE and memory.path.partition("/")[2].lower() in call:
        return True
    memory_words = set(list_words(memory.text))
    return bool(memory_words) and len(memory_words & call_words) >= MIN_SHARE * len(memory_words)
