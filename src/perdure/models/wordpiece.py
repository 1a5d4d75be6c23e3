"""BERT's uncased WordPiece: text -> token ids, the same as the reference tokenizer's. Pure, standard library only.

Clean, split Chinese, strip accents, lower, split punctuation, then the longest known piece first. All but the last
step looks at one character at a time, so it is one lookup table that fills itself; words are remembered, because
text repeats them. Two differences from the reference: "[CLS]" in a text is text, never a control token; and signs of
rare scripts that entered Unicode after the reference's tables (its version 8) are what this Python says they are.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from itertools import chain

MAX_WORD_CHARS = 100  # a longer word is unknown, as in the reference
MAX_REMEMBERED = 200_000  # words; about 30 MB
UNKNOWN = "[UNK]"

_CHINESE = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip
_DROPPED = frozenset(("Cc", "Cf", "Co", "Cs", "Mn"))


def _plain(char: str) -> str:
    """What one character of decomposed text becomes: itself in lower case, a blank, a word of its own, or nothing."""
    code, category = ord(char), unicodedata.category(char)
    if char in "\t\n\r" or category[0] == "Z":
        return " "
    if code == 0xFFFD or category in _DROPPED:
        return ""
    if category[0] == "P" or (char.isascii() and not char.isalnum()):
        return f" {char} "
    return f" {char} " if any(low <= code <= high for low, high in _CHINESE) else char.lower()


class _Characters(dict[int, str]):
    """Code point -> its plain form, worked out when first met; `str.translate` asks it for every character."""

    def __missing__(self, code: int) -> str:
        self[code] = found = _plain(chr(code))
        return found


class WordPiece:
    """A vocabulary and the words already cut with it. Not shared between threads that encode at once."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        """vocabulary: tokens in the order of their ids."""
        self._ids = {token: n for n, token in enumerate(vocabulary)}
        self._unknown = [self._ids[UNKNOWN]]
        self._words: dict[str, list[int]] = {}
        self._characters = _Characters()

    def words(self, text: str) -> list[str]:
        """The words and signs of a text, plain.

        >>> WordPiece([UNKNOWN]).words("Où est-il?")
        ['ou', 'est', '-', 'il', '?']
        """
        decomposed = text if text.isascii() else unicodedata.normalize("NFD", text)
        return decomposed.translate(self._characters).split()

    def ids(self, text: str, *, most: int | None = None) -> list[int]:
        """The ids of a text's pieces, without control tokens; no more than `most`.

        >>> WordPiece([UNKNOWN, "per", "##dure"]).ids("Perdure perdu")
        [1, 2, 0]
        """
        words: Iterable[str] = self.words(text if most is None else _head(text, most))
        found = list(chain.from_iterable(map(self._pieces, words)))
        return found if most is None else found[:most]

    def _pieces(self, word: str) -> list[int]:
        known = self._words.get(word)
        if known is None:
            known = self._cut(word)
            if len(self._words) < MAX_REMEMBERED:
                self._words[word] = known
        return known

    def _cut(self, word: str) -> list[int]:
        """The longest piece that the word begins with, then of what is left; unknown when nothing fits."""
        if len(word) > MAX_WORD_CHARS:
            return self._unknown
        pieces: list[int] = []
        start = 0
        while start < len(word):
            piece = self._longest(word, start)
            if piece is None:
                return self._unknown
            pieces.append(self._ids[piece])
            start += len(piece) - (2 if start else 0)
        return pieces

    def _longest(self, word: str, start: int) -> str | None:
        lead = "##" if start else ""
        pieces = (lead + word[start:end] for end in range(len(word), start, -1))
        return next((piece for piece in pieces if piece in self._ids), None)


_CHARS_A_PIECE = 64  # far above what text needs; a limit on what is looked at, so that a huge text costs little


def _head(text: str, most: int) -> str:
    """The beginning of a text, long enough to hold `most` pieces unless it is mostly blanks or marks."""
    return text[: most * _CHARS_A_PIECE]
