"""Sign-in with an OpenID provider: which tokens count, and what is asked of the provider when."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey

from perdure.config import OpenIdConfig
from perdure.errors import IdentityFault, IdentityRefused
from perdure.identity_servers.guarded_request import RequestRules
from perdure.identity_servers.openid import OpenIdProvider, SignInValues
from rig.oidc import ScriptedProvider, make_key

SECRET = "s" * 43
NONCE = SignInValues.from_secret(SECRET).nonce
RETURN_TO = "http://localhost/enter/openid/back"


@pytest.fixture
def scripted() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as provider:
        yield provider


class Clock:
    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def provider(scripted: ScriptedProvider, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> OpenIdProvider:
    monkeypatch.setenv("THE_SECRET", "secret of the client")
    settings = OpenIdConfig(issuer=scripted.issuer, client_id="perdure", secret_env="THE_SECRET")
    return OpenIdProvider(settings, RequestRules(("localhost",)), now_s=clock)


def test_a_good_token_names_its_subject(scripted: ScriptedProvider, provider: OpenIdProvider) -> None:
    assert provider.read_token(scripted.make_token(NONCE), nonce=NONCE) == ("248289761001", "bob")
    several = scripted.make_token(NONCE, aud=["perdure", "another"], azp="perdure", preferred_username=None)
    assert provider.read_token(several, nonce=NONCE) == ("248289761001", "")


@pytest.mark.parametrize("kind_and_method", [("EC", "ES256"), ("RSA", "PS256")])
def test_other_asymmetric_methods_count(
    scripted: ScriptedProvider, provider: OpenIdProvider, kind_and_method: tuple[str, str]
) -> None:
    kind, scripted.algorithm = kind_and_method
    scripted.key = make_key(kind)
    scripted.published = [scripted.key]
    assert provider.read_token(scripted.make_token(NONCE), nonce=NONCE).subject == "248289761001"


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://another.example"},
        {"iss": None},
        {"aud": "another"},
        {"aud": ["another"]},
        {"aud": ["perdure", "another"]},
        {"aud": ["perdure", "another"], "azp": "another"},
        {"azp": "another"},
        {"aud": None},
        {"nonce": "of another sign-in"},
        {"nonce": None},
        {"exp": 1_700_000_000},
        {"exp": None},
        {"exp": "soon"},
        {"exp": float("nan")},
        {"iat": 2**33},
        {"iat": None},
        {"nbf": 2**33},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": "x" * 256},
        {"sub": "a\nb"},
    ],
    ids=str,
)
def test_a_token_that_is_not_for_us_is_refused(
    scripted: ScriptedProvider, provider: OpenIdProvider, claims: dict[str, Any]
) -> None:
    token = scripted.make_token(NONCE, **claims)
    with pytest.raises(IdentityRefused) as caught:
        provider.read_token(token, nonce=NONCE)
    assert token not in str(caught.value)


def test_clocks_may_differ_by_a_minute(scripted: ScriptedProvider, provider: OpenIdProvider, clock: Clock) -> None:
    token = scripted.make_token(NONCE, exp=int(time.time()) + 10)
    clock.ahead_s = 60
    assert provider.read_token(token, nonce=NONCE)
    clock.ahead_s = 75
    with pytest.raises(IdentityRefused):
        provider.read_token(token, nonce=NONCE)


def forge(header: dict[str, Any], claims: dict[str, Any], secret: bytes) -> str:
    """Return a token signed with HS256, whatever its header says; a library would refuse to make it."""
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, claims))
    signed = b".".join(parts)
    signature = base64.urlsafe_b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).rstrip(b"=")
    return f"{signed.decode()}.{signature.decode()}"


def test_no_token_is_signed_with_what_everybody_knows(scripted: ScriptedProvider, provider: OpenIdProvider) -> None:
    """With the public key as the secret of HS256, with the secret of the client, and with no signature at all."""
    claims = {"iss": scripted.issuer, "aud": "perdure", "sub": "x", "nonce": NONCE, "iat": 1, "exp": 2**33}
    public = scripted.key.as_pem(private=False)
    for secret in (public, b"secret of the client"):
        for kid in (scripted.key.kid, "another"):
            forged = forge({"alg": "HS256", "kid": kid}, claims, secret)
            with pytest.raises(IdentityRefused):
                provider.read_token(forged, nonce=NONCE)
    unsigned = forge({"alg": "none", "kid": scripted.key.kid}, claims, b"").rpartition(".")[0] + "."
    good = scripted.make_token(NONCE)
    head, body, signature = good.split(".")
    torn = (unsigned, f"{head}.{body}.", f"{head}.{body}.{signature[:-6]}AAAAAA", good[:-1], "", "a.b.c", "x" * 20_000)
    for token in torn:
        with pytest.raises(IdentityRefused):
            provider.read_token(token, nonce=NONCE)


def test_a_symmetric_key_that_is_published_counts_nothing(scripted: ScriptedProvider, provider: OpenIdProvider) -> None:
    shared = OctKey.generate_key(256, {"kid": "shared", "use": "sig"})
    scripted.published = [scripted.key, shared]  # type: ignore[list-item]
    claims = {"iss": scripted.issuer, "aud": "perdure", "sub": "x", "nonce": NONCE, "iat": 1, "exp": 2**33}
    forged = jwt.encode({"alg": "HS256", "kid": "shared"}, claims, shared, algorithms=["HS256"])
    with pytest.raises(IdentityRefused):
        provider.read_token(forged, nonce=NONCE)


def test_new_keys_are_fetched_when_they_are_first_used(
    scripted: ScriptedProvider, provider: OpenIdProvider, clock: Clock
) -> None:
    assert provider.read_token(scripted.make_token(NONCE), nonce=NONCE)
    assert provider.read_token(scripted.make_token(NONCE), nonce=NONCE)
    assert scripted.asked.count("/keys") == 1
    old_key, scripted.key = scripted.key, make_key()
    scripted.published = [scripted.key]
    for _ in range(3):  # a moment ago they were fetched: who invents keys causes no requests
        with pytest.raises(IdentityRefused):
            provider.read_token(scripted.make_token(NONCE), nonce=NONCE)
    assert scripted.asked.count("/keys") == 1
    clock.ahead_s = 40
    assert provider.read_token(scripted.make_token(NONCE), nonce=NONCE)
    assert scripted.asked.count("/keys") == 2
    scripted.key = old_key
    with pytest.raises(IdentityRefused):
        provider.read_token(scripted.make_token(NONCE), nonce=NONCE)


def test_a_sign_in_has_values_of_its_own(scripted: ScriptedProvider, provider: OpenIdProvider) -> None:
    query = parse_qs(urlsplit(provider.make_address(SECRET, RETURN_TO)).query)
    assert (query["scope"], query["code_challenge_method"]) == (["openid profile email"], ["S256"])
    assert query["nonce"] == [NONCE] and SignInValues.from_secret(SECRET).verifier not in str(query)
    other = parse_qs(urlsplit(provider.make_address("t" * 43, RETURN_TO)).query)
    assert all(query[name] != other[name] for name in ("state", "nonce", "code_challenge"))


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"code": "x"},
        {"code": "x", "state": "another"},
        {"code": "x", "state": "STATE", "iss": "https://another.example"},
        {"state": "STATE"},
        {"state": "STATE", "error": "access_denied\x1b[31m"},
        {"state": "STATE", "code": "unknown"},
    ],
    ids=str,
)
def test_a_return_that_nobody_began_is_refused(provider: OpenIdProvider, params: dict[str, str]) -> None:
    state = SignInValues.from_secret(SECRET).state
    with pytest.raises(IdentityRefused) as caught:
        provider.prove(SECRET, RETURN_TO, {name: value.replace("STATE", state) for name, value in params.items()})
    assert str(caught.value).isprintable()


def test_a_browser_without_the_cookie_proves_nothing(provider: OpenIdProvider) -> None:
    """Anybody can derive the state of an empty secret, and could send somebody else to their own sign-in."""
    for secret in ("", "short"):
        with pytest.raises(IdentityRefused, match="begin again"):
            provider.prove(secret, RETURN_TO, {"code": "x", "state": SignInValues.from_secret(secret).state})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("issuer", "https://another.example"),
        ("authorization_endpoint", "http://10.0.0.7/authorize"),
        ("authorization_endpoint", "javascript:alert(1)"),
        ("authorization_endpoint", None),
    ],
)
def test_a_provider_that_describes_itself_badly_is_refused(
    scripted: ScriptedProvider, provider: OpenIdProvider, name: str, value: Any
) -> None:
    scripted.description[name] = value
    with pytest.raises(IdentityFault):
        provider.make_address(SECRET, RETURN_TO)
