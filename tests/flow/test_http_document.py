"""The OpenAPI document and the application are one table: every operation is in both, and answers as it says."""

import re
from typing import Any

import pytest

pytest.importorskip("uvicorn")
jsonschema = pytest.importorskip("jsonschema")

SAMPLES: dict[str, Any] = {
    "post_runs": b'{"role": "user", "content": "The quokka lives in alder.", "timestamp": "2026-01-15T09:00Z"}\n',
    "post_runs_search": {"query": "quokka"}, "post_recall": {"message": "Where does the quokka live?"},
    "post_hook": {"event": {"client": "codex", "kind": "prompt", "session": "s", "prompt": "Where is the quokka?"}},
    "post_context": {"message": "Where does the quokka live?"}, "post_memories": {"text": "I prefer Helix over vim"},
    "post_memories_search": {"query": "helix"}, "patch_memories_memory_id": {"pinned": True},
    "post_cards": {"text": "Ask before you push."}, "put_floor_page": {"text": "- Deploys happen on Tuesdays"},
    "post_machines": {"name": "tablet"}, "post_grants": {"grantee": "bob", "scope": "tag", "value": "work"},
}  # fmt: skip
QUERIES = {"post_runs": "?runtime=messages&session=s1"}
ORDER = ("post", "put", "get", "patch", "delete")  # of the operations of one path, so that there is something to read


def operations(document):
    return [(path, method, said) for path, by in document["paths"].items() for method, said in by.items()]


def test_the_table_and_the_document_are_the_same(served):
    from starlette.routing import Route

    at = served()
    document = at.nobody("GET", "/api/openapi.json")[1]
    routes = {
        (route.path.replace(":path}", "}"), method)
        for route in at.served.application.routes
        if isinstance(route, Route) and route.path.startswith("/api/")
        for method in route.methods - {"HEAD"}
    }
    assert {(path, method.upper()) for path, method, _ in operations(document)} == routes
    names = [said["operationId"] for _, _, said in operations(document)]
    assert len(names) == len(set(names)) and document["openapi"].startswith("3.1")


def test_every_operation_answers_as_it_says(served):
    """Each is called with something that means something, and with no credential; links lead somewhere."""
    at = served("[server]\nrequests_per_minute = 6000\n")
    document = at.nobody("GET", "/api/openapi.json")[1]
    made: dict[str, str] = {"page": "notes.md", "name": "pack"}
    todo = sorted(operations(document), key=lambda one: ("{" in one[0], ORDER.index(one[1]), one[0]))
    for path, method, said in todo:
        if path == "/api/events":
            continue
        name = said["operationId"]
        if name == "get_resolve_identifier":
            wait(at, made)
            made["identifier"] = made["run_id"]
        place = re.sub(r"{(\w+)}", lambda m: made[m[1]], path) + QUERIES.get(name, "")
        status, answer, headers = at.ada_laptop(method.upper(), place, SAMPLES.get(name))
        good = [code for code in said["responses"] if code < "300"]
        assert str(status) in good, (name, status, answer)
        check(document, said["responses"][str(status)], answer, headers)
        remember(made, answer)
        if said.get("security") != []:
            refused = at.nobody(method.upper(), place, SAMPLES.get(name))
            assert refused[0] in (401, 429) and str(refused[0]) in said["responses"], name
            check(document, said["responses"]["401"], refused[1], refused[2])


def wait(at, made):
    import time

    for _ in range(200):
        if at.ada_laptop("GET", f"/api/runs/{made['run_id']}")[0] == 200:
            return
        time.sleep(0.05)


def check(document, response, answer, headers):
    """The answer has the shape that the document says, and what every envelope has."""
    (kind,) = response["content"]
    assert (headers["content-type"] or "").startswith(kind)
    if kind != "application/json":
        return
    schema = {**response["content"][kind]["schema"], "components": document["components"]}
    jsonschema.Draft202012Validator(schema).validate(answer)
    if "openapi" not in answer and set(answer) not in ({"alive"}, {"text", "notice"}):
        assert "_links" in answer and "next_actions" in answer
        for action in answer["next_actions"]:
            assert {"do", "method", "href"} <= set(action) and action["href"].startswith("/api/")


def remember(made, answer):
    if isinstance(answer, dict) and "version" not in answer:  # not who the caller is
        card = {"card_id": answer["id"]} if str(answer.get("id", "")).startswith("card-") else {}
        found = {name: answer.get(name) for name in ("run_id", "memory_id", "machine_id", "grant_id")}
        made.update({name: value for name, value in {**found, **card}.items() if isinstance(value, str)})


def test_links_of_an_answer_lead_somewhere(served, message):
    at = served()
    kept = at.ada_laptop("POST", "/api/runs?runtime=messages&session=s1", message("user", "The quokka hops.", 0))[1]
    wait(at, kept)
    run = at.ada_laptop("GET", kept["_links"]["self"])[1]
    hit = at.ada_laptop("POST", "/api/runs/search", {"query": "quokka"})[1]["hits"][0]
    for href in [*run["_links"].values(), *hit["_links"].values(), kept["_links"]["jsonl"]]:
        assert at.ada_laptop("GET", href)[0] == 200, href
