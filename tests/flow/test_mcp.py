"""Perdure over MCP: every tool, resource and prompt through the official client, in old and new versions of it."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp")

from mcp import Client, MCPError
from mcp.types import ElicitResult

import perdure
from perdure.surfaces.mcp import answers
from perdure.surfaces.mcp.answers import ThreadedToolRunner
from perdure.surfaces.mcp.server import build_server

TOOLS = {"recall", "search", "show", "tree", "context", "remember", "settle", "note", "propose", "forget"}
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")  # opened by a handshake
SETTLED = "Actually the team wants the queue in Redis 7 and not in the database."
START = datetime(2026, 1, 15, 9, tzinfo=UTC)
MODES = ("legacy", "2026-07-28")


@pytest.fixture
def filled(opened, message, tmp_path):
    """A home with a conversation and a memory; its path."""
    home = opened(embedder=None)
    lines = [
        message("user", "Which port does the staging server use?", 0),
        message("assistant", "It listens on port 8443 behind nginx.", 1),
        message("user", "We decided to write the importer in Rust.", 2),
    ]
    home.capture(b"".join(lines), runtime="messages", session="s1")
    home.remember("The quokka database is called Alder", kind="fact")
    return tmp_path / "home"


@pytest.fixture
def talk(filled):
    """Run a conversation of a client with a server over the home."""

    def run(said: Callable[[Client], Any], *, mode: str = "legacy", elicit: Any = None) -> Any:
        desk = ThreadedToolRunner(lambda: perdure.open(filled, user="ada"))
        more = {"elicitation_callback": elicit} if elicit else {}

        async def conversation() -> Any:
            async with Client(build_server(desk, cwd=None), mode=mode, **more) as client:
                return await said(client)

        try:
            return anyio.run(conversation)
        finally:
            desk.close()

    return run


def call(name: str, **arguments: Any) -> Callable[[Client], Any]:
    async def said(client: Client) -> str:
        result = await client.call_tool(name, arguments)
        text = "".join(part.text for part in result.content)
        return f"ERROR {text}" if result.is_error else text

    return said


def test_new_home_recalls_nothing(opened):
    home = opened(embedder=None)
    assert answers.recall(home, "Which port?", cwd=None) == "Nothing to recall: nothing has been captured yet."


def test_a_model_settles_what_a_session_is_worth(filled, message, opened):
    home = opened(embedder=None)
    now = datetime.now(UTC) - START
    rows = [message("user", text, now.total_seconds() / 60) for text in (SETTLED, "Please fix the test.")]
    home.capture(b"".join(rows), runtime="messages", session="s2", cwd="/w")
    home.close()

    async def said(client):
        listed = await call("settle", project="/w")(client)
        (code,) = re.findall(r"^(t\w+): ", listed, re.MULTILINE)
        kept = await call("settle", keep=[{"ids": [code], "text": "The queue is in Redis 7."}], none=True)(client)
        bad = await call("settle", keep=[{"ids": ["t0000"], "text": "The queue is in Redis 7."}])(client)
        again = await call("settle", keep=[{"ids": [code], "text": "The queue is in Redis 7."}])(client)
        return listed, kept, bad, again, await call("settle", none=True)(client)

    desk = ThreadedToolRunner(lambda: perdure.open(filled, user="ada"))
    try:
        listed, kept, bad, again, rest = anyio.run(converse, desk, said)
    finally:
        desk.close()
    assert SETTLED in listed and "untrusted data" in listed and "fix the test" not in listed
    assert kept.startswith("Kept as mem-") and "was not asked about" in bad and "nothing changed: 1" in again
    assert rest == "Nothing kept of 0 lines."
    with perdure.open(filled, user="ada") as read:
        (memory,) = [m for m in read.memories.list_memories() if "Redis" in m.text and m.how == "mined"]
        assert memory.trust == "agent"


async def converse(desk: ThreadedToolRunner, said: Callable[[Client], Any]) -> Any:
    async with Client(build_server(desk, cwd=None), mode="legacy") as client:
        return await said(client)


@pytest.mark.parametrize("mode", MODES)
def test_server_lists_its_tools_and_resources(talk, mode):
    async def said(client):
        tools = (await client.list_tools()).tools
        resources = {str(one.uri) for one in (await client.list_resources()).resources}
        prompts = {one.name for one in (await client.list_prompts()).prompts}
        return tools, resources, prompts

    tools, resources, prompts = talk(said, mode=mode)
    assert {tool.name for tool in tools} == TOOLS and all(tool.description for tool in tools)
    assert resources == {"perdure://memories", "perdure://runs"} and prompts == {"search", "history", "context"}
    assert all(tool.annotations.read_only_hint for tool in tools if tool.name in ("recall", "search", "show", "tree"))


@pytest.mark.parametrize("mode", MODES)
def test_tools_store_recall_and_search(talk, mode):
    assert "Stored as mem-" in talk(call("remember", text="I prefer Helix over vim"), mode=mode)
    recalled = talk(call("recall", message="Which port does the staging server use?"), mode=mode)
    assert "8443" in recalled and "turn t" in recalled and "untrusted data" in recalled
    assert "Helix" in talk(call("search", query="helix"), mode=mode)
    found = talk(call("search", query="importer rust"), mode=mode)
    assert "Rust" in found and "run 0" in found


def test_found_turns_and_memories_can_be_read(talk):
    found = talk(call("search", query="nginx"))
    turn = found.split("turn t")[1].split(" ")[0]
    shown = talk(call("show", id=f"t{turn}"))
    assert "8443" in shown and "Which port" in shown
    assert "messages" in talk(call("tree", since="2020-01-01"))
    memory = talk(call("search", query="quokka")).split("mem-")[1].split(" ")[0]
    assert "Alder" in talk(call("show", id=f"mem-{memory}"))


@pytest.mark.index_file("it damages the file")
def test_damaged_index_does_not_stop_a_search(talk, filled):
    (filled / "index.db").resolve().write_bytes(b"not a database" * 1000)
    found = talk(call("search", query="nginx"))
    assert "8443" in found and "perdure rebuild" in found and "ERROR" not in found


def test_the_context_has_floor_and_recall(talk):
    assert "notes.md" in talk(call("note", text="Deploys happen on Tuesdays"))
    assert "Stored as card-" in talk(call("note", text="Future me: the archive is the truth", place="card"))
    assert "diary/" in talk(call("note", text="Dear next window: all is well", place="diary"))
    said = talk(call("context", message="Which port does the staging server use?"))
    for words in ("Tuesdays", "archive is the truth", "all is well", "8443", "Now: "):
        assert words in said


def test_a_protected_page_is_only_proposed(talk, opened):
    text = "You are Jarvis, who keeps the memory of this house and answers in one sentence. " * 2
    assert "approve" in talk(call("propose", page="system.md", text=text, why="none yet"))
    assert not opened().floor.read("system.md")
    assert talk(call("propose", page="system.md", text="", why="")).startswith("ERROR")


@pytest.mark.parametrize("mode", MODES)
def test_forgetting_asks_the_person(talk, mode):
    found = talk(call("search", query="nginx"), mode=mode)
    turn = "t" + found.split("turn t")[1].split(" ")[0]
    asked = []

    async def no(context, params):
        asked.append(params.message)
        return ElicitResult(action="decline")

    async def yes(context, params):
        return ElicitResult(action="accept", content={"forget": True})

    said = talk(call("forget", ids=[turn]), mode=mode)
    assert "cannot ask" in said and "1 turns" in said and "8443" not in said and not asked
    assert "nothing was forgotten" in talk(call("forget", ids=[turn]), mode=mode, elicit=no)
    assert "8443" in asked[0]
    assert "8443" in talk(call("search", query="nginx"), mode=mode)
    assert "Forgotten: 1 turns" in talk(call("forget", ids=[turn]), mode=mode, elicit=yes)
    assert "8443" not in talk(call("search", query="nginx"), mode=mode)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("show", {"id": "nope"}),
        ("show", {"id": "mem-nope"}),
        ("search", {"query": "x", "since": "someday"}),
        ("remember", {"text": " "}),
        ("forget", {"ids": []}),
        ("forget", {"ids": ["t"]}),
        ("search", {"query": "x", "limit": 0}),
    ],
)
def test_errors_are_readable_messages(talk, name, arguments):
    said = talk(call(name, **arguments))
    assert said.startswith("ERROR") and "Traceback" not in said and len(said) < 700


def test_resources_and_prompts_are_served(talk):
    async def said(client):
        believed = (await client.read_resource("perdure://memories")).contents[0].text
        name = "mem-" + believed.split("mem-")[1].split(" ")[0]
        one = (await client.read_resource(f"perdure://memories/{name}")).contents[0].text
        found = (await client.get_prompt("search", {"words": "nginx"})).messages[0].content.text
        runs = (await client.list_resource_templates()).resource_templates
        return believed, one, found, {template.uri_template for template in runs}

    believed, one, found, templates = talk(said)
    assert "Alder" in believed and "Alder" in one and "8443" in found
    assert templates == {"perdure://memories/{memory_id}", "perdure://runs/{run_id}"}


def test_a_prompt_that_fails_says_why(talk):
    async def said(client):
        with pytest.raises(MCPError) as caught:
            await client.get_prompt("history", {"about": "no/such/path"})
        return str(caught.value)

    assert "perdure memories list" in talk(said)


def test_recalled_block_is_not_captured_again(talk, opened, message):
    recalled = talk(call("recall", message="Which port does the staging server use?"))
    home = opened()
    home.capture(message("user", f"I was told: {recalled} Thanks!", 9), runtime="messages", session="other")
    assert [hit.conversation for hit in home.search("8443").hits] == ["s1"]
    assert "Thanks" in home.search("thanks").hits[0].text, "the rest of the message is there"


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_of_the_handshake(filled, version):
    """By hand, over standard input and output, as a client of that time would."""
    words = [sys.executable, "-m", "perdure.surfaces.cli", "mcp", "--home", str(filled)]
    hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        assert server.stdin and server.stdout
        server.stdin.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        server.stdin.flush()
        answers = {answer["id"]: answer for answer in (json.loads(server.stdout.readline()) for _ in range(2))}
        server.stdin.close()
        server.wait(timeout=20)
    assert answers[1]["result"]["protocolVersion"] == version
    assert {tool["name"] for tool in answers[2]["result"]["tools"]} == TOOLS


# over HTTP ----------------------------------------------------------------------------------------------------

HELLO = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}},
}  # fmt: skip


@pytest.fixture
def line(filled, served):
    """(the address of MCP over HTTP, a credential of ada's)."""
    return f"{served().address}/mcp", "ada-laptop"


@pytest.mark.parametrize("mode", MODES)
def test_over_http_with_the_credential(line, mode):
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    url, secret = line

    async def conversation():
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {secret}"}) as line,
            Client(streamable_http_client(url, http_client=line), mode=mode) as client,
        ):
            stored = await client.call_tool("remember", {"text": "I prefer Helix over vim"})
            found = await client.call_tool("recall", {"message": "Which port does the staging server use?"})
            return stored.content[0].text, found.content[0].text

    stored, found = anyio.run(conversation)
    assert "Stored as mem-" in stored and "8443" in found


@pytest.mark.parametrize("sent", [None, "Bearer wrong", "Bearer", "Basic x", "SECRET"])
def test_request_without_a_credential_is_refused(line, sent):
    import httpx2

    url, secret = line
    headers = {"Authorization": sent.replace("SECRET", secret)} if sent else {}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    answer = httpx2.post(url, json=hello, headers=headers)
    assert answer.status_code == 401 and "perdure" in answer.headers["www-authenticate"]


def test_another_site_in_a_browser_is_refused(line):
    import httpx2

    url, secret = line
    headers = {"Authorization": f"Bearer {secret}", "Host": "evil.example"}
    assert httpx2.post(url, json={}, headers=headers).status_code in (403, 421)


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("home.example", None, 200),
        ("home.example", "https://home.example", 200),
        ("home.example", "http://localhost:6274", 200),
        ("localhost", None, 200),
        ("home.example", "https://evil.example", 403),
        ("home.example", "null", 403),
        ("home.example", "http://[", 403),
        ("other.example", None, 421),
    ],
)
def test_names_of_the_settings_are_served_and_their_pages(filled, served, host, origin, status):
    """A proxy before the home passes on the name under which it is known: as the API, MCP answers to it."""
    import httpx2

    url = served('[server]\nnames = ["home.example"]\n').address
    head = {"Accept": "application/json, text/event-stream", "Authorization": "Bearer ada-laptop", "Host": host}
    head |= {"Origin": origin} if origin else {}
    answer = httpx2.post(f"{url}/mcp", json=HELLO, headers=head)
    assert answer.status_code == status, answer.text
    assert status == 200 or answer.json()["error"]["message"]


def test_each_call_uses_its_own_credential(line, served, opened):
    """Two users over one listener: what one keeps the other does not find, and a session is its opener's alone."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    url, _ = line

    async def asked(secret, name, **arguments):
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {secret}"}) as client,
            Client(streamable_http_client(url, http_client=client), mode="legacy") as talking,
        ):
            return "".join(part.text for part in (await talking.call_tool(name, arguments)).content)

    anyio.run(lambda: asked("bob-phone", "remember", text="The zebra password rotates on Fridays"))
    assert "zebra" in anyio.run(lambda: asked("bob-phone", "search", query="zebra"))
    assert "zebra" not in anyio.run(lambda: asked("ada-laptop", "search", query="zebra"))
    assert "8443" not in anyio.run(lambda: asked("bob-phone", "search", query="nginx"))


def test_session_belongs_to_the_credential_that_opened_it(line):
    import httpx2

    url, secret = line
    head = {"Accept": "application/json, text/event-stream"}
    opened = httpx2.post(url, json=HELLO, headers={**head, "Authorization": f"Bearer {secret}"})
    session = {**head, "Mcp-Session-Id": opened.headers["mcp-session-id"]}
    listed = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    assert httpx2.post(url, json=listed, headers={**session, "Authorization": f"Bearer {secret}"}).status_code == 200
    assert httpx2.post(url, json=listed, headers={**session, "Authorization": "Bearer bob-phone"}).status_code == 404
