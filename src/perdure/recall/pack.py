"""Cues into a budget: each with its date, its source and who spoke, the turn before it where it says little alone.

Pure. The budget counts the cues as they are rendered. A text is shortened to the piece that holds most of the asked
words, cut at a border between characters; what does not fit even so is left out and named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from perdure import text
from perdure.patterns import late
from perdure.recall.judge import stems
from perdure.types import Cue

SIZES = (1600, 800, 400, 200)  # characters of a cue's text that are tried, longest first
BEFORE_CHARS = 240
SHORT_CHARS = 90  # a text below this may not stand on its own
SAID_BY = {  # how a memory is labelled, by the lowest trust in its lineage
    "owner": "the user said", "agent": "an agent concluded", "tool": "a tool's output",
    "web": "from the web, unverified",
}  # fmt: skip
SCRAP_CHARS = 24  # one below this does not
_LEANING = late(
    r"^(?:[\w .'-]{1,30}: )?(?:yes|yeah|yep|no|nope|sure|ok|okay|thanks?|that|this|it|they|he|she|exactly|same"
    r"|both|also|ja|nein|genau|das|oui|non|sí|是|对|好|不)\b",
    re.IGNORECASE,
)


def leans(words: str) -> bool:
    """Whether a text needs the turn before it: it is short and answers or points back.

    >>> leans("Yes, that one."), leans("The port is 8443 for the staging server.")
    (True, False)
    """
    is_scrap = len(words) < SCRAP_CHARS and len(words.split()) < 4
    return is_scrap or (len(words) < SHORT_CHARS and bool(_LEANING.match(words)))


def render(cue: Cue) -> str:
    """One cue as a model or a person reads it."""
    when = f"{cue.stated_at:%Y-%m-%d %H:%M}" if cue.stated_at else "undated"
    noted = f"\n({cue.note})" if cue.note else ""
    if cue.memory is not None:
        said = SAID_BY[cue.memory.trust]
        if cue.is_shared:  # whose words they are; that nobody vouches for them stays said
            said = f"shared by {cue.user}" + (f" · {said}" if cue.memory.trust in ("tool", "web") else "")
        return f"[{when} · memory, {cue.memory.kind} · {said} · {cue.turn_id}]\n{cue.text}{noted}"
    said = f"shared by {cue.user} ({cue.role})" if cue.is_shared else cue.role
    lead = f"[{when} · {said} · {cue.runtime} @{cue.machine} · turn {cue.turn_id}]"
    before = f"\n> {cue.before}" if cue.before else ""
    return f"{lead}{before}\n{cue.text}{noted}"


def pack(cues: Sequence[Cue], words: Sequence[str], *, max_tokens: int) -> tuple[tuple[Cue, ...], tuple[str, ...]]:
    """(the cues that fit, in order, shortened where needed; the turn ids of those that do not). words: those asked."""
    asked = frozenset[str]().union(*map(stems, words))
    kept: list[Cue] = []
    without_room: list[str] = []
    left = max_tokens
    for cue in cues:
        fitted = _fitted(cue, asked, left)
        if fitted is None:
            without_room.append(cue.turn_id)
            continue
        kept.append(fitted)
        left -= fitted.n_tokens
    return tuple(kept), tuple(without_room)


def _fitted(cue: Cue, asked: frozenset[str], left: int) -> Cue | None:
    """The cue with as much of its text as the room allows, with its turn before if possible; None if nothing fits."""
    for size in SIZES:
        short = replace(cue, text=excerpt(cue.text, asked, size), before=text.one_line(cue.before, BEFORE_CHARS))
        for candidate in (short, replace(short, before="")):
            n_tokens = text.tokens(render(candidate)) + 1  # and the line break behind it
            if n_tokens <= left:
                return replace(candidate, n_tokens=n_tokens)
    return None


def excerpt(full: str, asked: frozenset[str], n_chars: int) -> str:
    """At most n_chars of a text: the piece that holds most of the asked stems, the earliest of equals."""
    plain = text.printable(full).strip()
    if len(plain) <= n_chars:
        return plain
    pieces = [
        plain[low:high].strip() for low, high in text.split(plain, max_chars=n_chars - 2, overlap_chars=n_chars // 4)
    ]
    best = max(range(len(pieces)), key=lambda n: (len(asked & stems(pieces[n])), -n))
    lead = text.ELLIPSIS if best else ""
    tail = text.ELLIPSIS if best < len(pieces) - 1 else ""
    return f"{lead}{pieces[best]}{tail}"
