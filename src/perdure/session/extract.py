"""Quote what matters in the part of a session that leaves the context, in its own words. Pure, and without a model.

Importance decides: what a person decided, ruled out, corrected or left open, with its numbers, paths and names, before
what is only told, and that before an assistant's words. The output of tools is never quoted: the summary is read as the
person's text. Of two statements about one thing the newer one is quoted, and says that it replaces the older. The word
lists here are English; the forms of `memories/forms` (8 languages), numbers, paths and names count in any language.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from perdure import text
from perdure.formats.perdure import Message, Quote
from perdure.memories.explicit import find_statements
from perdure.memories.sentences import sentences
from perdure.memories.subject import replaces
from perdure.recall.judge import extract_stems
from perdure.regex import lazy_re
from perdure.session.groups import BY_WORDS, Groups, Link, group_linked, link_by_meaning

if TYPE_CHECKING:
    from perdure.models.embedder import Vectors

EmbedTexts = Callable[[Sequence[str]], "Vectors | None"]  # a row for each text; None if there is no model

KINDS = ("Request", "Decision", "Constraint", "Correction", "Pending", "Fact")  # headings of a summary, in order
MAX_QUOTE_CHARS = 400  # of a quote of weight
SHORT_QUOTE_CHARS = 200  # of a quote of little weight
LINE_TOKENS = 8  # of a quote's line beside its words: the dash and the id
_QUOTE_WEIGHT = 4.0  # from here on a quote has its full length
_SMALL_WEIGHT = 2.0  # below it nothing is quoted
_FOCUS_WEIGHT = 10.0  # of a sentence that holds all that a person asked to keep
_ASSISTANT_SHARE = 0.35  # of a person's weight: an assistant says more, and most of it can be said again
_MIN_STEMS = 3  # content words of a sentence that says something
_SAME_SHARE = 0.8  # of the words of two sentences that say the same
_RESTATED_SHARE = 0.45  # of the rarity of the older sentence's words that a change shares with it
_PART_SHARE = 0.6  # of the rarity of its own words
_MAX_PARTNERS = 60  # older sentences that are compared with a change
_MAX_EMBEDDED = 1_000  # statements; about 2 ms each with MiniLM

_NUMBER = lazy_re(r"[$€£]?\d[\d.,:/-]*(?:%|\w+)?")
_PATH = lazy_re(r"(?<![\w/.])(?:[~.]{0,2}/)?[\w.-]+(?:/[\w.-]+)+|\b[\w-]+\.[a-z]{1,5}\b(?!\.\w)")
_IDENTIFIER = lazy_re(
    r"\b[A-Za-z]+(?:_[A-Za-z0-9]+)+\b|\b[a-z]+[A-Z]\w+|\b[A-Z][A-Z0-9]{2,}(?:[-_][A-Z0-9]+)*\b|`[^`\n]+`|\b\w+-\w+-\w+\b"
)
_QUESTION = lazy_re(r"[?？]\s*[\"'”’)\]]*$")
_WORDS_FILE = Path(__file__).with_name("importance.txt")
_REQUEST_CHARS = 1_200  # of the message that a long turn works on


@cache
def _get_words(section: str) -> re.Pattern[str]:
    """Return the pattern of a section of the word list."""
    rows = _WORDS_FILE.read_text(encoding="utf-8").partition(f"[{section}]\n")[2].partition("\n[")[0].splitlines()
    return re.compile(rf"(?i)\b(?:{'|'.join(row for row in rows if row and not row.startswith('#'))})\b")


@dataclass(frozen=True)
class WeighedSentence:
    """A sentence of a session, with what it is worth."""

    words: str
    message: Message
    position: int  # of the sentence in the session
    kind: str = "Fact"
    weight: float = 0.0
    replaces: str = ""

    @cached_property
    def stems(self) -> frozenset[str]:
        """The stems of its telling words."""
        return extract_telling_stems(self.words)

    @cached_property
    def terms(self) -> frozenset[str]:
        """What must not be lost: numbers, paths, identifiers and names, in small letters."""
        return find_terms(self.words)


@cache
def _get_small_stems() -> frozenset[str]:
    return extract_stems(" ".join(sorted(text.STOPWORDS)))


def extract_telling_stems(words: str) -> frozenset[str]:
    """Return the stems of a text's words, without small words."""
    return extract_stems(words) - _get_small_stems()


def find_terms(words: str) -> frozenset[str]:
    """Return the numbers, paths, identifiers and names of a text, in small letters.

    >>> sorted(find_terms("Ada moved `api` to port 8443, see docs/net.md."))
    ['8443', 'ada', 'api', 'docs/net.md']
    """
    terms = {
        match[0].strip("`.,:;-/").lower() for form in (_NUMBER, _PATH, _IDENTIFIER) for match in form.finditer(words)
    }
    return frozenset(terms | {name.lower() for name in text.entities(words)} | _find_first_name(words)) - {""}


def _find_first_name(words: str) -> set[str]:
    """Return the capitalised word that begins a sentence, if a person or thing is likely: it is no small word."""
    first = re.match(r"[A-Z][a-z]{2,}\b", words)
    return {first[0].lower()} if first and text.entities(f"so {first[0]}") else set()


@dataclass(frozen=True)
class WeighedMiddle:
    """What the middle of a session says, by weight, with what the tail changes of it."""

    statements: Mapping[int, WeighedSentence]  # position -> what still holds, of the tail, too
    middle_ids: frozenset[str]  # messages that may be quoted for their own sake
    groups: Groups  # of positions: what may be about the same thing
    taken_back: tuple[tuple[str, str], ...] = ()  # (words that no longer hold, words that replace them)
    request: tuple[Quote, ...] = ()  # the message that the last turn works on, if the cut goes through that turn

    @property
    def changes(self) -> tuple[tuple[str, str], ...]:
        """Pairs (words, words of a later statement that may change them)."""
        return tuple(
            (self.statements[position].words, self.statements[number].words)
            for position, later in self.groups.later.items()
            for number in later
        )

    def choose_quotes(self, max_tokens: int) -> tuple[Quote, ...]:
        """Return the weightiest statements of the middle that fit, by kind and then in their order.

        What may change a chosen one is chosen with it, also if it is in the tail: nobody should read the older one
        alone.
        """
        max_tokens -= sum(map(_count_quote, self.request))
        chosen: set[int] = set()
        for position, item in sorted(self.statements.items(), key=lambda row: (-row[1].weight, -row[0])):
            if item.message.id not in self.middle_ids or position in chosen:
                continue
            added = {position, *self.groups.find_later(position)} - chosen
            cost = sum(_count_quote(_to_quote(self.statements[number])) for number in added)
            if cost <= max_tokens:
                max_tokens -= cost
                chosen |= added
        lines: list[tuple[int, int, list[Quote]]] = []
        for position in sorted(chosen):
            group = [number for number in self.groups.get_members(position) if number in chosen]
            if group[0] == position:
                kind = self.statements[group[-1]].kind
                lines.append((KINDS.index(kind), position, self._quote_group(group, kind)))
        return (*self.request, *(quote for _, _, quotes in sorted(lines, key=lambda row: row[:2]) for quote in quotes))

    def _quote_group(self, group: Sequence[int], kind: str) -> list[Quote]:
        quotes: list[Quote] = []
        for number in group:
            follows = quotes[-1].entry if quotes else ""
            quotes.append(_to_quote(self.statements[number], kind=kind, follows=follows))
        return quotes


def weigh_middle(
    middle: Sequence[Message], tail: Sequence[Message] = (), *, focus: str = "", embed: EmbedTexts | None = None
) -> WeighedMiddle:
    """Return what the middle says, by weight.

    tail: what stays in the context after it; it takes statements of the middle back, and answers its questions.
    focus: what the person wants to be kept above all. embed: finds what may be about one thing in other words; without
    it words alone do.
    """
    statements = list(read_statements([*middle, *tail]))
    rarities = _measure_rarity(statements)
    explicit = {
        message.id: [item.text for item in find_statements(message.text)] for message in middle if _is_typed(message)
    }
    pending_ids = _find_open_questions([*middle, *tail])
    focus_stems = extract_telling_stems(focus)
    weighed = [
        weigh(
            statement,
            rarities,
            focus_stems,
            is_explicit=any(
                words in statement.words or statement.words in words for words in explicit.get(statement.message.id, ())
            ),
            is_open=statement.position in pending_ids,
        )
        for statement in statements
    ]
    current, links, taken_back = _drop_taken_back(weighed, rarities)
    return WeighedMiddle(
        statements={item.position: item for item in current},
        middle_ids=frozenset(message.id for message in middle),
        groups=group_linked([*links, *_link_by_meaning(current, embed)]),
        taken_back=tuple(taken_back),
        request=tuple(_find_request(middle, tail)),
    )


def _is_typed(message: Message) -> bool:
    return message.role == "user" and message.is_typed


def read_statements(messages: Sequence[Message]) -> Iterator[WeighedSentence]:
    """Yield the sentences of messages, in their order, not yet weighed; tools state nothing."""
    position = 0
    for message in messages:
        if message.role == "tool":
            continue
        for words in _read_sentences(message.text):
            yield WeighedSentence(words, message, position)
            position += 1


def _read_sentences(message_text: str) -> Iterator[str]:
    """Yield the sentences of a message, on one line each; what a semicolon joins stays one."""
    first_part = ""
    for start, end in sentences(message_text):
        words = " ".join([*first_part.split(), *message_text[start:end].split()])
        first_part = words if words.endswith(";") else ""
        if not first_part:
            yield words
    if first_part:
        yield first_part


def _measure_rarity(statements: Sequence[WeighedSentence]) -> dict[str, float]:
    """Return stem -> its rarity among the sentences, from 0 to 1."""
    counts = Counter(stem for statement in statements for stem in statement.stems)
    n = max(len(statements), 2)
    return {stem: math.log(n / count) / math.log(n) for stem, count in counts.items()}


def weigh(
    statement: WeighedSentence,
    rarities: Mapping[str, float],
    focus_stems: Collection[str] = (),
    *,
    is_explicit: bool = False,
    is_open: bool = False,
) -> WeighedSentence:
    """Return the statement with its kind and its weight."""
    words, is_typed = statement.words, _is_typed(statement.message)
    is_question = bool(_QUESTION.search(words))
    kind, weight = "Fact", 0.0
    if is_open or (_get_words("pending").search(words) and not is_question):
        kind, weight = "Pending", 4.0
    elif not is_question and _get_words("decision" if is_typed else "agreed").search(words):
        kind, weight = "Decision", 4.0
    elif not is_question and is_typed and _get_words("constraint").search(words):
        kind, weight = "Constraint", 4.0
    if not is_question and is_typed and _get_words("change").search(words):
        kind, weight = "Correction" if kind == "Fact" else kind, weight + 2.0
    if is_explicit:
        kind, weight = "Constraint" if kind == "Fact" else kind, weight + 2.0
    weight += min(4.0, 1.5 * len(statement.terms))
    weight += 1.0 if is_typed and _get_words("own").search(words) else 0.0
    stems = statement.stems
    weight += 3.0 * sum(rarities.get(stem, 1.0) for stem in stems) / len(stems) if stems else 0.0
    if is_question and not is_open:
        weight *= 0.4
    if len(stems) < _MIN_STEMS:
        weight *= 0.4
    if not is_typed:
        weight *= _ASSISTANT_SHARE
    if focus_stems:
        weight += _FOCUS_WEIGHT * len(stems & frozenset(focus_stems)) / len(focus_stems)
    return replace(statement, kind=kind, weight=weight)


def _find_open_questions(messages: Sequence[Message]) -> set[int]:
    """Return the positions of the questions that nobody answered: an answer to them was cut off, or said nothing of
    what was asked.
    """
    talk = [message for message in messages if message.role != "tool"]
    statements = list(read_statements(talk))
    by_message: dict[str, list[WeighedSentence]] = {}
    for statement in statements:
        by_message.setdefault(statement.message.id, []).append(statement)
    open_positions: set[int] = set()
    for message, answer in pairwise(talk):
        questions = [item for item in by_message.get(message.id, ()) if _QUESTION.search(item.words)]
        if (
            message.role == "user"
            and answer.role == "assistant"
            and (answer.stop in ("cancelled", "failed") or not (answer.text or answer.calls))
        ):
            open_positions |= {item.position for item in questions}
        elif message.role == "assistant" and answer.role == "user" and questions:
            closing = by_message[message.id][-1]
            answer_stems = extract_telling_stems(answer.text)
            if closing in questions and len(answer_stems) > _MIN_STEMS and not closing.stems & answer_stems:
                open_positions.add(closing.position)
    return open_positions


# what was taken back --------------------------------------------------------------------------------------------


def _drop_taken_back(
    statements: Sequence[WeighedSentence], rarities: Mapping[str, float]
) -> tuple[list[WeighedSentence], list[Link], list[tuple[str, str]]]:
    """Return the statements without those that a later one repeats or takes back, links between those whose words say
    that they may be about one thing, and what was taken back. The later one names the earlier.
    """
    gone: set[int] = set()
    replaced: dict[int, str] = {}
    links: list[Link] = []
    linked: set[int] = set()
    taken_back: list[tuple[str, str]] = []
    postings: dict[str, list[WeighedSentence]] = {}  # rare stem -> the statements so far that have it
    weighty = [item for item in statements if item.weight >= _SMALL_WEIGHT]
    for newer in weighty:
        for older in _list_partners(newer, postings):
            if older.position in gone:
                continue
            if _repeats(newer, older):
                gone.add(older.position)
            elif takes_back(newer, older, rarities):
                gone.add(older.position)
                replaced[newer.position] = older.message.id
                taken_back.append((older.words, newer.words))
            elif newer.position not in linked and _may_change(newer, older, rarities):
                linked.add(newer.position)
                links.append(Link(BY_WORDS, older.position, newer.position))
        for stem in newer.stems:
            postings.setdefault(stem, []).append(newer)
    current = [
        replace(
            item,
            replaces=replaced.get(item.position, ""),
            weight=item.weight + 3.0 * (item.position in replaced),
        )
        for item in weighty
        if item.position not in gone
    ]
    return current, [link for link in links if not {link.older, link.newer} & gone], taken_back


def _link_by_meaning(statements: Sequence[WeighedSentence], embed: EmbedTexts | None) -> list[Link]:
    """Return links between the statements of a person that are nearest in meaning; questions state nothing."""
    stated = [item for item in statements if _is_typed(item.message) and not _QUESTION.search(item.words)]
    weightiest = sorted(stated, key=lambda item: (-item.weight, -item.position))[:_MAX_EMBEDDED]
    items = sorted(weightiest, key=lambda item: item.position)
    vectors = embed([item.words for item in items]) if embed and len(items) > 1 else None
    if vectors is None:
        return []
    return link_by_meaning([item.position for item in items], [item.message.id for item in items], vectors)


def _list_partners(newer: WeighedSentence, postings: Mapping[str, Sequence[WeighedSentence]]) -> list[WeighedSentence]:
    """Return the earlier statements of other messages that share most rare words with one."""
    rows = [rows for stem in newer.stems if len(rows := postings.get(stem, ())) <= _MAX_PARTNERS]
    older = {item.position: item for row in rows for item in row if item.message.id != newer.message.id}
    counts = Counter(item.position for row in rows for item in row if item.position in older)
    return [older[position] for position, _ in counts.most_common(_MAX_PARTNERS)]


def _repeats(newer: WeighedSentence, older: WeighedSentence) -> bool:
    union = newer.stems | older.stems
    is_same = len(newer.stems & older.stems) >= _SAME_SHARE * len(union) and newer.terms >= older.terms
    return is_same and newer.weight >= older.weight


def takes_back(newer: WeighedSentence, older: WeighedSentence, rarities: Mapping[str, float]) -> bool:
    """Return True if a newer statement says otherwise now what an older one said of the same thing."""
    if _QUESTION.search(newer.words) or not (_is_typed(newer.message) or _get_words("agreed").search(newer.words)):
        return False
    if replaces(newer.words, older.words):
        return True
    if not _get_words("change").search(newer.words):
        return False
    shared = newer.stems & older.stems
    shared_rarity = sum(rarities.get(stem, 1.0) for stem in shared)
    is_restated = shared_rarity >= _RESTATED_SHARE * _weigh_subject(older, newer, rarities)
    is_part = shared_rarity >= _PART_SHARE * _weigh_subject(newer, older, rarities)  # the older one says more
    is_otherwise = bool((older.stems - shared) and (newer.stems - shared))
    return len(shared) >= 2 and shared_rarity > 0 and is_otherwise and (is_restated or is_part)


def _may_change(newer: WeighedSentence, older: WeighedSentence, rarities: Mapping[str, float]) -> bool:
    """Return True if two sentences of a person may give one thing two values: no word need say that it changed."""
    if not (_is_typed(newer.message) and _is_typed(older.message)):
        return False
    if _QUESTION.search(newer.words) or not (newer.terms - older.terms and older.terms - newer.terms):
        return False
    shared = newer.stems & older.stems
    shared_rarity = sum(rarities.get(stem, 1.0) for stem in shared)
    smaller = min(_weigh_subject(newer, older, rarities), _weigh_subject(older, newer, rarities))
    return len(shared) >= 2 and shared_rarity >= _RESTATED_SHARE * smaller


def _weigh_subject(sentence: WeighedSentence, other: WeighedSentence, rarities: Mapping[str, float]) -> float:
    """Return the rarity of the words of a sentence, without the values that the other one has not."""
    values = {stem for term in sentence.terms - other.terms for stem in extract_stems(term)}
    return sum(rarities.get(stem, 1.0) for stem in sentence.stems - values)


# choosing -------------------------------------------------------------------------------------------------------


def _to_quote(item: WeighedSentence, *, kind: str = "", follows: str = "") -> Quote:
    max_chars = MAX_QUOTE_CHARS if item.weight >= _QUOTE_WEIGHT else SHORT_QUOTE_CHARS
    return Quote(
        kind=kind or item.kind,
        text=text.clip(item.words, max_chars),
        entry=item.message.id,
        replaces=item.replaces,
        follows=follows,
    )


def _count_quote(quote: Quote) -> int:
    return text.tokens(quote.text) + LINE_TOKENS * (2 if quote.replaces else 1)


def _find_request(middle: Sequence[Message], tail: Sequence[Message]) -> list[Quote]:
    """Return the message that the last turn works on, if the cut goes through that turn."""
    if not tail or tail[0].role == "user":
        return []
    request = next((message for message in reversed(middle) if message.role == "user"), None)
    return [Quote(kind="Request", text=text.clip(request.text, _REQUEST_CHARS), entry=request.id)] if request else []


# files ----------------------------------------------------------------------------------------------------------

_CHANGING = lazy_re(r"(?i)write|edit|patch|create|replace|insert|delete|move|rename")
_FILE_KEYS = ("path", "file_path", "file", "filename", "notebook_path", "target_file")


@dataclass(frozen=True)
class FileLists:
    """The files that tools read and changed, in their order, once each."""

    read: tuple[str, ...] = ()
    changed: tuple[str, ...] = field(default=())


def list_files(messages: Sequence[Message], failed_ids: Collection[str] = ()) -> FileLists:
    """Return the files that the calls of these messages name. failed_ids: calls that changed nothing."""
    read: dict[str, None] = {}
    changed: dict[str, None] = {}
    for call in (call for message in messages for call in message.calls):
        path = next((value for key in _FILE_KEYS if isinstance(value := call.input.get(key), str) and value), "")
        if path and call.id not in failed_ids:
            (changed if _CHANGING.search(call.name) else read)[path] = None
    return FileLists(tuple(path for path in read if path not in changed), tuple(changed))
