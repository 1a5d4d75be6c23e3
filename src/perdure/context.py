"""The context of one turn, for any model: C₀, the session so far, and beside the newest message M(I).

Computed afresh for every turn and never accumulated: the same message over the same memory gives the same context, byte
for byte. What stays the same within a session comes first, so that a provider's cache holds it; what changes with every
message (recall, the clock) stands behind the newest message. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure import text as words
from perdure.access import fence
from perdure.floor.layers import Layers
from perdure.recall.pack import render
from perdure.types import Recalled

Sent = Mapping[str, Any]  # one message as a provider's format has it


@dataclass(frozen=True, slots=True)
class Part:
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
    """What a model is to read for one message."""

    floor: Layers  # hand it to the next call: within a session C₀ stays as it was at its beginning
    message: str
    recalled: Recalled
    here: str  # time and place
    nonce: str
    window: tuple[Sent, ...] = ()  # the session's messages before this one, oldest first

    @property
    def block(self) -> str:
        """What was recalled for the message, fenced; "" for silence."""
        return fence.fenced([*map(render, self.recalled.cues)], self.nonce) if self.recalled.cues else ""

    @property
    def beside(self) -> str:
        """What stands behind the message: what was recalled for it, and time and place."""
        return "\n\n".join(filter(None, (self.block, self.here)))

    def anthropic(self) -> dict[str, Any]:
        """`system` and `messages` for the Messages API, with the cache's boundary behind C₀."""
        said = [{"type": "text", "text": self.message}, {"type": "text", "text": self.beside}]
        body: dict[str, Any] = {"messages": [*map(dict, self.window), {"role": "user", "content": said}]}
        if self.floor.text:
            kept = {"type": "text", "text": self.floor.text, "cache_control": {"type": "ephemeral"}}
            body = {"system": [kept], **body}
        return body

    def openai(self) -> dict[str, Any]:
        """`messages` for an endpoint that speaks like OpenAI's."""
        system = [{"role": "system", "content": self.floor.text}] if self.floor.text else []
        last = {"role": "user", "content": f"{self.message}\n\n{self.beside}"}
        return {"messages": [*system, *map(dict, self.window), last]}

    @property
    def parts(self) -> tuple[Part, ...]:
        """Everything in it, in order; layers of which there is nothing to say are left out."""
        found = [
            Part(one.name, one.source, one.said, one.n_tokens, True, one.n_rows, one.n_left, one.alerts)
            for one in self.floor.layers
            if one.text or one.alerts or one.n_left
        ]
        said = "\n\n".join(f"{sent.get('role', '?')}: {_plain(sent.get('content'))}" for sent in self.window)
        if said:
            found.append(Part("session", "the session", said, words.tokens(said), True, len(self.window)))
        found.append(Part("message", "the person", self.message, words.tokens(self.message), False, 1))
        if block := self.block:
            n_cues = len(self.recalled.cues)
            found.append(Part("recall", "memories and archive", block, words.tokens(block), False, n_cues))
        alerts, n_tokens = tuple(one.alert for one in self.floor.beside), words.tokens(self.here)
        found.append(Part("here", "the clock and this machine", self.here, n_tokens, False, 1, alerts=alerts))
        return tuple(found)

    @property
    def n_tokens(self) -> int:
        """About how many tokens all of it has."""
        return sum(part.n_tokens for part in self.parts)


def _plain(content: Any) -> str:
    """The text of a message's content, whichever format it has."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "\n".join(
            str(item.get("text", f"[{item.get('type', '?')}]")) for item in content if isinstance(item, Mapping)
        )
    return ""
