"""People of the AT Protocol: DIDs, handles, and the password of an app on a person's own server.

A person is a DID (did:plc, did:web), for ever. A handle is a name of it, believed only where the handle names the DID
and the document of the DID names the handle. Documents and handles are written by strangers, so every request is
guarded. No password and no token is kept, logged or part of an error. Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from perdure.errors import IdentityFault, IdentityRefused, IdentityServerAway
from perdure.identity_servers.guarded_request import RequestRules, ask_json, parse_address, send_guarded

PLC_DIRECTORY = "https://plc.directory"  # where did:plc of most people are
_PLC_DID = re.compile(r"did:plc:[a-z2-7]{24}\Z")
_WEB_DID = re.compile(r"did:web:([a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?(?:%3A[0-9]{1,5})?)\Z")
_HANDLE = re.compile(r"(?=.{1,253}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")
_DEAD_PASSWORD = ("AuthenticationRequired", "AccountTakedown")  # errors of a password that opens nothing any more


@dataclass(frozen=True, slots=True)
class AtprotoPerson:
    """A person of the AT Protocol, as their document and their handle say now."""

    did: str
    handle: str  # "" if the handle and the DID do not name each other
    server: str  # the address of their server


@dataclass(frozen=True, slots=True)
class AtprotoSession:
    """A session at the server of a person. Its tokens stand in no text of it."""

    person: AtprotoPerson
    access_token: str = field(repr=False)
    refresh_token: str = field(repr=False)


def is_did(name: str) -> bool:
    """Return True for a DID of a method that the AT Protocol uses.

    >>> [is_did(name) for name in ("did:web:anna.example", "did:key:z6Mk", "anna.example")]
    [True, False, False]
    """
    return bool(_PLC_DID.match(name) or _WEB_DID.match(name))


class AtprotoNetwork:
    """The directory, the web sites and the servers by which people of the AT Protocol are found."""

    def __init__(self, directory: str, handle_server: str = "", rules: RequestRules | None = None) -> None:
        """directory: of did:plc. handle_server: finds the DID of a handle; "": the web site of the handle."""
        self._directory = directory.rstrip("/")
        self._handle_server = handle_server.rstrip("/")
        self._rules = rules or RequestRules()

    # who it is ------------------------------------------------------------------------------------------------------

    def find_person(self, name: str) -> AtprotoPerson:
        """Return the person of a DID or a handle.

        The document of its DID must confirm a handle. Raises IdentityRefused, IdentityFault, IdentityServerAway.
        """
        name = name.strip().removeprefix("@").removeprefix("at://")
        if is_did(name):
            person = self._read_document(name)
            return person if self._has_handle(person) else AtprotoPerson(person.did, "", person.server)
        handle = name.lower()
        person = self._read_document(self._find_did(handle))
        if person.handle != handle:
            raise IdentityRefused(f"{handle} names {person.did}, whose document names another handle")
        return person

    def _has_handle(self, person: AtprotoPerson) -> bool:
        if not person.handle:
            return False
        try:
            return self._find_did(person.handle) == person.did
        except IdentityServerAway:
            raise
        except IdentityFault:
            return False

    def _find_did(self, handle: str) -> str:
        """Return the DID that a handle names. Raises IdentityRefused, IdentityFault, IdentityServerAway."""
        if not _HANDLE.match(handle):
            raise IdentityRefused(f"{handle[:100]!r} is no DID and no handle: a handle looks like anna.example.com")
        if self._handle_server:
            url = f"{self._handle_server}/xrpc/com.atproto.identity.resolveHandle?handle={quote(handle)}"
            status, body = ask_json(url, self._rules)
            did = str(body.get("did"))
        else:
            answer = send_guarded(f"https://{handle}/.well-known/atproto-did", self._rules, None, {})
            status, did = answer.status, answer.body[:2048].decode("ascii", "replace").strip()
        if status != 200 or not is_did(did):
            raise IdentityRefused(f"nobody is known by the handle {handle}")
        return did

    def _read_document(self, did: str) -> AtprotoPerson:
        """Return what the document of a DID says. Raises IdentityRefused, IdentityFault, IdentityServerAway."""
        if _PLC_DID.match(did):
            url = f"{self._directory}/{did}"
        else:
            host = unquote(did.removeprefix("did:web:"))
            is_plain = urlsplit(f"//{host}").hostname in self._rules.private
            url = f"{'http' if is_plain else 'https'}://{host}/.well-known/did.json"
        status, document = ask_json(url, self._rules)
        if status in (404, 410):
            raise IdentityRefused(f"{did} is not known, or not any more")
        if status != 200 or document.get("id") != did:
            raise IdentityFault(f"{did}: its document cannot be read (status {status})")
        server = find_server(document)
        if not server:
            raise IdentityRefused(f"{did}: its document names no server of the AT Protocol")
        parts = parse_address(server, self._rules)
        return AtprotoPerson(did, find_handle(document), f"{parts.scheme}://{parts.netloc}")

    # their server ---------------------------------------------------------------------------------------------------

    @contextmanager
    def open_session(self, person: AtprotoPerson, password: str) -> Iterator[AtprotoSession]:
        """Prove to the person's own server that the password is theirs; the session ends with the block.

        Raises IdentityRefused for a wrong or revoked password, IdentityFault, IdentityServerAway.
        """
        credentials = {"identifier": person.did, "password": password}
        status, body = self._call(person.server, "server.createSession", credentials)
        host = urlsplit(person.server).hostname
        if status == 401 and body.get("error") == "AuthFactorTokenRequired":
            raise IdentityFault(f"{host} wants a code from a mail as well, which Perdure cannot ask for")
        if status == 401 and body.get("error") in _DEAD_PASSWORD:
            raise IdentityRefused(f"{host} did not accept the password of {person.handle or person.did}")
        access_token, refresh_token = body.get("accessJwt"), body.get("refreshJwt")
        if status != 200 or not isinstance(access_token, str) or not isinstance(refresh_token, str):
            raise IdentityFault(f"{host}: status {status} when it was asked for a session")
        if body.get("did") != person.did:
            raise IdentityRefused(f"{host} opened a session of somebody else than {person.did}")
        session = AtprotoSession(person, access_token, refresh_token)
        try:
            yield session
        finally:
            self._end_session(session)

    def _end_session(self, session: AtprotoSession) -> None:
        url = f"{session.person.server}/xrpc/com.atproto.server.deleteSession"
        try:
            send_guarded(url, self._rules, b"", {"Authorization": f"Bearer {session.refresh_token}"})
        except IdentityFault:  # it ends by itself, and nobody has its tokens
            return

    def create_app_password(self, session: AtprotoSession, name: str) -> str:
        """Make the password of an app; the session must be of the person's own password. Raises IdentityFault."""
        status, body = self._call(
            session.person.server, "server.createAppPassword", {"name": name}, session.access_token
        )
        password = body.get("password")
        if status != 200 or not isinstance(password, str):
            host = urlsplit(session.person.server).hostname
            raise IdentityFault(f"{host} made no password of an app: give the person's own password (status {status})")
        return password

    def revoke_app_password(self, session: AtprotoSession, name: str) -> None:
        """Revoke the password of an app, and every session that it opened. Raises IdentityFault."""
        status, _ = self._call(session.person.server, "server.revokeAppPassword", {"name": name}, session.access_token)
        if status != 200:
            raise IdentityFault(f"{urlsplit(session.person.server).hostname}: status {status} when it was to revoke")

    def _call(self, server: str, method: str, body: Mapping[str, Any], token: str = "") -> tuple[int, dict[str, Any]]:
        return ask_json(f"{server}/xrpc/com.atproto.{method}", self._rules, body=body, token=token)


def find_server(document: Mapping[str, Any]) -> str:
    """Return the address of the server that a document of a DID names; "" if it names none."""
    services = document.get("service")
    for service in services if isinstance(services, list) else ():
        if not isinstance(service, dict) or service.get("type") != "AtprotoPersonalDataServer":
            continue
        address = service.get("serviceEndpoint")
        if str(service.get("id", "")).endswith("#atproto_pds") and isinstance(address, str):
            return address
    return ""


def find_handle(document: Mapping[str, Any]) -> str:
    """Return the first handle that a document of a DID names; "" if it names none."""
    names = document.get("alsoKnownAs")
    for name in names if isinstance(names, list) else ():
        if isinstance(name, str) and name.startswith("at://"):
            handle = name.removeprefix("at://").lower()
            return handle if _HANDLE.match(handle) else ""
    return ""
