"""The line to a remote home: which addresses it takes, what an answer means, how long an absent home is left alone."""

from __future__ import annotations

import contextlib
import json
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.capture import credential, remote
from perdure.capture.credential import Credential
from perdure.capture.policy import RemoteSettings
from perdure.capture.remote import RemoteConnection
from perdure.errors import CertificateRefused, ConfigFault, PerdureError, RemoteAway, RemoteNonsense, RemoteRefused
from rig.remote import SECRET, ScriptedRemote


@pytest.fixture
def afar() -> Iterator[ScriptedRemote]:
    with ScriptedRemote() as server:
        yield server


@pytest.fixture
def line(afar: ScriptedRemote) -> Iterator[RemoteConnection]:
    with contextlib.closing(RemoteConnection(RemoteSettings(afar.url), SECRET)) as opened:
        yield opened


@pytest.mark.parametrize(
    "url", ["https://home.example", "https://home.example:8443/perdure/", "http://127.0.0.1:80", "http://[::1]:1",
            "http://localhost"],
)  # fmt: skip
def test_safe_addresses_are_accepted(url: str) -> None:
    assert remote.parse_address(RemoteSettings(url)).host


def test_the_parts_of_an_address() -> None:
    assert remote.parse_address(RemoteSettings("https://home.example/perdure/")) == (
        True,
        "home.example",
        443,
        "/perdure",
    )


@pytest.mark.parametrize(
    "url", ["http://home.example", "http://10.0.0.4:8443", "http://127.evil.example", "http://127.0.0.1.evil.example",
            "http://localhost.evil.example", "http://127.0.0.1@evil.example"],
)  # fmt: skip
def test_unencrypted_remote_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigFault):
        remote.parse_address(RemoteSettings(url))


def test_private_network_is_allowed_only_by_the_owner() -> None:
    with pytest.raises(ConfigFault, match=r"remote\.plain = true"):
        remote.parse_address(RemoteSettings("http://home.tail:80"))
    assert remote.parse_address(RemoteSettings("http://home.tail:80", plain=True)).port == 80


@pytest.mark.parametrize(
    "url", ["", "home.example", "ftp://home.example", "https://", "https://a:b@home.example", "https://home.example?x",
            "https://home.example:99999", "https://home.example/a b", "https://h\r\nX: 1", "https://hömé.example",
            "https://[::1"],
)  # fmt: skip
def test_malformed_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigFault):
        remote.parse_address(RemoteSettings(url))


def test_many_requests_use_one_connection(afar: ScriptedRemote, line: RemoteConnection) -> None:
    for _ in range(5):
        assert line.ask("GET", "me").body["machine"] == "laptop"
    assert afar.n_connections == 1


def test_closed_connection_is_opened_again(afar: ScriptedRemote, line: RemoteConnection) -> None:
    line.ask("GET", "me")
    afar.script = [None]  # the next request finds a home that hangs up
    assert line.ask("GET", "me").status == 200


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, RemoteRefused), (403, RemoteRefused), (429, RemoteAway), (500, RemoteAway), (502, RemoteAway),
     (503, RemoteAway), (301, RemoteNonsense), (418, RemoteNonsense)],
)  # fmt: skip
def test_each_status_raises_its_error(
    status: int, kind: type[PerdureError], afar: ScriptedRemote, line: RemoteConnection
) -> None:
    afar.script = [(status, {"error": {"code": "x"}})]
    with pytest.raises(kind):
        line.ask("GET", "me")


@pytest.mark.parametrize("status", [401, 403])
def test_only_a_home_refuses_a_credential(status: int, afar: ScriptedRemote, line: RemoteConnection) -> None:
    """What stands before a home may refuse for reasons of its own: a new credential would not help."""
    afar.script = [(status, b"<html>Forbidden</html>")]
    with pytest.raises(RemoteNonsense, match="proxy"):
        line.ask("GET", "me")


def test_https_to_a_http_server_is_explained(afar: ScriptedRemote) -> None:
    with pytest.raises(RemoteNonsense, match="perhaps it uses http"):
        RemoteConnection(RemoteSettings(afar.url.replace("http:", "https:")), SECRET).ask("GET", "me")


def test_redirect_is_not_followed_and_leaks_no_secret(afar: ScriptedRemote, line: RemoteConnection) -> None:
    with ScriptedRemote() as other:
        afar.headers, afar.script = {"Location": f"{other.url}/api/me"}, [(302, b"")]
        with pytest.raises(RemoteNonsense):
            line.ask("GET", "me")
        assert other.asked == []


def test_retry_after_of_the_home_is_respected(afar: ScriptedRemote, line: RemoteConnection) -> None:
    afar.headers, afar.script = {"Retry-After": "17"}, [(429, b"")]
    with pytest.raises(RemoteAway) as raised:
        line.ask("GET", "me")
    assert raised.value.after_s == 17


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b"<html>", b"\xff", b"[" * 100_000])
def test_response_without_a_json_object_is_refused(raw: bytes, afar: ScriptedRemote, line: RemoteConnection) -> None:
    afar.script = [(200, raw)]
    answer = line.ask("GET", "me")
    assert answer.code == ""
    with pytest.raises(RemoteNonsense):
        _ = answer.body


def test_unreachable_home_is_away() -> None:
    with ScriptedRemote() as server:
        url = server.url
    with pytest.raises(RemoteAway):
        RemoteConnection(RemoteSettings(url), SECRET).ask("GET", "me")


def test_a_home_that_does_not_answer_in_time_is_away(afar: ScriptedRemote, line: RemoteConnection) -> None:
    afar.delay_s = 5
    line.timeout_s = 0.05
    with pytest.raises(RemoteAway):
        line.ask("GET", "me")


def test_server_that_speaks_no_http_is_refused(
    afar: ScriptedRemote, line: RemoteConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chatter(self: object) -> None:
        self.wfile.write(b"220 mail.example ESMTP\r\n")  # type: ignore[attr-defined]
        self.close_connection = True  # type: ignore[attr-defined]

    monkeypatch.setattr(afar.RequestHandlerClass, "handle_one_request", chatter)
    with pytest.raises(RemoteNonsense):
        line.ask("GET", "me")


def test_a_line_needs_a_credential_and_one_for_this_address(tmp_path: Path) -> None:
    with pytest.raises(RemoteRefused):
        remote.open_connection(tmp_path, RemoteSettings("https://a.example"))
    credential.write_credential(tmp_path, Credential("ada", "m1", "laptop", SECRET, "https://b.example"))
    with pytest.raises(RemoteRefused, match=r"b\.example"):
        remote.open_connection(tmp_path, RemoteSettings("https://a.example"))
    assert remote.open_connection(tmp_path, RemoteSettings("https://b.example"))


def test_absent_home_rests_longer_each_time_up_to_a_minute(tmp_path: Path) -> None:
    """2 s, doubled by every further absence: 2, 4, 8, 16, 32, and then 60, which is the most."""
    rests = []
    for _ in range(7):
        remote.mark_away(tmp_path)
        rests.append(json.loads((tmp_path / "run" / "remote-away").read_bytes())[2])
    assert rests == [2, 4, 8, 16, 32, 60, 60]
    assert remote.is_resting(tmp_path)
    remote.mark_available(tmp_path)
    assert not remote.is_resting(tmp_path)


@pytest.mark.parametrize("jump_s", [-86_400 * 400, -1, 61, 86_400 * 400])
def test_clock_jump_does_not_freeze_the_absence(jump_s: float, tmp_path: Path) -> None:
    remote.mark_away(tmp_path, after_s=10**9)
    place = tmp_path / "run" / "remote-away"
    n, at_s, rest_s, why = json.loads(place.read_bytes())
    place.write_text(json.dumps([n, at_s - jump_s, rest_s, why]))  # as if the clock had jumped since
    assert not remote.is_resting(tmp_path)


@pytest.mark.parametrize("raw", [b"", b"{", b"{}", b"1", b"[]", b'["a", "b", "c"]', b"[1, null, 2]"])
def test_damaged_absence_file_is_ignored(raw: bytes, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "remote-away").write_bytes(raw)
    assert not remote.is_resting(tmp_path) and remote.read_away_reason(tmp_path) == ""


def test_slow_work_times_out() -> None:
    released, ended = threading.Event(), []
    with pytest.raises(RemoteAway):
        remote.run_within(0.05, lambda: ended.append(released.wait(30)))
    assert ended == []  # the error came while the work went on
    released.set()
    assert remote.run_within(30, lambda: 7) == 7
    with pytest.raises(KeyError):
        remote.run_within(30, lambda: {}["a"])


# with TLS -------------------------------------------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for 127.0.0.1 that is its own authority, and its key, in one file."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("needs the openssl program")
    place = tmp_path / "certificate.pem"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=home"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(tmp_path / "key"), "-out", str(place)]
    subprocess.run([program, *words.split(), *names], check=True, capture_output=True)
    place.write_text(place.read_text() + (tmp_path / "key").read_text())
    return place


def test_home_is_trusted_only_by_its_certificate(certificate: Path) -> None:
    with ScriptedRemote() as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        url = server.url.replace("http:", "https:")
        with contextlib.closing(RemoteConnection(RemoteSettings(url, str(certificate)), SECRET)) as line:
            assert line.ask("GET", "me").body["machine"] == "laptop"
        server.asked.clear()
        with (
            contextlib.closing(RemoteConnection(RemoteSettings(url), SECRET)) as line,
            pytest.raises(CertificateRefused, match=r"`perdure join URL --ca FILE`"),
        ):
            line.ask("GET", "me")
        other = url.replace("127.0.0.1", "localhost")  # a name that the certificate does not have
        with (
            contextlib.closing(RemoteConnection(RemoteSettings(other, str(certificate)), SECRET)) as line,
            pytest.raises(RemoteAway),
        ):
            line.ask("GET", "me")
        assert server.asked == []  # the secret was told to nobody
        remote.check_home(RemoteSettings(url, str(certificate)))
        assert [path for _, path, _, _ in server.asked] == ["/api/alive"]


@pytest.mark.parametrize("ca", ["/nowhere/ca.pem", __file__])
def test_invalid_certificate_authority_is_reported(ca: str) -> None:
    with pytest.raises(ConfigFault, match=r"remote\.ca"):
        RemoteConnection(RemoteSettings("https://127.0.0.1:1", ca), SECRET).ask("GET", "me")
