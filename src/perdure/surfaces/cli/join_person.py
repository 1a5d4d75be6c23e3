"""Join a home as a person of the AT Protocol: their own server makes an app password for this machine."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from perdure import config as settings
from perdure.capture import remote
from perdure.capture.policy import RemoteSettings
from perdure.errors import IdentityRefused, RemoteNonsense, RemoteRefused, UsageError
from perdure.identity_servers.atproto import PLC_DIRECTORY, AtprotoNetwork
from perdure.identity_servers.guarded_request import make_rules
from perdure.surfaces.cli.common import read_text


def join_as_person(
    home: Path, remote_settings: RemoteSettings, handle: str, machine: str | None, secret_file: str | None
) -> str:
    """Prove to the home that this machine belongs to a person; return the secret that the home gives it.

    The person's password goes to their own server alone; the home gets the app password that the server makes. machine:
    its name; default: that of the settings. Raises IdentityFault, RemoteFault.
    """
    config = settings.load(home)
    rules = make_rules(config.identity)._replace(is_all_private=remote_settings.plain)
    if remote_settings.ca:
        rules = rules._replace(ca=remote_settings.ca)
    network = AtprotoNetwork(config.identity.atproto.directory or PLC_DIRECTORY, config.identity.atproto.server, rules)
    person = network.find_person(handle)
    label = f"Password of {person.handle or person.did} at {urlsplit(person.server).hostname} (it goes only there)"
    password = read_text(secret_file, label).rstrip("\r\n")
    machine = machine or config.machine
    with network.open_session(person, password) as session:
        password_name = f"perdure {machine[:64]} {secrets.token_hex(3)}"
        app_password = network.create_app_password(session, password_name)
        try:
            return _ask_to_join(
                remote_settings,
                {"did": person.did, "app_password": app_password, "password_name": password_name, "machine": machine},
            )
        except BaseException:
            network.revoke_app_password(session, password_name)
            raise


def _ask_to_join(remote_settings: RemoteSettings, proof: Mapping[str, str]) -> str:
    """Return the secret that the home gives for a proof. Raises IdentityRefused, UsageError, RemoteFault."""
    connection = remote.RemoteConnection(remote_settings)
    try:
        response = connection.ask("POST", "join", body=proof)
    except RemoteRefused as error:
        raise IdentityRefused(f"{remote_settings.url}: {error.reason or error.detail}; nothing was changed") from error
    finally:
        connection.close()
    if response.status == 400:
        raise UsageError(f"{remote_settings.url}: {response.message}; nothing was changed")
    secret = response.body.get("secret") if response.status == 201 else None
    if not isinstance(secret, str):
        raise RemoteNonsense(f"{remote_settings.url}: status {response.status} to the request `join`")
    return secret
