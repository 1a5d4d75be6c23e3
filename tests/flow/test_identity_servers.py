"""People of the AT Protocol at a home: they join by their DID, are revoked in two steps, and have no right by it alone.

On the recorded answers, and on a real server where `PERDURE_E2E_CLIENTS` says that there is one.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("uvicorn")

import perdure
from perdure.service.server import HomeServer, Intervals
from perdure.surfaces.http.server import HttpServer
from rig import pds

PASSWORD = "a-long-password-of-anna"
LINES = b'{"role": "user", "content": "The staging server listens on port 8443."}\n'

pytestmark = pytest.mark.timeout(1500)  # the real one may have to be installed first


@pytest.fixture(scope="module")
def real() -> Iterator[pds.RealNetwork]:
    with pds.start_real() as network:
        yield network


@pytest.fixture(params=["recorded", "real"])
def servers(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "real":
        yield request.getfixturevalue("real")
        return
    with pds.ScriptedNetwork() as network:
        yield network


@pytest.fixture
def recorded() -> Iterator[pds.ScriptedNetwork]:
    with pds.ScriptedNetwork() as network:
        yield network


class Place:
    """A served home, and the machines of people beside it."""

    def __init__(self, folder: Path, servers: Any) -> None:
        self.folder, self.servers, self.home = folder, servers, folder / "home"
        self.settings = (
            f'[identity]\nprivate = ["localhost"]\n[identity.atproto]\ndirectory = "{servers.directory}"\n'
            f'server = "{servers.server}"\n'
        )
        self.write_settings()
        self.url = ""

    def write_settings(self, admins: str = "") -> None:
        self.home.mkdir(mode=0o700, exist_ok=True)
        server = f'[server]\nhttp = "127.0.0.1:0"\nadmins = [{admins}]\n[models.embedder]\nkind = "off"\n'
        (self.home / "config.toml").write_text(f'user = "mira"\n{server}{self.settings}')

    def run(self, *words: str, at: str = "home", typed: str = "") -> subprocess.CompletedProcess[str]:
        folder = self.folder / at
        folder.mkdir(mode=0o700, exist_ok=True)
        if not (folder / "config.toml").exists():
            (folder / "config.toml").write_text(self.settings)
        env = {**os.environ, "PERDURE_HOME": str(folder), "HOME": str(self.folder), "COLUMNS": "200"}
        program = [sys.executable, "-m", "perdure.surfaces.cli", *words]
        return subprocess.run(program, env=env, input=typed, capture_output=True, text=True, timeout=120, check=False)

    def answer(self, *words: str, status: int = 0) -> Any:
        done = self.run(*words, "--json")
        assert done.returncode == status, done.stdout + done.stderr
        return json.loads(done.stdout)["result"]

    def join(self, machine: str, handle: str, password: str = PASSWORD) -> subprocess.CompletedProcess[str]:
        words = ("join", self.url, "--handle", handle, "--name", machine, "--no-hooks", "--secret-file", "-")
        return self.run(*words, at=machine, typed=f"{password}\n")

    def secret_of(self, machine: str) -> str:
        return str(json.loads((self.folder / machine / "auth.json").read_text())["token"])

    def ask(self, method: str, path: str, secret: str = "", body: bytes | None = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=60)
        connection.request(method, path, body, {"Authorization": f"Bearer {secret}"} if secret else {})
        response = connection.getresponse()
        status, raw = response.status, response.read()
        connection.close()
        return status, json.loads(raw)

    def capture(self, machine: str) -> int:
        return self.ask("POST", f"/api/runs?runtime=messages&session={machine}", self.secret_of(machine), LINES)[0]


@pytest.fixture
def serve() -> Iterator[Callable[[Place], Place]]:
    ends: list[Callable[[], object]] = []

    def start(place: Place) -> Place:
        home = perdure.open(place.home)
        serving = HomeServer(home, intervals=Intervals(round_s=0.2, prove_s=0.5, tick_s=3600))
        http_server = HttpServer(serving, home.sharing.open_authority())
        thread = threading.Thread(target=serving.run, daemon=True)
        place.url = http_server.start()
        thread.start()
        ends.extend([home.close, lambda: thread.join(60), serving.stop_event.set, http_server.stop])
        return place

    yield start
    for end in reversed(ends):
        end()


@pytest.fixture
def place(tmp_path: Path, servers: Any, serve: Callable[[Place], Place]) -> Place:
    return serve(Place(tmp_path, servers))


@pytest.fixture
def local_place(tmp_path: Path, recorded: pds.ScriptedNetwork, serve: Callable[[Place], Place]) -> Place:
    return serve(Place(tmp_path, recorded))


def test_one_of_two_machines_of_a_person_is_revoked(place: Place, grep) -> None:
    did = place.servers.create_account("anna.test", PASSWORD)
    assert place.answer("user", "link", "anna", "--did", "anna.test")["subject"] == did
    for machine in ("laptop", "desktop"):
        done = place.join(machine, "anna.test")
        assert done.returncode == 0 and f"This is {machine}, a machine of anna's" in done.stdout, done.stderr
        assert place.capture(machine) == 202
    assert grep(place.folder, PASSWORD.encode()) == []
    (laptop,) = (one for one in place.answer("machine", "list")["machines"] if one["name"] == "laptop")
    assert (laptop["user"], laptop["registered_by"][:2]) == ("anna", "p-")
    secret = place.secret_of("laptop")
    assert place.answer("machine", "revoke", "laptop")["app_password"] == "revoked"
    status, refused = place.ask("GET", "/api/me", secret)
    assert (status, refused["error"]["code"]) == (401, "unauthorized")
    assert (place.capture("laptop"), place.capture("desktop")) == (401, 202)
    assert place.answer("user", "check") == {
        "renamed": [], "revoked_there": [], "revoked": [], "waiting": [], "faults": [],
    }  # fmt: skip
    kept = json.loads((place.home / "app-passwords.json").read_text())
    assert [one["name"].split()[1] for one in kept.values()] == ["desktop"]


def test_a_revocation_holds_here_while_the_server_is_away(local_place: Place) -> None:
    place, network = local_place, local_place.servers
    did = network.create_account("anna.test", PASSWORD)
    place.answer("user", "link", "anna", "--did", "anna.test")
    assert place.join("laptop", "anna.test").returncode == 0
    network.is_away = True
    done = place.run("machine", "revoke", "laptop")
    assert done.returncode == 0 and "is still valid at the server of its person (localhost: status 503)" in done.stdout
    assert place.capture("laptop") == 401
    assert len(network.accounts[did].app_passwords) == 1
    assert "1 app password is still valid" in place.run("doctor").stdout
    tried_again = place.run("user", "check")
    assert tried_again.returncode == 1 and "Not possible: localhost: status 503." in tried_again.stdout
    network.is_away = False
    done = place.run("jobs", "trigger", "identities")
    assert done.returncode == 0 and "1 app password revoked" in done.stdout, done.stdout + done.stderr
    assert network.accounts[did].app_passwords == {}
    assert "app password" not in place.run("doctor").stdout
    assert json.loads((place.home / "app-passwords.json").read_text()) == {}


def test_a_password_that_the_person_revoked_ends_its_machine(place: Place) -> None:
    place.servers.create_account("ben.test", PASSWORD)
    place.answer("user", "link", "ben", "--did", "ben.test")
    assert place.join("laptop", "ben.test").returncode == 0
    assert place.answer("user", "check")["revoked_there"] == []
    (kept,) = json.loads((place.home / "app-passwords.json").read_text()).values()
    with perdure.open(place.home) as home:
        network = home.sharing.app_passwords.require_network()
        with network.open_session(network.find_person("ben.test"), PASSWORD) as session:
            network.revoke_app_password(session, kept["name"])
    assert place.capture("laptop") == 202
    assert place.answer("user", "check")["revoked_there"] == [kept["machine_id"]]
    assert place.capture("laptop") == 401


def test_a_new_handle_is_shown_and_nothing_else_changes(place: Place) -> None:
    did = place.servers.create_account("carla.test", PASSWORD)
    place.answer("user", "link", "carla", "--did", did)
    assert place.join("laptop", "carla.test").returncode == 0
    place.servers.rename("carla.test", PASSWORD, "carla-b.test")
    assert "carla: carla.test is now carla-b.test." in place.run("user", "check").stdout
    (carla,) = (one for one in place.answer("user", "list")["users"] if one["user"] == "carla")
    assert [(one["subject"], one["name"]) for one in carla["persons"]] == [(did, "carla-b.test")]
    assert place.capture("laptop") == 202


def test_who_is_not_linked_is_refused_and_nobody_is_asked(local_place: Place) -> None:
    place, network = local_place, local_place.servers
    did = network.create_account("eve.test", PASSWORD)
    done = place.join("laptop", "eve.test")
    assert done.returncode == 1 and f"linked to {did}: its owner links one with `perdure user link" in done.stderr
    assert not (place.folder / "laptop/auth.json").exists()
    assert network.accounts[did].app_passwords == {}, "the password that was made for nothing is revoked"
    n_asked = len(network.asked)
    proof = {"did": did, "app_password": PASSWORD, "password_name": "x", "machine": "y"}
    for _ in range(9):
        assert place.ask("POST", "/api/join", body=json.dumps(proof).encode())[0] == 403
    assert place.ask("POST", "/api/join", body=json.dumps(proof).encode())[0] == 429
    assert len(network.asked) == n_asked


def test_a_wrong_password_lets_nobody_in(local_place: Place) -> None:
    place, network = local_place, local_place.servers
    did = network.create_account("anna.test", PASSWORD)
    place.answer("user", "link", "anna", "--did", "anna.test")
    assert "did not accept the password" in place.join("laptop", "anna.test", "wrong").stderr
    proof = {"did": did, "app_password": "wrong", "password_name": "x", "machine": "y"}
    status, said = place.ask("POST", "/api/join", body=json.dumps(proof).encode())
    assert (status, said["error"]["code"]) == (403, "not-let-in") and "wrong" not in said["error"]["message"]
    assert place.answer("machine", "list")["machines"] == []


def test_an_admin_may_be_named_by_a_did(tmp_path: Path, recorded: pds.ScriptedNetwork, serve) -> None:
    place = Place(tmp_path, recorded)
    did = recorded.create_account("anna.test", PASSWORD)
    recorded.create_account("ben.test", PASSWORD)
    place.write_settings(admins=f'"{did}"')
    serve(place)
    for user in ("anna", "ben"):
        place.answer("user", "link", user, "--did", f"{user}.test")
        assert place.join(user, f"{user}.test").returncode == 0
    assert place.ask("GET", "/api/jobs", place.secret_of("anna"))[0] == 200
    assert place.ask("GET", "/api/jobs", place.secret_of("ben"))[0] == 403
    place.answer("user", "unlink", "anna")
    assert place.ask("GET", "/api/jobs", place.secret_of("anna"))[0] == 401


def test_the_end_of_a_link_ends_the_machines_that_joined_by_it(local_place: Place) -> None:
    place, network = local_place, local_place.servers
    did = network.create_account("anna.test", PASSWORD)
    place.answer("user", "link", "anna", "--did", "anna.test")
    assert place.join("laptop", "anna.test").returncode == 0
    place.answer("machine", "register", "--name", "own", "--user", "anna", "--no-write-auth")
    (revoked,) = place.answer("user", "unlink", "anna")["revoked"]
    assert (revoked["name"], revoked["app_password"]) == ("laptop", "revoked")
    assert place.capture("laptop") == 401 and network.accounts[did].app_passwords == {}
    assert [one["name"] for one in place.answer("machine", "list")["machines"]] == ["own"]
    assert place.join("again", "anna.test").returncode == 1


def test_an_erased_user_leaves_no_password(local_place: Place, grep) -> None:
    place, network = local_place, local_place.servers
    did = network.create_account("anna.test", PASSWORD)
    place.answer("user", "link", "anna", "--did", "anna.test")
    assert place.join("laptop", "anna.test").returncode == 0
    (app_password,) = network.accounts[did].app_passwords.values()
    assert grep(place.home, app_password.encode()) == ["app-passwords.json"]
    place.answer("forget", "--everything", "--user", "anna", "--yes")
    assert network.accounts[did].app_passwords == {}
    assert grep(place.home, app_password.encode()) == [] and grep(place.home, did.encode()) == []


def test_one_did_is_one_user(local_place: Place) -> None:
    place, network = local_place, local_place.servers
    network.create_account("anna.test", PASSWORD)
    network.create_account("ben.test", PASSWORD)
    place.answer("user", "link", "anna", "--did", "anna.test")
    for user, handle in (("ben", "anna.test"), ("anna", "ben.test")):
        done = place.run("user", "link", user, "--did", handle)
        assert done.returncode == 2 and "perdure user unlink" in done.stderr
    assert place.run("user", "link", "ben", "--did", "nobody.test").returncode == 1
    assert place.run("user", "link", "ben").returncode == 2


def test_without_settings_nothing_is_asked(tmp_path: Path) -> None:
    env = {**os.environ, "PERDURE_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    program = [sys.executable, "-m", "perdure.surfaces.cli", "user", "link", "anna", "--did", "anna.example"]
    done = subprocess.run(program, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "identity.atproto.directory" in done.stderr
