"""Find secrets in text and put `[secret:<kind>]` in their place. Pure, standard library only.

Text from a transcript goes through `mask` before it is stored as derived text, sent to a model or shown.
`mask` runs on the whole part, before chunking: a secret that a chunk border cuts in two is recognisable
in neither half. Raw bytes in the archive do not change (design, section 4, rule 10).

Invariants: `mask(mask(x)) == mask(x)`; text without a secret comes back as the same object; time is
linear in the length of the text, for any content. Placeholders (`xxx`, `<your key>`, `$VAR`) are not
secrets.

It is fast because a byte shadow of the text, one byte per character, answers two questions at C speed: is
there a run of letters and digits as long as a key, and is there a name such as `password`? Expressions
run only there. Formats with a prefix are data (`secret_formats`); commands and sentences
are read by `secret_contexts`. Not found: short secrets without a name or a known prefix, and passwords in a sentence
that look like a plain word.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct

from perdure.access.secret_contexts import find_context_secrets
from perdure.access.secret_formats import KEY_HINT, PREFIXED_FORMATS, SHAPED_FORMATS
from perdure.regex import lazy_re


class SecretSpan(Struct, frozen=True):
    """The position of a secret in a text, and its kind."""

    kind: str  # written in the mask: "github", "aws-key-id", "password", …
    start: int  # characters, first of the secret
    end: int  # characters, after its last


MIN_RUN_CHARS = 20  # the shortest key with a known prefix is an AWS key id: AKIA and 16 more
MIN_OPAQUE_CHARS = 32  # below it identifiers and ids look as random as keys
MAX_OPAQUE_CHARS = 200  # above it base64 is data (images, encrypted reasoning), not a key
MIN_ENTROPY_BITS = 4.0  # Shannon, per character; 32 random base62 characters measure 4.2 to 4.9
MIN_CHANGES = 0.36  # share of neighbours of different class; random base62 has 0.62, camelCase below 0.3
MAX_LETTERS = 0.4  # share of the word in runs of three small letters or more; 0.16 in base62, 0.6 in camelCase
MAX_ROUNDS = 8  # a mask can free a border that makes its neighbour recognisable; two rounds settle real text

# ------------------------------------------------------------------------------------------------- what to find

_RUN, _INSIDE, _GAP = "a", ".", " "  # classes of the shadow: part of a key; part of a word; between words


def _classify_char(char: str) -> str:
    """Return the class of a character in the shadow."""
    if char.isalnum() or char in "_+-":
        return _RUN
    return _INSIDE if char in "/.:=@&?%~#" else _GAP


_CLASSES = "".join(_classify_char(chr(code)) for code in range(128)).encode() + _GAP.encode() * 128
_LONG_RUN = _RUN * MIN_RUN_CHARS

# Runs that cannot be keys unless they have a known prefix: without a digit, or hexadecimal (hashes, UUIDs).
# Matches the whole run or nothing.
_NO_KEY = lazy_re(r"[A-Za-z_+-]++(?![0-9])|[0-9a-f-]++(?![A-Zg-z_+])")
_PREFIX_CHARS = 64  # a prefix may stand so far before the run: `hooks.slack.com/services/`


def _compile_shapes(shapes: Sequence[tuple[str, str]]) -> re.Pattern[str]:
    """Compile the shapes into one expression whose group names are the kinds, each with its number."""
    alternatives = "|".join(f"(?P<{kind.replace('-', '_')}_{n}>{shape})" for n, (kind, shape) in enumerate(shapes))
    return lazy_re(rf"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))(?:{alternatives})")  # `risk-…` is no `sk-…`, but `\nsk-…` is


_PREFIXED_KEY = _compile_shapes([(kind, shape) for kind, _, shape in PREFIXED_FORMATS])
_SHAPED_KEY = _compile_shapes(SHAPED_FORMATS)
_OPAQUE = lazy_re(r"[A-Za-z0-9+/_-]{32,}+={0,2}+")  # in NAME=VALUE, the name is no part of it
_LETTERS = lazy_re(r"[a-z]{3,}+")
_PIECES = lazy_re(r"[-_/=+]+")
_PLAIN_PIECE = lazy_re(r"[A-Z]?[a-z]{4,}|[A-Z]{5,}|[0-9]{4,}|[0-9a-fA-F]{12,}")
_PUBLIC = lazy_re(  # random, and no secret: integrity hashes, ids of APIs, public keys, content addresses
    r"sha\d{3}[-:]|h1:|base64,|(?:srv)?toolu_|(?:msg|req|call|resp|rs|fc|run|file|thread|asst|gen)_|chatcmpl-"
    r"|AAAA[A-E]3Nza|Qm[1-9A-HJ-NP-Za-km-z]{44}|0x[0-9a-fA-F]{40}"
)

_BEARER = lazy_re(r"authorization\\*[\"']?\s{0,3}[:=]\s{0,3}\\*[\"']?(?:basic|bearer|token)\s{1,3}", re.IGNORECASE)
_CREDENTIAL = lazy_re(r"[A-Za-z0-9_.~+/=-]{8,}+")
_WORDS = lazy_re(r"[a-z_-]++|[A-Z_-]++")  # `valid_token` is the word of a test
_URL_PASSWORD = lazy_re(r"://[^\s/:@\"'`<>\\]{0,64}:([^\s/@\"'`<>\\]{1,128})@")
_PEM_BEGIN = lazy_re(r"-----BEGIN [A-Z ]{0,24}PRIVATE KEY(?: BLOCK)?-----")
_PEM_END = lazy_re(r"-----END [A-Z ]{0,24}PRIVATE KEY(?: BLOCK)?-----")
_PEM_BODY = lazy_re(r"(?:[A-Za-z0-9+/=\s\\:,.\"'→|>]|-(?!-)){40,16384}+")  # JSON or line numbers may surround it
_PEM_LINES = lazy_re(r"(?:[\s\\\"'→|>nr0-9]{0,24}[A-Za-z0-9+/=]{24,}+)+")
_MASK = lazy_re(r"\[secret:[a-z-]+\]")

_NAMES = {  # lower-case beginning of a name -> the kind of the assigned value
    "pass": "password",
    "pwd": "password",
    "secret": "secret",
    "credential": "secret",
    "token": "token",
    "key": "api-key",
}
MAX_VALUE_CHARS = 512  # of an assigned value
_ASSIGNED = lazy_re(
    r"(?P<rest>[A-Za-z0-9_-]{0,24}+)\\{0,31}+[\"'`]?\]?\s{0,3}(?::=|=>|[:=])\s{0,3}(?P<list>\[(?!secret:)\s{0,3})?"
    r"(?:(?P<quote>\\{0,31}+[\"'`])|(?P<bare>[^\s\"'`\\,;<>(){}\[\]|&]{6,512}+)(?![(\[{]))"
)
_FLAG = lazy_re(r"(?<![\w-])--?[A-Za-z0-9_-]{0,24}\Z")  # the part before the name in `--db-password`
_FLAGGED = lazy_re(
    r"(?P<rest>[A-Za-z0-9_-]{0,24}+)(?:(?:\\{0,31}+[\"'`])?\s{0,3},\s{0,16}|\s{1,3})"
    r"(?:(?P<quote>\\{0,31}+[\"'`])|(?P<bare>[^\s\"'`\\,;<>(){}\[\]|&-][^\s\"'`\\,;<>(){}\[\]|&]{5,511}+)(?![(\[{]))"
)
_QUOTED = lazy_re(r"[^\s\"'`\\]{4,512}+(?=\\{0,31}[\"'`])")
_PROSE = lazy_re(  # words with spaces that are no passphrase: code, and text about passwords
    r"\s|.*(?:\s$|[={}<>;\n]|\\[nrtu]|\b(?:must|should|least|most|characters|required|enter|invalid|please|cannot)\b)",
    re.IGNORECASE | re.DOTALL,
)
_NAME_REST_SHAPE = (
    r"(?:wo?r?d|phrase)?s?(?:[_-]?(?:key|token|value|secret|access[_-]?key|key[_-]?base|prod|production|dev|staging"
    r"|test|live|\d{1,3}))?"
)
_NAME_REST = lazy_re(_NAME_REST_SHAPE, re.IGNORECASE)
_KEY_BEFORE = lazy_re(
    r"(?:api|access|private|secret|auth|sign(?:ing)?|encryption|client|account|storage|master|service|ssh|app|license"
    r"|webhook|deploy|shared)[_ -]?$",
    re.IGNORECASE,
)
MAX_NAME_CHARS = 128
_SECRET_NAME = lazy_re(rf"(?:{'|'.join(_NAMES)}){_NAME_REST_SHAPE}\Z", re.IGNORECASE)
_OTHER_PASS = lazy_re(r"[a-z]pass\Z")  # a compass, a bypass
_PLACEHOLDER = lazy_re(
    r"\[secret:|[$%<{(\[]|(?:none|null|nil|true|false|undefined|str|string|bytes|optional|any|pwd|secret|token|osc\d+)$"
    r"|[a-z_-]*pass(?:word|wd)[a-z_-]*$"
    r"|(?:process|os|import|env|self|this|config|settings)\.",
    re.IGNORECASE,
)
_PLACEHOLDER_PARTS = tuple(
    "xxx ** ... … ____ ${ example your placeholder redacted dummy changeme change-me change_me".split()
)
_FILLER_WORDS = ("your", "YOUR", "example", "EXAMPLE", "placeholder", "redacted", "dummy")  # of a key without a digit
_TAG = lazy_re("<[a-z]", re.IGNORECASE)
_DIGIT = lazy_re(r"\d")
_BLANK = lazy_re(r"\s")
_CODE = lazy_re(r"[A-Za-z_$][\w$]*(?:(?:\.|::|->)[A-Za-z_$][\w$]*)+$|[~.]{0,2}/[\w.-]+/|[A-Z][a-z]+$")

# --------------------------------------------------------------------------------------------------- the answers


def mask(text: str) -> str:
    """Return the text with every secret replaced by `[secret:<kind>]`; the same object when there is none.

    >>> mask("db: postgres://ada:tr0ub4dor@host/x")
    'db: postgres://ada:[secret:password]@host/x'
    """
    for _ in range(MAX_ROUNDS):
        secrets = find_secrets(text)
        if not secrets:
            break
        pieces: list[str] = []
        offset = 0
        for secret in secrets:
            pieces += (text[offset : secret.start], f"[secret:{secret.kind}]")
            offset = secret.end
        text = "".join((*pieces, text[offset:]))
    return text


def find_secrets(text: str) -> tuple[SecretSpan, ...]:
    """Return the secrets of a text in order, none overlapping another."""
    shadow = text.encode("ascii", "replace")  # one byte per character, so its offsets are the text's own
    classes = shadow.translate(_CLASSES).decode("ascii")
    secrets = _search_words(text, classes) if _LONG_RUN in classes else []
    lower = shadow.lower().decode("ascii")
    for name in _NAMES:
        if name in lower:
            secrets += _find_assigned(text, lower, name)
    if "authorization" in lower:
        secrets += _find_authorization(text, lower)
    secrets += (SecretSpan(*secret) for secret in find_context_secrets(text, lower))
    if "@" in text and "://" in text:
        secrets += _find_url_passwords(text)
    if "PRIVATE KEY" in text:
        secrets += _find_key_blocks(text)
    return _settle_overlaps(text, secrets) if secrets else ()


@lru_cache(maxsize=4096)  # the fields of a format are few
def classify_name(name: str) -> str | None:
    """Return the kind of secret that a name says its value is; None for every other name.

    >>> classify_name("--db-password"), classify_name("token_type")
    ('password', None)
    """
    end = name[-MAX_NAME_CHARS:]
    match = _SECRET_NAME.search(end)
    if match is None or _OTHER_PASS.search(end):
        return None
    base = next(filter(match[0].lower().startswith, _NAMES))
    return None if base == "key" and not _KEY_BEFORE.search(end, 0, match.start()) else _NAMES[base]


def count_secrets(text: str) -> int:
    """Return how many secrets a text holds."""
    return len(find_secrets(text))


def _settle_overlaps(text: str, secrets: list[SecretSpan]) -> tuple[SecretSpan, ...]:
    """Return the secrets in order without overlaps (the earlier, then the longer wins), none inside a mask."""
    masks = [m.span() for m in _MASK.finditer(text)] if "[secret:" in text else []
    settled: list[SecretSpan] = []
    n_passed = 0
    for secret in sorted(secrets, key=lambda s: (s.start, -s.end)):
        while n_passed < len(masks) and masks[n_passed][1] <= secret.start:
            n_passed += 1
        in_mask = n_passed < len(masks) and masks[n_passed][0] < secret.end
        if not in_mask and (not settled or settled[-1].end <= secret.start):
            settled.append(secret)
    return tuple(settled)


# ------------------------------------------------------------------------------------- known by how they look


def _search_words(text: str, classes: str) -> list[SecretSpan]:
    """Return secrets known by prefix, header or randomness. Each word that holds a long run is checked once."""
    secrets: list[SecretSpan] = []
    offset = min_start = 0
    while (offset := classes.find(_LONG_RUN, offset)) >= 0:
        no_key = _NO_KEY.match(text, offset)
        if no_key and not _has_prefix(text[max(min_start, offset - _PREFIX_CHARS) : no_key.end()]):
            offset = no_key.end()
            continue
        start = max(classes.rfind(_GAP, min_start, offset) + 1, min_start)
        end = classes.find(_GAP, offset)
        min_start = offset = len(text) if end < 0 else end
        secrets += _search_one_word(text, start, offset)
    return secrets


def _search_one_word(text: str, start: int, end: int) -> list[SecretSpan]:
    """Return the secrets of one word: by known prefixes, else the word after `Bearer`, else random words."""
    word = text[start:end]
    secrets = _match_shapes(text, start, end, _PREFIXED_KEY) if _has_prefix(word) else []
    if not secrets and (":" in word or word.count(".") > 1):
        secrets = _match_shapes(text, start, end, _SHAPED_KEY)
    if secrets:
        return secrets
    if text[max(0, start - 7) : start].lower() == "bearer ":
        return _read_credential(text, start, "bearer")
    if word.islower():
        return []
    return [
        SecretSpan("high-entropy", m.start(), m.end())
        for m in _OPAQUE.finditer(text, start, end)
        if _is_random(m[0]) and not _is_public(text, m.start(), m.end())
    ]


def _has_prefix(word: str) -> bool:
    """Return True if a word holds the fixed letters of a known format."""
    return KEY_HINT.search(word) is not None


def _match_shapes(text: str, start: int, end: int, shapes: re.Pattern[str]) -> list[SecretSpan]:
    """Return the secrets of one word that have one of the shapes."""
    return [
        SecretSpan(str(m.lastgroup).rpartition("_")[0].replace("_", "-"), m.start(), m.end())
        for m in shapes.finditer(text, start, end)
        if not _is_filler(m[0])
    ]


def _is_filler(key: str) -> bool:
    """Return True if a key was made up rather than generated: `sk-xxxxxxxxxxxxxxxx`, `ghp_0000000000000000`."""
    return len(set(key[-16:])) < 5 or (not _DIGIT.search(key) and any(map(key.__contains__, _FILLER_WORDS)))


def _is_random(word: str) -> bool:
    """Return True if a word of base64 letters is a key rather than a name, a path, a date, a hash or data."""
    if not MIN_OPAQUE_CHARS <= len(word) <= MAX_OPAQUE_CHARS:
        return False
    if any(_PLAIN_PIECE.fullmatch(piece) for piece in _PIECES.split(word)):
        return False
    if sum(map(len, _LETTERS.findall(word))) > MAX_LETTERS * len(word):
        return False
    classes = ["0" if c.isdigit() else "A" if c.isupper() else "a" if c.islower() else "-" for c in word]
    n_of = Counter(classes)
    if n_of["0"] < 2 or not n_of["A"] or not n_of["a"]:
        return False
    n_changes = sum(a != b for a, b in pairwise(classes))
    return n_changes >= MIN_CHANGES * len(word) and _entropy_bits(word) >= MIN_ENTROPY_BITS


def _entropy_bits(word: str) -> float:
    """Return the Shannon entropy per character: of `aabb` 1.0, of four different letters 2.0."""
    return -sum(n / len(word) * math.log2(n / len(word)) for n in Counter(word).values())


def _is_public(text: str, start: int, end: int) -> bool:
    """Return True if a random word is an integrity hash, an id of an API, or a line of wrapped base64."""
    if _PUBLIC.search(text, max(0, start - 7), end):
        return True
    is_alone = text[max(0, start - 1) : start] in ("", "\n") and text[end : end + 1] in ("", "\n")
    return is_alone and end - start in (64, 76)


# ------------------------------------------------------------------------------------- known by where they stand


class _AssignedValue(NamedTuple):
    """A value that is assigned to a name, and its position."""

    text: str
    start: int
    is_quoted: bool
    needs_digit: bool  # after a flag or in a list, a bare word is too often no secret


def _find_assigned(text: str, lower: str, name: str) -> list[SecretSpan]:
    """Return values assigned to names that contain `name`: `DB_PASSWORD=…`, `"apiKey": "…"`, `\\"token\\": \\"…\\"`."""
    secrets: list[SecretSpan] = []
    offset = lower.find(name)
    while offset >= 0:
        value = _read_assigned_value(text, offset, name)
        if value and _is_secret_value(value, _NAMES[name]):
            secrets.append(SecretSpan(_NAMES[name], value.start, value.start + len(value.text)))
        offset = lower.find(name, offset + len(name))
    return secrets


def _read_assigned_value(text: str, offset: int, name: str) -> _AssignedValue | None:
    """Return the value assigned to the name at `offset`, if the whole name means a credential."""
    match = _ASSIGNED.match(text, offset + len(name))
    is_flag = match is None and _FLAG.search(text, max(0, offset - 26), offset) is not None
    match = _FLAGGED.match(text, offset + len(name)) if is_flag else match
    if match is None or not _is_credential_name(text, offset, name, match):
        return None
    needs_digit = is_flag or match["list"] is not None  # a flag has no list
    if match["bare"]:
        return _AssignedValue(match["bare"], match.start("bare"), False, needs_digit)
    start = match.end("quote")
    end = _find_quoted_end(text, start, match["quote"])
    return _AssignedValue(text[start:end], start, True, needs_digit) if end > start else None


def _find_quoted_end(text: str, start: int, quote: str) -> int:
    """Return the end of a quoted value; `start` if it has none.

    Backslashes before a quote give its depth: in a text that was escaped twice, `\\\\\\"` opens and closes,
    and a quote with more of them belongs to the value.
    """
    depth = len(quote).bit_length() - 1
    limit = min(len(text), start + MAX_VALUE_CHARS + len(quote))
    offset = text.find(quote[-1], start, limit)
    while offset >= 0:
        value = text[start:offset].rstrip("\\")
        n_backslashes = offset - start - len(value)
        if (n_backslashes >> depth) % 2 == 0:
            end = offset - min(n_backslashes, len(quote) - 1)
            if "\n" not in value and (quote[-1] == '"' or '"' not in value):
                return end
            break
        offset = text.find(quote[-1], offset + 1, limit)
    cut = _QUOTED.match(text, start, limit)
    return cut.end() if cut else start


def _is_credential_name(text: str, offset: int, name: str, match: re.Match[str]) -> bool:
    """Return True if the whole name means a credential: `api_key` but not `key`, `token` but not `token_type`."""
    if name == "key" and not _KEY_BEFORE.search(text, max(0, offset - 12), offset):
        return False
    if name == "pass" and not match["rest"] and match["bare"]:  # `DB_PASS=…` and `pass=…`, not `--- PASS: TestA1`
        return text[max(0, offset - 1) : offset] in ("_", "-") or text[match.end("rest")] == "="
    return _NAME_REST.fullmatch(match["rest"]) is not None


def _is_secret_value(value: _AssignedValue, kind: str) -> bool:
    """Return True if an assigned value looks like a credential rather than code, a count or a placeholder."""
    text = value.text
    if len(text) < 4 or _CODE.match(text) or (_is_placeholder(text) and not _is_random(text)):
        return False
    n_digits = len(_DIGIT.findall(text))
    if _BLANK.search(text):
        return kind in ("password", "secret") and n_digits > 0 and len(text) >= 8 and not _PROSE.match(text)
    if kind == "password":
        return n_digits > 0 or (value.is_quoted and not value.needs_digit)
    if len(text) >= MIN_OPAQUE_CHARS and _is_mixed(text):  # with no digit or one, as one AWS secret in a hundred
        return True
    return len(text) >= 8 and 0 < n_digits < len(text) and (value.is_quoted or n_digits > 1)


def _is_mixed(value: str) -> bool:
    """Return True if letters are too irregular for a name: few runs of small letters, few words, high entropy."""
    has_words = any(_PLAIN_PIECE.fullmatch(piece) for piece in _PIECES.split(value))
    n_in_words = sum(map(len, _LETTERS.findall(value)))
    return not has_words and n_in_words <= MAX_LETTERS * len(value) and _entropy_bits(value) >= MIN_ENTROPY_BITS


def _is_placeholder(value: str) -> bool:
    """Return True if a value stands for a secret and is none: `$TOKEN`, `your-key`, `xxxx`."""
    lower = value.lower()
    has_part = any(map(lower.__contains__, _PLACEHOLDER_PARTS)) or _TAG.search(value) is not None
    return has_part or _PLACEHOLDER.match(value) is not None


def _find_authorization(text: str, lower: str) -> list[SecretSpan]:
    """Return credentials of `Authorization: Basic …` and `Bearer …`, which may be short."""
    secrets: list[SecretSpan] = []
    offset = lower.find("authorization")
    while offset >= 0:
        header = _BEARER.match(text, offset)
        if header:
            secrets += _read_credential(text, header.end(), "authorization")
        offset = lower.find("authorization", offset + 13)
    return secrets


def _read_credential(text: str, start: int, kind: str) -> list[SecretSpan]:
    """Return the credential at `start`, unless a placeholder stands there."""
    match = _CREDENTIAL.match(text, start)
    if match is None or _is_placeholder(match[0]) or _WORDS.fullmatch(match[0]):
        return []
    return [SecretSpan(kind, start, match.end())]


def _find_url_passwords(text: str) -> list[SecretSpan]:
    """Return the passwords of `scheme://user:password@host`."""
    return [
        SecretSpan("password", m.start(1), m.end(1))
        for m in _URL_PASSWORD.finditer(text)
        if not m[1].startswith(_URL_PLACEHOLDERS)
    ]


_URL_PLACEHOLDERS = ("$", "{", "%", "*", "[secret:", "xxx", "XXX", "<", "...")


def _find_key_blocks(text: str) -> list[SecretSpan]:
    """Return private key blocks from BEGIN to END; of a block that is cut short, the lines that are left."""
    secrets: list[SecretSpan] = []
    for begin in _PEM_BEGIN.finditer(text):
        body = _PEM_BODY.match(text, begin.end())
        end = _PEM_END.match(text, body.end()) if body else _PEM_LINES.match(text, begin.end())
        end = end or _PEM_LINES.match(text, begin.end())
        if end:
            secrets.append(SecretSpan("private-key", begin.start(), end.end()))
    return secrets
