"""What each relation that a verb names says of its subject: one small function for each, listed at the end. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from perdure.memories.grammar import words
from perdure.memories.grammar.clauses import Phrase, Word, noun_phrase, nouns
from perdure.memories.grammar.division import Divided, divide
from perdure.memories.grammar.grammar import WE, Grammar, I
from perdure.memories.grammar.values import (
    Claim,
    Value,
    attribute_by,
    choice_of,
    from_to,
    made,
    purpose_of,
    said_by,
    value_of,
)
from perdure.regex import lazy_re

Reading = Callable[[Divided, Phrase], Claim | None]


def _fixed(attribute: str, *, single: bool = True) -> Reading:
    """Return the reading of a verb that names its attribute by itself."""

    def read(found: Divided, phrase: Phrase) -> Claim | None:
        value = value_of(found)
        said, _ = purpose_of(value.words) if attribute not in ("time", "birthday") else (value.words, [])
        if attribute == "employer" and not (
            _is_firm(said, found) and (found.verb[-1] != "with" or len(found.subject) < 3)
        ):
            return None
        return made(found, phrase, attribute, said, single=single, old_value=said_by(value.old))

    return read


def _is_firm(said: list[Word], found: Divided) -> bool:
    """Return whether a value can be the name of an employer."""
    bare = [w for w in said if w.low not in found.g.articles]
    if not bare or bare[0].low in ("off", "out", "over", "there", "here", "home", "it", "that", "this", "time"):
        return False
    return len(bare) <= 4 and (len(bare) == len(said) or not bare[0].raw[:1].isdigit()) and _named(bare[0], found)


def _name(found: Divided, phrase: Phrase) -> Claim | None:
    return made(found, phrase, "name", value_of(found).words)


def _left(found: Divided, phrase: Phrase) -> Claim | None:
    if phrase.entity == (WE,):
        return _stopped(found, phrase)
    said, to = _split(value_of(found).words, frozenset("for pour para per für".split()))
    if said and to:
        return made(found, phrase, "value", to, old_value=said_by(said), changed=True)
    read = made(found, phrase, "employer", said, negated=True)
    return read if not read.value or _is_firm(said, found) else None


def _likes(found: Divided, phrase: Phrase, *, negated: bool = False) -> Claim | None:
    value = value_of(found)
    said, _ = purpose_of(_not_how_often(value.words, found.g))
    return made(
        found, phrase, "likes", said, single=False, negated=found.negated != negated, old_value=said_by(value.old)
    )


_OFTEN = frozenset("every each jeden jede jedes tous toutes todas todos cada ogni".split())


def _not_how_often(value: list[Word], g: Grammar) -> list[Word]:
    """Return a value without "every morning", and without the partitive of Romance languages."""
    at = next((i for i, w in enumerate(value) if w.low in _OFTEN), -1)
    if at >= 0:
        end = at + 2
        while end < len(value) and value[end - 1].low in g.articles:
            end += 1
        value = value[:at] + (value[end:] if at == 0 else [])
    while len(value) > 1 and (value[0].low in g.of or value[0].low in g.articles or value[0].low in g.skip):
        value = value[1:]
    return value


def _dislikes(found: Divided, phrase: Phrase) -> Claim | None:
    return _likes(found, phrase, negated=True)


def _uses(found: Divided, phrase: Phrase) -> Claim | None:
    """Return which tool is used: of a kind that is known, one at a time for one purpose."""
    value = value_of(found)
    old = value.old
    said = value.words
    if found.relation == "prefers" and not old:
        said, old = _split(said, found.g.to)
    said, role = _split(said, _AS)
    said, about = purpose_of(said)
    attribute, single = attribute_by(said, "likes" if found.relation == "prefers" else "uses")
    where = noun_phrase(role, found.g) if role else Phrase(())
    if where.is_known:
        attribute, single = where.attribute, True
        about = [] if where.entity in ((), (I,), (WE,)) else [Word(e, e) for e in where.entity]
    elif found.relation == "meant":
        return None
    if phrase.attribute and phrase.is_known:
        return made(found, phrase, phrase.attribute, said, old_value=said_by(old))
    if attribute == "version":
        return _version(found, phrase, said, old)
    if attribute in ("uses", "likes") and single:
        return None
    entity = "-".join(phrase.entity)
    purpose = "-".join(_purpose(about, found.g))
    if purpose and phrase.entity == (WE,) and (single or attribute == "uses"):
        return made(found, Phrase(_purpose(about, found.g)), attribute, said, single=single, old_value=said_by(old))
    name = choice_of(entity, attribute) + (f"-for-{purpose}" if purpose and single else "")
    return made(found, phrase, name, said, single=single, old_value=said_by(old))


_AS = frozenset("as als comme como come".split())
_VOID = (
    "edit",
    "cod",
    "writ",
    "program",
    "develop",
    "work",
    "install",
    "everything",
    "that",
    "this",
    "schreib",
    "everyday",
)


def _purpose(about: list[Word], g: Grammar) -> tuple[str, ...]:
    """Return what something is used for, where that tells it from other uses."""
    return () if not about or about[0].low.startswith(_VOID) else nouns(about, g)[:3]


def _split(phrase: list[Word], small: frozenset[str]) -> tuple[list[Word], list[Word]]:
    at = next((i for i, w in enumerate(phrase) if i and w.low in small), len(phrase))
    return phrase[:at], phrase[at + 1 :]


def _version(found: Divided, phrase: Phrase, said: list[Word], old: list[Word]) -> Claim | None:
    """Return which version of what: of the thing named before the number, where the subject is only who says it."""
    named = [w for w in said if not any(c.isdigit() for c in w.raw) and w.low not in ("version", "to")]
    entity = phrase.entity if phrase.entity not in ((I,), (WE,)) else nouns(named[:3], found.g)
    if not entity:
        return None
    return made(found, Phrase(entity), "version", said, old_value=said_by(old))


def _stopped(found: Divided, phrase: Phrase) -> Claim | None:
    said, about = _split(value_of(found).words, frozenset(("for",)))
    if about and words.category([w.raw for w in about]) and phrase.entity in ((I,), (WE,)):
        return _exchanged(found._replace(negated=False, changed=True), phrase, about, said)
    return _uses(found._replace(negated=True, changed=True), phrase)


def _swap(found: Divided, phrase: Phrase) -> Claim | None:
    """Return what took the place of what in "traded the Golf for a Tesla"."""
    said, about = _split(value_of(found).words, frozenset(("for", "gegen", "contre", "por")))
    return _exchanged(found._replace(changed=True), phrase, about, said) if said and about else None


def _platform(found: Divided, phrase: Phrase) -> Claim | None:
    value = value_of(found)
    phrase = _fitting(phrase, value.words)
    if phrase.is_known:
        return made(found, phrase, phrase.attribute, value.words, old_value=said_by(value.old))
    if attribute_by(value.words)[0] == "version" and phrase.entity == (WE,):
        return _version(found, phrase, value.words, value.old)
    is_port = words.typed([w.raw for w in value.words]) == "number"
    attribute, _ = attribute_by(value.words, "port" if is_port else "platform")
    return made(found, phrase, attribute, value.words, old_value=said_by(value.old))


def _language(found: Divided, phrase: Phrase) -> Claim | None:
    value = value_of(found)
    attribute, _ = attribute_by(value.words, "built-with")
    return made(found, phrase, attribute, value.words, old_value=said_by(value.old))


def _change(found: Divided, phrase: Phrase) -> Claim | None:
    """Return what was changed to what: the object of the verb where it has one, else its subject."""
    parts = from_to(found)
    g = found.g
    if parts.object and parts.words:
        subject, phrase = phrase, noun_phrase(parts.object, g)
        if (
            not phrase.is_known
            and words.category([w.raw for w in parts.object])
            and words.category([w.raw for w in parts.words])
            and words.typed([w.raw for w in parts.words]) != "version"
        ):
            return _exchanged(found, subject, parts.words, parts.object)
    said, old = parts.words, parts.old
    if not said and found.relation == "place" and phrase.entity in ((I,), (WE,)):
        return _uses(found, phrase)
    if not said or not (phrase.entity or phrase.attribute):
        return None
    phrase = _fitting(phrase, said)
    is_place = _moves(found) and _named(said[0], found) and not parts.object and not attribute_by(said)[0]
    if is_place and not phrase.is_known and phrase.attribute:
        return made(found, phrase, "home", said, old_value=said_by(old))
    if phrase.attribute and (phrase.is_known or not words.typed([w.raw for w in said])):
        name = choice_of("-".join(phrase.entity), phrase.attribute)
        return made(found, phrase._replace(attribute=""), name, said, old_value=said_by(old))
    return _exchanged(found, phrase, said, old)


def _fitting(phrase: Phrase, value: list[Word]) -> Phrase:
    """Return a phrase whose last noun is a thing, not an attribute, as its value shows: "the db is on port 1"."""
    raw = [w.raw for w in value]
    is_other = words.is_category(phrase.attribute) and (attribute_by(value)[0] or phrase.attribute) != phrase.attribute
    if not is_other and not (words.is_category(phrase.attribute) and words.typed(raw)):
        return phrase
    return Phrase((*(e for e in phrase.entity if e not in (I, WE)), phrase.attribute))


def _exchanged(found: Divided, phrase: Phrase, said: list[Word], old: list[Word]) -> Claim | None:
    """Return a change whose attribute only its values tell."""
    said, role = _split(said, _AS)
    said, about = purpose_of(said) if not words.typed([w.raw for w in said]) else (said, [])
    attribute, single = attribute_by(said)
    where = noun_phrase(role, found.g) if role else Phrase(())
    if where.is_known:
        name = choice_of("-".join(phrase.entity), where.attribute)
        return made(found, phrase, name, said, old_value=said_by(old))
    if not attribute and old:
        attribute, single = attribute_by(old)
    is_person = phrase.entity == (I,) or _moves(found)
    if attribute == "version" and phrase.entity in ((I,), (WE,)):
        return _version(found, phrase, said, old)
    if (
        not attribute
        and is_person
        and _named(said[0], found)
        and (phrase.entity != (WE,) or found.verb[0] == "relocated")
    ):
        is_home = _moves(found) and found.verb[0] not in ("went", "back") and not any(c.isdigit() for c in said[0].raw)
        attribute, single = ("home" if is_home else "value"), True
    if (
        not attribute
        and words.typed([w.raw for w in said]) == "number"
        and any(len(w.raw) > 3 for w in said)
        and phrase.entity not in ((I,), (WE,))
    ):
        attribute, single = "port", True
    if not attribute and found.verb[0] in ("build", "building", "write"):
        attribute, single = "built-with", True
    if not attribute:
        attribute, single = (
            ("value", True)
            if single
            else (
                "uses" if phrase.entity in ((I,), (WE,)) else "location" if is_person else "value",
                phrase.entity not in ((I,), (WE,)),
            )
        )
    purpose = "-".join(_purpose(about, found.g))
    name = choice_of("-".join(phrase.entity), attribute) + (
        f"-for-{purpose}" if purpose and words.is_category(attribute) else ""
    )
    return made(found, phrase, name, said, single=single, old_value=said_by(old))


def _named(word: Word, found: Divided) -> bool:
    """Return whether a word is written as a name, or nothing in its clause is."""
    clause = [*found.subject, *found.rest]
    return word.raw[:1].isupper() or not any(w.raw[:1].isupper() for w in clause if w.low != "i")


def _moves(found: Divided) -> bool:
    return found.verb[0].startswith(("mov", "relocat", "gezogen", "umgezogen", "mud", "démén", "back", "went"))


def _set(found: Divided, phrase: Phrase) -> Claim | None:
    said = value_of(found)
    if phrase.is_known:
        return made(found, phrase, phrase.attribute, said.words, old_value=said_by(said.old))
    attribute, single = attribute_by(said.words, "value")
    if found.verb[0] in ("scheduled", "planned", "due", "geplant", "prévu", "previsto"):
        attribute, single = ("deadline" if found.verb[0] == "due" else "time"), True
    return made(found, phrase, attribute, said.words, single=single, old_value=said_by(said.old))


def _rename(found: Divided, phrase: Phrase) -> Claim | None:
    parts = from_to(found)
    old = parts.object
    if old:
        phrase = noun_phrase(old, found.g)
        if phrase.is_known and parts.old:
            return _change(found, phrase)
        if not parts.words and len(old) > 1 and _named(old[-1], found) and old[-1].low not in found.g.articles:
            phrase = noun_phrase(old[:-1], found.g)
            entity = (*(e for e in phrase.entity if e not in (I, WE)), *filter(None, (phrase.attribute,)))
            return made(found, Phrase(entity or phrase.entity), "name", old[-1:])
        if not parts.words and found.subject and found.subject[0].low not in found.g.pronouns:
            return made(found, noun_phrase(found.subject, found.g), "name", old)
        entity = (
            tuple(dict.fromkeys((*phrase.entity, *phrase.attribute.split("-")))) if phrase.attribute else phrase.entity
        )
        phrase = Phrase(tuple(e for e in entity if e and e not in (I, WE)) or entity)
    said = parts.words
    if not said or not phrase.entity or (not old and phrase.entity in ((I,), (WE,))):
        return None
    old_value = said_by(old) if old else said_by(parts.old)
    return made(found, phrase, "name", said, old_value=old_value)


def _replaced(found: Divided, phrase: Phrase) -> Claim | None:
    """Return what took whose place: "X replaced Y", "Y was replaced by X", "we replaced Y with X"."""
    value = value_of(found).words
    if len(found.verb) > 1 and found.verb[-1] in ("by", "with", "durch", "von", "par", "por"):
        return _exchanged(found, _as_tool(phrase), value, found.subject)
    said, about = _split(value, frozenset(("with", "by", "durch", "par", "por", "con")))
    if about:
        return _exchanged(found, _as_tool(noun_phrase(said, found.g)), about, said)
    said, role = _split(said, frozenset(("as", "als", "comme", "como")))
    if role:
        where = noun_phrase(role, found.g)
        return made(
            found, where._replace(attribute=""), where.attribute or "role", found.subject, old_value=said_by(said)
        )
    return _exchanged(found, Phrase((WE,)), found.subject, said)


def _as_tool(phrase: Phrase) -> Phrase:
    """Return the project as the subject where a phrase is only a tool's name."""
    return phrase if phrase.is_known else Phrase((WE,))


def _tookover(found: Divided, _: Phrase) -> Claim | None:
    parts = from_to(found)
    taken = parts.object or parts.words
    what = noun_phrase(taken[1:] if taken and taken[0].low in ("as", "als") else taken, found.g)
    if not what.entity or not found.subject:
        return None
    attribute = what.attribute if what.is_known else "owner"
    if what.attribute and not what.is_known:
        what = Phrase((*what.entity, *what.attribute.split("-")))
    return made(found, what._replace(attribute=""), attribute, found.subject, old_value=said_by(parts.old))


def _handed(found: Divided, _: Phrase) -> Claim | None:
    parts = from_to(found)
    what = noun_phrase([w for w in parts.object if w.low != "over"], found.g)
    if not what.entity or not parts.words:
        return None
    entity = Phrase(tuple(dict.fromkeys((*what.entity, *what.attribute.split("-"))) if what.attribute else what.entity))
    return made(found._replace(changed=True), entity, "owner", parts.words, old_value=said_by(found.subject))


def _time(found: Divided, phrase: Phrase) -> Claim | None:
    value = value_of(found)
    kind = words.typed([w.raw for w in value.words])
    if phrase.is_known:
        return _is(found, phrase)
    attribute = (
        "end"
        if found.verb[0] in ("ends", "closes")
        else "time"
        if kind in ("time", "number", "quantity")
        else "location"
    )
    return made(found, phrase, attribute, value.words, old_value=said_by(value.old))


def _owns(found: Divided, phrase: Phrase) -> Claim | None:
    value = value_of(found)
    what = noun_phrase(value.words, found.g)
    if not what.entity or I in what.entity or len(value.words) > 6 or not found.subject:
        return None
    who = Word("user", "user") if phrase.entity == (I,) else None
    entity = Phrase(tuple(dict.fromkeys((*what.entity, *what.attribute.split("-"))) if what.attribute else what.entity))
    return made(found, entity, "owner", [who] if who else found.subject)


def _born(found: Divided, phrase: Phrase) -> Claim | None:
    value = value_of(found).words
    is_date = words.typed([w.raw for w in value]) in ("time", "number")
    return made(found, phrase, "birthday" if is_date else "birthplace", value)


def _has(found: Divided, phrase: Phrase) -> Claim | None:
    """Return how many of something somebody has, or that they have it."""
    value, _ = purpose_of(value_of(found).words)
    raw = [w.raw for w in value]
    bare = words.canonical(raw)
    role = _split(value_of(found).words, _AS)[1]
    if role and noun_phrase(role, found.g).is_known:
        return _uses(found, phrase)
    attribute, others = _attribute_in(value_of(found).words, found.g)
    if attribute and phrase.entity not in ((I,), (WE,)) and others:
        return made(found, phrase, attribute, others)
    if len(bare) > 1 and bare[0].isdigit():
        return made(found, phrase, f"n-{bare[1]}", value[:2])
    where = noun_phrase(value, found.g)
    if phrase.entity in ((I,), (WE,)) or not where.is_known:
        return made(found, phrase, "has", value, single=False) if len(value) <= 4 else None
    return None


def _attribute_in(value: list[Word], g: Grammar) -> tuple[str, list[Word]]:
    """Return a known attribute among these words and its value: "a 30s timeout", "its name Otto back"."""
    for i, word in enumerate(value):
        found = words.attribute_of([word.low])
        if found:
            behind = [w for w in value[i + 1 :] if w.low not in g.of and w.low not in ("back", "zurück")]
            ahead = [w for w in value[:i] if any(c.isdigit() for c in w.raw)]
            return found, behind or ahead
    return "", []


def _limit(found: Divided, phrase: Phrase) -> Claim | None:
    """Return the limit of "the API accepts uploads up to 5 MB" and "uploads are capped at 5 MB"."""
    value = value_of(found)
    what, said = _split(value.words, frozenset(("to",))) if len(found.verb) == 1 else ([], value.words)
    if len(found.verb) == 1 and (not said or not what or what[-1].low != "up"):
        return None
    entity = tuple(dict.fromkeys((*nouns(what[:-1], found.g), *phrase.entity)))
    return made(found, phrase._replace(entity=entity), "limit", said, old_value=said_by(value.old))


def _charge(found: Divided, _: Phrase) -> Claim | None:
    """Return the price of "we charge $9 a month for the basic plan"."""
    said, about = _split(value_of(found).words, frozenset(("for",)))
    return made(found, noun_phrase(about, found.g), "price", said) if about and said else None


def _generic(found: Divided, phrase: Phrase) -> Claim | None:
    """Return a claim named by its verb; one value at a time only where the value is a time, an amount or a version."""
    value = value_of(found)
    verb = found.verb[0].removesuffix("s")
    attribute, single = attribute_by(value.words, verb)
    at = max((i for i, w in enumerate(value.words) if w.low in found.g.near), default=-1)
    behind = words.category([w.raw for w in value.words[at + 1 :]]) if at > 0 else ""
    if behind:
        return made(found, phrase, behind, value.words[at + 1 :], old_value=said_by(value.old))
    name = phrase.attribute if phrase.is_known else f"{verb}-{attribute}" if single and attribute != verb else verb
    return made(found, phrase, name, value.words, single=single or phrase.is_known, old_value=said_by(value.old))


def _lies(found: Divided, phrase: Phrase) -> Claim | None:
    value = value_of(found)
    if phrase.is_known:
        return made(found, phrase, phrase.attribute, value.words, old_value=said_by(value.old))
    attribute, _ = attribute_by(value.words, "location")
    return made(found, phrase, attribute, value.words, old_value=said_by(value.old))


def _is(found: Divided, phrase: Phrase) -> Claim | None:
    """Return what a form of "be" says: the value of an attribute, a role, a participle with its value, a kind."""
    value = value_of(found)
    if not value.words:
        return None
    old = said_by(value.old)
    first = value.words[0].low
    if first in _JUDGED or (
        len(value.words) == 1 and phrase.is_known and len(first) > 4 and _PARTICIPLE.fullmatch(first)
    ):
        return None
    phrase = _fitting(phrase, value.words)
    if phrase.attribute and (phrase.is_known or _is_plain(value.words, found.g)):
        name = choice_of("-".join(phrase.entity), phrase.attribute)
        return made(
            found,
            phrase._replace(attribute=""),
            name,
            value.words,
            old_value=old,
            changed=found.changed or phrase.is_new,
        )
    inverted = _inverted(found, value)
    owner = found.g.owners.get(found.subject[0].low) if found.subject else ""
    if (
        owner == WE
        and not inverted
        and _named(value.words[0], found)
        and not attribute_by(value.words)[0]
        and not phrase.attribute
    ):
        name = "-".join(phrase.entity)
        return made(found, Phrase((WE,)), name, value.words, old_value=old, changed=found.changed or phrase.is_new)
    if inverted:
        return inverted
    return _described(found, phrase, value)


_JUDGED = frozenset(
    "too so very wrong right broken fine good bad great missing failing slow fast ok okay red gone ready "
    "unclear outdated different better worse nice ugly weird empty down up working kaputt falsch schlecht cassé "
    "mauvais roto mal".split()
)


def _is_plain(value: list[Word], g: Grammar) -> bool:
    """Return whether a value names something: not "is broken", "is very slow"."""
    first = next((w for w in value if w.low not in g.articles), value[0])
    return (
        first.raw[:1].isupper()
        or any(c.isdigit() for c in first.raw)
        or bool(attribute_by(value)[0])
        or g.language == "de"
    )


def _inverted(found: Divided, value: Value) -> Claim | None:
    """Return the claim of "Yasmin is our new accountant", "9090 is the new port of staging"."""
    if not found.subject or found.subject[0].low in found.g.pronouns or not value.words:
        return None
    first = value.words[0].low
    where = noun_phrase(value.words, found.g)
    is_owned = first in found.g.owners and found.g.owners[first] in (I, WE)
    if where.attribute and (
        (where.is_known and (is_owned or where.is_new or first in ("the", "der", "die", "das", "le", "la", "el", "la")))
        or is_owned
    ):
        return made(
            found,
            where._replace(attribute=""),
            choice_of("-".join(where.entity), where.attribute),
            found.subject,
            old_value=said_by(value.old),
            changed=found.changed or where.is_new,
        )
    if is_owned and len(where.entity) <= 3 and where.entity not in ((I,), (WE,)):
        return made(found, Phrase((WE,)), "-".join(where.entity), found.subject, changed=found.changed or where.is_new)
    return None


_TRADE = lazy_re(
    r"(?i)(?:cheffe|chef|jefe|jefa|head|lead)|.{2,}(?:ecte|ect|er|or|ist|ian|ant|eer|man|woman|in|eur|euse|rice|ière|"
    r"ienne|ien|iste|ista|era|ero|ora|adora|nte|ogo|oga|co|ca)"
)
_NO_TRADE = frozenset(
    "person member runner lover mother father sister brother beginner user reader gamer smoker daughter owner customer "
    "partner newcomer believer winner sicher fertig sure contento seguro sicher dabei hier nervous bit bin ein "
    "allein mein dein kein drin later never over together better under busca cerca nunca poco loco rico serio "
    "bien rien cansado vegetarian".split()
)


def _is_trade(word: Word) -> bool:
    """Return whether a noun looks like what somebody does for a living."""
    return word.low not in _NO_TRADE and _TRADE.fullmatch(word.low) is not None


_PARTICIPLE = lazy_re(
    r"(?:\w+ed|kept|sent|done|built|held|made|written|paid|stored|sold|drawn|given|taken|shown|known|\w+[ae]d[oa]|"
    r"ge\w+t)"
)


def _described(found: Divided, phrase: Phrase, value: Value) -> Claim | None:
    """Return what kind of thing the subject is, or what is done with it."""
    said, g = value.words, found.g
    low = [w.low for w in said]
    if len(said) > 2 and _PARTICIPLE.fullmatch(low[0]) and low[1] in g.near | g.to | {"from", "through"}:
        verb = low[0] + "-" + low[1]
        kind = words.typed([w.raw for w in said[2:]]) or words.category([w.raw for w in said[2:]])
        is_port = kind == "number" and len(said[2].raw) > 3
        verb = "port" if is_port else kind if words.is_category(kind) else verb
        return made(found, phrase, verb, said[2:], single=bool(kind) or low[1] == "by", old_value=said_by(value.old))
    while said and (said[0].low in g.near or said[0].low in g.to):
        said = said[1:]
    attribute, single = attribute_by(said)
    if low[0] == "at" and words.typed([w.raw for w in said]) == "number" and len(said[0].raw) < 3:
        attribute, single = "time", True
    has_digit = any(c.isdigit() for w in said for c in w.raw)
    if phrase.entity == (WE,) and (attribute == "version" or (not attribute and has_digit)):
        return _version(found, phrase, said, value.old)
    if attribute or single:
        return made(found, phrase, attribute or "value", said, single=single, old_value=said_by(value.old))
    return _kind(found, phrase, value._replace(words=said))


def _kind(found: Divided, phrase: Phrase, value: Value) -> Claim | None:
    """Return what somebody is for a living, how old they are, or what kind of thing something is."""
    bare = [w for w in value.words if w.low not in found.g.articles]
    if not bare:
        return None
    old = said_by(value.old)
    is_job = phrase.entity == (I,) and _is_job(value.words, bare, found.g)
    is_job = is_job or (found.relation == "became" and value.words[0].low in ("a", "an") and len(bare) < 4)
    if is_job or any(words.is_profession(w.raw) for w in bare[:3]):
        return made(found, phrase, "job", bare, old_value=old)
    if phrase.entity == (I,) and len(bare) > 1 and bare[1].low == "years":
        return made(found, phrase, "age", bare)
    if found.changed and any(w.low in ("at", "bei", "chez") for w in found.rest[:2]) and _named(bare[0], found):
        return made(found, phrase, "value", bare, old_value=old)
    return made(found, phrase, "is", bare, single=False, old_value=old) if len(bare) <= 5 else None


def _is_job(said: list[Word], bare: list[Word], g: Grammar) -> bool:
    """Return whether "I am a …" names a job: in English with its article, in Romance languages by its first word."""
    head = bare[0] if g.language in ("fr", "es", "it", "pt") else bare[-1]
    return len(bare) < 4 and _is_trade(head) and (g.language != "en" or said[0].low in ("a", "an"))


def _instruction(found: Divided, phrase: Phrase) -> Claim | None:
    """Return a standing instruction: what always or never is to be done."""
    if found.rest:
        inner = divide(found.rest, found.g)
        if inner and not inner.subject and inner.relation in ("usego", "answer"):
            read = RELATIONS[inner.relation](inner._replace(negated=found.relation == "never"), phrase)
            if read:
                return read
    said = value_of(found)
    negated = found.relation == "never"
    return made(found, phrase, "instructions", said.words, single=False, negated=negated, old_value=said_by(said.old))


def _use(found: Divided, phrase: Phrase) -> Claim | None:
    read = _uses(found._replace(negated=found.relation == "nouse"), phrase)
    return replace(read, attribute="instructions") if read and read.attribute == "uses" else read


def _answer(found: Divided, phrase: Phrase) -> Claim | None:
    value = value_of(found).words
    if words.category([w.raw for w in value]) != "language":
        return None
    return made(found, phrase, "preferences/language", value[:1])


def _keep(found: Divided, phrase: Phrase) -> Claim | None:
    value = value_of(found).words
    low = [w.low for w in value]
    about = next((w for w in low if w in ("answers", "replies", "responses", "explanations", "messages")), "")
    if not about:
        return None
    return made(found, phrase, f"preferences/{words.noun(about)}", [w for w in value if w.low not in (about, "your")])


RELATIONS: dict[str, Reading] = {
    "name": _name,
    "callme": _fixed("name"),
    "employer": _fixed("employer"),
    "leftjob": _left,
    "swap": _swap,
    "job": _fixed("job"),
    "home": _fixed("home"),
    "prefers": _uses,
    "likes": _likes,
    "dislikes": _dislikes,
    "allergic": _fixed("allergies", single=False),
    "uses": _uses,
    "stoppeduse": _stopped,
    "port": _fixed("port"),
    "host": _fixed("host"),
    "platform": _platform,
    "lang": _language,
    "change": _change,
    "set": _set,
    "rename": _rename,
    "replaced": _replaced,
    "tookover": _tookover,
    "handed": _handed,
    "became": _is,
    "time": _time,
    "price": _fixed("price"),
    "owner": _fixed("owner"),
    "owns": _owns,
    "partner": _fixed("partner"),
    "speaks": _fixed("speaks", single=False),
    "born": _born,
    "drives": _fixed("car"),
    "plays": _fixed("plays", single=False),
    "studies": _fixed("studies"),
    "reads": _fixed("reads", single=False),
    "pays": _generic,
    "place": _change,
    "meant": _uses,
    "timeout": _fixed("timeout"),
    "limit": _limit,
    "charge": _charge,
    "manager": _fixed("manager"),
    "amount": _generic,
    "has": _has,
    "keeps": _generic,
    "takes": _generic,
    "goes": _generic,
    "wears": _generic,
    "lies": _lies,
    "is": _is,
    "always": _instruction,
    "never": _instruction,
    "may": _instruction,
    "usego": _use,
    "nouse": _use,
    "answer": _answer,
    "keepgo": _keep,
}
