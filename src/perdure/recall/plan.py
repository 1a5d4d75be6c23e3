"""A message becomes a plan: short queries, names, windows of time, what kind of answer is wanted, whose words.

Rules only: no model, no index, and `now` is a parameter, so the same message gives the same plan. A message without
a word that carries meaning ("ok, go on") gives no query, and recall stays silent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime

from perdure import text
from perdure.patterns import late
from perdure.recall.times import times
from perdure.types import Intent, Plan

MAX_QUERIES = 4
MIN_WORDS, MAX_WORDS = 2, 6  # of a query
MAX_CHARS = 2000  # of a message that are read; what follows is mostly pasted
MAX_NAMES = 8

_FENCED = late(r"```.*?(?:```|\Z)|^>.*$", re.DOTALL | re.MULTILINE)
_CLAUSE = late(
    r"[.!?;:](?=\s|$)|[。！？；，]+|\n+|, (?=(?:and|but|also|so|what|when|where|how|why|who|which|did|do|can)\b)"
    r"|\b(?:and also|also,|by the way,?|besides,?|as well as)\b|另外|还有|顺便|außerdem|par ailleurs|además",
    re.IGNORECASE,
)
_FILLER = frozenset(
    """please thanks thank hi hello hey ok okay yes sure great just really actually maybe perhaps want wanted wants
    need needs tell show give know remind remember recall mention mentioned said say says talk talked discuss
    discussed told ask asked could can help let like get got make made also any some still about again back one thing
    things something anything now then there here lot much many more go going way ever been go on continue proceed
    do done it next since before after between until during yep yeah nope no lgtm cool nice perfect
    und oder aber der die das den dem ein eine ich du wir ist
    war hat haben mit für auf von zu im in wie was wann wo wer warum bitte danke mal noch le la les un une des du de et
    est je tu nous vous que qui quoi quand comment pourquoi où s'il el los las una y yo es fue que qué cuándo cómo por
    please let's i'm i've i'd i'll it's that's what's there's don't didn't can't""".split()
)
_COURTESY = late(
    r"(?:\b(?:please|pls|thanks?(?: you)?|hi|hello|hey|ok|okay|bitte|danke|hallo|merci|por favor|gracias)\b[,!]?"
    r"|s'il (?:te|vous) plaît|请|谢谢|你好)",
    re.IGNORECASE,
)  # says nothing of what is looked for, and stands in thousands of short turns
_NO_ADDRESS = late(r"[^\x21-\x7e].*")
_FIRST = late(r"\b(?:i|my|me|mine|myself|i'm|i've|i'd|i'll|ich|mein\w*|mir|mich|je|j'|mon|mes|ma|mi|mis|yo)\b|我", re.I)
_SECOND = late(r"\b(?:you|your|yours|du|dein\w*|dir|dich|tu|ton|tes|votre|vous|tú)\b|[你您]", re.I)
_POLITE = late(
    r"\b(?:can|could|would|will) (?:you|u)\b|\b(?:do|did) you (?:remember|recall|know)\b"
    r"|\b(?:tell|show|remind|give|help|let) me\b|(?:能|请)?告诉我|提醒我",
    re.IGNORECASE,
)

_INTENTS: tuple[tuple[Intent, re.Pattern[str]], ...] = (
    ("history", late(
        r"\b(?:histor\w*|over time|evolv\w*|chang\w+ over|in (?:what )?order|the order in|timeline|chronolog\w*|used to"
        r"|previously|formerly|progress\w*|originally|previous|prior to|in the past|beforehand"
        r"|before(?= *[?.!]|$)|before (?:that|then|we|i)\b"
        r"|verlauf|früher\w*|vorher\w*|zuvor|damals|historique|évolu\w+|avant|auparavant|précédent\w*|ancien\w*"
        r"|historial|antes|anterior\w*|previamente)\b|历史|以前|之前|原来|顺序|变化",
        re.I)),
    ("overview", late(
        r"\b(?:summar\w+|overview|recap|all (?:the|of|my|our)|everything|list|how many|which of|what (?:kinds?|types?)"
        r"|übersicht|zusammenfass\w*|alle|résum\w+|tous|toutes|resum\w+|todos|todas)\b|总结|概述|哪些|所有|多少|几",
        re.I)),
    ("latest", late(
        r"\b(?:latest|newest|current\w*|nowadays|last time|most recent\w*|these days|as of now|by now|at the moment"
        r"|now(?=\s*[?]|$)"
        r"|aktuell\w*|zuletzt|jetzt|inzwischen|mittlerweile|derzeit|zurzeit|neueste\w*|actuel\w*|dernière fois"
        r"|actual\w*|última vez)\b|最新|现在|目前|最近",
        re.I)),
)  # fmt: skip


def plan(message: str, *, now: datetime) -> Plan:
    """What is to be looked for.

    >>> from datetime import UTC
    >>> plan("Which port did we give the staging server?", now=datetime(2026, 1, 1, tzinfo=UTC)).queries
    ('port staging server',)
    """
    said = _FENCED.sub(" ", text.clip(message, MAX_CHARS)).strip() or text.clip(message, MAX_CHARS)
    said = " ".join(_COURTESY.sub(" ", said).split(" ")).strip() or said
    found = times(said, now)
    timeless = _without(said, found.spans)
    return Plan(
        message=said,
        asked_at=now,
        queries=tuple(_queries(timeless)),
        names=_names(timeless),
        windows=found.windows,
        events=found.events,
        intent=_intent(said),
        speakers=_speakers(said),
    )


def unplanned(message: str, *, now: datetime) -> Plan:
    """The message itself as the only query: what planning is measured against."""
    said = text.clip(message, MAX_CHARS)
    return Plan(message=said, asked_at=now, queries=(said,) if said.strip() else ())


def _names(said: str) -> tuple[str, ...]:
    """The named things, with addresses cut at the first sign that no address has ("a@b.de的人")."""
    found = (name if "@" not in name else _NO_ADDRESS.sub("", name) for name in text.entities(said))
    return tuple(dict.fromkeys(name for name in found if name))[:MAX_NAMES]


def _without(said: str, spans: Sequence[tuple[int, int]]) -> str:
    for start, end in sorted(spans, reverse=True):
        said = said[:start] + " " + said[end:]
    return said


def _queries(said: str) -> list[str]:
    """One query for each clause that says something, the most telling clauses, in the order of the message."""
    clauses = [tuple(_telling(clause)) for clause in _CLAUSE.split(said)]
    worded = [words for words in _joined(clauses) if words]
    weights = {words: sum(map(_weight, words)) for words in worded}
    best = sorted(dict.fromkeys(worded), key=lambda words: (-weights[words], worded.index(words)))[:MAX_QUERIES]
    return [" ".join(words) for words in sorted(best, key=worded.index)]


def _joined(clauses: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Clauses cut to the longest query; one that is too short for a query goes with the next, or the last before."""
    waiting: tuple[str, ...] = ()
    n_out = 0
    for clause in clauses:
        words = tuple(dict.fromkeys(waiting + clause))
        if sum(map(_n_words, words)) < MIN_WORDS:
            waiting = words
            continue
        waiting, n_out = (), n_out + 1
        yield _heaviest(words)
    if waiting and not n_out:
        yield waiting


def _n_words(word: str) -> int:
    """How many words one stands for: in scripts without spaces about one for two characters."""
    return 1 if word.isascii() else max(1, len(text.query_terms(word)) // 2)


def _heaviest(words: tuple[str, ...]) -> tuple[str, ...]:
    keep = sorted(range(len(words)), key=lambda n: (-_weight(words[n]), n))[:MAX_WORDS]
    return tuple(words[n] for n in sorted(keep))


def _telling(clause: str) -> Iterator[str]:
    """The words of a clause that carry meaning, as they were written, once each."""
    seen: set[str] = set()
    for word in clause.split():
        bare = word.strip("\"'“”‘’()[]{}<>,.!?;:*_…¿¡「」《》、")
        plain = bare.lower().replace("’", "'").removesuffix("'s")
        if (
            plain
            and plain not in text.STOPWORDS
            and plain not in _FILLER
            and plain not in seen
            and re.search(r"\w", plain)
        ):
            seen.add(plain)
            yield bare


def _weight(word: str) -> float:
    """How much a word is likely to say: names, identifiers and numbers more, long words a little more."""
    is_named = word[:1].isupper() or not word.isalpha()
    return 1 + min(len(word), 12) / 12 + (1.0 if is_named else 0.0)


def _intent(said: str) -> Intent:
    return next((intent for intent, pattern in _INTENTS if pattern.search(said)), "fact")


def _speakers(said: str) -> tuple[str, ...]:
    """Whose words are asked for: the person's own ("did I"), the agent's ("what did you suggest"), or nobody's."""
    plain = _POLITE.sub(" ", said)
    if _FIRST.search(plain):
        return ("user",)
    return ("assistant",) if _SECOND.search(plain) else ()
