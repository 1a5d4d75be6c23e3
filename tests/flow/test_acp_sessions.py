"""The sessions of `perdure acp`: how an editor begins them, goes on with them, and gives them up; their MCP servers."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import acp
import pytest
from acp.schema import McpServerStdio, SseMcpServer

import perdure
from perdure.formats.perdure import Message
from perdure.session.log import read_path
from rig.editor import SETTINGS, Editor, hold, open_editor
from rig.model_server import Answer, ModelServer

MCP_SERVER = str(Path(__file__).parents[1] / "rig" / "mcp_tools_server.py")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "cart.py").write_text("total = 0\nlimit = 5\n")
    return folder


@pytest.fixture
def model(home: Path) -> Iterator[ModelServer]:
    with ModelServer() as server:
        home.mkdir(mode=0o700)
        (home / "config.toml").write_text(SETTINGS.format(url=server.url))
        yield server


def list_questions(home: Path, session: str) -> list[str]:
    with perdure.open(home, user="ada") as opened:
        path = read_path(opened, session)
        return [entry.text for entry in path if isinstance(entry, Message) and entry.role == "user"]


def test_a_session_is_listed_loaded_resumed_forked_and_closed(home, project, model) -> None:
    calls = [("read_file", {"path": "cart.py"})]
    model.answers = [
        Answer(calls=calls, thoughts=[{"reasoning_content": "First the file."}]),
        Answer("It has two lines."), Answer("Five."), Answer("Nine."),
    ]  # fmt: skip

    async def begin(editor: Editor) -> str:
        session = await editor.begin(project)
        await editor.say(session, "what is in the cart?")
        return session

    session = hold(home, begin)

    async def go_on(editor: Editor) -> None:
        listed = await editor.agent.list_sessions(cwd=str(project))
        assert [(s.session_id, s.cwd, s.title) for s in listed.sessions] == [
            (session, str(project), "what is in the cart?")
        ]
        assert (await editor.agent.list_sessions(cwd="/elsewhere")).sessions == []
        loaded = await editor.agent.load_session(session_id=session, cwd=str(project), mcp_servers=[])
        assert loaded.modes.current_mode_id == "ask"
        assert [u.session_update for _, u in editor.updates if u.session_update != "available_commands_update"] == [
            "user_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "agent_message_chunk",
        ]  # fmt: skip
        assert editor.said("user_message_chunk") == "what is in the cart?"
        assert (editor.said(), editor.of("tool_call")[0].title) == ("It has two lines.", "Read `cart.py`")
        await editor.say(session, "what is the limit?")
        await editor.agent.close_session(session_id=session)
        with pytest.raises(acp.RequestError, match="is not open"):
            await editor.say(session, "still there?")
        editor.updates.clear()
        await editor.agent.resume_session(session_id=session, cwd=str(project), mcp_servers=[])
        assert editor.said("user_message_chunk") == ""
        fork = await editor.agent.fork_session(session_id=session, cwd=str(project), mcp_servers=[])
        assert fork.session_id != session
        await editor.say(fork.session_id, "and in the fork?")
        with pytest.raises(acp.RequestError, match="s0000000000"):
            await editor.agent.load_session(session_id="s0000000000", cwd=str(project), mcp_servers=[])
        with pytest.raises(acp.RequestError, match="absolute path"):
            await editor.begin(Path("nowhere"))

    hold(home, go_on)
    assert list_questions(home, session) == ["what is in the cart?", "what is the limit?"]
    assert "what is the limit?" in json.dumps(model.requests[-1].body)  # of the fork


def test_two_editors_work_side_by_side_and_one_holds_a_session(home, project, model) -> None:
    model.answers = [Answer("One."), Answer("Two.")]

    async def run() -> None:
        async with asyncio.timeout(60), open_editor(home) as first, open_editor(home) as second:
            session = await first.begin(project)
            await first.say(session, "hello")
            with pytest.raises(acp.RequestError, match="Another process holds"):
                await second.agent.load_session(session_id=session, cwd=str(project), mcp_servers=[])
            other = await second.begin(project)
            await second.say(other, "hello too")
            assert (first.said(), second.said()) == ("One.", "Two.")

    asyncio.run(run())


def test_two_sessions_of_one_editor_answer_at_the_same_time(home, project, model) -> None:
    model.answers = [Answer("Once", n_events=1, hangs=True, pause_s=0.01), Answer("Two.")]

    async def work(editor: Editor) -> None:
        first, second = await editor.begin(project), await editor.begin(project)
        turn = asyncio.create_task(editor.say(first, "hello"))
        await editor.wait_for("agent_message_chunk")
        assert await editor.say(second, "hello") == "end_turn"
        assert not turn.done()
        await editor.agent.cancel(session_id=first)
        assert await turn == "cancelled"

    hold(home, work)


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_session_that_is_loaded_twice_at_once_is_one(home, project, model, is_paused: bool) -> None:
    """As an editor does that restores two panes: both get its history. A pause of the capture leaves it no lock."""

    async def begin(editor: Editor) -> str:
        session = await editor.begin(project)
        await editor.say(session, "@say One.")
        return session

    session = hold(home, begin)
    with perdure.open(home, user="ada") as opened:
        if is_paused:
            opened.captures.pause()
    starts = home.parent / "starts"
    command = f"echo begun >> '{starts}'; exec '{sys.executable}' '{MCP_SERVER}'"
    server = McpServerStdio(name="docs", command="/bin/sh", args=["-c", command], env=[])

    async def go_on(editor: Editor) -> None:
        settings = {"session_id": session, "cwd": str(project), "mcp_servers": [server]}
        await asyncio.gather(*(editor.agent.load_session(**settings) for _ in range(2)))
        await editor.agent.load_session(**settings)
        assert editor.said() == "One." * 3
        assert await editor.say(session, "@say Two.") == "end_turn"

    hold(home, go_on)
    assert starts.read_text() == "begun\n", "its servers start once"


# MCP servers ---------------------------------------------------------------------------------------------------------


def test_mcp_servers_of_the_editor_are_used_and_asked_about(home, project, model) -> None:
    server = McpServerStdio(name="My Docs", command=sys.executable, args=[MCP_SERVER], env=[])
    stream = SseMcpServer(type="sse", name="old", url="https://example.org/sse", headers=[])
    model.answers = [Answer(calls=[("My_Docs__picture", {})]), Answer("Hello.")]

    async def work(editor: Editor) -> None:
        opened = await editor.agent.new_session(cwd=str(project), mcp_servers=[server, stream])
        await editor.say(opened.session_id, "hi")
        assert editor.said().startswith("The MCP server old of the editor is not used, because of its transport")
        ((asked, _),) = editor.permissions
        assert asked.title == "My_Docs__picture"
        assert editor.of("tool_call_update")[-1].content[0].content.type == "image"

    hold(home, work)
    names = [tool["function"]["name"] for tool in model.requests[0].body["tools"]]
    assert "My_Docs__picture" in names


def test_a_server_that_does_not_answer_holds_up_no_session(home, project, model) -> None:
    """The session begins at once, its first message goes without the tools, and they come when the server does."""
    gate = home.parent / "gate"
    command = f"until [ -e '{gate}' ]; do sleep 0.05; done; exec '{sys.executable}' '{MCP_SERVER}'"
    late = McpServerStdio(name="late", command="/bin/sh", args=["-c", command], env=[])
    never = McpServerStdio(name="never", command=sys.executable, args=[MCP_SERVER, "silent"], env=[])
    docs = McpServerStdio(name="docs", command=sys.executable, args=[MCP_SERVER], env=[])

    def list_tools() -> set[str]:
        return {tool["function"]["name"].rpartition("__")[0] for tool in model.requests[-1].body["tools"]}

    async def work(editor: Editor) -> None:
        async with asyncio.timeout(20):  # of the 30 seconds that a server may take to start
            opened = await editor.agent.new_session(cwd=str(project), mcp_servers=[late, never, docs])
            await editor.say(opened.session_id, "@say One.")
        slow = "The MCP server {} has not answered yet: its tools come when it does.\n\n"
        assert editor.said() == f"{slow.format('late')}{slow.format('never')}One."
        assert list_tools() == {"", "docs"}
        gate.touch()
        while "late" not in list_tools():
            await editor.say(opened.session_id, "@say More.")
        assert list_tools() == {"", "docs", "late"}

    hold(home, work)


def test_tools_of_servers_for_which_the_window_has_no_room(home, project, model) -> None:
    (home / "config.toml").write_text(SETTINGS.format(url=model.url).replace("128000", "1000"))
    with perdure.open(home, user="ada") as opened:
        opened.floor.write("agent.yaml", "name: a\ntools: []\nmax_turns: 5\n")
    servers = [McpServerStdio(name=n, command=sys.executable, args=[MCP_SERVER], env=[]) for n in ("a", "b", "c")]

    async def work(editor: Editor) -> None:
        opened = await editor.agent.new_session(cwd=str(project), mcp_servers=servers)
        await editor.say(opened.session_id, "/mode")
        assert editor.said().startswith("The model has no tools: the window of openai:scripted (1,000 tokens)")

    hold(home, work)


def test_a_message_that_waits_for_a_server_can_be_cancelled(home, project, model) -> None:
    never = McpServerStdio(name="never", command=sys.executable, args=[MCP_SERVER, "silent"], env=[])

    async def work(editor: Editor) -> str:
        session = (await editor.agent.new_session(cwd=str(project), mcp_servers=[never])).session_id
        turn = asyncio.create_task(editor.say(session, "@say One."))
        await asyncio.sleep(0)
        await editor.agent.cancel(session_id=session)
        async with asyncio.timeout(8):  # of the ten seconds that it would wait
            assert await turn == "cancelled"
        return session

    assert list_questions(home, hold(home, work)) == ["@say One."]
    assert not model.requests
