"""The sentences that a person may have typed in a message: no code, quotation, log or list of output. Pure.

Spans are characters of the text. Every step looks at a bounded piece of it, so that the whole is linear in its length.
"""

from __future__ import annotations

from collections.abc import Iterator

from perdure.regex import lazy_re

MIN_CHARS, MAX_CHARS = 12, 600  # of a statement; shorter ones say nothing, longer ones are no plain statement
MIN_WIDE = 5  # characters of a statement in Chinese, where each is about a word
_FENCE = lazy_re(r"\s{0,3}(`{3,}|~{3,})")
_QUOTED_LINE = lazy_re(r"\s*(?:>|\||\+\+\+|---|@@|[$%#]\s|</?\w|[{}\[\]();]|[+-]\s*\d+\s|//|/\*|\*/)")
_BULLET = lazy_re(r"\s*(?:[-*•]|\d{1,2}[.)])\s+")
_MACHINE = lazy_re(
    r"\s*(?:at\s\S+.{0,200}[:(]\d|File\s\".{1,200}\",\sline\s\d|Traceback\s\(most|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d"
    r"|\[?\d\d:\d\d:\d\d\b|\[?(?:ERROR|WARN(?:ING)?|INFO|DEBUG|TRACE|FATAL)\b[\]:\s]|(?:npm|yarn)\s(?:ERR!|WARN|error)"
    r"|[\w.]{1,80}(?:Error|Exception)(?::|$)|goroutine\s\d|panic:\s|\w{1,40}@[\w.-]{1,60}[:~]\S{0,80}[$#]\s"
    r"|[\w./-]{1,120}\.\w{1,8}:\d+[:\s]|(?:def|class|import|from|const|let|var|function|return|public|private|"
    r"#include)\s\S+\s*[(={;:]"
    r"|[\w.\[\]\"']{1,60}\s*(?:=|:=|=>|\+=)\s)"
)
_CODE_END = lazy_re(r"[{};]\s*$|\)\s*:?\s*$|,\s*$")
_CODE_SIGN = lazy_re(r"[(){}\[\]=<>;_]")
_END = lazy_re(r"[.!?…]+[\"'”’)\]]{0,2}(?=\s|$)|[。！？；]+[”」』]?|;(?=\s)")
_NOT_END = frozenset(
    "e.g. i.e. z.b. d.h. dr. mr. mrs. ms. st. prof. vs. etc. no. nr. approx. bzw. ca. sr. sra.".split()
)
_QUOTE = lazy_re(
    r"\"[^\"]{0,600}\"|“[^”]{0,600}”|„[^“”]{0,600}[“”]|«[^»]{0,600}»|「[^」]{0,600}」|(?<!\w)'[^']{8,600}'(?!\w)"
)
_TICKED = lazy_re(r"`[^`\n]{1,200}`")


def sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield the span of every sentence that may be a person's own, in order, without bullets and space around it.

    >>> [("One thing. Another?\\n> quoted")[s:e] for s, e in sentences("One thing. Another?\\n> quoted")]
    ['One thing.', 'Another?']
    """
    for start, end in _typed_lines(text):
        at = start
        for match in _END.finditer(text, start, end):
            if _ends(text, at, match.start(), match.end()):
                yield from _kept(text, at, match.end())
                at = match.end()
        yield from _kept(text, at, end)


def _ends(text: str, at: int, dot: int, end: int) -> bool:
    """Return whether a sentence ends here: not behind an abbreviation, nor behind the number of a German date."""
    word = text[max(at, dot - 12) : end].split()[-1:] if dot > at else []
    if not word:
        return True
    is_ordinal = word[0][:-1].isdigit() and len(word[0]) < 4 and text[end : end + 2].strip()[:1].isupper()
    return word[0].lower() not in _NOT_END and not (is_ordinal and text[dot] == ".")


def _kept(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield a span without the space around it, where it is short enough and not code or quotation."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    if start < end and end - start <= 2 * MAX_CHARS and not _is_foreign(text[start:end]):
        yield start, end


def _is_foreign(sentence: str) -> bool:
    """Return whether a sentence is mostly code."""
    ticked = _TICKED.findall(sentence)
    plain = _TICKED.sub("", sentence)
    is_ticked = 2 * sum(map(len, ticked)) > len(sentence) and len(plain.split()) < MIN_PLAIN
    return is_ticked or 8 * len(_CODE_SIGN.findall(plain)) > len(sentence)


MIN_PLAIN = 4  # words between ticks from which a sentence is no code, however much of it is


def quotations(sentence: str) -> list[tuple[int, int]]:
    """Return the spans of what a sentence repeats at length, as somebody else's words.

    >>> quotations('He wrote "we are moving to Kafka now" to us'), quotations('a folder called "templates"')
    ([(9, 37)], [])
    """
    found = (m for m in _QUOTE.finditer(sentence))
    return [m.span() for m in found if len(m[0].split()) > 3 or (len(m[0]) > 8 and not m[0].isascii())]


def _typed_lines(text: str) -> Iterator[tuple[int, int]]:
    """Yield the span of every line that is neither fenced, quoted, indented as code nor a machine's."""
    for start, end in unfenced(text):
        head = text[start : min(end, start + 300)]
        if not _is_machine(head):
            bullet = _BULLET.match(head)
            yield start + (bullet.end() if bullet else 0), end


def unfenced(text: str) -> Iterator[tuple[int, int]]:
    """Yield the span of every line that does not stand between fences of code.

    >>> text = "a\\n```\\nb\\n```\\nc"
    >>> [text[s:e] for s, e in unfenced(text)]
    ['a', 'c']
    """
    at, fence = 0, ""
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        head = text[at : min(end, at + 300)]
        mark = _FENCE.match(head)
        if fence:
            fence = "" if mark and mark[1].startswith(fence) and head.strip() == mark[1] else fence
        elif mark:
            fence = mark[1]
        else:
            yield at, end
        at = end + 1


def _is_machine(line: str) -> bool:
    """Return whether a line reads as code, a quotation or the output of a program."""
    if line.startswith(("    ", "\t")) and not _BULLET.match(line):
        return True
    return bool(
        _QUOTED_LINE.match(line)
        or _MACHINE.match(line)
        or (len(line) < 120 and _CODE_END.search(line) and _CODE_SIGN.search(line[:-1]))
    )
