"""Whether an answer rests on a cue that was put beside its prompt: by their words alone, cheaply. Pure.

Only what the prompt did not say already counts, because an answer takes up the prompt's words anyway. How rare a word
is shows in its shape: numbers and identifiers say more than names, and names more than other words. In doubt a cue
was not used: nothing but use renews a memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from perdure import text
from perdure.patterns import late

USED = 0.5  # a score from which a cue counts as used (docs/evaluation/use.md)
ENOUGH = 3.0  # weight of words taken up that counts as use by itself: one number, or a name and a word, …
LEAST_SHARE = 0.2  # …when they are at least so much of what a sentence of the cue says
QUOTED = ((3, 2), (5, 1))  # (words in a row as the cue has them, how many of them the prompt lacks): a quotation
DISTINCT, NAME, WORD, SHORT = 3.0, 2.0, 1.0, 0.5  # weights: numbers and identifiers, names, words, those of few letters
SHORT_CHARS = 3  # a word of so many letters says little
STEM_CHARS = 5  # the first letters tell words apart in any language, once endings are off
MAX_CHARS = 20_000  # of an answer that are looked at
SENTENCE_CHARS = 300  # a longer cue is judged by its sentences
_WORDS = late(r"\w+(?:[./:@-]\w+)*")
_SENTENCE = late(r"(?<=[.!?;])\s+|\n+|(?<=[。！？；])")
_IDENTIFIER = late(r"[\d_./:@]")
_LITTLE = text.STOPWORDS | frozenset(
    "aber als am an auch auf aus bei bin bis das dass dein dem den der des die dies durch ein eine einem einen einer "
    "er es für gern habe hat hatte ich ihr im in ist ja kein keine man mein meine mich mir mit nach nicht nie noch "
    "nun nur ob oder seit sich sie sind so statt um und uns unser unsere unter vom von vor war weil wenn wer wie wir "
    "wird zu zum zur au aux avec c ce ces chez comme d dans de depuis des du elle en est et il ils j je l la le les "
    "leur lui m ma mais mes moi mon n ne nos notre nous on ou où par pas plus pour puis qu que qui s sa sans se ses "
    "son sont sur t ta te tes toi ton tu un une va vos votre vous always also am because before can every just like "
    "more never no not now one only other over own please said say user very via well yes".split()
)


Row = tuple[str, ...]


class Word(NamedTuple):
    """A word as it is compared, and what it weighs."""

    stem: str
    weight: float


def is_used(prompt: str, cue: str, answer: str) -> bool:
    """Whether an answer rests on a cue."""
    return score(prompt, cue, answer) >= USED


def score(prompt: str, cue: str, answer: str) -> float:
    """How much an answer rests on a cue, 0 to 1: what it takes up of the one of its sentences that it takes up most.

    >>> score("Which port?", "It runs on port 8443.", "Use 8443."), score("Which port?", "It runs on 8443.", "9000.")
    (0.75, 0.0)
    """
    asked, said = {word.stem for word in words(prompt)}, [word.stem for word in words(answer[:MAX_CHARS])]
    rows = {n_words: set(_rows(said, n_words)) for n_words in (1, *(n for n, _ in QUOTED))}
    pieces = _SENTENCE.split(cue) if len(cue) > SENTENCE_CHARS else [cue]
    return max(_score(asked, list(words(piece)), rows) for piece in pieces)


def _score(asked: Collection[str], cue: Sequence[Word], said: Mapping[int, Set[Row]]) -> float:
    """said: number of words -> the rows of so many words in the answer."""
    own = {word.stem: word.weight for word in cue if word.weight and word.stem not in asked}
    taken = {stem for stem in own if (stem,) in said[1]}
    if not taken:
        return 0.0
    stems = [word.stem for word in cue]
    if any(row in said[n] and len(taken & set(row)) >= n_own for n, n_own in QUOTED for row in _rows(stems, n)):
        return 1.0
    weight = sum(own[stem] for stem in taken)
    share = weight / sum(own.values())
    return min(1.0, max(share, USED * weight / ENOUGH if share >= LEAST_SHARE else 0.0))


def _rows(said: Sequence[str], n_words: int) -> Iterator[Row]:
    """Every so many words that stand in a row."""
    return (tuple(said[at : at + n_words]) for at in range(len(said) - n_words + 1))


def words(said: str) -> Iterator[Word]:
    """The words of a text, in order, each with its weight; pairs of characters where no spaces are."""
    plain = text.index_terms(said)
    for match in _WORDS.finditer(plain):
        for piece in [match[0]] if _IDENTIFIER.search(match[0]) else match[0].split("-"):
            yield _weighed(piece, opens=_opens(plain, match.start()))


def _weighed(word: str, *, opens: bool) -> Word:
    """A word with its weight. opens: it begins a sentence, where a capital says nothing."""
    folded = word.casefold()
    if _IDENTIFIER.search(word):
        return Word(folded, DISTINCT if len(word) > 1 else SHORT)
    if folded in _LITTLE or len(folded) == 1:
        return Word(folded, 0.0)
    if not opens and word[0].isupper():
        return Word(folded[:STEM_CHARS], NAME)
    return Word(folded[:STEM_CHARS], SHORT if word.isascii() and len(word) <= SHORT_CHARS else WORD)


def _opens(plain: str, at: int) -> bool:
    before = plain[max(0, at - 3) : at].rstrip(" \"'«“„([")
    return not before or before[-1] in ".!?:\n"
