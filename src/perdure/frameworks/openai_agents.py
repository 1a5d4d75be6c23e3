"""A `Session` of the OpenAI Agents SDK in a home: its items outlive the process, and what was said is captured.

Items lie in the state file of the user, exactly as the SDK gave them; messages, calls and results are captured as turns
beside them, so that search and recall of any later session find them. `pop_item` and `clear_session` change what the
model reads next, not what was said: only `perdure forget` deletes that. The SDK itself is not imported: its protocol is
a matter of shape.
"""

from __future__ import annotations

import dataclasses
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perdure.context import Context
from perdure.errors import UsageError
from perdure.floor.layers import Layers
from perdure.frameworks.home_calls import HomeCaller, HomeCalls
from perdure.frameworks.json_value import to_json
from perdure.home import Home
from perdure.state.store import SessionItem, StateFile
from perdure.types import Live

_ID_BYTES = 12  # as 24 hex digits: the format takes a shorter id for a number within its conversation


class PerdureSession(HomeCaller):
    """The history of one conversation. Two processes may add to it at once."""

    session_settings: Any = None

    def __init__(self, session_id: str, home: Home, *, cwd: str | None = None) -> None:
        """session_id: the same one continues the conversation. cwd: the folder whose project it is about."""
        if not session_id.strip():
            raise UsageError("a session needs an id")
        self.session_id = session_id
        self._home = HomeCalls(home)
        self._cwd = cwd
        self._context: Context | None = None  # of the newest message
        self._floor: Layers | None = None  # as it stood before the first item of this process

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the items, oldest first. limit: the newest so many."""
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        items = await self._home.run_async(lambda _, state: state.list_session_items(self.session_id, limit=limit))
        return [json.loads(item.body) for item in items]

    async def add_items(self, items: Sequence[Any]) -> None:
        """Append items; they are on disk, and captured, when this returns. Raises UsageError for what is not JSON."""
        rows = [SessionItem(secrets.token_hex(_ID_BYTES), to_json(item, "the item"), False) for item in items]
        await self._home.run_async(lambda home, state: self._add(home, state, rows))

    def _add(self, home: Home, state: StateFile, rows: Sequence[SessionItem]) -> None:
        """Append, then capture: what a killed process did not capture any more comes first."""
        self._read_floor(home)
        state.add_session_items(self.session_id, rows)
        waiting = [item for item in state.list_session_items(self.session_id) if not item.is_captured]
        messages = to_messages((item.id, json.loads(item.body)) for item in waiting)
        if messages:
            home.capture_messages(messages, session=self.session_id, cwd=self._cwd)
        state.set_captured(item.id for item in waiting)

    async def pop_item(self) -> Any | None:
        """Remove the newest item, and return it; None if there is none."""
        item = await self._home.run_async(lambda _, state: state.pop_session_item(self.session_id))
        return json.loads(item.body) if item else None

    async def clear_session(self) -> None:
        """Remove all items."""
        await self._home.run_async(lambda _, state: state.clear_session(self.session_id))

    async def add_recall(self, data: Any) -> Any:
        """Put what matters behind the newest message of a request, and the floor behind the instructions.

        For `RunConfig(call_model_input_filter=session.add_recall)`. Into the request only, never into the items.
        """
        sent = data.model_data
        places = [n for n, item in enumerate(sent.input) if item.get("role") == "user"]
        message = read_text(sent.input[places[-1]].get("content")) if places else ""
        if not message:
            return sent
        context = await self._home.run_async(lambda home, _: self._find_context(home, message))
        newest, suffix = dict(sent.input[places[-1]]), context.message_suffix
        if isinstance(newest["content"], str):
            newest["content"] = f"{message}\n\n{suffix}"
        else:
            newest["content"] = [*newest["content"], {"type": "input_text", "text": suffix}]
        changed = [*sent.input[: places[-1]], newest, *sent.input[places[-1] + 1 :]]
        instructions = "\n\n".join(filter(None, (sent.instructions, context.floor.text)))
        return dataclasses.replace(sent, input=changed, instructions=instructions or None)

    def _find_context(self, home: Home, message: str) -> Context:
        """Recall once for each message: the calls of one turn read the same."""
        if self._context is None or self._context.message != message:
            floor = self._read_floor(home)
            self._context = home.context(message, floor=floor, cwd=self._cwd, session=Live(self.session_id))
        return self._context

    def _read_floor(self, home: Home) -> Layers:
        """Read it once: what stands before a session stays as it is, for the provider's cache."""
        if self._floor is None:
            self._floor = home.floor.layers(cwd=self._cwd)
        return self._floor


def read_text(content: Any) -> str:
    """Return the text of an item's content."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    texts = (block.get("text") or block.get("refusal") for block in blocks if isinstance(block, Mapping))
    return "\n".join(text for text in texts if isinstance(text, str))


def to_messages(items: Iterable[tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return the messages of a chat that items of the Responses API stand for. items: an id for each, and the item.

    What has no words and calls nothing (a reference, an encrypted thought) is left out.
    """
    messages = []
    for name, item in items:
        if message := _to_message(item):
            messages.append({"id": name, **message})
    return messages


def _to_message(item: Mapping[str, Any]) -> dict[str, Any] | None:
    kind = item.get("type", "message")
    if kind == "message" and item.get("role"):
        return {"role": item["role"], "content": read_text(item.get("content"))}
    if kind == "function_call":
        function = {"name": item.get("name", ""), "arguments": item.get("arguments", "")}
        call = {"id": item.get("call_id", ""), "type": "function", "function": function}
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    if kind == "function_call_output":
        output = item.get("output", "")
        words = output if isinstance(output, str) else read_text(output)
        return {"role": "tool", "tool_call_id": item.get("call_id", ""), "content": words}
    if kind == "reasoning" and (thought := read_text(item.get("summary"))):
        return {"role": "assistant", "content": "", "reasoning": thought}
    return None
