"""The line to the remote home: one request, one answer, one connection for many. Standard library only.

What an answer means is decided here once, so that every caller knows three kinds of refusal: the home does not answer
now, it does not accept this machine, or what answers is no home. The secret goes to the address of the settings alone:
no redirect is followed, and it leaves this machine unencrypted only where the settings allow that.
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
from perdure.capture.files import make_folder, replace
from perdure.capture.rules import Remote
from perdure.errors import ConfigFault, PerdureError, RemoteAway, RemoteNonsense, RemoteRefused

TIMEOUT_S = 30.0  # for one answer, unless the caller has less
_BLOCK_BYTES = 1 << 16  # of a body that is read and sent at a time
_MOST_BYTES = 1 << 28  # of an answer that are taken
_FIRST_S, _MOST_S = 2.0, 60.0  # an absent home is left alone for so long at first, and at most
_LATER = (429, 500, 502, 503, 504, 408)  # tried again later
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")  # OpenSSL's word for an answer without it
_ALLOWED = (200, 201, 202, 204, 400, 404, 409, 413)  # what a caller is given to decide on

Query = Sequence[tuple[str, str]]


class Answer(NamedTuple):
    """What the home said."""

    status: int
    raw: bytes

    @property
    def body(self) -> dict[str, Any]:
        """The object that it is. Raises RemoteNonsense where it is none."""
        try:
            said = json.loads(self.raw)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict):
            raise RemoteNonsense(f"status {self.status} without an object")
        return said

    @property
    def code(self) -> str:
        """The code of the error that it says; "" where it says none, as a proxy would."""
        try:
            said = json.loads(self.raw)["error"]["code"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return ""
        return said if isinstance(said, str) else ""


class Extent(NamedTuple):
    """Bytes of a file that are sent as they lie there."""

    path: Path
    low: int
    high: int

    def blocks(self) -> Iterator[bytes]:
        """The bytes, a block at a time. Raises ValueError when the file has become shorter."""
        with self.path.open("rb") as file:
            file.seek(self.low)
            left = self.high - self.low
            while left:
                block = file.read(min(left, _BLOCK_BYTES))
                if not block:
                    raise ValueError(f"{self.path} became shorter")
                left -= len(block)
                yield block


class Address(NamedTuple):
    """A checked address."""

    is_https: bool
    host: str
    port: int
    below: str  # path below which the home answers, without a slash at its end


def address(remote: Remote) -> Address:
    """Where the remote home answers. Raises ConfigFault with what to do for one that may not be used."""
    try:
        parts = urlsplit(remote.url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise ConfigFault(f"remote.url = {remote.url!r}: {error}") from error
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or "@" in parts.netloc:
        raise ConfigFault("remote.url: write it like https://home.example:8443, without a name, a secret or a query")
    if not remote.url.isascii() or any(char <= " " or char == "\x7f" for char in remote.url):
        raise ConfigFault("remote.url: letters, digits and signs of ASCII only")
    if parts.scheme == "http" and not (remote.plain or _is_loopback(host)):
        raise ConfigFault(
            f"remote.url = {remote.url!r} would send secret and words unencrypted: use https://, or, where the network "
            "itself is private and encrypted (a VPN), set remote.plain = true (`perdure join --plain`)"
        )
    is_https = parts.scheme == "https"
    return Address(is_https, host, port or (443 if is_https else 80), parts.path.rstrip("/"))


def _is_loopback(host: str) -> bool:
    parts = host.split(".")
    is_127 = len(parts) == 4 and parts[0] == "127" and all(part.isdigit() for part in parts)
    return is_127 or host in ("localhost", "::1")


class Line:
    """A connection to the remote home, opened by the first request, and again when it broke. Of one thread."""

    def __init__(self, remote: Remote, token: str) -> None:
        """Nothing is connected yet. Raises ConfigFault for an address that may not be used."""
        self.timeout_s = TIMEOUT_S  # for what comes next; the caller sets it
        self._address = address(remote)
        self._ca = remote.ca
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(self, method: str, path: str, *, query: Query = (), body: Extent | object = None) -> Answer:
        """The answer to a request. body: bytes of a file, or what becomes a JSON object.

        Raises RemoteAway, RemoteRefused, RemoteNonsense, ConfigFault; OSError or ValueError for the file alone.
        """
        target = f"{self._address.below}/api/{path}" + (f"?{urlencode(query)}" if query else "")
        was_open = self._connection is not None
        try:
            return self._answer(method, target, body)
        except RemoteAway:
            if not was_open:
                raise
        return self._answer(method, target, body)  # one that was kept open may have been closed over there meanwhile

    def _answer(self, method: str, target: str, body: Extent | object) -> Answer:
        try:
            said, raw = self._exchange(method, target, body)
        except (http.client.HTTPException, OSError) as error:
            self.close()
            if isinstance(error, OSError) and error.filename is not None:  # the file, not the line
                raise
            raise _meaning(error, self._address) from error
        except BaseException:
            self.close()
            raise
        if said.will_close:
            self.close()
        return _checked(Answer(said.status, raw), said.getheader("Retry-After") or "")

    def _exchange(self, method: str, target: str, body: Extent | object) -> tuple[http.client.HTTPResponse, bytes]:
        connection = self._opened()
        content: Any = None
        headers = dict(self._headers)
        if isinstance(body, Extent):
            content = body.blocks()
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
            is_sent = False  # it may have answered before it had read all, and says why
        said = connection.getresponse()
        raw = said.read(_MOST_BYTES)
        if not said.isclosed():
            raise RemoteNonsense("an answer without end")
        if not is_sent:
            self.close()
        return said, raw

    def _opened(self) -> http.client.HTTPConnection:
        if self._connection is None:
            self._connection = self._made()
        self._connection.timeout = self.timeout_s
        if self._connection.sock is not None:
            self._connection.sock.settimeout(self.timeout_s)
        return self._connection

    def _made(self) -> http.client.HTTPConnection:
        place = self._address
        if not place.is_https:
            return http.client.HTTPConnection(place.host, place.port)
        import ssl  # 10 ms that a loopback line does without

        try:
            context = ssl.create_default_context(cafile=str(Path(self._ca).expanduser()) if self._ca else None)
        except (OSError, ssl.SSLError) as error:
            raise ConfigFault(f"remote.ca = {self._ca!r}: {error}") from error
        return http.client.HTTPSConnection(place.host, place.port, context=context)


def _meaning(error: Exception, place: Address) -> PerdureError:
    where = f"{place.host}:{place.port}"
    if type(error).__name__ == "SSLCertVerificationError":
        return RemoteAway(f"{where}: its certificate is not trusted ({error}); `remote.ca` names an authority of yours")
    if getattr(error, "reason", None) in _NO_TLS:
        return RemoteNonsense(
            f"{where} was asked in https and answered in something else: it speaks http, or a proxy does"
        )
    if isinstance(error, (http.client.BadStatusLine, http.client.LineTooLong)) and not isinstance(error, OSError):
        return RemoteNonsense(f"{where}: {type(error).__name__}")
    return RemoteAway(f"{where}: {error or type(error).__name__}")


def _checked(answer: Answer, retry_after: str) -> Answer:
    """The answer, if it is one to go on with."""
    if answer.status in (401, 403):
        if not answer.code:
            raise RemoteNonsense(f"status {answer.status} in no words of a home: something before it answers, a proxy?")
        raise RemoteRefused(f"status {answer.status}")
    if answer.status in _LATER:
        fault = RemoteAway(f"status {answer.status}")
        fault.after_s = float(retry_after) if retry_after.isdigit() and len(retry_after) < 9 else 0.0
        raise fault
    if answer.status not in _ALLOWED:
        raise RemoteNonsense(f"status {answer.status}")
    return answer


def line_of(home: Path, remote: Remote) -> Line:
    """The line of a home, with the credential that lies in it. Raises RemoteRefused without one, CredentialFault."""
    known = credential.read(home)
    if known is None:
        raise RemoteRefused(f"there is no {credential.NAME} in {home}")
    if known.url and known.url != remote.url:
        raise RemoteRefused(f"the credential is for {known.url}, and remote.url is {remote.url}")
    return Line(remote, known.token)


# an absent home is left alone for a while ---------------------------------------------------------------------


def rests(home: Path) -> bool:
    """Whether the home was absent a moment ago and is not to be asked now. A clock that was set back ends that."""
    n, at_s, rest_s = _kept(home)
    return n > 0 and 0 <= time.time() - at_s < rest_s


def was_away(home: Path, *, after_s: float = 0.0, why: str = "") -> None:
    """Leave the home alone for a while, longer each time. after_s: as long as it asks for. why: what it said."""
    n = _kept(home)[0] + 1
    rest_s = min(_MOST_S, max(after_s, _FIRST_S * 2 ** min(n - 1, 10)))
    make_folder(_place(home).parent)
    replace(_place(home), json.dumps([n, time.time(), rest_s, why]).encode(), sync=False)


def why_away(home: Path) -> str:
    """What the home said when it last took nothing; "" when it took something since."""
    try:
        return str(json.loads(_place(home).read_bytes())[3])
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return ""


def is_there(home: Path) -> None:
    """Ask it as often as there is something to ask."""
    try:
        _place(home).unlink()
    except FileNotFoundError:
        pass


def _kept(home: Path) -> tuple[int, float, float]:
    """(how often in a row it was absent, when the last time, for how long it is left alone)."""
    try:
        n, at_s, rest_s = json.loads(_place(home).read_bytes())[:3]
        return int(n), float(at_s), min(float(rest_s), _MOST_S)
    except (OSError, ValueError, TypeError, LookupError):
        return 0, 0.0, 0.0


def _place(home: Path) -> Path:
    return home / "run" / "remote-away"


def within(limit_s: float, work: Callable[[], Any]) -> Any:
    """What work returns or raises, or RemoteAway after the limit; it may then go on until the process ends.

    In a thread, because looking up a name cannot be interrupted in any other way.
    """
    found: list[Any] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(max(0.0, limit_s))
    if raised:
        raise raised[0]
    if not found:
        raise RemoteAway(f"no answer within {limit_s:.1f} s")
    return found[0]
