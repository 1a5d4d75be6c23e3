"""Requests to servers that strangers may have named: a document of a DID is written by its person.

A request goes over TLS to a public address, which is looked up once and connected to as it is, so that no name leads
into this machine or its network. Hosts of the settings are exempt. No redirect is followed; answers are small and come
in time. Errors name the host alone. Standard library only.
"""

from __future__ import annotations

import ipaddress
import json
import socket
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlencode, urlsplit

from perdure.config import IdentityConfig
from perdure.delivery.http_request import HttpAnswer, make_context, send_request
from perdure.errors import DeliveryFault, DeliveryRefused, IdentityFault, IdentityServerAway

MAX_ANSWER_BYTES = 256 * 1024  # documents of identity servers have a few kilobytes
_MAX_ADDRESSES = 4  # of one host that are tried
_TRANSLATED = (  # addresses that stand for others behind a gateway: they could lead anywhere
    ipaddress.ip_network("64:ff9b::/96"),
    ipaddress.ip_network("64:ff9b:1::/48"),
    ipaddress.ip_network("2002::/16"),
)


class RequestRules(NamedTuple):
    """Which hosts may be asked how."""

    private: tuple[str, ...] = ()  # hosts that may have private addresses and be asked over http://
    ca: str = ""  # path of a certificate authority; default: the system's
    limit_s: float = 10.0
    is_all_private: bool = False  # every host is treated as one of `private`


def make_rules(settings: IdentityConfig) -> RequestRules:
    """Return the rules that the settings of a home make."""
    return RequestRules(settings.private, settings.ca, settings.timeout_s)


def ask_json(
    url: str, rules: RequestRules, *, body: Mapping[str, Any] | None = None, token: str = ""
) -> tuple[int, dict[str, Any]]:
    """Ask for JSON (POST with a body, else GET); return the status and the object, {} if the answer is none.

    token: sent as a bearer token. Raises IdentityFault, IdentityServerAway.
    """
    headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    if body is None:
        raw_body = None
    else:
        raw_body = json.dumps(body).encode()
        headers["Content-Type"] = "application/json"
    return read_json(send_guarded(url, rules, raw_body, headers))


def send_form(
    url: str, rules: RequestRules, fields: Mapping[str, str], headers: Mapping[str, str]
) -> tuple[int, dict[str, Any]]:
    """Send a form; return the status and the object of the answer. Raises IdentityFault, IdentityServerAway."""
    kind = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    return read_json(send_guarded(url, rules, urlencode(fields).encode(), {**kind, **headers}))


def read_json(answer: HttpAnswer) -> tuple[int, dict[str, Any]]:
    """Return the status and the object of an answer; {} if it is no object."""
    try:
        value = json.loads(answer.body)
    except (ValueError, RecursionError):
        value = None
    return answer.status, value if isinstance(value, dict) else {}


def send_guarded(url: str, rules: RequestRules, body: bytes | None, headers: Mapping[str, str]) -> HttpAnswer:
    """Send a request as the rules allow it; return the answer if it is none of a server in trouble.

    Raises IdentityFault for an address that may not be asked, IdentityServerAway where no answer came.
    """
    parts = parse_address(url, rules)
    host = parts.hostname or ""
    addresses = _look_up(host, parts.port or (443 if parts.scheme == "https" else 80), rules)
    context = make_context(rules.ca, setting="identity") if parts.scheme == "https" else None
    try:
        answer = send_request(
            parts, body, headers, limit_s=rules.limit_s, max_bytes=MAX_ANSWER_BYTES, context=context,
            addresses=addresses,
        )  # fmt: skip
    except DeliveryRefused as error:
        raise IdentityFault(error.detail) from error
    except DeliveryFault as error:
        raise IdentityServerAway(error.detail) from error
    if answer.status == 429 or answer.status >= 500:
        raise IdentityServerAway(f"{host}: status {answer.status}")
    if 300 <= answer.status < 400:
        raise IdentityFault(f"{host}: it sends to another address (status {answer.status}), which is not followed")
    return answer


def parse_address(url: str, rules: RequestRules) -> SplitResult:
    """Return the parts of an address that may be asked. Raises IdentityFault."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port, parts = "", None, urlsplit("")
    is_plain = parts.scheme == "http" and _is_private_host(host, rules)
    if not host or not (parts.scheme == "https" or is_plain) or port == 0:
        raise IdentityFault(f"{url[:100]!r} is no address that may be asked: it must begin with https:// and a name")
    if parts.username is not None or parts.fragment or not url.isascii() or any(char <= " " for char in url):
        raise IdentityFault(f"{host}: its address has a user name, a fragment or odd characters")
    return parts


def _is_private_host(host: str, rules: RequestRules) -> bool:
    return rules.is_all_private or host in rules.private


def _look_up(host: str, port: int, rules: RequestRules) -> list[str]:
    """Return the addresses of a host. Raises IdentityFault for one that is not public, IdentityServerAway for none."""
    try:
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise IdentityServerAway(f"{host}: no address of it is known") from error
    addresses = list(dict.fromkeys(str(row[4][0]) for row in rows))
    if not _is_private_host(host, rules):
        for address in addresses:
            if not is_public(address):
                advice = "name the host in `identity.private` if it is yours"
                raise IdentityFault(f"{host} has an address that is not public: {advice}")
    return addresses[:_MAX_ADDRESSES]


def is_public(address: str) -> bool:
    """Return True for an address of the public network.

    >>> [is_public(text) for text in ("9.9.9.9", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1")]
    [True, False, False, False, False]
    """
    try:
        number = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(number, ipaddress.IPv6Address):
        if number.ipv4_mapped is not None:
            return is_public(str(number.ipv4_mapped))
        if any(number in network for network in _TRANSLATED):
            return False
    return number.is_global and not number.is_multicast
