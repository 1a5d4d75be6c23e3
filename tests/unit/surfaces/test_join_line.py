"""The line that joins a home: the address that answers other machines, with the options it needs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from perdure.config import ServerConfig
from perdure.surfaces import join_line
from perdure.surfaces.join_line import compose_join_line, read_certificate

RUNNING: dict[str, object] = {"pid": 1}


def make_certificate(folder: Path, names: str) -> ServerConfig:
    """A certificate that signs itself, and the settings of a server that shows it."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("needs the openssl program")
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=home"
    files = ["-keyout", str(folder / "home.key"), "-out", str(folder / "home.pem")]
    subprocess.run(
        [program, *words.split(), "-addext", f"subjectAltName={names}", *files], check=True, capture_output=True
    )
    return ServerConfig(http="0.0.0.0:8443", tls_certificate=str(folder / "home.pem"), tls_key=str(folder / "home.key"))


def test_certificate_is_read_with_its_names_and_its_trust(tmp_path: Path) -> None:
    server = make_certificate(tmp_path, "IP:10.1.2.3,DNS:home.example,DNS:localhost")
    assert read_certificate(server) == (("home.example", "localhost", "10.1.2.3"), False)
    (tmp_path / "home.pem").write_text("no certificate")
    assert read_certificate(server) is None


def test_line_names_a_host_of_the_certificate_and_the_authority(tmp_path: Path) -> None:
    line = compose_join_line(make_certificate(tmp_path, "DNS:localhost,DNS:home.example,IP:10.1.2.3"), RUNNING)
    assert line.command == "perdure join https://home.example:8443 --ca ca.pem"
    assert len(line.notes) == 1 and "copy ca.pem" in line.notes[0]


def test_certificate_for_an_address_keeps_the_address(tmp_path: Path) -> None:
    server = make_certificate(tmp_path, "DNS:home.example,IP:10.1.2.3")
    line = compose_join_line(server, {"http": "https://10.1.2.3:8443"})
    assert line.command == "perdure join https://10.1.2.3:8443 --ca ca.pem"


@pytest.mark.parametrize(
    ("server", "state", "url", "command", "words"),
    [
        (ServerConfig(), RUNNING, "", "perdure join URL", ["does not answer other machines yet"]),
        (ServerConfig(), RUNNING, "https://home.example", "perdure join https://home.example", []),
        (ServerConfig(), RUNNING, "http://10.0.0.7:1", "perdure join http://10.0.0.7:1 --plain", ["private"]),
        (ServerConfig("127.0.0.1:8787"), RUNNING, "", "perdure join http://127.0.0.1:8787", ["Only this machine"]),
        (ServerConfig("100.64.0.1:1", plain=True), None, "", "perdure join http://100.64.0.1:1 --plain",
         ["private", "perdure serve"]),
        (ServerConfig("0.0.0.0:1", plain=True), RUNNING, "", "perdure join http://10.9.8.7:1 --plain", ["private"]),
        (ServerConfig("127.0.0.1:0"), None, "", "perdure join URL", ["does not answer"]),
    ],
)  # fmt: skip
def test_line_fits_the_settings(
    server: ServerConfig,
    state: dict[str, object] | None,
    url: str,
    command: str,
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(join_line, "_find_own_address", lambda: "10.9.8.7")
    line = compose_join_line(server, state, url)
    assert line.command == command and len(line.notes) == len(words)
    for word, note in zip(words, line.notes, strict=True):
        assert word in note
