"""Recognise messages that ask memory for nothing: "commit", "run the tests", "looks good", "good morning".

Pure. Such a message consists of common words alone (`routine_words.txt`), in six languages. A name, a number, a path, a
quoted word or any word that is not in the list makes it a message like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from perdure.regex import lazy_re

MAX_CHARS = 80  # of a routine message
_WORDS_FILE = Path(__file__).with_name("routine_words.txt")
_WORD = lazy_re(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_NOT_ROUTINE = lazy_re(r"[\d`\"/\\@#$_=<>{}\[\]()]|\w\.\w")
_UNSPACED = lazy_re(r"[\u3040-\u30ff\u3400-\u9fff]")


def is_routine(message: str) -> bool:
    """Return True if a message is an order about what is at hand, an assent, or small talk.

    >>> is_routine("fix the lint errors please"), is_routine("fix the lint errors of the tide server")
    (True, False)
    >>> is_routine("looks good, thanks!"), is_routine("which tests?"), is_routine("请运行测试")
    (True, False, True)
    """
    if is_talk(message):
        return True
    if len(message) > MAX_CHARS or _NOT_ROUTINE.search(message):
        return False
    words_by_kind = _load_words()
    if _UNSPACED.search(message):
        return _is_made_of(message, words_by_kind["unspaced orders"] | words_by_kind["unspaced talk"])
    verbs = words_by_kind["verbs"]
    fillers = words_by_kind["fillers"] | words_by_kind["talk"] - verbs
    telling_words = [word for word in _list_words(message) if word not in fillers]
    is_order = (
        bool(telling_words) and "?" not in message and not verbs.isdisjoint((telling_words[0], telling_words[-1]))
    )
    return is_order and (verbs | words_by_kind["objects"]).issuperset(telling_words)


def is_talk(message: str) -> bool:
    """Return True if a message is an assent or small talk.

    >>> is_talk("looks good, thanks!"), is_talk("run the tests"), is_talk("好的，谢谢"), is_talk("请运行测试")
    (True, False, True, False)
    """
    if len(message) > MAX_CHARS or _NOT_ROUTINE.search(message):
        return False
    words_by_kind = _load_words()
    if _UNSPACED.search(message):
        return _is_made_of(message, words_by_kind["unspaced talk"])
    words, talk = set(_list_words(message)), words_by_kind["talk"]
    return not talk.isdisjoint(words) and words <= talk | words_by_kind["fillers"]


def _list_words(message: str) -> list[str]:
    return [word.replace("’", "'") for word in _WORD.findall(message.lower())]


def _is_made_of(message: str, pieces: frozenset[str]) -> bool:
    """Return True if the letters of a message without spaces can be cut into known pieces."""
    text = "".join(_WORD.findall(message.lower()))
    longest = max(map(len, pieces))
    reachable = {0}
    for end in range(1, len(text) + 1):
        if any(start in reachable and text[start:end] in pieces for start in range(max(0, end - longest), end)):
            reachable.add(end)
    return bool(text) and len(text) in reachable


@cache
def _load_words() -> Mapping[str, frozenset[str]]:
    """Return kind -> its words."""
    words_by_kind: dict[str, set[str]] = {}
    kind = ""
    for line in _WORDS_FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            kind = line.strip("[]")
        elif not line.startswith("#"):
            words_by_kind.setdefault(kind, set()).update(line.split())
    return {name: frozenset(words) for name, words in words_by_kind.items()}
