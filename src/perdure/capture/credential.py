"""The credential of this machine: who it is to a home, and the secret that proves it. A file of its owner alone.

`auth.json` is readable to nobody else from its first moment, a new one takes the place of the old in one step, and
nothing beside it keeps what it said. One that others can read is refused, because its secret may be theirs by now.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import NamedTuple

from perdure.capture import files
from perdure.errors import CredentialFault

NAME = "auth.json"  # in a home
_MOST_BYTES = 65_536  # that one can have


class Credential(NamedTuple):
    """What a machine shows to a home."""

    user_id: str
    machine_id: str
    machine: str  # its name, as runs carry it
    token: str  # the secret
    url: str = ""  # where the home answers; "" for the home in which the file lies


def read(home: Path) -> Credential | None:
    """The credential that lies in a home; None where there is none. Raises CredentialFault."""
    path = home / NAME
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CredentialFault(f"{path}: {error}") from error
    try:
        _refuse_exposed(path, os.fstat(descriptor))
        return _decoded(path, os.read(descriptor, _MOST_BYTES))
    finally:
        os.close(descriptor)


def _refuse_exposed(path: Path, found: os.stat_result) -> None:
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISREG(found.st_mode):
        raise CredentialFault(f"{path} is no file")
    if mode & 0o077:
        raise CredentialFault(f"{path} can be reached by others (mode {mode:o})")
    if found.st_uid != os.geteuid():
        raise CredentialFault(f"{path} belongs to another user of this system")


def _decoded(path: Path, raw: bytes) -> Credential:
    try:
        said = json.loads(raw)
        found = Credential(**{name: said[name] for name in Credential._fields})
    except (ValueError, KeyError, TypeError) as error:
        raise CredentialFault(f"{path} does not say what it should") from error
    if not all(isinstance(value, str) for value in found) or not found.token:
        raise CredentialFault(f"{path} does not say what it should")
    return found


def write(home: Path, credential: Credential, *, anew: bool = False) -> Path:
    """Keep a credential; returns where. anew: in the place of one of another home, too. Raises CredentialFault."""
    path = home / NAME
    if not anew:
        check_place(home, credential.url)
    files.make_folder(home)
    files.replace(path, json.dumps(credential._asdict()).encode() + b"\n")
    return path


def check_place(home: Path, url: str) -> None:
    """Raise CredentialFault where the credential of another home lies, or one that cannot be read: it stays."""
    known = read(home)
    if known is not None and known.url != url:
        raise _taken(home, known.url or "this very home")


def check_owner(home: Path, credential: Credential) -> None:
    """Raise CredentialFault where the credential of another person or another machine lies: it stays."""
    known = read(home)
    if known is not None and (known.user_id, known.machine_id) != (credential.user_id, credential.machine_id):
        raise _taken(home, f"{known.user_id} @{known.machine}")


def owner(home: Path) -> str:
    """Whose words are captured here: the user of the credential; "" where none can be read."""
    try:
        known = read(home)
    except CredentialFault:
        return ""
    return known.user_id if known is not None else ""


def _taken(home: Path, whose: str) -> CredentialFault:
    return CredentialFault(f"{home / NAME} is the credential of {whose}; --replace puts the new one in its place")
