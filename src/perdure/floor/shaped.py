"""What was said, shaped for a summary: a person's words as they were, an agent's in short, nothing of tools. Pure.

Secrets are masked before anything is shortened. What is too much leaves from the oldest end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Literal

from perdure.access.redact import mask
from perdure.capture.openings import is_command
from perdure.patterns import late
from perdure.text import ELLIPSIS, clip, one_line
from perdure.types import Span, Turn

MOST_CHARS = 30_000  # of one question, what was said alone (row F09)
RULES_CHARS = 200_000  # of what was said, that rules pick from: it costs no tokens, only time
AGENT_CHARS = 200  # of one answer of an agent (row F09)
TYPED_CHARS = 20_000  # a longer message was pasted, as in memories.statements
_PASTED_HEAD = 400  # characters of a pasted message that say what it is
_MARK_CHARS = 18
_UNMARKED = str.maketrans("", "", "*()\n")  # what would end a mark or a heading early
_FENCED = late(r"^ {0,3}(```+|~~~+)[^\n]*\n(.*?)(?:^ {0,3}\1[ \t]*$|\Z)", 0x10 | 0x08)  # DOTALL | MULTILINE


@dataclass(frozen=True, slots=True)
class Talk:
    """The session in which something was said."""

    runtime: str
    conversation: str
    project: str | None = None

    @property
    def mark(self) -> str:
        """Its id; of a long one its beginning, by which a person finds it, and its end, for one that begins alike.

        >>> Talk("codex", "019b2c3d-7e1f-7a00-8000-0123456789ab").mark
        '019b2c3d-7e1f…89ab'
        """
        name = self.conversation.translate(_UNMARKED)
        return name if len(name) <= _MARK_CHARS else f"{name[:13]}{ELLIPSIS}{name[-4:]}"

    @property
    def place(self) -> str:
        """The project's last name, on whatever system; "" where it has none."""
        return (self.project or "").replace("\\", "/").rstrip("/").rpartition("/")[2].translate(_UNMARKED)


@dataclass(frozen=True, slots=True)
class Said:
    """One message as a summary is made of it."""

    at: datetime
    author: Literal["person", "agent"]
    text: str  # masked; an agent's is one line
    talk: Talk
    span: Span


def shaped(turn: Turn) -> str:
    """The words of a turn that a summary is made of; "" for a tool's, a machine's, a summary or a mere call.

    >>> from perdure.types import Part
    >>> shaped(Turn("assistant", "agent", ((0, 9),), (Part("text", "Done.\\n```\\nx\\n```\\nAll pass."),)))
    'Done. [code: 1 lines] All pass.'
    """
    if turn.is_summary or turn.author not in ("person", "agent"):
        return ""
    if turn.author == "agent":
        said = _FENCED.sub(lambda found: f"[code: {found[2].count(chr(10))} lines]", turn.text("text"))
        return one_line(mask(said), AGENT_CHARS)
    return "\n\n".join(filter(None, (_typed(part.kind, part.text) for part in turn.parts)))


def _typed(kind: str, words: str) -> str:
    """One part of what a person sent: as it was typed, or that something was pasted."""
    if kind == "pasted":
        return f"[pasted: {len(words)} characters]"
    if kind != "text" or is_command(words):
        return ""
    said = mask(words).strip()
    if len(said) > TYPED_CHARS:
        return f"{clip(said, _PASTED_HEAD)} [pasted: {len(said)} characters]"
    return said


def newest(said: Iterable[Said], most_chars: int = MOST_CHARS) -> list[Said]:
    """The newest that fit into so many characters as `listed` writes them, oldest first."""
    kept: list[Said] = []
    talks: set[Talk] = set()
    left = most_chars
    for one in sorted(said, key=_order, reverse=True):
        left -= len(_line(one, None)) + 1
        left -= 0 if one.talk in talks else len(_head(one.talk)) + 2
        if left < 0:
            break
        talks.add(one.talk)
        kept.append(one)
    return kept[::-1]


def listed(said: Sequence[Said], zone: tzinfo | None) -> str:
    """What was said, session by session, that which began first at the top; times by the clock of a zone."""
    return "\n\n".join(
        "\n".join([_head(talk), *(_line(one, zone) for one in found)]) for talk, found in by_talk(said).items()
    )


def by_talk(said: Iterable[Said]) -> dict[Talk, list[Said]]:
    """Session -> what was said in it, oldest first."""
    found: dict[Talk, list[Said]] = {}
    for one in sorted(said, key=_order):
        found.setdefault(one.talk, []).append(one)
    return found


def spans(said: Iterable[Said], before: Iterable[Span] = ()) -> tuple[Span, ...]:
    """Where all of it stands, and what stood behind a text before: one stretch for each run.

    >>> spans([], [Span("r", 5, 9), Span("r", 0, 2), Span("q", 1, 3)])
    (Span(run_id='q', from_offset=1, to_offset=3), Span(run_id='r', from_offset=0, to_offset=9))
    """
    found: dict[str, tuple[int, int]] = {}
    for span in (*(Span(*span) for span in before), *(one.span for one in said)):
        low, high = found.get(span.run_id, (span.from_offset, span.to_offset))
        found[span.run_id] = min(low, span.from_offset), max(high, span.to_offset)
    return tuple(Span(run_id, low, high) for run_id, (low, high) in sorted(found.items()))


def _order(one: Said) -> tuple[datetime, str, int]:
    return one.at, one.span.run_id, one.span.from_offset


def _head(talk: Talk) -> str:
    where = f", project {talk.place}" if talk.place else ""
    return f"Session {talk.mark} ({talk.runtime}{where}):"


def _line(one: Said, zone: tzinfo | None) -> str:
    first, *rest = one.text.splitlines()
    return "\n".join([f"- {one.at.astimezone(zone):%Y-%m-%d %H:%M} {one.author}: {first}", *(f"  {x}" for x in rest)])
