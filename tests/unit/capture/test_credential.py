"""The credential of a machine: whole, its owner's alone from the first moment, and never beside itself."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from perdure.capture import credential
from perdure.capture.credential import Credential
from perdure.errors import CredentialFault

ONE = Credential("joel", "m1", "laptop", "pdr-secret", "https://home.example")


def test_credential_reads_back_as_written(tmp_path: Path) -> None:
    assert credential.read_credential(tmp_path) is None
    path = credential.write_credential(tmp_path, ONE)
    assert credential.read_credential(tmp_path) == ONE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_loose_umask_keeps_the_file_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = credential.write_credential(tmp_path, ONE)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602, 0o610])
def test_one_that_others_reach_is_refused(tmp_path: Path, mode: int) -> None:
    credential.write_credential(tmp_path, ONE).chmod(mode)
    with pytest.raises(CredentialFault, match="chmod 600"):
        credential.read_credential(tmp_path)


@pytest.mark.parametrize("said", [b"", b"[]", b"{}", b"null", b'{"user_id": 1}', b"\xff", b'"\\ud800"'])
def test_malformed_credential_is_refused(tmp_path: Path, said: bytes) -> None:
    credential.write_credential(tmp_path, ONE).write_bytes(said)
    with pytest.raises(CredentialFault):
        credential.read_credential(tmp_path)


def test_credential_of_another_home_is_kept_unless_replaced(tmp_path: Path) -> None:
    credential.write_credential(tmp_path, ONE)
    other = ONE._replace(token="pdr-other", url="https://elsewhere.example")
    with pytest.raises(CredentialFault, match=r"--replace"):
        credential.write_credential(tmp_path, other)
    assert credential.read_credential(tmp_path) == ONE
    credential.write_credential(tmp_path, other, overwrite=True)
    assert credential.read_credential(tmp_path) == other


def test_new_credential_of_the_same_home_replaces_the_old(tmp_path: Path) -> None:
    credential.write_credential(tmp_path, ONE)
    credential.write_credential(tmp_path, ONE._replace(token="pdr-newer"))
    assert [path.name for path in tmp_path.iterdir()] == [credential.CREDENTIAL_FILE]
    assert "pdr-secret" not in (tmp_path / credential.CREDENTIAL_FILE).read_text()


def test_credential_that_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / credential.CREDENTIAL_FILE).mkdir(mode=0o700)
    with pytest.raises(CredentialFault, match="not a file"):
        credential.read_credential(tmp_path)
    (tmp_path / credential.CREDENTIAL_FILE).rmdir()
    os.mkfifo(tmp_path / credential.CREDENTIAL_FILE, 0o600)
    with pytest.raises(CredentialFault, match="not a file"):
        credential.read_credential(tmp_path)
