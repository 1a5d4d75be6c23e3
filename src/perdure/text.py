"""Text as the other layers need it: chunks, search terms, names, excerpts, safe lines. Pure, standard library only.

Offsets are characters of the Python string, never bytes. Nothing here splits a character that a person sees as
one: no cut stands before a combining mark, a variation selector or a joiner, or inside a surrogate pair or flag.
Same input, same output; no clock, no locale. It does not mask secrets: `access.redact` does, before chunking.
"""

from __future__ import annotations

import math
import re
import string
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise

from perdure.patterns import late

Span = tuple[int, int]  # [from, to) in characters

MAX_TERMS = 64  # of one query: beyond it a message is a document, and FTS5 gets slow
MAX_ENTITIES = 32  # of one text
MAX_HITS = 2000  # that a snippet weighs; a chunk of 2,000 characters has fewer
NAMED = 1000  # weight of a sighting that settles that a word is a name; every other counts 1
MAX_CLUSTER_CHARS = 32  # marks stacked higher than this are cut: what is longer is an attack, not a letter

# --------------------------------------------------------------------------------------------------- characters

_JOINERS = frozenset("\u200d\u200c\u0e33\u0eb3")  # zero-width joiners; Thai and Lao vowels that belong to what precedes
_MARKS = frozenset(("Mn", "Mc", "Me"))


def _extends(char: str) -> bool:
    """Return whether a character belongs to the one before it."""
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


def _is_border(text: str, at: int) -> bool:
    """Return whether a cut before `text[at]` leaves every visible character whole."""
    if at <= 0 or at >= len(text):
        return True
    here, before = text[at], text[at - 1]
    if here < "\u0300":
        return not (before == "\u200d" or (here == "\n" and before == "\r"))
    if before == "\u200d" or _extends(here):
        return False
    return not ("\U0001f1e6" <= here <= "\U0001f1ff" and _odd_flags_before(text, at))


def _odd_flags_before(text: str, at: int) -> bool:
    """Return whether an odd number of regional indicators precedes: flags are pairs of them."""
    first = at
    while first > max(0, at - MAX_CLUSTER_CHARS) and "\U0001f1e6" <= text[first - 1] <= "\U0001f1ff":
        first -= 1
    return (at - first) % 2 == 1


def _border_before(text: str, at: int, floor: int) -> int:
    """Return the last border in (floor, at]; `at` itself when a cluster is longer than that or than the limit."""
    for place in range(at, max(floor, at - MAX_CLUSTER_CHARS), -1):
        if _is_border(text, place):
            return place
    return at


# ------------------------------------------------------------------------------------------------------- chunks

_SENTENCE_END = late(r"[.!?…][\"'”’)\]]{0,3}\s+|[。！？｡][」』”）]{0,3}|[\u0e00-\u0eff]\s+")
_SPACE = late(r"\s+")


def split(text: str, *, max_chars: int = 2000, overlap_chars: int = 200) -> list[Span]:
    """Return the chunks of a text, in order: every character is in one, none is longer than `max_chars`.

    A chunk ends behind a blank line, else a line, a sentence, a space, else anywhere, always in the second half
    of what it may hold; the next one starts at most `overlap_chars` before that end, at a line, sentence or word.
    Linear in the length of the text, which is not copied. An empty text has no chunks.

    >>> split("One two. Three four.", max_chars=12, overlap_chars=0)
    [(0, 9), (9, 20)]
    """
    if max_chars < 1 or not 0 <= overlap_chars < max_chars:
        raise ValueError(f"need 0 <= overlap_chars ({overlap_chars}) < max_chars ({max_chars})")
    spans: list[Span] = []
    start = 0
    while len(text) - start > max_chars:
        least = start + max(max_chars // 2, overlap_chars)
        end = _chunk_end(text, least, start + max_chars)
        spans.append((start, end))
        start = _chunk_start(text, max(end - overlap_chars, start + 1), end)
    if text:
        spans.append((start, len(text)))
    return spans


def _chunk_end(text: str, least: int, most: int) -> int:
    """Return the best end in (least, most]."""
    blank = max(text.rfind("\n\n", least - 1, most) + 2, text.rfind("\n\r\n", least - 2, most) + 3)
    line = text.rfind("\n", least, most) + 1
    for end in (blank, line):
        if least < end <= most and _is_border(text, end):
            return end
    for expression in (_SENTENCE_END, _SPACE):
        end = _last_end(expression, text, least, most)
        if end > least and _is_border(text, end):
            return end
    return _border_before(text, most, least)


def _last_end(expression: re.Pattern[str], text: str, least: int, most: int) -> int:
    """Return the end of the last match in text[least:most], -1 if there is none."""
    for start in (max(least, most - 256), least):  # mostly the last lines hold one
        end = max((m.end() for m in expression.finditer(text, start, most)), default=-1)
        if end >= 0:
            return end
    return -1


def _chunk_start(text: str, least: int, end: int) -> int:
    """Return where the chunk after `end` starts: the earliest line, else sentence, else word in [least, end)."""
    if least >= end:
        return end
    line = text.find("\n", max(least - 1, 0), end) + 1
    if 0 < line < end and _is_border(text, line):
        return line
    for expression in (_SENTENCE_END, _SPACE):
        match = expression.search(text, max(least - 1, 0), end)
        if match and least <= match.end() < end and _is_border(text, match.end()):
            return match.end()
    return next((at for at in range(least, end) if _is_border(text, at)), end)


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
_RUN = late(f"[{_THAI_LIKE}{_EAST_ASIAN}]+")
_ANY = late(f"[{_THAI_LIKE}{_EAST_ASIAN}{_WIDE}]")
_WIDE_RUN = late(f"[{_WIDE}]+")
_MARK = "\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u102b-\u103e\u1056-\u1059\u17b4-\u17d3\u17dd"
_CLUSTER = late(f".[{_MARK}]*", re.DOTALL)


def index_terms(text: str) -> str:
    """Return the text as FTS5 (`porter unicode61 remove_diacritics 2`) is to see it.

    Runs of scripts without spaces become overlapping bigrams, set apart by spaces; half- and full-width forms
    become ordinary ones (NFKC); everything else is untouched. The parts of camelCase identifiers that the text
    does not hold as words follow at its end, once each, so that `token usage` finds `CalculateTokenUsage` and
    phrases stay whole. That adds 2.4 % to 11 MB of agent transcripts in chunks of 2,000 characters (each part in
    its place would add 10.5 %); snake_case and paths need nothing, unicode61 splits them.

    >>> index_terms("用SQLite数据库")
    ' 用 SQLite 数据 据库 \\nsq lite'
    """
    spaced = _spaced(text)
    parts = _camel_parts(spaced)
    return f"{spaced}\n{' '.join(parts)}" if parts else spaced


def _spaced(text: str) -> str:
    """Return the text with bigrams for scripts without spaces; the same object when it has none."""
    if text.isascii() or not _ANY.search(text):
        return text
    narrow = _WIDE_RUN.sub(lambda m: unicodedata.normalize("NFKC", m[0]), text)
    return _RUN.sub(lambda m: f" {' '.join(_bigrams(m[0]))} ", narrow)


# A capital inside a word, behind a small letter or before one, and the rest of the word.
_HUMP = late(r"[A-Z](?:(?<=[a-z0-9].)|(?<=[A-Z].)(?=[a-z]{2}))[A-Za-z0-9]*+")
_CAMEL_PART = late(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_ALNUM = string.ascii_letters + string.digits
_BLANKED = bytes(c if chr(c) in _ALNUM else 32 for c in range(256))


def _camel_parts(text: str) -> list[str]:
    """Return the lower-case parts of camelCase identifiers that are no word of the text, in order, once each."""
    identifiers = dict.fromkeys(_before(text, m.start(), _ALNUM) + m[0] for m in _HUMP.finditer(text))
    if not identifiers:
        return []
    parts = dict.fromkeys(p.lower() for word in identifiers for p in _CAMEL_PART.findall(word))
    words = set(text.encode("ascii", "replace").translate(_BLANKED).lower().split())
    return [p for p in parts if len(p) > 1 and p.encode() not in words]


def _before(text: str, at: int, letters: str) -> str:
    """Return the characters out of `letters` that stand right before `at`, at most 64."""
    head = text[max(0, at - 64) : at]
    return head[len(head.rstrip(letters)) :]


def _bigrams(run: str) -> list[str]:
    """Return the overlapping pairs of characters of a run; a run of one character as it is.

    A pair counts characters with their marks (Thai ที่ is one): FTS5 drops the marks, and a pair of bare code
    points would then say nothing.
    """
    composed = unicodedata.normalize("NFKC", run)
    letters = _CLUSTER.findall(composed)
    return [a + b for a, b in pairwise(letters)] or [composed]


# What stands between words: controls, spaces, punctuation and symbols. All else counts, so that no script's marks
# end a word; `\w` would leave them out.
_BETWEEN = (
    r"\s\x00-/:-@\[-\^`{-\xa9\xab-\xb1\xb4\xb6-\xb8\xbb\xbf\xd7\xf7\u037e\u0387\u055a-\u055f\u0589\u05be\u05c0\u05c3"
    r"\u05c6\u05f3\u05f4\u0609-\u060d\u061b-\u061f\u066a-\u066d\u06d4\u0964\u0965\u0e4f\u0e5a\u0e5b\u2000-\u200b"
    r"\u200e-\u206f\u20a0-\u20bf\u2190-\u245f\u2500-\u2775\u2794-\u2bff\u2e00-\u2e7f\u3000-\u3004\u3008-\u3020\u3030\u303d-\u303f\u30fb"
    r"\ud800-\udfff\ufd3e\ufd3f\ufe00-\ufe1f\ufe30-\ufe6f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
    r"\ufff0-\uffff\U0001f000-\U0001faff"
)
_WORD = f"[^{_BETWEEN}]+"
_QUERY = late(
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
        for term in (_lowered(phrase.strip()),) if phrase else _word_terms(match[3]):
            terms.setdefault(term)
        if len(terms) >= MAX_TERMS:
            break
    return tuple(terms)[:MAX_TERMS]


def _lowered(word: str) -> str:
    """Lower-case the letters of Latin, Greek, Cyrillic and Armenian one by one, as FTS5 does.

    `casefold` turns ß into ss and `lower` knows scripts (Cherokee) that FTS5 does not fold: the index has neither.
    """
    return (
        word.lower() if word.isascii() else _CASED.sub(lambda m: low if len(low := m[0].lower()) == 1 else m[0], word)
    )


_CASED = late("[A-Z\u00c0-\u037e\u0380-\u0527\u0531-\u0556\u1e00-\u1fff]")


def _word_terms(word: str) -> Iterator[str]:
    """Yield one word, or its parts when it holds a script without spaces."""
    if word.isascii() or not _ANY.search(word):
        yield _lowered(word)
        return
    narrow = _WIDE_RUN.sub(lambda m: unicodedata.normalize("NFKC", m[0]), word)
    at = 0
    for run in _RUN.finditer(narrow):
        yield from (_lowered(m[0]) for m in re.finditer(_WORD, narrow[at : run.start()]))
        yield from _bigrams(run[0])
        at = run.end()
    yield from (_lowered(m[0]) for m in re.finditer(_WORD, narrow[at:]))


def fts_quote(term: str) -> str:
    """Return a term as an FTS5 string: quotes doubled, NUL and lone surrogates gone, bigrams as in the index.

    >>> fts_quote('say "hi" NOT')
    '"say ""hi"" NOT"'
    """
    clean = _spaced(term).replace("\0", " ").replace('"', '""')
    if not clean.isascii():
        clean = clean.encode("utf-8", "ignore").decode()
    return f'"{clean.strip()}"'


def _words(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


STOPWORDS: frozenset[str] = _words(
    "a about an and any are as at be been but by can could did do does for from had has have he her him his how i "
    "if in is it its me my of on or our she should so than that the their them then there these they this those to "
    "us was we were what when where which who whom whose why will with would you your"
)


def without_stopwords(terms: Iterable[str]) -> tuple[str, ...]:
    """Return the terms that carry meaning; all of them when none does ("who are you")."""
    every = tuple(terms)
    return tuple(t for t in every if t not in STOPWORDS) or every


# ------------------------------------------------------------------------------------------------------ excerpts

_UNSAFE = late(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and cursor moves
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links, device strings
    r"|\x1b[ -/]*[0-~]?|\x9b[0-?]*[ -/]*[@-~]?"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
_SUSPECT = late("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_HALF = late("[\ud800-\udfff]")
ELLIPSIS = "…"


def printable(text: str) -> str:
    """Return text that is safe on a terminal: no control, escape or bidi override character but newline and tab."""
    return _UNSAFE.sub("", _HALF.sub("\ufffd", text)) if _SUSPECT.search(text) else text


def one_line(text: str, n_chars: int) -> str:
    """Return at most `n_chars` of a text on one line, safe on a terminal.

    >>> one_line("a\\n\\tb \\x1b[31mred", 80)
    'a b red'
    """
    head = text[: 4 * n_chars + 256] if len(text) > 8 * n_chars + 512 else text
    return clip(" ".join(printable(head).split()), n_chars)


def clip(text: str, n_chars: int) -> str:
    """Return the text, or its beginning and an ellipsis: never more than `n_chars` characters.

    >>> clip("memory", 4)
    'mem…'
    """
    if len(text) <= n_chars:
        return text
    if n_chars < 1:
        return ""
    return text[: _border_before(text, n_chars - 1, -1)].rstrip() + ELLIPSIS


def snippet(text: str, terms: Sequence[str], n_chars: int = 240) -> tuple[str, tuple[Span, ...]]:
    """Return the window of a text with most of the terms, on one line, and the spans in it to highlight.

    Words match by their stem: the first max(4, length - 3) letters; shorter ones and bigrams match as they are.
    Without a match it is the beginning.
    """
    expression = _highlighter(terms)
    if expression is None:
        return one_line(text, n_chars), ()
    start, end = _densest(text, expression, n_chars)
    lead = ELLIPSIS if start > 0 else ""
    window = lead + one_line(text[start:end], n_chars - len(lead))
    if end < len(text) and not window.endswith(ELLIPSIS):
        window = clip(window + " " * n_chars, n_chars)
    return window, tuple(m.span() for m in expression.finditer(window))


def _highlighter(terms: Sequence[str]) -> re.Pattern[str] | None:
    """Return one expression that finds any of the terms, the longest first."""
    patterns = {p for term in terms[:MAX_TERMS] if (p := _term_pattern(term))}
    return re.compile("|".join(sorted(patterns, key=lambda p: (-len(p), p))), re.IGNORECASE) if patterns else None


def _term_pattern(term: str) -> str:
    words = re.findall(_WORD, term)
    if not words:
        return ""
    if _ANY.search(term):
        return re.escape(term.strip())
    heads = [re.escape(w) for w in words[:-1]]
    last = words[-1]
    stem = re.escape(last) + r"\b" if len(last) < 4 else re.escape(last[: max(4, len(last) - 3)]) + r"\w*"
    return r"\b" + r"\W+".join((*heads, stem))


def _densest(text: str, expression: re.Pattern[str], n_chars: int) -> Span:
    """Return the window that holds the most different matches, then the most matches, then the earliest."""
    hits = [(m.start(), m.end(), m[0].lower()[:4]) for m in islice(expression.finditer(text), MAX_HITS)]
    best, first = (0, 0), 0
    place = (0, 0)
    for last, (_, end, _) in enumerate(hits):
        while end - hits[first][0] > n_chars and first < last:
            first += 1
        score = (len({h[2] for h in hits[first : last + 1]}), last - first + 1)
        if score > best:
            best, place = score, (hits[first][0], end)
    return _window(text, place, n_chars)


def _window(text: str, place: Span, n_chars: int) -> Span:
    """Return `n_chars` of text around a place, from the start of a word."""
    room = max(0, n_chars - (place[1] - place[0]))
    start = max(0, min(place[0] - room // 3, len(text) - n_chars))
    if start:
        space = _SPACE.search(text, start, place[0])
        start = space.end() if space else _border_before(text, min(start, place[0]), -1)
    return start, min(len(text), start + n_chars)


# -------------------------------------------------------------------------------------------------------- names

_CAPITAL = "A-ZÀ-ÖØ-ÞĀ-ž"  # the last range holds small letters too; `_single` looks again
_REST = r"(?:[\w’']|[-&](?=\w)|\.(?=(?:js|io|ai|py|rs|md)\b))*+"
_LINK = r"(?:(?:of|de|del|della|du|di|da|le|la|bin|al|ten|ter|&|(?:van|von)(?:\ de[rn]?)?)\ (?:(?:the|la|los)\ )?)?"
_MENTION = late(  # one class of first letters, so that the search skips to them
    rf"[{_CAPITAL}`@#:](?:"
    rf"(?<=\w[{_CAPITAL}])(?P<hump>\w*+)"
    rf"|(?<=[{_CAPITAL}])(?P<name>{_REST}(?:\ {_LINK}[{_CAPITAL}]{_REST}){{0,4}})"
    r"|(?<=`)(?P<ticked>[^`\s]{2,64})`"
    r"|(?<=@)(?P<handle>[\w-][\w./-]{0,63})"
    r"|(?<![\w&/]\#)(?<=\#)(?P<issue>\d{1,7})\b"
    r"|(?<=:)//(?:[^\s/@\"'<>]{0,128}@)?(?P<host>[\w-]{1,63}(?:\.[\w-]{1,63}){1,8})"
    r")"
)
_IDENTIFIER = late(r"[^\W\d]\w*[a-z0-9][A-Z]\w*|[a-z][A-Z]\w+|[A-Z][A-Z0-9]*_\w+|[A-Z]{2,}[a-z]\w+")
_TICKET = late(r"[A-Z][A-Z0-9]{1,9}-\d{1,7}")
_TICKED = late(r"[\w@./:#-]*[^\W\d_][\w@./:#-]*")
_POSSESSIVE = late(r"['’]s?$")
_GERMAN = (" der ", " die ", " das ", " und ", " nicht ", " ist ")
_NO_TICKETS = frozenset(("UTF", "SHA", "ISO", "RFC", "UTC", "GMT", "CVE", "BASE", "AES", "MD", "HTTP", "COVID"))
_NO_HANDLES = _words(
    "param params return returns throws type types see deprecated override media import property dataclass "
    "staticmethod classmethod pytest app latest example ts-ignore ts-expect-error"
)
_OPENERS = STOPWORDS | _words(  # words that open a sentence and are capitalised for that reason alone
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
_DATES = _words(
    "monday tuesday wednesday thursday friday saturday sunday mon tue wed thu fri sat sun january february march "
    "april may june july august september october november december jan feb mar apr jun jul aug sep sept oct nov "
    "dec am pm montag dienstag mittwoch donnerstag freitag samstag sonntag januar februar märz mai juni juli "
    "oktober dezember utc gmt"
)
_SHORTENED = _words(
    "i'm i'll i've i'd it's that's what's there's here's let's you're you've you'll we're we've we'll they're don't "
    "can't won't didn't doesn't isn't aren't wasn't couldn't wouldn't he's she's who's how's where's"
)
_NOT_NAMES = _OPENERS | _DATES | _SHORTENED | {word.replace("'", "’") for word in _SHORTENED}


def entities(text: str) -> tuple[str, ...]:
    """Return the named things that a text mentions, in order, once each, at most 32.

    By rules: names of several capitalised words, capitalised words inside a sentence (or repeated, when the text
    never writes them small), CamelCase and CAPS_WITH_UNDERSCORE identifiers, `backticked` names, @handles, e-mail
    addresses, hosts of URLs, issue references. In German, where every noun has a capital, single words count when
    repeated. Weekdays, months, versions and words that merely open a sentence are left out.

    >>> entities("Yesterday Ada Lovelace asked Grace about ABC-42 in `src/app.py`.")
    ('Ada Lovelace', 'Grace', 'ABC-42', 'src/app.py')
    """
    n_seen: dict[str, int] = {}  # in order of appearance; NAMED or more for what is certainly a name
    n_named = 0
    single = 1 if sum(word in text[:2000] for word in _GERMAN) > 1 else NAMED
    for match in _MENTION.finditer(text):
        word = match[0]
        if word.lower() in _NOT_NAMES:  # "The", "It": half the matches in prose
            continue
        is_plain = word.isalpha() and word[1:].islower() and match.lastgroup == "name"  # nearly all others
        plain = ((word, single if is_plain and _is_inside(text, match.start()) else 1),)
        for name, weight in plain if is_plain else _named_by(text, match, single):
            before = n_seen.get(name, 0)
            n_seen[name] = before + weight
            n_named += before < NAMED <= before + weight
        if n_named >= MAX_ENTITIES:
            break
    head = text[:20_000]
    kept = (n for n, seen in n_seen.items() if seen >= NAMED or (seen > 1 and f" {n.lower()} " not in head))
    return tuple(kept)[:MAX_ENTITIES]


def _named_by(text: str, match: re.Match[str], single: int) -> Iterator[tuple[str, int]]:
    """Yield the names in one match with the weight of this sighting."""
    kind, start = match.lastgroup, match.start()
    if kind == "name":
        yield from _capitalised(text, match, single)
    elif kind == "hump":
        word = _before(text, start, _ALNUM + "_") + match[0]
        if len(word) <= 64 and _IDENTIFIER.fullmatch(word):
            yield word, NAMED
    elif kind == "ticked":
        name = match["ticked"].removesuffix("()")
        if name[0] not in "-$" and _TICKED.fullmatch(name):
            yield name, NAMED
    elif kind == "handle":
        yield from _handle(text, start, match["handle"].rstrip("./-"), match.end())
    elif kind == "issue":
        yield "#" + match["issue"], NAMED
    elif kind == "host" and not match["host"].replace(".", "").isdigit():
        yield match["host"].lower().removeprefix("www."), NAMED


def _handle(text: str, at: int, name: str, end: int) -> Iterator[tuple[str, int]]:
    """Yield the e-mail address or the handle around the @ at `at`; decorators are neither."""
    local = _before(text, at, _ALNUM + "_.+-")
    if local:
        if "." in name:
            yield f"{local}@{name}", NAMED
    elif name and name.lower() not in _NO_HANDLES and not name[0].isdigit() and text[end : end + 1] != "(":
        yield "@" + name, NAMED


def _capitalised(text: str, match: re.Match[str], single: int) -> Iterator[tuple[str, int]]:
    """Yield what a run of capitalised words names: an identifier, a ticket, a name, or nothing."""
    words, start = match[0].split(" "), match.start()
    inside = _is_inside(text, start)
    while words and words[0].lower() in (STOPWORDS if inside and len(words) > 1 else _OPENERS):
        words, inside = words[1:], True
    while words and (words[-1].lower() in STOPWORDS or not words[-1][:1].isupper()):
        words = words[:-1]
    if len(words) > 1 and not any("_" in w or w.isupper() for w in words):
        yield _POSSESSIVE.sub("", " ".join(words)), 1 if _in_heading(text, start) else NAMED
        return
    for word in () if match[0].isupper() and match[0].count(" ") > 1 else words:  # "DO NOT EDIT THIS"
        yield from _single(_POSSESSIVE.sub("", word), single if inside else 1)


def _is_inside(text: str, at: int) -> bool:
    """Return whether the word at `at` stands inside a sentence, where a capital means something."""
    before = text[max(0, at - 2) : at]
    return before[1:] == " " and (before[0].isalnum() or before[0] in ",)'’\"”")


def _single(word: str, weight: int) -> Iterator[tuple[str, int]]:
    """Yield one capitalised word if it can be a name."""
    if _TICKET.fullmatch(word):
        if word.partition("-")[0] not in _NO_TICKETS:
            yield word, NAMED
    elif _IDENTIFIER.fullmatch(word):
        yield word, NAMED
    elif len(word) > 1 and word[0].isupper() and word.lower() not in _NOT_NAMES and not word[1:].isdigit():
        yield word, weight


def _in_heading(text: str, at: int) -> bool:
    """Return whether the line of `at` is a Markdown heading, where every word may have a capital."""
    return text.startswith("#", text.rfind("\n", max(0, at - 80), at) + 1)


# ------------------------------------------------------------------------------------------------------ identity


def normalised(text: str) -> str:
    """Return the form whose keyed hash a tombstone stores: NFKC, case-folded, whitespace collapsed.

    >>> normalised("  Ｈello\\n\\tWORLD ")
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
_TOKENS_PER_WORD = 0.53  # and what each word costs beside its characters


def tokens(text: str) -> int:
    """Return about how many tokens a model counts in a text.

    Weights for classes of characters and for words, against o200k (docs/evaluation/tokens.md): mean error of a page
    5 % in documentation and code, 3 to 12 % in English chats, 3 % in Chinese, 14 % in 22 other languages. Other models
    differ by more than that among themselves.
    """
    raw = text.encode("utf-8", "surrogatepass")
    n = sum(w * (len(raw) - len(raw.translate(None, kind))) for kind, w in _TOKENS_PER)
    return math.ceil(n + _TOKENS_PER_WORD * len(raw.split()))
