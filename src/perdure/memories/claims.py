"""What a statement claims. Pure. (Minimal; the rules come from the branch that writes them.)"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from perdure.text import normalised


@dataclass(frozen=True)
class Claim:
    """Which attribute of which entity has which value."""

    entity: str
    attribute: str
    value: str
    negated: bool
    old_value: str = ""
    single: bool = True

    @property
    def path(self) -> str:
        """Entity and attribute as a memory's path."""
        return f"{self.entity}/{self.attribute}"


def claim(text: str) -> Claim | None:
    """The claim of a statement, if rules see one."""
    del text
    return None


def path_for(text: str, kind: str) -> str:
    """The path of a statement."""
    return f"stated/{kind}-{hashlib.sha256(normalised(text).encode()).hexdigest()[:10]}"


def same_subject(new: Claim, old: Claim) -> bool:
    """Whether two claims are about one attribute of one thing."""
    return new.path == old.path


def says_same(a: str, b: str) -> bool:
    """Whether one restates the other."""
    return normalised(a) == normalised(b)
