"""Choose the stop words of the language that a message is in, where it is not English. Pure but for its data file.

A message is in the language that has most of its words here, if it has two of them or more, and more than English:
"die", "war", "pour" and "once" stay words of English.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from perdure import text

_WORDS_FILE = Path(__file__).with_name("stop_words.txt")
MIN_WORDS = 2  # stop words of a message from which it is in their language


def choose_stop_words(terms: Sequence[str]) -> frozenset[str]:
    """Return the stop words of the language that these terms of a message are in; none for English and unknown ones.

    >>> sorted(choose_stop_words(["warum", "haben", "wir", "tabellen"]) & {"warum", "haben", "tabellen"})
    ['haben', 'warum']
    """
    counts = {language: sum(term in words for term in terms) for language, words in _load_words().items()}
    language = max(counts, key=lambda name: counts[name])
    n_english = sum(term in text.STOPWORDS for term in terms)
    is_foreign = counts[language] >= MIN_WORDS and counts[language] > n_english
    return _load_words()[language] if is_foreign else frozenset()


@cache
def _load_words() -> dict[str, frozenset[str]]:
    words_by_language: dict[str, list[str]] = {}
    for line in _WORDS_FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            words = words_by_language.setdefault(line.strip("[]"), [])
        elif not line.startswith("#"):
            words.extend(line.split())
    return {language: frozenset(words) for language, words in words_by_language.items()}
