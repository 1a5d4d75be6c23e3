"""Recognise what a person states plainly, so that recall can put it before what it changes.

Pure. No belief follows from it: a plain statement only moves its own turn. The words of each language are data of the
memories (`memories/forms`): those that say that it was otherwise before, and those of questions, guesses and requests.
"""

from __future__ import annotations

from functools import lru_cache

from perdure.memories.language import guess_language, is_unspaced, join_sections
from perdure.memories.sentences import sentences

MAX_CHARS = 400  # of a text that is read; a longer one is no plain statement


@lru_cache(maxsize=4096)
def find_change(turn_text: str) -> str:
    """Return the sentences of a person's turn that state that something is otherwise now; "" if none does.

    >>> find_change("Thanks! Mara quit Kestrel and moved to Orbis."), find_change("what if Mara moved to Orbis?")
    ('Mara quit Kestrel and moved to Orbis.', '')
    """
    if len(turn_text) > MAX_CHARS:
        return ""
    spans = [turn_text[start:end] for start, end in sentences(turn_text)]
    return " ".join(
        sentence for sentence in spans if states_plainly(sentence) and guess_language(sentence).has(sentence, "change")
    )


@lru_cache(maxsize=4096)
def states_plainly(sentence: str) -> bool:
    """Return True if a sentence is no question, no guess and no request.

    >>> [states_plainly(s) for s in ("the port is 8080", "is the port 8080?", "maybe 8080", "check the port")]
    [True, False, False, False]
    """
    plain = sentence.strip()
    if plain.endswith(("?", "？")):
        return False
    boundary = r"{}" if is_unspaced(plain) else r"(?:{})(?!\w)"
    is_request = join_sections("ask", boundary).match(plain) or join_sections("why", boundary).match(plain)
    return not (is_request or guess_language(plain).has(plain, "doubt"))
