"""Sign-in on the page with an OpenID provider: a real one where it can be had, and one that a test can change."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest
from selectolax.lexbor import LexborHTMLParser

from perdure.identity_servers.openid import SignInValues
from perdure.sharing.machines import Machines
from rig import oidc
from rig.waiting import wait_for

SUBJECT = "248289761001"
SETTINGS = """[server]
http = "127.0.0.1:0"
[models.embedder]
kind = "off"
[identity]
private = ["localhost"]
[identity.openid]
issuer = "{issuer}"
client_id = "perdure"
secret_env = "THE_SECRET"
name = "the test"
address = "http://home.test"
"""
RETURN_TO = "http://home.test/enter/openid/back"

pytestmark = pytest.mark.timeout(900)  # the real provider may have to be installed first


@pytest.fixture(scope="module")
def real() -> Iterator[oidc.RealProvider]:
    with oidc.start_real(RETURN_TO) as provider:
        yield provider


@pytest.fixture
def scripted() -> Iterator[oidc.ScriptedProvider]:
    with oidc.ScriptedProvider() as provider:
        yield provider


@pytest.fixture(params=["scripted", "real"])
def provider(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture
def serve(house: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Any]:
    monkeypatch.setenv("THE_SECRET", oidc.CLIENT_SECRET)
    return lambda provider: house(SETTINGS.format(issuer=provider.issuer))


class Wanderer:
    """A browser at the provider: it keeps its cookies, follows redirects and fills in forms."""

    def __init__(self, stranger: Any) -> None:
        self.stranger = type(stranger)("", stranger.home)

    def sign_in(self, address: str, subject: str = SUBJECT) -> str:
        """Sign in at the provider; return the address at the home to which it sends."""
        method, fields = "GET", []
        for _ in range(12):
            parts = urlsplit(address)
            self.stranger.address = f"{parts.scheme}://{parts.netloc}"
            path = f"{parts.path}?{parts.query}" if parts.query else parts.path
            seen = self.stranger.ask("GET", path) if method == "GET" else self.stranger.send(path, fields)
            if seen.status in (302, 303):
                address, method = seen.headers["location"], "GET"
                address = address if "://" in address else self.stranger.address + address
                if address.startswith(RETURN_TO):
                    return address
                continue
            form = LexborHTMLParser(seen.html).css_first("form")
            assert form is not None, seen.html
            address, method = form.attributes["action"] or "", "POST"
            prompt = re.search(r'name="prompt" value="(\w+)"', seen.html)
            fields = [("prompt", prompt[1] if prompt else "login"), ("login", subject), ("password", "x")]
        raise AssertionError("it does not end")


def come_back(stranger: Any, address: str) -> Any:
    parts = urlsplit(address)
    return stranger.ask("GET", f"{parts.path}?{parts.query}")


def begin(stranger: Any, to: str = "/memories") -> str:
    seen = stranger.ask("GET", f"/enter/openid?to={to}")
    assert seen.status == 303, seen.html
    return str(seen.headers["location"])


def test_a_linked_person_signs_in(serve: Callable[[Any], Any], provider: Any) -> None:
    house = serve(provider)
    house.opened.sharing.persons.link("bob", provider.issuer, SUBJECT)
    stranger = house.stranger()
    assert "Sign in with the test" in stranger.get("/enter?to=/memories").text()
    seen = come_back(stranger, Wanderer(stranger).sign_in(begin(stranger)))
    assert seen.status == 200 and 'content="0; url=/memories"' in seen.html
    assert "bob" in stranger.get("/").text("header") and "8642" not in stranger.get("/memories").text()
    (person,) = house.opened.sharing.persons.list_persons("bob")
    assert person.name in ("bob", f"name of {SUBJECT}", "")
    house.opened.sharing.unlink_person("bob")
    assert stranger.ask("GET", "/memories").status == 303


def test_who_is_not_linked_is_refused_with_the_command(serve: Callable[[Any], Any], provider: Any) -> None:
    house = serve(provider)
    stranger = house.stranger()
    seen = come_back(stranger, Wanderer(stranger).sign_in(begin(stranger), "eve"))
    said = " ".join(seen.text().split())
    subject = "eve" if isinstance(provider, oidc.RealProvider) else SUBJECT
    assert seen.status == 403 and f"perdure user link USER --subject {subject}" in said
    assert stranger.ask("GET", "/").status == 303


def test_new_keys_of_a_real_provider_count(serve: Callable[[Any], Any]) -> None:
    with oidc.start_real(RETURN_TO, method="client_secret_post") as provider:
        house = serve(provider)
        house.opened.sharing.persons.link("bob", provider.issuer, SUBJECT)
        for _ in range(2):
            stranger = house.stranger()
            assert come_back(stranger, Wanderer(stranger).sign_in(begin(stranger))).status == 200
            provider.stop()
            provider.start()
            sign_in = house.listener._server._mount._sign_in
            sign_in.provider._fetched_s -= 60  # it is a minute later


def test_a_link_of_another_browser_lets_nobody_in(serve: Callable[[Any], Any], scripted: oidc.ScriptedProvider) -> None:
    """As one who sends you the end of their own sign-in, so that you write into their home."""
    house = serve(scripted)
    house.opened.sharing.persons.link("eve", scripted.issuer, SUBJECT)
    attacker, victim = house.stranger(), house.stranger()
    address = Wanderer(attacker).sign_in(begin(attacker))
    assert come_back(victim, address).status == 403 and victim.cookies == {}
    begin(victim)
    assert come_back(victim, address).status == 403 and victim.ask("GET", "/").status == 303
    assert come_back(attacker, address).status == 200


def test_an_answer_is_used_once(serve: Callable[[Any], Any], scripted: oidc.ScriptedProvider) -> None:
    house = serve(scripted)
    house.opened.sharing.persons.link("bob", scripted.issuer, SUBJECT)
    stranger = house.stranger()
    address = Wanderer(stranger).sign_in(begin(stranger))
    assert come_back(stranger, address).status == 200
    assert come_back(house.stranger(), address).status == 403


def test_a_token_opens_nothing_by_itself(serve: Callable[[Any], Any], scripted: oidc.ScriptedProvider) -> None:
    house = serve(scripted)
    house.opened.sharing.persons.link("bob", scripted.issuer, SUBJECT)
    stranger = house.stranger()
    assert come_back(stranger, Wanderer(stranger).sign_in(begin(stranger))).status == 200
    (token,) = scripted.tokens
    other = house.stranger()
    for headers in ({"Authorization": f"Bearer {token}"}, {"x-api-key": token}):
        assert other.ask("GET", "/api/me", **headers).status == 401
    assert other.send("/enter", [("secret", token), ("to", "/")]).status == 401
    assert not [path for path in house.place.rglob("*") if path.is_file() and token.encode() in path.read_bytes()]


def test_a_target_elsewhere_is_not_followed(serve: Callable[[Any], Any], scripted: oidc.ScriptedProvider) -> None:
    house = serve(scripted)
    house.opened.sharing.persons.link("bob", scripted.issuer, SUBJECT)
    for target in ("//evil.example/", "https://evil.example", "/enter/openid"):
        stranger = house.stranger()
        seen = come_back(stranger, Wanderer(stranger).sign_in(begin(stranger, target)))
        assert seen.status == 200 and 'content="0; url=/"' in seen.html


def test_a_person_registers_a_machine(serve: Callable[[Any], Any], scripted: oidc.ScriptedProvider) -> None:
    house = serve(scripted)
    house.opened.sharing.persons.link("bob", scripted.issuer, SUBJECT)
    stranger = house.stranger()
    come_back(stranger, Wanderer(stranger).sign_in(begin(stranger)))
    assert "pdr-" in stranger.post("/machines", name="laptop").html
    machines: Machines = house.opened.sharing.machines
    assert [(one.user, one.registered_by[:2]) for one in machines.list_machines()] == [("bob", "p-")]
    assert [machine.name for machine, _, _ in house.opened.sharing.unlink_person("bob")[1]] == ["laptop"]


def test_a_provider_that_is_away_is_told(serve: Callable[[Any], Any]) -> None:
    with oidc.ScriptedProvider() as gone:
        house = serve(gone)
    stranger = house.stranger()
    seen = stranger.ask("GET", "/enter/openid")
    assert seen.status == 503 and "localhost" in seen.text()


class SilentProvider(oidc.ScriptedProvider):
    """A provider that takes no code until it may speak."""

    def __init__(self) -> None:
        super().__init__()
        self.may_speak = threading.Event()

    def answer(self, path: str, query: dict[str, str], authorization: str) -> tuple[int, dict[str, Any] | str]:
        if path == "/token":
            self.may_speak.wait(30)
        return super().answer(path, query, authorization)


def test_sign_ins_that_nobody_began_hold_up_nothing_else(serve: Callable[[Any], Any]) -> None:
    """Anybody can make the values of a sign-in; the provider is slow, and no code of theirs is one."""
    with SilentProvider() as silent:
        house = serve(silent)
        owner = house.visitor()

        def forge(n: int) -> int:
            stranger, secret = house.stranger(), f"{n:040}"
            stranger.cookies[f"{next(iter(owner.cookies))}-sign-in"] = f"{secret}.%2F"
            state = SignInValues.from_secret(secret).state
            return int(stranger.ask("GET", f"/enter/openid/back?code=x&state={state}").status)

        with ThreadPoolExecutor(20) as threads:
            statuses = [threads.submit(forge, n) for n in range(20)]
            wait_for(lambda: silent.asked.count("/token") == 4)
            assert owner.ask("GET", "/health/disk").status == 200  # no thread of its pool waits for the provider
            silent.may_speak.set()
        counts = Counter(status.result() for status in statuses)
        assert set(counts) == {403, 429} and counts[403] == silent.asked.count("/token") < 15  # 10, and one in 6 s


@pytest.mark.parametrize("odd", [{"token_endpoint_auth_methods_supported": None}, {"crit": 5}], ids=str)
def test_odd_answers_of_a_provider_let_nobody_in(
    serve: Callable[[Any], Any], scripted: oidc.ScriptedProvider, odd: dict[str, Any]
) -> None:
    house = serve(scripted)
    stranger = house.stranger()
    if "crit" in odd:
        head = base64.urlsafe_b64encode(json.dumps({"alg": "RS256", **odd}).encode()).decode().rstrip("=")
        scripted.make_token = lambda *_, **__: f"{head}.e30.x"  # type: ignore[method-assign]
    else:
        scripted.description |= odd
    assert come_back(stranger, Wanderer(stranger).sign_in(begin(stranger))).status == 403


def test_without_settings_there_is_no_such_door(house: Callable[..., Any]) -> None:
    stranger = house().stranger()
    assert "/enter/openid" not in stranger.get("/enter").html
    assert stranger.ask("GET", "/enter/openid").status == stranger.ask("GET", "/enter/openid/back").status == 204
