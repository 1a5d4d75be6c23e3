"""Find where a text stands in another, exactly or by its letters. Pure.

Models write straight quotes for smart ones, and drop blanks at line ends. The second search reads both texts in a plain
form, and returns places in the original, so that nothing but the place itself is ever changed.
"""

from __future__ import annotations

import unicodedata
from typing import NamedTuple

_PLAIN = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛′", "'"),
        **dict.fromkeys("“”„‟″", '"'),
        **dict.fromkeys("‐‑‒–—―−", "-"),
        **dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "),
    }
)


class FoundSpans(NamedTuple):
    """The places of a text."""

    places: list[tuple[int, int]]  # (start, end) in characters
    is_exact: bool


def find_spans(text: str, wanted: str) -> FoundSpans:
    r"""Return every place where a text stands: exactly, or if it stands nowhere exactly, by its letters.

    >>> find_spans("a = “x”  \r\nb\r\n", 'a = "x"\nb').places
    [(0, 12)]
    """
    exact = _find_all(text, wanted)
    if not exact and "\n" in wanted:
        exact = _find_all(text, wanted.replace("\r\n", "\n").replace("\n", "\r\n"))
    if exact:
        return FoundSpans(exact, True)
    plain, origins = _to_plain(text)
    needle, _ = _to_plain(wanted)
    places = _find_all(plain, needle) if needle.strip() else []
    spans = [(origins[start][0], origins[start + len(needle) - 1][1]) for start, _ in places]
    return FoundSpans(spans, False)


def _find_all(text: str, wanted: str) -> list[tuple[int, int]]:
    """Return the places of a text that do not overlap."""
    places: list[tuple[int, int]] = []
    at = text.find(wanted)
    while at >= 0:
        places.append((at, at + len(wanted)))
        at = text.find(wanted, at + len(wanted))
    return places


def _to_plain(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return the plain form, and for each of its characters the place of the original that it stands for."""
    plain: list[str] = []
    origins: list[tuple[int, int]] = []
    at = 0
    while at < len(text):
        end = at + 1
        while end < len(text) and unicodedata.combining(text[end]):
            end += 1
        if text.startswith("\r\n", at):
            end = at + 2
            letters = "\n"
        else:
            letters = unicodedata.normalize("NFKC", text[at:end]).translate(_PLAIN)
        if letters == "\n":
            while plain and plain[-1] in " \t":  # blanks at the end of a line
                plain.pop()
                origins.pop()
        plain += letters
        origins += [(at, end)] * len(letters)
        at = end
    return "".join(plain), origins
