"""Text functions for the other layers: chunks, search terms, names, excerpts, safe lines, ages. Pure, standard
library only.

Offsets are characters of the Python string, never bytes. Nothing here splits a character that a person
sees as one: no cut is made before a combining mark, a variation selector or a joiner, or inside a
surrogate pair or flag. Same input, same output; no clock, no locale. It does not mask secrets:
`access.redact` does, before chunking.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import chain, islice, pairwise

from perdure.regex import lazy_re

CharSpan = tuple[int, int]  # [from, to) in characters

MAX_TERMS = 64  # of one query: a longer message is a document, and FTS5 gets slow
MAX_PHRASE_WORDS = 16  # of one term: FTS5 compares every place of every word of a phrase
MAX_ENTITIES = 32  # of one text
MAX_HITS = 2000  # that a snippet considers; a chunk of 2,000 characters has fewer
NAME_WEIGHT = 1000  # weight of a sighting that proves that a word is a name; any other counts 1
MAX_PROJECT_CHARS = 40  # of the short name of a project
MAX_CLUSTER_CHARS = 32  # longer stacks of marks are cut: they are an attack, not a letter

# --------------------------------------------------------------------------------------------------- characters

_JOINERS = frozenset("\u200d\u200c\u0e33\u0eb3")  # zero-width joiners; Thai and Lao vowels that belong to what precedes
_MARKS = frozenset(("Mn", "Mc", "Me"))


def _is_extender(char: str) -> bool:
    """Return True if a character belongs to the one before it."""
    if char < "\u0300":
        return False
    return (
        char in _JOINERS
        or "\U0001f3fb" <= char <= "\U0001f3ff"  # skin tones
        or "\u1160" <= char <= "\u11ff"  # Hangul vowels and finals
        or "\udc00" <= char <= "\udfff"  # second half of a surrogate pair
        or "\U000e0020" <= char <= "\U000e007f"  # tags of regional flags
        or unicodedata.category(char) in _MARKS
    )


def _is_border(text: str, offset: int) -> bool:
    """Return True if a cut before `text[offset]` leaves every visible character whole."""
    if offset <= 0 or offset >= len(text):
        return True
    char, previous = text[offset], text[offset - 1]
    if char < "\u0300":
        return not (previous == "\u200d" or (char == "\n" and previous == "\r"))
    if previous == "\u200d" or _is_extender(char):
        return False
    return not ("\U0001f1e6" <= char <= "\U0001f1ff" and _has_odd_flags_before(text, offset))


def _has_odd_flags_before(text: str, offset: int) -> bool:
    """Return True if an odd number of regional indicators precedes: flags are pairs of them."""
    first = offset
    while first > max(0, offset - MAX_CLUSTER_CHARS) and "\U0001f1e6" <= text[first - 1] <= "\U0001f1ff":
        first -= 1
    return (offset - first) % 2 == 1


def _find_border_before(text: str, offset: int, low: int) -> int:
    """Return the last border in (low, offset]; `offset` itself if a cluster is longer than that or than the
    limit.
    """
    for border in range(offset, max(low, offset - MAX_CLUSTER_CHARS), -1):
        if _is_border(text, border):
            return border
    return offset


# ------------------------------------------------------------------------------------------------------- chunks

_SENTENCE_END = lazy_re(r"[.!?…][\"'”’)\]]{0,3}\s+|[。！？｡][」』”）]{0,3}|[\u0e00-\u0eff]\s+")
_SPACE = lazy_re(r"\s+")


def split(text: str, *, max_chars: int = 2000, overlap_chars: int = 200) -> list[CharSpan]:
    """Return the chunks of a text, in order: every character is in one, none is longer than `max_chars`.

    A chunk ends after a blank line, else a line, a sentence, a space, else anywhere, always in the second
    half of its maximum length; the next one starts at most `overlap_chars` before that end, at a line,
    sentence or word. Linear in the length of the text, which is not copied. An empty text has no chunks.

    >>> split("One two. Three four.", max_chars=12, overlap_chars=0)
    [(0, 9), (9, 20)]
    """
    if max_chars < 1 or not 0 <= overlap_chars < max_chars:
        raise ValueError(f"need 0 <= overlap_chars ({overlap_chars}) < max_chars ({max_chars})")
    spans: list[CharSpan] = []
    start = 0
    while len(text) - start > max_chars:
        low = start + max(max_chars // 2, overlap_chars)
        end = _find_chunk_end(text, low, start + max_chars)
        spans.append((start, end))
        start = _find_chunk_start(text, max(end - overlap_chars, start + 1), end)
    if text:
        spans.append((start, len(text)))
    return spans


def _find_chunk_end(text: str, low: int, high: int) -> int:
    """Return the best end in (low, high]."""
    blank_end = max(text.rfind("\n\n", low - 1, high) + 2, text.rfind("\n\r\n", low - 2, high) + 3)
    line_end = text.rfind("\n", low, high) + 1
    for end in (blank_end, line_end):
        if low < end <= high and _is_border(text, end):
            return end
    for expression in (_SENTENCE_END, _SPACE):
        end = _find_last_end(expression, text, low, high)
        if end > low and _is_border(text, end):
            return end
    return _find_border_before(text, high, low)


def _find_last_end(expression: re.Pattern[str], text: str, low: int, high: int) -> int:
    """Return the end of the last match in text[low:high], -1 if there is none."""
    for start in (max(low, high - 256), low):  # usually the last lines hold one
        end = max((m.end() for m in expression.finditer(text, start, high)), default=-1)
        if end >= 0:
            return end
    return -1


def _find_chunk_start(text: str, low: int, end: int) -> int:
    """Return the start of the chunk after `end`: the earliest line, else sentence, else word in [low, end)."""
    if low >= end:
        return end
    line_start = text.find("\n", max(low - 1, 0), end) + 1
    if 0 < line_start < end and _is_border(text, line_start):
        return line_start
    for expression in (_SENTENCE_END, _SPACE):
        match = expression.search(text, max(low - 1, 0), end)
        if match and low <= match.end() < end and _is_border(text, match.end()):
            return match.end()
    return next((offset for offset in range(low, end) if _is_border(text, offset)), end)


# ------------------------------------------------------------------------------------------------- search terms

# Scripts written without spaces between words, as ranges of an expression. Hangul has spaces, but its particles
# hang on the words, so that bigrams find what a word search would miss.
_THAI_LIKE = "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u0edc-\u0edf\u1000-\u103f\u1050-\u109f\u1780-\u17d3\u17dc\u17dd"
_EAST_ASIAN = (
    "\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3041-\u3096\u3099\u309a"
    "\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u318e\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua960-\ua97c\uac00-\ud7fb\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_WIDE = "\uff00-\uffef"  # full-width and half-width forms
_RUN = lazy_re(f"[{_THAI_LIKE}{_EAST_ASIAN}]+")
_ANY = lazy_re(f"[{_THAI_LIKE}{_EAST_ASIAN}{_WIDE}]")
_WIDE_RUN = lazy_re(f"[{_WIDE}]+")
_MARK = "\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u102b-\u103e\u1056-\u1059\u17b4-\u17d3\u17dd"
_CLUSTER = lazy_re(f".[{_MARK}]*", re.DOTALL)


def index_terms(text: str) -> str:
    """Return the text in the form that FTS5 (`porter unicode61 remove_diacritics 2`) indexes.

    Runs of scripts without spaces become overlapping bigrams, separated by spaces; half- and full-width
    forms become ordinary ones (NFKC); everything else is unchanged. The parts of camelCase identifiers that
    the text does not hold as words follow at its end, once each, so that `token usage` finds
    `CalculateTokenUsage` and phrases stay whole. That adds 2.4 % to 11 MB of agent transcripts in chunks of
    2,000 characters (parts written beside each identifier would add 10.5 %); snake_case and paths need
    nothing, because unicode61 splits them.

    >>> index_terms("用SQLite数据库")
    ' 用 SQLite 数据 据库 \\nsq lite'
    """
    spaced = _to_bigram_text(text)
    parts = find_camel_parts(spaced)
    return f"{spaced}\n{' '.join(parts)}" if parts else spaced


def part_scripts(text: str) -> tuple[str, str]:
    """Return the text without the runs of scripts without spaces, and those runs (NFKC), a line each.

    >>> part_scripts("用SQLite数据库")
    (' SQLite ', '用\\n数据库')
    """
    if text.isascii() or not _ANY.search(text):
        return text, ""
    narrow = _to_narrow(text)
    return _RUN.sub(" ", narrow), unicodedata.normalize("NFKC", "\n".join(_RUN.findall(narrow)))


def _to_bigram_text(text: str) -> str:
    """Return the text with bigrams for scripts without spaces; the same object if it has none."""
    if text.isascii() or not _ANY.search(text):
        return text
    return _RUN.sub(lambda m: f" {' '.join(_to_bigrams(m[0]))} ", _to_narrow(text))


def _to_narrow(text: str) -> str:
    return _WIDE_RUN.sub(lambda m: unicodedata.normalize("NFKC", m[0]), text)


# A capital inside a word, behind a small letter or before one, and the rest of the word.
_HUMP = lazy_re(r"[A-Z](?:(?<=[a-z0-9].)|(?<=[A-Z].)(?=[a-z]{2}))[A-Za-z0-9]*+")
_CAMEL_PART = lazy_re(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_ALNUM = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_NON_ALNUM_AS_BLANK = bytes(c if chr(c) in _ALNUM else 32 for c in range(256))


def find_camel_parts(text: str) -> list[str]:
    """Return the lower-case parts of camelCase identifiers that are not words of the text, in order, once each."""
    identifiers = dict.fromkeys(_read_back(text, m.start(), _ALNUM) + m[0] for m in _HUMP.finditer(text))
    if not identifiers:
        return []
    parts = dict.fromkeys(chain.from_iterable(map(_cut_camel, identifiers)))
    words = set(text.encode("ascii", "replace").translate(_NON_ALNUM_AS_BLANK).lower().split())
    return [p for p in parts if p.encode() not in words]


@lru_cache(maxsize=4096)
def _cut_camel(identifier: str) -> tuple[str, ...]:
    return tuple(p.lower() for p in _CAMEL_PART.findall(identifier) if len(p) > 1)


def _read_back(text: str, offset: int, letters: str) -> str:
    """Return the characters out of `letters` directly before `offset`, at most 64."""
    preceding = text[max(0, offset - 64) : offset]
    return preceding[len(preceding.rstrip(letters)) :]


def _to_bigrams(run: str) -> list[str]:
    """Return the overlapping pairs of characters of a run; a run of one character unchanged.

    A pair counts characters with their marks (Thai ที่ is one): FTS5 drops the marks, and a pair of bare
    code points would then carry no meaning.
    """
    composed = unicodedata.normalize("NFKC", run)
    letters = composed if composed.isalnum() else _CLUSTER.findall(composed)  # without marks each is a cluster
    return [a + b for a, b in pairwise(letters)] or [composed]


# Separators between words: controls, spaces, punctuation and symbols. All else counts, so that no script's marks
# end a word; `\w` would leave them out.
_SEPARATORS = (
    r"\s\x00-/:-@\[-\^`{-\xa9\xab-\xb1\xb4\xb6-\xb8\xbb\xbf\xd7\xf7\u037e\u0387\u055a-\u055f\u0589\u05be\u05c0\u05c3"
    r"\u05c6\u05f3\u05f4\u0609-\u060d\u061b-\u061f\u066a-\u066d\u06d4\u0964\u0965\u0e4f\u0e5a\u0e5b\u2000-\u200b"
    r"\u200e-\u206f\u20a0-\u20bf\u2190-\u245f\u2500-\u2775\u2794-\u2bff\u2e00-\u2e7f\u3000-\u3004\u3008-\u3020\u3030\u303d-\u303f\u30fb"
    r"\ud800-\udfff\ufd3e\ufd3f\ufe00-\ufe1f\ufe30-\ufe6f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
    r"\ufff0-\uffff\U0001f000-\U0001faff"
)
_WORD = f"[^{_SEPARATORS}]+"
_QUERY = lazy_re(
    rf"\"([^\"]*\w[^\"]*)\"|[“„]([^“”\"]*\w[^“”\"]*)[”“]"
    rf"|({_WORD}(?:(?:://|::|->|[._/\\:@#~+=&%’'\-]){_WORD})*)"
)


def query_terms(query: str) -> tuple[str, ...]:
    r"""Return what to search for, in order and once each, at most 64: words, phrases, identifiers, bigrams.

    A quoted phrase, and an identifier or path such as `foo.bar_baz`, is one term: FTS5 reads it as a phrase. Words
    are lower-cased. Nothing but punctuation is dropped; quote each term with `fts_quote` before use.

    >>> query_terms('why does src/app.py raise "disk full" 数据库?')
    ('why', 'does', 'src/app.py', 'raise', 'disk full', '数据', '据库')
    """
    terms: dict[str, None] = {}
    for match in _QUERY.finditer(query):
        phrase = match[1] or match[2]
        for term in (_lower_like_fts(phrase.strip()),) if phrase else _split_word_terms(match[3]):
            terms.update(dict.fromkeys(_cut_phrase(term)))
        if len(terms) >= MAX_TERMS:
            break
    return tuple(terms)[:MAX_TERMS]


def _cut_phrase(term: str) -> Iterator[str]:
    """Yield a term in pieces of at most `MAX_PHRASE_WORDS` words, as many as one query may have.

    >>> list(_cut_phrase("src/app.py"))
    ['src/app.py']
    """
    if len(term) < 2 * MAX_PHRASE_WORDS:  # words and what is between them
        yield term
        return
    expression = _LONG_RUN if _ANY.search(term) else _LONG_PHRASE
    pieces = [match[0].strip() for match in islice(expression.finditer(term), MAX_TERMS)]
    yield from pieces if len(pieces) > 1 else (term,)


_LONG_RUN = lazy_re(rf"\w.{{0,{2 * MAX_PHRASE_WORDS}}}", re.DOTALL)  # of bigrams
_LONG_PHRASE = lazy_re(rf"\w(?:[^\W_]*+[\W_]*+){{1,{MAX_PHRASE_WORDS}}}")


def _lower_like_fts(word: str) -> str:
    """Lower-case the letters of Latin, Greek, Cyrillic and Armenian one by one, as FTS5 does.

    `casefold` turns ß into ss and `lower` knows scripts (Cherokee) that FTS5 does not fold: the index has
    neither.
    """
    return (
        word.lower() if word.isascii() else _CASED.sub(lambda m: low if len(low := m[0].lower()) == 1 else m[0], word)
    )


_CASED = lazy_re("[A-Z\u00c0-\u037e\u0380-\u0527\u0531-\u0556\u1e00-\u1fff]")


def _split_word_terms(word: str) -> Iterator[str]:
    """Yield one word, or its parts if it holds a script without spaces."""
    if word.isascii() or not _ANY.search(word):
        yield _lower_like_fts(word)
        return
    narrow = _to_narrow(word)
    offset = 0
    for run in _RUN.finditer(narrow):
        yield from (_lower_like_fts(m[0]) for m in re.finditer(_WORD, narrow[offset : run.start()]))
        yield from _to_bigrams(run[0])
        offset = run.end()
    yield from (_lower_like_fts(m[0]) for m in re.finditer(_WORD, narrow[offset:]))


def fts_quote(term: str) -> str:
    """Return a term as an FTS5 string: quotes doubled, NUL and lone surrogates gone, bigrams as in the index.

    >>> fts_quote('say "hi" NOT')
    '"say ""hi"" NOT"'
    """
    clean = _to_bigram_text(term).replace("\0", " ").replace('"', '""')
    if not clean.isascii():
        clean = clean.encode("utf-8", "ignore").decode()
    return f'"{clean.strip()}"'


def _to_word_set(word_list: str) -> frozenset[str]:
    return frozenset(word_list.split())


STOPWORDS: frozenset[str] = _to_word_set(
    "a about an and any are as at be been but by can could did do does for from had has have he her him his how i "
    "if in is it its me my of on or our she should so than that the their them then there these they this those to "
    "us was we were what when where which who whom whose why will with would you your"
)


def without_stopwords(terms: Iterable[str]) -> tuple[str, ...]:
    """Return the terms that carry meaning; all of them if none does ("who are you")."""
    all_terms = tuple(terms)
    return tuple(t for t in all_terms if t not in STOPWORDS) or all_terms


# ------------------------------------------------------------------------------------------------------ excerpts

_UNSAFE = lazy_re(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and cursor moves
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links, device strings
    r"|\x1b[ -/]*[0-~]?|\x9b[0-?]*[ -/]*[@-~]?"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
_SUSPECT = lazy_re("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_HALF = lazy_re("[\ud800-\udfff]")
ELLIPSIS = "…"
PICTURE_LABEL = "in a screenshot"  # stands beside text that was read in a picture


def printable(text: str) -> str:
    """Return text that is safe on a terminal: no control, escape or bidi override character but newline and tab."""
    return _UNSAFE.sub("", _HALF.sub("\ufffd", text)) if _SUSPECT.search(text) else text


def join_halves(text: str) -> str:
    """Return a text in which two halves of a character (UTF-16) are that character, and a lone one is U+FFFD.

    >>> join_halves("\\ud83d\\ude00 \\ud83d") == "\\U0001f600 \\ufffd"
    True
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if _HALF.search(text) else text


def spell_out(text: str) -> str:
    r"""Return a text in which each character that a terminal hides or obeys is written as its escape, but newline and
    tab: for what a person decides about, where a sign that is left out may do harm.

    >>> spell_out("echo hi \x1b]0;$(rm -rf ~)\x07")
    'echo hi \\x1b]0;$(rm -rf ~)\\x07'
    """
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode() for char in text
    )


def one_line(text: str, n_chars: int) -> str:
    """Return at most `n_chars` of a text on one line, safe on a terminal.

    >>> one_line("a\\n\\tb \\x1b[31mred", 80)
    'a b red'
    """
    beginning = text[: 4 * n_chars + 256] if len(text) > 8 * n_chars + 512 else text
    return clip(" ".join(printable(beginning).split()), n_chars)


def clip(text: str, n_chars: int) -> str:
    """Return the text, or its beginning and an ellipsis: never more than `n_chars` characters.

    >>> clip("memory", 4)
    'mem…'
    """
    if len(text) <= n_chars:
        return text
    if n_chars < 1:
        return ""
    return text[: _find_border_before(text, n_chars - 1, -1)].rstrip() + ELLIPSIS


def snippet(text: str, terms: Sequence[str], n_chars: int = 240) -> tuple[str, tuple[CharSpan, ...]]:
    """Return the window of a text with most of the terms, on one line, and the spans in it to highlight.

    Words match by their stem: the first max(4, length - 3) letters; shorter ones and bigrams match
    unchanged. Without a match the window is the beginning of the text.
    """
    expression = _build_highlighter(terms)
    if expression is None:
        return one_line(text, n_chars), ()
    start, end = _find_densest_window(text, expression, n_chars)
    prefix = ELLIPSIS if start > 0 else ""
    window = prefix + one_line(text[start:end], n_chars - len(prefix))
    if end < len(text) and not window.endswith(ELLIPSIS):
        window = clip(window + " " * n_chars, n_chars)
    return window, tuple(m.span() for m in expression.finditer(window))


def _build_highlighter(terms: Sequence[str]) -> re.Pattern[str] | None:
    """Return one expression that matches any of the terms, the longest first."""
    patterns = {p for term in terms[:MAX_TERMS] if (p := _build_term_pattern(term))}
    return re.compile("|".join(sorted(patterns, key=lambda p: (-len(p), p))), re.IGNORECASE) if patterns else None


def _build_term_pattern(term: str) -> str:
    words = re.findall(_WORD, term)
    if not words:
        return ""
    if _ANY.search(term):
        return re.escape(term.strip())
    first_patterns = [re.escape(word) for word in words[:-1]]
    last_word = words[-1]
    last_pattern = (
        re.escape(last_word) + r"\b"
        if len(last_word) < 4
        else re.escape(last_word[: max(4, len(last_word) - 3)]) + r"\w*"
    )
    return r"\b" + r"\W+".join((*first_patterns, last_pattern))


def _find_densest_window(text: str, expression: re.Pattern[str], n_chars: int) -> CharSpan:
    """Return the window that holds the most different matches, then the most matches, then the earliest."""
    hits = [(m.start(), m.end(), m[0].lower()[:4]) for m in islice(expression.finditer(text), MAX_HITS)]
    best, first = (0, 0), 0
    span = (0, 0)
    for last, (_, end, _) in enumerate(hits):
        while end - hits[first][0] > n_chars and first < last:
            first += 1
        score = (len({h[2] for h in hits[first : last + 1]}), last - first + 1)
        if score > best:
            best, span = score, (hits[first][0], end)
    return _fit_window(text, span, n_chars)


def _fit_window(text: str, span: CharSpan, n_chars: int) -> CharSpan:
    """Return `n_chars` of text around a span, from the start of a word."""
    spare_chars = max(0, n_chars - (span[1] - span[0]))
    start = max(0, min(span[0] - spare_chars // 3, len(text) - n_chars))
    if start:
        space = _SPACE.search(text, start, span[0])
        start = space.end() if space else _find_border_before(text, min(start, span[0]), -1)
    return start, min(len(text), start + n_chars)


# --------------------------------------------------------------------------------------------- ages and projects

_AGE_UNITS = ((365.25 * 86400, "year"), (365.25 / 12 * 86400, "month"), (86400, "day"), (3600, "hour"), (60, "minute"))


def format_age(instant: datetime | None, now: datetime) -> str:
    """Return how long before `now` an instant was, in words; "" for None.

    >>> format_age(datetime(2026, 8, 12), datetime(2026, 11, 23)), format_age(None, datetime(2026, 11, 23))
    ('3 months ago', '')
    """
    if instant is None:
        return ""
    age_s = (now - instant).total_seconds()
    for unit_s, unit in _AGE_UNITS:
        if age_s >= unit_s:
            n = int(age_s // unit_s)
            return f"{n} {unit}{'' if n == 1 else 's'} ago"
    return "just now"


_WORKTREE = lazy_re(r"(?:/\.claude/worktrees|/?\.worktrees)/[^/]+\Z")  # where tools put the worktrees of a repository


def shorten_project(project: str | None) -> str:
    """Return the short name of a project: the last folder of its path, of a worktree its repository; "" for none.

    >>> shorten_project("/home/ada/work/tide-server/"), shorten_project("D:\\\\tide"), shorten_project(None)
    ('tide-server', 'tide', '')
    >>> shorten_project("/work/tide/.worktrees/2"), shorten_project("/work/tide/.claude/worktrees/calm-fox")
    ('tide', 'tide')
    """
    path = _WORKTREE.sub("", (project or "").replace("\\", "/").rstrip("/"))
    return one_line(path.rpartition("/")[2] or project or "", MAX_PROJECT_CHARS)


def describe_file(runtime: str, path: str, *, is_left: bool) -> str:
    """Name the file of a paragraph that a host, a person or another product wrote; "" for a turn of a session.

    >>> describe_file("host-memory", "/h/MEMORY.md", is_left=True), describe_file("codex", "s1", is_left=True)
    ('no longer in /h/MEMORY.md', '')
    """
    from perdure.types import EXTERNAL_RUNTIMES  # with msgspec, 10 ms

    if runtime not in ("host-memory", "instructions", *EXTERNAL_RUNTIMES):
        return ""
    return f"no longer in {path}" if is_left else f"from {path}"


# -------------------------------------------------------------------------------------------------------- names

_CAPITAL = "A-ZÀ-ÖØ-ÞĀ-ž"  # the last range holds small letters too; `_check_single_word` checks again
_NAME_REST = r"(?:[\w’']|[-&](?=\w)|\.(?=(?:js|io|ai|py|rs|md)\b))*+"
_NAME_LINK = (
    r"(?:(?:of|de|del|della|du|di|da|le|la|bin|al|ten|ter|&|(?:van|von)(?:\ de[rn]?)?)\ (?:(?:the|la|los)\ )?)?"
)
_MENTION = lazy_re(  # one class of first letters, so that the search jumps to them
    rf"[{_CAPITAL}`@#:](?:"
    rf"(?<=\w[{_CAPITAL}])(?P<hump>\w*+)"
    rf"|(?<=[{_CAPITAL}])(?P<name>{_NAME_REST}(?:\ {_NAME_LINK}[{_CAPITAL}]{_NAME_REST}){{0,4}})"
    r"|(?<=`)(?P<ticked>[^`\s]{2,64})`"
    r"|(?<=@)(?P<handle>[\w-][\w./-]{0,63})"
    r"|(?<![\w&/]\#)(?<=\#)(?P<issue>\d{1,7})\b"
    r"|(?<=:)//(?:[^\s/@\"'<>]{0,128}@)?(?P<host>[\w-]{1,63}(?:\.[\w-]{1,63}){1,8})"
    r")"
)
_IDENTIFIER = lazy_re(r"[^\W\d]\w*[a-z0-9][A-Z]\w*|[a-z][A-Z]\w+|[A-Z][A-Z0-9]*_\w+|[A-Z]{2,}[a-z]\w+")
_TICKET = lazy_re(r"[A-Z][A-Z0-9]{1,9}-\d{1,7}")
_TICKED = lazy_re(r"[\w@./:#-]*[^\W\d_][\w@./:#-]*")
_POSSESSIVE = lazy_re(r"['’]s?$")
_GERMAN = (" der ", " die ", " das ", " und ", " nicht ", " ist ")
_NO_TICKETS = frozenset(("UTF", "SHA", "ISO", "RFC", "UTC", "GMT", "CVE", "BASE", "AES", "MD", "HTTP", "COVID"))
_NO_HANDLES = _to_word_set(
    "param params return returns throws type types see deprecated override media import property dataclass "
    "staticmethod classmethod pytest app latest example ts-ignore ts-expect-error"
)
_OPENERS = STOPWORDS | _to_word_set(  # words that are capitalised only because they begin a sentence
    "add after all also although another ask because before both build but call change check create currently "
    "delete dear during each either every everything exactly excellent false finally find first fix fixed found get "
    "give good great hello here hey hi however instead just last let like look looking make many may maybe "
    "might more most much must never new next no none not note nothing now null ok okay once one only open other "
    "otherwise perfect please put read remember remove replace run second see set several show since some something "
    "sometimes sorry start still stop such sure take tell test thank thanks third though thus todo true try two "
    "under until update use using very wait warning well while within without write yes yesterday yet today "
    "tomorrow error info debug fixme der die das den dem ein eine und ist wir ich sie er es im in am zu mit für auf "
    "le la les un une des il elle je nous vous ce cette et est el los las una y yo en o os as um uma het een de lo "
    "gli che non gestern heute morgen hier ayer hoy mañana oggi ieri wow yeah cool haha absolutely awesome"
)
_DATES = _to_word_set(
    "monday tuesday wednesday thursday friday saturday sunday mon tue wed thu fri sat sun january february march "
    "april may june july august september october november december jan feb mar apr jun jul aug sep sept oct nov "
    "dec am pm montag dienstag mittwoch donnerstag freitag samstag sonntag januar februar märz mai juni juli "
    "oktober dezember utc gmt"
)
_CONTRACTIONS = _to_word_set(
    "i'm i'll i've i'd it's that's what's there's here's let's you're you've you'll we're we've we'll they're don't "
    "can't won't didn't doesn't isn't aren't wasn't couldn't wouldn't he's she's who's how's where's"
)
_NOT_NAMES = _OPENERS | _DATES | _CONTRACTIONS | {word.replace("'", "’") for word in _CONTRACTIONS}


def entities(text: str) -> tuple[str, ...]:
    """Return the named things that a text mentions, in order, once each, at most 32.

    By rules: names of several capitalised words, capitalised words inside a sentence (or repeated, if the
    text never writes them small), CamelCase and CAPS_WITH_UNDERSCORE identifiers, `backticked` names,
    @handles, e-mail addresses, hosts of URLs, issue references. In German, where every noun has a capital,
    single words count if they are repeated. Weekdays, months, versions and words that merely begin a
    sentence are left out.

    >>> entities("Yesterday Ada Lovelace asked Grace about ABC-42 in `src/app.py`.")
    ('Ada Lovelace', 'Grace', 'ABC-42', 'src/app.py')
    """
    weights: dict[str, int] = {}  # in order of appearance; NAME_WEIGHT or more: certainly a name
    n_named = 0
    single_weight = 1 if sum(word in text[:2000] for word in _GERMAN) > 1 else NAME_WEIGHT
    for match in _MENTION.finditer(text):
        word = match[0]
        if word.lower() in _NOT_NAMES:  # "The", "It": half the matches in prose
            continue
        is_plain = word.isalpha() and word[1:].islower() and match.lastgroup == "name"  # nearly all others
        plain_name = ((word, single_weight if is_plain and _is_inside(text, match.start()) else 1),)
        for name, weight in plain_name if is_plain else _find_names_in_match(text, match, single_weight):
            old_weight = weights.get(name, 0)
            weights[name] = old_weight + weight
            n_named += old_weight < NAME_WEIGHT <= old_weight + weight
        if n_named >= MAX_ENTITIES:
            break
    beginning = text[:20_000]
    names = (
        n for n, total in weights.items() if total >= NAME_WEIGHT or (total > 1 and f" {n.lower()} " not in beginning)
    )
    return tuple(names)[:MAX_ENTITIES]


def _find_names_in_match(text: str, match: re.Match[str], single_weight: int) -> Iterator[tuple[str, int]]:
    """Yield the names in one match, with the weight of this sighting."""
    kind, start = match.lastgroup, match.start()
    if kind == "name":
        yield from _find_capitalised_names(text, match, single_weight)
    elif kind == "hump":
        word = _read_back(text, start, _ALNUM + "_") + match[0]
        if len(word) <= 64 and _IDENTIFIER.fullmatch(word):
            yield word, NAME_WEIGHT
    elif kind == "ticked":
        name = match["ticked"].removesuffix("()")
        if _TICKED.fullmatch(name) and name[0] not in "-$":  # of `()` nothing is left
            yield name, NAME_WEIGHT
    elif kind == "handle":
        yield from _find_handle(text, start, match["handle"].rstrip("./-"), match.end())
    elif kind == "issue":
        yield "#" + match["issue"], NAME_WEIGHT
    elif kind == "host" and not match["host"].replace(".", "").isdigit():
        yield match["host"].lower().removeprefix("www."), NAME_WEIGHT


def _find_handle(text: str, offset: int, name: str, end: int) -> Iterator[tuple[str, int]]:
    """Yield the e-mail address or the handle around the @ at `offset`; decorators are neither."""
    local = _read_back(text, offset, _ALNUM + "_.+-")
    if local:
        if "." in name:
            yield f"{local}@{name}", NAME_WEIGHT
    elif name and name.lower() not in _NO_HANDLES and not name[0].isdigit() and text[end : end + 1] != "(":
        yield "@" + name, NAME_WEIGHT


def _find_capitalised_names(text: str, match: re.Match[str], single_weight: int) -> Iterator[tuple[str, int]]:
    """Yield the names in a run of capitalised words: an identifier, a ticket, a name, or nothing."""
    words, start = match[0].split(" "), match.start()
    is_inside = _is_inside(text, start)
    while words and words[0].lower() in (STOPWORDS if is_inside and len(words) > 1 else _OPENERS):
        words, is_inside = words[1:], True
    while words and (words[-1].lower() in STOPWORDS or not words[-1][:1].isupper()):
        words = words[:-1]
    if len(words) > 1 and not any("_" in part or part.isupper() for part in words):
        yield _POSSESSIVE.sub("", " ".join(words)), 1 if _is_in_heading(text, start) else NAME_WEIGHT
        return
    for word in () if match[0].isupper() and match[0].count(" ") > 1 else words:  # "DO NOT EDIT THIS"
        yield from _check_single_word(_POSSESSIVE.sub("", word), single_weight if is_inside else 1)


def _is_inside(text: str, offset: int) -> bool:
    """Return True if the word at `offset` is inside a sentence, where a capital has meaning."""
    preceding = text[max(0, offset - 2) : offset]
    return preceding[1:] == " " and (preceding[0].isalnum() or preceding[0] in ",)'’\"”")


def _check_single_word(word: str, weight: int) -> Iterator[tuple[str, int]]:
    """Yield one capitalised word if it can be a name."""
    if _TICKET.fullmatch(word):
        if word.partition("-")[0] not in _NO_TICKETS:
            yield word, NAME_WEIGHT
    elif _IDENTIFIER.fullmatch(word):
        yield word, NAME_WEIGHT
    elif len(word) > 1 and word[0].isupper() and word.lower() not in _NOT_NAMES and not word[1:].isdigit():
        yield word, weight


def _is_in_heading(text: str, offset: int) -> bool:
    """Return True if `offset` is in a Markdown heading, where every word may have a capital."""
    return text.startswith("#", text.rfind("\n", max(0, offset - 80), offset) + 1)


# ------------------------------------------------------------------------------------------------------ identity


def normalise(text: str) -> str:
    """Return the form whose keyed hash a tombstone stores: NFKC, case-folded, whitespace collapsed.

    >>> normalise("  Ｈello\\n\\tWORLD ")
    'hello world'
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKD", text).casefold())
    return " ".join(text.casefold().split())


_PUNCTUATION = bytes(c for c in range(33, 127) if not chr(c).isalnum())
_TOKENS_PER = (  # bytes that stand for one character of a kind -> tokens it costs in o200k, fitted by hand
    (b"abcdefghijklmnopqrstuvwxyz", 0.12),
    (b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", 0.3),
    (b"0123456789", 0.52),
    (_PUNCTUATION, 0.75),
    (b"\n", 0.1),
    (b"\xc2\xc3\xc4\xc5", 1.4),  # first bytes of accented Latin
    (bytes(range(0xC6, 0xE0)), 0.3),  # of Greek, Cyrillic, Hebrew, Arabic
    (b"\xe0\xe1", 0.4),  # of Indic scripts, Thai, Georgian
    (b"\xe2\xee\xef", 0.45),  # of punctuation, arrows, frames
    (bytes(range(0xE3, 0xEE)), 0.77),  # of Chinese, Japanese, Korean
    (bytes(range(0xF0, 0xF5)), 2.7),  # of emoji and rare characters
)
_TOKENS_PER_WORD = 0.53  # cost of each word beyond its characters
TOKEN_ENCODER = "o200k, estimated"  # what `tokens` counts in


def tokens(text: str) -> int:
    """Estimate the number of tokens of a text.

    Weights for classes of characters and for words, fitted to o200k (docs/evaluation/tokens.md): mean error
    of a page 5 % in documentation and code, 3 to 12 % in English chats, 3 % in Chinese, 14 % in 22 other
    languages. Other models differ by more than that among themselves.
    """
    encoded = text.encode("utf-8", "surrogatepass")
    n = sum(w * (len(encoded) - len(encoded.translate(None, kind))) for kind, w in _TOKENS_PER)
    return math.ceil(n + _TOKENS_PER_WORD * len(encoded.split()))
