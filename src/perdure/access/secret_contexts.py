"""Find secrets that only the words around them give away: in commands, in files of logins, in sentences.

`curl -u ada:…`, `mysql -p…`, `machine host login ada password …`, `Cookie: session=…`, "the root password is …" in
the languages that the scanner reads. Pure. Each expression looks at a bounded number of characters, so that time is
linear in the length of the text. In a sentence a value counts only with a digit, or with a sign inside it: "the
password is wrong" says nothing secret, and a password that is a plain word is not found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from perdure.regex import lazy_re

ContextSecret = tuple[str, int, int]  # kind, start and end in characters

_COMMAND_CHARS = 300  # how far before an option its command may stand
_OPTION = lazy_re(
    r"(?<=\s)(?:(?:-u\s{0,2}|--(?:proxy-)?user[ =])[\"']?[^\s:\"'@$<>{}]{1,64}:(?P<basic>[^\s\"'`$<>{}]{3,128})"
    r"|-p\s?[\"']?(?P<ssh>(?<=[\s\"'p])[^\s\"'`$<>{}-][^\s\"'`<>{}]{2,127}))"
)
_HTTP_COMMAND = lazy_re(r"(?:\b|\\n)(?:curl|wget|https?|xh)\s[^\n|;]*\Z")
_DATABASE_COMMAND = lazy_re(r"(?:\b|\\n)(?:mysql|mysqldump|mysqladmin|mariadb|mariadb-dump)\s[^\n|;]*\Z")
_SSHPASS_COMMAND = lazy_re(r"(?:\b|\\n)sshpass\s+\Z")
_NETRC = lazy_re(
    r"\b(?:machine\s{1,8}\S{1,128}|default)\s{1,8}login\s{1,8}\S{1,128}\s{1,8}password\s{1,8}(?P<value>[^\s\"'`<>$]{4,128})"
)
_PGPASS = lazy_re(
    r"(?m)^[\w.*-]{1,128}:(?:5432|6432|\*):[\w.*-]{1,64}:[\w.*-]{1,64}:(?P<value>[^\s:\"'`<>$]{4,128})\s*?$"
)
_DOCKER_AUTH = lazy_re(r"\"auth\\{0,3}\"\s{0,3}:\s{0,3}\\{0,3}\"(?P<value>[A-Za-z0-9+/]{8,512}={0,2})\\{0,3}\"")
_COOKIE_HEADER = lazy_re(r"(?:cookie|cookies)\\{0,3}[\"']?\s{0,2}[:=]\s{0,2}\\{0,3}[\"']?", re.IGNORECASE)
_COOKIE = lazy_re(r"(?P<name>[\w.-]{1,64})=(?P<value>[^;\s\"'\\,]{0,512})(?:;\s{0,2})?")
_SESSION_NAME = lazy_re(r"sess|sid\b|auth|jwt|remember|token", re.IGNORECASE)
_MAX_COOKIES = 32  # of one header

_NOUNS = ("password", "passwort", "passphrase", "passcode", "de passe", "kennwort", "contrase", "senha")  # lower case
_FOREIGN_NOUNS = ("пароль", "Пароль", "ПАРОЛЬ", "密码", "密碼", "口令", "パスワード", "비밀번호")
_SENTENCE = lazy_re(
    r"(?:pass(?:word|wort|phrase|code)|(?:mot\s)?de\spasse|kennwort|contrase(?:ñ|n)a|senha|пароль|密码|密碼|口令|パスワード|비밀번호|pin)"
    r"(?:\s(?:for|of|to|on|at|für|von|am|zum|zur|de|del|do|da|para|pour|du|от|для|к|на)\s[^\n:;,.=]{1,40}?)?"
    r"(?:\s{0,2}(?:(?:是|为|為|は|：)|[:=—–-](?=\s))\s{0,2}"
    r"|\s(?:is|was|ist|war|lautet|est|es|era|é|будет|это)(?:\s(?:now|set\sto|jetzt|maintenant|ahora|теперь))?\s{1,2})"
    r"[\"'`“«„「]?(?P<value>[^\s\"'`”»“」，。；<>$(){}\[\]\\]{4,128}+)(?![(\[{])",
    re.IGNORECASE,
)
_PIN_VALUE = lazy_re(r"\d{4,8}")
_PUNCTUATION_AT_END = ".,;:!?)…"
_HAS_DIGIT = lazy_re(r"\d")
_SIGN_INSIDE = lazy_re(r"\w[!@#$%^&*?+~]+\w")
_LETTER = lazy_re(r"[^\W\d_]")
_NOT_SAID = lazy_re(  # a number with a unit, a path, code, a placeholder
    r"\d+[-–]?[a-z]{1,10}$|\d+-\d+|[~.]{0,2}/|https?:|\w+\(|[\w-]+(?:\.[A-Za-z_][\w-]*)+$|.{0,64}(?:xxx|\*\*|\.\.\.|…|example|your|secret:)"
    r"|(?:utf|sha|md|base|rsa|aes|bcrypt|argon|v)-?\d",
    re.IGNORECASE,
)
_WALLET_KEY = lazy_re(
    r"private\s?key(?:\s(?:is|was)|\s?[:=])?\s{1,2}[\"'`]?(?P<value>(?:0x)?[0-9a-fA-F]{64})(?![0-9a-fA-F])", re.I
)


def find_context_secrets(text: str, lower: str) -> Iterator[ContextSecret]:
    """Yield the secrets of a text that commands, login files, cookies and sentences give away, in no order.

    lower: the text in lower case, of the same length, "?" in place of each character outside ASCII.
    """
    if "curl" in text or "mysql" in text or "mariadb" in text or "sshpass" in text:
        yield from _find_options(text)
    if "5432:" in text or ":*:" in text:
        yield from (("password", *match.span("value")) for match in _PGPASS.finditer(text))
    if "cookie" in lower:
        yield from _find_cookies(text, lower)
    if '"auth' in text:
        yield from (("docker-auth", *match.span("value")) for match in _DOCKER_AUTH.finditer(text))
    if "private" in lower:
        yield from (("private-key", *match.span("value")) for match in _WALLET_KEY.finditer(text))
    if "login" in lower:
        yield from (("password", *match.span("value")) for match in _NETRC.finditer(text))
    for noun in _NOUNS:
        if noun in lower:
            yield from _find_sentences(text, lower, noun, "password")
    for noun in () if text.isascii() else _FOREIGN_NOUNS:
        if noun in text:
            yield from _find_sentences(text, text, noun, "password")
    if "PIN" in text:
        yield from _find_sentences(text, text, "PIN", "pin")


def _find_options(text: str) -> Iterator[ContextSecret]:
    """Yield passwords in options: of `curl -u`, `mysql -p`, `sshpass -p`."""
    for match in _OPTION.finditer(text):
        before = text[max(0, match.start() - _COMMAND_CHARS) : match.start()].rpartition("\n")[2]
        if match["basic"]:
            if _HTTP_COMMAND.search(before):
                yield "password", *match.span("basic")
        elif _SSHPASS_COMMAND.search(before) or (
            match.start("ssh") == match.start() + 2 and _DATABASE_COMMAND.search(before)
        ):
            yield "password", *match.span("ssh")


def _find_cookies(text: str, lower: str) -> Iterator[ContextSecret]:
    """Yield the values of session cookies in `Cookie:` and `Set-Cookie:` headers."""
    offset = lower.find("cookie")
    while offset >= 0:
        header = _COOKIE_HEADER.match(text, offset)
        end = header.end() if header else offset + len("cookie")
        for _ in range(_MAX_COOKIES if header else 0):
            cookie = _COOKIE.match(text, end)
            if cookie is None:
                break
            end = cookie.end()
            value = cookie["value"]
            if len(value) >= 12 and _SESSION_NAME.search(cookie["name"]) and _HAS_DIGIT.search(value):
                yield "cookie", *cookie.span("value")
        offset = lower.find("cookie", end)


def _find_sentences(text: str, searched: str, noun: str, kind: str) -> Iterator[ContextSecret]:
    """Yield the values that sentences give to a noun. searched: the text, or its lower-case form."""
    offset = searched.find(noun)
    while offset >= 0:
        yield from _read_sentence(text, offset, kind)
        offset = searched.find(noun, offset + len(noun))


def _read_sentence(text: str, start: int, kind: str) -> Iterator[ContextSecret]:
    """Yield the value that a sentence gives to the word at `start`."""
    match = _SENTENCE.match(text, start)
    if match is None:
        return
    value = match["value"].rstrip(_PUNCTUATION_AT_END)
    if kind == "pin":
        is_secret = _PIN_VALUE.fullmatch(value) is not None
    else:
        has_digit = _HAS_DIGIT.search(value) is not None
        is_secret = (
            len(value) >= 4
            and (has_digit or _SIGN_INSIDE.search(value) is not None)
            and (_LETTER.search(value) is not None or len(value) >= 6)
            and _NOT_SAID.match(value) is None
        )
    if is_secret:
        # a "!" at the end may be part of the password: it goes too
        kept = match["value"][len(value) :]
        yield kind, match.start("value"), match.start("value") + len(value) + (len(kept) - len(kept.lstrip("!?")))
