"""The digest of what an index says, whatever the order in which it learnt it. Two homes with equal digests hold
the same: runs, turns, texts, facets, branches, memories, and what was mined, put beside messages, used and measured,
by their ids, without row numbers, times of capture or paths.
"""

from __future__ import annotations

import hashlib

from perdure.index.store import Connection

_RUNS = """SELECT run_id, captured_in, thread, owner.value, runtime.value, machine.value, agent.value,
    nullif(project.value, ''), conversation.value, session, generation, from_offset, to_offset, started_ms, ended_ms,
    parent_run_id, parent_session, fork, title, intent, n_turns, n_user, n_assistant, n_tool, run.n_calls, n_tokens,
    n_forgotten
  FROM run JOIN name AS owner ON owner.id = run.user JOIN name AS runtime ON runtime.id = run.runtime
    JOIN name AS machine ON machine.id = run.machine JOIN name AS agent ON agent.id = run.agent
    JOIN name AS conversation ON conversation.id = run.conversation
    JOIN name AS project ON project.id = run.project
  ORDER BY run_id"""
_TURNS = """SELECT turn_id, copy_key, run.run_id, role, author, stated_ms, model, turn.n_tokens, is_summary, abandoned
  FROM turn JOIN run ON run.id = turn.run ORDER BY turn_id"""
_CHUNKS = """SELECT turn_id, n, kind.value, text FROM chunk JOIN chunk_text ON chunk_text.id = chunk.id
    JOIN turn ON turn.id = chunk.turn JOIN name AS kind ON kind.id = chunk.kind ORDER BY turn_id, n"""
_FACETS = """SELECT turn_id, kind, value FROM turn_facet JOIN facet ON facet.id = turn_facet.facet
    JOIN turn ON turn.id = turn_facet.turn ORDER BY turn_id, kind, value"""

_MEMORIES = """SELECT owner.value, body FROM memory JOIN name AS owner ON owner.id = memory.user
  ORDER BY owner.value, memory_id"""
_MINED = """SELECT owner.value, source, from_offset, to_offset FROM mined JOIN name AS owner ON owner.id = mined.user
  ORDER BY owner.value, source, from_offset"""
_JUDGED = """SELECT owner.value, nonce FROM judged JOIN name AS owner ON owner.id = judged.user
  ORDER BY owner.value, nonce"""
_INJECTIONS = """SELECT owner.value, nonce, at_ms, session, n_turns, n_memories, n_used_turns, n_used_memories, used,
    body
  FROM injection JOIN name AS owner ON owner.id = injection.user ORDER BY owner.value, nonce"""
_TOLD = """SELECT owner.value, nonce, cue FROM told JOIN injection ON injection.id = told.injection
    JOIN name AS owner ON owner.id = told.user ORDER BY owner.value, nonce, cue"""
_MEASURED = """SELECT owner.value, place, at_ms, body FROM measured JOIN name AS owner ON owner.id = measured.user
  ORDER BY owner.value, place"""
_QUERIES = _RUNS, _TURNS, _CHUNKS, _FACETS, _MEMORIES, _MINED, _JUDGED, _INJECTIONS, _TOLD, _MEASURED


def digest(index: Connection) -> str:
    """64 hex digits over the logical content of an index."""
    found = hashlib.sha256()
    with index.reading():
        for query in _QUERIES:
            for row in index.db.execute(query):
                found.update(repr(row).encode("utf-8", "surrogatepass"))
    return found.hexdigest()
