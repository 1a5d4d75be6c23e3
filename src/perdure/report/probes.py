"""Make questions with known answers from a home's own history: a sentence without its value asks for the value.

A memory is one source: it says what holds now. A turn is one if another turn says the same value with the same words,
and none says another one. It must then be found where it was said again: the source itself does not count, and where
another session says it, nor does the source's own session. No model is asked, and no words are kept: a probe is named
by its source and made from it anew each time, so a forgotten turn leaves with its probes. Pure, but for `list_probes`.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice

from perdure.home import Home
from perdure.index import known_values
from perdure.index.known_values import StatedText
from perdure.memories.cue_use import iter_words
from perdure.memories.remarks import states_otherwise
from perdure.memories.sentences import sentences
from perdure.regex import lazy_re
from perdure.text import query_terms
from perdure.types import Memory

MAX_PROBES = 100  # of one home: enough to see a fall of six in a hundred
MAX_MEMORIES = 400  # newest memories among which sources are looked for
_MIN_WORDS = 3  # of a question: fewer do not say what is asked
_MAX_WORDS = 5  # of a question, those nearest to the value, as a person would ask
_MIN_SHARED = 2  # words of the question that another turn must say with the value
_MAX_HOLDERS = 40  # a value in more sentences than that is no answer
_WORD = lazy_re(r"\w+(?:[./:@+-]\w+)*")
_IDENTIFIER = lazy_re(r"(?=.*[A-Za-z])(?=.*[\d_./:@])\S{4,60}|\d{2,6}(?:\.\d{1,6}){0,3}|\d\.\d[\d.]*")
_NO_VALUE = lazy_re(r"\d{4}-\d\d-\d\d\S*|\d{1,2}:\d\d\S*|(?:19|20)\d\d|e\.g|i\.e|mem-\S*|t[0-9a-z]{20,}")
_ADDRESS = lazy_re(r"\w+://\S+")
_MASKED = "***"  # a masked secret is no answer


@dataclass(frozen=True, slots=True)
class Probe:
    """One question whose answer the home knows."""

    probe_id: str  # id of its source, and which sentence there
    question: str
    answer: str  # in lower case: it must stand in the block
    project: str | None
    conversation: str = ""  # of a turn that another session confirms: its own session, which must not answer
    stated_at: datetime | None = None

    @property
    def source(self) -> str:
        """The id of the turn or the memory that it is made from."""
        return self.probe_id.partition("/")[0]

    def is_answered_by(self, words: str) -> bool:
        """Return True if a text holds the answer as a word of its own."""
        return re.search(rf"(?<!\w){re.escape(self.answer)}(?!\w)", words.casefold()) is not None


def find_value(sentence: str) -> str:
    """Return the value that a sentence states: a port, a version, an identifier or a name; "" without one.

    >>> find_value("The staging server listens on port 8443."), find_value("Our vault is called Kestrel.")
    ('8443', 'Kestrel')
    >>> find_value("We are done.")
    ''
    """
    words = [match[0].rstrip(".:-") for match in _WORD.finditer(_ADDRESS.sub(" ", sentence))]
    values = [word for word in words if _IDENTIFIER.fullmatch(word) and not _NO_VALUE.fullmatch(word)]
    names = [word for word in words[1:] if len(word) > 2 and word[0].isupper() and _is_telling(word)]
    return next(iter(values), next(reversed(names), ""))


def _is_telling(word: str) -> bool:
    """Return True unless a word says nothing by itself, in any of the languages that are judged."""
    return any(weighted.weight for weighted in iter_words(f"- {word}"))


def ask_for(sentence: str, value: str) -> str:
    """Return a question for the value of a sentence: the words around it, without the value; "" if they say too little.

    >>> ask_for("The staging server listens on port 8443 since March.", "8443")
    'server listens port since March'
    """
    position = sentence.find(value)
    around = [
        (abs(match.start() - position), match.start(), match[0])
        for match in _WORD.finditer(sentence)
        if value.casefold() not in match[0].casefold() and _is_telling(match[0])
    ]
    nearest = sorted(sorted(around)[:_MAX_WORDS], key=lambda item: item[1])
    return " ".join(word for _, _, word in nearest) if len(nearest) >= _MIN_WORDS else ""


def make_memory_probes(memories: Iterable[Memory]) -> Iterator[Probe]:
    """Yield a probe for each memory that states a value."""
    for memory in memories:
        value = "" if _MASKED in memory.text else find_value(memory.text)
        if value and (question := ask_for(memory.text, value)):
            project = memory.project
            yield Probe(f"{memory.memory_id}/0", question, value.casefold(), project, stated_at=memory.stated_at)


def make_turn_probes(texts: Sequence[StatedText]) -> Iterator[Probe]:
    """Yield a probe for each sentence whose value another turn confirms."""
    stated = [(probe, sentence) for text in texts for probe, sentence in _read_sentences(text)]
    holders: dict[str, list[tuple[Probe, str]]] = defaultdict(list)
    alike: dict[str, list[tuple[Probe, str]]] = defaultdict(list)
    for probe, sentence in stated:
        holders[probe.answer].append((probe, sentence))
        for word in set(query_terms(probe.question.casefold())):
            alike[word].append((probe, sentence))
    for probe, sentence in stated:
        same = holders[probe.answer]
        confirming = [other for other, _ in same if _confirms(other, probe)] if len(same) <= _MAX_HOLDERS else []
        if confirming:
            words = sorted(set(query_terms(probe.question.casefold())), key=lambda word: (len(alike[word]), word))
            rivals = (rival for word in words[:_MIN_SHARED] for rival in alike[word][:_MAX_HOLDERS])
            if not any(_replaces(rival, (probe, sentence)) for rival in rivals):
                is_elsewhere = any(other.conversation != probe.conversation for other in confirming)
                yield probe if is_elsewhere else replace(probe, conversation="")


def _read_sentences(text: StatedText) -> Iterator[tuple[Probe, str]]:
    for n, (start, end) in enumerate(sentences(text.text)):
        sentence = text.text[start:end]
        value = "" if _MASKED in sentence else find_value(sentence)
        if value and (question := ask_for(sentence, value)):
            name = f"{text.turn_id}/{n}"
            yield Probe(name, question, value.casefold(), text.project, text.conversation, text.stated_at), sentence


def _confirms(other: Probe, probe: Probe) -> bool:
    """Return True if another turn of the project says the same value with words of the same question."""
    if other.source == probe.source or other.project != probe.project:
        return False
    return len(_list_stems(other.question) & _list_stems(probe.question)) >= _MIN_SHARED


def _replaces(rival: tuple[Probe, str], stated: tuple[Probe, str]) -> bool:
    """Return True if a sentence states the same subject with another value."""
    is_other = rival[0].answer != stated[0].answer and rival[0].project == stated[0].project
    return is_other and states_otherwise(rival[1], stated[1])


def _list_stems(question: str) -> frozenset[str]:
    return frozenset(word.stem for word in iter_words(question) if word.weight)


def choose_probes(candidates: Iterable[Probe], earlier_ids: Collection[str]) -> list[Probe]:
    """Return at most MAX_PROBES probes: those asked before, then others by a hash of their names.

    Probes asked before stay as long as their source does, because only questions that two runs share can be compared.
    """
    by_id = {probe.probe_id: probe for probe in candidates}
    order = sorted(by_id, key=lambda name: (name not in earlier_ids, hashlib.blake2b(name.encode()).digest()))
    return [by_id[name] for name in islice(order, MAX_PROBES)]


def list_probes(home: Home, earlier_ids: Collection[str], withdrawn_ids: Collection[str]) -> list[Probe]:
    """Return the probes of a home as its history is now.

    earlier_ids: the probes of the last run. withdrawn_ids: memories that a tidying-up retired: what they say still
    holds, so that a loss by it is seen.
    """
    current = home.memories.list_memories()[:MAX_MEMORIES]
    memories = [*current, *(memory for memory in home.memories.get_many(sorted(withdrawn_ids)) if memory.retired)]
    index, user = home.index(), home.user
    turn_ids = {name.partition("/")[0] for name in earlier_ids if not name.startswith("mem-")}
    texts = {*known_values.list_stating(index, user), *known_values.list_of_turns(index, user, turn_ids)}
    ordered = sorted(texts, key=lambda text: (text.turn_id, text.text))
    return choose_probes([*make_memory_probes(memories), *make_turn_probes(ordered)], earlier_ids)
