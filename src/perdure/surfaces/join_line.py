"""Compose the `perdure join` line of a home: the address that other machines reach, and the options that it needs.

The certificate is read by a TLS handshake in memory, which uses no network and works before the server runs.
"""

from __future__ import annotations

import contextlib
import shlex
import socket
import ssl
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from perdure.config import ServerConfig
from perdure.surfaces.health_checks import make_http_address

_ANY_HOSTS = ("0.0.0.0", "::")
_LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
_NOWHERE = ("192.0.2.1", 9)  # RFC 5737: a datagram socket connected to it sends nothing, but has an address
CA_FILE = "ca.pem"  # the name that docs/machines.md gives to the certificate of an own authority


class JoinLine(NamedTuple):
    """The command that joins a home, and what a person must know before it works."""

    command: str
    notes: tuple[str, ...]


class Certificate(NamedTuple):
    """What a client sees of the certificate of a server."""

    names: tuple[str, ...]  # host names, then addresses
    is_trusted: bool  # True if this system trusts the authority that signed it


def compose_join_line(server: ServerConfig, state: dict[str, object] | None, url: str = "") -> JoinLine:
    """Return the line for this home. state: the report of its resident process. url: an address that a person gave."""
    certificate = read_certificate(server) if server.tls_certificate else None
    target = url or _choose_address(make_http_address(server, state), certificate)
    if not target:
        return JoinLine(
            "perdure join URL", ("This home does not answer other machines yet: docs/machines.md says what to set.",)
        )
    words, notes, address = ["perdure", "join", target], [], urlsplit(target)
    if address.scheme == "http" and address.hostname not in _LOOPBACK_HOSTS:
        words.append("--plain")
        notes.append("The network must be private: the secret crosses it unencrypted.")
    if certificate and address.scheme == "https" and not certificate.is_trusted:
        words += ["--ca", CA_FILE]
        notes.append(f"First copy {CA_FILE}, the certificate of your authority, to that machine.")
    if address.hostname in _LOOPBACK_HOSTS:
        notes.append("Only this machine reaches that address: docs/machines.md says what to set for another one.")
    if not url and not state:
        notes.append("Nothing answers there yet: run `perdure serve` here.")
    return JoinLine(shlex.join(words), tuple(notes))


def _choose_address(own_address: str, certificate: Certificate | None) -> str:
    """Return the address for other machines: a name of the certificate, or the address of this machine.

    own_address: where the server listens, "" if nowhere.
    """
    parts = urlsplit(own_address)
    host, port = parts.hostname or "", parts.port
    if not host or not port:
        return ""
    if certificate and host not in certificate.names:
        remote_names = [name for name in certificate.names if name not in _LOOPBACK_HOSTS and "*" not in name]
        host = next(iter(remote_names), host)
    if host in _ANY_HOSTS:
        host = _find_own_address()
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}" if host else ""


def _find_own_address() -> str:
    """Return the address of this machine in the network of its default route; "" without one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(_NOWHERE)
        return str(probe.getsockname()[0])
    return ""


def read_certificate(server: ServerConfig) -> Certificate | None:
    """Return what a client would see of the server's certificate; None if its files cannot be used."""
    chain, key = (str(Path(name).expanduser()) for name in (server.tls_certificate, server.tls_key))
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own_trust, system_trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.create_default_context()
    own_trust.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate itself is trusted, without its authority
    own_trust.check_hostname = system_trust.check_hostname = False
    try:
        server_side.load_cert_chain(chain, key)
        own_trust.load_verify_locations(chain)
        fields = _shake_hands(server_side, own_trust)
    except OSError:  # ssl.SSLError is one
        return None
    try:
        _shake_hands(server_side, system_trust)
    except ssl.SSLError:
        is_trusted = False
    else:
        is_trusted = True
    pairs = [pair for pair in fields.get("subjectAltName", ()) if len(pair) == 2]
    names = [value for kind in ("DNS", "IP Address") for name, value in pairs if name == kind]
    return Certificate(tuple(str(name) for name in names), is_trusted)


def _shake_hands(server_side: ssl.SSLContext, client_side: ssl.SSLContext) -> dict[str, tuple[tuple[str, str], ...]]:
    """Return the certificate that the client side got. Raises ssl.SSLError if it does not accept the certificate."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_side.wrap_bio(to_client, to_server)
    server = server_side.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):  # two flights each; the client has the certificate after the second
        for side in (client, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return dict(client.getpeercert() or {})  # type: ignore[arg-type]
