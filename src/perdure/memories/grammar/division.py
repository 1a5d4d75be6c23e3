"""A clause divided at its verb: who or what it is about, which relation the verb names, what stands behind it. Pure.

The first verb phrase that `grammar` knows divides a clause; behind a form of be or have it is the verb that follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from perdure.memories.grammar import words
from perdure.memories.grammar.clauses import Phrase, Word, clauses, noun_phrase, nouns
from perdure.memories.grammar.grammar import WE, Grammar, I


class Divided(NamedTuple):
    """A clause divided at its verb."""

    g: Grammar
    subject: list[Word]
    relation: str
    verb: tuple[str, ...]
    rest: list[Word]
    negated: bool
    changed: bool
    implied: str


def split_clauses(text: str, g: Grammar) -> list[list[Word]]:
    """Return the clauses of a text, split before conjunctions as well, without what leads in."""
    found: list[list[Word]] = []
    names: list[Word] = []  # "my job:", what the next clause gives a value
    for clause, end in clauses(text, g):
        led = _without_lead(clause, g)
        named = _named_only(led, g) if end in ":," and led else []
        if end == ":" and led and not named and _lacks_value(led, g):
            names = led
            continue
        if named and (end == ":" or named is not led):
            names = [*named, Word("is", _BE[g.language])]
            continue
        found += _split_joined([*names, *led], g)
        names = []
    return [led for c in found if (led := _without_lead(c, g))]


_BE = {"en": "is", "de": "ist", "fr": "est", "es": "es", "it": "è", "pt": "é"}
_JOINS = frozenset("because so but while weil denn aber parce car mais donc porque pero perché ma mas".split())
_AND = frozenset("and und et y e".split())


def _named_only(clause: list[Word], g: Grammar) -> list[Word]:
    """Return the attribute that a clause names without a value: "my job", "the API has a new port"; else nothing."""
    divided = divide(clause, g)
    if divided is None:
        is_name = len(clause) <= 12 and not any(w.low in g.pronouns for w in clause)
        return clause if is_name and noun_phrase(clause, g).is_known else []
    what = noun_phrase(divided.rest, g)
    if divided.relation != "has" or not (what.is_known and what.is_new) or g.language != "en":
        return []
    if [w.low for w in divided.subject] in (["i"], ["we"]):
        return [Word("my", "my"), *(w for w in divided.rest if w.low not in g.articles)]
    return [*divided.rest, Word("of", "of"), *divided.subject]


def _lacks_value(clause: list[Word], g: Grammar) -> bool:
    """Return whether a clause has a verb with nothing behind it: what follows the colon is its value."""
    divided = divide(clause, g)
    return divided is not None and all(_between(w, g) for w in divided.rest)


def _split_joined(clause: list[Word], g: Grammar) -> list[list[Word]]:
    """Return the parts of a clause that "but", or "and" before another verb, joins."""
    found, start = [], 0
    for i, word in enumerate(clause):
        if i - start < 2 or i + 2 >= len(clause):
            continue
        if word.low in _JOINS or (word.low in _AND and _goes_on(clause, i + 1, g)):
            found.append(clause[start:i])
            start = i + 1
    return [*found, clause[start:]]


def _goes_on(clause: list[Word], at: int, g: Grammar) -> bool:
    """Return whether another statement begins here: a verb, or somebody who does something."""
    while at < len(clause) and _between(clause[at], g) and (clause[at].low,) not in _COPULAS:
        at += 1
    if at >= len(clause) or clause[at].low in g.pronouns:
        return at < len(clause)
    return _verb_at(clause, at, g, is_bare=False) is not None


_COPULAS = (("is",), ("are",), ("am",), ("ist",), ("bin",), ("est",), ("es",))


def _without_lead(clause: list[Word], g: Grammar) -> list[Word]:
    """Return a clause without "btw", "note that", "from now on" and the like."""
    n_cut = 1
    while n_cut and clause:
        low = tuple(w.low for w in clause)
        n_cut = next((len(lead) for lead in g.leads.get(low[0], ()) if low[: len(lead)] == lead), 0)
        clause = clause[n_cut:]
    return clause


PAST = frozenset("früher formerly anciennement antes ehemals".split())
SUPPOSING = frozenset(
    "if unless maybe perhaps whether suppose imagine should would could falls wenn vielleicht angenommen si peut-être "
    "quizás forse talvez se".split()
)
_OPEN = frozenset(
    "if unless maybe perhaps whether suppose imagine should would could falls wenn vielleicht si peut-être quizás "
    "forse "
    "talvez se what which who how why where let can when until bis jusqu'à hasta solange".split()
)


def starts_open(clause: list[Word]) -> bool:
    """Return whether a clause only supposes, asks or remembers."""
    low = [w.low for w in clause[:4]]
    return low[0] in _OPEN or ("used" in low[:3] and "to" in low[:4]) or low[:2] == ["as", "long"]


def in_order(clause: list[Word], g: Grammar) -> list[Word]:
    """Return the words with a German participle behind its auxiliary and a pronoun before its verb."""
    if g.language != "de":
        return clause
    rest = list(clause)
    for i in range(1, len(rest)):
        if rest[i].low in ("ich", "wir") and rest[i - 1].low not in ("und", "dass", "weil", "da"):
            head = rest[: i - 1]
            about = head if head and head[0].low in _TOPIC else []
            instead = head if head and head[0].low in ("statt", "anstatt") else []
            named = head if len(head) == 1 and head[0].raw[:1].isupper() and not words.typed([head[0].raw]) else []
            rest = [*about, rest[i], rest[i - 1], *rest[i + 1 :], *instead, *named]
            break
    if rest[0].low == "um" and any(w.low == "kümmert" for w in rest[1:]):
        at = next(i for i, w in enumerate(rest) if w.low == "kümmert")
        who = [w for w in rest[at + 1 :] if w.low != "sich" and not _between(w, g)]
        return [*who, rest[at], Word("sich", "sich"), *rest[:at]]
    if rest[0].low == "für" and rest[-1].low in ("zuständig", "verantwortlich"):
        at = next((i for i, w in enumerate(rest) if w.low in ("ist", "sind")), 0)
        if at:
            return [
                *(w for w in rest[at + 1 : -1] if not _between(w, g)),
                Word("ist", "ist"),
                Word("jetzt", "jetzt"),
                rest[-1],
                *rest[:at],
            ]
    if rest and rest[-1].low == "statt" and any(w.low == "findet" for w in rest):
        rest = rest[:-1]
    if rest[-1].low in ("um", "ein", "vor") and len(rest) > 3:
        rest = rest[:-1]
    aux = next((i for i, w in enumerate(rest) if w.low in _AUXILIARY), -1)
    last = rest[-1]
    if 0 <= aux < len(rest) - 2 and last.low in g.verbs and last.low[:1].islower():
        tail = rest[aux + 1 : -1]
        return [*rest[: aux + 1], last, *tail]
    return rest


_AUXILIARY = frozenset("habe hat haben bin ist sind wurde wurden wird werden war".split())


def divide(clause: list[Word], g: Grammar) -> Divided | None:
    """Return the clause divided at its first verb; behind a form of be or have, at the verb that follows."""
    for i in range(len(clause)):
        bare = _bare(clause[:i], g)
        hit = _verb_at(clause, i, g, is_bare=not bare)
        if hit is None:
            continue
        end, verb, relation, implied = hit
        if verb[0] in _NOT_ALONE or not _is_finite(clause, i, verb, bare, g):
            continue
        if relation in ("is", "has"):
            later = _after(clause, end, g)
            if later:
                end, verb, relation, implied = later
        low = [w.low for w in clause]
        negated = any(w in g.no for w in low[max(0, i - 3) : end + 2])
        changed = any(w in g.now for w in low) or relation in ("change", "became", "rename", "replaced", "tookover")
        if g.language in ("de", "fr"):
            negated = negated or any(w in g.no for w in low[i:])
        return Divided(g, bare, relation, verb, clause[end:], negated, changed, implied)
    return _amount(clause, g) if g.language == "en" else None


_BE_FORMS = frozenset("am is are was were been be 'm 's 're started keep kept begin began".split())
_MODAL = frozenset("should could would might may can must shall".split())
_BASE = frozenset(
    "use like love work live prefer drink eat play study enjoy hate run cost favor favour speak drive own".split()
)


def _is_finite(clause: list[Word], at: int, verb: tuple[str, ...], subject: list[Word], g: Grammar) -> bool:
    """Return whether an English word that may be a verb is one here: not "a use case", "evaluate using", "may work"."""
    if g.language != "en" or not subject:
        return True
    ahead = [w.low for w in clause[max(0, at - 4) : at]]
    if verb[0].endswith("ing") and verb[0] != "being" and not _BE_FORMS & set(ahead):
        return False
    if verb[0] == "due" and ahead[-1] not in _BE_FORMS | g.skip:
        return False
    if verb[0] == "back" and ahead[-1] not in _BE_FORMS | g.skip:
        return False
    if any(w.low in _MODAL for w in subject) or subject[-1].low == "to":
        return False
    last = subject[-1].low
    if verb[0] == "like" and last in (
        "feels",
        "looks",
        "sounds",
        "seems",
        "things",
        "is",
        "just",
        "goals",
        "something",
    ):
        return False
    return verb[0] not in _BASE or last in g.pronouns or last.endswith("s") or last in ("team", "people", "folks")


_NOT_ALONE = frozenset("into responsable responsible zuständig verantwortlich responsabile responsável".split())


def _amount(clause: list[Word], g: Grammar) -> Divided | None:
    """Return the clause divided at a verb that is only known by the amount behind it: "rotates every 30 days"."""
    for i in range(1, min(len(clause) - 1, 6)):
        low, after = clause[i].low, clause[i + 1].low
        if not (low.endswith("s") and not low.endswith("ss") and low.isalpha()) or not (
            after in _AMOUNTS or after[:1].isdigit()
        ):
            continue
        if words.typed([w.raw for w in clause[i + 1 :]]) in ("quantity", "time", "money"):
            changed = any(w.low in g.now for w in clause)
            return Divided(g, clause[:i], "amount", (low,), clause[i + 1 :], False, changed, "")
    return None


_AMOUNTS = frozenset("every at on after for once twice within by in".split())


def _after(clause: list[Word], at: int, g: Grammar) -> tuple[int, tuple[str, ...], str, str] | None:
    """Return the verb phrase that stands at `at`, behind adverbs and negations; none that is again be or have."""
    while at < len(clause) and (clause[at].low in g.skip or clause[at].low in g.no or clause[at].low in g.now):
        at += 1
    hit = _verb_at(clause, at, g, is_bare=False)
    return hit if hit and hit[2] not in ("is", "has") else None


def _verb_at(clause: list[Word], at: int, g: Grammar, *, is_bare: bool) -> tuple[int, tuple[str, ...], str, str] | None:
    """Return (end, phrase, relation, implied subject) of the longest verb phrase at `at`."""
    if at >= len(clause):
        return None
    best = None
    for phrase, relation, implied in g.verbs.get(clause[at].low, ()):
        if bool(implied) != is_bare and not (implied in (I, WE) and at):
            continue
        if best and len(phrase) < len(best[1]):
            break
        end = _matched(clause, at, phrase, g)
        if end and best is None:
            best = (end, phrase, relation, implied)
    return best


def _matched(clause: list[Word], at: int, phrase: tuple[str, ...], g: Grammar) -> int:
    """Return where a phrase that starts at `at` ends, adverbs between its words allowed; 0 when it does not match."""
    for n, wanted in enumerate(phrase):
        while n and at < len(clause) and clause[at].low != wanted and _between(clause[at], g):
            at += 1
        if at >= len(clause) or clause[at].low != wanted:
            return 0
        at += 1
    return at


def _between(word: Word, g: Grammar) -> bool:
    return word.low in g.skip or word.low in g.no or word.low in g.now


def _bare(subject: Sequence[Word], g: Grammar) -> list[Word]:
    """Return a subject without adverbs, auxiliaries and negations at its edges."""
    found = list(subject)
    while found and (_between(found[-1], g)):
        found = found[:-1]
    while found and (found[0].low in g.no or found[0].low in g.now or found[0].low in g.skip):
        found = found[1:]
    return found


_TOPIC = frozenset("for für pour para per with".split())


def subject_of(found: Divided, before: tuple[str, ...]) -> Phrase | None:
    """Return whom or what a clause is about; None when a pronoun refers to something that is not known."""
    g = found.g
    pronouns = [g.pronouns[w.low] for w in found.subject if w.low in g.pronouns]
    if len(found.subject) > 1:  # "das Meeting"
        pronouns = [p for p in pronouns if p in (I, WE)]
    if found.implied in (I, WE, "go"):
        return Phrase((I if found.implied == "go" else found.implied,))
    at = next((i for i in range(len(found.subject) - 1, -1, -1) if g.pronouns.get(found.subject[i].low) in (I, WE)), -1)
    if at >= 0:
        if not all(_between(w, g) for w in found.subject[at + 1 :]):
            return None
        topic = found.subject[:at]
        if len(topic) > 1 and topic[0].low in _TOPIC:
            return Phrase(nouns(topic[1:], g))
        return Phrase((g.pronouns[found.subject[at].low],))
    if found.relation == "is" and not before and len(found.subject) == 1 and found.subject[0].low in ("it", "es", "c'"):
        return Phrase((WE,))
    if pronouns or (found.subject and g.owners.get(found.subject[0].low) in ("third", "it")):
        phrase = noun_phrase(found.subject, g) if not pronouns else Phrase(())
        return phrase._replace(entity=before) if before else None
    if len(found.subject) > 8:
        return None
    phrase = noun_phrase(found.subject, g)
    return phrase if phrase.entity or phrase.attribute else None
