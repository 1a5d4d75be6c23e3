"""Whether there is anything worth saying: abstain on relevance, before anything else is weighed.

Pure. Fusion scores are relative to the candidates at hand (the best keyword hit has 1 whatever it is), so the judge
looks at what is absolute: the best cosine, the share of the asked words (rare ones count more) that the best candidate
holds, the names that are known and those never mentioned, and whether anything was said at a time that is named. What
one leg alone can reach is known for each profile, so that a threshold made for two legs never silences one (term-llm
#19).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from perdure import text
from perdure.patterns import late
from perdure.recall.candidates import Sighting

# Weights beside a cosine's 1 and thresholds below which recall is silent: at most 3 % of the answerable questions of
# any of four sets fall below, the shipped one included (docs/evaluation/recall.md, silence).
COVERED, KNOWN_NAME, UNKNOWN_NAME, IN_TIME = 0.4, 0.1, 0.3, 0.2
WORD, MOST_WORDS = 0.015, 10  # what each asked word takes away: a long message is near to something by chance
KEYWORD = 0.035  # without vectors, or with those of a model that was never calibrated
THRESHOLDS: Mapping[str, float] = {"all-minilm-l6-v2-int8": 0.33, "potion-base-8m-int8": 0.36}  # by the model's name
UNKNOWN_PAIR, PAIR = 0.25, 2  # terms of scripts without spaces are overlapping pairs, half of them across words
LEAST = 0.1  # what a word counts that stands everywhere: in a memory of one turn every word does
RARE = 1.0  # ln(turns / turns that hold a name) from which knowing it says something
ENOUGH_WORDS = 0.6  # of the asked words in one turn: relevant whatever the vectors say
N_STEMS, N_TEXTS = 16_384, 64  # words and texts whose stems are at hand: a recall looks at its best texts several times
MIN_KNOWN = 2  # asked words that a turn must hold for that

_WORDS = late(r"[^\W_]+")
_SUFFIX = late(r"(?<=\w{3})(?:ings?|ed|ies|es|s|ly|'s)$")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for the candidates as a whole."""

    cosine: float | None  # the best; None without vectors
    covered: float  # share of the asked words, by rarity, that the best candidate holds
    n_held: int  # asked words that that candidate holds
    known_names: float  # share of the message's names that stand somewhere, and are rare
    unknown_names: float  # share of them that stand nowhere
    is_in_time: bool = False  # a candidate lies in a window that the message names
    n_asked: int = 0  # words that the message asks for


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether to speak, on what relevance, and why not."""

    relevance: float
    threshold: float
    silent: str = ""  # the reason in words; empty when recall speaks


@lru_cache(maxsize=N_STEMS)
def stem(word: str) -> str:
    """A word without the commonest English endings: enough to compare, never shown.

    >>> stem("paintings"), stem("bus")
    ('paint', 'bus')
    """
    return _SUFFIX.sub("", word) if word.isascii() else word


def asked_words(message: str) -> tuple[str, ...]:
    """The words of a message that carry meaning, as search terms."""
    return text.without_stopwords(text.query_terms(message))


def evidence(
    words: Mapping[str, tuple[int, float]],
    names: Mapping[str, Sighting],
    *,
    texts: Sequence[str],
    cosine: float | None,
    is_in_time: bool = False,
) -> Evidence:
    """What speaks for candidates with these texts. words: the asked ones: (how many pieces hold it, its rarity)."""
    weights = {word: _weight(word, *found) for word, found in words.items()}
    asked = {word: stems(word) for word in weights}
    covered, n_held = max((_covered(weights, asked, stems(each)) for each in texts), default=(0.0, 0))
    seen = list(names.values())
    known = sum(bool(one.n_turns) and one.rarity >= RARE for one in seen)
    unknown = sum(not one.n_turns for one in seen)
    n = max(1, len(seen))
    return Evidence(cosine, covered, n_held, known / n, unknown / n, is_in_time, len(words))


def _weight(word: str, n_held: int, rarity: float) -> float:
    """How much a word that is held counts: its rarity. A pair of signs that stands nowhere is mostly no word at all."""
    return max(rarity, LEAST) * (UNKNOWN_PAIR if not n_held and not word.isascii() and len(word) == PAIR else 1.0)


def _covered(
    weights: Mapping[str, float], asked: Mapping[str, frozenset[str]], held_stems: frozenset[str]
) -> tuple[float, int]:
    """(share of the weight that a text with these stems holds, how many of the words). asked: the stems of each."""
    total = sum(weights.values())
    held = [word for word in weights if asked[word] <= held_stems]
    return (sum(weights[word] for word in held) / total if total else 0.0), len(held)


@lru_cache(maxsize=N_TEXTS)
def stems(words: str) -> frozenset[str]:
    """The stems of all words of a text, as the index sees it: parts of identifiers apart, pairs where no spaces are."""
    return frozenset(map(stem, set(_WORDS.findall(text.index_terms(words).lower()))))


def judge(found: Evidence, model: str) -> Verdict:
    """Whether this is worth saying. model: the name of the one that made the vectors, "" without.

    The vectors of a model that was never calibrated have no threshold: then the words decide, as without vectors.
    """
    hybrid = found.cosine is not None and model in THRESHOLDS
    threshold = THRESHOLDS[model] if hybrid else KEYWORD
    words = found.covered
    if hybrid:
        words = (found.cosine or 0.0) + COVERED * found.covered - WORD * min(found.n_asked, MOST_WORDS)
    named = KNOWN_NAME * found.known_names - UNKNOWN_NAME * found.unknown_names
    relevance = words + named + IN_TIME * found.is_in_time
    if relevance >= threshold or (found.covered >= ENOUGH_WORDS and found.n_held >= MIN_KNOWN):
        return Verdict(relevance, threshold)
    return Verdict(relevance, threshold, f"nothing relevant enough ({relevance:.2f}, needs {threshold:.2f})")
