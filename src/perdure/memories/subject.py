"""Decide whether two short statements are about one thing, by their words: which path, the same again, or newer.

Pure. A newer statement replaces an older one only where it names the old value ("X, not Y"), has the same frame ("my
editor is …"), or the same words but for one value. In doubt both stand: a wrong end costs more than two memories.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from msgspec import Struct

from perdure.memories.language import Language, guess_language, is_unspaced
from perdure.regex import lazy_re
from perdure.text import index_terms, normalise

MAX_CHARS = 600  # of a statement that is read
MAX_VALUE_WORDS = 3  # of a value; in scripts without spaces twice as many pairs of signs
MIN_SHARE = 0.5  # of the older statement's telling words that a newer one shares, if it names the old value
_MAX_SLUG_WORDS, _MAX_SLUG_CHARS = 6, 60
_WORD = lazy_re(r"[\w$€£%]+(?:[./:@+#_-]+\w+)*[+#%]*")
_NOT_CONTRACTED = lazy_re(r"(?i)(?<=[a-z])n['’]t\b")
_CONTRACTED = lazy_re(r"(?i)(?<=[a-z])['’](?:s|d|m|re|ve|ll)\b")
_CLAUSE_END = lazy_re(r"[,;.!?，。；！？](?:\s|$)|[，。；！？]|\s[–—-]\s|\s(?:and|und|et|y|but|aber)\s")
_NUMBER = lazy_re(r"\D*(\d)")

MarkedWords = tuple[
    frozenset[str], frozenset[str]
]  # the telling words at a mark like "instead of", and those before it


class Subject(Struct, frozen=True):
    """A statement as it is compared with others."""

    owner: str  # "user" for what the speaker says of themselves, "project" for "we"; "" for neither
    words: tuple[str, ...]  # its telling words, in their order
    generic: frozenset[str]  # of these, those that say little: use, run, prefer
    values: frozenset[str]  # of these, numbers and days
    old: tuple[MarkedWords, ...]  # values that it says no longer hold
    ended: tuple[MarkedWords, ...]  # what it says no longer holds at all
    frame: tuple[frozenset[str], tuple[str, ...], str] | None  # "my editor is Helix": what, value, preposition
    is_owned: bool  # the frame begins with its owner: "my editor", not "one of my editors"
    is_change: bool  # it says that it was otherwise before
    is_also: bool
    is_unspaced: bool

    @property
    def telling(self) -> frozenset[str]:
        """The words that say what it is about."""
        return frozenset(self.words) - self.generic


@lru_cache(maxsize=4096)
def read_subject(text: str) -> Subject:
    """Read a statement."""
    text = _CONTRACTED.sub("", _NOT_CONTRACTED.sub(" not", " ".join(text[:MAX_CHARS].split())))
    language = guess_language(text)
    words = _list_telling(text, language)
    owner = "project" if language.has(text, "we") else "user" if language.has(text, "I") else ""
    speakers = language.words("I") | language.words("we")
    return Subject(
        owner=owner,
        words=words,
        generic=frozenset(words) & frozenset(map(stem, language.lines("generic"))),
        values=frozenset(word for word in words if _NUMBER.match(word) or word in language.words("day")),
        old=tuple(_find_marked(text, language, "old")),
        ended=tuple(_find_marked(text, language, "ended")),
        frame=_find_frame(text, language),
        is_owned=text.lower().startswith(tuple(f"{word} " if not is_unspaced(text) else word for word in speakers)),
        is_change=language.has(text, "change"),
        is_also=language.has(text, "also"),
        is_unspaced=is_unspaced(text),
    )


def says_same(a: str, b: str) -> bool:
    """Return True if two statements say the same: the same telling words in the same order, wherever it begins.

    >>> says_same("Our port is 80", "the port is 80."), says_same("Port is 80", "Port is 81")
    (True, False)
    >>> says_same("pnpm, not npm", "npm, not pnpm")
    False
    """
    subject_a, subject_b = read_subject(a), read_subject(b)
    if not subject_a.words or not subject_b.words:
        return normalise(a) == normalise(b)
    return (
        len(subject_a.words) == len(subject_b.words)
        and any([*subject_a.words[n:], *subject_a.words[:n]] == [*subject_b.words] for n in range(len(subject_a.words)))
        and (subject_a.old, subject_a.ended) == (subject_b.old, subject_b.ended)
        and {subject_a.owner, subject_b.owner} != {"user", "project"}
    )


def replaces(newer: str, older: str) -> bool:
    """Return True if a newer statement says what an older one is about anew, so that it takes its place.

    >>> replaces("The port of staging is 81", "The port of staging is 80")
    True
    >>> replaces("We use pnpm instead of npm", "We use npm"), replaces("I like chess", "I like hiking")
    (True, False)
    """
    new, old = read_subject(newer), read_subject(older)
    if new.is_also or {new.owner, old.owner} == {"user", "project"} or new.telling == old.telling == frozenset():
        return False
    return _names_old_value(new, old) or _is_same_frame(new, old) or _is_same_but_value(new, old)


def path_for(text: str, kind: str) -> str:
    """Return the path of a memory: whose it is, or its kind, and what it is about.

    >>> path_for("My editor is Helix.", "preference"), path_for("We use uv, not pip", "fact")
    ('user/editor', 'project/use-uv-not-pip')
    """
    subject = read_subject(text)
    folder = subject.owner or kind
    if subject.frame and subject.is_owned and not subject.is_also:
        return f"{folder}/{_slugify([word for word in subject.words if word in subject.frame[0]]) or 'text'}"
    is_droppable = _is_value_behind(subject) and subject.telling > subject.values and not subject.is_also
    named = frozenset(subject.words) - (subject.values if is_droppable else frozenset())
    words = [word for word in _list_words(text.lower()) if stem(word) in named or word in _KEPT_IN_SLUGS]
    slug = _slugify(words[:_MAX_SLUG_WORDS])
    if len(words) > _MAX_SLUG_WORDS or subject.is_unspaced or not slug or len(slug) == _MAX_SLUG_CHARS:
        mark = hashlib.sha256(normalise(text).encode("utf-8", "replace")).hexdigest()[:6]
        slug = f"{slug or 'text'}-{mark}"
    return f"{folder}/{slug}"


_KEPT_IN_SLUGS = frozenset("not no never nicht kein keine pas no non não over".split())


def _list_words(text: str) -> list[str]:
    """Return the words of a text as they are spelled; pairs of signs for scripts without spaces."""
    plain_text = text if text.isascii() else index_terms(text).partition("\n")[0]
    return [word.rstrip(".:-") for word in _WORD.findall(plain_text)]


def _list_telling(text: str, language: Language) -> tuple[str, ...]:
    """Return the stems of the words that are no small words of the language, each once."""
    if is_unspaced(text):
        fillers = sorted({*language.words("filler"), *language.words("change")}, key=len, reverse=True)
        text = re.sub("|".join(map(re.escape, fillers)), " ", text)
    else:
        change = language.pattern("change", r"(?<!\w){}(?!\w)")
        text = change.sub(" ", text) if change else text
    small = language.words("filler") | language.words("I") | language.words("we") | language.words("is")
    return tuple(dict.fromkeys(stem(word) for word in _list_words(text) if word.lower() not in small and stem(word)))


def stem(word: str) -> str:
    """Return a word as it is compared: in lower case, in the singular where that is safe to say.

    >>> stem("Ports"), stem("Redis"), stem("policies")
    ('port', 'redis', 'policy')
    """
    word = word.lower()
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is", "as", "os")):
        return word[:-1]
    return word


def _find_marked(text: str, language: Language, section: str) -> Iterator[MarkedWords]:
    """Yield the telling words that a section's forms mark, each up to the end of its clause."""
    pattern = language.pattern(section, "{}" if is_unspaced(text) else r"(?<!\w){}")
    for match in pattern.finditer(text) if pattern else ():
        marked = match[match.lastindex or 0]
        clause_end = _CLAUSE_END.search(marked)
        words = frozenset(_list_telling(marked[: clause_end.start()] if clause_end else marked, language))
        if 0 < len(words) <= MAX_VALUE_WORDS * (2 if is_unspaced(text) else 1):
            yield words, frozenset(_list_telling(text[: match.start()], language))


def _find_frame(text: str, language: Language) -> tuple[frozenset[str], tuple[str, ...], str] | None:
    """Return what a statement names before its "is", the value behind it, and the preposition between them."""
    bound = ("", "") if is_unspaced(text) else (r"(?<!\w)", r"(?!\w)")
    copula = language.pattern("is", "^(?P<what>.+?){}{{}}{}(?P<value>.+)$".format(*bound))
    match = copula.match(text) if copula else None
    if match is None:
        return None
    clause_end = _CLAUSE_END.search(match["value"].rstrip(".!。！"))
    value_text = match["value"][: clause_end.start()] if clause_end else match["value"]
    what, value = frozenset(_list_telling(match["what"], language)), _list_telling(value_text, language)
    small = [word for word in value_text.lower().split()[:2] if word in language.words("place")]
    max_words = MAX_VALUE_WORDS * (2 if is_unspaced(text) else 1)
    return (what, value, "".join(small[:1])) if what and 0 < len(value) <= max_words else None


def _slugify(words: Sequence[str]) -> str:
    plain_words = (
        "".join(char for char in word.lower() if char.isalnum() or char in "-_.+#").strip("-.") for word in words
    )
    return "-".join(filter(None, plain_words))[:_MAX_SLUG_CHARS].strip("-.")


def _names_old_value(new: Subject, old: Subject) -> bool:
    """Return True if a statement names the value of an older one as what no longer holds."""
    bag = frozenset(old.words)
    return any(value <= bag and _is_about_same(new, old, value) for value, _ in new.old) or any(
        value <= bag and not old.ended and before <= bag for value, before in new.ended
    )


def _is_about_same(new: Subject, old: Subject, value: frozenset[str]) -> bool:
    """Return True if two statements share what they say beside the old value and the new subject_a."""
    old_rest, new_rest = old.telling - value, new.telling - value
    if not old_rest:
        return True
    shared = old_rest & new_rest
    if len(shared) < MIN_SHARE * len(old_rest):
        return False
    new_only = new_rest - shared - (new.values if value & old.values else frozenset())
    n_unexplained = len(new_only) - (0 if value & old.values else len(value))
    return not (n_unexplained > 0 and old_rest - shared)


def _is_same_frame(new: Subject, old: Subject) -> bool:
    """Return True if both say what one thing is, with another value of the same sort."""
    if new.frame is None or old.frame is None or new.frame[0] != old.frame[0] or new.frame[2] != old.frame[2]:
        return False
    new_value, old_value = frozenset(new.frame[1]), frozenset(old.frame[1])
    if new_value == old_value or bool(new_value & new.values) != bool(old_value & old.values):
        return False
    return bool(new_value & new.values) or (new.is_owned and old.is_owned) or new.is_change


def _is_same_but_value(new: Subject, old: Subject) -> bool:
    """Return True if two statements share their telling words but for a value."""
    new_only, old_only = frozenset(new.words) - frozenset(old.words), frozenset(old.words) - frozenset(new.words)
    shared = new.telling & old.telling
    if not shared or not new_only or not old_only:
        return False
    if new_only & new.values and old_only & old.values:
        is_wider = bool(new_only - new.values - new.generic)  # the newer one may be about a part of it
        is_other = bool(old_only - old.values - old.generic) and not new.is_change
        return _is_value_behind(new) and _is_value_behind(old) and not is_wider and not is_other
    max_words = MAX_VALUE_WORDS * (2 if new.is_unspaced else 1)
    is_small = len(new_only) <= max_words and len(old_only) <= max_words and not (new_only | old_only) & new.values
    return is_small and new.is_change and len(shared) >= 2 and not (new.ended or old.ended)


def _is_value_behind(subject: Subject) -> bool:
    """Return True if the numbers of a statement are values: they end it, and none names its subject ("ticket 12")."""
    places = [n for n, word in enumerate(subject.words) if word in subject.values]
    is_bare = len(subject.words) > 2 or not (subject.frame or subject.is_change)  # "card 12", and no "deadline: Friday"
    return bool(places) and places[0] >= is_bare + 1 and places[-1] >= len(subject.words) - 2
