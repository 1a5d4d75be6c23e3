"""Guess the kind of a memory from its text: by its first words, otherwise by the rules of plain
statements. Pure.

First words are read in English only. A wrong guess costs little: the kind narrows lists, and decides
whether a project is assumed.
"""

from __future__ import annotations

import re

from perdure.memories.grammar.statements import stated
from perdure.regex import lazy_re
from perdure.types import MemoryKind

_PREFERENCE = lazy_re(
    r"\s*(?:(?:i|we)\s+(?:(?:really|strongly|much|always|usually|do not|don't)\s+)?"
    r"(?:prefer|like|love|hate|dislike|favou?r|want)|prefer)\b",
    re.IGNORECASE,
)
_DECISION = lazy_re(r"\s*we(?:'ve| have)?\s+(?:decided|chose|chosen|agreed|settled)\b", re.IGNORECASE)
_PROCEDURE = lazy_re(
    r"\s*(?:always|never|do not|don't|make sure|remember to|before|after|when|whenever|if|run|use|write|keep|add|avoid"
    r"|check|ensure|commit|test|read|ask|put|call|start|stop|update|install|build|deploy|create|set)\b",
    re.IGNORECASE,
)


def guess_kind(text: str) -> MemoryKind:
    """Return the kind of a statement.

    >>> [guess_kind(text) for text in ("Ich bevorzuge Tabs", "We decided on SQLite", "Run the tests first", "It rains")]
    ['preference', 'decision', 'procedure', 'fact']
    """
    plain_text = text.replace("*", "").replace("`", "")
    for pattern, kind in ((_PREFERENCE, "preference"), (_DECISION, "decision"), (_PROCEDURE, "procedure")):
        if pattern.match(plain_text):
            return kind  # type: ignore[return-value]
    statements = stated(text)
    return statements[0].kind if statements else "fact"
