"""What the miner is shown of a session: its messages in order, in batches, each with the trust that it deserves. Pure.

A message of a batch is a turn of a person or an agent. What an agent says after it has read the web is worth no more
than the web, until a person speaks again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from perdure.memories.events import Batch
from perdure.patterns import late
from perdure.text import clip
from perdure.types import TRUSTS, Author, Span, Trust, Turn

SIZE = 10  # messages of a batch (row M04)
_FENCED = late(r"^ {0,3}(```+|~~~+)[^\n]*\n(.*?)(?:^ {0,3}\1[ \t]*$|\Z)", 0x10 | 0x08)  # DOTALL | MULTILINE
_WEB_TOOL = late(r"(?i)web|fetch|brows|https?|\burl|playwright|puppeteer|firecrawl|tavily|crawl|scrape|brave|google")
_WEB_COMMAND = late(r"(?i)https?://|\bcurl\b|\bwget\b")


@dataclass(frozen=True)
class Message:
    """One message as the miner sees it."""

    number: int  # its place in the batch, from 1
    author: Author
    text: str  # masked, without what was injected
    stated_at: datetime | None
    span: Span
    trust: Trust


def stretches(offsets: Sequence[int], mined: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Places of what is left, in batches of at most SIZE that no mined stretch cuts. offsets: of all messages, sorted.

    >>> stretches([0, 10, 20, 30], [(10, 20)]), stretches([0, 20], [(10, 15)])
    ([[0], [2, 3]], [[0], [1]])
    """
    known = sorted(mined)
    found: list[list[int]] = [[]]
    for n, offset in enumerate(offsets):
        if any(low <= offset < high for low, high in known):
            continue
        begun = found[-1]
        if len(begun) == SIZE or (begun and any(offsets[begun[-1]] < low < offset for low, _ in known)):
            found.append([])
        found[-1].append(n)
    return [batch for batch in found if batch]


def batch_of(source: str, first: Turn, last: Turn) -> Batch:
    """The stretch from one message to another: to behind the last one's first line, in which no other turn begins."""
    return Batch(source, first.offset, last.lines[0][1])


def span_of(run_id: str, turn: Turn) -> Span:
    """Where a turn is."""
    return Span(run_id, turn.offset, turn.lines[0][1])


def reads_the_web(turn: Turn) -> bool:
    """Whether a turn asks a tool for something from the web."""
    return any(
        part.kind == "call" and bool(_WEB_TOOL.search(part.name) or _WEB_COMMAND.search(part.text))
        for part in turn.parts
    )


def trust_of(turn: Turn, before: Iterable[Turn]) -> Trust:
    """How far what a turn says is to be trusted. before: the turns before it, the nearest first."""
    if turn.author == "person":
        return "owner"
    return "web" if any(map(reads_the_web, _exchange(turn, before))) else "agent"


def _exchange(turn: Turn, before: Iterable[Turn]) -> Iterator[Turn]:
    """A turn and those before it, back to what a person last said."""
    yield turn
    for one in before:
        if one.author == "person":
            return
        yield one


def lowest(trusts: Iterable[Trust]) -> Trust:
    """The least trusted.

    >>> lowest(["owner", "agent"])
    'agent'
    """
    return max(trusts, key=TRUSTS.index)


def shown(turn_text: str, n_chars: int) -> str:
    """The words of a message without its code, shortened in the middle to so many characters.

    >>> shown("See:\\n```py\\nx = 1\\ny = 2\\n```\\nok?", 100)
    'See:\\n[code: 2 lines]\\nok?'
    """
    said = _FENCED.sub(lambda match: f"[code: {match[2].count(chr(10))} lines]", turn_text).strip()
    if len(said) <= n_chars:
        return said
    head = clip(said, n_chars * 2 // 3)
    return f"{head} […] {said[len(said) - n_chars // 3 :].lstrip()}"
