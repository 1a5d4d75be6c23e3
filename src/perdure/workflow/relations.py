"""Find what a turn says of things: the entities that it names, and relations between them. Pure, and without a model.

Few forms, in English, and only between short phrases of which one is a name, a path or an identifier: a wrong edge
costs more than a missing one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from perdure.memories.sentences import sentences
from perdure.regex import lazy_re
from perdure.session import extract

_MAX_PHRASE_WORDS = 4
_MAX_ENTITY_CHARS = 80
# verb of a relation -> the forms that say it. `{s} is caused by {o}` is turned round.
_VERBS = {
    "uses": r"uses?|used|using",
    "depends on": r"depends? on|depended on|requires?|needs?",
    "causes": r"causes?|caused|leads? to|led to|breaks?|broke",
    "caused by": r"(?:is|are|was|were) caused by|comes? from|came from|(?:is|was) due to",
    "fixes": r"fix(?:es|ed)|resolves?|resolved|solves?|solved",
    "replaces": r"replaces?|replaced|supersedes?",
    "runs on": r"runs? on|runs? in|listens? on|(?:is|are) deployed (?:on|to)",
    "calls": r"calls?|called|queries|queried",
    "reads": r"reads?(?: from)?",
    "writes": r"writes?(?: to)?|wrote(?: to)?|stores?|stored",
    "contains": r"contains?|holds?",
    "is": r"(?:is|are) (?:a|an|the)",
}
_TURNED = {"caused by": "causes"}
_FORMS = lazy_re(
    "|".join(rf"(?P<v{n}>(?<!\w)(?:{form})(?!\w))" for n, form in enumerate(_VERBS.values())), re.IGNORECASE
)
_WORD = lazy_re(r"`[^`\n]+`|[\w$€£%][\w./:@#+-]*[\w%]|\w")
_STOP = lazy_re(
    r"[,;:.!?()\"](?:\s|$)|\s(?:and|but|because|so|which|that|when|while|if|then|to|for|with|after|before|by|in|on|at|of|as|from|not|was|were|is|are)\s"
)
_ARTICLES = frozenset(("the", "a", "an", "our", "its", "this", "that", "their", "all", "any", "each", "every"))
_EMPTY = frozenset(
    ("it", "this", "that", "they", "we", "i", "you", "he", "she", "there", "what", "which", "who", "nothing")
)


class Relation(NamedTuple):
    """What a turn says of two things, in small letters."""

    subject: str
    verb: str  # one of _VERBS; "" for an entity alone
    object: str


def find_entities(words: str) -> list[str]:
    """Return the names, paths and identifiers of a text, without numbers.

    >>> find_entities("Ada moved `api` to port 8443, see docs/net.md.")
    ['ada', 'api', 'docs/net.md']
    """
    terms = extract.find_terms(words)
    return sorted(term for term in terms if any(map(str.isalpha, term)) and len(term) <= _MAX_ENTITY_CHARS)


def find_relations(words: str) -> list[Relation]:
    """Return the entities of a text and the relations that it states, in their order, each once.

    >>> find_relations("The worker uses Redis.")
    [Relation(subject='redis', verb='', object=''), Relation(subject='worker', verb='uses', object='redis')]
    """
    relations: dict[Relation, None] = {}
    for start, end in sentences(words):
        sentence = " ".join(words[start:end].split())
        entities = find_entities(sentence)
        relations.update(dict.fromkeys(Relation(entity, "", "") for entity in entities))
        if not sentence.endswith("?"):
            relations.update(dict.fromkeys(_read_relations(sentence, entities)))
    return list(relations)


def _read_relations(sentence: str, entities: list[str]) -> Iterator[Relation]:
    verbs = list(_VERBS)
    for match in _FORMS.finditer(sentence):
        subject = _take_phrase(sentence[: match.start()], is_before=True)
        target = _take_phrase(sentence[match.end() :], is_before=False)
        if not subject or not target or subject == target:
            continue
        if not any(entity in subject.split() or entity in target.split() for entity in entities):
            continue
        verb = verbs[next(n for n in range(len(verbs)) if match[f"v{n}"])]
        if verb in _TURNED:
            subject, verb, target = target, _TURNED[verb], subject
        yield Relation(subject, verb, target)


def _take_phrase(part: str, *, is_before: bool) -> str:
    """Return the few words next to a verb, in small letters, without an article; "" for none, or for a pronoun."""
    stops = list(_STOP.finditer(part))
    if stops:
        part = part[stops[-1].end() :] if is_before else part[: stops[0].start()]
    words = [word.strip("`").lower() for word in _WORD.findall(part)]
    words = words[-_MAX_PHRASE_WORDS:] if is_before else words[:_MAX_PHRASE_WORDS]
    while words and words[0] in _ARTICLES:
        words = words[1:]
    return "" if not words or words[0] in _EMPTY else " ".join(words)
