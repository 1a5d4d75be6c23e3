"""One request over HTTP or HTTPS to a configured host. Standard library only.

No redirect is followed and no proxy used, so that what is sent goes to that host and nowhere else. The answer is
limited in size, and the whole request in time. Errors name the host and never the path, which may hold a secret.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from perdure.errors import ConfigFault, DeliveryFault, DeliveryRefused

_READ_BYTES = 1 << 16
_LOOPBACK = ("localhost", "::1")


class HttpAnswer(NamedTuple):
    """The answer of a host."""

    status: int
    body: bytes
    retry_after_s: float  # how long it asks us to wait; 0 if it does not


def is_loopback(host: str) -> bool:
    """Return True for a name or number of this machine."""
    parts = host.split(".")
    return host in _LOOPBACK or (len(parts) == 4 and parts[0] == "127" and all(part.isdigit() for part in parts))


def parse_url(raw_url: str, *, setting: str, plain: bool) -> SplitResult:
    """Return the parts of a URL. plain: http:// to another machine is allowed. Raises ConfigFault."""
    url = urlsplit(raw_url)
    try:
        is_valid = url.scheme in ("http", "https") and url.hostname and (url.port or 1)
    except ValueError:
        is_valid = False
    if not is_valid or url.username or url.fragment or not raw_url.isascii() or any(char <= " " for char in raw_url):
        raise ConfigFault(f"{setting}.url: write it like https://example.org/path, without a user name")
    if url.scheme == "http" and not (plain or is_loopback(url.hostname or "")):
        raise ConfigFault(
            f"{setting}.url: http:// would send the text unencrypted to {url.hostname}; use https://, or set "
            "`plain = true` if the network itself is private"
        )
    return url


def make_context(ca: str, *, setting: str) -> ssl.SSLContext:
    """Return the context of TLS, with an authority of the owner's. Raises ConfigFault."""
    try:
        return ssl.create_default_context(cafile=str(Path(ca).expanduser()) if ca else None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigFault(f"{setting}.ca = {ca!r}: {error}") from error


def send_request(
    url: SplitResult, body: bytes | None, headers: Mapping[str, str], *, limit_s: float, max_bytes: int,
    context: ssl.SSLContext | None = None, addresses: Sequence[str] = (),
) -> HttpAnswer:  # fmt: skip
    """Send a request (POST, or GET without a body) and return the answer, whatever its status.

    context: of TLS; the system's authorities without one. addresses: the numbers of the host to connect to, in this
    order; looked up if there are none. Raises DeliveryFault, and DeliveryRefused for a certificate.
    """
    host = url.hostname or ""
    context = context or ssl.create_default_context() if url.scheme == "https" else None
    connection = (
        http.client.HTTPSConnection(host, url.port, timeout=limit_s, context=context)
        if context is not None
        else http.client.HTTPConnection(host, url.port, timeout=limit_s)
    )
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    try:
        with _limit_time(connection, limit_s):
            if addresses:
                connection.sock = _connect(addresses, connection.port, limit_s, context, host)
            connection.request("GET" if body is None else "POST", target, body, {"User-Agent": "perdure", **headers})
            with connection.getresponse() as response:
                return HttpAnswer(response.status, _read_body(response, max_bytes, host), _read_wait_s(response))
    except ssl.SSLCertVerificationError as error:
        raise DeliveryRefused(f"{host}: its certificate is not trusted ({error.verify_message})") from error
    except TimeoutError as error:
        raise DeliveryFault(f"{host}: no answer within {limit_s:g} s") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DeliveryFault(f"{host}: {type(error).__name__}") from error
    finally:
        connection.close()


def _connect(
    addresses: Sequence[str], port: int, limit_s: float, context: ssl.SSLContext | None, host: str
) -> socket.socket:
    """Return a connection to the first of these addresses that takes one. Raises OSError of the last."""
    for address in addresses:
        try:
            plain_socket = socket.create_connection((address, port), limit_s)
            break
        except OSError:
            if address == addresses[-1]:
                raise
    if context is None:
        return plain_socket
    try:
        return context.wrap_socket(plain_socket, server_hostname=host)
    except BaseException:
        plain_socket.close()
        raise


@contextmanager
def _limit_time(connection: http.client.HTTPConnection, limit_s: float) -> Iterator[None]:
    """Cut the connection after so many seconds: the timeout of a socket begins again with each byte.

    Raises TimeoutError then, also where what came until the cut looks like an answer.
    """
    is_late = threading.Event()

    def cut() -> None:
        is_late.set()
        if connection.sock is not None:
            with suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(limit_s + 1, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
        if is_late.is_set():
            raise TimeoutError
    except (OSError, http.client.HTTPException) as error:
        if is_late.is_set():
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()


def _read_body(response: http.client.HTTPResponse, max_bytes: int, host: str) -> bytes:
    body = bytearray()
    while part := response.read1(_READ_BYTES):
        body += part
        if len(body) > max_bytes:
            raise DeliveryFault(f"{host}: an answer of more than {max_bytes:,} bytes")
    return bytes(body)


def _read_wait_s(response: http.client.HTTPResponse) -> float:
    value = response.getheader("Retry-After") or ""
    return float(value) if value.isdigit() and len(value) < 9 else 0.0
