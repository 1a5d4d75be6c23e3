"""Sign-in with an OpenID provider: the authorization code flow with PKCE, and the checks of the token that comes back.

Nothing is kept between the redirect and the return: state, nonce and verifier are derived from one secret, which the
browser holds in a cookie. Keys, signatures and claims are checked by joserfc, loaded at the first sign-in. Only
asymmetric methods count, so that nobody can sign with what everybody knows. The tokens are dropped at once.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from perdure.config import OpenIdConfig, read_variable
from perdure.errors import IdentityFault, IdentityRefused
from perdure.identity_servers.guarded_request import RequestRules, ask_json, parse_address, send_form

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
_KEY_TYPES = ("RSA", "EC", "OKP")  # never "oct": a key that both sides know signs nothing for us
_LEEWAY_S = 60  # by which clocks may differ
_KEEP_S = 3600.0  # the description and the keys of a provider are fetched again after this time
_REFETCH_S = 30.0  # an unknown key makes us fetch them again, but no more often
MIN_SECRET_CHARS = 32  # of a sign-in; a browser without the cookie has none, and anybody can derive its values
_MAX_TOKEN_CHARS = 16_384
_MAX_SUBJECT_CHARS = 255  # OpenID Connect Core 1.0, section 2
_MAX_NAME_CHARS = 100


class ProvenSubject(NamedTuple):
    """Somebody who signed in: their id at the provider, and a name to show."""

    subject: str
    name: str


class SignInValues(NamedTuple):
    """The values of one sign-in, which only the browser that began it can have."""

    state: str
    nonce: str
    verifier: str  # of PKCE

    @classmethod
    def from_secret(cls, secret: str) -> SignInValues:
        """Derive the values from the secret of a sign-in."""
        digests = (hmac.new(secret.encode(), name.encode(), hashlib.sha256).digest() for name in cls._fields)
        return cls(*map(_encode, digests))


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


class OpenIdProvider:
    """The provider of the settings. One object serves all threads."""

    def __init__(self, settings: OpenIdConfig, rules: RequestRules, *, now_s: Callable[[], float] = time.time) -> None:
        """Ask nothing yet. now_s: seconds since the epoch."""
        self._settings = settings
        self._rules = rules
        self._now_s = now_s
        self._lock = threading.Lock()
        self._description: dict[str, Any] = {}
        self._keys: KeySet | None = None
        self._fetched_s = 0.0

    @property
    def name(self) -> str:
        """The name that the page shows."""
        return self._settings.name or urlsplit(self._settings.issuer).hostname or self._settings.issuer

    def make_address(self, secret: str, return_to: str) -> str:
        """Return the address at the provider where a person signs in. Raises IdentityFault, IdentityServerAway."""
        values = SignInValues.from_secret(secret)
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": return_to,
            "scope": " ".join(self._settings.scopes),
            "state": values.state,
            "nonce": values.nonce,
            "code_challenge": _encode(hashlib.sha256(values.verifier.encode()).digest()),
            "code_challenge_method": "S256",
        }
        address = self._get_endpoint("authorization_endpoint")
        return f"{address}{'&' if '?' in address else '?'}{urlencode(query)}"

    def prove(self, secret: str, return_to: str, params: Mapping[str, str]) -> ProvenSubject:
        """Return who came back from the provider with these parameters. Raises IdentityRefused and other faults of it.

        secret, return_to: those of `make_address`.
        """
        values = SignInValues.from_secret(secret)
        if len(secret) < MIN_SECRET_CHARS or not hmac.compare_digest(
            params.get("state", "").encode(), values.state.encode()
        ):
            raise IdentityRefused("this sign-in was not begun in this browser, or too long ago: begin again")
        if params.get("iss", self._settings.issuer) != self._settings.issuer:
            raise IdentityRefused("the answer is of another provider")
        if error := params.get("error"):
            raise IdentityRefused(f"{self.name} did not sign you in ({_clean(error)})")
        if not params.get("code"):
            raise IdentityRefused(f"{self.name} sent no code")
        fields = {
            "grant_type": "authorization_code",
            "code": params["code"],
            "redirect_uri": return_to,
            "code_verifier": values.verifier,
        }
        status, answer = self._send_to_token_endpoint(fields)
        token = answer.get("id_token")
        if status != 200 or not isinstance(token, str):
            raise IdentityRefused(f"{self.name} did not take the code ({_clean(str(answer.get('error', status)))})")
        return self.read_token(token, nonce=values.nonce)

    def _send_to_token_endpoint(self, fields: dict[str, str]) -> tuple[int, dict[str, Any]]:
        client_id, headers = self._settings.client_id, {}
        fields = {**fields, "client_id": client_id}
        if self._settings.secret_env:
            client_secret = read_variable(self._settings.secret_env)
            if not client_secret:
                raise IdentityFault(f"the environment variable {self._settings.secret_env} is not set")
            methods = self._describe().get("token_endpoint_auth_methods_supported")
            if not isinstance(methods, list) or "client_secret_basic" in methods:
                pair = f"{quote(client_id, safe='')}:{quote(client_secret, safe='')}"
                headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
            else:
                fields["client_secret"] = client_secret
        return send_form(self._get_endpoint("token_endpoint"), self._rules, fields, headers)

    # the token -------------------------------------------------------------------------------------------------------

    def read_token(self, token: str, *, nonce: str) -> ProvenSubject:
        """Return whom a token names, if it was made for this client and this sign-in. Raises IdentityRefused."""
        from joserfc import jwt
        from joserfc.errors import InvalidKeyIdError, JoseError

        if len(token) > _MAX_TOKEN_CHARS:
            raise IdentityRefused(f"the token of {self.name} is too long")
        registry = jwt.JWTClaimsRegistry(
            now=int(self._now_s()),
            leeway=_LEEWAY_S,
            iss={"essential": True, "value": self._settings.issuer},
            aud={"essential": True, "value": self._settings.client_id},
            nonce={"essential": True, "value": nonce},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
        )
        try:
            try:
                claims = jwt.decode(token, self._get_keys(), list(ALGORITHMS)).claims
            except InvalidKeyIdError:  # the provider may have new keys
                claims = jwt.decode(token, self._get_keys(again=True), list(ALGORITHMS)).claims
            registry.validate(claims)
        except (JoseError, ValueError, TypeError) as error:  # joserfc trusts the types of some headers
            reason = getattr(error, "error", type(error).__name__)
            raise IdentityRefused(f"the token of {self.name} is not valid ({_clean(str(reason))})") from error
        self._check_party(claims)
        subject = claims["sub"]
        if not 0 < len(subject) <= _MAX_SUBJECT_CHARS or not subject.isprintable():
            raise IdentityRefused(f"the token of {self.name} names nobody")
        names = (claims.get(key) for key in ("preferred_username", "email", "name"))
        return ProvenSubject(subject, next((_clean(name) for name in names if isinstance(name, str) and name), ""))

    def _check_party(self, claims: Mapping[str, Any]) -> None:
        """Raise IdentityRefused for a token that was made for several clients, and not for this one above all."""
        has_several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if claims.get("azp", "" if has_several else self._settings.client_id) != self._settings.client_id:
            raise IdentityRefused(f"the token of {self.name} is for another client")

    # what the provider publishes -------------------------------------------------------------------------------------

    def _get_endpoint(self, name: str) -> str:
        address = self._describe().get(name)
        if not isinstance(address, str):
            raise IdentityFault(f"{self.name} names no {name}")
        parse_address(address, self._rules)
        return address

    def _describe(self) -> dict[str, Any]:
        with self._lock:
            self._fetch_if_old()
            return self._description

    def _get_keys(self, *, again: bool = False) -> KeySet:
        """Return the public keys. again: fetch them again, unless that was done a moment ago."""
        with self._lock:
            if again and self._now_s() - self._fetched_s > _REFETCH_S:
                self._fetched_s = 0.0
            self._fetch_if_old()
            if self._keys is None:
                self._keys = self._fetch_keys()
            return self._keys

    def _fetch_if_old(self) -> None:
        if self._description and 0 <= self._now_s() - self._fetched_s < _KEEP_S:
            return
        issuer = self._settings.issuer
        status, description = ask_json(f"{issuer.rstrip('/')}/.well-known/openid-configuration", self._rules)
        if status != 200 or description.get("issuer") != issuer:
            raise IdentityFault(f"{self.name} does not describe itself as the provider {issuer} (status {status})")
        self._description, self._keys, self._fetched_s = description, None, self._now_s()

    def _fetch_keys(self) -> KeySet:
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet, import_key

        status, body = ask_json(str(self._description.get("jwks_uri")), self._rules)
        rows = body.get("keys") if status == 200 else None
        keys = []
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict) and row.get("kty") in _KEY_TYPES and row.get("use", "sig") == "sig":
                with suppress(JoseError, ValueError, TypeError, KeyError):  # of a kind that we do not know
                    keys.append(import_key(row))
        if not keys:
            raise IdentityFault(f"{self.name} publishes no keys that can be used (status {status})")
        return KeySet(keys)


def _clean(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text[:_MAX_NAME_CHARS]).strip()
