"""Where the server listens, and `perdure serve` with it: addresses, TLS, the guide's own lines, kill and start anew."""

import json
import os
import re
import shutil
import signal
import ssl
import stat
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("uvicorn")

import perdure
from perdure.capture import events
from perdure.config import ServerConfig
from perdure.errors import ConfigFault, PackageMissing
from perdure.surfaces.cli import serve
from perdure.surfaces.http.server import check_certificate, read_address
from perdure.surfaces.web.listener import Listener

GUIDE = Path(__file__).parents[2] / "docs" / "server.md"


@pytest.mark.parametrize(
    "setting", ["8787", ":8787", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:99999", "127.0.0.1:-1", "0.0.0.0:1", "[::]:1",
                "example.org:80", "127.0.0.1:80٣", "10.0.0.7:8787"]
)  # fmt: skip
def test_unsafe_or_invalid_address_is_refused(setting):
    with pytest.raises(ConfigFault, match=r"server\.http"):
        read_address(ServerConfig(http=setting))


@pytest.mark.parametrize("setting", ["127.0.0.1:8787", "localhost:0", "[::1]:8787", "127.0.0.9:1"])
def test_loopback_address_needs_no_tls(setting):
    assert read_address(ServerConfig(http=setting)).is_loopback


def test_another_machine_needs_tls_or_a_private_network(tmp_path):
    file = tmp_path / "pem"
    file.touch()
    found = read_address(ServerConfig(http="0.0.0.0:8787", tls_certificate=str(file), tls_key=str(file)))
    assert (found.host, found.port, found.is_loopback) == ("0.0.0.0", 8787, False)
    assert read_address(ServerConfig(http="100.64.0.1:8787", plain=True)).host == "100.64.0.1"
    for wrong in ({"tls_certificate": str(file)}, {"tls_certificate": str(file), "tls_key": str(tmp_path / "none")}):
        with pytest.raises(ConfigFault, match=r"server\.tls"):
            read_address(ServerConfig(http="0.0.0.0:8787", **wrong))


def test_server_answers_over_tls(tmp_path, opened):
    """With a certificate of its own, as a client that trusts it alone."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl to make a certificate with")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    words = [
        openssl,
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    words += [
        "-keyout",
        str(key),
        "-out",
        str(certificate),
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost",
    ]
    subprocess.run(words, check=True, capture_output=True)
    settings = f'http = "127.0.0.1:0"\ntls_certificate = "{certificate}"\ntls_key = "{key}"\n'
    with Resident(tmp_path / "home", settings) as running:
        trusted = ssl.create_default_context(cafile=str(certificate))
        place = running.address.replace("127.0.0.1", "localhost")
        assert place.startswith("https://")
        with urllib.request.urlopen(f"{place}/api/alive", context=trusted, timeout=10) as answer:
            assert json.load(answer) == {"alive": True}


class Resident:
    """`perdure serve` in a process of its own."""

    def __init__(self, home: Path, settings: str = 'http = "127.0.0.1:0"\n') -> None:
        self.home = home
        home.mkdir(mode=0o700, exist_ok=True)
        (home / "config.toml").write_text(f"[server]\n{settings}")
        self.env = {**os.environ, "PERDURE_HOME": str(home), "NO_COLOR": "1"}

    def run(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-m", "perdure.surfaces.cli", *words]
        return subprocess.run(program, env=self.env, capture_output=True, text=True, timeout=120, check=check)

    def __enter__(self):
        self.said = json.loads(self.run("serve", "--detach", "--json").stdout)["result"]
        self.address = self.said["http"]
        return self

    def __exit__(self, *error):
        self.run("serve", "--stop", check=False)

    def ask(self, path: str, secret: str = "", data: bytes | None = None) -> tuple[int, bytes]:
        head = {"Authorization": f"Bearer {secret}"} if secret else {}
        try:
            request = urllib.request.Request(self.address + path, data, head)
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read()

    def secret(self, name: str, *more: str) -> str:
        said = json.loads(self.run("machine", "register", "--name", name, "--no-write-auth", "--json", *more).stdout)
        return said["result"]["secret"]


def test_serve_prints_its_address_and_refuses_a_revoked_machine(tmp_path):
    with Resident(tmp_path / "home") as running:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", running.address)
        again = running.run("serve", check=False)
        assert again.returncode and "resident process already" in again.stderr, "not: the address is taken"
        assert running.ask("/api/alive")[0] == 200 and running.ask("/api/me")[0] == 401
        secret = running.secret("laptop", "--user", "bob")
        assert json.loads(running.ask("/api/me", secret)[1])["user"] == "bob"
        running.run("machine", "revoke", "laptop", "--user", "bob")
        assert running.ask("/api/me", secret)[0] == 401
    assert "http" in running.said and not events.to_socket_path(tmp_path / "home").exists()


def test_background_process_logs_to_a_small_file(tmp_path, monkeypatch):
    """Not to a pipe that nobody reads any more."""
    home = tmp_path / "home"
    with Resident(home) as running:
        said = serve.get_log_path(home)
        assert stat.S_IMODE(said.stat().st_mode) == 0o600 and "serving" in said.read_text()
        place = Path(f"/proc/{running.said['pid']}/fd/2")
        assert not place.exists() or place.samefile(said)
    monkeypatch.setattr(serve, "MAX_LOG_BYTES", 10)
    serve.limit_log_size(said)
    assert said.read_bytes() == b""


def test_used_address_is_reported(tmp_path):
    with Resident(tmp_path / "one") as first:
        port = first.address.rpartition(":")[2]
        second = Resident(tmp_path / "two", f'http = "127.0.0.1:{port}"\n')
        failed = second.run("serve", "--detach", check=False)
        assert failed.returncode and "nothing can listen" in failed.stderr and "Traceback" not in failed.stderr
        failed = second.run("serve", check=False)
        assert failed.returncode and "nothing can listen" in failed.stderr and "Traceback" not in failed.stderr
        assert "the address is taken" in failed.stderr and "Something went wrong" not in failed.stderr


def test_missing_packages_are_not_blamed_on_a_model(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "perdure.surfaces.http.server", None)
    config = SimpleNamespace(server=ServerConfig(http="127.0.0.1:0"))
    serving = SimpleNamespace(home=SimpleNamespace(path=tmp_path, config=config))
    with pytest.raises(PackageMissing) as missing:
        Listener(serving).start()
    assert "perdure[server]" in str(missing.value) and "model" not in str(missing.value).lower()


def test_files_of_tls_that_cannot_be_used_are_named(tmp_path):
    """Neither is PEM: the certificate is named first."""
    for name in ("certificate", "key"):
        (tmp_path / name).write_text("nothing")
    settings = ServerConfig(
        http="127.0.0.1:0", tls_certificate=str(tmp_path / "certificate"), tls_key=str(tmp_path / "key")
    )
    with pytest.raises(ConfigFault, match=r"server\.tls_certificate = .*cannot be used"):
        check_certificate(settings)


def test_unresponsive_process_is_reported_by_its_number(tmp_path):
    with Resident(tmp_path / "home") as running:
        events.to_socket_path(tmp_path / "home").unlink()
        said = running.run("serve", "--stop", check=False)
        assert said.returncode and f"kill {running.said['pid']}" in said.stderr and "Traceback" not in said.stderr
        os.kill(running.said["pid"], signal.SIGTERM)


def test_acknowledged_captures_survive_a_kill(tmp_path, message):
    """kill -9 between captures: everything that got its 202 is there, once."""
    home, kept, size = tmp_path / "home", 0, 0
    running = Resident(home)
    secret = ""
    for round_ in range(3):
        with running:
            secret = secret or running.secret("laptop")
            for n in range(4):
                line = message("user", f"round {round_} line {n}", round_ * 10 + n)
                where = f"/api/runs?runtime=messages&session=s&from_offset={size}"
                status, said = running.ask(where, secret, line)
                assert status == 202, said
                size, kept = size + len(line), kept + 1
            os.kill(running.said["pid"], signal.SIGKILL)
            time.sleep(0.2)
    with perdure.open(home) as opened_:
        assert (
            sum(len(opened_.archive.read_lines(held)) for held in opened_.archive.ledger.list_runs(opened_.user))
            == kept
        )
        assert opened_.upkeep.verify().ok


def test_commands_of_the_guide_run(tmp_path):
    if shutil.which("curl") is None:
        pytest.skip("there is no curl to run the guide's lines with")
    blocks = re.findall(r"```sh\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    commands = [part for block in blocks for part in block.strip().split("\n\n")]
    assert len(commands) == 4
    with Resident(tmp_path / "home") as running:
        env = {**os.environ, "SECRET": running.secret("laptop")}
        for command in commands:
            said = ""
            for _ in range(100):  # what was kept is found a moment later
                line = command.replace("http://127.0.0.1:8787", running.address)
                said = subprocess.run(["sh", "-c", line], env=env, capture_output=True, text=True, check=True).stdout
                if ("search" not in command and "recall" not in command) or "8443" in said:
                    break
                time.sleep(0.1)
            assert "error" not in json.loads(said), said
        assert "8443" in json.loads(said)["block"]
