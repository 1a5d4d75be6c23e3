"""People of the AT Protocol: what documents and handles may say, and what is not believed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from perdure.errors import IdentityFault, IdentityRefused
from perdure.identity_servers.atproto import AtprotoNetwork, find_handle, find_server, is_did
from perdure.identity_servers.guarded_request import RequestRules
from rig.pds import ScriptedNetwork

RULES = RequestRules(("localhost",))


@pytest.fixture
def servers() -> Iterator[ScriptedNetwork]:
    with ScriptedNetwork() as network:
        yield network


@pytest.fixture
def people(servers: ScriptedNetwork) -> AtprotoNetwork:
    return AtprotoNetwork(servers.directory, servers.server, RULES)


@pytest.mark.parametrize(
    "name",
    [
        "did:plc:" + "a" * 23, "did:plc:" + "a" * 25, "did:plc:" + "1" * 24, "did:plc:" + "A" * 24,
        "did:plc:../../../../etc/passwd", "did:web:", "did:web:../x", "did:web:a/b", "did:web:a%2Fb", "did:web:a:b",
        "did:web:user@host", "did:web:host%3Aport", "did:web:host%3A1%3A2", "did:web:Host",
        "did:plc:" + "a" * 24 + "\n",
    ],
)  # fmt: skip
def test_only_dids_of_the_protocol_are_dids(name: str) -> None:
    assert not is_did(name)
    assert is_did("did:plc:" + "a" * 24) and is_did("did:web:anna.example") and is_did("did:web:localhost%3A8080")


@pytest.mark.parametrize(
    "name",
    ["", ".", "a", "a..b", "-a.b", "a-.b", "a.b-", "a.1", "a" * 64 + ".b", "a.b/c", "a.b?c", "a.b@c", "a b.c",
     "a.b:80", ("a" * 60 + ".") * 5 + "b", "anna.example\n.evil", "привет.рф"],
)  # fmt: skip
def test_an_odd_handle_is_asked_nowhere(people: AtprotoNetwork, servers: ScriptedNetwork, name: str) -> None:
    with pytest.raises(IdentityRefused):
        people.find_person(name)
    assert servers.asked == []


def test_a_handle_without_confirmation_is_refused(people: AtprotoNetwork, servers: ScriptedNetwork) -> None:
    """Somebody claims the handle of another in their document; and a handle names a DID that knows nothing of it."""
    anna = servers.create_account("anna.test", "x" * 20)
    eve = servers.create_account("eve.test", "x" * 20)
    plain_answer = servers.answer

    def claim(path: str, *rest: Any) -> tuple[int, dict[str, Any]]:
        status, body = plain_answer(path, *rest)
        if eve in path:
            body = {**body, "alsoKnownAs": ["at://anna.test"]}
        return status, body

    servers.answer = claim  # type: ignore[method-assign]
    assert people.find_person("anna.test").did == anna
    assert people.find_person(eve).handle == ""
    with pytest.raises(IdentityRefused, match="whose document names another handle"):
        people.find_person("eve.test")


@pytest.mark.parametrize(
    "change",
    [
        {"id": "did:plc:" + "b" * 24},
        {"service": []},
        {"service": None},
        {"service": [{"id": "#atproto_pds", "type": "Other", "serviceEndpoint": "http://localhost"}]},
        {"service": [{"id": "#atproto_pds", "type": "AtprotoPersonalDataServer", "serviceEndpoint": {"a": 1}}]},
        {
            "service": [
                {"id": "#atproto_pds", "type": "AtprotoPersonalDataServer", "serviceEndpoint": "http://10.0.0.1"}
            ]
        },
        {"service": [{"id": "#atproto_pds", "type": "AtprotoPersonalDataServer", "serviceEndpoint": "file:///etc"}]},
    ],
    ids=str,
)
def test_a_document_that_leads_nowhere_is_refused(
    people: AtprotoNetwork, servers: ScriptedNetwork, change: dict[str, Any]
) -> None:
    did = servers.create_account("anna.test", "x" * 20)
    plain_answer = servers.answer
    servers.answer = lambda *request: (200, {**plain_answer(*request)[1], **change})  # type: ignore[method-assign]
    with pytest.raises(IdentityFault):
        people.find_person(did)


@pytest.mark.parametrize("names", [None, "x", [], [1], ["https://a.b"], ["at://"], ["at://a b"], ["at://../x"]])
def test_a_document_without_a_handle_has_none(names: Any) -> None:
    assert find_handle({"alsoKnownAs": names}) == ""
    assert find_handle({"alsoKnownAs": ["https://x.y", "at://Anna.Example", "at://b.c"]}) == "anna.example"
    assert find_server({}) == ""


def test_a_did_of_the_web_is_found_at_its_host(servers: ScriptedNetwork) -> None:
    """A server of the settings is asked over http; `localhost%3A…` names its port."""
    port = servers.server_address[1]
    did = f"did:web:localhost%3A{port}"
    service = {"id": "#atproto_pds", "type": "AtprotoPersonalDataServer", "serviceEndpoint": servers.server + "/x"}
    document = {"id": did, "alsoKnownAs": ["at://anna.test"], "service": [service]}
    servers.answer = lambda path, *_: (200, document if path == "/.well-known/did.json" else {"did": did})  # type: ignore[method-assign]
    person = AtprotoNetwork("http://localhost:1", servers.server, RULES).find_person(did)
    assert person == (type(person))(did, "anna.test", servers.server)
    assert servers.asked[0] == "/.well-known/did.json"
    with pytest.raises(IdentityFault):
        AtprotoNetwork("http://localhost:1", servers.server).find_person(did)


def test_a_session_of_somebody_else_is_refused(people: AtprotoNetwork, servers: ScriptedNetwork) -> None:
    servers.create_account("anna.test", "x" * 20)
    person = people.find_person("anna.test")
    plain_answer = servers.answer

    def swap(path: str, *rest: Any) -> tuple[int, dict[str, Any]]:
        status, body = plain_answer(path, *rest)
        return status, {**body, "did": "did:plc:" + "c" * 24} if "createSession" in path else body

    servers.answer = swap  # type: ignore[method-assign]
    with pytest.raises(IdentityRefused, match="somebody else"), people.open_session(person, "x" * 20):
        pass
