"""The semantic tier over HTTP, under the paths and fields of Athena's memory service.

A session names a user of workflows (`tenant_id`) and an agent, and nothing else is kept of it: whoever opens another
one finds the same memory. The user of the home is that of the credential; `tenant_id` divides the memory of this user,
and reaches nobody else's.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, unquote

from perdure.session.log import make_id
from perdure.surfaces.http.calls import HttpCall
from perdure.surfaces.http.responses import HttpRefusal, HttpResponse
from perdure.types import Hit
from perdure.workflow.athena import DEFAULT_USER
from perdure.workflow.semantic_home import SemanticHome

_N_SESSION_PARTS = 3


def open_session(call: HttpCall) -> HttpResponse:
    """Return a session of an agent."""
    body = call.body
    agent = body.agent_id or body.user_id
    session = ":".join(quote(part, safe="") for part in (body.memory_user or DEFAULT_USER, agent, make_id("s")))
    return HttpResponse({"session_id": session, "created_at": datetime.now(UTC).isoformat()})


def store_event(call: HttpCall) -> HttpResponse:
    """Store one event of an agent, durably."""
    memory, agent = _open_memory(call)
    body, metadata = call.body, call.body.metadata
    turn_id = metadata.get("key") or metadata.get("turn_id")
    turn = {
        "turn_id": f"{turn_id}/{body.type}" if turn_id else "",
        "thought": body.content,
        "action": body.type,
        "timestamp": body.timestamp.isoformat() if body.timestamp else "",
        "workflow_id": metadata.get("workflow_id") or metadata.get("task_id") or "",
        "step_id": metadata.get("step_id") or "",
    }
    with contextlib.closing(memory):
        memory.store_turn(agent, turn)
    call.server.wake()
    return HttpResponse({"success": True, "event_id": ""})


def read_context(call: HttpCall) -> HttpResponse:
    """Return recent events and the hottest topics of an agent."""
    memory, agent = _open_memory(call)
    context = memory.get_memory_context(agent, limit=call.query.limit) or {}
    return HttpResponse(
        {
            "stm_events": [_to_event(event) for event in context.get("stm_events", ())],
            "relevant_pages": [_to_page(chain) for chain in context.get("mtm_chains", ())],
            "segments": [],
            "ltpm": {"status": "ok", "facts": context.get("ltm_facts", [])},
        }
    )


def search_context(call: HttpCall) -> HttpResponse:
    """Return the turns of an agent that answer a question."""
    memory, agent = _open_memory(call)
    hits = memory.search(agent, call.body.query, limit=call.body.limit)
    return HttpResponse({"results": [_to_result(hit) for hit in hits]})


def check_health(_: HttpCall) -> HttpResponse:
    """Say that the memory of the caller can be used."""
    return HttpResponse({"status": "healthy", "service": "perdure", "timestamp": datetime.now(UTC).isoformat()})


def _open_memory(call: HttpCall) -> tuple[SemanticHome, str]:
    """Return the memory that a session names, and its agent. Raises HttpRefusal."""
    parts = [unquote(part) for part in unquote(call.path_params["session_id"]).split(":")]
    if len(parts) != _N_SESSION_PARTS or not all(parts):
        raise HttpRefusal(404, "not-found", "There is no such session. Open one with POST /api/v1/sessions.")
    user, agent, _ = parts
    return SemanticHome(call.home, user="" if user == DEFAULT_USER else user), agent


def _to_event(event: dict[str, Any]) -> dict[str, Any]:
    words = [event["thought"], f"{event['action']}: {event['result']}" if event["result"] else ""]
    metadata = {"workflow_id": event["workflow_id"]}
    if "taken_back" in event:
        metadata["taken_back"] = event["taken_back"]
    return {
        "role": "agent",
        "type": event["action"] if event["action"] in ("message", "thought", "action", "observation") else "action",
        "content": "\n".join(filter(None, words)) or event["action"],
        "timestamp": event["timestamp"],
        "metadata": metadata,
    }


def _to_page(chain: dict[str, Any]) -> dict[str, Any]:
    lines = [chain["summary"], *(f"Taken back: {line}" for line in chain["taken_back"])]
    return {
        "id": chain["id"],
        "topic": chain["topic"],
        "summary": "\n".join(filter(None, lines)),
        "timestamp": chain["ended_at"],
        "metadata": {"heat_score": str(chain["heat"]), "n_turns": str(chain["n_turns"])},
    }


def _to_result(hit: Hit) -> dict[str, Any]:
    return {
        "content": hit.text,
        "similarity_score": hit.score,
        "source_type": "turn",
        "source_id": hit.turn_id,
        "timestamp": hit.stated_at.isoformat() if hit.stated_at else "",
    }
