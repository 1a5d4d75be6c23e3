"""`perdure acp` as an editor drives it: the client of the protocol's own package against a scripted model."""

from __future__ import annotations

import asyncio
import base64
import fcntl
import json
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import acp
import pytest
from acp.schema import (
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    InitializeResponse,
    ResourceContentBlock,
    TextResourceContents,
)

import perdure
from perdure.formats.perdure import Message
from perdure.session.log import list_session_ids, read_path
from rig.editor import MODULE, SETTINGS, Editor, hold, make_environment
from rig.model_server import Answer, ModelServer
from rig.waiting import wait_for

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    (folder / "cart.py").write_text("total = 0\nlimit = 5\n")
    return folder


@pytest.fixture
def model(home: Path) -> Iterator[ModelServer]:
    with ModelServer() as server:
        home.mkdir(mode=0o700)
        (home / "config.toml").write_text(SETTINGS.format(url=server.url))
        yield server


def read_messages(home: Path, session: str = "") -> list[Message]:
    with perdure.open(home, user="ada") as opened:
        (only,) = [session] if session else list_session_ids(opened)
        return [entry for entry in read_path(opened, only) if isinstance(entry, Message)]


# a conversation -------------------------------------------------------------------------------------------------


def test_a_prompt_streams_thoughts_and_text_apart(home, project, model) -> None:
    """The floor and the recalled block are in the request; what was said is found afterwards, as of any session."""
    with perdure.open(home, user="ada") as opened:
        opened.remember("The staging server listens on port 8443.", cwd=str(project))
        opened.floor.note("Answer in one line.", by="agent")
    model.answers = [Answer("Port 8443.", thoughts=[{"reasoning_content": "I look it up."}])]

    async def work(editor: Editor) -> None:
        session = await editor.begin(project)
        assert await editor.say(session, "which port has the staging server?") == "end_turn"
        assert editor.said() == "Port 8443."
        assert editor.said("agent_thought_chunk") == "recalled 1: /why shows it\n\nI look it up."
        assert {name for name, _ in editor.updates} == {session}
        (usage,) = editor.of("usage_update")
        assert usage.size == 128_000 and 0 < usage.used < 128_000
        (info,) = editor.of("session_info_update")
        assert info.title == "which port has the staging server?"

    hold(home, work)
    body = json.dumps(model.requests[0].body)
    assert "Answer in one line." in body and "listens on port 8443" in body and "write_file" in body
    user, answer = read_messages(home)
    assert (user.text, answer.thought, answer.text) == (
        "which port has the staging server?", "I look it up.", "Port 8443.",
    )  # fmt: skip
    with perdure.open(home, user="ada") as opened:
        opened.upkeep.catch_up()
        assert [hit.runtime for hit in opened.search("staging").hits][:1] == ["perdure"]


def test_a_new_session_tells_its_modes_options_and_commands(home, project, model) -> None:
    async def work(editor: Editor) -> None:
        opened = await editor.agent.new_session(cwd=str(project), mcp_servers=[])
        assert [mode.id for mode in opened.modes.available_modes] == ["plan", "ask", "edits", "yolo"]
        assert opened.modes.current_mode_id == "ask"
        mode, chat = opened.config_options
        assert (mode.category, mode.current_value) == ("mode", "ask")
        assert (chat.category, chat.current_value) == ("model", "resident")
        assert [option.value for option in chat.options] == ["resident", "summariser"]
        await editor.wait_for("available_commands_update")
        (offered,) = editor.of("available_commands_update")
        names = [command.name for command in offered.available_commands]
        assert names == [
            "search", "recall", "why", "history", "compact", "notes", "profile", "proposals", "approve", "reject",
            "model", "mode", "cost", "help",
        ]  # fmt: skip

    hold(home, work)


def test_a_prompt_takes_links_texts_and_images(home, project, model) -> None:
    """What the editor adds is pasted text: it never counts as said by the person."""
    model.answers = [Answer("I see.")]
    prompt = [
        acp.text_block("compare"),
        ResourceContentBlock(type="resource_link", name="cart.py", uri=f"file://{project}/cart.py"),
        acp.text_block("with"),
        EmbeddedResourceContentBlock(
            type="resource",
            resource=TextResourceContents(
                uri=f"file://{project}/b.py#L1:2", text="```\nwe use tabs\n```", mime_type="x"
            ),
        ),
        ImageContentBlock(type="image", data=base64.b64encode(PNG).decode(), mime_type="image/png"),
        EmbeddedResourceContentBlock(
            type="resource", resource=BlobResourceContents(uri="file:///x.bin", blob="AAAA", mime_type="a/b")
        ),
    ]

    async def work(editor: Editor) -> None:
        session = await editor.begin(project)
        await editor.agent.prompt(session_id=session, prompt=prompt)
        assert "resource was left out" in editor.said("agent_thought_chunk")

    hold(home, work)
    user, _ = read_messages(home)
    assert user.text == "compare @cart.py with @b.py#L1:2"
    assert [(file.path, file.text) for file in user.files] == [
        ("b.py#L1:2", "```\nwe use tabs\n```"), ("cart.py", "total = 0\nlimit = 5"),
    ]  # fmt: skip
    assert [(image.media_type, image.data) for image in user.images] == [("image/png", base64.b64encode(PNG).decode())]
    body = json.dumps(model.requests[0].body)
    assert "image_url" in body and "we use tabs" in body and "limit = 5" in body
    with perdure.open(home, user="ada") as opened:
        opened.upkeep.catch_up()
        (run,) = {hit.run_id for hit in opened.search("compare").hits}
        turn = next(turn for turn in opened.runs.transcript(run).parsed.turns if turn.role == "user")
    assert [part.text for part in turn.parts if part.kind == "text"] == [user.text]


# tools ------------------------------------------------------------------------------------------------------------


def test_an_edit_is_asked_about_with_its_diff(home, project, model) -> None:
    change = {"path": "cart.py", "old": "limit = 5", "new": "limit = 9"}
    model.answers = [Answer(calls=[("edit_file", change)]), Answer("Done.")]

    async def work(editor: Editor) -> None:
        session = await editor.begin(project)
        assert await editor.say(session, "raise the limit") == "end_turn"
        ((asked, options),) = editor.permissions
        assert [(option.option_id, option.kind) for option in options] == [
            ("once", "allow_once"), ("always", "allow_always"), ("deny", "reject_once"),
        ]  # fmt: skip
        (start,) = editor.of("tool_call")
        assert (start.kind, start.status, start.title) == ("edit", "pending", "Edit `cart.py`")
        assert asked.tool_call_id == start.tool_call_id and asked.content == start.content
        diff, words = start.content
        assert (diff.path, diff.old_text) == (str(project / "cart.py"), "total = 0\nlimit = 5\n")
        assert diff.new_text == "total = 0\nlimit = 9\n"
        assert "it changes cart.py" in words.content.text
        assert [(place.path, place.line) for place in start.locations] == [(str(project / "cart.py"), 2)]
        assert [status for _, status in editor.calls()] == ["pending", "in_progress", "completed"]
        assert editor.of("tool_call_update")[-1].content == [diff]

    hold(home, work)
    assert (project / "cart.py").read_text() == "total = 0\nlimit = 9\n"
    assert [m.permission for m in read_messages(home) if m.role == "tool"] == ["allowed once"]


def test_an_answer_of_no_known_form_denies_and_the_turn_goes_on(home, project, model) -> None:
    answers = (None, {}, {"outcome": {"outcome": "selected"}}, {"outcome": {"outcome": "selected", "optionId": "no"}})
    call = ("write_file", {"path": "cart.py", "text": "total = 1\n"})
    model.answers = [answer for _ in answers for answer in (Answer(calls=[call]), Answer("Done."))]
    with RawEditor(home) as editor:
        session = editor.begin(project)
        for answer in answers:
            turn = editor.prompt(session, "go on")
            asked = editor.read_until(lambda message: message.get("method") == "session/request_permission")
            editor.send({"jsonrpc": "2.0", "id": asked["id"], "result": answer})
            assert editor.read_answer(turn)["result"] == {"stopReason": "end_turn"}
    assert (project / "cart.py").read_text() == "total = 0\nlimit = 5\n"


@pytest.mark.parametrize("option", ["-1", "7", "no"])
def test_an_option_that_was_not_offered_is_no_answer(home, project, model, option) -> None:
    model.answers = [Answer(calls=[("ask_user", {"question": "Which?", "choices": ["a", "b"]})]), Answer("Done.")]

    async def work(editor: Editor) -> None:
        await editor.say(await editor.begin(project), "ask")
        assert editor.calls()[-1][1] == "completed"

    hold(home, work, choose=lambda call, options: option)
    assert "answer" in read_messages(home)[2].text and read_messages(home)[2].text not in ("a", "b")


def test_always_holds_for_the_session_and_deny_is_told_to_the_model(home, project, model) -> None:
    model.answers = [
        Answer(calls=[("write_file", {"path": "a.txt", "text": "1"})]),
        Answer(calls=[("write_file", {"path": "b.txt", "text": "2"})]),
        Answer(calls=[("shell", {"command": "rm a.txt"})]),
        Answer("I left it."),
    ]

    def choose(call: Any, _: Any) -> str:
        return "always" if call.kind == "edit" else "deny"

    async def work(editor: Editor) -> None:
        session = await editor.begin(project)
        await editor.say(session, "write two files, delete one")
        assert [call.title for call, _ in editor.permissions] == ["Write `a.txt`", "Run `rm a.txt`"]
        assert [u.status for u in editor.of("tool_call_update") if u.status != "in_progress"] == [
            "completed", "completed", "failed",
        ]  # fmt: skip

    hold(home, work, choose=choose)
    assert (project / "a.txt").exists() and (project / "b.txt").exists()
    assert "does not allow this call" in json.dumps(model.requests[-1].body)


def test_the_output_of_a_command_is_shown_whole(home, project, model) -> None:
    model.answers = [Answer(calls=[("shell", {"command": "printf '```\\nten\\n'; exit 3"})]), Answer("Failed.")]

    async def work(editor: Editor) -> None:
        session = await editor.begin(project)
        await editor.say(session, "run it")
        assert editor.permissions == []  # --mode yolo
        (start,) = editor.of("tool_call")
        assert (start.kind, start.status) == ("execute", "in_progress")
        (end,) = editor.of("tool_call_update")
        assert (end.status, end.content[0].content.text) == ("failed", "````\n```\nten\n\n[exit status 3]\n````")

    hold(home, work, "--mode", "yolo")


def test_a_refused_call_is_shown_with_its_reason(home, project, model) -> None:
    path = str(home / "config.toml")
    model.answers = [Answer(calls=[("write_file", {"path": path, "text": "x"})]), Answer("It may not be.")]

    async def work(editor: Editor) -> None:
        session = await editor.begin(project)
        await editor.say(session, "write there")
        (start,), (end,) = editor.of("tool_call"), editor.of("tool_call_update")
        assert (start.kind, end.status, editor.permissions) == ("edit", "failed", [])
        assert "home of Perdure" in end.content[0].content.text

    hold(home, work, "--mode", "yolo")
    assert "scripted" in (home / "config.toml").read_text()


def test_modes_and_models_are_changed_between_turns(home, project, model) -> None:
    write = [Answer(calls=[("write_file", {"path": "a.txt", "text": "1"})]), Answer("Ok.")]
    model.answers = [*write, *write, Answer("Small.")]

    async def work(editor: Editor) -> None:
        session = await editor.begin(project)
        await editor.agent.set_session_mode(session_id=session, mode_id="plan")
        await editor.say(session, "write")
        assert not (project / "a.txt").exists() and "planning" in json.dumps(model.requests[0].body)
        options = await editor.agent.set_config_option(session_id=session, config_id="mode", value="edits")
        assert options.config_options[0].current_value == "edits"
        await editor.say(session, "write")
        assert (project / "a.txt").exists() and editor.permissions == []
        options = await editor.agent.set_config_option(session_id=session, config_id="model", value="summariser")
        assert options.config_options[1].current_value == "summariser"
        await editor.say(session, "hello")
        for wrong in ({"config_id": "mode", "value": "loud"}, {"config_id": "colour", "value": "red"}):
            with pytest.raises(acp.RequestError, match="known: "):
                await editor.agent.set_config_option(session_id=session, **wrong)

    hold(home, work)
    assert [request.body["model"] for request in model.requests] == ["scripted"] * 4 + ["small"]


def test_a_mode_counts_at_once(home, project, model) -> None:
    """A person may stop the questions of a turn that goes on."""
    model.answers = [Answer(calls=[("write_file", {"path": "a.txt", "text": "1"})], delay_s=1), Answer("Ok.")]

    async def work(editor: Editor) -> None:
        session = await editor.begin(project)
        turn = asyncio.create_task(editor.say(session, "write"))
        await editor.agent.set_config_option(session_id=session, config_id="mode", value="edits")
        assert not turn.done()
        assert await turn == "end_turn" and editor.permissions == []

    hold(home, work)
    assert (project / "a.txt").exists()


@pytest.mark.parametrize(("forms", "choices", "expected"), [
    (True, [], "blue"), (True, ["red", "blue"], "blue"), (False, ["red", "blue"], "red"),
    (False, [], "this editor cannot ask for words"),
])  # fmt: skip
def test_a_question_is_asked_as_the_editor_can(home, project, model, forms, choices, expected) -> None:
    model.answers = [Answer(calls=[("ask_user", {"question": "Which colour?", "choices": choices})]), Answer("Ok.")]

    async def work(editor: Editor) -> None:
        session = await editor.begin(project)
        await editor.say(session, "paint it")
        assert [message for message, _ in editor.questions] == ["Which colour?"] * forms

    hold(home, work, forms=forms, answer="blue")
    (result,) = [message for message in read_messages(home) if message.role == "tool"]
    assert expected in result.text


# sessions ---------------------------------------------------------------------------------------------------------


def test_commands_are_answered_without_the_model(home, project, model) -> None:
    model.answers = [Answer("Port 8443.")]

    async def work(editor: Editor) -> None:
        session = await editor.begin(project)
        await editor.say(session, "the staging server listens on 8443")

        async def run(line: str) -> str:
            editor.updates.clear()
            assert await editor.say(session, line) == "end_turn"
            return editor.said()

        assert "cost in total: " in await run("/cost")
        assert "openai:small, " in await run("/model summariser")
        assert editor.of("config_option_update")[0].config_options[1].current_value == "summariser"
        assert "staging server listens" in await run("/search staging")
        assert f"{session[:8]}  the staging server" in await run("/history")
        assert "Commands run" in await run("/mode")
        assert "Mode edits: changes of the project's files run unasked" in await run("/mode edits")
        assert editor.of("current_mode_update")[0].current_mode_id == "edits"
        assert "Nothing was left out" in await run("/compact")
        assert "did you mean /history?" in await run("/histroy")
        assert "/search TEXT: find turns" in await run("/search")
        assert "- `/recall TEXT`" in await run("/help")

    hold(home, work)
    assert len(model.requests) == 1
    assert [message.role for message in read_messages(home)] == ["user", "assistant"]


def test_a_person_decides_in_the_editor_what_the_agent_proposed(home, project, model) -> None:
    change = {"page": "core", "text": "Mira. Harbour engineer.", "why": "she said so"}
    wrong = {"page": "core", "text": "Mira. Baker.", "why": "a guess"}
    model.answers = [Answer("", [("propose_change", change)]), Answer("", [("propose_change", wrong)]), Answer("Done.")]

    async def work(editor: Editor) -> None:
        session = await editor.begin(project)
        await editor.say(session, "I am Mira, a harbour engineer.")

        async def run(line: str) -> str:
            editor.updates.clear()
            assert await editor.say(session, line) == "end_turn"
            return editor.said()

        with perdure.open(home, user="ada") as opened:
            first, second = sorted(opened.floor.list_proposals(), key=lambda one: one.text, reverse=True)
        shown = await run("/proposals")
        assert first.id in shown and "+Mira. Harbour engineer." in shown
        assert "core.md: written" in await run(f"/approve {first.id}")
        assert "rejected" in await run(f"/reject {second.id}")
        assert "/approve ID: make a proposed change" in await run("/approve")
        assert "edit-none" in await run("/approve edit-none")

    hold(home, work)
    with perdure.open(home, user="ada") as opened:
        proposals = opened.floor.list_proposals(with_decided=True)
        assert opened.floor.read("core").strip() == change["text"]
    decided = {one.text.strip(): (one.outcome, one.surface) for one in proposals}
    assert decided == {change["text"]: ("approved", "editor"), wrong["text"]: ("rejected", "editor")}


def test_an_agent_that_drives_the_editor_cannot_approve(home, project, model) -> None:
    change = {"page": "core", "text": "Mallory.", "why": "mine"}
    model.answers = [Answer("", [("propose_change", change)]), Answer("Done.")]

    async def work(editor: Editor) -> None:
        session = await editor.begin(project)
        await editor.say(session, "I am Mallory.")
        with perdure.open(home, user="ada") as opened:
            (proposal,) = opened.floor.list_proposals()
        await editor.say(session, f"/approve {proposal.id}")
        assert "only the owner decides" in editor.said()

    hold(home, work, variables={"CLAUDECODE": "1"})
    with perdure.open(home, user="ada") as opened:
        assert not opened.floor.read("core")


def test_a_window_too_small_for_tools_is_told(home, project, model) -> None:
    (home / "config.toml").write_text(SETTINGS.format(url=model.url).replace("128000", "4000"))
    model.answers = [Answer("Hello.")]

    async def work(editor: Editor) -> None:
        session = await editor.begin(project)
        await editor.say(session, "hi")
        assert editor.said().startswith(
            "The model has no tools: the window of openai:scripted (4,000 tokens) is too small"
        )

    hold(home, work)


def test_what_cannot_begin_says_why(home, project, model) -> None:
    (home / "config.toml").write_text("")

    async def work(editor: Editor) -> None:
        with pytest.raises(acp.RequestError, match="perdure models set resident"):
            await editor.begin(project)

    hold(home, work)


# ends -------------------------------------------------------------------------------------------------------------


def test_cancel_keeps_what_came_and_the_session_goes_on(home, project, model) -> None:
    model.answers = [Answer("Once upon a time", n_events=1, hangs=True, pause_s=0.01), Answer("Again.")]

    async def work(editor: Editor) -> None:
        session = await editor.begin(project)
        turn = asyncio.create_task(editor.say(session, "tell a story"))
        await editor.wait_for("agent_message_chunk")
        with pytest.raises(acp.RequestError, match="goes on"):
            await editor.say(session, "and another")
        await editor.agent.cancel(session_id=session)
        assert await turn == "cancelled"
        assert await editor.say(session, "go on") == "end_turn"

    hold(home, work)
    story = read_messages(home)[1]
    assert (story.text, story.stop) == ("Once upon a time", "cancelled")


def test_cancel_ends_a_command_and_its_children(home, project, model) -> None:
    model.answers = [Answer(calls=[("shell", {"command": "echo began > began; sleep 60; echo over > over"})])]

    async def work(editor: Editor) -> None:
        session = await editor.begin(project)
        turn = asyncio.create_task(editor.say(session, "wait a minute"))
        async with asyncio.timeout(20):
            while not (project / "began").exists():
                await asyncio.sleep(0.02)
        await editor.agent.cancel(session_id=session)
        assert await turn == "cancelled"
        assert editor.calls()[-1][1] == "failed"

    hold(home, work, "--mode", "yolo")
    assert not (project / "over").exists()
    (result,) = [message for message in read_messages(home) if message.role == "tool"]
    assert "cancelled" in result.text


def test_cancel_while_the_person_is_asked(home, project, model) -> None:
    """A client answers an open question with `cancelled`, before or after it cancels the turn."""
    model.answers = [Answer(calls=[("write_file", {"path": "a.txt", "text": "1"})])]

    async def work(editor: Editor) -> None:
        session = await editor.begin(project)
        assert await editor.say(session, "write") == "cancelled"

    hold(home, work, choose=lambda *_: None)
    assert not (project / "a.txt").exists()


@pytest.mark.parametrize("end", ["stdin", "SIGTERM"])
def test_a_client_that_goes_in_the_middle_of_a_turn(home, project, model, end) -> None:
    model.answers = [Answer("Once upon a time", n_events=1, hangs=True, pause_s=0.01)]

    async def work(editor: Editor) -> None:
        session = await editor.begin(project)
        turn = asyncio.create_task(editor.say(session, "tell a story"))
        await editor.wait_for("agent_message_chunk")
        if end == "stdin":
            editor.process.stdin.close()
        else:
            editor.process.send_signal(signal.SIGTERM)
        assert await editor.process.wait() == 0
        with pytest.raises(ConnectionError):
            await turn

    hold(home, work)
    user, story = read_messages(home)
    assert (user.text, story.text, story.stop) == ("tell a story", "Once upon a time", "cancelled")
    assert (home.parent / "acp.err").read_text() == ""


# bytes ------------------------------------------------------------------------------------------------------------


def start_raw(home: Path, *words: str) -> subprocess.Popen[bytes]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    program = [sys.executable, "-m", MODULE, "acp", *words]
    return subprocess.Popen(program, env=make_environment(home), cwd=home.parent, **pipes)  # type: ignore[call-overload,no-any-return]


def make_line(number: int | None, method: str, **params: Any) -> bytes:
    fields = {} if number is None else {"id": number}
    return json.dumps({"jsonrpc": "2.0", **fields, "method": method, "params": params}).encode() + b"\n"


class RawEditor:
    """An editor that sends what it likes. Use it as a context."""

    def __init__(self, home: Path) -> None:
        self._process, self._n_requests = start_raw(home), 0

    def __enter__(self) -> RawEditor:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process as process:
            process.stdin.close()  # type: ignore[union-attr]
            assert process.wait(30) == 0
            assert b"Traceback" not in process.stderr.read()  # type: ignore[union-attr]

    def send(self, message: Any) -> None:
        self._process.stdin.write(json.dumps(message).encode() + b"\n")  # type: ignore[union-attr]
        self._process.stdin.flush()  # type: ignore[union-attr]

    def ask(self, method: str, **params: Any) -> int:
        self._n_requests += 1
        self.send({"jsonrpc": "2.0", "id": self._n_requests, "method": method, "params": params})
        return self._n_requests

    def prompt(self, session: str, *blocks: Any) -> int:
        texts = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
        return self.ask("session/prompt", sessionId=session, prompt=texts)

    def read_until(self, is_wanted: Callable[[Any], bool]) -> Any:
        while not is_wanted(message := json.loads(self._process.stdout.readline())):  # type: ignore[union-attr]
            pass
        return message

    def read_answer(self, number: int) -> Any:
        return self.read_until(lambda message: message.get("id") == number and "method" not in message)

    def begin(self, project: Path) -> str:
        self.read_answer(self.ask("initialize", protocolVersion=1))
        return self.read_answer(self.ask("session/new", cwd=str(project), mcpServers=[]))["result"]["sessionId"]


def test_a_beginning_that_comes_late_or_twice_is_answered(home, project, model) -> None:
    with RawEditor(home) as editor:
        editor.send({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s1"}})
        for version in (1, 0, 99):
            answer = editor.read_answer(editor.ask("initialize", protocolVersion=version))
            assert answer["result"]["protocolVersion"] == 1 and answer["result"]["agentInfo"]["name"] == "perdure"


def test_what_no_request_can_mean_is_refused_in_words(home, project, model) -> None:
    with RawEditor(home) as editor:
        session = editor.begin(project)
        for method in ("session/load", "session/resume", "session/fork"):
            answer = editor.read_answer(editor.ask(method, cwd=str(project), sessionId="", mcpServers=[]))
            assert answer["error"]["code"] == -32002
        for block in ({"type": "resource_link", "uri": "http://[", "name": "x"}, "/recall a\0b", "a\0b"):
            assert editor.read_answer(editor.prompt(session, block))["result"] == {"stopReason": "end_turn"}


def count_waiting_bytes(descriptor: int) -> int:
    """How many bytes of a pipe nobody has read yet."""
    return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4), sys.byteorder)


BEGIN = make_line(0, "initialize", protocolVersion=1)


def test_garbage_is_answered_and_does_no_harm(home, project, model) -> None:
    """Every line of standard output is one JSON-RPC message, whatever comes in."""
    model.answers = [Answer("Still here.")]
    garbage = [
        b"hello", b"[]", b"42", b"null", b"\xff\xfe\x00", b"{", b"[" * 100_000, b'{"method": 5, "id": 1}',
        b'{"id": {}, "result": 1}', b'{"id": 999, "result": 1}', b"", b"   ", b'{"jsonrpc": "2.0"}',
        b'{"method": "session/nothing", "id": 2}', b'{"method": "session/prompt", "id": 3, "params": 7}',
        b'{"method": "session/prompt", "id": 4, "params": {"sessionId": "s1", "prompt": []}}',
        b'{"method": "session/cancel", "params": {"sessionId": "s1"}}', b'{"method": "$/nothing"}',
    ]  # fmt: skip
    new = make_line(5, "session/new", cwd=str(project), mcpServers=[])
    with start_raw(home) as process:
        assert process.stdin and process.stdout
        process.stdin.write(b"\n".join([*garbage[:3], b""]) + BEGIN + b"\n".join([*garbage, b""]) + new)
        process.stdin.flush()
        answers: dict[Any, list[Any]] = {}

        def read_until(number: int) -> None:
            while number not in answers:
                message = json.loads(process.stdout.readline())  # type: ignore[union-attr]
                assert message["jsonrpc"] == "2.0"
                answers.setdefault(message.get("id", "update"), []).append(message)

        read_until(5)
        session = answers[5][0]["result"]["sessionId"]
        for number, words in ((6, "are you \ud800 there?"), (7, "you?")):
            prompt = [{"type": "text", "text": words}]
            process.stdin.write(make_line(number, "session/prompt", sessionId=session, prompt=prompt))
            process.stdin.flush()
            read_until(number)
        process.stdin.close()
        assert process.wait(30) == 0
        rest = process.stdout.read()
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in rest.splitlines())
    assert InitializeResponse.model_validate(answers[0][0]["result"]).agent_capabilities.load_session
    assert sorted(problem["error"]["code"] for problem in answers[None]) == sorted(
        [-32700, -32600, -32600] + [-32700] * 4 + [-32600] * 5
    )
    assert [answers[n][0]["error"]["code"] for n in (2, 3, 4)] == [-32601, -32602, -32002]
    assert "result" in answers[7][0]


def test_nothing_but_messages_reaches_standard_output(home, project, model) -> None:
    """A tool that writes to the standard output that it inherits cannot break the protocol."""
    model.answers = [Answer(calls=[("shell", {"command": "echo loud; echo louder >&2; cat"})]), Answer("Done.")]
    with start_raw(home, "--mode", "yolo") as process:
        assert process.stdin and process.stdout
        process.stdin.write(BEGIN + make_line(1, "session/new", cwd=str(project), mcpServers=[]))
        process.stdin.flush()
        lines: list[Any] = []
        while not any(line.get("id") == 1 for line in lines):
            lines.append(json.loads(process.stdout.readline()))
        session = next(line for line in lines if line.get("id") == 1)["result"]["sessionId"]
        for number, text in ((2, "run it"), (3, "/search loud")):
            prompt = [{"type": "text", "text": text}]
            process.stdin.write(make_line(number, "session/prompt", sessionId=session, prompt=prompt))
            process.stdin.flush()
            while not any(line.get("id") == number for line in lines):
                lines.append(json.loads(process.stdout.readline()))
        process.stdin.close()
        assert process.wait(30) == 0
    assert all(line["jsonrpc"] == "2.0" for line in lines)


def test_huge_prompts(home, project, model) -> None:
    """One of megabytes is an error of the window, one above the limit of a line is refused, both in words."""

    async def work(editor: Editor) -> None:
        session = await editor.begin(project)
        with pytest.raises(acp.RequestError, match="tokens"):
            await editor.say(session, "word " * 1_000_000)
        model.answers = [Answer("Yes.")]
        assert await editor.say(await editor.begin(project), "are you there?") == "end_turn"

    hold(home, work)
    with start_raw(home) as process:
        assert process.stdin and process.stdout
        process.stdin.write(BEGIN + b"x" * (65 * 1024 * 1024) + b"\n" + make_line(1, "session/list"))
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.stdin.close()
        process.wait(30)
    assert [answer.get("id") for answer in answers] == [0, None, 1]
    assert "more than 67,108,864 bytes" in answers[1]["error"]["message"]


def send_prompt(process: subprocess.Popen[bytes], project: Path, text: str) -> None:
    """Begin a session, and send a message in it."""
    assert process.stdin and process.stdout
    process.stdin.write(BEGIN + make_line(1, "session/new", cwd=str(project), mcpServers=[]))
    process.stdin.flush()
    message: Any = {}
    while message.get("id") != 1:
        message = json.loads(process.stdout.readline())
    prompt = [{"type": "text", "text": text}]
    process.stdin.write(make_line(2, "session/prompt", sessionId=message["result"]["sessionId"], prompt=prompt))
    process.stdin.flush()


def test_a_broken_pipe_ends_the_process_and_keeps_the_turn(home, project, model) -> None:
    model.answers = [Answer("Once upon a time", pause_s=0.5)]
    with start_raw(home) as process:
        assert process.stdin and process.stdout and process.stderr
        send_prompt(process, project, "tell a story")
        wait_for(lambda: model.requests, limit_s=30)
        process.stdout.close()
        assert process.wait(30) == 0  # standard input is still open
        assert b"Traceback" not in process.stderr.read()
    assert read_messages(home)[0].text == "tell a story"


def test_a_client_that_stops_reading_cannot_hold_the_turn(home, project, model) -> None:
    """The pipe is full, and the session waits for room until the client closes its own side."""
    model.answers = [Answer("x" * 300_000, n_events=1, hangs=True, pause_s=0.01)]
    with start_raw(home) as process:
        assert process.stdin and process.stdout
        send_prompt(process, project, "tell a long story")
        output = process.stdout.fileno()
        wait_for(lambda: count_waiting_bytes(output) >= 60_000, limit_s=30)
        process.stdin.close()
        assert process.wait(30) == 0
    story = read_messages(home)[1]
    assert (len(story.text), story.stop) == (300_000, "cancelled")
