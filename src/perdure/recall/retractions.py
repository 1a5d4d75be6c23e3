"""Recognise that an agent takes back what it said before: a diagnosis that was wrong, and what it was instead.

Pure. An agent in the middle of its work writes down guesses; a later turn says what it was in truth. Both are kept,
the later one is told first, and the earlier one says that it was taken back. The forms are English. What persons take
back is found by `memories/forms`; this is for turns of workflows, where no person speaks.
"""

from __future__ import annotations

from functools import lru_cache

from perdure import text
from perdure.recall.judge import extract_stems
from perdure.regex import lazy_re

MIN_SHARED = 0.25  # of the telling words of the shorter of two turns: they are about the same thing
_MIN_WORDS = 2  # that they share at least
_BEGINNING_CHARS = 1_000  # of a turn that is read

_RETRACTS = lazy_re(
    r"""(?ix)\b(?:
      (?:was|were|is|are|been|had)\s(?:(?:all|just|simply|completely)\s)?
        (?:wrong|mistaken|incorrect|innocent|unrelated|misdiagnosed|a\s(?:red\sherring|false\s(?:alarm|lead)|dead\send)
          |not\s(?:the\s)?(?:root\s|real\s|actual\s)?(?:cause|reason|problem|culprit|issue|fault|bug|right))
      |(?:was|were|is|are)\s(?:not|never)\s[^.,;:]{1,60}[,;:]\s?(?:but|it|they|rather)\b
      |(?:wasn|isn|weren|aren)['’]t\s\w+
      |nothing\sto\sdo\swith|beside\sthe\spoint|all\salong|after\sall
      |(?:changed|helped|fixed|brought)\snothing|(?:did|does)(?:\snot|n['’]t)\s(?:help|change|fix|matter|explain)\b
      |wrong\s(?:guess|lead|track|diagnosis|assumption|idea|theory|suspicion)
      |(?:diagnosis|assumption|guess|theory|suspicion)\s(?:is|was)\s(?:void|off)
      |(?:is|was|are|were)\sfine\b
      |(?:real|actual|true)\s(?:root\s)?(?:cause|reason|problem|culprit|issue|fault|bug)
      |not\s(?:because\sof|caused\sby|due\sto|from|by)\b
      |turn(?:s|ed)\sout
      |misdiagnos\w+|red\sherring|false\s(?:alarm|lead|diagnosis)
      |(?:my|the|our|this|that|earlier|first|previous)\s(?:\w+\s)?(?:diagnosis|assumption|guess|theory|hypothesis|suspicion|conclusion|analysis)
        \s(?:was|is|did|does|turned|proved|fails?|failed|[^.]{0,40}(?:wrong|not\shold|false))
      |i\swas\swrong|correction:|retract(?:ed|ing|s)?|disproved|ruled\sout|contrary\sto
    )|(?:^|[.:;]\s)(?:wrong|correction|actually|no)\b[\s:,.]|[.:;]\s(?:it|that)\swas\s(?:a|an|the|not)\b"""
)
_FIXES = lazy_re(
    r"(?i)\b(?:fix(?:ed|es)?|solved|resolved|root cause|works now|no longer (?:fails?|happens?|occurs?))\b"
)

# An earlier turn that claims nothing ("asked the team about the build") is not taken back.
_CLAIMS = lazy_re(
    r"""(?ix)\b(?:because|causes?|caused|causing|due\sto|comes?\sfrom|came\sfrom|reason|culprit|diagnos\w+|suspect\w*
      |probabl[ye]|likely|must\sbe|seems?|appears?|problem|issue|fault|bug|blame\w*|responsible|leaks?|leaking
      |is|are|was|were|isn['’]t|has|have|lacks?|misses|fails?|breaks?|drops?)\b"""
)


def retracts(later: str, earlier: str) -> bool:
    """Return True if a later turn of an agent takes back what an earlier one says of the same thing.

    >>> retracts("The cache was not the cause of the slow build, a disk is.", "The slow build is because of the cache.")
    True
    >>> retracts("The invoice parser was wrong about dates.", "The cache makes the build slow.")
    False
    """
    return _says_retraction(later) and _claims(earlier) and _is_about_the_same(later, earlier)


def settles(later: str, earlier: str) -> bool:
    """Return True if a later turn of an agent should be told before an earlier one: it takes that back, says how its
    problem was solved, or claims something of the same thing, of which the agent knew more by then.
    """
    if not _is_about_the_same(later, earlier):
        return False
    return _says_retraction(later) or _says_fix(later) or (_claims(later) and _claims(earlier))


@lru_cache(maxsize=4096)
def _says_retraction(turn_text: str) -> bool:
    return bool(_RETRACTS.search(turn_text[:_BEGINNING_CHARS]))


@lru_cache(maxsize=4096)
def _claims(turn_text: str) -> bool:
    return bool(_CLAIMS.search(turn_text[:_BEGINNING_CHARS]))


@lru_cache(maxsize=4096)
def _says_fix(turn_text: str) -> bool:
    return bool(_FIXES.search(turn_text[:_BEGINNING_CHARS]))


@lru_cache(maxsize=4096)
def _read_stems(turn_text: str) -> frozenset[str]:
    return extract_stems(turn_text[:_BEGINNING_CHARS]) - _get_small_stems()


@lru_cache(maxsize=1)
def _get_small_stems() -> frozenset[str]:
    return extract_stems(" ".join(sorted(text.STOPWORDS)))


def _is_about_the_same(later: str, earlier: str) -> bool:
    later_stems, earlier_stems = _read_stems(later), _read_stems(earlier)
    n_shared, n_shorter = len(later_stems & earlier_stems), min(len(later_stems), len(earlier_stems))
    return n_shared >= _MIN_WORDS and n_shared >= MIN_SHARED * n_shorter
