"""Decide from the headers of a mail whether it is answered, and who its sender is. Pure.

A header is what anybody could write. The address counts only as the receiving server confirms it: by the topmost
Authentication-Results header (RFC 8601) that carries that server's name. Programs that write mail by themselves get no
answer (RFC 3834), so that two of them cannot talk for ever.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from email.header import decode_header
from typing import NamedTuple

from perdure.surfaces.mail.charsets import decode_text

MAX_HEADER_BYTES = 256_000  # of all headers together; a mail with more is not read
_MAX_VALUE_CHARS = 20_000  # of one header; References of a long thread is the longest
_MAX_FROM_CHARS = 1_000
_MAX_IDS = 50  # ids of a References header that count: the last ones
_ADDRESS = r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*"
_FROM = re.compile(rf'\s*(?:(?:"(?:[^"\\]|\\.)*"|[^"<>,;\\])*<({_ADDRESS})>|({_ADDRESS}))\s*')
_ID = re.compile(r"<[\x21-\x3b\x3d\x3f-\x7e]{1,250}>")
_PROGRAMS = re.compile(r"(?i)(?:mailer-daemon|postmaster|no-?reply|do-?not-?reply|bounces?(?:[+-].*)?)@.*")
_TOKEN = re.compile(r'\\.|[()";]|[^\\()";]+', re.DOTALL)  # of Authentication-Results

Headers = Mapping[str, list[str]]  # name in small letters → values, top first, unfolded


class SenderVerdict(NamedTuple):
    """What the headers say about a mail."""

    address: str  # of the allow list; "" if the mail is not answered
    is_authenticated: bool = False  # the receiving server confirms the address
    problem: str = ""  # why it is not answered: one of a few words, never text of the mail


class SenderRules(NamedTuple):
    """Who gets answers."""

    own_address: str
    senders: Collection[str]  # the allow list, normalised
    authserv_id: str  # name of the receiving server in its Authentication-Results; "" if it writes none
    allows_unauthenticated: bool


def read_headers(raw: bytes) -> Headers | None:
    """Return the headers of a mail; None if they do not end within MAX_HEADER_BYTES, so that they are no headers.

    >>> read_headers(b"Subject: a\\r\\n b\\r\\nsubject: c\\r\\n\\r\\nbody: x")
    {'subject': ['a b', 'c']}
    """
    head, end, _ = raw[:MAX_HEADER_BYTES].replace(b"\r\n", b"\n").partition(b"\n\n")
    if not end and len(raw) >= MAX_HEADER_BYTES:
        return None
    values: dict[str, list[str]] = {}
    last: list[str] | None = None
    for line in head.decode("utf-8", "replace").replace("\r", " ").split("\n"):
        if line[:1] in (" ", "\t"):
            if last is not None and len(last[-1]) < _MAX_VALUE_CHARS:
                last[-1] = f"{last[-1]} {line.strip()}"
            continue
        name, colon, value = line.partition(":")
        if colon and name and name.isascii():
            last = values.setdefault(name.strip().lower(), [])
            last.append(value.strip())
    return values


def judge_sender(headers: Headers, rules: SenderRules) -> SenderVerdict:
    """Return whether a mail is answered, and to which address."""
    address = read_address(headers.get("from", []))
    if not address:
        return SenderVerdict("", problem="no single sender")
    if address == normalise_address(rules.own_address):
        return SenderVerdict("", problem="its own mail")
    if is_automatic(headers) or _PROGRAMS.fullmatch(address):
        return SenderVerdict("", problem="sent by a program")
    if address not in rules.senders:
        return SenderVerdict("", problem="not on the list")
    result = check_authentication(headers, address.partition("@")[2], rules.authserv_id)
    if result is False or (result is None and not rules.allows_unauthenticated):
        return SenderVerdict("", problem="not authenticated")
    return SenderVerdict(address, is_authenticated=result is True)


def read_address(values: list[str]) -> str:
    """Return the address of the only From header, in small letters; "" for several, none, or one of another form.

    Only the address in its brackets counts, and only ASCII: a name that looks like an address is none, and no letter of
    another alphabet equals one of this.

    >>> read_address(['"ada@example.org" <Eve@Evil.example>']), read_address(["a@b.c, d@e.f"])
    ('eve@evil.example', '')
    """
    if len(values) != 1 or len(values[0]) > _MAX_FROM_CHARS:
        return ""
    match = _FROM.fullmatch(values[0])
    return (match[1] or match[2]).lower() if match else ""


def normalise_address(address: str) -> str:
    """Return an address of the settings as one in a mail is read: small letters, its domain in ASCII; "" for none.

    >>> normalise_address("Ada@Bücher.example")
    'ada@xn--bcher-kva.example'
    """
    name, at, domain = address.strip().partition("@")
    try:
        return read_address([f"{name}{at}{domain.encode('idna').decode()}"])
    except UnicodeError:
        return ""


def is_automatic(headers: Headers) -> bool:
    """Return True for what a program or a list sends: an answer to it could begin a loop, or reach many."""

    def words(name: str) -> str:
        return " ".join(headers.get(name, [])).lower()

    submitted = words("auto-submitted")
    return (
        (submitted != "" and submitted.partition(";")[0].strip() != "no")
        or any(word in words("precedence") for word in ("bulk", "junk", "list", "auto_reply"))
        or any(name in headers for name in ("list-id", "list-post", "list-unsubscribe", "x-autoreply", "x-loop"))
        or any(word in words("x-auto-response-suppress") for word in ("all", "autoreply"))
        or words("return-path") == "<>"
        or "multipart/report" in words("content-type")
    )


def check_authentication(headers: Headers, domain: str, authserv_id: str) -> bool | None:
    """Return what the receiving server says about a domain: True, it is proven; False, it is not; None, nothing.

    Only the topmost header with that server's name counts: it puts its own on top of what came. DMARC decides where it
    is named; else DKIM or SPF of the same domain.
    """
    for value in headers.get("authentication-results", []) if authserv_id else ():
        name, *results = _split_results(value) or [""]
        if name.split()[:1] == [authserv_id.lower()]:
            return _read_results(results, domain)
    return None


def _split_results(value: str) -> list[str]:
    """Return what stands between the semicolons of a header, without comments and quoted words, in small letters.

    Both may hold what the sender chose, such as the name in an address, so nothing in them is a result. Returns nothing
    where one of them does not end.

    >>> _split_results('mx (a; b); spf=pass smtp.mailfrom="x; dmarc=pass"@Evil.example')
    ['mx ', ' spf=pass smtp.mailfrom=@evil.example']
    """
    parts, n_open, is_quoted = [""], 0, False
    for token in _TOKEN.findall(value.lower()):
        if token == '"' and not n_open:
            is_quoted = not is_quoted
        elif token in ("(", ")") and not is_quoted:
            n_open = max(0, n_open + (1 if token == "(" else -1))
        elif token == ";" and not (n_open or is_quoted):
            parts.append("")
        elif not (n_open or is_quoted):
            parts[-1] += token
    return [] if n_open or is_quoted else parts


def _read_results(results: Iterable[str], domain: str) -> bool | None:
    verdict: bool | None = None
    dmarc: list[bool] = []
    for result in results:
        method, *properties = result.split() or [""]
        about = dict(pair.split("=", 1) for pair in properties if "=" in pair)
        if method.startswith("dmarc="):
            dmarc.append(method == "dmarc=pass" and about.get("header.from", "") == domain)
        is_own = {
            "dkim=pass": domain in (about.get("header.d"), about.get("header.i", "").rpartition("@")[2]),
            "spf=pass": about.get("smtp.mailfrom", "").rpartition("@")[2] == domain,
        }.get(method, False)
        verdict = bool(verdict) or is_own
    return all(dmarc) if dmarc else verdict


def list_ids(values: Iterable[str]) -> list[str]:
    """Return the message ids of headers, the last of many; whatever else stands there is left out.

    >>> list_ids(["<a@b> junk <c@d>\\r\\nBcc: x"])
    ['<a@b>', '<c@d>']
    """
    ids = [match for value in values for match in _ID.findall(value[:_MAX_VALUE_CHARS])]
    return list(dict.fromkeys(ids))[-_MAX_IDS:]


def read_words(value: str) -> str:
    """Return a header for people: encoded words decoded, on one line."""
    try:
        pieces = decode_header(value[:_MAX_FROM_CHARS])
    except (ValueError, LookupError):
        return value[:_MAX_FROM_CHARS]
    words = "".join(
        piece if isinstance(piece, str) else decode_text(piece, charset or "ascii") for piece, charset in pieces
    )
    return " ".join("".join(char if char.isprintable() else " " for char in words).split())
