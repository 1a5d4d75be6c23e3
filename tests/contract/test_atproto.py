"""People of the AT Protocol: one contract for a real server with its directory, and for the one of recorded answers.

`UPDATE_RECORDED=1` writes the answers of the real server to `tests/data/atproto/answers.json`.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from perdure.errors import IdentityFault, IdentityRefused
from perdure.identity_servers.atproto import AtprotoNetwork, AtprotoPerson
from perdure.identity_servers.guarded_request import RequestRules, ask_json, read_json, send_guarded
from rig import pds

PASSWORD = "a-long-password-of-anna"
RULES = RequestRules(("localhost",), limit_s=30)
NUMBERS = itertools.count(1)

pytestmark = pytest.mark.timeout(1500)  # the real one may have to be installed first


@pytest.fixture(scope="module")
def real() -> Iterator[pds.RealNetwork]:
    with pds.start_real() as network:
        yield network


@pytest.fixture(params=["recorded", "real"])
def servers(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "real":
        yield request.getfixturevalue("real")
        return
    with pds.ScriptedNetwork() as network:
        yield network


@pytest.fixture
def people(servers: Any) -> AtprotoNetwork:
    return AtprotoNetwork(servers.directory, servers.server, RULES)


@pytest.fixture
def anna(servers: Any) -> AtprotoPerson:
    handle = f"anna{next(NUMBERS)}.test"
    return AtprotoPerson(servers.create_account(handle, PASSWORD), handle, servers.server)


def test_a_person_is_found_by_handle_and_by_did(people: AtprotoNetwork, anna: AtprotoPerson) -> None:
    assert people.find_person(anna.handle) == people.find_person(anna.did) == anna
    assert people.find_person(f"@{anna.handle.upper()}") == anna


@pytest.mark.parametrize("name", ["nobody.test", "did:plc:" + "a" * 24, "no handle", "did:key:z6Mk", "localhost"])
def test_who_is_not_known_is_refused(people: AtprotoNetwork, name: str) -> None:
    with pytest.raises(IdentityRefused):
        people.find_person(name)


def test_only_their_password_opens_a_session(people: AtprotoNetwork, anna: AtprotoPerson) -> None:
    with people.open_session(anna, PASSWORD) as session:
        assert session.person == anna and session.access_token not in repr(session)
    for wrong in ("another", ""):
        with pytest.raises(IdentityFault) as caught, people.open_session(anna, wrong):
            pass
        assert PASSWORD not in str(caught.value)


def test_an_app_password_is_revoked_alone_and_by_itself(people: AtprotoNetwork, anna: AtprotoPerson) -> None:
    with people.open_session(anna, PASSWORD) as session:
        laptop, desktop = (people.create_app_password(session, f"perdure {name}") for name in ("laptop", "desktop"))
    assert len({laptop, desktop, PASSWORD}) == 3
    with people.open_session(anna, laptop) as session:
        with pytest.raises(IdentityFault, match="the person's own password"):
            people.create_app_password(session, "perdure third")
        people.revoke_app_password(session, "perdure laptop")
    with pytest.raises(IdentityRefused), people.open_session(anna, laptop):
        pass
    with people.open_session(anna, desktop):
        pass


def test_a_new_handle_is_the_same_person(servers: Any, people: AtprotoNetwork, anna: AtprotoPerson) -> None:
    new_handle = anna.handle.replace("anna", "anna-b")
    servers.rename(anna.handle, PASSWORD, new_handle)
    assert people.find_person(new_handle).did == anna.did
    assert people.find_person(anna.did).handle == new_handle
    with pytest.raises(IdentityRefused):
        people.find_person(anna.handle)


def record_answers(servers: Any) -> dict[str, Any]:
    """Ask a server everything that Perdure asks; return the answers, with marks for what differs each time."""
    handle = f"record{next(NUMBERS)}.test"
    did = servers.create_account(handle, PASSWORD)
    call = f"{servers.server}/xrpc/com.atproto."
    answers: dict[str, Any] = {}

    def ask(name: str, url: str, body: Any = None, token: str = "") -> dict[str, Any]:
        status, answer = ask_json(url, RULES, body=body, token=token)
        text = json.dumps(answer).replace(did, "<DID>").replace(handle, "<HANDLE>").replace(servers.server, "<SERVER>")
        answers[name] = {"status": status, "body": json.loads(text)}
        return answer

    ask("document", f"{servers.directory}/{did}")
    ask("document unknown", f"{servers.directory}/did:plc:{'a' * 24}")
    ask("resolveHandle", f"{call}identity.resolveHandle?handle={handle}")
    ask("resolveHandle unknown", f"{call}identity.resolveHandle?handle=nobody.test")
    ask("createSession refused", f"{call}server.createSession", {"identifier": did, "password": "wrong"})
    session = ask("createSession", f"{call}server.createSession", {"identifier": did, "password": PASSWORD})
    made = ask("createAppPassword", f"{call}server.createAppPassword", {"name": "one"}, session["accessJwt"])
    app_session = ask_json(
        f"{call}server.createSession", RULES, body={"identifier": did, "password": made["password"]}
    )[1]
    ask("createAppPassword by an app", f"{call}server.createAppPassword", {"name": "two"}, app_session["accessJwt"])
    for name in ("createSession", "createAppPassword"):
        body = answers[name]["body"]
        answers[name]["body"] = {key: "" if key in ("accessJwt", "refreshJwt", "password") else value
                                 for key, value in body.items()}  # fmt: skip
    return answers


def outline(value: Any) -> Any:
    """Return the shape of an answer: its names and types."""
    if isinstance(value, dict):
        return {name: outline(inner) for name, inner in value.items()}
    return [outline(inner) for inner in value] if isinstance(value, list) else type(value).__name__


def test_the_real_server_answers_as_recorded(real: pds.RealNetwork) -> None:
    answers = record_answers(real)
    if os.environ.get("UPDATE_RECORDED"):
        pds.ANSWERS.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n")
    recorded = json.loads(pds.ANSWERS.read_text())
    assert {name: (answer["status"], outline(answer["body"])) for name, answer in answers.items()} == {
        name: (answer["status"], outline(answer["body"])) for name, answer in recorded.items()
    }


def test_a_session_ends_with_its_block(real: pds.RealNetwork) -> None:
    handle = f"anna{next(NUMBERS)}.test"
    real.create_account(handle, PASSWORD)
    network = AtprotoNetwork(real.directory, real.server, RULES)
    refresh = f"{real.server}/xrpc/com.atproto.server.refreshSession"
    with network.open_session(network.find_person(handle), PASSWORD) as session:
        pass
    status, body = read_json(send_guarded(refresh, RULES, b"", {"Authorization": f"Bearer {session.refresh_token}"}))
    assert (status, body["error"]) == (400, "ExpiredToken")
