"""A client of an Athena server: the semantic tier where it is a service over HTTP, at Perdure's own server or another.

The paths and fields are those of Athena's memory service (docs/workflow.md); a home that is served answers the same
ones. Nothing is sent before the first call. A session is opened at the first use of an agent, kept for the client's
life, and where a Redis-compatible server is given for 30 days; a session that could not be opened is tried again with
the next call.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from perdure import environ
from perdure.delivery.http_request import parse_url, send_request
from perdure.errors import DeliveryFault, TierFault
from perdure.workflow.redis_store import connect
from perdure.workflow.tier_queue import map_client_errors
from perdure.workflow.turns import to_name_part

URL_VARIABLE, USER_VARIABLE, KEY_VARIABLE = "ATHENA_URL", "ATHENA_TENANT_ID", "ATHENA_API_KEY"
DEFAULT_USER = "default"  # the workflows of a home without a user
SESSION_TTL_S = 30 * 86_400  # in a Redis-compatible server
_ANSWER_S = 10.0
_MAX_ANSWER_BYTES = 4_000_000
_MAX_SENT = 10_000  # newest events that are known to be there
_NOT_FOUND = 404
_ORIGIN = "perdure"


def get_athena_client() -> AthenaClient | None:
    """Return the client that the environment names, or None where ATHENA_URL is not set.

    ATHENA_TENANT_ID says whose memory it is ("default" without it). ATHENA_API_KEY is sent as `X-API-Key`; Perdure's
    own server needs one: the secret that `perdure machine register` printed. Raises ConfigFault for a URL that is none.
    """
    url = (environ.read_variable(URL_VARIABLE) or "").strip()
    if not url:
        return None
    user = environ.read_variable(USER_VARIABLE) or DEFAULT_USER
    return AthenaClient(url, user=user, api_key=environ.read_variable(KEY_VARIABLE) or "")


class AthenaClient:
    """The sessions of agents at one server. Any thread may use it."""

    def __init__(self, url: str, *, user: str = DEFAULT_USER, api_key: str = "") -> None:
        """url: like http://localhost:8080. user: whose memory it is; Athena's word is `tenant_id`. Nothing is sent yet.

        Raises ConfigFault.
        """
        self.url, self.tenant_id = url.rstrip("/"), user
        parse_url(self.url, setting="ATHENA", plain=True)
        self._headers = {"Content-Type": "application/json"} | ({"X-API-Key": api_key} if api_key else {})
        self._sessions: dict[str, str] = {}
        self._sent: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._lock = threading.Lock()

    # sessions -------------------------------------------------------------------------------------------

    def open_session(self, agent_id: str, redis_store: Any = None) -> str:
        """Return the session of an agent; open it at the first call. Raises TierFault, and then the next call tries
        again.

        redis_store: an address or a client, in which the session is kept for other processes.
        """
        with self._lock:
            if agent_id not in self._sessions:
                self._sessions[agent_id] = self._find_or_open(agent_id, redis_store)
            return self._sessions[agent_id]

    def _find_or_open(self, agent_id: str, redis_store: Any) -> str:
        key = f"athena_session:{to_name_part(self.tenant_id)}:{to_name_part(agent_id)}"
        redis = connect(redis_store) if redis_store is not None else None
        if redis is not None:
            with map_client_errors("the Redis-compatible server"):
                stored = redis.get(key)
            if stored:
                return stored.decode() if isinstance(stored, bytes) else str(stored)
        body = {
            "tenant_id": self.tenant_id,
            "user_id": agent_id,
            "agent_id": agent_id,
            "metadata": {"agent_id": agent_id, "origin_service": _ORIGIN},
        }
        answer = self._ask("/api/v1/sessions", body)
        session = str(answer.get("session_id") or answer.get("sessionId") or "")
        if not session:
            raise TierFault("athena: the answer names no session")
        if redis is not None:
            with map_client_errors("the Redis-compatible server"):
                redis.set(key, session, ex=SESSION_TTL_S)
        return session

    # the semantic tier ----------------------------------------------------------------------------------

    def store_turn(self, agent_id: str, turn: Mapping[str, Any]) -> None:
        """Store what an agent thought, and what its action brought, as two events. Raises TierFault.

        What was sent is not sent again, also if the second of them failed.
        """
        outcome = f"{turn.get('action') or ''}: {turn.get('result') or ''}".strip(": ")
        names = ("workflow_id", "step_id", "turn_id", "key")
        metadata = {name: str(turn[name]) for name in names if turn.get(name)}
        timestamp = str(turn.get("timestamp") or "")
        for event_type, content in (("thought", str(turn.get("thought") or "")), ("observation", outcome)):
            sent = (str(turn.get("key") or ""), event_type)
            if content and not (sent[0] and sent in self._sent):
                self.store_event(agent_id, event_type, content, metadata=metadata, timestamp=timestamp)
                self._sent[sent] = None
                if len(self._sent) > _MAX_SENT:
                    self._sent.popitem(last=False)

    def store_event(
        self,
        agent_id: str,
        event_type: str,
        content: str,
        *,
        metadata: Mapping[str, str] | None = None,
        timestamp: str = "",
    ) -> None:
        """Store one event of an agent. event_type: message, thought, action or observation. Raises TierFault."""
        own = {"tenant_id": self.tenant_id, "agent_id": agent_id, "origin_service": _ORIGIN}
        body: dict[str, Any] = {
            "role": "agent",
            "type": event_type,
            "content": content,
            "metadata": own | dict(metadata or {}),
        }
        if timestamp:
            body["timestamp"] = timestamp
        self._ask_session(agent_id, "events", body)

    def get_memory_context(self, agent_id: str, *, limit: int = 15) -> dict[str, Any] | None:
        """Return recent events and topics of an agent, in the form of `SemanticHome`, or None if there is nothing.

        Topics keep the order of the server: of Perdure by heat, of Athena by time. Raises TierFault.
        """
        if limit <= 0:
            return None
        answer = self._ask_session(agent_id, f"context?{urlencode({'limit': limit})}", None)
        events = answer.get("stm_events") or answer.get("stmEvents") or []
        pages = answer.get("relevant_pages") or answer.get("relevantPages") or []
        if not events and not pages:
            return None
        chains = [_to_chain(page) for page in pages if isinstance(page, dict)]
        heat = max((chain["heat"] for chain in chains), default=0.0)
        return {"stm_events": events[-limit:], "mtm_chains": chains, "heat_score": heat}

    def search(self, agent_id: str, query: str, *, limit: int = 5) -> list[dict[str, Any]]:
        """Return what answers a question, best first: content, similarity_score, source_type, source_id, timestamp.

        Raises TierFault.
        """
        answer = self._ask_session(agent_id, "context/search", {"query": query, "limit": limit})
        rows = [row for row in answer.get("results") or [] if isinstance(row, dict)]
        return [
            {
                "content": str(row.get("content") or ""),
                "similarity_score": _to_number(row.get("similarity_score", row.get("similarityScore"))),
                "source_type": str(row.get("source_type") or row.get("sourceType") or ""),
                "source_id": str(row.get("source_id") or row.get("sourceId") or ""),
                "timestamp": str(row.get("timestamp") or ""),
            }
            for row in rows[:limit]
        ]

    # requests -------------------------------------------------------------------------------------------

    def _ask_session(self, agent_id: str, rest: str, body: dict[str, Any] | None) -> dict[str, Any]:
        """Ask in the session of an agent; a session that the server no longer knows is opened again, once."""
        session = self.open_session(agent_id)
        try:
            return self._ask(f"/api/v1/sessions/{quote(session, safe='')}/{rest}", body)
        except _SessionGone:
            with self._lock:
                self._sessions.pop(agent_id, None)
            session = self.open_session(agent_id)
            return self._ask(f"/api/v1/sessions/{quote(session, safe='')}/{rest}", body)

    def _ask(self, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        url = parse_url(self.url + path, setting="ATHENA", plain=True)
        data = None if body is None else msgspec.json.encode(body)
        try:
            answer = send_request(url, data, self._headers, limit_s=_ANSWER_S, max_bytes=_MAX_ANSWER_BYTES)
        except DeliveryFault as error:
            raise TierFault(f"athena: {error}") from error
        if answer.status == _NOT_FOUND and "/sessions/" in path:
            raise _SessionGone("athena: the session is not known any more")
        if not 200 <= answer.status < 300:
            raise TierFault(f"athena: status {answer.status}: {answer.body[:200].decode('utf-8', 'replace')}")
        try:
            return msgspec.json.decode(answer.body, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise TierFault("athena: the answer is no JSON object") from error


class _SessionGone(TierFault):
    """A session is not known to the server any more. The next call opens another one."""


def _to_chain(page: Mapping[str, Any]) -> dict[str, Any]:
    """Return a page of Athena as a chain of a context."""
    metadata = page.get("metadata") or {}
    return {
        "id": str(page.get("id") or ""),
        "topic": str(page.get("topic") or ""),
        "summary": str(page.get("summary") or ""),
        "heat": _to_number(metadata.get("heat_score", page.get("heat_score"))),
        "ended_at": str(page.get("timestamp") or ""),
    }


def _to_number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0


class AthenaMemory:
    """The memory of one agent at a server, for asynchronous programs."""

    def __init__(self, agent_id: str, client: Any) -> None:
        """client: with `store_event` and `get_memory_context`, as `AthenaClient` has them."""
        self.agent_id = agent_id
        self._client = client

    @classmethod
    async def create(cls, agent_id: str, client: AthenaClient, redis_store: Any = None) -> AthenaMemory:
        """Return the memory of an agent, with its session open. Raises TierFault; the next call tries again.

        redis_store: an address or a synchronous client, in which the session is kept for 30 days.
        """
        await asyncio.to_thread(client.open_session, agent_id, redis_store)
        return cls(agent_id, client)

    async def on_task_assigned(self, task_id: str, text: str, role: str) -> None:
        """Note that the agent got a task, in the role of. Raises TierFault."""
        metadata = {"task_id": task_id, "workflow_id": task_id, "assignee": role, "event": "task_assigned"}
        await self._store("action", f"Task assigned: {text}", metadata)

    async def on_task_completed(self, task_id: str, text: str, outcome: str = "") -> None:
        """Note that a task is done, and what came of it. Raises TierFault."""
        words = f"Task completed: {text}" + (f" — {outcome}" if outcome else "")
        metadata = {"task_id": task_id, "workflow_id": task_id, "event": "task_completed"}
        await self._store("observation", words, metadata)

    async def get_memory_context(self, limit: int = 15) -> dict[str, Any] | None:
        """Return at most `limit` recent events, and the topics of the agent. Raises TierFault."""
        return await asyncio.to_thread(self._client.get_memory_context, self.agent_id, limit=limit)

    async def search(self, query: str, limit: int = 5) -> list[dict[str, Any]]:
        """Return what answers a question, best first. Raises TierFault."""
        return await asyncio.to_thread(self._client.search, self.agent_id, query, limit=limit)

    async def _store(self, event_type: str, content: str, metadata: Mapping[str, str]) -> None:
        await asyncio.to_thread(self._client.store_event, self.agent_id, event_type, content, metadata=metadata)
