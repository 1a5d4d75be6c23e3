"""Machines and sharing from the command line: what is printed once, what is written, what is refused."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.capture import credential
from perdure.errors import Busy
from perdure.sharing.grants import GRANT, record_event
from perdure.sharing.machines import LocalAuthority


def run(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PERDURE_HOME": str(home), "HOME": str(home.parent), "TZ": "UTC", "COLUMNS": "100"}
    program = [sys.executable, "-m", "perdure.surfaces.cli", *words]
    return subprocess.run(program, env=env, capture_output=True, text=True, timeout=120, check=False)


def answer(home: Path, *words: str) -> dict[str, Any]:
    done = run(home, *words, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["result"]
    return found


@pytest.fixture
def home(tmp_path: Path, message) -> Path:
    place = tmp_path / "home"
    place.mkdir(mode=0o700)
    (place / "config.toml").write_text('user = "mira"\n')
    with perdure.open(place) as opened:
        opened.capture(message("user", "The pear tree blossoms"), runtime="messages", session="a", tags=["orchard"])
    return place


def test_registration_shows_its_secret_once_and_keeps_it_private(home: Path, grep) -> None:
    made = answer(home, "machine", "register", "--name", "laptop", "--url", "https://home.example/")
    secret = made["secret"]
    assert made["join"] == "perdure join https://home.example"
    kept = credential.read_credential(home)
    assert kept == ("mira", made["machine_id"], "laptop", secret, "https://home.example")
    assert stat.S_IMODE((home / "auth.json").stat().st_mode) == 0o600
    assert grep(home, secret.encode()) == ["auth.json"]
    assert secret not in run(home, "machine", "list", "--all", "--json").stdout
    assert LocalAuthority(home, ["mira"]).identify(secret).is_admin


def test_without_the_file_only_the_reader_has_the_secret(home: Path, grep) -> None:
    shown = run(home, "machine", "register", "--name", "phone", "--user", "bob", "--no-write-auth")
    (secret,) = [word for word in shown.stdout.split() if word.startswith("pdr-")]
    assert "perdure join URL" in shown.stdout
    assert grep(home, secret.encode()) == []
    found = LocalAuthority(home, ["mira"]).identify(secret)
    assert (found.user, found.machine, found.is_admin) == ("bob", "phone", False)
    assert [one["user"] for one in answer(home, "machine", "list")["machines"]] == ["bob"]
    answer(home, "machine", "revoke", "phone")
    assert LocalAuthority(home, ["mira"]).identify(secret) is None


def test_a_credential_of_another_home_stays(home: Path) -> None:
    answer(home, "machine", "register", "--name", "one", "--url", "https://home.example")
    before = credential.read_credential(home)
    refused = run(home, "machine", "register", "--name", "two", "--url", "https://elsewhere.example")
    assert refused.returncode == 3 and "--replace" in refused.stderr
    assert credential.read_credential(home) == before
    assert [one["name"] for one in answer(home, "machine", "list")["machines"]] == ["one"]
    answer(home, "machine", "register", "--name", "two", "--url", "https://elsewhere.example", "--replace")
    assert credential.read_credential(home).machine == "two"


def test_a_name_is_used_once(home: Path) -> None:
    answer(home, "machine", "register", "--name", "laptop", "--no-write-auth")
    refused = run(home, "machine", "register", "--name", "laptop", "--no-write-auth")
    assert refused.returncode == 2 and "revoke" in refused.stderr and "pdr-" not in refused.stdout


def test_grant_is_reported_and_listed(home: Path) -> None:
    run_id = answer(home, "search", "pear")["hits"][0]["run_id"]
    shown = run(home, "share", "run", run_id[:12], "--with", "bob", "--until", "30d")
    assert "1 run now, and runs that are added later. Secrets are masked." in shown.stdout
    made = answer(home, "share", "tag", "orchard", "--with", "bob")
    assert made["runs_now"] == 1 and made["until_at"] is None
    assert answer(home, "share", "tag", "nothing-yet", "--with", "bob")["runs_now"] == 0
    listed = answer(home, "share", "list")
    assert [(one["scope"], one["value"]) for one in listed["given"]] == [
        ("run", run_id), ("tag", "orchard"), ("tag", "nothing-yet"),
    ]  # fmt: skip
    with perdure.open(home, user="bob") as bob:
        assert len(bob.principal.granted) == 3
    answer(home, "share", "revoke", made["grant_id"])
    assert len(answer(home, "share", "list")["given"]) == 2
    with perdure.open(home, user="bob") as bob:
        assert "orchard" not in [grant.value for grant in bob.principal.granted]


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("run", "zzzzzz", "--with", "bob"), 4),
        (("tag", "orchard", "--with", "mira"), 2),
        (("tag", "orchard", "--with", "../bob"), 2),
        (("tag", "orchard", "--with", "bob", "--until", "2020-01-01"), 2),
        (("project", "no-such-project", "--with", "bob"), 2),
        (("revoke", "g-0000000000000000"), 4),
    ],
)
def test_invalid_grant_is_refused(home: Path, words: tuple[str, ...], status: int) -> None:
    done = run(home, "share", *words)
    assert done.returncode == status, done.stdout + done.stderr
    assert answer(home, "share", "list")["given"] == []


def test_a_user_leaves_by_two_commands(home: Path, tmp_path: Path, message, grep) -> None:
    with perdure.open(home, user="bob") as bob:
        bob.capture(message("user", "The wombat digs"), runtime="messages", session="b")
    assert answer(home, "export", "--user", "bob", str(tmp_path / "bob"))["runs"] == 1
    assert answer(home, "forget", "--everything", "--user", "bob", "--yes")["runs"] == 1
    assert grep(home, b"wombat") == []
    assert answer(tmp_path / "bob", "search", "wombat")["hits"]
    assert run(home, "forget", "t123456", "--user", "bob", "--yes").returncode == 2


def test_unknown_user_is_reported(home: Path, tmp_path: Path, message) -> None:
    with perdure.open(home, user="bob") as bob:
        bob.capture(message("user", "The wombat digs"), runtime="messages", session="b")
    assert run(home, "share", "tag", "orchard", "--with", "bob").stderr == ""
    warned = run(home, "share", "tag", "orchard", "--with", "carl")
    assert warned.returncode == 0 and "This home has no user carl yet" in warned.stderr
    refused = run(home, "share", "tag", "orchard", "--with", "Bob")
    assert refused.returncode == 2 and "but 'bob'" in refused.stderr
    before = {path for path in home.rglob("*") if "run" not in path.parts}
    assert run(home, "export", "--user", "nosuch", str(tmp_path / "out")).returncode == 4
    assert run(home, "forget", "--everything", "--user", "nosuch", "--yes").returncode == 4
    assert not (tmp_path / "out").exists()
    assert {path for path in home.rglob("*") if "run" not in path.parts} == before


def test_erasure_stopped_by_a_kill_is_finished(home: Path, monkeypatch) -> None:
    with perdure.open(home, user="bob") as bob:
        bob.journal().append("note", {}, now=datetime.now(UTC))

        def busy() -> None:
            raise Busy

        monkeypatch.setattr(bob.archive.ledger, "wipe", busy)
        with pytest.raises(Busy):
            bob.forgetting.erase_user()
    assert run(home, "forget", "--everything", "--user", "bob", "--yes").returncode == 0
    assert run(home, "forget", "--everything", "--user", "bob", "--yes").returncode == 4


def test_printed_text_has_no_control_characters(home: Path) -> None:
    data = {"op": "give", "grant_id": "g-\x1b[31m1", "grantee": "mira", "scope": "tag", "value": "a\x9b2Jb\u202e"}
    with perdure.open(home, user="bob") as bob:
        record_event(home, bob.user, GRANT, data, now=datetime.now(UTC))
    shown = run(home, "share", "list").stdout
    assert "g-1  from bob: tag ab, until it is revoked" in shown


def test_unknown_ids_and_addresses_give_advice(home: Path) -> None:
    assert "perdure machine list" in run(home, "machine", "revoke", "nosuch").stderr
    assert "perdure share list" in run(home, "share", "revoke", "g-0").stderr
    with (home / "config.toml").open("a") as config:
        config.write('[server]\nhttp = "127.0.0.1:8787"\n')
    shown = run(home, "machine", "register", "--name", "phone", "--no-write-auth").stdout
    assert "perdure join http://127.0.0.1:8787" in shown
    found = answer(home, "status")
    assert (found["http"], found["machines"]) == ("http://127.0.0.1:8787", 1)
    assert "http://127.0.0.1:8787, once `perdure serve` runs" in run(home, "status").stdout
    checks = {one["name"]: one["found"] for one in json.loads(run(home, "doctor", "--json").stdout)["result"]["checks"]}
    assert checks["http"].startswith("http://127.0.0.1:8787") and checks["machines"] == "1 machine registered"


# notes of a team ----------------------------------------------------------------------------------------------


@pytest.fixture
def worktree(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = home.parent / "web"
    (folder / ".git").mkdir(parents=True)
    (folder / "src").mkdir()
    monkeypatch.chdir(folder / "src")
    return folder


def test_a_memory_goes_to_the_team_and_comes_back(home: Path, worktree: Path) -> None:
    key = "ghp_9Qx2badgerR7tLw4Zk1Vn8Yc3Hs6Jd0Bf5Mg"
    run(home, "remember", f"The staging server listens on port 7070; its key is {key}", "--path", "staging/port")
    shared = ("share", "memory", "staging/port", "--to", "repo")
    assert answer(home, *shared, "--dry-run")["written"] is False and not (worktree / ".perdure").exists()
    assert len(answer(home, *shared)["lines"]) == 1
    assert "1 memory stood there already" in run(home, *shared).stdout
    note = worktree / ".perdure/notes/team.md"
    assert note.read_text().count("port 7070") == 1 and key not in note.read_text()
    assert note.read_text().startswith("# Team notes\n\n- The staging server listens on port 7070; its key is [secret:")

    colleague = home.parent / "colleague"
    run(colleague, "import")
    told = run(colleague, "recall", "which port does the staging server listen on?").stdout
    assert "port 7070" in told and f"(from {note})" in told
    (hit,) = answer(colleague, "search", "staging", "port", "7070")["hits"]
    assert (hit["runtime"], hit["project"]) == ("host-memory", str(worktree))


def test_notes_are_written_only_into_a_repository(home: Path, worktree: Path) -> None:
    run(home, "remember", "The staging server listens on port 7070", "--path", "staging/port")
    shared = ("share", "memory", "staging/port", "--to", "repo")
    for name in ("../x.md", "x.txt", ".x.md", "a/b.md"):
        assert "no name for a file of notes" in run(home, *shared, "--file", name).stderr
    elsewhere = home.parent / "elsewhere"
    elsewhere.mkdir()
    (worktree / ".perdure").symlink_to(elsewhere)
    assert "is a link" in run(home, *shared).stderr and not list(elsewhere.iterdir())
    (worktree / ".perdure").unlink()
    (worktree / ".git").rmdir()
    assert "no git repository" in run(home, *shared).stderr and not (worktree / ".perdure").exists()
