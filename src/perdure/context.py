"""The context of one turn, for any model: C₀, the session so far, and M(I) beside the newest message.

It is computed again for every turn and never accumulated: the same message over the same memory gives the
same context, byte for byte. Parts that stay the same within a session come first, so that a provider's
cache holds them; parts that change with every message (recall, the clock) come after the newest message.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure import text
from perdure.access import fence
from perdure.floor.layers import Layers
from perdure.recall.pack import render_cue
from perdure.types import Recalled

WindowMessage = Mapping[str, Any]  # one message in a provider's format


@dataclass(frozen=True, slots=True)
class ContextPart:
    """One part of a context, as it is shown and billed."""

    name: str
    source: str  # where it comes from
    text: str
    n_tokens: int
    is_cacheable: bool  # stays the same within a session
    n_rows: int = 0
    n_left: int = 0
    alerts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Context:
    """The input of a model for one message."""

    floor: Layers  # pass it to the next call: within a session C₀ stays the same
    message: str
    recalled: Recalled
    location_line: str  # time and location, on one line
    nonce: str
    window: tuple[WindowMessage, ...] = ()  # the session's messages before this one, oldest first

    @property
    def block(self) -> str:
        """The fenced block of recalled cues; "" if there are none."""
        return fence.fence_items([*map(render_cue, self.recalled.cues)], self.nonce) if self.recalled.cues else ""

    @property
    def message_suffix(self) -> str:
        """The text after the message: the recalled block, and time and location."""
        return "\n\n".join(filter(None, (self.block, self.location_line)))

    def anthropic(self) -> dict[str, Any]:
        """Return `system` and `messages` for the Messages API, with the cache boundary after C₀."""
        message_blocks = [{"type": "text", "text": self.message}, {"type": "text", "text": self.message_suffix}]
        body: dict[str, Any] = {"messages": [*map(dict, self.window), {"role": "user", "content": message_blocks}]}
        if self.floor.text:
            system_block = {"type": "text", "text": self.floor.text, "cache_control": {"type": "ephemeral"}}
            body = {"system": [system_block], **body}
        return body

    def openai(self) -> dict[str, Any]:
        """Return `messages` for an endpoint that is compatible with OpenAI's."""
        system = [{"role": "system", "content": self.floor.text}] if self.floor.text else []
        last_message = {"role": "user", "content": f"{self.message}\n\n{self.message_suffix}"}
        return {"messages": [*system, *map(dict, self.window), last_message]}

    @property
    def parts(self) -> tuple[ContextPart, ...]:
        """All parts, in order; layers with nothing to show are left out."""
        parts = [
            ContextPart(
                layer.name,
                layer.source,
                layer.headed_text,
                layer.n_tokens,
                True,
                layer.n_rows,
                layer.n_left,
                layer.alerts,
            )
            for layer in self.floor.layers
            if layer.text or layer.alerts or layer.n_left
        ]
        window_text = "\n\n".join(
            f"{window_message.get('role', '?')}: {_to_plain_text(window_message.get('content'))}"
            for window_message in self.window
        )
        if window_text:
            parts.append(
                ContextPart("session", "the session", window_text, text.tokens(window_text), True, len(self.window))
            )
        parts.append(ContextPart("message", "the person", self.message, text.tokens(self.message), False, 1))
        if block := self.block:
            n_cues = len(self.recalled.cues)
            parts.append(ContextPart("recall", "memories and archive", block, text.tokens(block), False, n_cues))
        alerts, n_tokens = tuple(layer.alert for layer in self.floor.suspect_facts), text.tokens(self.location_line)
        parts.append(
            ContextPart("here", "the clock and this machine", self.location_line, n_tokens, False, 1, alerts=alerts)
        )
        return tuple(parts)

    @property
    def n_tokens(self) -> int:
        """The approximate number of tokens."""
        return sum(part.n_tokens for part in self.parts)


def _to_plain_text(content: Any) -> str:
    """Return the text of a message's content, in any format."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "\n".join(
            str(item.get("text", f"[{item.get('type', '?')}]")) for item in content if isinstance(item, Mapping)
        )
    return ""
