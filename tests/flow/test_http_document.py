"""The OpenAPI document and the application are one table: every operation is in both, and answers as it says."""

import re
from typing import Any

import msgspec
import pytest

from perdure.surfaces.http import shapes
from perdure.types import Cue, Hit

pytest.importorskip("uvicorn")
jsonschema = pytest.importorskip("jsonschema")
SAMPLES: dict[str, Any] = {
    "post_runs": b'{"role": "user", "content": "The quokka lives in alder.", "timestamp": "2026-01-15T09:00Z"}\n',
    "post_runs_search": {"query": "quokka"},
    "post_recall": {"message": "I prefer Helix over vim", "session": "s", "all_projects": True},
    "post_hook": {"event": {"client": "codex", "kind": "prompt", "session": "s", "prompt": "Where is the quokka?"}},
    "post_context": {"message": "Where does the quokka live?"}, "post_memories": {"text": "I prefer Helix over vim"},
    "post_memories_search": {"query": "helix"}, "patch_memories_memory_id": {"pinned": True},
    "post_cards": {"text": "Ask before you push."}, "put_floor_page": {"text": "- Deploys happen on Tuesdays"},
    "post_forget": {"query": "nothing that anybody said"},
    "post_jobs": {"name": "hello", "job": {"instruction": "Say hello."}},
    "put_jobs_name": {"job": {"does": "greet", "instruction": "Say hello."}},
    "post_machines": {"name": "tablet"}, "post_grants": {"grantee": "bob", "scope": "tag", "value": "work"},
    "post_teams": {"name": "orchard"}, "post_teams_team_members": {"user": "carol"},
    "post_notes_note_id_review": {"is_accepted": True},
    "post_v_sessions": {"user_id": "clerk"}, "post_v_sessions_session_id_events": {"content": "The quokka moved."},
    "post_v_sessions_session_id_context_search": {"query": "quokka"},
}  # fmt: skip
QUERIES = {"post_runs": "?runtime=messages&session=s1", "get_runs": "?conversation_id=s1"}
SHAPELESS = {  # operations whose answers have no shape of their own in the document
    "delete_cards_card_id", "delete_memories_memory_id", "delete_runs_run_id", "get_openapi_json",
    "get_resolve_identifier", "post_memories_search", "post_memories_settle",
    "delete_jobs_name", "get_jobs_name_runs_run", "post_jobs_name_pause", "post_jobs_name_resume",
    "post_jobs_name_runs_run_cancel", "post_jobs_name_trigger", "post_v_sessions", "get_v_health",
    "post_v_sessions_session_id_events", "get_v_sessions_session_id_context",
    "post_v_sessions_session_id_context_search",
}  # fmt: skip
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
    good = {
        said["operationId"]: schema["content"].get("application/json", {}).get("schema", {})
        for _, _, said in operations(document)
        for status, schema in said["responses"].items()
        if status < "300"
    }
    assert {name for name, schema in good.items() if schema and "$ref" not in schema} == SHAPELESS


def test_every_operation_answers_as_documented(served):
    """Each is called with something that means something, and with no credential; links lead somewhere."""
    at = served("[server]\nrequests_per_minute = 6000\n")
    document = at.nobody("GET", "/api/openapi.json")[1]
    made: dict[str, str] = {"page": "notes.md", "name": "hello", "team": "orchard", "member": "carol"}
    made["note_id"] = propose_note(at)
    todo = sorted(operations(document), key=lambda one: ("{" in one[0], ORDER.index(one[1]), one[0]))
    for path, method, said in todo:
        if path in ("/api/events", "/api/join"):  # a stream; an answer to a DID: test_identity_servers.py
            continue
        name = said["operationId"]
        if name in ("get_runs", "get_runs_run_id", "get_resolve_identifier"):
            wait(at, made)
            made["identifier"] = made["run_id"]
        if "{run}" in path and "run" not in made:
            at.ada_laptop("POST", "/api/jobs/hello/trigger")
            made["run"] = at.ada_laptop("GET", "/api/jobs/hello/runs")[1]["items"][0]["run"]
        place = re.sub(r"{(\w+)}", lambda m: made[m[1]], path) + QUERIES.get(name, "")
        status, answer, headers = at.ada_laptop(method.upper(), place, SAMPLES.get(name))
        good = [code for code in said["responses"] if code < "300"]
        assert str(status) in good, (name, status, answer)
        check(document, said["responses"][str(status)], answer, headers, is_ours=not path.startswith("/api/v1/"))
        remember(made, answer)
        if said.get("security") != []:
            refused = at.nobody(method.upper(), place, SAMPLES.get(name))
            assert refused[0] in (401, 429) and str(refused[0]) in said["responses"], name
            check(document, said["responses"]["401"], refused[1], refused[2])


def propose_note(at):
    """A note of bob's that ada may review; return its id."""
    at.ada_laptop("POST", "/api/teams", {"name": "orchard"})
    for user in ("ada", "bob"):
        at.ada_laptop("POST", "/api/teams/orchard/members", {"user": user, "is_reviewer": user == "ada"})
    memory_id = at.bob_phone("POST", "/api/memories", {"text": "The quokka eats leaves"})[1]["memory_id"]
    grant = {"grantee": "@orchard", "scope": "memory", "value": memory_id}
    return at.bob_phone("POST", "/api/grants", grant)[1]["grant_id"]


def wait(at, made):
    import time

    for _ in range(200):
        if at.ada_laptop("GET", f"/api/runs/{made['run_id']}")[0] == 200:
            return
        time.sleep(0.05)


def check(document, response, answer, headers, *, is_ours=True):
    """The answer has the shape that the document says, and what every envelope has; Athena's answers have none."""
    (kind,) = response["content"]
    assert (headers["content-type"] or "").startswith(kind)
    if kind != "application/json":
        return
    schema = {**response["content"][kind]["schema"], "components": document["components"]}
    jsonschema.Draft202012Validator(schema).validate(answer)
    if is_ours and "openapi" not in answer and set(answer) not in ({"alive"}, {"text", "notice"}):
        assert "_links" in answer and "next_actions" in answer
        for action in answer["next_actions"]:
            assert {"do", "method", "href"} <= set(action) and action["href"].startswith("/api/")


def remember(made, answer):
    if isinstance(answer, dict) and "version" not in answer:  # not who the caller is
        card = {"card_id": answer["id"]} if str(answer.get("id", "")).startswith("card-") else {}
        found = {name: answer.get(name) for name in ("run_id", "memory_id", "machine_id", "grant_id", "session_id")}
        made.update({name: value for name, value in {**found, **card}.items() if isinstance(value, str)})


def follow(caller, answer):
    """Follow every link and every action of an answer; those that take something away are returned."""
    ends, todo = [], [answer]
    while todo:
        part = todo.pop()
        todo += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        if not isinstance(part, dict):
            continue
        for name, href in part.get("_links", {}).items():
            assert caller("GET", href)[0] == 200, (name, href)
        for action in part.get("next_actions", ()):
            if action["method"] == "DELETE":
                ends.append(action["href"])
                continue
            status, said, _ = caller(action["method"], action["href"], action.get("body"))
            good = status < 300 if action["method"] == "GET" or "body" in action else status in (200, 201, 202, 400)
            assert good, (action, status, said)
    return ends


@pytest.fixture
def side(claude):
    """A session with a sidechain in its bytes."""
    lines = [
        claude("user", "Main: please check the walrus.", "u1", 0),
        claude("user", "Sidechain: count the narwhals in the harbour.", "u2", 1, isSidechain=True, parentUuid=None),
        claude("assistant", [{"type": "text", "text": "Seven narwhals swim there."}], "u3", 2, isSidechain=True,
               parentUuid="u2"),
        claude("assistant", [{"type": "text", "text": "The walrus is fine."}], "u4", 3, parentUuid="u1"),
    ]  # fmt: skip
    return b"".join(lines)


def test_every_link_and_every_action_leads_somewhere(served, message, side):
    at = served("[server]\nrequests_per_minute = 6000\n")
    ada, word = at.ada_laptop, message("user", "The quokka hops in the harbour.", 0)
    plain = ada("POST", "/api/runs?runtime=messages&session=a/b%3F%201&tag=work", word)[1]
    kept = ada("POST", "/api/runs?runtime=claude-code&session=s", side)[1]
    wait(at, plain)
    wait(at, kept)
    answers = [
        plain, kept, ada("GET", "/api/me")[1], ada("GET", plain["_links"]["self"])[1],
        ada("POST", "/api/runs/search", {"query": "harbour", "limit": 1})[1],
        ada("POST", "/api/runs/search", {"query": "quokka"})[1], ada("GET", "/api/runs/forest")[1],
        ada("POST", "/api/memories", {"text": "The quokka database is called Alder"})[1],
        ada("POST", "/api/cards", {"text": "Ask before you push."})[1],
        ada("POST", "/api/machines", {"name": "tablet"})[1],
        ada("POST", "/api/grants", {"grantee": "bob", "scope": "tag", "value": "work"})[1],
    ]  # fmt: skip
    found = ada("POST", "/api/runs/search", {"query": "narwhals"})[1]
    (spawned,) = {hit["run_id"] for hit in found["hits"]}
    assert spawned != kept["run_id"], "a sidechain is a run of its own"
    for hit in found["hits"]:
        assert hit["_links"]["jsonl"] == kept["_links"]["jsonl"] and "conversation" in hit["_links"]
    below = ada("GET", f"/api/runs/{spawned}")[1]
    assert below["_links"]["jsonl"] == kept["_links"]["jsonl"]
    recalled = ada("POST", "/api/recall", {"message": "How many narwhals did we count?"})[1]
    assert recalled["cues"] and all(isinstance(cue["chunk"], int) for cue in recalled["cues"] if not cue["memory_id"])
    lists = [ada("GET", f"/api/{name}")[1] for name in ("memories", "cards", "machines", "grants", "floor")]
    lists += [ada("POST", "/api/memories/search", {"query": "quokka"})[1]]
    ends = {href for answer in (*answers, found, below, recalled, *lists) for href in follow(ada, answer)}
    assert len(ends) == 4 and {ada("DELETE", href)[0] for href in ends} == {200}


def test_a_conversation_is_searched_without_words(served, message):
    at = served()
    ada = at.ada_laptop
    kept = ada("POST", "/api/runs?runtime=messages&session=s1", message("user", "The quokka hops.", 0))[1]
    wait(at, kept)
    run = ada("GET", kept["_links"]["self"])[1]
    (search,) = [one for one in run["next_actions"] if one["method"] == "POST"]
    for mode in ("hybrid", "semantic", "keyword"):
        status, found, _ = ada("POST", search["href"], {**search["body"], "mode": mode})
        assert status == 200 and [hit["run_id"] for hit in found["hits"]] == [kept["run_id"]], mode
    assert ada("POST", search["href"], {"query": " "})[0] == ada("POST", search["href"], {"filters": {}})[0] == 400
    assert ada("GET", "/api/runs?conversation_id=none")[0] == 404


def test_sidechain_is_shared_by_its_parent_run(served, side):
    at = served()
    kept = at.ada_laptop("POST", "/api/runs?runtime=claude-code&session=s", side)[1]
    wait(at, kept)
    spawned = at.ada_laptop("POST", "/api/runs/search", {"query": "narwhals"})[1]["hits"][0]["run_id"]
    share = {"grantee": "bob", "scope": "run", "value": spawned}
    status, said, _ = at.ada_laptop("POST", "/api/grants", share)
    assert status == 400 and kept["run_id"] in said["error"]["message"]
    assert at.ada_laptop("POST", "/api/grants", {**share, "value": kept["run_id"]})[0] == 201
    (hit, *_) = at.bob_phone("POST", "/api/runs/search", {"query": "narwhals"})[1]["hits"]
    assert follow(at.bob_phone, hit) == []


def test_shared_memories_are_a_separate_list(served):
    at = served()
    made = at.ada_laptop("POST", "/api/memories", {"text": "The quokka database is called Alder", "project": "/w/a"})[1]
    at.ada_laptop("POST", "/api/grants", {"grantee": "bob", "scope": "project", "value": "/w/a"})
    listed = at.bob_phone("GET", "/api/memories?shared=true")[1]
    assert [one["memory_id"] for one in listed["items"]] == [made["memory_id"]]
    assert at.bob_phone("GET", listed["items"][0]["_links"]["self"])[0] == 200
    assert at.bob_phone("GET", "/api/memories")[1]["items"] == []
    assert at.bob_phone("GET", "/api/memories?shared=true&prefix=nowhere")[1]["items"] == []


@pytest.mark.parametrize(
    ("shape", "noun", "extra_names"),
    [
        (shapes.HitJson, Hit, {"chunk_idx", "tags", "started_at", "_links"}),
        (shapes.CueJson, Cue, {"memory_id", "_links"}),
    ],
)
def test_a_hit_and_a_cue_have_the_names_of_python(shape, noun, extra_names):
    names = {field.encode_name for field in msgspec.structs.fields(shape)}
    assert names == {field.name for field in msgspec.structs.fields(noun)} | extra_names
