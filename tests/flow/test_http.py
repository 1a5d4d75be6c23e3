"""The API over a real socket: what is sent is kept, what is kept is found, and what is wrong is said."""

import contextlib
import http.client
import json
import socket
import threading
import time
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from perdure.surfaces.cli import cli

pytest.importorskip("uvicorn")

SECRET = "ghp_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"


def until(ask, good, *, limit_s=15.0):
    """The first answer that is good, or the last."""
    ends_s = time.monotonic() + limit_s
    while True:
        said = ask()
        if good(said) or time.monotonic() > ends_s:
            return said
        time.sleep(0.05)


def ok(said):
    return said[0] == 200


@pytest.fixture
def keep(lines):
    """Send lines as a session, and wait until they are found."""

    def send(caller, session="s1", data=lines, **fields):
        query = "&".join(f"{name}={quote(str(value))}" for name, value in fields.items())
        status, kept, _ = caller("POST", f"/api/runs?runtime=messages&session={session}&{query}", data)
        assert status == 202, kept
        assert until(lambda: caller("GET", kept["_links"]["self"]), ok)[0] == 200
        return kept

    return send


# capture --------------------------------------------------------------------------------------------------------


def test_a_run_is_kept_read_and_found(served, lines):
    ada = served().ada_laptop
    status, kept, _ = ada("POST", "/api/runs?runtime=messages&session=s1&tag=work&tag=port&project=/w/alder", lines)
    assert (status, kept["outcome"], kept["accepted_up_to"], kept["bytes"]) == (202, "stored", len(lines), len(lines))
    status, raw, headers = ada("GET", kept["_links"]["jsonl"])
    assert status == 200 and raw == lines and headers["content-type"].startswith("application/x-ndjson")
    status, run, _ = until(lambda: ada("GET", kept["_links"]["self"]), ok)
    assert (run["user"], run["machine"], run["project"]) == ("ada", "laptop", "/w/alder")
    assert run["tags"] == ["port", "work"]
    found = ada("POST", "/api/runs/search", {"query": "staging port"})[1]
    assert {hit["run_id"] for hit in found["hits"]} == {kept["run_id"]}
    assert ada("GET", found["hits"][0]["_links"]["jsonl"])[1] == lines


def test_capture_as_json_equals_one_as_bytes(served, lines):
    ada = served().ada_laptop
    said = {"runtime": "messages", "session": "s1", "tag": ["work"], "jsonl": lines.decode()}
    status, kept, _ = ada("POST", "/api/runs", said)
    assert (status, kept["outcome"]) == (202, "stored")
    assert ada("GET", kept["_links"]["jsonl"])[1] == lines
    again = ada("POST", "/api/runs", said)[1]
    assert (again["outcome"], again["run_id"]) == ("already", kept["run_id"])


def test_capture_reports_overlaps_gaps_and_generations(served, lines, message):
    """Already there, more than is there, a gap, and a source that was rewritten and goes on as the next generation."""
    ada = served().ada_laptop
    more, other = message("user", "And the production server?", 2), message("user", "Something else was said.", 0)

    def send(data, query=""):
        status, said, _ = ada("POST", f"/api/runs?runtime=messages&session=s1{query}", data)
        return status, said.get("outcome") or said["error"]["code"], said["accepted_up_to"]

    assert send(lines) == (202, "stored", len(lines))
    assert send(lines) == (202, "already", len(lines))
    assert send(lines + more) == (202, "accepted", len(lines))
    assert send(more, f"&from_offset={len(lines) + 9}") == (409, "gap", len(lines))
    assert send(other) == (409, "diverged", len(lines))
    assert send(other, "&generation=1") == (202, "stored", len(other))
    assert send(more, f"&from_offset={len(lines)}&generation=0") == (202, "stored", len(lines) + len(more))


def test_only_whole_lines_are_accepted(served, lines):
    ada = served().ada_laptop
    kept = ada("POST", "/api/runs?runtime=messages&session=s1", lines + b'{"role": "us')[1]
    assert kept["accepted_up_to"] == len(lines)


def test_adapter_lines_are_appended(served, lines, message):
    ada = served().ada_laptop
    more = message("user", "And the production server?", 2)
    where = "/api/runs?runtime=messages&session=s1&emitted=true&project=/w/alder"
    assert ada("POST", where, lines)[1]["outcome"] == "stored"
    again = ada("POST", where, lines)[1]
    assert (again["outcome"], again["accepted_up_to"]) == ("already", len(lines)) and again["run_id"]
    kept = ada("POST", where, lines + more)[1]
    assert (kept["outcome"], kept["bytes"]) == ("stored", len(more))
    run = until(lambda: ada("GET", kept["_links"]["self"]), ok)[1]
    assert (run["machine"], run["project"]) == ("laptop", "/w/alder")


def test_credential_sets_owner_and_machine(served, lines, keep):
    bob = served().bob_phone
    claims = {"user": "ada", "user_id": "ada", "machine": "laptop", "machine_id": "m-ada-1", "readable_by": "ada"}
    kept = keep(bob, **claims)
    said = {"runtime": "messages", "session": "s2", "jsonl": lines.decode(), **claims}
    second = bob("POST", "/api/runs", said)[1]
    for run_id in (kept["run_id"], second["run_id"]):
        run = until(lambda run_id=run_id: bob("GET", f"/api/runs/{run_id}"), ok)[1]
        assert (run["user"], run["machine"], run["readable_by"]) == ("bob", "phone", ["bob"])


@pytest.mark.index_file("it damages the file")
def test_a_capture_needs_neither_index_nor_model(served, lines):
    """Row A25: with an index of garbage and a model that raises, it is kept; after catching up it is found."""

    class Broken:
        def __getattr__(self, name):
            raise RuntimeError("no model")

    at = served(embedder=Broken())
    until((at.place / "index.db").is_symlink, bool)
    with (at.place / "index.db").resolve().open("r+b") as index:  # cut short, it would kill threads that have it mapped
        index.write(b"garbage" * 4096)
    for wal in at.place.glob("*-wal"):
        wal.write_bytes(b"garbage" * 100)
    status, kept, _ = at.ada_laptop("POST", "/api/runs?runtime=messages&session=s1", lines)
    assert (status, kept["outcome"]) == (202, "stored")
    assert at.ada_laptop("GET", kept["_links"]["jsonl"])[1] == lines
    with at.serving.clone_home() as home:
        home.upkeep.rebuild()
    found = until(
        lambda: at.ada_laptop("POST", "/api/runs/search", {"query": "nginx", "mode": "keyword"}),
        lambda said: ok(said) and said[1]["hits"],
    )
    assert found[1]["hits"][0]["run_id"] == kept["run_id"]


def test_the_rules_of_a_capture_hold(served, lines, keep):
    at = served()
    with at.serving.clone_home() as home:
        home.captures.mark_incognito("messages", "secret")
        status, said, _ = at.ada_laptop("POST", "/api/runs?runtime=messages&session=secret", lines)
        assert (status, said["error"]["code"]) == (400, "usage-error") and "incognito" in said["error"]["message"]
        home.captures.pause()
        status, said, headers = at.ada_laptop("POST", "/api/runs?runtime=messages&session=s1", lines)
        assert (status, said["error"]["code"]) == (503, "paused") and int(headers["retry-after"]) > 0
        home.captures.resume()
    kept = keep(at.ada_laptop)
    with at.serving.clone_home() as home:
        turn = home.search("nginx").hits[0].turn_id
        home.forgetting.apply(home.forgetting.plan([turn]))
    again = at.ada_laptop("POST", "/api/runs?runtime=messages&session=other", lines)[1]
    assert b"8443" not in at.ada_laptop("GET", again["_links"]["jsonl"])[1], "what was forgotten does not come back"
    assert b"8443" not in at.ada_laptop("GET", kept["_links"]["jsonl"])[1]


# reading and searching ------------------------------------------------------------------------------------------


def test_descendants_and_the_forest_are_listed(served, keep, message):
    ada = served().ada_laptop
    top = keep(ada)
    data = [message("user", f"sub-agent {n} looks for the quokka", n) for n in range(3)]
    below = [keep(ada, f"sub{n}", data[n], parent_run_id=top["run_id"])["run_id"] for n in range(3)]
    first = ada("GET", f"/api/runs/{top['run_id']}/descendants?limit=2")[1]
    second = ada("GET", f"/api/runs/{top['run_id']}/descendants?limit=2&cursor={first['next_cursor']}")[1]
    assert {run["run_id"] for run in first["items"] + second["items"]} == set(below)
    assert second["next_cursor"] is None
    (tree,) = ada("GET", "/api/runs/forest?since=2026-01-01&runtime=messages")[1]["items"]
    assert tree["run"]["run_id"] == top["run_id"] and len(tree["children"]) == 3
    flat = ada("GET", f"/api/runs/forest?flat=true&root_run_id={top['run_id']}")[1]["items"]
    assert [row["depth"] for row in flat] == [0, 1, 1, 1]
    assert ada("GET", "/api/runs/forest?since=yesterdayish")[0] == 400


def test_long_chain_of_runs_is_listed(served, message):
    ada = served().ada_laptop
    at = 0
    for n in range(400):
        line = message("user", f"line {n}", n)
        ada("POST", f"/api/runs?runtime=messages&session=long&from_offset={at}", line)
        at += len(line)
    said = until(lambda: ada("GET", "/api/runs/forest?flat=true"), lambda said: len(said[1].get("items", ())) == 400)
    assert said[1]["items"][-1]["depth"] == 399
    with contextlib.closing(http.client.HTTPConnection(ada.address)) as line:
        line.request("GET", "/api/runs/forest", headers={"Authorization": f"Bearer {ada.secret}"})
        raw = line.getresponse().read()
    assert raw.count(b'"children":[') == 400


FILTERS = [
    ({"tags": ["work", "port"]}, 1), ({"tags": ["work", "other"]}, 0), ({"agent_runtime": ["messages", "x"]}, 2),
    ({"machine_id": ["laptop"]}, 2), ({"machine_id": ["tower"]}, 0), ({"conversation_id": "s1"}, 1),
    ({"project": ["/w/alder"]}, 1), ({"role": ["assistant"]}, 2), ({"role": ["tool"]}, 0), ({"kind": ["text"]}, 2),
    ({"agent": ["default"]}, 2), ({"stated_at": {"gte": "2026-01-15T09:00:30Z"}}, 2),
    ({"stated_at": {"lte": "2026-01-15T09:00:30Z"}}, 0), ({"stated_at": {"lte": "2026-01-15T09:01:00Z"}}, 2),
    ({"started_at": {"gte": "2026-01-15T09:00:30Z"}}, 0), ({"started_at": {"lte": "2026-01-15T09:00:00Z"}}, 2),
    ({"started_at": {"lte": "2026-01-15T08:59:59Z"}}, 0), ({"machine_id": ["m-ada-1", "tower"]}, 2),
]  # fmt: skip


def test_pages_of_the_forest_cover_everything(served, keep, lines, message):
    ada = served().ada_laptop
    for n in range(3):
        keep(ada, f"s{n}", message("user", f"quokka {n}", n))
    top = keep(ada, "long", message("user", "The quokka hops.", 10))
    end = top["accepted_up_to"]
    for n in range(2):
        end = keep(ada, "long", message("user", f"It hops again {n}", 11 + n), from_offset=end)["accepted_up_to"]
    for where in ("", f"&root_run_id={top['run_id']}"):
        whole = ada("GET", f"/api/runs/forest?flat=true{where}")[1]
        seen, cursor = [], ""
        while cursor is not None:
            page = ada("GET", f"/api/runs/forest?flat=true&limit=2{where}" + (f"&cursor={cursor}" if cursor else ""))[1]
            seen += [item["run"]["run_id"] for item in page["items"]]
            cursor = page["next_cursor"]
        assert sorted(seen) == sorted(item["run"]["run_id"] for item in whole["items"]) and whole["next_cursor"] is None
        assert len(seen) == len(set(seen)) == (3 if where else 6)


def test_search_accepts_every_mode_and_filter(served, keep, lines):
    ada = served().ada_laptop
    ada("POST", "/api/runs?runtime=messages&session=s1&tag=work&tag=port&project=/w/alder", lines)
    keep(ada, "s2", lines.replace(b"8443", b"9090"))
    for mode in ("keyword", "hybrid", "semantic", None):
        body = {"query": "nginx", "mode": mode} if mode else {"query": "nginx"}
        status, found, _ = ada("POST", "/api/runs/search", body)
        assert status == 200 and len(found["hits"]) == 2, mode
        assert {"query_embed_ms", "query_queued_ms", "search_ms", "total_ms", "depth_before_submit"} <= set(
            found["timing"]
        )
        score = found["hits"][0]["score"]
        assert set(score) == {"fused", "vector_distance", "text_match"} and score["fused"] > 0
        assert {"run", "jsonl"} <= set(found["hits"][0]["_links"]) and found["next_actions"]
    for filters, n in FILTERS:
        for mode in ("keyword", "semantic"):
            found = ada("POST", "/api/runs/search", {"query": "nginx", "filters": filters, "mode": mode})[1]
            assert len(found["hits"]) == n, (filters, mode)
    machine = ada("POST", "/api/machines", {"name": "laptop"})[1]["machine_id"]
    found = ada("POST", "/api/runs/search", {"query": "nginx", "filters": {"machine_id": [machine]}})[1]
    assert len(found["hits"]) == 2
    for wrong in ({"machine": ["laptop"]}, {"started_at": {"from": "2026-01-15T09:00:00Z"}}):
        assert ada("POST", "/api/runs/search", {"query": "nginx", "filters": wrong})[0] == 400, wrong


def test_pages_of_a_search_cover_everything(served, keep, message):
    ada = served().ada_laptop
    keep(ada, "many", b"".join(message("user", f"the quokka number {n} hops", n) for n in range(11)))
    whole = ada("POST", "/api/runs/search", {"query": "quokka", "limit": 100})[1]
    pages, cursor = [], None
    while True:
        said = ada("POST", "/api/runs/search", {"query": "quokka", "limit": 3, "cursor": cursor})[1]
        pages += said["hits"]
        cursor = said["next_cursor"]
        if cursor is None:
            break
    assert [hit["turn_id"] for hit in pages] == [hit["turn_id"] for hit in whole["hits"]] and len(pages) == 11


def test_a_forged_or_foreign_cursor_is_refused(served, keep, message):
    at = served()
    keep(at.ada_laptop, "many", b"".join(message("user", f"the quokka number {n} hops", n) for n in range(5)))
    ask = {"query": "quokka", "limit": 2}
    cursor = at.ada_laptop("POST", "/api/runs/search", ask)[1]["next_cursor"]
    other = cursor[:-2] + ("AA" if cursor[-2:] != "AA" else "BB")
    for caller, body in (
        (at.ada_laptop, {**ask, "cursor": other}), (at.ada_laptop, {**ask, "query": "else", "cursor": cursor}),
        (at.ada_laptop, {**ask, "filters": {"tags": ["x"]}, "cursor": cursor}),
        (at.bob_phone, {**ask, "cursor": cursor}),
        (at.ada_laptop, {**ask, "cursor": "%%%"}), (at.ada_laptop, {**ask, "cursor": "é"}),
    ):  # fmt: skip
        assert caller("POST", "/api/runs/search", body)[0] == 400, body
    assert at.ada_laptop("GET", f"/api/memories?cursor={cursor}")[0] == 400
    assert at.ada_tower("POST", "/api/runs/search", {**ask, "cursor": cursor})[0] == 200


# privacy --------------------------------------------------------------------------------------------------------


def test_unreadable_and_unknown_ids_get_the_same_answer(served, keep):
    at = served()
    run_id = keep(at.ada_laptop)["run_id"]
    made = at.ada_laptop("POST", "/api/memories", {"text": "The quokka database is called Alder"})[1]
    card = at.ada_laptop("POST", "/api/cards", {"text": "Ask before you push."})[1]
    unknown = run_id[:-4] + "zzzz"
    for path in ("/api/runs/{}", "/api/runs/{}/jsonl", "/api/runs/{}/descendants"):
        theirs, none = (at.bob_phone("GET", path.format(name)) for name in (run_id, unknown))
        assert (theirs[0], theirs[1]) == (none[0], none[1]) and theirs[0] == 404, path
        odd = at.bob_phone("GET", path.format("..%2f..%2fetc"))
        assert odd[0] == 404
    for method, path, name, other in (
        ("GET", "/api/memories/", made["memory_id"], "mem-20200101-000000-000000"),
        ("DELETE", "/api/memories/", made["memory_id"], "mem-20200101-000000-000000"),
        ("DELETE", "/api/cards/", card["id"], "card-00000000"),
        ("DELETE", "/api/machines/", "m-ada-1", "m-none"),
    ):
        theirs, none = at.bob_phone(method, path + name), at.bob_phone(method, path + other)
        assert (theirs[0], theirs[1]) == (none[0], none[1]) and theirs[0] == 404, path
    assert at.ada_laptop("GET", f"/api/memories/{made['memory_id']}")[0] == 200


QUERIES = [
    "`quokka`",
    "quokka' OR '1'='1",
    'quokka" OR user:ada',
    "user_id:=ada",
    "NEAR(quokka alder)",
    "*",
    "quokka) OR (a",
]


@pytest.mark.parametrize("query", QUERIES)
def test_filter_comes_only_from_the_credential(served, keep, message, query):
    at = served()
    keep(at.ada_laptop, data=message("user", "The quokka lives in alder street", 0))
    body = {"query": query, "user_id": "ada", "user": "ada", "readable_by": ["bob"]}
    assert at.bob_phone("POST", "/api/runs/search", {**body, "filters": {"user_id": "ada"}})[0] == 400
    for filters in ({}, {"tags": [query]}, {"machine_id": [query]}, {"project": [query]}, {"conversation_id": query}):
        status, found, _ = at.bob_phone("POST", "/api/runs/search", {**body, "filters": filters})
        assert status == 200 and not found["hits"], filters
    assert not at.bob_phone("GET", "/api/runs/forest?user=ada&user_id=ada")[1]["items"]
    assert (
        at.bob_phone("POST", "/api/recall", {"message": "Where does the quokka live?", "user": "ada"})[1]["block"] == ""
    )


# recall ---------------------------------------------------------------------------------------------------------


def test_recall_returns_a_block_and_records_nothing(served, keep):
    at = served()
    keep(at.ada_laptop)
    before = (at.place / "archive" / "journal").exists() and sorted((at.place / "archive" / "journal").rglob("*.jsonl"))
    sizes = [path.stat().st_size for path in before or ()]
    said = at.ada_laptop("POST", "/api/recall", {"message": "Which port does the staging server use?"})[1]
    assert "8443" in said["block"] and "untrusted data" in said["block"] and said["n_tokens"] > 0
    cue = next(cue for cue in said["cues"] if "8443" in cue["text"])
    assert cue["machine"] == "laptop" and at.ada_laptop("GET", cue["_links"]["jsonl"])[0] == 200
    assert [path.stat().st_size for path in before or ()] == sizes
    assert at.ada_laptop("POST", "/api/recall", {"message": "thanks"})[1]["block"] == ""


def test_recall_into_a_session_is_recorded_and_not_repeated(served, keep, message):
    at = served()
    keep(at.ada_laptop)
    ask = {"message": "Which port does the staging server use?", "session": "live", "runtime": "messages"}
    block = at.ada_laptop("POST", "/api/recall", ask)[1]["block"]
    assert "8443" in block
    assert "8443" not in at.ada_laptop("POST", "/api/recall", ask)[1]["block"]
    keep(at.ada_laptop, "live", message("user", f"{block}\n\nWhich one was it?", 5))
    hits = at.ada_laptop("POST", "/api/runs/search", {"query": "8443", "mode": "keyword"})[1]["hits"]
    assert {hit["conversation"] for hit in hits} == {"s1"}, "memory does not eat itself"


def test_shadow_silences_hooks_and_not_what_is_asked_for(served, keep):
    at = served("[live]\nshadow = true\n")
    keep(at.ada_laptop)
    prompt = "Which port does the staging server use?"
    event = {"client": "messages", "kind": "prompt", "session": "h1", "prompt": prompt}
    reply = at.ada_laptop("POST", "/api/hook", {"event": event, "limit_ms": 10_000})[1]
    assert reply == {"text": "", "notice": ""}
    journal = at.serving.home.journal()
    assert len(journal.read(type_="shadow")) == 1 and journal.read(type_="injected") == []
    ask = {"message": prompt, "session": "h1", "runtime": "messages"}
    assert "8443" in at.ada_laptop("POST", "/api/recall", ask)[1]["block"]
    assert len(journal.read(type_="injected")) == 1
    (at.place / "config.toml").write_text("[live]\nshadow = maybe\n")  # a fault changes nothing
    assert at.ada_laptop("POST", "/api/hook", {"event": {**event, "session": "h2"}})[1]["text"] == ""
    (at.place / "config.toml").write_text("[live]\nshadow = false\n")
    assert "8443" in at.ada_laptop("POST", "/api/hook", {"event": {**event, "session": "h3"}})[1]["text"]


def test_hook_gets_the_answer_of_the_resident_home(served, keep):
    at = served()
    keep(at.ada_laptop)
    event = {"client": "claude-code", "kind": "prompt", "session": "h1", "prompt": "Which port does staging use?"}
    said = at.ada_laptop("POST", "/api/hook", {"event": event, "limit_ms": 10_000})[1]
    assert set(said) == {"text", "notice"} and "8443" in said["text"]
    journals = [path for path in (at.place / "archive" / "journal").rglob("*.jsonl") if b'"h1"' in path.read_bytes()]
    assert journals and all("ada" in path.parts for path in journals)
    assert at.ada_laptop("POST", "/api/hook", {"event": {**event, "session": "h2"}, "limit_ms": 1})[1] == {
        "text": "", "notice": "",
    }  # fmt: skip
    assert at.ada_laptop("POST", "/api/hook", {"event": {"kind": "prompt"}})[0] == 400
    assert "8443" not in at.bob_phone("POST", "/api/hook", {"event": event})[1]["text"]


@pytest.mark.parametrize("wire", ["anthropic", "openai"])
def test_a_context_for_any_model(served, keep, wire):
    ada = served().ada_laptop
    keep(ada)
    ada("POST", "/api/cards", {"text": "Ask before you push."})
    window = [{"role": "user", "content": "Hello"}]
    ask = {"message": "Which port does the staging server use?", "window": window, "format": wire}
    status, said, _ = ada("POST", "/api/context", ask)
    assert status == 200 and said["n_tokens"] > 0 and {part["name"] for part in said["parts"]} >= {"cards", "recall"}
    whole = json.dumps(said["messages"]) + json.dumps(said.get("system", ""))
    assert "8443" in whole and "Ask before you push." in whole and "Hello" in whole


# memories, cards, the floor -------------------------------------------------------------------------------------


def test_the_life_of_a_memory(served):
    ada = served().ada_laptop
    status, made, headers = ada("POST", "/api/memories", {"text": "I prefer Helix over vim", "project": "/w/alder"})
    assert status == 201 and headers["location"] == made["_links"]["self"] and made["project"] == "/w/alder"
    here = made["_links"]["self"]
    assert [m["memory_id"] for m in ada("GET", "/api/memories")[1]["items"]] == [made["memory_id"]]
    assert ada("POST", "/api/memories/search", {"query": "helix"})[1]["items"][0]["memory_id"] == made["memory_id"]
    assert ada("PATCH", here, {"pinned": True})[1]["pinned"] is True
    newer = ada("PATCH", here, {"text": "I prefer Zed over vim"})[1]
    assert newer["text"] == "I prefer Zed over vim" and len(newer["history"]) == 2
    assert ada("PATCH", here, {})[0] == 400 and ada("PATCH", here, {"kind": "poem"})[0] == 400
    gone = ada("DELETE", newer["_links"]["self"])[1]
    assert newer["memory_id"] in gone["forgotten"] and ada("GET", newer["_links"]["self"])[0] == 404
    assert ada("POST", "/api/memories", {"text": " "})[0] == 400


def test_cards_and_pages_can_be_changed(served):
    ada = served().ada_laptop
    card = ada("POST", "/api/cards", {"text": "Ask before you push."})[1]
    assert [one["id"] for one in ada("GET", "/api/cards")[1]["items"]] == [card["id"]]
    wrote = ada("PUT", "/api/floor/notes", {"text": "- Deploys happen on Tuesdays"})
    assert wrote[0] == 200 and wrote[1]["name"] == "notes.md" and len(wrote[1]["versions"]) == 1
    assert "Tuesdays" in ada("GET", "/api/floor/notes.md")[1]["text"]
    layers = {layer["name"]: layer["text"] for layer in ada("GET", "/api/floor")[1]["layers"]}
    assert "Tuesdays" in layers["notes"] and "push" in layers["cards"]
    assert ada("DELETE", f"/api/cards/{card['id']}")[0] == 200 and not ada("GET", "/api/cards")[1]["items"]
    for name in ("..%2f..%2fconfig.toml", "nothing.md", "diary/2026-13-41.md"):
        assert ada("GET", f"/api/floor/{name}")[0] == 404
    assert ada("GET", "/api/floor/core.md")[0] == 404


# machines, grants, jobs -----------------------------------------------------------------------------------------


def test_machines_are_registered_only_with_permission(served):
    at = served()
    status, made, _ = at.bob_phone("POST", "/api/machines", {"name": "tablet"})
    assert status == 201 and made["secret"].startswith("pdr-") and made["user"] == "bob"
    assert "secret" not in json.dumps(at.bob_phone("GET", "/api/machines")[1])
    assert at.bob_phone("GET", "/api/machines")[1]["items"][0]["registered_by"] == "m-bob-1"
    shown = CliRunner().invoke(cli, ["machine", "list", "--home", str(at.place)])
    assert "registered by m-bob-1" in shown.output, shown.output
    assert at.bob_phone("POST", "/api/machines", {"name": "x", "user": "ada"})[0] == 403
    assert at.bob_phone("GET", "/api/machines?everybody=true")[0] == 403
    assert at.ada_laptop("POST", "/api/machines", {"name": "pad", "user": "carol"})[0] == 201
    names = {item["name"] for item in at.ada_laptop("GET", "/api/machines?everybody=true")[1]["items"]}
    assert names == {"tablet", "pad"}
    assert at.bob_phone("DELETE", f"/api/machines/{made['machine_id']}")[1]["revoked_at"]
    assert not at.bob_phone("GET", "/api/machines")[1]["items"]
    assert at.bob_phone("POST", "/api/machines", {"name": ".."})[0] == 400


def test_grants_are_given_and_revoked(served, keep):
    at = served()
    keep(at.ada_laptop, tag="work")
    until_at = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    status, given, _ = at.ada_laptop(
        "POST", "/api/grants", {"grantee": "bob", "scope": "tag", "value": "work", "until_at": until_at}
    )
    assert status == 201 and given["owner"] == "ada"
    assert [one["grant_id"] for one in at.bob_phone("GET", "/api/grants")[1]["to_me"]] == [given["grant_id"]]
    assert at.bob_phone("DELETE", f"/api/grants/{given['grant_id']}")[1]["declined_at"], "its grantee declines it"
    assert at.ada_laptop("DELETE", f"/api/grants/{given['grant_id']}")[1]["revoked_at"]
    assert not at.bob_phone("GET", "/api/grants")[1]["to_me"]
    assert at.ada_laptop("POST", "/api/grants", {"grantee": "ada", "scope": "tag", "value": "x"})[0] == 400


def test_jobs_are_for_admins(served):
    at = served()
    assert at.bob_phone("GET", "/api/jobs")[0] == 403 and at.bob_phone("POST", "/api/jobs/pack/trigger")[0] == 403
    assert at.bob_phone("POST", "/api/jobs", {"name": "x", "job": {"command": "true"}})[0] == 403
    assert at.ada_laptop("POST", "/api/jobs/nothing/trigger")[0] == 404
    assert at.ada_laptop("POST", "/api/jobs/pack/trigger")[0] == 202
    ran = until(
        lambda: next(job for job in at.ada_laptop("GET", "/api/jobs")[1]["items"] if job["job"] == "pack"),
        lambda job: job["last"] and job["last"]["result"] != "running",
    )
    assert ran["last"]["trigger"] == "person" and ran["last"]["result"] in ("done", "nothing")


def test_a_job_of_the_owner_lives_and_ends_over_http(served):
    """U19: the words of the command line. There is no model, so that its run crashes, and says why."""
    at = served()
    job = {"cron": "0 9 * * *", "instruction": "Say hello."}
    status, made, _ = at.ada_laptop("POST", "/api/jobs", {"name": "hello", "job": job})
    assert status == 201, made
    assert made["when"] == "0 9 * * *" and made["is_own"] and "Say hello." in made["page"]
    assert at.ada_laptop("POST", "/api/jobs", {"name": "hello", "job": job})[0] == 409
    status, refused, _ = at.ada_laptop("POST", "/api/jobs", {"name": "bad", "job": {**job, "speed": 3}})
    assert status == 400 and "speed: nothing reads it" in refused["error"]["message"]
    changed = at.ada_laptop("PUT", "/api/jobs/hello", {"job": {**job, "cron": "30 8 * * *"}})[1]
    assert changed["when"] == "30 8 * * *"
    assert at.ada_laptop("POST", "/api/jobs/hello/pause")[1]["paused"]
    assert at.ada_laptop("GET", "/api/jobs/hello")[1]["next_at"] is None
    assert not at.ada_laptop("POST", "/api/jobs/hello/resume")[1]["paused"]
    status, triggered, _ = at.ada_laptop("POST", "/api/jobs/hello/trigger")
    assert (status, triggered["result"]) == (202, "queued")
    (run,) = until(
        lambda: at.ada_laptop("GET", "/api/jobs/hello/runs")[1]["items"],
        lambda runs: runs[0]["result"] not in ("waiting", "running"),
    )
    assert run["result"] == "crashed" and "model" in run["why"]
    shown = at.ada_laptop("GET", f"/api/jobs/hello/runs/{run['run']}")[1]
    assert shown["outcome"] == "crashed" and shown["what_to_do"]
    assert at.ada_laptop("GET", "/api/jobs/hello/runs/axxxxxxxxxx")[0] == 404
    assert at.ada_laptop("POST", "/api/jobs/hello/runs/axxxxxxxxxx/cancel")[0] == 404
    assert at.ada_laptop("DELETE", "/api/jobs/hello")[1]["removed"]
    assert at.ada_laptop("GET", "/api/jobs/hello")[0] == 404


# health ---------------------------------------------------------------------------------------------------------


def test_alive_gives_no_details_and_health_reports_faults(served):
    at = served(stale_s=2.0)
    assert at.nobody("GET", "/api/alive")[:2] == (200, {"alive": True})
    assert at.nobody("GET", "/api/health")[0] == 401
    status, said, _ = at.ada_laptop("GET", "/api/health")
    assert status == 200 and said["healthy"] and said["probe_ms"] > 0 and "proven_s_ago" in said and "waiting" in said
    plain = at.bob_phone("GET", "/api/health")[1]
    assert set(plain) == {"healthy", "problems", "checked_at", "probe_ms", "_links", "next_actions"}


def test_health_is_red_while_the_index_is_blocked(served):
    """Row E24, with a minute made short: a writer that never ends holds the index."""
    at = served(stale_s=2.0)
    assert until(lambda: at.ada_laptop("GET", "/api/health"), ok)[0] == 200
    with at.serving.clone_home() as home, home.index(create=True).begin_write():
        status, said, _ = until(lambda: at.bob_phone("GET", "/api/health"), lambda said: said[0] == 503, limit_s=20)
        assert (status, said["healthy"]) == (503, False) and "could not be written" in " ".join(said["problems"])
        assert "ada" not in json.dumps(said)
    assert until(lambda: at.ada_laptop("GET", "/api/health"), ok)[0] == 200


# events ---------------------------------------------------------------------------------------------------------


class Listening(contextlib.AbstractContextManager):
    """A listener of the caller's events, in a thread."""

    def __init__(self, caller):
        self.line = http.client.HTTPConnection(caller.address, timeout=30)
        self.line.request("GET", "/api/events", headers={"Authorization": f"Bearer {caller.secret}"})
        self.answer = self.line.getresponse()
        self.heard, self.ended = [], threading.Event()
        threading.Thread(target=self._hear, daemon=True).start()

    def _hear(self):
        kind = ""
        try:
            for raw in self.answer:
                text = raw.decode().strip()
                if text.startswith("event: "):
                    kind = text[7:]
                elif text.startswith("data: "):
                    self.heard.append((kind, json.loads(text[6:])))
        except OSError:  # it was cut off
            pass
        finally:
            self.ended.set()

    def __exit__(self, *error):
        self.line.sock and self.line.sock.shutdown(socket.SHUT_RDWR)
        self.answer.fp and self.ended.wait(5)
        self.answer.close()
        self.line.close()

    def kinds(self):
        return {kind for kind, _ in self.heard}


def test_events_are_the_callers_own(served, keep):
    at = served()
    with Listening(at.ada_laptop) as ada, Listening(at.bob_phone) as bob:
        assert ada.answer.status == 200 and ada.answer.headers["content-type"].startswith("text/event-stream")
        run_id = keep(at.ada_laptop)["run_id"]
        made = at.ada_laptop("POST", "/api/memories", {"text": "The quokka database is called Alder"})[1]
        at.ada_laptop("POST", "/api/jobs/pack/trigger")
        until(ada.kinds, lambda kinds: {"captured", "memory"} <= kinds)
        assert [said["run_id"] for kind, said in ada.heard if kind == "captured"] == [run_id]
        told = [one["memory_id"] for kind, said in ada.heard if kind == "memory" for one in said["memories"]]
        assert made["memory_id"] in told and "quokka" not in json.dumps(ada.heard)
        assert not bob.heard
        at.served.stop()
        assert ada.ended.wait(10) and bob.ended.wait(10), "they end with the server"


def test_recall_into_a_session_sends_only_numbers(served, keep):
    at = served("[models.embedder]\nkind = 'off'\n")
    keep(at.ada_laptop)
    with Listening(at.ada_tower) as ada, Listening(at.bob_phone) as bob:
        asked = {"message": "Which port does the staging server use?", "session": "s9", "runtime": "pi"}
        said = at.ada_laptop("POST", "/api/recall", asked)[1]
        assert said["cues"]
        until(ada.kinds, lambda kinds: "injected" in kinds)
        (told,) = [told for kind, told in ada.heard if kind == "injected"]
        assert told["nonce"] in said["block"] and (told["runtime"], told["session"]) == ("pi", "s9")
        assert (told["n_cues"], told["n_tokens"] > 0) == (len(said["cues"]), True)
        assert "staging" not in json.dumps(ada.heard) and not bob.heard


def test_revoked_machine_gets_no_more_events(served, keep):
    at = served()
    with Listening(at.ada_tower) as tower, Listening(at.ada_laptop) as laptop:
        del at.authority.secrets["ada-tower"]
        keep(at.ada_laptop)
        assert "captured" in until(laptop.kinds, bool)
        assert tower.ended.wait(10) and not tower.heard


def test_number_of_listeners_is_limited(served):
    at = served()
    with contextlib.ExitStack() as stack:
        several = [stack.enter_context(Listening(at.ada_laptop)) for _ in range(9)]
        assert sorted(one.answer.status for one in several) == [200] * 8 + [429]


# side by side ---------------------------------------------------------------------------------------------------


def test_hanging_requests_block_no_capture_and_no_health(served, lines):
    """Every thread that answers questions is held; captures go on, and what is too much is told to come back."""
    at = served()
    go = threading.Event()
    desk = at.served.api.worker_pools["read"]
    for _ in range(128):
        desk.start_task(lambda: go.wait(30) and None, on_error=print)
    try:
        status, said, headers = at.ada_laptop("POST", "/api/runs/search", {"query": "nginx"})
        assert (status, said["error"]["code"]) == (503, "busy") and int(headers["retry-after"]) > 0
        assert at.ada_laptop("POST", "/api/runs?runtime=messages&session=s1", lines)[0] == 202
        assert at.ada_laptop("GET", "/api/health")[0] == 200
        assert at.ada_laptop("POST", "/api/cards", {"text": "Ask before you push."})[0] == 201
    finally:
        go.set()


def test_shared_run_is_masked(served, keep, message):
    at = served()
    run_id = keep(at.ada_laptop, data=message("user", f"The quokka token is {SECRET} for now", 0), tag="work")["run_id"]
    assert at.bob_phone("GET", f"/api/runs/{run_id}/jsonl")[0] == 404
    given = at.ada_laptop("POST", "/api/grants", {"grantee": "bob", "scope": "tag", "value": "work"})[1]
    status, raw, _ = at.bob_phone("GET", f"/api/runs/{run_id}/jsonl")
    assert status == 200 and b"quokka" in raw and SECRET.encode() not in raw
    assert SECRET.encode() in at.ada_laptop("GET", f"/api/runs/{run_id}/jsonl")[1]
    (hit,) = at.bob_phone("POST", "/api/runs/search", {"query": "quokka"})[1]["hits"]
    assert hit["user"] == "ada" and hit["tags"] == ["work"] and hit["chunk_idx"] == 0
    at.ada_laptop("DELETE", f"/api/grants/{given['grant_id']}")
    assert at.bob_phone("GET", f"/api/runs/{run_id}/jsonl")[0] == 404
    assert not at.bob_phone("POST", "/api/runs/search", {"query": "quokka"})[1]["hits"]


def test_a_tree_and_the_counts_of_a_search(served, keep, message):
    ada = served().ada_laptop
    top = keep(ada, tag="work")
    keep(ada, "sub", message("user", "nginx is looked at below", 3), parent_run_id=top["run_id"])
    keep(ada, "else", message("user", "nginx is looked at elsewhere", 4))
    within = {"query": "nginx", "filters": {"root_run_id": top["run_id"]}}
    found = ada("POST", "/api/runs/search", within)[1]
    assert {hit["conversation"] for hit in found["hits"]} == {"s1", "sub"}
    assert found["facets"]["tag"] == {"work": 1} and found["facets"]["machine"] == {"laptop": 2}
    nothing = {"query": "nginx", "filters": {"root_run_id": top["run_id"][:-3] + "zzz"}}
    assert ada("POST", "/api/runs/search", nothing)[1]["hits"] == []
