"""Decide whether recall speaks: it stays silent if nothing is relevant, before anything else is weighed.

Pure. Fusion scores are relative to the candidates at hand (the best keyword hit has 1 in any case), so
the judge uses absolute values: the best cosine, the share of the query's words (rare ones count more)
in the best candidate, names that are known and names that were never mentioned, and whether anything
was said at a time that the message names. The score that one leg alone can reach is known for each
profile, so a threshold made for two legs never silences one (term-llm #19).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TypeVar

from msgspec import Struct

from perdure import text
from perdure.config import LimitsConfig
from perdure.recall.candidates import NameSighting
from perdure.recall.stop_words import choose_stop_words
from perdure.regex import lazy_re

# Weights beside a cosine's 1 and thresholds below which recall is silent: at most 3 % of the answerable questions of
# any of four sets fall below, the shipped one included (docs/evaluation/recall.md, silence).
COVERAGE_WEIGHT, KNOWN_NAME_WEIGHT, UNKNOWN_NAME_WEIGHT, IN_TIME_WEIGHT = 0.4, 0.1, 0.3, 0.2
WORD_PENALTY, MAX_PENALISED_WORDS = 0.015, 10  # per query word: a long message is near to something by chance
FEW_WORDS_PENALTY = 0.05  # with vectors, if the best text holds fewer than MIN_HELD_WORDS of the words
KEYWORD_THRESHOLD = 0.035  # without vectors, or with those of a model that was never calibrated
THRESHOLDS: Mapping[str, float] = {"all-minilm-l6-v2-int8": 0.33, "potion-base-8m-int8": 0.36}  # by the model's name
LAST_LATIN_LETTER = "\u024f"  # the models above know hardly a word in another script: cosines say little there
UNKNOWN_PAIR_FACTOR, PAIR_CHARS = 0.25, 2  # without spaces terms are overlapping pairs, half of them across words
MIN_WORD_WEIGHT = 0.1  # weight of a word that occurs everywhere: in a memory of one turn every word does
MIN_NAME_RARITY = 1.0  # lowest ln(turns / turns with the name) at which a known name or identifier counts
MIN_KEY_LETTERS = 3  # of the spelling key of a name: "Dan" and "Dean" are two people
ENOUGH_COVERAGE = 0.6  # of the query words in one turn: relevant whatever the vectors say
N_CACHED_STEMS, N_CACHED_TEXTS = 16_384, 64  # cached: a recall reads its best texts several times
MAX_ENDING = 4  # letters of the longest ending that `stem` takes off
MIN_HELD_WORDS = 2  # query words that the turn must hold for that
WORDS = "words"  # in place of a model's name: the words decide
MIN_ANSWERS = 10  # about blocks of one model, before its limits change
MAX_RAISE = 0.2  # of a threshold by answers: a few blocks must not silence recall
MIN_WANTED_SHARE = 0.9  # of the wanted blocks that fitted limits still let through
COVERAGE_STEPS = (ENOUGH_COVERAGE, 0.7, 0.8, 0.9, 1.0)  # a text with all words of the message always speaks
_DIGITS = 4  # of relevance and coverage, as they are recorded

_Id = TypeVar("_Id")  # what a text is named by
_WORDS = lazy_re(r"[^\W_]+")
_IDENTIFIER = lazy_re(r"\w[._/-]\w")  # "invoice_no.py", "booking-api", "src/app"
_SIMILAR_LETTERS = str.maketrans("cqz", "kks")
_SUFFIX = lazy_re(r"(?<=\w{3})(?:ings?|ed|ies|es|s|ly|'s)$")


class Evidence(Struct, frozen=True):
    """The evidence for the candidates as a whole."""

    cosine: float | None  # the best; None without vectors
    covered: float  # share of the query words, by rarity, in the best candidate
    n_held: int  # query words in that candidate
    known_names: float  # share of the message's names that are known and rare
    unknown_names: float  # share of them that occur nowhere, in no spelling; 0 beside an identifier that is known
    is_in_time: bool = False  # a candidate lies in a window that the message names
    n_asked: int = 0  # query words of the message
    is_unread: bool = False  # the models do not read the script of most letters of the query words


class Verdict(Struct, frozen=True):
    """The relevance of the candidates, and the reason if recall stays silent."""

    relevance: float
    threshold: float
    silent: str = ""  # the reason in words; empty when recall speaks
    coverage: float = 0.0  # share of the query words in the best candidate; 0 with fewer than MIN_HELD_WORDS of them
    spoke_by: str = ""  # the rule that let recall speak: "relevance", "coverage" or "time"
    judged_for: str = ""  # the model whose threshold counts, or WORDS


@lru_cache(maxsize=N_CACHED_STEMS)
def stem(word: str) -> str:
    """Return a word without the commonest English endings: good enough to compare, never shown.

    >>> stem("paintings"), stem("bus")
    ('paint', 'bus')
    """
    return _SUFFIX.sub("", word) if word.isascii() else word


@lru_cache(maxsize=N_CACHED_TEXTS)
def extract_query_words(message: str) -> tuple[str, ...]:
    """Return the words of a message that carry meaning, as search terms."""
    terms = text.query_terms(message)
    words = text.without_stopwords(terms)
    foreign_stop_words = choose_stop_words(terms)
    return tuple(word for word in words if word not in foreign_stop_words) or words


def gather_evidence(
    words: Mapping[str, tuple[int, float]],
    names: Mapping[str, NameSighting],
    *,
    texts: Sequence[str],
    cosine: float | None,
    is_in_time: bool = False,
) -> Evidence:
    """Return the evidence for candidates with these texts. words: of the query, each with (chunks that hold
    it, rarity).
    """
    weights = weigh_words(words)
    total = sum(weights.values())
    held_words = tuple(find_held_words(weights, dict(enumerate(texts))).values())
    covered, n_held = max(
        ((sum(weights[word] for word in held) / total if total else 0.0, len(held)) for held in held_words),
        default=(0.0, 0),
    )
    n_known = sum(bool(sighting.n_turns) and sighting.rarity >= MIN_NAME_RARITY for sighting in names.values())
    n_unknown = 0 if _holds_identifier(words, held_words) else len(_list_unknown(names, texts))
    n_names = max(1, len(names))
    return Evidence(
        cosine, covered, n_held, n_known / n_names, n_unknown / n_names, is_in_time, len(words), _is_unread(words)
    )


def _holds_identifier(words: Mapping[str, tuple[int, float]], held_words: Iterable[frozenset[str]]) -> bool:
    """Return True if a text holds an identifier of the message: then the message is about what is known here, and a
    name that it brings along is new, not wrong.
    """
    identifiers = {
        word for word, (n_held, rarity) in words.items()
        if n_held and rarity >= MIN_NAME_RARITY and _IDENTIFIER.search(word)
    }  # fmt: skip
    return any(not identifiers.isdisjoint(held) for held in held_words)


def _list_unknown(names: Mapping[str, NameSighting], texts: Iterable[str]) -> list[str]:
    """Return the names that occur nowhere, and that no name in these texts spells in another way."""
    unknown_names = [name for name, sighting in names.items() if not sighting.n_turns]
    if not unknown_names:
        return []
    keys = {make_spelling_key(word) for words in texts for word in _WORDS.findall(words) if word[0].isupper()}
    return [
        name for name in unknown_names
        if not all(len(key) >= MIN_KEY_LETTERS and key in keys for key in map(make_spelling_key, _WORDS.findall(name)))
    ]  # fmt: skip


@lru_cache(maxsize=N_CACHED_STEMS)
def make_spelling_key(name: str) -> str:
    """Return what most spellings of a name have in common: its first letter and its consonants, without repeats.

    >>> make_spelling_key("Muhammad"), make_spelling_key("Mohamed"), make_spelling_key("Nicolas")
    ('mhmd', 'mhmd', 'nkls')
    """
    letters = "".join(filter(str.isalnum, unicodedata.normalize("NFKD", name.lower())))
    letters = letters.replace("ph", "f").translate(_SIMILAR_LETTERS)
    consonants = letters[:1] + "".join(letter for letter in letters[1:] if letter not in "aeiouyw")
    return "".join(letter for n, letter in enumerate(consonants) if letter != consonants[n - 1 : n])


def _is_unread(words: Iterable[str]) -> bool:
    letters = [character for word in words for character in word if character.isalpha()]
    return sum(letter > LAST_LATIN_LETTER for letter in letters) * 2 > len(letters)


def weigh_words(words: Mapping[str, tuple[int, float]]) -> dict[str, float]:
    """Return the weight of each word of a query: its rarity. A pair of signs that is nowhere is mostly no word at
    all.

    words: each with (chunks that hold it, rarity).
    """
    return {
        word: max(rarity, MIN_WORD_WEIGHT)
        * (UNKNOWN_PAIR_FACTOR if not n_held and not word.isascii() and len(word) == PAIR_CHARS else 1.0)
        for word, (n_held, rarity) in words.items()
    }


def find_held_words(words: Iterable[str], texts: Mapping[_Id, str]) -> dict[_Id, frozenset[str]]:
    """Return for each text which of the words of a query it holds, in any of their forms."""
    stems_by_word = {word: extract_stems(word) for word in words}
    all_stems = frozenset[str]().union(*stems_by_word.values())
    held_words: dict[_Id, frozenset[str]] = {}
    for text_id, candidate_text in texts.items():
        held_stems = find_held_stems(all_stems, candidate_text)
        held_words[text_id] = frozenset(word for word, stems in stems_by_word.items() if stems <= held_stems)
    return held_words


def find_held_stems(stems: frozenset[str], candidate_text: str) -> frozenset[str]:
    """Return those of these stems that `extract_stems` finds in a text, without stemming all its words.

    >>> sorted(find_held_stems(frozenset({"port", "usage", "art"}), "Ports of CalculateTokenUsage, important"))
    ['port', 'usage']
    """
    spaced_text, runs = text.part_scripts(candidate_text)
    if runs and not runs.replace("\n", "").isalnum():  # with marks, each letter is a word
        return stems & extract_stems(candidate_text)
    lines = f"\n{runs}\n"
    lowered = spaced_text.lower()
    inside = [stem for stem in stems if stem in lowered or stem in runs]
    held_stems = frozenset(
        stem for stem in inside
        if _has_word(lowered, stem) or (len(stem) == PAIR_CHARS and stem in runs) or f"\n{stem}\n" in lines
    )  # fmt: skip
    if len(held_stems) == len(inside):
        return held_stems
    return held_stems | (stems & set(map(stem, text.find_camel_parts(spaced_text))))


def _has_word(lowered: str, word_stem: str) -> bool:
    """Return True if a word of an ASCII text has this stem: it begins with it, and a known ending follows."""
    start = lowered.find(word_stem)
    while start >= 0:
        end = start + len(word_stem)
        if not lowered[start - 1 : start].isalnum():
            ending = _WORDS.match(lowered, end)
            if ending is None or (len(ending[0]) <= MAX_ENDING and stem(word_stem + ending[0]) == word_stem):
                return True
        start = lowered.find(word_stem, end)
    return False


@lru_cache(maxsize=N_CACHED_TEXTS)
def extract_stems(words: str) -> frozenset[str]:
    """Return the stems of all words of a text, as the index sees it: identifiers split, pairs in scripts
    without spaces.
    """
    distinct_words = set(_WORDS.findall(text.index_terms(words).lower()))
    return frozenset(
        [stem(word) if word.isascii() else word for word in distinct_words]
    )  # pairs of signs would fill its cache


def judge(evidence: Evidence, model: str, limits: Mapping[str, LimitsConfig] | None = None) -> Verdict:
    """Return the verdict on the evidence. model: the name of the model that made the vectors, "" without
    vectors. limits: a home's own, by model or WORDS.

    The vectors of a model that was never calibrated have no threshold: then the words decide, as without
    vectors. In a script that the model does not read, the words have to pass, too.
    """
    is_hybrid = evidence.cosine is not None and model in THRESHOLDS
    judged_for = model if is_hybrid else WORDS
    own_limits = (limits or {}).get(judged_for, LimitsConfig())
    threshold = own_limits.relevance or get_threshold(judged_for)
    enough_coverage = own_limits.coverage or ENOUGH_COVERAGE
    name_score = KNOWN_NAME_WEIGHT * evidence.known_names - UNKNOWN_NAME_WEIGHT * evidence.unknown_names
    by_words = relevance = evidence.covered + name_score + IN_TIME_WEIGHT * evidence.is_in_time
    if is_hybrid and not (evidence.is_unread and by_words < KEYWORD_THRESHOLD):
        vector_score = (
            (evidence.cosine or 0.0)
            + COVERAGE_WEIGHT * evidence.covered
            - WORD_PENALTY * min(evidence.n_asked, MAX_PENALISED_WORDS)
            - FEW_WORDS_PENALTY * (evidence.n_held < MIN_HELD_WORDS and not evidence.is_unread)
        )
        relevance = vector_score + name_score + IN_TIME_WEIGHT * evidence.is_in_time
    coverage = evidence.covered if evidence.n_held >= MIN_HELD_WORDS else 0.0
    spoke_by = "relevance" if relevance >= threshold else "coverage" if coverage >= enough_coverage else ""
    silent = "" if spoke_by else "the best match is below the threshold"
    return Verdict(relevance, threshold, silent, coverage, spoke_by, judged_for)


def get_threshold(judged_for: str) -> float:
    """Return the built-in threshold of a model, or of WORDS."""
    return THRESHOLDS.get(judged_for, KEYWORD_THRESHOLD)


# a home's own limits ------------------------------------------------------------------------------------------


class AnsweredBlock(Struct, frozen=True):
    """A block that recall would have told, and whether a person wants such blocks."""

    judged_for: str  # a model, or WORDS
    relevance: float
    coverage: float
    is_wanted: bool


class FittedLimits(Struct, frozen=True):
    """Limits for one model, and what they do to the blocks that were answered."""

    limits: LimitsConfig
    n_wanted: int
    n_unwanted: int
    n_wanted_told: int  # with these limits
    n_unwanted_told: int


def fit_limits(blocks: Sequence[AnsweredBlock]) -> dict[str, FittedLimits]:
    """Return the limits that a person's answers ask for: for each model, or WORDS, with at least MIN_ANSWERS answers.

    Of all thresholds half-way between two neighbouring relevances, up to MAX_RAISE above the built-in one, and
    all COVERAGE_STEPS, the pair is chosen that tells most wanted blocks less the unwanted ones, among those that tell
    at least MIN_WANTED_SHARE of the wanted. Of equal pairs the one nearest to the built-in limits is chosen.
    Limits are never below the built-in ones: answers are only about blocks that passed those.
    """
    by_model: dict[str, list[AnsweredBlock]] = {}
    for block in blocks:
        by_model.setdefault(block.judged_for, []).append(block)
    return {
        judged_for: _fit_model(model_blocks, get_threshold(judged_for))
        for judged_for, model_blocks in sorted(by_model.items())
        if len(model_blocks) >= MIN_ANSWERS
    }


def _fit_model(blocks: Sequence[AnsweredBlock], threshold: float) -> FittedLimits:
    relevances = sorted({threshold, *(block.relevance for block in blocks if block.relevance > threshold)})
    middles = [round((lower + upper) / 2, _DIGITS) for lower, upper in pairwise(relevances)]
    thresholds = [threshold, *(middle for middle in middles if threshold < middle <= threshold + MAX_RAISE)]
    fits = [
        _count_told(blocks, LimitsConfig(relevance, coverage))
        for relevance in thresholds
        for coverage in COVERAGE_STEPS
    ]
    allowed = [fit for fit in fits if fit.n_wanted_told >= MIN_WANTED_SHARE * fits[0].n_wanted_told]
    return max(allowed, key=lambda fit: fit.n_wanted_told - fit.n_unwanted_told)  # the first of equals


def _count_told(blocks: Sequence[AnsweredBlock], limits: LimitsConfig) -> FittedLimits:
    told = [block for block in blocks if block.relevance >= limits.relevance or block.coverage >= limits.coverage]
    n_wanted, n_wanted_told = (sum(block.is_wanted for block in some) for some in (blocks, told))
    return FittedLimits(limits, n_wanted, len(blocks) - n_wanted, n_wanted_told, len(told) - n_wanted_told)
