"""A text as clauses of words, and the noun phrases in them: what `claims` reads. Pure.

Words keep the writer's spelling; `low` is the same word as it is looked up. Linear in the length of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from perdure.memories.grammar import words
from perdure.memories.grammar.grammar import WE, Grammar, I
from perdure.regex import lazy_re

MAX_WORDS = 40  # of one clause: what is longer is no plain statement
MAX_CLAUSES = 5  # of one text: what is said later only adds to it
_EDGE = "\"“”„«»‹›()[]{}*_`'‘’<>…"
_ENDS = ",;:!?.—–"
_CONTRACTIONS = (
    (lazy_re(r"(?i)\b(I)['’]m\b"), r"\1 am"),
    (lazy_re(r"(?i)\b(?:lets|let['’]s|let us)\b"), "we"),
    (lazy_re(r"(?i)\bcan['’]t\b"), "can not"),
    (lazy_re(r"(?i)\bwon['’]t\b"), "will not"),
    (lazy_re(r"(?i)n['’]t\b"), " not"),
    (lazy_re(r"(?i)['’](ve|ll|re|d)\b"), r" '\1"),
    (lazy_re(r"(?i)\b(it|he|she|that|there|name|here|who)['’]s\b"), r"\1 is"),
)
_ADJUNCTS = {  # since when, which says that it was otherwise before
    "en": (
        (
            lazy_re(
                r"(?i)\b(?:from|as of|since|starting(?: from)?|effective|beginning) (?:now on|now|today|tomorrow|"
                r"yesterday|"
                r"immediately|this \w+|next \w+|last \w+|the \w+|(?:mon|tues|wednes|thurs|fri|satur|"
                r"sun)day)(?=[\s,.;:!]|$)"
            ),
            " now ",
        ),
        (
            lazy_re(r"(?i)\b(?:these days|once more|once again|for now|at the moment|after all|going forward)\b"),
            " now ",
        ),
        (
            lazy_re(
                r"(?i)\b(?:(?:have |had )?(?:decided|agreed|chose|opted|had) (?:to|that)|going to|in this (?:repo|"
                r"project|repository)|"
                r"of choice|right here|here(?=[\s,.;:!]|$)|last week(?:end)?|this week)\b"
            ),
            " ",
        ),
    ),
    "de": (
        (
            lazy_re(
                r"(?i)\b(?:ab sofort|ab heute|von nun an|ab jetzt|seit \w+woche|"
                r"seit (?:heute|gestern|kurzem|\d{4}|letzte[rmn]? \w+|januar|februar|märz|april|mai|juni|juli|"
                r"august|september|oktober|november|dezember)|ab nächster woche)\b"
            ),
            " jetzt ",
        ),
    ),
    "fr": (
        (
            lazy_re(r"(?i)\b(?:à partir (?:de maintenant|d['’]aujourd['’]hui)|de nouveau|à nouveau|depuis \w+)\b"),
            " maintenant ",
        ),
    ),
    "es": (
        (
            lazy_re(
                r"(?i)\b(?:a partir de (?:ahora|hoy)|de nuevo|otra vez|desde (?:hoy|ahora|ayer)|de ahora en adelante)\b"
            ),
            " ahora ",
        ),
    ),
    "it": ((lazy_re(r"(?i)\b(?:di nuovo|da oggi|d['’]ora in poi)\b"), " ora "),),
    "pt": ((lazy_re(r"(?i)\b(?:de novo|outra vez|a partir de (?:agora|hoje))\b"), " agora "),),
}
_AGAIN = {  # Spanish and French say "again" with another verb
    "es": {
        "estar": "está", "usar": "usa", "vivir": "vive", "ser": "es", "trabajar": "trabaja", "escuchar": "escucha",
        "tener": "tiene", "guardar": "guarda", "encargarse": "se encarga", "llamarse": "se llama", "costar": "cuesta",
    },
}  # fmt: skip
_PROFESSION = lazy_re(r"(?i) (?:von Beruf|de profession|de métier|de profesión|di professione|de profissão)\b")
_AGAIN_ES = lazy_re(r"(?i)\b(?:vuelve|volvió|ha vuelto|vuelven) a (\w+)")
_AGAIN_ME = lazy_re(r"(?i)\b(?:vuelvo|volví|he vuelto) a (trabajar|usar|vivir|beber)\b")
_ME = {"trabajar": "trabajo", "usar": "uso", "vivir": "vivo", "beber": "bebo"}
_CLEFT = lazy_re(
    r"(?i)^(?:c['’]est|es|it['’]s|it is|ist es|es ist|è) (\S+(?: \S+)?) (?:qui|quien|who|that|der|die|che) "
)


def _plainly(text: str, g: Grammar) -> str:
    """Return a text with "it is X who does" as "X does", and "does again" as "does now"."""
    if g.language == "es":
        text = _AGAIN_ES.sub(lambda m: "ahora " + _AGAIN["es"].get(m[1].lower(), m[1]), text)
        text = _AGAIN_ME.sub(lambda m: "ahora " + _ME[m[1].lower()], text)
    for pattern, plain in _ADJUNCTS[g.language]:
        text = pattern.sub(plain, text)
    return _CLEFT.sub(r"\1 ", text)


_ELISION = lazy_re(r"(?i)\b(j|l|d|n|m|s|c|qu|un|dell|nell|all)['’](?=\w)")
_POSSESSIVE = lazy_re(r"(?i).+(?:['’]s|s['’])")


class Word(NamedTuple):
    """One word of a clause."""

    raw: str
    low: str


class Phrase(NamedTuple):
    """A noun phrase: whose or which thing, and which of its attributes."""

    entity: tuple[str, ...]
    attribute: str = ""  # canonical where it is known
    is_known: bool = False  # the attribute is one that `words` lists
    is_new: bool = False  # "the new port": it was another before


def clauses(text: str, g: Grammar) -> list[tuple[list[Word], str]]:
    """Return the clauses of a text in order, each with the character that ends it; an empty one is left out."""
    text = _PROFESSION.sub("", text)
    text = _plainly(text.replace("’", "'"), g)
    if g.language == "en" and ("'" in text or "et" in text):
        for pattern, expanded in _CONTRACTIONS:
            text = pattern.sub(expanded, text)
    elif g.language in ("fr", "it"):
        text = _ELISION.sub(r"\1' ", text)
    found: list[list[Word]] = [[]]
    ends: list[str] = []
    for token in text.split():
        opens = token[:1] in "(—–"
        bare = token.strip(_ENDS + _EDGE + "-") if not token.startswith(("'ve", "'ll", "'re", "'d")) else token
        bare = bare if bare else token.rstrip(",;:.")
        if _elided(token, g):
            bare = token
        if token.endswith("%") or (token[:1] in "$€£"):
            bare = token.rstrip(_ENDS)
        if opens and found[-1]:
            found.append([])
            ends.append(",")
        if bare.strip(_ENDS + "-"):
            found[-1].append(Word(bare, bare.lower()))
        if token[-1] in ",;:!?.—–)" and found[-1] and not _abbreviated(token, g):
            found.append([])
            ends.append(token[-1])
    return [(c[:MAX_WORDS], end) for c, end in zip(found, [*ends, "."], strict=True) if c][:MAX_CLAUSES]


def _elided(token: str, g: Grammar) -> bool:
    return g.language in ("fr", "it") and token.endswith("'") and len(token) < 7


def _abbreviated(token: str, g: Grammar) -> bool:
    """Return whether a full stop belongs to the word: "Dr.", "e.g.", in German "3." of a date."""
    if g.language == "de" and len(token) < 4 and token[:-1].isdigit():
        return True
    return token.lower() in ("dr.", "mr.", "mrs.", "ms.", "st.", "prof.", "e.g.", "i.e.", "z.b.", "nr.", "no.", "vs.")


def noun_phrase(phrase: Sequence[Word], g: Grammar) -> Phrase:
    """Return what a noun phrase names: "the port of our staging server" is the port of staging-server."""
    rest = list(phrase)
    while rest and (rest[0].low in g.articles or rest[0].low in g.skip):
        rest = rest[1:]
    is_new = any(w.low in _NEW for w in rest)
    rest = [w for w in rest if w.low not in _ADJECTIVES]
    owner, rest = _owner(rest, g)
    left, right = _split_at(rest, g.of)
    possessor, left = _possessor(left, g)
    left, around = _split_at(left, g.near)
    attribute, remaining = _attribute(left, g)
    right = _turned(right, g)
    entity = _nouns([*possessor, *remaining, *around, *right], g)
    is_known = bool(attribute)
    if not attribute and remaining and (possessor or right or owner == I):
        attribute = "-".join(_nouns(remaining, g))
        entity = _nouns([*possessor, *around, *right], g)
    if owner == I and not entity:
        entity = (I,)
    return Phrase(entity or ((owner or WE,) if attribute or owner else ()), attribute, is_known, is_new)


_NEW = frozenset("new neue neuer neues neuen nouveau nouvelle nuevo nueva nuovo nuova novo nova".split())
_ADJECTIVES = _NEW | frozenset(
    "current default old main aktuelle aktueller aktuelles aktuellen actuel actuelle actual preferred official same "
    "own eigene bevorzugter bevorzugte bevorzugtes  primary go-to usual final".split()
)


def _owner(rest: list[Word], g: Grammar) -> tuple[str, list[Word]]:
    """Return whose it is by its first word, and the words behind it."""
    if rest and rest[0].low in g.owners:
        whose = g.owners[rest[0].low]
        return (whose if whose in (I, WE) else ""), rest[1:]
    return "", rest


def _split_at(phrase: list[Word], small: frozenset[str]) -> tuple[list[Word], list[Word]]:
    """Return the words before the first of these small words, and those behind it."""
    for i, word in enumerate(phrase):
        if i and word.low in small:
            return phrase[:i], phrase[i + 1 :]
    return phrase, []


def _turned(phrase: list[Word], g: Grammar) -> list[Word]:
    """Return "serveur de staging" as "staging serveur": the order of English and German."""
    if g.language not in ("fr", "es", "it", "pt"):
        return phrase
    head, rest = _split_at(phrase, g.of)
    return [*_turned(rest, g), *head] if rest else head


def _possessor(left: list[Word], g: Grammar) -> tuple[list[Word], list[Word]]:
    """Return the words up to the last possessive ("Mara's"), and those behind it."""
    if g.language == "de" and len(left) == 2 and left[0].raw[:1].isupper() and left[0].low.endswith("s"):
        return [Word(left[0].raw[:-1], left[0].low[:-1])], left[1:]  # "Mias Schwimmkurs"
    for i in range(len(left) - 1, -1, -1):
        if g.language == "en" and _POSSESSIVE.fullmatch(left[i].raw) and i + 1 < len(left):
            return left[: i + 1], left[i + 1 :]
    return [], left


def _attribute(left: list[Word], g: Grammar) -> tuple[str, list[Word]]:
    """Return the known attribute in a phrase and the other words; the last one, in Romance languages the first."""
    if any(words.noun(w.low) == "favourite" for w in left):
        return "favourite-" + "-".join(_nouns([w for w in left if words.noun(w.low) != "favourite"], g)), []
    for i in () if not left else (0,) if g.language in ("fr", "es", "it", "pt") else (len(left) - 1,):
        for n in (3, 2, 1):
            low = max(0, i - n + 1) if g.language in ("en", "de") else i
            part = left[low : low + n]
            found = words.attribute_of([w.low for w in part]) if len(part) == n else ""
            if found:
                return found, left[:low] + left[low + n :]
        parts = words.compound(left[i].raw)
        found = words.attribute_of(parts[-1:]) if len(parts) > 1 else ""
        if found:
            return found, [*left[:i], *(Word(p, p) for p in parts[:-1]), *left[i + 1 :]]
    return "", left


def _nouns(phrase: Sequence[Word], g: Grammar) -> tuple[str, ...]:
    """Return the canonical nouns of these words, each once, without articles, owners and small words."""
    small = g.articles | g.of | g.near | g.owners.keys() | g.now | g.skip
    kept = (p for w in phrase if w.low not in small for p in words.compound(w.raw))
    return tuple(dict.fromkeys(words.slug([p], n_words=1) for p in kept if words.slug([p], n_words=1)))[:5]


def nouns(phrase: Sequence[Word], g: Grammar) -> tuple[str, ...]:
    """Return the canonical nouns of these words, each once."""
    return _nouns(phrase, g)
