"""What a statement claims: of which entity, which attribute, which value. By rules, in seven languages. Pure.

What the verb means and what the value is like decide which attribute is meant. The same fact said in another language
gives the same path. Where the rules are unsure there is no claim: a memory without one supersedes nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

from perdure.memories.grammar import chinese, words
from perdure.memories.grammar.clauses import Phrase, Word, noun_phrase
from perdure.memories.grammar.division import (
    PAST,
    SUPPOSING,
    Divided,
    divide,
    in_order,
    split_clauses,
    starts_open,
    subject_of,
)
from perdure.memories.grammar.grammar import WE, Grammar, I, grammar, languages_of
from perdure.memories.grammar.relations import RELATIONS
from perdure.memories.grammar.values import Claim, made, said_by, value_of
from perdure.regex import lazy_re

MAX_CHARS = 600  # of a text that is read; a memory's text is shorter


@lru_cache(maxsize=4096)
def claim(text: str) -> Claim | None:
    """Return what a statement claims, None where the rules cannot tell.

    >>> claim("Our staging server listens on port 8080 now.").path
    'staging-server/port'
    >>> claim("Ich arbeite jetzt bei Siemens.").path, claim("I no longer drink coffee").path
    ('user/employer', 'user/likes/coffee')
    """
    text = text[:MAX_CHARS].strip()
    if not text or text.endswith(("?", "？")):
        return None
    if chinese.is_chinese(text):
        read = chinese.read(text)
        return Claim(**read) if read else None  # type: ignore[arg-type]
    return _best(_told(text))


def _best(told: tuple[str, str]) -> Claim | None:
    """Return the claim of a text in the likeliest of its languages that gives one."""
    speaker, text = told
    parts = [w.strip(".,;:!?()") for w in text.lower().replace("’", "'").replace("'", "' ").split()]
    best: Claim | None = None
    for language in languages_of(parts):
        found = _said_in(text, speaker, grammar(language))
        if found and found.value and (best is None or _weight(found) > _weight(best)):
            best = found
        if best and _weight(best)[0]:
            break
    return best


def _said_in(text: str, speaker: str, g: Grammar) -> Claim | None:
    """Return the best claim of a text in one language, the speaker's where it is reported."""
    before: tuple[str, ...] = (words.noun(speaker),) if speaker else ()
    found: list[Claim] = []
    subject: list[Word] = []
    topic: list[Word] = []  # "my manager changed, it's …"
    parts = split_clauses(text, g)
    if not parts or parts[0][0].low in SUPPOSING:
        return None
    for clause in parts:
        old = _only_old(clause, g)
        if old and found and not found[-1].old_value:
            found[-1] = replace(found[-1], old_value=old)
            continue
        ordered = in_order(clause, g)
        divided = divide(ordered, g)
        if subject and (divided is None or not divided.subject) and ordered[0].low not in ("like", "study", "work"):
            divided = divide([*subject, *ordered], g) or divided
        if divided and topic and [w.low for w in divided.subject] in (["it"], ["es"], ["c'"]):
            divided = divided._replace(subject=topic, changed=True)
        topic = _topic(divided)
        if divided is None:
            if found and found[-1].negated and len(clause) <= 5:  # "no longer with A, but with B"
                said = said_by(
                    [w for w in clause if w.low not in g.near and w.low not in g.now and w.low not in g.skip]
                )
                found[-1] = replace(found[-1], value=said, old_value=found[-1].value, negated=False, changed=True)
            continue
        read = _read(clause, divided, before)
        subject = divided.subject or subject
        if read is None:
            if divided.relation == "change" and not before:
                named = divided.subject if not any(w.low in g.pronouns for w in divided.subject) else []
                before = noun_phrase(named or value_of(divided).words, g).entity
            continue
        if found and found[-1].negated and not read.negated and not read.old_value:
            read = _instead(read, found[-1])
        found.append(read)
        before = before or (tuple(read.entity.split("-")) if read.entity not in (I, WE) else ())
    best = max(found, key=_weight, default=None)
    return replace(best, changed=True) if best and not best.changed and _TURNED.search(text) else best


def _topic(divided: Divided | None) -> list[Word]:
    """Return the subject that a clause says has changed, without saying to what."""
    if divided is None or divided.relation != "change" or divided.rest:
        return []
    return divided.subject if noun_phrase(divided.subject, divided.g).is_known else []


_TURNED = lazy_re(
    r"(?i)\b(?:changed? (?:my|our|of) (?:mind|plans?)|reversed|scratch that|no longer|wrong|mistake|correction|sorry|"
    r"misread|typo|oops|mixed (?:that |it )?up|falsch|korrektur|"
    r"verwechselt|erreur|corrección|perdón|equivoqu\w+|after all|finally|doch|"
    r"finalement|"
    r"en fin de compte|al final|cambio de planes|planänderung)\b"
)


def _instead(read: Claim, ended: Claim) -> Claim:
    """Return the claim of "quit Acme and moved to Initech": what ended is what the new one replaces."""
    if read.attribute in ("value", "is", "location") and ended.attribute not in _WEAK and read.entity == ended.entity:
        return replace(read, attribute=ended.attribute, single=ended.single, old_value=ended.value, changed=True)
    if ended.attribute == "employer" and read.attribute in (*_WEAK, "home") and read.entity == ended.entity:
        return replace(read, attribute="employer", single=True, old_value=ended.value)
    return replace(read, old_value=ended.value) if read.entity == ended.entity else read


_WEAK = ("uses", "is", "value", "has", "location", "instructions", "likes", "platform", "keep", "takes", "goes")


def _weight(read: Claim) -> tuple[bool, bool, bool]:
    """Return how much a claim tells, to choose the best of a text."""
    return read.attribute not in _WEAK, read.changed or bool(read.old_value), not read.negated


_TOLD = lazy_re(
    r"(?:(?P<who>[A-Z][\w-]+|[Ss]he|[Hh]e|[Tt]hey) (?:just |also )?(?:has |have )?(?:told (?:me|us)|said|says|"
    r"mentioned|confirmed|announced|wrote)"
    r"|(?P<wer>[A-Z][\w-]+) (?:hat (?:mir |uns )?(?:gesagt|erzählt)|sagt)"
    r"|(?P<qui>[A-Z][\w-]+) (?:m['’]a dit|dit)|(?P<quien>[A-Z][\w-]+) (?:me )?(?:dijo|ha dicho))"
    r",? (?:that |dass |qu[e'’] ?)?(?P<what>.+)",
    16,
)


def _told(text: str) -> tuple[str, str]:
    """Return who is said to have told it, and what: "Mara told me her port is 80" is Mara's."""
    match = _TOLD.match(text)
    if not match:
        return "", text
    who = match["who"] or match["wer"] or match["qui"] or match["quien"]
    return ("" if who.lower() in ("she", "he", "they") else who), match["what"]


def _only_old(clause: list[Word], g: Grammar) -> str:
    """Return the old value when a clause says nothing else: "not 9090", "instead of vim"."""
    low = tuple(w.low for w in clause)
    lead = next((p for p in g.instead if low[: len(p)] == p), ())
    if not lead or len(clause) > len(lead) + 4 or lead == ("als",):
        return ""
    return said_by([w for w in clause[len(lead) :] if w.low not in g.articles and w.low not in g.now])


def _read(clause: list[Word], found: Divided, before: tuple[str, ...]) -> Claim | None:
    """Return what one clause claims."""
    if any(w.low in PAST for w in clause) or starts_open(clause):
        return None
    phrase = subject_of(found, before)
    if phrase is None:
        return None
    port = _port(found, phrase)
    if port:
        return port
    act = RELATIONS.get(found.relation)
    read = act(found, phrase) if act else None
    if read and (read.entity in (I, WE) and read.attribute in _OF_THINGS and not phrase.is_known):
        return None
    if read and found.relation in _OF_PEOPLE and not _is_somebody(found, phrase):
        return None
    if read and any(w.low in _ALSO for w in clause):
        read = replace(read, single=False)
    return _shared(read) if read and _is_worth(read) else None


_OF_THINGS = frozenset("time price version url host platform location value state".split())
_OF_PEOPLE = frozenset(
    "employer job home prefers likes dislikes allergic partner speaks born drives plays studies reads manager".split()
)


def _is_somebody(found: Divided, phrase: Phrase) -> bool:
    """Return whether the subject of a verb that people do is short enough to be somebody: not "goals, like"."""
    small = found.g.articles | found.g.owners.keys()
    return phrase.entity in ((I,), (WE,)) or len([w for w in found.subject if w.low not in small]) <= 3


_ALSO = frozenset("also too aussi también auch außerdem zusätzlich anche também besides additionally".split())


def _port(found: Divided, phrase: Phrase) -> Claim | None:
    """Return the port that a clause names outright, whatever its verb; None where something is moved from or to it."""
    if found.relation in ("change", "place", "port", "likes", "always", "never") or phrase.entity in ((), (I,), (WE,)):
        return None
    for word, number in pairwise(found.rest):
        if words.attribute_of([word.low]) == "port" and number.raw.isdigit():
            old = value_of(found).old
            bare = [w for w in old if w.raw.isdigit()]
            return made(found, phrase, "port", [number], old_value=said_by(bare or old))
    return None


def _shared(read: Claim) -> Claim:
    """Return the claim under the project where its attribute is one that a project chooses."""
    bare = read.attribute.removeprefix("preferences/")
    kind = bare.split("-for-")[0]
    if read.entity in (I, WE) and words.is_shared(kind):
        read = replace(read, entity=WE, attribute=bare)
    if read.entity in (I, WE) and kind in words.SEVERAL and not read.attribute.startswith("preferences/language"):
        read = replace(read, single=False)
    if words.is_shared(kind) and set(read.entity.split("-")) <= _ACTIVITIES:
        return replace(read, entity=WE)
    return replace(read, entity=I) if read.entity == WE and read.attribute in _PERSONAL else read


_PERSONAL = frozenset(
    "home phone email birthday age employer job salary rent wife husband surname dentist doctor".split()
)
_ACTIVITIES = frozenset(
    "deploy deployment build release pipeline ci hosting issue tracking tracker indentation code team repo test "
    "project".split()
)


def _is_worth(read: Claim) -> bool:
    """Return whether a claim names something and says something of it."""
    value = words.canonical(read.value.split())
    if not read.entity or not read.attribute or not value or value[0] in _EMPTY:
        return False
    return read.entity not in _EMPTY and len(value) <= 12


_EMPTY = frozenset(
    "it this that these those there here one what which something nothing everything das es cela esto".split()
)


# ------------------------------------------------------------------------------------------------- comparison


def path_for(text: str, kind: str) -> str:
    """Return the path of a memory that says this: its claim's, or a stable one of its own under its kind.

    >>> path_for("My editor is Helix.", "preference"), path_for("Quite a day!", "event")
    ('user/preferences/editor', 'stated/event/quite-a-day-f128c2')
    """
    read = claim(text)
    if read:
        return read.path
    mark = hashlib.sha256(" ".join(text.casefold().split()).encode("utf-8", "replace")).hexdigest()[:6]
    return f"stated/{kind}/{words.slug(text.split()) or 'text'}-{mark}"


def same_subject(new: Claim, old: Claim) -> bool:
    """Return whether a newer claim is about what the older one is about, so that it takes its place.

    >>> same_subject(claim("The API port is 81"), claim("The API server listens on port 80"))
    True
    >>> same_subject(claim("The staging port is 81"), claim("The production port is 80"))
    False
    """
    if not _same_entity(new, old):
        return new.attribute == old.attribute == "name" and _renames(new, old)
    is_same_value = _same_value(new.value, old.value)
    replaces = bool(new.old_value) and _same_value(new.old_value, old.value)
    returns = bool(old.old_value) and _same_value(new.value, old.old_value)
    if not _same_attribute(new.attribute, old.attribute):
        return _kin(new, old, is_told=replaces or returns, is_same_value=is_same_value)
    if not (new.single and old.single):
        is_moved = new.changed and not new.negated and new.entity not in (I, WE) and new.attribute not in _SIDE_BY_SIDE
        return is_same_value or replaces or returns or is_moved
    return not new.negated or is_same_value or old.negated


_OF_NAMES = ("employer", "owner", "location")  # what only a name tells, where the verb says no more


def _renames(new: Claim, old: Claim) -> bool:
    """Return whether a renaming calls a thing by the name that the older claim gave it."""
    name = frozenset(words.canonical(old.value.replace("-", " ").split()))
    return (
        bool(name and new.old_value)
        and name | set(old.entity.split("-")) <= {*new.entity.split("-"), WE, "project"} | name
        and (name <= frozenset(words.canonical(new.old_value.replace("-", " ").split())))
    )


_SIDE_BY_SIDE = ("likes", "allergies", "speaks", "uses", "has", "is", "plays", "reads", "instructions")


def _kin(new: Claim, old: Claim, *, is_told: bool, is_same_value: bool) -> bool:
    """Return whether two attributes of one thing are two names of one attribute, as far as the values tell."""
    a, b = new.attribute.removeprefix("preferences/"), old.attribute.removeprefix("preferences/")
    if a.split("-for-")[0] == b.split("-for-")[0] and is_told:
        return True
    if is_told and (new.changed or a in _WEAK or b in _WEAK):
        return True
    if is_same_value:
        is_exact = words.canonical(new.value.split()) == words.canonical(old.value.split())
        return is_exact and (a in _WEAK or b in _WEAK) and (new.changed or new.negated != old.negated)
    if not (new.changed and new.single and a in ("value", "location", "platform")):
        return False
    is_name = a == "value" and b in _OF_NAMES and new.value[:1].isupper() and not new.old_value
    kinds = words.typed(new.value.split()), words.typed(old.value.split())
    return kinds[0] == kinds[1] != "" or is_name or (b == "version" and kinds[0] == "number")


def _same_entity(new: Claim, old: Claim) -> bool:
    """Return whether two claims name one thing: equal, or different only in words such as "server"."""
    a, b = (frozenset(c.entity.split("-")) - {"project"} for c in (new, old))
    own = {new.attribute, old.attribute}
    return (
        a == b
        or (bool(a - own) and a - own == b - own)
        or ((a - words.GENERIC == b - words.GENERIC and bool(a and b)) and (a <= b or b <= a))
    )


_ONE = (("time", "deadline"), ("built-with", "framework", "code-language"))


def _same_attribute(new: str, old: str) -> bool:
    """Return whether two attributes are one: a deadline is the time of what it is for."""
    return new == old or any(new in group and old in group for group in _ONE)


def _same_value(a: str, b: str) -> bool:
    """Return whether two values name the same: equal words, or one is the other with something more."""
    one, two = frozenset(words.canonical(a.split())), frozenset(words.canonical(b.split()))
    return one == two or (bool(one and two) and (one <= two or two <= one) and abs(len(one) - len(two)) <= 2)


def says_same(a: str, b: str) -> bool:
    """Return whether `a` only restates `b`: the same claim and value with no detail more, or nearly the same words.

    >>> says_same("My editor is Helix", "I use Helix"), says_same("Port is 80", "Port is 81")
    (True, False)
    >>> says_same("We deploy on Tuesdays, never on Fridays", "We deploy on Thursdays, never on Fridays")
    False
    """
    one, two = claim(a), claim(b)
    if one and two:
        same = words.canonical(one.value.split()) == words.canonical(two.value.split())
        new = _bag(a) - _bag(b)
        adds = (len(new) > _FEW and len(a.split()) > len(b.split()) + _FEW) or any(map(_settles, new))
        return same and one.path == two.path and one.negated == two.negated and not adds
    return not (one or two) and _bag(a) == _bag(b)


def _settles(word: str) -> bool:
    """Whether a word is a figure or a day, which nobody says in passing."""
    return any(map(str.isdecimal, word)) or word in _DAYS


_DAYS = frozenset(map(words.noun, "monday tuesday wednesday thursday friday saturday sunday".split()))
_FEW = 2  # words that a restatement may have more: "port 8080, which nginx serves to the public" says more


def _bag(text: str) -> frozenset[str]:
    """Return the words of a text that tell it from others."""
    plain = (w.strip(".,;:!?\"'()`").lower() for w in text.split())
    return frozenset(words.noun(w) for w in plain if w and w not in words.ARTICLES and w not in _FILLERS)


_FILLERS = frozenset("really very just also please btw actually so well ok okay that is are".split())
