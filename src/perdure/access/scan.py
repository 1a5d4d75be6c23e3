"""Whether a text reads like an instruction to the model that reads it, and not like data. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from perdure.patterns import late
from perdure.text import normalised, one_line


@dataclass(frozen=True, slots=True)
class Finding:
    """Why a text is suspected."""

    rule: str  # its name, e.g. "override"
    excerpt: str  # the words, at most 120 characters
    score: float


_RULES = (
    ("override", late(r"\bignore (?:all )?(?:the |your )?(?:previous|prior|above) instructions", 2)),
    ("persona", late(r"\byou are now an? ", 2)),
    ("exfiltration", late(r"\bsend the following (?:information|data) to\b", 2)),
)


def scan(text: str) -> tuple[Finding, ...]:
    """What makes a text suspicious; nothing where it may be injected."""
    found = ((name, rule.search(text)) for name, rule in _RULES)
    return tuple(Finding(name, one_line(match[0], 120), 1.0) for name, match in found if match)


def digest(text: str) -> str:
    """A stable name of a text, for approvals."""
    return hashlib.sha256(normalised(text).encode("utf-8", "surrogatepass")).hexdigest()[:32]
