"""The tools of MCP servers in a session, with real processes: what they give, and what they cannot break."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.agent.agent import Agent, open_agent
from perdure.agent.mcp_settings import McpServer, parse_server
from perdure.agent.permission import PermissionAnswer, PermissionRequest
from perdure.errors import ModelCancelled
from perdure.formats.perdure import Message
from perdure.home import Home
from perdure.models.chat import ChatReply, ToolCall
from perdure.testing import Question, ScriptedChat
from rig.agent_project import make_project

pytest.importorskip("mcp")
SERVER = Path(__file__).parents[1] / "rig/mcp_tools_server.py"
NAMES = [f"notes__{name}" for name in ("end", "fails", "large", "numbers", "picture", "read", "slow", "write")]


@pytest.fixture(name="project")
def fixture_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "person").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    return make_project(tmp_path / "shop")


def make_server(fault: str = "", log: Path | None = None, name: str = "notes", **settings: Any) -> McpServer:
    arguments = [str(SERVER), fault, *([str(log)] if log else [])]
    return parse_server(name, {"command": sys.executable, "args": arguments, **settings})


def ask_for(*calls: tuple[str, dict[str, Any]]) -> ChatReply:
    return ChatReply("", calls=tuple(ToolCall(f"c{n}", *one) for n, one in enumerate(calls)), stop="tool")


def open_with(home: Home, project: Path, script: Sequence[Any], *servers: McpServer, **how: Any) -> Agent:
    chat = ScriptedChat([*script, "Done."])
    return open_agent(home, cwd=str(project), chat=chat, recall_mode="keyword", mcp_servers=servers, **how)


def list_outputs(agent: Agent) -> list[Message]:
    path = agent.session.log.find_path()
    return [entry for entry in path if isinstance(entry, Message) and entry.role == "tool"]


def talk(home: Home, project: Path, script: Sequence[Any], *servers: McpServer, **how: Any) -> list[Message]:
    with open_with(home, project, script, *servers, **how) as agent:
        agent.session.say("Go.")
        return list_outputs(agent)


def is_running(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]


def wait_until_gone(process_ids: Sequence[int], limit_s: float = 10) -> list[int]:
    deadline_s = time.monotonic() + limit_s
    while (left := [one for one in process_ids if is_running(one)]) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return left


def test_tools_are_listed_in_order_and_answer(tmp_path: Path, project: Path) -> None:
    asked: list[Question] = []
    script = [
        lambda question: asked.append(question) or ask_for(("notes__write", {"text": "a"}), ("notes__fails", {})),
        ask_for(("notes__large", {}), ("notes__picture", {}), ("notes__numbers", {}), ("notes__write", {"line": 3})),
        lambda question: asked.append(question) or "Done.",
    ]
    with (
        perdure.open(tmp_path / "home") as home,
        open_with(home, project, script, make_server(), mode="yolo") as agent,
    ):
        assert agent.notices == ()
        agent.session.say("Go.")
        written, failed, large, picture, numbers, _ = list_outputs(agent)
        path = Path(large.text.split("read_file shows all: ")[1].rstrip("]"))
        assert path.read_text().endswith("line 2999")
    assert [spec.name for spec in asked[0].tools][-8:] == NAMES
    assert asked[0].tools == asked[1].tools
    assert "$schema" not in asked[0].tools[-1].schema
    assert (written.text, written.is_error, written.permission) == ("wrote a", False, "mode yolo")
    assert (failed.text, failed.is_error) == ("no such line", True)
    assert "[The first 2,000 of 3,000 lines." in large.text
    assert [image.media_type for image in picture.images] == ["image/png"]
    assert "[an image (image/svg+xml) is left out]" in picture.text
    assert "[audio]" in picture.text and "inside" in picture.text
    assert numbers.is_error and "gave no answer" in numbers.text
    assert not path.exists()


def test_a_call_asks_unless_a_rule_or_the_owner_says_otherwise(tmp_path: Path, project: Path) -> None:
    """What a server says about itself is not believed."""
    script = [ask_for(("notes__read", {}), ("notes__write", {"text": "a"}))]
    requests: list[PermissionRequest] = []

    def allow(request: PermissionRequest) -> PermissionAnswer:
        requests.append(request)
        return PermissionAnswer("always")

    with perdure.open(tmp_path / "home") as home:
        for mode in ("ask", "edits"):
            outputs = talk(home, project, script, make_server(), mode=mode)
            assert ["nobody can be asked here" in output.text for output in outputs] == [True, True]
        outputs = talk(home, project, script, make_server(trust_read_only=True))
        assert [output.is_error for output in outputs] == [False, True]
        talk(home, project, [*script, *script], make_server(), on_ask=allow)
        assert [request.call.name for request in requests] == ["notes__read", "notes__write"]
        assert requests[0].reason == "it is not known what read of the MCP server notes does"
        home.floor.write("agent.yaml", "name: a\ntools: []\nmax_turns: 9\nallow: ['notes__*']\ndeny: [notes__write]\n")
        outputs = talk(home, project, script, make_server())
        assert [output.permission for output in outputs] == ["rule notes__*", outputs[1].text]
        assert "refused: the owner's rule notes__write" in outputs[1].text


def test_the_page_names_servers_and_an_editor_adds_some(tmp_path: Path, project: Path) -> None:
    log, other = tmp_path / "log.json", tmp_path / "other.json"
    page = (
        f"name: a\ntools: []\nmax_turns: 9\nmcp_servers:\n  notes:\n    command: {sys.executable}\n"
        f"    args: [{SERVER}, '', {log}]\n    tools: [read, gone]\n"
    )
    asked: list[Question] = []
    with perdure.open(tmp_path / "home") as home:
        home.floor.write("agent.yaml", page)
        servers = (make_server(name="notes"), replace(make_server("", other, tools=["write"]), name="A/wiki "))
        with open_with(home, project, [lambda question: asked.append(question) or "Yes."], *servers) as agent:
            agent.session.say("Go.")
            assert agent.notices == ("The MCP server notes has no tool gone.",)
    assert [spec.name for spec in asked[0].tools] == ["notes__read", "A_wiki___write"]
    assert wait_until_gone([*json.loads(log.read_text())["ids"], *json.loads(other.read_text())["ids"]]) == []


def test_a_server_gets_no_secrets_and_runs_in_the_project(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "NOTES_TOKEN", "SOME_VARIABLE"):
        monkeypatch.setenv(name, "x")
    log = tmp_path / "log.json"
    with perdure.open(tmp_path / "home") as home:
        talk(home, project, [], make_server("", log, environment=["NOTES_TOKEN", "NOT_SET"], env={"LEVEL": "1"}))
    state = json.loads(log.read_text())
    assert {"NOTES_TOKEN", "LEVEL", "PATH"} <= set(state["variables"])
    assert not {"OPENAI_API_KEY", "SOME_VARIABLE", "NOT_SET", "PERDURE_HOME"} & set(state["variables"])
    assert state["cwd"] == str(project)


@pytest.mark.parametrize(
    ("fault", "notice"),
    [
        ("dies", "The MCP server bad is left out: Connection closed (it wrote: no licence)."),
        ("silent", "The MCP server bad is left out: no answer within 6 s."),
    ],
)
def test_a_server_that_does_not_start_costs_only_itself(
    fault: str, notice: str, tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.agent.mcp_tools.START_S", 6)
    log = tmp_path / "log.json"
    with perdure.open(tmp_path / "home") as home:
        servers = (
            make_server(fault, log, name="bad"),
            make_server(name="notes"),
            parse_server("none", {"command": "no-such-program"}),
        )
        with open_with(home, project, [ask_for(("notes__read", {}))], *servers, mode="yolo") as agent:
            agent.session.say("Go.")
            assert list_outputs(agent)[0].text == "what was written"
            assert agent.notices == (notice, "The MCP server none is left out: there is no program 'no-such-program'.")
            assert set(NAMES) <= set(agent.session.tool_names)
    assert wait_until_gone(json.loads(log.read_text())["ids"]) == []


def test_a_server_that_lies_costs_the_tools_it_lies_about(
    tmp_path: Path, project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with perdure.open(tmp_path / "home") as home:
        servers = (
            make_server("lies", name="lies"),
            make_server("poisoned", name="evil"),
            make_server("broken", name="broken"),
            make_server("garbage"),
            make_server("endless", name="endless"),
        )
        with open_with(home, project, [ask_for(("notes__read", {}))], *servers, mode="yolo") as agent:
            agent.session.say("Go.")
            assert list_outputs(agent)[0].text == "what was written"
            names = [name for name in agent.session.tool_names if "__" in name]
            notices = "\n".join(agent.notices)
    assert names[:3] == ["lies__a_b", "lies__write", "evil__write"]
    assert names[3 : 3 + len(NAMES)] == NAMES
    for part in (
        "The MCP server broken is left out: 1 validation error for ListToolsResult",
        "no-schema of the MCP server lies is left out: the schema of its input is not valid",
        "its name has more than 64", "The tool write of the MCP server endless is left out: another one has this name",
        "any of the MCP server lies is left out: its input is no plain object",
        "huge of the MCP server lies is left out: the schema of its input has more than",
        "a.b of the MCP server lies is left out: another one has this name",
        "add of the MCP server evil is left out: its description reads like an attack",
    ):  # fmt: skip
        assert part in notices
    assert capfd.readouterr().err == ""


def test_of_what_a_server_complains_only_the_end_is_kept(tmp_path: Path, project: Path) -> None:
    script = [ask_for(("notes__end", {}))]
    with (
        perdure.open(tmp_path / "home") as home,
        open_with(home, project, script, make_server("noisy"), mode="yolo") as agent,
    ):
        agent.session.say("Go.")
        assert "it wrote: out of paper" in list_outputs(agent)[0].text
        assert not [path for path in home.path.rglob("*") if path.stat().st_size > 5_000_000]


def test_a_server_that_ends_or_hangs_in_a_call_is_told_to_the_model(tmp_path: Path, project: Path) -> None:
    script = [
        ask_for(("notes__end", {})),
        ask_for(("notes__read", {}), ("wiki__slow", {})),
        ask_for(("wiki__read", {})),
    ]
    started_s = time.monotonic()
    with perdure.open(tmp_path / "home") as home:
        servers = (make_server(timeout_s=5), make_server(name="wiki", timeout_s=1))
        ended, after, slow, again = talk(home, project, script, *servers, mode="yolo")
    assert time.monotonic() - started_s < 30
    assert ended.is_error and "it wrote: out of paper" in ended.text
    assert after.is_error and "gave no answer" in after.text
    assert slow.is_error and "1 s" in slow.text
    assert again.is_error  # it still sleeps


def test_a_call_ends_when_the_person_cancels(tmp_path: Path, project: Path) -> None:
    cancel = threading.Event()
    script = [lambda question: threading.Timer(0.5, cancel.set).start() or ask_for(("notes__slow", {}))]
    with perdure.open(tmp_path / "home") as home, open_with(home, project, script, make_server(), mode="yolo") as agent:
        started_s = time.monotonic()
        with pytest.raises(ModelCancelled):
            agent.session.say("Go.", cancel=cancel)
        assert time.monotonic() - started_s < 5
        assert "cancelled" in list_outputs(agent)[0].text


def test_no_process_is_left_of_a_stubborn_server(tmp_path: Path, project: Path) -> None:
    log = tmp_path / "log.json"
    with perdure.open(tmp_path / "home") as home:
        agent = open_with(home, project, [], make_server("stubborn", log))
        ids = json.loads(log.read_text())["ids"]
        assert len(ids) == 2
        assert [is_running(one) for one in ids] == [True, True]
        agent.close()
    assert wait_until_gone(ids) == []


def test_a_server_ends_with_a_killed_process(tmp_path: Path, project: Path) -> None:
    log = tmp_path / "log.json"
    program = (
        "import sys, time, perdure\n"
        "from pathlib import Path\n"
        "from perdure.agent.agent import open_agent\n"
        "from perdure.agent.mcp_settings import parse_server\n"
        "from perdure.testing import ScriptedChat\n"
        f"server = parse_server('notes', {{'command': sys.executable, 'args': [{str(SERVER)!r}, '', {str(log)!r}]}})\n"
        f"home = perdure.open({str(tmp_path / 'home')!r})\n"
        f"agent = open_agent(home, cwd={str(project)!r}, chat=ScriptedChat([]), mcp_servers=[server])\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    ids = json.loads(log.read_text())["ids"]
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=10)
    assert wait_until_gone(ids) == []


def test_our_own_server_is_a_server(tmp_path: Path, project: Path) -> None:
    """`perdure mcp` on another home: what one agent kept there, this one recalls."""
    other = tmp_path / "other"
    with perdure.open(other) as home:
        home.remember("The key of the shed hangs behind the door.")
    arguments = ["-m", "perdure.surfaces.cli", "mcp", "--home", str(other)]
    server = parse_server(
        "memory", {"command": sys.executable, "args": arguments, "tools": ["recall", "search"], "trust_read_only": True}
    )
    with perdure.open(tmp_path / "home") as home:
        outputs = talk(
            home, project, [ask_for(("memory__recall", {"message": "Where is the key of the shed?"}))], server
        )
    assert "behind the door" in outputs[0].text


@pytest.mark.skipif("PERDURE_MCP_SERVERS" not in os.environ, reason="PERDURE_MCP_SERVERS names no foreign server")
def test_a_foreign_server_answers(tmp_path: Path, project: Path) -> None:
    """PERDURE_MCP_SERVERS="npx -y @modelcontextprotocol/server-filesystem ." and the like."""
    words = shlex.split(os.environ["PERDURE_MCP_SERVERS"])
    server = parse_server("files", {"command": words[0], "args": words[1:]})
    script = [ask_for(("files__read_text_file", {"path": "README.md"}), ("files__list_directory", {"path": "src"}))]
    with perdure.open(tmp_path / "home") as home:
        read, listed = talk(home, project, script, server, mode="yolo")
    assert "# Shop" in read.text
    assert "[DIR] shop" in listed.text


def test_without_the_package_the_session_begins(tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "perdure.agent.mcp_tools", None)
    with perdure.open(tmp_path / "home") as home, open_with(home, project, [], make_server()) as agent:
        assert agent.notices == ("MCP servers are left out: pip install 'perdure[mcp]'",)


def test_a_server_that_runs_elsewhere_is_reached_with_its_key(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state.json").write_text(json.dumps({"answers": {"sail": "The tide turns at nine."}}))
    program = [sys.executable, str(SERVER.with_name("mcp_source.py")), str(tmp_path / "state.json"), "wind"]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        server = parse_server("sea", {"url": f"http://127.0.0.1:{port}/mcp", "key_env": "SEA_KEY"})
        with perdure.open(tmp_path / "home") as home:
            with open_with(home, project, [], server) as agent:
                assert agent.notices == (
                    "The MCP server sea is left out: mcp_servers.sea.key_env: the environment has no SEA_KEY.",
                )
            monkeypatch.setenv("SEA_KEY", "wind")
            outputs = talk(home, project, [ask_for(("sea__sail", {}))], server, mode="yolo")
            assert outputs[0].text == "The tide turns at nine."
            monkeypatch.setenv("SEA_KEY", "other")
            with open_with(home, project, [], server) as agent:
                assert "The MCP server sea is left out: " in agent.notices[0]
    finally:
        process.kill()
        process.communicate()
