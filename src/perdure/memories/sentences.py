"""Find the sentences of a message that its writer typed: no code, quotation, log, and nothing that looks pasted.

Pure and linear. Spans are characters of the message. A pasted letter, diff or role play looks like the writer's own
statements, so `own_sentences` takes only lines that open the message or stand alone, up to the first pasted text.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from perdure.memories.language import join_sections
from perdure.regex import lazy_re

MAX_CHARS = 600  # of a statement; a longer one is no plain statement
MAX_TYPED_CHARS = 20_000  # an hour's typing; a longer message was pasted
MAX_MARKUP = 2  # headings and bold labels of a message that was typed; one with more was written as a document
MIN_PLAIN_WORDS = 4  # words between ticks from which a sentence is no code, however much of it is
_MAX_HEAD_CHARS = 300  # of a line that are looked at

_FENCE = lazy_re(r"\s{0,3}(`{3,}|~{3,})")
_QUOTED_LINE = lazy_re(r"\s*(?:>|\||\+\+\+|---|@@|[$%#]\s|</?\w|[{}\[\]();]|[+-]\s*\d+\s|//|/\*|\*/)")
_BULLET = lazy_re(r"\s*(?:[-*•]|\d{1,2}[.)])\s+")
_MACHINE = lazy_re(
    r"\s*(?:at\s\S+.{0,200}[:(]\d|File\s\".{1,200}\",\sline\s\d|Traceback\s\(most|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d"
    r"|\[?\d\d:\d\d:\d\d\b|\[?(?:ERROR|WARN(?:ING)?|INFO|DEBUG|TRACE|FATAL)\b[\]:\s]|(?:npm|yarn)\s(?:ERR!|WARN|error)"
    r"|[\w.]{1,80}(?:Error|Exception)(?::|$)|goroutine\s\d|panic:\s|\w{1,40}@[\w.-]{1,60}[:~]\S{0,80}[$#]\s"
    r"|[\w./-]{1,120}\.\w{1,8}:\d+[:\s]|(?:def|class|import|from|const|let|var|function|return|public|private|"
    r"#include)\s\S+\s*[(={;:]|[\w.\[\]\"']{1,60}\s*(?:=|:=|=>|\+=)\s)"
)
_CODE_END = lazy_re(r"[{};]\s*$|\)\s*:?\s*$|,\s*$")
_CODE_SIGN = lazy_re(r"[(){}\[\]=<>;_]")
_SENTENCE_END = lazy_re(r"[.!?…]+[\"'”’)\]]{0,2}(?=\s|$)|[。！？；]+[”」』]?|;(?=\s)")
_ABBREVIATIONS = frozenset(
    "e.g. i.e. z.b. d.h. dr. mr. mrs. ms. st. prof. vs. etc. no. nr. approx. bzw. ca. sr. sra.".split()
)
_TICKED = lazy_re(r"`[^`\n]{1,200}`")
_QUOTE = lazy_re(
    r"\"[^\"]{0,600}\"|“[^”]{0,600}”|„[^“”]{0,600}[“”]|«[^»]{0,600}»|「[^」]{0,600}」|(?<!\w)'[^']{8,600}'(?!\w)"
)
_MARKUP = lazy_re(r"\s{0,3}(?:#{1,6} \S|(?:[-*] |\d+\. )?\*\*[^*\n]{1,80}\*\*|</?[a-z_-]{2,30}>\s*$|={4,}$|-{4,}$)")
_INTRODUCTION = lazy_re(r"[:：]\s*$")  # at the end of a line: what follows is somebody's text
_PASTED_LINE = lazy_re(  # with this line pasted text begins
    r"(?i)\s*(?:<[!/]?[a-z][^>\n]{0,200}>|\[/?[a-z_-]{2,30}\]|diff --git|index [0-9a-f]{7}|[+-]{3}\s|@@|\+|-[^\s-]"
    r"|#{1,6}\s|-{3,}|={3,}|\*{3,}|_{3,}|>|\||\"{3}|'{3}|`{3}|~{3}|@[\w./-]+\s*$)"
)
# words of a language that begin a letter, its head, a part to play, and somebody's words inside a line
_LETTER = partial(join_sections, "letter", r"\s*{}(?:\s[^,\n]{{1,40}})?[,!，]\s*$")
_HEAD = partial(join_sections, "head", r"\s*{}\s*[:：]\s")
_PLAY = partial(join_sections, "play", r"\W*(?:(?:please|ok(?:ay)?|now|so),?\s+)?{}(?!\w)")
_REPORT = partial(
    join_sections, "report", r"(?:(?<!\w){}(?!\w)[^\n:：]{{0,40}}|@[\w./-]+[^\n:：]{{0,20}})[:：]\s?|\"{{3}}|'{{3}}|```"
)


def sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield the span of every sentence that may be a person's own, in order, without bullets and space around it.

    >>> [("One thing. Another?\\n> quoted")[s:e] for s, e in sentences("One thing. Another?\\n> quoted")]
    ['One thing.', 'Another?']
    """
    for start, end in _iter_plain_lines(text):
        sentence_start = start
        for match in _SENTENCE_END.finditer(text, start, end):
            if _is_end(text, sentence_start, match.start(), match.end()):
                yield from _trim_sentence(text, sentence_start, match.end())
                sentence_start = match.end()
        yield from _trim_sentence(text, sentence_start, end)


def own_sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield the span of every sentence that the writer of a message said in their own name.

    >>> text = "I prefer tabs.\\n\\nSummarise this:\\nHi Bob,\\nI live in Ulm."
    >>> [text[start:end] for start, end in own_sentences(text)]
    ['I prefer tabs.']
    """
    if is_document(text):
        return
    lines = list(_iter_own_lines(text))
    line_number = 0
    for start, end in sentences(text):
        while line_number < len(lines) and lines[line_number][1] < end:
            line_number += 1
        if line_number < len(lines) and lines[line_number][0] <= start and not has_quotation(text[start:end]):
            yield start, end


def is_document(text: str) -> bool:
    """Return True if a message was not typed as one: very long, or laid out with headings and bold labels."""
    if len(text) > MAX_TYPED_CHARS:
        return True
    heads = (text[start : min(end, start + _MAX_HEAD_CHARS)] for start, end in iter_unfenced_lines(text))
    return sum(bool(_MARKUP.match(head)) for head in heads) > MAX_MARKUP


def has_quotation(sentence: str) -> bool:
    """Return True if a sentence repeats somebody else's words at length.

    >>> has_quotation('He wrote "we are moving to Kafka now" to us'), has_quotation('a folder called "templates"')
    (True, False)
    """
    return any(
        len(match[0].split()) > 3 or (len(match[0]) > 8 and not match[0].isascii())
        for match in _QUOTE.finditer(sentence)
    )


def _iter_own_lines(text: str) -> Iterator[tuple[int, int]]:
    """Yield the span of each line that opens the message or stands alone, up to the first pasted text."""
    is_first, is_after_blank = True, True
    position = 0
    while position < len(text):
        start, end = position, _find_line_end(text, position)
        position = end + 1
        head = text[start : min(end, start + _MAX_HEAD_CHARS)]
        if not head.strip():
            is_after_blank = True
            continue
        if (
            _PASTED_LINE.match(head)
            or _LETTER().match(head)
            or _HEAD().match(head)
            or (is_first and _PLAY().match(head))
        ):
            return
        is_before_blank = position >= len(text) or not text[position : _find_line_end(text, position)].strip()
        report = _REPORT().search(text, start, min(end, start + _MAX_HEAD_CHARS))
        if is_first or (is_after_blank and is_before_blank):
            yield start, report.start() if report else end
        if report or _INTRODUCTION.search(text[max(start, end - 20) : end]):
            return
        is_first = is_after_blank = False


def _is_end(text: str, start: int, dot: int, end: int) -> bool:
    """Return True if a sentence ends here: not after an abbreviation, nor after the number of a German date."""
    last_words = text[max(start, dot - 12) : end].split()[-1:] if dot > start else []
    if not last_words:
        return True
    last_word = last_words[0]
    is_ordinal = (
        last_word[:-1].isdigit()
        and len(last_word) < 4
        and text[end : end + 2].strip()[:1].isupper()
        and text[dot] == "."
    )
    return last_word.lower() not in _ABBREVIATIONS and not is_ordinal


def _trim_sentence(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield a span without the space around it, if it is short enough and not code."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    if start < end and end - start <= 2 * MAX_CHARS and not _is_code(text[start:end]):
        yield start, end


def _is_code(sentence: str) -> bool:
    """Return True if a sentence is mostly code."""
    ticked = _TICKED.findall(sentence)
    plain = _TICKED.sub("", sentence)
    is_ticked = 2 * sum(map(len, ticked)) > len(sentence) and len(plain.split()) < MIN_PLAIN_WORDS
    return is_ticked or 8 * len(_CODE_SIGN.findall(plain)) > len(sentence)


def _iter_plain_lines(text: str) -> Iterator[tuple[int, int]]:
    """Yield the span of every line that is neither fenced, quoted, indented as code nor a machine's."""
    for start, end in iter_unfenced_lines(text):
        head = text[start : min(end, start + _MAX_HEAD_CHARS)]
        if not _is_machine_line(head):
            bullet = _BULLET.match(head)
            yield start + (bullet.end() if bullet else 0), end


def iter_unfenced_lines(text: str) -> Iterator[tuple[int, int]]:
    """Yield the span of every line that does not stand between fences of code."""
    position, fence = 0, ""
    while position < len(text):
        end = _find_line_end(text, position)
        head = text[position : min(end, position + _MAX_HEAD_CHARS)]
        mark = _FENCE.match(head)
        if fence:
            fence = "" if mark and mark[1].startswith(fence) and head.strip() == mark[1] else fence
        elif mark:
            fence = mark[1]
        else:
            yield position, end
        position = end + 1


def _find_line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _is_machine_line(line: str) -> bool:
    """Return True if a line reads as code, a quotation or the output of a program."""
    if line.startswith(("    ", "\t")) and not _BULLET.match(line):
        return True
    return bool(
        _QUOTED_LINE.match(line)
        or _MACHINE.match(line)
        or (len(line) < 120 and _CODE_END.search(line) and _CODE_SIGN.search(line[:-1]))
    )
