"""Find what a person tells an agent to keep: explicit forms at the start of a sentence, and nothing that is guessed.

Pure. "Remember …", "from now on …", "we decided …", "we use X, not Y" and their like in other languages: forms are data
(`forms/<language>.txt`), each kept only as far as it is right. A plain statement ("the build is red") is no memory.
docs/decisions/032-memories-worth-believing.md
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from perdure.memories.language import Language, is_unspaced, join_sections, load_languages
from perdure.memories.sentences import MAX_CHARS, own_sentences
from perdure.types import MemoryKind

MAX_STATEMENTS = 50  # of one message: one that holds more is a document
MIN_CHARS, MIN_UNSPACED_CHARS = 12, 5  # of a statement; in Chinese and Japanese a sign is about a word
_WITH_MORE = r"{}(?:(?:ので|から)?[,，;、].*)?"  # a form that ends with a word of its own may go on behind a comma
_KINDS: tuple[tuple[str, MemoryKind], ...] = (
    ("rule", "procedure"),
    ("preference", "preference"),
    ("decision", "decision"),
    ("choice", "decision"),  # "we use X, not Y", "we moved to Y"
)


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing that a person told the agent to keep, as it was typed."""

    kind: MemoryKind
    text: str  # the words between start and end
    start: int  # characters of the message
    end: int
    language: str


def find_statements(message: str) -> list[Statement]:
    """Return what a message asks to keep, in order.

    >>> [(s.kind, s.text) for s in find_statements("btw I prefer tabs over spaces. Can you fix the test?")]
    [('preference', 'I prefer tabs over spaces.')]
    >>> find_statements("The build is red now. I changed my mind about the port.")
    []
    """
    spans = own_sentences(message)
    return list(islice((statement for span in spans for statement in _read_sentence(message, *span)), MAX_STATEMENTS))


def guess_kind(text: str) -> MemoryKind:
    """Return the kind of a statement, by its first words.

    >>> [guess_kind(text) for text in ("Ich bevorzuge Tabs", "We decided on SQLite", "Run the tests first", "It rains")]
    ['preference', 'decision', 'procedure', 'fact']
    """
    plain_text = text.replace("*", "").replace("`", "").strip()[:MAX_CHARS]
    for language in load_languages():
        for section, kind in _KINDS[:3]:
            form = language.pattern(section)
            if form and form.fullmatch(plain_text):
                return kind
    is_instruction = join_sections("imperative", r"{}(?!\w)").match(plain_text) is not None
    return "procedure" if is_instruction else "fact"


def _read_sentence(message: str, start: int, end: int) -> Iterator[Statement]:
    """Yield what a sentence asks to keep: as a whole, up to the request behind it."""
    start = _skip_lead(message, start, end)
    end = _cut_request(message, start, end)
    if end - start > MAX_CHARS:
        return
    sentence = message[start:end]
    for language in load_languages():
        if (match := _match_form(sentence, language)) is not None:
            kind, offset = match
            text = sentence[offset:]
            if len(text) >= (MIN_UNSPACED_CHARS if is_unspaced(text) else MIN_CHARS):
                yield Statement(kind, text, start + offset, end, language.name)
            return


def _match_form(sentence: str, language: Language) -> tuple[MemoryKind, int] | None:
    """Return the kind of a sentence and where its words to keep begin; None if it has no form of a language."""
    exception = language.pattern("except")
    plain = sentence.rstrip(".!。！ ")
    if exception and exception.fullmatch(plain):
        return None
    remember = language.pattern("remember")
    if remember and (match := remember.fullmatch(plain)):
        offset = match.start(match.lastindex or 0)
        is_exception = language.has(plain[offset:], "passing") or (exception and exception.fullmatch(plain[offset:]))
        return None if is_exception else (guess_kind(sentence[offset:]), offset)
    for section, kind in _KINDS:
        form = language.pattern(section, _WITH_MORE)
        if form and (match := form.fullmatch(plain)):
            rest = match[match.lastindex] if match.lastindex else plain
            is_doubtful = section != "rule" and language.has(plain, "doubt")
            return None if is_doubtful or language.has(rest, "passing") else (kind, 0)
    return None


def _skip_lead(message: str, start: int, end: int) -> int:
    """Return where a sentence begins behind the words that lead into it."""
    lead = join_sections("lead", r"(?:{}(?:\s*[,:，：、!–—-]+\s*|\s+))+")
    match = lead.match(message, start, end)
    return match.end() if match else start


def _cut_request(message: str, start: int, end: int) -> int:
    """Return where a statement ends: before the request behind it, and before what only closes it; `start` for a
    question.
    """
    problem = join_sections("why", r"(?<!\w){}(?!\w)[^,，]{{0,40}}[?？]?$")
    if message[end - 1] in "?？" and problem.search(message[start:end]):
        return start
    request = join_sections("ask", r"(?:[,;，；]|\s[–—-]|:)\s*(?:(?:and|so|but|now|then|also|und|et|y|e)\s+)?{}(?!\w)")
    if match := request.search(message, start + 1, end):
        end = match.start()
    elif message[end - 1] in "?？":
        return start
    tail = join_sections("tail", r"(?:\s*[,，]\s*{})+(?=[.!。！]*$)")
    if match := tail.search(message[start:end]):
        end = start + match.start()
    while end > start and message[end - 1] in " ,;:，；：–—-":
        end -= 1
    return end
