"""Which kind of memory a sentence makes, guessed by its first words, else by the rules of plain statements. Pure.

The first words are read in English only. A guess costs little when it is wrong: the kind narrows lists, and says
whether a project is assumed.
"""

from __future__ import annotations

import re

from perdure.memories.statements import stated
from perdure.patterns import late
from perdure.types import MemoryKind

_PREFERENCE = late(
    r"\s*(?:(?:i|we)\s+(?:(?:really|strongly|much|always|usually|do not|don't)\s+)?"
    r"(?:prefer|like|love|hate|dislike|favou?r|want)|prefer)\b",
    re.IGNORECASE,
)
_DECISION = late(r"\s*we(?:'ve| have)?\s+(?:decided|chose|chosen|agreed|settled)\b", re.IGNORECASE)
_PROCEDURE = late(
    r"\s*(?:always|never|do not|don't|make sure|remember to|before|after|when|whenever|if|run|use|write|keep|add|avoid"
    r"|check|ensure|commit|test|read|ask|put|call|start|stop|update|install|build|deploy|create|set)\b",
    re.IGNORECASE,
)


def guessed(text: str) -> MemoryKind:
    """Return the kind of a statement.

    >>> [guessed(said) for said in ("Ich bevorzuge Tabs", "We decided on SQLite", "Run the tests first", "It rains")]
    ['preference', 'decision', 'procedure', 'fact']
    """
    plain = text.replace("*", "").replace("`", "")
    for expression, kind in ((_PREFERENCE, "preference"), (_DECISION, "decision"), (_PROCEDURE, "procedure")):
        if expression.match(plain):
            return kind  # type: ignore[return-value]
    found = stated(text)
    return found[0].kind if found else "fact"
