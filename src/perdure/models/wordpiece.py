"""BERT's uncased WordPiece: text -> token ids, the same as the reference tokenizer's. Pure, standard
library only.

Clean, split Chinese, strip accents, lower, split punctuation, then take the longest known piece first.
All steps but the last look at one character at a time, so they are one lookup table that fills itself;
words are cached, because text repeats them. Two differences from the reference: "[CLS]" in a text is
text, never a control token; and signs of rare scripts that entered Unicode after the reference's tables
(its version 8) follow this Python's tables.
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
_DROPPED_CATEGORIES = frozenset(("Cc", "Cf", "Co", "Cs", "Mn"))


def _to_plain(char: str) -> str:
    """Return the plain form of one character of decomposed text: lower case, a blank, a word of its own, or
    nothing.
    """
    code, category = ord(char), unicodedata.category(char)
    if char in "\t\n\r" or category[0] == "Z":
        return " "
    if code == 0xFFFD or category in _DROPPED_CATEGORIES:
        return ""
    if category[0] == "P" or (char.isascii() and not char.isalnum()):
        return f" {char} "
    return f" {char} " if any(low <= code <= high for low, high in _CHINESE) else char.lower()


class _CharacterTable(dict[int, str]):
    """Code point -> its plain form, computed at first use; `str.translate` reads it for every character."""

    def __missing__(self, code: int) -> str:
        self[code] = plain = _to_plain(chr(code))
        return plain


class WordPiece:
    """A tokenizer: a vocabulary, and a cache of the words already cut. Threads that encode at once must not
    share one.
    """

    def __init__(self, vocabulary: Sequence[str]) -> None:
        """Build the tokenizer. vocabulary: tokens in the order of their ids."""
        self._ids = {token: n for n, token in enumerate(vocabulary)}
        self._unknown = [self._ids[UNKNOWN]]
        self._known_words: dict[str, list[int]] = {}
        self._characters = _CharacterTable()

    def split_words(self, text: str) -> list[str]:
        """Split a text into its words and signs, in plain form.

        >>> WordPiece([UNKNOWN]).split_words("Où est-il?")
        ['ou', 'est', '-', 'il', '?']
        """
        decomposed = text if text.isascii() else unicodedata.normalize("NFD", text)
        return decomposed.translate(self._characters).split()

    def to_token_ids(self, text: str, *, max_pieces: int | None = None) -> list[int]:
        """Return the ids of a text's pieces, without control tokens, at most `max_pieces`.

        >>> WordPiece([UNKNOWN, "per", "##dure"]).to_token_ids("Perdure perdu")
        [1, 2, 0]
        """
        words: Iterable[str] = self.split_words(text if max_pieces is None else _take_beginning(text, max_pieces))
        piece_ids = list(chain.from_iterable(map(self._to_piece_ids, words)))
        return piece_ids if max_pieces is None else piece_ids[:max_pieces]

    def _to_piece_ids(self, word: str) -> list[int]:
        piece_ids = self._known_words.get(word)
        if piece_ids is None:
            piece_ids = self._cut_word(word)
            if len(self._known_words) < MAX_REMEMBERED:
                self._known_words[word] = piece_ids
        return piece_ids

    def _cut_word(self, word: str) -> list[int]:
        """Cut a word: the longest known piece at its start, then of the remainder; unknown if no piece fits."""
        if len(word) > MAX_WORD_CHARS:
            return self._unknown
        piece_ids: list[int] = []
        start = 0
        while start < len(word):
            piece = self._find_longest_piece(word, start)
            if piece is None:
                return self._unknown
            piece_ids.append(self._ids[piece])
            start += len(piece) - (2 if start else 0)
        return piece_ids

    def _find_longest_piece(self, word: str, start: int) -> str | None:
        prefix = "##" if start else ""
        pieces = (prefix + word[start:end] for end in range(len(word), start, -1))
        return next((piece for piece in pieces if piece in self._ids), None)


_CHARS_PER_PIECE = 64  # far more than text needs; limits how much of a huge text is read


def _take_beginning(text: str, max_pieces: int) -> str:
    """Return the beginning of a text, long enough for `max_pieces` pieces unless it is mostly blanks or marks."""
    return text[: max_pieces * _CHARS_PER_PIECE]
