"""The connection to the remote home: one request, one answer, one connection for many. Standard library only.

The meaning of an answer is decided here once, so that every caller knows three kinds of refusal: the home
does not answer now, it does not accept this machine, or the other side is no home. The secret goes only
to the address of the settings: no redirect is followed, and it leaves this machine unencrypted only where
the settings allow that.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from perdure.capture import credential
from perdure.capture.policy import RemoteSettings
from perdure.disk import make_folder, replace_file
from perdure.errors import (
    CertificateRefused,
    ConfigFault,
    CredentialMissing,
    PerdureError,
    RemoteAway,
    RemoteNonsense,
    RemoteNotNow,
    RemoteRefused,
)

TIMEOUT_S = 30.0  # for one answer, unless the caller has less time
_BLOCK_BYTES = 1 << 16  # of a body, read and sent at a time
_MAX_RESPONSE_BYTES = 1 << 28  # of an answer, read at most
_MAX_MESSAGE_CHARS = 300  # of an error's message, kept at most
_FIRST_REST_S, _MAX_REST_S = 2.0, 60.0  # how long an absent home is not asked: first, and at most
_RETRY_STATUSES = (429, 500, 502, 503, 504, 408)  # the request is tried again later
_NO_TLS_REASONS = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "RECORD_LAYER_FAILURE",
)  # OpenSSL's reasons for an answer without TLS
_ALLOWED_STATUSES = (200, 201, 202, 204, 400, 404, 409, 413)  # the caller decides what these mean

UrlQuery = Sequence[tuple[str, str]]


class RemoteResponse(NamedTuple):
    """The home's answer to one request."""

    status: int
    raw: bytes

    @property
    def body(self) -> dict[str, Any]:
        """The JSON object of the answer. Raises RemoteNonsense where there is none."""
        try:
            value = json.loads(self.raw)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise RemoteNonsense(f"status {self.status} without an object")
        return value

    @property
    def code(self) -> str:
        """The code of the error in the answer; "" without one, as from a proxy."""
        try:
            code = json.loads(self.raw)["error"]["code"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return ""
        return code if isinstance(code, str) else ""

    @property
    def message(self) -> str:
        """The message of the error in the answer, as one line; "" without one."""
        try:
            message = json.loads(self.raw)["error"]["message"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return ""
        printable = "".join(char if char.isprintable() else " " for char in message) if isinstance(message, str) else ""
        return printable[:_MAX_MESSAGE_CHARS].strip().removesuffix(".")


class FileExtent(NamedTuple):
    """A range of bytes of a file, sent as it is."""

    path: Path
    low: int
    high: int

    def read_blocks(self) -> Iterator[bytes]:
        """Yield the bytes, a block at a time. Raises ValueError when the file has become shorter."""
        with self.path.open("rb") as file:
            file.seek(self.low)
            n_left = self.high - self.low
            while n_left:
                block = file.read(min(n_left, _BLOCK_BYTES))
                if not block:
                    raise ValueError(f"{self.path} became shorter")
                n_left -= len(block)
                yield block


class RemoteAddress(NamedTuple):
    """The checked address of a remote home."""

    is_https: bool
    host: str
    port: int
    base_path: str  # path below which the home answers, without a slash at its end


def parse_address(remote: RemoteSettings) -> RemoteAddress:
    """Return the address of the remote home. Raises ConfigFault with what to do for one that may not be used."""
    try:
        parts = urlsplit(remote.url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise ConfigFault(f"remote.url = {remote.url!r}: {error}") from error
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or "@" in parts.netloc:
        raise ConfigFault(
            "remote.url: write it like https://home.example:8443, without a user name, a password or a query"
        )
    if not remote.url.isascii() or any(char <= " " or char == "\x7f" for char in remote.url):
        raise ConfigFault("remote.url: use only ASCII characters")
    if parts.scheme == "http" and not (remote.plain or _is_loopback(host)):
        raise ConfigFault(
            f"remote.url = {remote.url!r} would send the secret and the text "
            "unencrypted: use https://, or, if the network "
            "itself is private and encrypted (a VPN), set remote.plain = true (`perdure join --plain`)"
        )
    is_https = parts.scheme == "https"
    return RemoteAddress(is_https, host, port or (443 if is_https else 80), parts.path.rstrip("/"))


def _is_loopback(host: str) -> bool:
    parts = host.split(".")
    is_127 = len(parts) == 4 and parts[0] == "127" and all(part.isdigit() for part in parts)
    return is_127 or host in ("localhost", "::1")


class RemoteConnection:
    """A connection to the remote home, opened by the first request, and again when it broke. For one thread."""

    def __init__(self, remote: RemoteSettings, token: str = "") -> None:
        """Check the address, but connect nothing yet. Raises ConfigFault for an address that may not be used.

        token: the secret of this machine; without it only the public operations answer.
        """
        self.timeout_s = TIMEOUT_S  # of the next request; the caller sets it
        self._address = parse_address(remote)
        self._ca = remote.ca
        self._headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(self, method: str, path: str, *, query: UrlQuery = (), body: FileExtent | object = None) -> RemoteResponse:
        """Send a request; return the answer. body: bytes of a file, or a value to be sent as JSON.

        Raises RemoteAway, RemoteRefused, RemoteNonsense, ConfigFault; OSError or ValueError only for the file.
        """
        target = f"{self._address.base_path}/api/{path}" + (f"?{urlencode(query)}" if query else "")
        was_open = self._connection is not None
        try:
            return self._ask_once(method, target, body)
        except RemoteAway:
            if not was_open:
                raise
        return self._ask_once(method, target, body)  # the home may have closed a connection that was kept open

    def _ask_once(self, method: str, target: str, body: FileExtent | object) -> RemoteResponse:
        try:
            response, raw = self._exchange(method, target, body)
        except (http.client.HTTPException, OSError) as error:
            self.close()
            if isinstance(error, OSError) and error.filename is not None:  # an error of the file, not of the connection
                raise
            raise _to_remote_error(error, self._address) from error
        except BaseException:
            self.close()
            raise
        if response.will_close:
            self.close()
        return _check_response(RemoteResponse(response.status, raw), response.getheader("Retry-After") or "")

    def _exchange(self, method: str, target: str, body: FileExtent | object) -> tuple[http.client.HTTPResponse, bytes]:
        connection = self._prepare_connection()
        content: Any = None
        headers = dict(self._headers)
        if isinstance(body, FileExtent):
            content = body.read_blocks()
            headers |= {"Content-Type": "application/x-ndjson", "Content-Length": str(body.high - body.low)}
        elif body is not None:
            content = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        is_sent = True
        try:
            connection.request(method, target, body=content, headers=headers)
        except (BrokenPipeError, ConnectionResetError):
            if connection.sock is None:
                raise
            is_sent = False  # it may have answered before it read everything, and said why
        response = connection.getresponse()
        raw = response.read(_MAX_RESPONSE_BYTES)
        if not response.isclosed():
            raise RemoteNonsense("an answer without end")
        if not is_sent:
            self.close()
        return response, raw

    def _prepare_connection(self) -> http.client.HTTPConnection:
        if self._connection is None:
            self._connection = self._make_connection()
        self._connection.timeout = self.timeout_s
        if self._connection.sock is not None:
            self._connection.sock.settimeout(self.timeout_s)
        return self._connection

    def _make_connection(self) -> http.client.HTTPConnection:
        remote_address = self._address
        if not remote_address.is_https:
            return http.client.HTTPConnection(remote_address.host, remote_address.port)
        import ssl  # 10 ms that a loopback connection saves

        try:
            context = ssl.create_default_context(cafile=str(Path(self._ca).expanduser()) if self._ca else None)
        except (OSError, ssl.SSLError) as error:
            raise ConfigFault(f"remote.ca = {self._ca!r}: {error}") from error
        return http.client.HTTPSConnection(remote_address.host, remote_address.port, context=context)


def _to_remote_error(error: Exception, remote_address: RemoteAddress) -> PerdureError:
    endpoint = f"{remote_address.host}:{remote_address.port}"
    if type(error).__name__ == "SSLCertVerificationError":
        return CertificateRefused(f"{endpoint} ({getattr(error, 'verify_message', '') or error})")
    if getattr(error, "reason", None) in _NO_TLS_REASONS:
        return RemoteNonsense(f"{endpoint} does not answer in https: perhaps it uses http, or a proxy answers")
    if isinstance(error, (http.client.BadStatusLine, http.client.LineTooLong)) and not isinstance(error, OSError):
        return RemoteNonsense(f"{endpoint}: {type(error).__name__}")
    return RemoteAway(f"{endpoint}: {error or type(error).__name__}")


def _check_response(response: RemoteResponse, retry_after: str) -> RemoteResponse:
    """Return the response, if the caller can go on with it; otherwise raise what it means."""
    if response.status in (401, 403):
        if not response.code:
            raise RemoteNonsense(
                f"status {response.status} without a valid error: perhaps a proxy answers instead of the home"
            )
        refusal = RemoteRefused(f"status {response.status}")
        refusal.reason = response.message
        raise refusal
    if response.status in _RETRY_STATUSES:
        fault = RemoteAway(f"status {response.status}")
        if response.code:
            fault = RemoteNotNow(f"{response.message or response.code} (status {response.status})")
        fault.after_s = float(retry_after) if retry_after.isdigit() and len(retry_after) < 9 else 0.0
        raise fault
    if response.status not in _ALLOWED_STATUSES:
        raise RemoteNonsense(
            f"{response.message or response.code} (status {response.status})"
            if response.code
            else f"status {response.status}"
        )
    return response


def check_home(remote: RemoteSettings, *, timeout_s: float = TIMEOUT_S) -> None:
    """Return if a Perdure home answers at an address; no secret is sent.

    Raises RemoteAway, CertificateRefused, RemoteNonsense, ConfigFault.
    """
    connection = RemoteConnection(remote)
    connection.timeout_s = timeout_s
    try:
        response = connection.ask("GET", "alive")
    except RemoteRefused as error:
        raise RemoteNonsense(f"{remote.url}: {error.detail} to the request `alive`") from error
    finally:
        connection.close()
    if response.status != 200 or response.body.get("alive") is not True:
        raise RemoteNonsense(f"{remote.url}: status {response.status} to the request `alive`")


def open_connection(home: Path, remote: RemoteSettings) -> RemoteConnection:
    """Return a connection with the credential of this home. Raises CredentialMissing, CredentialFault."""
    stored = credential.read_credential(home)
    if stored is None:
        raise CredentialMissing(f"there is no {credential.CREDENTIAL_FILE} in {home}")
    if stored.url and stored.url != remote.url:
        raise CredentialMissing(f"the credential is for {stored.url}, and remote.url is {remote.url}")
    return RemoteConnection(remote, stored.token)


# an absent home is left alone for a while ---------------------------------------------------------------------


def is_resting(home: Path) -> bool:
    """Return True if the home was absent a moment ago and must not be asked now. Setting the clock back ends that."""
    n_failures, last_away_s, rest_s = _read_away_state(home)
    return n_failures > 0 and 0 <= time.time() - last_away_s < rest_s


def mark_away(home: Path, *, after_s: float = 0.0, reason: str = "") -> None:
    """Note that the home was absent: it is not asked for a while, longer each time.

    after_s: the time that it asked for. reason: the home's message.
    """
    n_failures = _read_away_state(home)[0] + 1
    rest_s = min(_MAX_REST_S, max(after_s, _FIRST_REST_S * 2 ** min(n_failures - 1, 10)))
    make_folder(_to_away_path(home).parent)
    replace_file(_to_away_path(home), json.dumps([n_failures, time.time(), rest_s, reason]).encode(), sync=False)


def read_away_reason(home: Path) -> str:
    """Return the home's message from when it last took nothing; "" if it took something since."""
    try:
        return str(json.loads(_to_away_path(home).read_bytes())[3])
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return ""


def mark_available(home: Path) -> None:
    """Note that the home answers: it may be asked at any time again."""
    try:
        _to_away_path(home).unlink()
    except FileNotFoundError:
        pass


def _read_away_state(home: Path) -> tuple[int, float, float]:
    """Return (absences in a row, time of the last one, how long the home is left alone in seconds)."""
    try:
        n_failures, last_away_s, rest_s = json.loads(_to_away_path(home).read_bytes())[:3]
        return int(n_failures), float(last_away_s), min(float(rest_s), _MAX_REST_S)
    except (OSError, ValueError, TypeError, LookupError):
        return 0, 0.0, 0.0


def _to_away_path(home: Path) -> Path:
    return home / "run" / "remote-away"


def run_within(limit_s: float, work: Callable[[], Any]) -> Any:
    """Return the result of `work` or raise its error; raise RemoteAway after the limit.

    After the limit the work may go on until the process ends. It runs in a thread, because nothing else can
    interrupt looking up a name.
    """
    results: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(max(0.0, limit_s))
    if errors:
        raise errors[0]
    if not results:
        raise RemoteAway(f"no answer within {limit_s:.1f} s")
    return results[0]
