"""One turn of a workflow, its names in the tiers, and how a bundle shows it. Pure.

A tier keeps whole texts. What is read for a model is abridged, and says how much of it is shown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

import msgspec

from perdure.access.redact import mask
from perdure.errors import UsageError

MAX_FIELD_CHARS = 2_000  # of one text of a turn in a bundle
MAX_TURNS_CHARS = 24_000  # of all recent turns in a bundle, about 6,000 tokens
MAX_NOTES_CHARS = 12_000  # of the scratchpad in a bundle
_MIN_FIELD_CHARS = 200
_MASKED_CHARS = 20_000  # of a text that are looked at for secrets: many more than are shown
_CUT_CHARS = 1_000  # of those that are not shown: a secret that was cut off is not known as one
_N_TEXTS = 3  # of a turn: thought, action, result
_MAX_PART_CHARS = 120  # of a file's name; a longer one ends in a hash


class WorkflowTurn(msgspec.Struct, frozen=True, kw_only=True):
    """What one agent thought, did and got in one turn."""

    turn_id: str  # unique within the step
    timestamp: str  # ISO 8601, UTC
    thought: str
    action: str  # name of a tool, of a sub-agent, or a kind of decision
    result: str
    tokens: int
    step: str = ""
    agent: str = ""

    @property
    def key(self) -> str:
        """The name of the turn in every tier. A turn that is told again has the same one, at whatever time."""
        told = (self.step, self.agent, self.turn_id, self.thought, self.action, self.result, self.tokens)
        return hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:32]

    @property
    def at_ns(self) -> int:
        """The time of the turn in nanoseconds since 1970."""
        return round(datetime.fromisoformat(self.timestamp).timestamp() * 1_000_000) * 1_000

    def to_fields(self) -> dict[str, Any]:
        """Return the six fields of an entry of the ledger."""
        return {
            "turn_id": self.turn_id,
            "timestamp": self.timestamp,
            "thought": self.thought,
            "action": self.action,
            "result": self.result,
            "tokens": self.tokens,
        }


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(WorkflowTurn).decode


def encode_turn(turn: WorkflowTurn) -> bytes:
    """Return a turn as one line of JSON, without its newline."""
    return _encode(turn)


def decode_turns(lines: Iterable[bytes]) -> list[WorkflowTurn]:
    """Return the turns of these lines, each once; a line that a crash cut off is none."""
    turns: dict[str, WorkflowTurn] = {}
    for line in lines:
        try:
            turn = _decode(line)
        except msgspec.DecodeError:
            continue
        turns.setdefault(turn.key, turn)
    return list(turns.values())


def make_turn(
    turn_id: str, *, thought: str, action: str, result: str, tokens: int, step: str, agent: str, now: datetime
) -> WorkflowTurn:
    """Return a turn whose texts every tier can store: half of a pair of surrogates becomes a question mark."""
    texts = [clean_text(text) for text in (turn_id, thought, action, result, step, agent)]
    return WorkflowTurn(
        turn_id=texts[0],
        timestamp=now.isoformat(timespec="microseconds"),
        thought=texts[1],
        action=texts[2],
        result=texts[3],
        tokens=int(tokens),
        step=texts[4],
        agent=texts[5],
    )


def clean_text(text: str) -> str:
    """Return a text that every tier can store."""
    return text.encode("utf-8", "replace").decode()


def to_name_part(text: str) -> str:
    """Return an id as a part of a key or a path; two ids never have the same one.

    Raises UsageError for an empty id.

    >>> to_name_part("wf-abc123"), to_name_part("../a:b")
    ('wf-abc123', '=2E.=2Fa=3Ab')
    """
    if not text:
        raise UsageError("a workflow, a step and an agent need a name")
    part = quote(text, safe="", errors="replace").replace("%", "=")  # "=" itself is quoted, so this goes one way
    part = "=2E" + part[1:] if part.startswith(".") else part
    if len(part) <= _MAX_PART_CHARS:
        return part
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]
    return f"{part[: _MAX_PART_CHARS - 34]}=.{digest}"


# what a bundle shows --------------------------------------------------------------------------------------------


def abridge(text: str, max_chars: int) -> str:
    """Return a text, or its beginning and how much of it that is.

    >>> abridge("abcdef", 4)
    'abcd… (showing 4 of 6 characters)'
    """
    return (
        text if len(text) <= max_chars else f"{text[:max_chars]}… (showing {max_chars:,} of {len(text):,} characters)"
    )


def abridge_masked(text: str, max_chars: int) -> str:
    """Return a text as `abridge` does, with secrets masked. Of a long one only the beginning is looked at.

    >>> abridge_masked("password=hunter2hunter2 is it", 100)
    'password=[secret:password] is it'
    """
    if len(text) <= _MASKED_CHARS:
        return abridge(mask(text), max_chars)
    beginning = mask(text[:_MASKED_CHARS])[:-_CUT_CHARS][:max_chars]
    return f"{beginning}… (showing {len(beginning):,} of {len(text):,} characters)"


def abridge_turns(turns: Sequence[WorkflowTurn]) -> list[WorkflowTurn]:
    """Return the turns with short texts, secrets masked: together at most MAX_TURNS_CHARS for up to 40 turns."""
    max_chars = MAX_TURNS_CHARS // (_N_TEXTS * max(1, len(turns)))
    max_chars = min(MAX_FIELD_CHARS, max(_MIN_FIELD_CHARS, max_chars))
    return [
        msgspec.structs.replace(
            turn,
            turn_id=abridge(turn.turn_id, _MIN_FIELD_CHARS),
            thought=abridge_masked(turn.thought, max_chars),
            action=abridge_masked(turn.action, max_chars),
            result=abridge_masked(turn.result, max_chars),
        )
        for turn in turns
    ]


def render_turn(turn: WorkflowTurn) -> str:
    """Return a turn as Markdown; a text that is empty has no line.

    Further lines of a text are indented: none of them can pass for a heading or a line of this form.
    """
    heading = f"### {_indent(turn.turn_id)} ({turn.timestamp[:19]}Z, {turn.tokens} tokens)\n\n"
    rows = [("Thought", turn.thought), ("Action", turn.action), ("Result", turn.result)]
    return heading + "\n".join(f"- **{label}:** {_indent(text)}" for label, text in rows if text)


def _indent(text: str) -> str:
    return "\n  ".join(text.splitlines())


def render_notes(turns: Sequence[WorkflowTurn], *, has_earlier: bool = False) -> str:
    """Return the scratchpad as Markdown: the newest turns that fit, oldest first; "" for none.

    has_earlier: there are turns before these.
    """
    blocks: list[str] = []
    n_chars = 0
    for turn in reversed(abridge_turns(turns)):
        block = abridge(render_turn(turn), MAX_NOTES_CHARS)
        n_chars += len(block)
        if blocks and n_chars > MAX_NOTES_CHARS:
            has_earlier = True
            break
        blocks.append(block)
    if not blocks:
        return ""
    note = [f"(the newest {len(blocks)} notes of this step; earlier ones are left out)"] if has_earlier else []
    return "\n\n".join([*note, *reversed(blocks)])
