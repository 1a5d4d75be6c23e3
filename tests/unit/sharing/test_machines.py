"""Machines: a secret is known by its hash alone, and a revocation counts at once, whoever made it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from perdure.archive.journal import Journal
from perdure.errors import NotFound, UsageError
from perdure.sharing.grants import MACHINE, GrantCache
from perdure.sharing.machines import SECRET_PREFIX, LocalAuthority, Machines, hash_secret

NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


def machines(home: Path) -> Machines:
    return Machines(home, GrantCache(home), now=lambda: NOW)


def journal(home: Path, user: str) -> Journal:
    return Journal(home / "archive" / "journal" / user, home=home)


def test_machine_acts_for_its_user(tmp_path: Path) -> None:
    machine, secret = machines(tmp_path).register("bob", "laptop")
    found = LocalAuthority(tmp_path, ["joel"]).identify(secret)
    assert found is not None
    assert (found.user, found.machine, found.machine_id) == ("bob", "laptop", machine.machine_id)
    assert not found.is_admin
    assert machine.registered_at == NOW


def test_machines_of_admins_see_to_the_whole_home(tmp_path: Path) -> None:
    _, secret = machines(tmp_path).register("joel", "laptop")
    found = LocalAuthority(tmp_path, ["joel"]).identify(secret)
    assert found is not None and found.is_admin


def test_secret_has_256_bits_and_fits_a_url(tmp_path: Path) -> None:
    made = [machines(tmp_path).register("joel", f"m{n}")[1] for n in range(20)]
    assert len(set(made)) == 20
    for secret in made:
        body = secret.removeprefix(SECRET_PREFIX)
        assert secret != body and len(body) == 43  # ceil(256 / 6) characters of base 64
        assert all(char.isalnum() or char in "-_" for char in body)


def test_no_file_of_the_home_holds_the_secret(tmp_path: Path) -> None:
    _, secret = machines(tmp_path).register("joel", "laptop")
    assert LocalAuthority(tmp_path, []).identify(secret)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(hash_secret(secret).encode() in path.read_bytes() for path in files)
    assert not any(secret.removeprefix(SECRET_PREFIX).encode() in path.read_bytes() for path in files)


@pytest.mark.parametrize(
    "secret",
    ["", "pdr-", "dev", "admin", "test", "pdr-dev", "Bearer", "0" * 64, "pdr-" + "A" * 43, "pdr-\udc80", "x" * 10**6],
)
def test_no_secret_is_built_in(tmp_path: Path, secret: str) -> None:
    home = machines(tmp_path)
    assert LocalAuthority(tmp_path, ["joel"]).identify(secret) is None
    home.register("joel", "laptop")
    assert LocalAuthority(tmp_path, ["joel"]).identify(secret) is None


def test_hash_of_a_secret_is_not_accepted(tmp_path: Path) -> None:
    _, secret = machines(tmp_path).register("joel", "laptop")
    authority = LocalAuthority(tmp_path, [])
    assert authority.identify(secret)
    for other in (
        hash_secret(secret),
        SECRET_PREFIX + hash_secret(secret),
        secret[:-1],
        secret + "A",
        secret.upper(),
        f" {secret}",
    ):
        assert authority.identify(other) is None


def test_a_revocation_counts_at_the_next_question(tmp_path: Path) -> None:
    known = machines(tmp_path)
    _, secret = known.register("joel", "laptop")
    _, other = known.register("joel", "desk")
    authority = LocalAuthority(tmp_path, [])
    assert authority.identify(secret)
    known.revoke("laptop")
    assert authority.identify(secret) is None
    assert authority.identify(other)


def test_revocation_by_another_process_counts_at_once(tmp_path: Path) -> None:
    _, secret = machines(tmp_path).register("joel", "laptop")
    stopped = GrantCache(tmp_path, clock=lambda: 0.0)  # no second ever passes: only the noted change can show it
    authority = LocalAuthority(tmp_path, [], cache=stopped)
    assert authority.identify(secret)
    program = (
        "import sys; from pathlib import Path; from perdure.sharing.machines import Machines;"
        "from perdure.sharing.grants import GrantCache;"
        "home = Path(sys.argv[1]); Machines(home, GrantCache(home)).revoke('laptop')"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    assert authority.identify(secret) is None


def test_revocation_without_a_signal_counts_within_a_second(tmp_path: Path) -> None:
    machine, secret = machines(tmp_path).register("joel", "laptop")
    clock = [0.0]
    authority = LocalAuthority(tmp_path, [], cache=GrantCache(tmp_path, clock=lambda: clock[0]))
    assert authority.identify(secret)
    journal(tmp_path, "joel").append(MACHINE, {"op": "revoke", "machine_id": machine.machine_id}, now=NOW)
    clock[0] = 1.0
    assert authority.identify(secret) is None


def test_revocation_counts_in_any_file(tmp_path: Path) -> None:
    secret = "pdr-" + "B" * 43
    journal(tmp_path, "joel").append(MACHINE, {"op": "revoke", "machine_id": "m-1"}, now=NOW)
    later = NOW + timedelta(days=1)
    data = {"op": "register", "machine_id": "m-1", "name": "laptop", "sha256": hash_secret(secret)}
    journal(tmp_path, "joel").append(MACHINE, data, now=later)
    assert LocalAuthority(tmp_path, []).identify(secret) is None


def test_machine_counts_only_in_the_home_that_registered_it(tmp_path: Path) -> None:
    here, there, copy = tmp_path / "here", tmp_path / "there", tmp_path / "copy"
    for home in (here, there):
        home.mkdir()
    _, secret = machines(here).register("joel", "desk")
    _, foreign = machines(there).register("joel", "evil")
    journal(here, "joel").merge_from(there / "archive" / "journal" / "joel")
    authority = LocalAuthority(here, [])
    assert authority.identify(secret) and not authority.identify(foreign)
    assert [one.name for one in machines(here).list_machines()] == ["desk"]
    shutil.copytree(here, copy)
    _, later = machines(copy).register("joel", "phone")  # by a writer of its own
    authority = LocalAuthority(copy, [])
    assert authority.identify(secret) and authority.identify(later) and not authority.identify(foreign)


def test_revocation_made_in_any_home_counts(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    machine, secret = machines(here).register("joel", "desk")
    shutil.copytree(here, there)
    machines(there).revoke(machine.machine_id)
    journal(here, "joel").merge_from(there / "archive" / "journal" / "joel")
    assert not LocalAuthority(here, []).identify(secret)


def test_home_without_a_list_of_writers_is_trusted(tmp_path: Path) -> None:
    """As earlier versions made it: its present writer counts, also when it is then copied."""
    home, copy = tmp_path / "home", tmp_path / "copy"
    home.mkdir()
    _, secret = machines(home).register("joel", "desk")
    (home / "writers").unlink()
    assert LocalAuthority(home, []).identify(secret)
    shutil.copytree(home, copy)
    machines(copy).register("joel", "phone")
    assert LocalAuthority(copy, []).identify(secret)


def test_other_user_cannot_revoke(tmp_path: Path) -> None:
    machine, secret = machines(tmp_path).register("joel", "laptop")
    journal(tmp_path, "eve").append(MACHINE, {"op": "revoke", "machine_id": machine.machine_id}, now=NOW)
    assert LocalAuthority(tmp_path, []).identify(secret)
    with pytest.raises(NotFound):
        machines(tmp_path).revoke(machine.machine_id, "eve")


@pytest.mark.parametrize(
    "data", [{}, {"op": "register"}, {"op": "register", "machine_id": 1}, {"op": ["x"]}, {"op": "?"}]
)
def test_incomplete_event_is_skipped(tmp_path: Path, data: dict[str, object]) -> None:
    journal(tmp_path, "joel").append(MACHINE, data, now=NOW)
    _, secret = machines(tmp_path).register("joel", "laptop")
    assert LocalAuthority(tmp_path, []).identify(secret)


def test_name_is_used_once_until_it_is_revoked(tmp_path: Path) -> None:
    known = machines(tmp_path)
    first, _ = known.register("joel", "laptop")
    known.register("bob", "laptop")
    with pytest.raises(UsageError, match="revoke"):
        known.register("joel", "laptop")
    known.revoke(first.machine_id)
    second, _ = known.register("joel", "laptop")
    assert [one.machine_id for one in known.list_machines("joel")] == [second.machine_id]
    assert len(known.list_machines("joel", include_revoked=True)) == 2


def test_a_name_of_several_users_is_not_guessed(tmp_path: Path) -> None:
    known = machines(tmp_path)
    known.register("joel", "laptop")
    bobs, _ = known.register("bob", "laptop")
    with pytest.raises(UsageError, match=bobs.machine_id):
        known.revoke("laptop")
    assert known.revoke("laptop", "bob").revoked_at
    with pytest.raises(NotFound):
        known.revoke("desk")


@pytest.mark.parametrize("user", ["", "..", "a/b", ".hidden", "a\n", "x" * 65])
def test_user_name_that_is_no_folder_name_is_refused(tmp_path: Path, user: str) -> None:
    with pytest.raises(UsageError):
        machines(tmp_path).register(user, "laptop")
    assert not (tmp_path / "archive").exists()


@pytest.mark.parametrize("name", ["", " ", "a\n", "a\x1b[2J", "x" * 65, "a/b"])
def test_unreadable_machine_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        machines(tmp_path).register("joel", name)


def test_list_of_machines_is_only_a_cache(tmp_path: Path) -> None:
    _, secret = machines(tmp_path).register("joel", "laptop")
    assert LocalAuthority(tmp_path, []).identify(secret)
    kept = tmp_path / "run" / "authority.json"
    assert kept.exists()
    kept.write_bytes(b"{")
    assert LocalAuthority(tmp_path, []).identify(secret)
    kept.unlink()
    (tmp_path / "run" / "authority.changes").unlink()
    assert LocalAuthority(tmp_path, []).identify(secret)


def test_authority_opens_no_index_no_model_and_no_ledger(tmp_path: Path) -> None:
    _, secret = machines(tmp_path).register("joel", "laptop")
    program = (
        "import sys; from pathlib import Path; from perdure.sharing.machines import LocalAuthority;"
        "assert LocalAuthority(Path(sys.argv[1]), []).identify(sys.argv[2]).user == 'joel';"
        "loaded = {'apsw', 'numpy', 'sqlite3', 'onnxruntime', 'perdure.archive.store', 'perdure.index.store'};"
        "assert not loaded & set(sys.modules), loaded & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path), secret], check=True)


def test_one_authority_serves_many_threads(tmp_path: Path) -> None:
    known = machines(tmp_path)
    secrets = [known.register("joel", f"m{n}")[1] for n in range(8)]
    authority, wrong = LocalAuthority(tmp_path, []), []

    def ask(secret: str, name: str) -> None:
        for _ in range(200):
            found = authority.identify(secret)
            if found is None or found.machine != name:
                wrong.append(name)

    threads = [threading.Thread(target=ask, args=(secret, f"m{n}")) for n, secret in enumerate(secrets)]
    for thread in threads:
        thread.start()
    known.register("bob", "new")
    for thread in threads:
        thread.join()
    assert not wrong
