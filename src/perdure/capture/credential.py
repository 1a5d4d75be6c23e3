"""The credential of this machine: who it is to a home, and the secret that proves it.

Only its owner can read the file. `auth.json` is private from its first moment. A new one replaces the old
one in one step, and no copy of the old one is kept. A file that others can read is refused, because its
secret may be known to them by now.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import NamedTuple

from perdure import disk
from perdure.errors import CredentialFault

CREDENTIAL_FILE = "auth.json"  # its file name in a home
_MAX_BYTES = 65_536  # read of the file at most


class Credential(NamedTuple):
    """The proof of identity that a machine shows to a home."""

    user_id: str
    machine_id: str
    machine: str  # its name, as runs carry it
    token: str  # the secret
    url: str = ""  # address of the home; "" for the home that holds this file


def read_credential(home: Path) -> Credential | None:
    """Return the credential in a home, or None where there is none. Raises CredentialFault."""
    path = home / CREDENTIAL_FILE
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CredentialFault(f"{path}: {error}") from error
    try:
        _refuse_exposed(path, os.fstat(descriptor))
        return _decode(path, os.read(descriptor, _MAX_BYTES))
    finally:
        os.close(descriptor)


def _refuse_exposed(path: Path, file_stat: os.stat_result) -> None:
    mode = stat.S_IMODE(file_stat.st_mode)
    if not stat.S_ISREG(file_stat.st_mode):
        raise CredentialFault(f"{path} is not a file")
    if mode & 0o077:
        raise CredentialFault(f"{path} is open to other users (mode {mode:o})")
    if file_stat.st_uid != os.geteuid():
        raise CredentialFault(f"{path} belongs to another user of this system")


def _decode(path: Path, raw: bytes) -> Credential:
    try:
        fields = json.loads(raw)
        credential = Credential(**{name: fields[name] for name in Credential._fields})
    except (ValueError, KeyError, TypeError) as error:
        raise CredentialFault(f"{path} is not a valid credential file") from error
    if not all(isinstance(value, str) for value in credential) or not credential.token:
        raise CredentialFault(f"{path} is not a valid credential file")
    return credential


def write_credential(home: Path, credential: Credential, *, overwrite: bool = False) -> Path:
    """Store a credential; return its path. Raises CredentialFault.

    overwrite: also replace the credential of another home.
    """
    path = home / CREDENTIAL_FILE
    if not overwrite:
        check_same_home(home, credential.url)
    disk.make_folder(home)
    disk.replace_file(path, json.dumps(credential._asdict()).encode() + b"\n")
    return path


def check_same_home(home: Path, url: str) -> None:
    """Raise CredentialFault if the file is the credential of another home, or cannot be read: it stays."""
    stored = read_credential(home)
    if stored is not None and stored.url != url:
        raise _make_conflict_fault(home, stored.url or "this home")


def check_same_owner(home: Path, credential: Credential) -> None:
    """Raise CredentialFault if the file is the credential of another person or another machine: it stays."""
    stored = read_credential(home)
    if stored is not None and (stored.user_id, stored.machine_id) != (credential.user_id, credential.machine_id):
        raise _make_conflict_fault(home, f"{stored.user_id} @{stored.machine}")


def read_owner(home: Path) -> str:
    """Return the user of the credential, who is the one captured here; "" where it cannot be read."""
    try:
        stored = read_credential(home)
    except CredentialFault:
        return ""
    return stored.user_id if stored is not None else ""


def _make_conflict_fault(home: Path, owner_name: str) -> CredentialFault:
    return CredentialFault(f"{home / CREDENTIAL_FILE} is the credential of {owner_name}; --replace replaces it")
