"""Find what a person chose instead of what: "use pnpm, not npm", "we moved from port 8080 to 8081", "never run git
stash". Pure, and English. Only plain forms count, because a fact is told before a command that uses what was refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from perdure.formats.command_form import VOLATILE, CommandForm
from perdure.regex import lazy_re


class Choice(NamedTuple):
    """Terms of a sentence: a program, a command, a port, a version or another name, in small letters."""

    chosen: str  # "" if nothing was named in place of it
    refused: str


_MAX_TERM_CHARS = 40
_NO_NAMES = "a|an|the|it|this|that|them|these|those|any|all|more|my|your|our|his|her|their|what|which|so|too|one|to|as"
_PORT = r"(?:port |version )?"
_CONNECTIVES = (
    "in|for|on|here|because|as|and|or|when|if|again|anymore|with|without|at|to|from|unless|instead|but|since|ever|there"
    "|under|inside|please|not|never|rather"
)
_END = rf"(?=\s*(?:[.,;:!?)]|\Z|[—–-]\s)|\s+(?:{_CONNECTIVES})\b)"  # what may follow a term: it is whole there


def _term(name: str) -> str:
    word = rf"(?!(?:{_NO_NAMES}|{_CONNECTIVES})\b)(?:[\w@][\w.:/@+-]*\w|\w)"
    return rf"(?P<{name}>`[^`\n]+`|{word}(?: {word})?)"


_CHOSEN, _REFUSED = f"{_PORT}{_term('chosen')}", f"{_PORT}{_term('refused')}"
_FORMS = tuple(
    lazy_re(pattern, re.IGNORECASE)
    for pattern in (
        rf"\bnever (?:use|run|call|start) {_REFUSED}{_END}",
        rf"\b(?:(?:don['’]?t|do not|must not) (?:ever )?use|(?:stop|avoid) using) {_REFUSED}{_END}",
        rf"\b(?:use|run|prefer|take|keep|start) {_CHOSEN},? (?:and )?(?:not|never|instead of|rather than) {_REFUSED}"
        rf"{_END}",
        rf"\binstead of {_REFUSED},? (?:please )?(?:use|run|call|take) {_CHOSEN}{_END}",
        rf"\b(?:switch(?:ed)?|(?:move|change|migrate|rename)d?)\b[^.;]{{0,40}}? from {_REFUSED} to {_CHOSEN}{_END}",
        rf"\b(?:rename|replace)d? {_REFUSED} (?:to|with|by) {_CHOSEN}{_END}",
    )
)


def find_choices(sentence: str) -> Iterator[Choice]:
    """Yield the choices that a sentence states.

    >>> list(find_choices("Use `pnpm`, not npm, and never run git stash here."))
    [Choice(chosen='', refused='git stash'), Choice(chosen='pnpm', refused='npm')]
    """
    for form in _FORMS:
        for match in form.finditer(sentence):
            terms = {name: term.strip("`").strip().lower() for name, term in match.groupdict().items()}
            refused, chosen = terms["refused"], terms.get("chosen", "")
            if refused != chosen and 1 < len(refused) <= _MAX_TERM_CHARS:
                yield Choice(chosen, refused)


def build_choice_keys(choice: Choice) -> tuple[str, ...]:
    """Return the names under which a choice is stored: of what was refused, and of what was chosen."""
    return (f"refused {choice.refused}", *((f"chosen {choice.chosen}",) if choice.chosen else ()))


_NUMBER = lazy_re(r"(?<![^\s=:])\d{2,5}(?![^\s/])")


def list_terms(form: CommandForm) -> list[str]:
    """Return the terms of a command that a person may have refused: its program, its words and its numbers.

    >>> from perdure.formats.command_form import read_outcomes
    >>> list_terms(read_outcomes("npm run dev -- --port 8080")[0])
    ['npm', 'npm run', 'run', 'dev', '--', '--port', '8080']
    """
    words = [word for word in (*form.verbs, *form.words) if word != VOLATILE and len(word) <= _MAX_TERM_CHARS]
    pairs = [f"{form.program} {form.verbs[0]}"] if form.verbs else []
    terms = [form.run_as, form.program, *pairs, *words, *_NUMBER.findall(form.text)]
    return list(dict.fromkeys(term.lower() for term in terms))
