"""What the tiers keep in a Redis-compatible server: the ledger, the checkpoint, the cache of the summary.

Everything here lives for seven days after the last write. The server is no truth: the home's archive is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.errors import PackageMissing, UsageError
from perdure.workflow.tier_queue import map_client_errors
from perdure.workflow.turns import WorkflowTurn, to_name_part

_NAME = "the Redis-compatible server"  # in messages
TTL_S = 7 * 86_400
_CONNECT_S, _ANSWER_S = 1.0, 5.0
_PAGE = 1_000  # entries that one call reads
# A stream has no conditional append. The script runs as one step, so a turn that is sent twice is in the stream once.
_APPEND = """
if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then return '' end
local entry_id = redis.call('XADD', KEYS[1], '*', unpack(ARGV, 3))
redis.call('SADD', KEYS[2], ARGV[1])
redis.call('EXPIRE', KEYS[1], ARGV[2])
redis.call('EXPIRE', KEYS[2], ARGV[2])
return entry_id
"""


def connect(redis_store: Any) -> Any:
    """Return the client of a store: an address, or a client that the caller has. Nothing is sent yet.

    Raises PackageMissing without redis-py, UsageError for an asynchronous client, or an address that is none.
    """
    if not isinstance(redis_store, str):
        if type(redis_store).__module__.partition(".")[2].startswith("asyncio"):
            raise UsageError("redis_store: give a synchronous client (redis.Redis) or an address, not an asyncio one")
        return redis_store
    try:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ModuleNotFoundError as error:
        raise PackageMissing("pip install 'perdure[workflow]'") from error
    limits = {"socket_connect_timeout": _CONNECT_S, "socket_timeout": _ANSWER_S}
    try:  # the tier's own queue tries again
        return redis.Redis.from_url(redis_store, retry=Retry(NoBackoff(), 0), **limits)
    except ValueError as error:
        raise UsageError(f"redis_store: {error}") from error


class RedisStore:
    """The keys of one workflow in a Redis-compatible server."""

    def __init__(self, client: Any, workflow_id: str, *, step_id: str, user: str = "") -> None:
        """user: part of every key, where one is set."""
        self._client = client
        workflow = to_name_part(workflow_id)
        workflow = f"{to_name_part(user)}:{workflow}" if user else workflow
        self.ledger_key = f"ledgers:{workflow}"
        self.summary_key = f"ltm:{workflow}"
        self.checkpoint_key = f"checkpoint:{workflow}:{to_name_part(step_id)}"

    # the ledger -----------------------------------------------------------------------------------------

    def append_turns(self, turns: Sequence[WorkflowTurn]) -> None:
        """Append turns to the ledger, each once, and let the ledger live for seven days more."""
        keys = (self.ledger_key, f"{self.ledger_key}:keys")
        for turn in turns:
            fields = [part for pair in turn.to_fields().items() for part in pair]
            with map_client_errors(_NAME):
                self._client.eval(_APPEND, len(keys), *keys, turn.key, TTL_S, *fields)

    def append_missing(self, turns: Sequence[WorkflowTurn]) -> None:
        """Append those of these turns that the ledger has not got."""
        with map_client_errors(_NAME):
            flags = self._client.smismember(f"{self.ledger_key}:keys", [turn.key for turn in turns])
        self.append_turns([turn for turn, is_there in zip(turns, flags, strict=True) if not is_there])

    def read_tail(self, count: int) -> list[WorkflowTurn]:
        """Return the newest turns, oldest first; reads no others."""
        if count <= 0:
            return []
        with map_client_errors(_NAME):
            rows = self._client.xrevrange(self.ledger_key, count=count)
        return [turn for _, turn in map(_to_turn, reversed(rows))]

    def read_after(self, entry_id: str) -> list[tuple[str, WorkflowTurn]]:
        """Return (entry id, turn) of all turns after an entry of the ledger; "" for all."""
        rows: list[tuple[str, WorkflowTurn]] = []
        while True:
            with map_client_errors(_NAME):
                page = self._client.xrange(self.ledger_key, min=f"({entry_id}" if entry_id else "-", count=_PAGE)
            rows += map(_to_turn, page)
            if len(page) < _PAGE:
                return rows
            entry_id = rows[-1][0]

    # single values --------------------------------------------------------------------------------------

    def set_text(self, key: str, text: str) -> None:
        """Set a value for seven days."""
        with map_client_errors(_NAME):
            self._client.set(key, text, ex=TTL_S)

    def get_text(self, key: str) -> str | None:
        """Return a value, or None."""
        with map_client_errors(_NAME):
            value = self._client.get(key)
        return None if value is None else _to_text(value)

    def delete(self, key: str) -> None:
        """Delete a value."""
        with map_client_errors(_NAME):
            self._client.delete(key)


def _to_turn(row: Any) -> tuple[str, WorkflowTurn]:
    entry_id, fields = row
    texts = {_to_text(name): _to_text(value) for name, value in fields.items()}
    tokens = int(texts.pop("tokens", "0"))
    return _to_text(entry_id), WorkflowTurn(tokens=tokens, **{name: texts.get(name, "") for name in _TEXT_FIELDS})


_TEXT_FIELDS = ("turn_id", "timestamp", "thought", "action", "result")


def _to_text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
