"""Sign in on the page with an OpenID provider: to it, back from it, and to the user who is linked to the person."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from perdure.errors import IdentityRefused, PackageMissing
from perdure.home import Home
from perdure.identity_servers.guarded_request import make_rules
from perdure.identity_servers.openid import OpenIdProvider
from perdure.sharing.machines import Authority
from perdure.sharing.persons import Persons
from perdure.types import Identity


@dataclass(frozen=True)
class OpenIdSignIn:
    """The provider of a home, and the table that says whom it lets in."""

    provider: OpenIdProvider
    issuer: str
    persons: Persons
    authority: Authority
    address: str  # of the home in a browser; "": the one that the browser asked for
    session_s: float

    def get_return_address(self, asked_address: str, back_path: str) -> str:
        """Return where the provider sends the person back to. asked_address: of the home, as the browser asked."""
        return (self.address or asked_address).rstrip("/") + back_path

    def identify(self, secret: str, return_to: str, params: Mapping[str, str]) -> Identity:
        """Return the identity of the person who comes back. Raises IdentityRefused if no user is linked to them."""
        proven = self.provider.prove(secret, return_to, params)
        person = self.persons.find_person(self.issuer, proven.subject)
        if person is None:
            who = f"You are signed in at {self.provider.name} as {proven.name or proven.subject}"
            command = f"perdure user link USER --subject {shlex.quote(proven.subject)}"
            raise IdentityRefused(f"{who}, but no user of this home is linked to you. Ask its owner to run: {command}")
        if proven.name and proven.name != person.name:
            person = self.persons.rename(person, proven.name)
        return self.authority.identify_person(person)


def open_sign_in(home: Home, authority: Authority) -> OpenIdSignIn:
    """Return the sign-in with the provider of the settings. Raises PackageMissing."""
    settings = home.config.identity.openid
    if find_spec("joserfc") is None:
        raise PackageMissing("sign-in with an OpenID provider needs one more package (pip install 'perdure[openid]')")
    provider = OpenIdProvider(settings, make_rules(home.config.identity))
    return OpenIdSignIn(
        provider, settings.issuer, home.sharing.persons, authority, settings.address, settings.session_h * 3600.0
    )
