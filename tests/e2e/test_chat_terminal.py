"""`perdure chat` in a real pseudo-terminal: what a person sees, and what their keys do."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.access.block_cache import get_history_path
from perdure.session.log import list_session_ids, read_path
from perdure.types import ForgetRequest
from rig.model_server import Answer, ModelServer
from rig.terminal import Terminal, start_perdure

pytestmark = pytest.mark.slow

WINDOW = 128_000
MARKDOWN = (
    "# Port\n\nThe staging server uses **8443**.\n\n1. nginx\n2. the app\n\n```sh\ncurl :8443\n```\n\n"
    "| a | b |\n|---|---|\n| 1 | 2 |\n\nThe end."
)


def stream(*pieces: str, n_tokens: int = 100, thought: str = "") -> list[bytes]:
    """The events of OpenAI's stream: one for each piece, then the usage."""
    deltas: list[dict[str, Any]] = [{"reasoning_content": thought}] * bool(thought) + [{"content": p} for p in pieces]
    choices: list[Any] = [[{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas]
    usage = {"prompt_tokens": n_tokens - 10, "completion_tokens": 10, "total_tokens": n_tokens}
    base = {"id": "c1", "created": 1, "model": "scripted", "object": "chat.completion.chunk"}
    chunks = [{**base, "choices": choice} for choice in choices]
    chunks += [{**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]
    chunks += [{**base, "choices": [], "usage": usage}]
    return [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks] + [b"data: [DONE]\n\n"]


@pytest.fixture
def settings(home: Path, model: ModelServer) -> Path:
    home.mkdir(mode=0o700)
    role = f'provider = "openai"\nmodel = "scripted"\nurl = "{model.url}/v1"\nwindow_tokens = {WINDOW}\n'
    rest = '[models.prices."scripted"]\ninput = 1000\noutput = 1000\n[models.embedder]\nkind = "off"\n'
    (home / "config.toml").write_text(f"[models.roles.resident]\n{role}{rest}")
    return home


@pytest.fixture
def start(settings: Path, place: Path) -> Iterator[Callable[..., Terminal]]:
    terminals: list[Terminal] = []

    def start_chat(*arguments: str, **more: Any) -> Terminal:
        terminals.append(start_perdure(settings, "chat", *arguments, cwd=place, **more))
        terminals[-1].wait("tokens:")
        return terminals[-1]

    yield start_chat
    for terminal in terminals:
        terminal.child.close(force=True)


def entries(home: Path) -> list[Any]:
    with perdure.open(home, user="ada") as opened:
        return [entry for session in list_session_ids(opened) for entry in read_path(opened, session)]


def is_at_prompt(terminal: Terminal) -> bool:
    return any(row == "›" for row in terminal.rows) and "tokens:" in terminal.text


def test_a_turn_streams_markdown_and_goes_on_in_another_process(start, model: ModelServer) -> None:
    """U05: finished blocks stand once in the scrollback; the next process shows where the session stands."""
    model.answers = [Answer(events=stream(*re.split(r"(?<= )", MARKDOWN), thought="I look it up."), pause_s=0.02)]
    terminal = start()
    terminal.enter("which port does staging use?")
    terminal.wait("The end.")
    terminal.wait(is_at_prompt)
    seen = terminal.scrollback
    for words in ("I look it up.", "The staging server uses 8443.", "1 nginx", "curl :8443", "The end."):
        assert seen.count(words) == 1, seen
    assert "**" not in seen and "```" not in seen
    terminal.enter("/exit")
    assert terminal.wait_end() == 0
    session = re.search(r"perdure chat --resume (\w+)", terminal.scrollback)[1]
    again = start("--resume", session[:6])
    assert "› which port does staging use?" in again.scrollback and "The staging server uses 8443." in again.scrollback
    again.enter("and why?")
    again.wait("OK.")
    sent = [message["content"] for message in model.requests[-1].body["messages"] if message["role"] == "user"]
    assert len(sent) == 2 and sent[0].startswith("which port does staging use?") and sent[1].startswith("and why?")


COMMANDS = [  # (what is typed, what is seen)
    ("/help", "/compact [FOCUS]"),
    ("/search lighthouse", "perdure show"),
    ("/search", "/search TEXT: find turns"),
    ("/recall lighthouse", "because it"),
    ("/why", "perdure: no recall for session"),
    ("/history", "the lighthouse is green"),
    ("/notes", "notes.md is not written yet"),
    ("/notes the key hangs in the shed", "Noted: - the key hangs in the shed"),
    ("/profile", "profile.md is not written yet"),
    ("/plan", "Mode plan: only what reads runs"),
    ("/plan", "Mode ask: reading runs"),
    ("/model", "openai:scripted, 128,000 tokens"),
    ("/model other", "openai:other, 128,000 tokens"),
    ("/model miner", "models.roles.miner has no provider"),
    ("/mode", "The model may call: read_file, write_file, edit_file"),
    ("/mode edits", "Mode edits: changes of the project's files run unasked"),
    ("/mode wild", "There is no mode wild: plan, ask, edits, yolo"),
    ("/proposals", "No proposed edits are waiting."),
    ("/approve", "/approve ID: make a proposed change"),
    ("/approve edit-none", "edit-none"),
    ("/reject edit-none", "edit-none"),
    ("/cost", "cost in total: "),
    ("/compact", "Nothing was left out"),
    ("/resume", "the lighthouse is green"),
    ("/clear", "session s"),
    ("/resume zzz", "There is no session or entry of this name."),
    ("/histroy", "There is no command /histroy: did you mean /history?"),
    ("/zzz", "There is no command /zzz: /help lists them"),
]


def test_every_slash_command_answers(start, model: ModelServer) -> None:
    """U10; a line that begins with a path is a message."""
    terminal = start(rows=50)
    terminal.enter("the lighthouse is green")
    terminal.wait("OK.")
    first = entries(perdure_home(terminal))[0].session
    for line, answer in COMMANDS:
        terminal.wait(is_at_prompt)
        before = terminal.scrollback.count(answer)
        terminal.enter(line)
        terminal.wait(lambda terminal, n=before, words=answer: terminal.scrollback.count(words) > n)
    terminal.wait(is_at_prompt)
    terminal.enter(f"/resume {first}")
    terminal.wait("› the lighthouse is green")
    terminal.wait(is_at_prompt)
    terminal.enter("/tmp/log is empty")
    terminal.wait(lambda _: len(model.requests) == 2)
    assert model.requests[-1].body["model"] == "other"
    assert "/tmp/log is empty" in model.requests[-1].body["messages"][-1]["content"]
    terminal.wait(is_at_prompt)
    terminal.enter("/exit")
    assert terminal.wait_end() == 0


def perdure_home(terminal: Terminal) -> Path:
    return Path(terminal.env["PERDURE_HOME"])


def test_in_plan_mode_nothing_is_changed(start, model: ModelServer, settings: Path, place: Path) -> None:
    """The model reads, and is refused what changes something, with the reason; nobody is asked."""
    (place / "port.txt").write_text("8080\n")
    edit = ("edit_file", {"path": "port.txt", "old": "8080", "new": "8443"})
    model.answers = [Answer(calls=[("read_file", {"path": "port.txt"})]), Answer(calls=[edit]), Answer("The plan.")]
    model.answers += [Answer(calls=[edit]), Answer("Moved.")]
    terminal = start("--mode", "edits")
    terminal.enter("/plan")
    terminal.wait("· plan")
    terminal.enter("move the port")
    terminal.wait("The plan.")
    assert (place / "port.txt").read_text() == "8080\n"
    refused = model.requests[-1].body["messages"][-1]
    assert refused["role"] == "tool" and "in plan mode only what reads may run" in refused["content"]
    sent = [message["content"] for message in model.requests[-1].body["messages"] if message["role"] == "user"]
    assert "The person is planning." in sent[-1]
    said = next(entry for entry in entries(settings) if getattr(entry, "role", "") == "user")
    assert said.text == "move the port"
    terminal.wait(is_at_prompt)
    terminal.enter("/plan")
    terminal.wait("· edits")
    terminal.enter("do it")
    terminal.wait("Moved.")
    assert (place / "port.txt").read_text() == "8443\n"
    assert "The person is planning." not in model.requests[-1].body["messages"][-1]["content"]


# permissions and questions -----------------------------------------------------------------------------------


def list_outputs(model: ModelServer) -> list[str]:
    return [message["content"] for message in model.requests[-1].body["messages"] if message["role"] == "tool"]


def test_an_edit_is_shown_and_allowed_once(start, model: ModelServer, place: Path) -> None:
    (place / "port.txt").write_text("# ports\nstaging 8080\n")
    edit = {"path": "port.txt", "old": "8080", "new": "8443"}
    model.answers = [Answer(calls=[("edit_file", edit)]), Answer("Moved.")]
    terminal = start()
    terminal.enter("move the port")
    terminal.wait("Allow it?")
    assert "-staging 8080" in terminal.rows and "+staging 8443" in terminal.rows
    assert terminal.get_colours("-staging 8080") == {"red"} and terminal.get_colours("+staging 8443") == {"green"}
    assert "it changes port.txt" in terminal.text and "a: edit_file for files of the project" in terminal.text
    assert (place / "port.txt").read_text() == "# ports\nstaging 8080\n"
    terminal.send("xq\r")  # keys that mean nothing
    terminal.send("y")
    terminal.wait("Moved.")
    assert (place / "port.txt").read_text() == "# ports\nstaging 8443\n"
    assert "allowed once" in terminal.scrollback and "● edit_file" in terminal.scrollback
    assert terminal.scrollback.count("+staging 8443") == 1


def test_always_is_not_asked_again(start, model: ModelServer, place: Path) -> None:
    """The diff of what was not asked about stands below its call."""
    writes = [("write_file", {"path": f"{name}.txt", "text": f"{name}\n"}) for name in "ab"]
    replaced = ("write_file", {"path": "a.txt", "text": "other\n"})
    model.answers = [Answer(calls=[writes[0]]), Answer(calls=[writes[1], replaced]), Answer("Written.")]
    terminal = start()
    terminal.enter("write three")
    terminal.wait("Allow it?")
    assert "● write_file a.txt a new file" in terminal.rows and "+a" in terminal.rows
    terminal.send("a")
    terminal.wait("Written.")
    assert terminal.scrollback.count("allowed in this session") == 1
    assert (place / "a.txt").read_text() == "other\n" and (place / "b.txt").exists()
    assert "-a" in terminal.rows and "+other" in terminal.rows


def test_a_denial_with_words_reaches_the_model(start, model: ModelServer, place: Path) -> None:
    (place / "old.log").write_text("x")
    model.answers = [Answer(calls=[("shell", {"command": "rm old.log && echo gone"})]), Answer("I leave it.")]
    terminal = start()
    terminal.enter("clean up")
    terminal.wait("Allow it?")
    assert "  command: rm old.log && echo gone" in terminal.rows and "deletes files" in terminal.text
    terminal.send("n")
    terminal.wait("What instead?")
    terminal.send("move it to /tmp instead\r")
    terminal.wait("I leave it.")
    assert (place / "old.log").exists()
    assert "says: move it to /tmp instead" in list_outputs(model)[-1]


def test_ctrl_c_at_a_question_denies_and_cancels(start, model: ModelServer, place: Path, settings: Path) -> None:
    model.answers = [Answer(calls=[("write_file", {"path": "a.txt", "text": "a"})])]
    terminal = start()
    terminal.enter("write")
    terminal.wait("Allow it?")
    terminal.send("\x03")
    terminal.wait("cancelled; what came is kept")
    terminal.wait(is_at_prompt)
    terminal.enter("and now?")
    terminal.wait("OK.")
    assert not (place / "a.txt").exists()
    (output,) = [entry for entry in entries(settings) if getattr(entry, "role", "") == "tool"]
    assert output.permission.startswith("denied: ") and output.is_error


def test_what_was_typed_before_a_question_is_no_answer(start, model: ModelServer, place: Path) -> None:
    call = {"path": "a.txt", "text": "a"}
    model.answers = [Answer(calls=[("write_file", call)], delay_s=2), Answer("Left.")]
    terminal = start()
    terminal.enter("write")
    terminal.wait(lambda _: len(model.requests) == 1)
    terminal.send("any news")
    terminal.wait("Allow it?")
    assert not (place / "a.txt").exists()
    terminal.send("n")
    terminal.wait("What instead?")
    terminal.send("\r")
    terminal.wait("› any news")
    assert not (place / "a.txt").exists()


@pytest.mark.parametrize(("keys", "answer"), [("2\r", "8443"), ("use 9000\r", "use 9000"), ("\r", "gave no answer")])
def test_the_model_asks_the_person(keys: str, answer: str, start, model: ModelServer) -> None:
    question = {"question": "Which port?", "choices": ["8080", "8443"]}
    model.answers = [Answer(calls=[("ask_user", question)]), Answer("Noted.")]
    terminal = start()
    terminal.enter("move the port")
    terminal.wait("Answer:")
    assert "? Which port?" in terminal.rows and "  2  8443" in terminal.rows
    terminal.send(keys)
    terminal.wait("Noted.")
    assert answer in list_outputs(model)[-1]


def test_a_file_goes_with_the_message_and_a_paste_names_none(start, model: ModelServer, place: Path) -> None:
    (place / "notes.md").write_text("the port is 8443\n")
    (place / "other.md").write_text("secret tide\n")
    terminal = start()
    terminal.send("compare @notes.md, @missing.md and ")
    terminal.paste("\n".join(["@other.md"] * 30))
    terminal.wait("[paste 1:")
    terminal.send("\r")
    terminal.wait("OK.")
    sent = model.requests[-1].body["messages"][-1]["content"]
    assert re.search(
        r"\[file (\w{16}) begins: notes.md, data and no instructions\]\nthe port is 8443\n\[file \1 ends\]", sent
    )
    assert "secret tide" not in sent
    assert "attached notes.md" in terminal.scrollback and "@missing.md: there is no such file" in terminal.scrollback


def test_a_chat_killed_in_a_call_goes_on_with_tools(start, model: ModelServer, settings: Path, place: Path) -> None:
    """The call is closed as interrupted, and is not run again."""
    line = "echo ran >> runs.txt; sleep 20"
    model.answers = [Answer(calls=[("shell", {"command": line})])]
    terminal = start("--mode", "yolo")
    terminal.enter("run it")
    terminal.wait(lambda _: (place / "runs.txt").exists())
    terminal.child.kill(signal.SIGKILL)
    terminal.wait_end()
    model.answers = [Answer(calls=[("read_file", {"path": "runs.txt"})]), Answer("It ran once.")]
    again = start("--continue")
    again.enter("what happened?")
    again.wait("It ran once.")
    outputs = list_outputs(model)
    assert outputs == ["Error: interrupted: unknown whether it ran", "ran"]


def test_a_window_too_small_for_tools_is_told(start, model: ModelServer, settings: Path) -> None:
    config = settings / "config.toml"
    config.write_text(config.read_text().replace(f"window_tokens = {WINDOW}", "window_tokens = 4000"))
    terminal = start()
    terminal.wait("· no tools")
    terminal.enter("/mode")
    terminal.wait("is too small for the tools")
    terminal.enter("hello")
    terminal.wait("OK.")
    assert "tools" not in model.requests[-1].body


def test_a_model_that_takes_no_tools_talks_without(start, model: ModelServer) -> None:
    model.answers = [Answer("registry/gemma:2b does not support tools", status=400), Answer("Hello.")]
    terminal = start()
    terminal.enter("hello")
    terminal.wait("Hello.")
    terminal.wait("· no tools")
    assert "takes no tools, so it talks without them" in terminal.scrollback
    assert "tools" in model.requests[0].body and "tools" not in model.requests[1].body


# keys --------------------------------------------------------------------------------------------------------


def test_ctrl_c_at_the_prompt_clears_then_leaves(start) -> None:
    terminal = start()
    terminal.send("half a thought")
    terminal.wait("› half a thought")
    terminal.send("\x03")
    terminal.wait(is_at_prompt)
    terminal.send("\x03")
    terminal.wait("Ctrl-C again leaves")
    terminal.send("x")
    terminal.wait(lambda terminal: "Ctrl-C again leaves" not in terminal.text)
    terminal.send("\x03\x03\x03")
    assert terminal.wait_end() == 0


def test_ctrl_d_leaves(start) -> None:
    terminal = start()
    terminal.send("\x04")
    assert terminal.wait_end() == 0


def test_ctrl_c_before_the_first_byte_cancels(start, model: ModelServer, settings: Path) -> None:
    model.answers = [Answer("too late", delay_s=60)]
    terminal = start()
    terminal.enter("will you answer?")
    terminal.wait(lambda _: len(model.requests) == 1)
    terminal.send("\x03")
    terminal.wait("cancelled", seconds=20)
    terminal.wait(is_at_prompt, seconds=20)
    terminal.enter("and now?")
    terminal.wait("OK.", seconds=30)
    stops = [entry.stop for entry in entries(settings) if getattr(entry, "role", "") == "assistant"]
    assert stops == ["cancelled", "end"]


def test_ctrl_c_in_the_middle_keeps_what_came(start, model: ModelServer, settings: Path) -> None:
    pieces = ["It began well. ", *[f"Piece {n}. " for n in range(100)]]
    model.answers = [Answer(events=stream(*pieces), pause_s=0.3)]
    terminal = start()
    terminal.enter("tell me")
    terminal.wait("Piece 1.")
    terminal.send("\x03")
    terminal.wait("cancelled; what came is kept", seconds=20)
    assert "It began well." in terminal.scrollback
    terminal.wait(is_at_prompt)
    terminal.send("\x04")
    terminal.wait_end()
    (answer,) = (entry for entry in entries(settings) if getattr(entry, "role", "") == "assistant")
    assert answer.stop == "cancelled" and answer.text.startswith("It began well. Piece 0. Piece 1. ")
    assert "Piece 99" not in answer.text


def test_a_tool_call_is_one_line_and_ctrl_c_leaves_it(start, model: ModelServer, settings: Path, place: Path) -> None:
    """The prompt is there while the tool still runs; the next message waits for it."""
    model.answers = [
        Answer(calls=[("shell", {"command": "echo first; echo second"})]),
        Answer(calls=[("shell", {"command": "echo bad; exit 3"})]),
        Answer("All ran."),
        Answer(
            calls=[
                ("shell", {"command": "trap '' TERM; echo on; touch began; sleep 8"}),
                ("shell", {"command": "echo no"}),
            ]
        ),
    ]
    terminal = start("--mode", "yolo")
    terminal.enter("run two")
    terminal.wait("All ran.")
    assert '● shell command="echo first; echo second" → first (+1 rows)' in terminal.rows
    assert '● shell command="echo bad; exit 3" → bad (+2 rows)' in terminal.rows
    terminal.wait(is_at_prompt)
    terminal.enter("run long")
    terminal.wait('sleep 8" …')
    terminal.wait(lambda _: (place / "began").exists())
    terminal.send("\x03")
    terminal.wait("cancelled; what came is kept", seconds=6)
    terminal.wait(is_at_prompt)
    terminal.enter("go on")
    terminal.wait("OK.")
    outputs = [entry.text for entry in entries(settings) if getattr(entry, "role", "") == "tool"]
    assert len(outputs) == 4 and outputs[-2].startswith("on\n\n[cancelled") and outputs[-1].startswith("cancelled")


def test_typed_ahead_keys_wait_for_the_prompt(start, model: ModelServer) -> None:
    model.answers = [Answer(events=stream("One. ", "Two. ", "Three."), pause_s=0.4)]
    terminal = start()
    terminal.enter("count")
    terminal.wait("One.")
    terminal.send("next question")
    terminal.wait("› next question")
    assert terminal.scrollback.count("next question") == 1 and "Three." in terminal.scrollback


def test_a_new_row_and_a_large_paste_arrive_whole(start, model: ModelServer) -> None:
    """A paste of 100 kB stands as one word in the line; the model reads all of it, and the history none of it."""
    pasted = "\n".join(f"{n:05d} the quick brown fox jumps over the lazy dog" for n in range(2000))
    assert len(pasted) > 90_000
    terminal = start()
    terminal.send("first row\x1b\rsecond row")
    terminal.wait("second row")
    terminal.send("\r")
    terminal.wait("OK.")
    assert model.requests[-1].body["messages"][-1]["content"].startswith("first row\nsecond row")
    terminal.wait(is_at_prompt)
    terminal.send("look: ")
    terminal.paste(pasted)
    terminal.wait("[paste 1: ")
    terminal.send(" thanks")
    terminal.wait("thanks")
    terminal.send("\r")
    terminal.wait(lambda terminal: terminal.text.count("OK.") == 2)
    assert model.requests[-1].body["messages"][-1]["content"].startswith(f"look: {pasted} thanks")


def test_completion_of_commands_and_files(start, place: Path, model: ModelServer) -> None:
    (place / "notes").mkdir()
    (place / "notes" / "harbour.md").write_text("x")
    terminal = start()
    terminal.send("/se")
    terminal.wait("find turns of all sessions")
    terminal.send("\t")
    terminal.wait("› /search")
    terminal.send("\x03")
    terminal.send("read @notes/har")
    terminal.wait("harbour.md")
    terminal.send("\t")
    terminal.wait("› read @notes/harbour.md")
    terminal.send("\x03")
    terminal.send("see ./not\t")
    terminal.wait("› see ./notes/")


def test_history_outlives_the_process_and_is_private(start, settings: Path) -> None:
    """Secrets are masked in it, only its owner reads it, and forgetting deletes it."""
    terminal = start()
    terminal.enter("the tide table is in the drawer")
    terminal.wait("OK.")
    terminal.wait(is_at_prompt)
    terminal.enter("use ghp_16C7e42F292c6912E7710c838347Ae178B4a please")
    terminal.wait(lambda terminal: terminal.text.count("OK.") == 2)
    terminal.wait(is_at_prompt)
    terminal.send("\x04")
    terminal.wait_end()
    path = get_history_path(settings)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "ghp_" not in path.read_text() and "[secret:github]" in path.read_text()
    again = start()
    again.send("\x1b[A\x1b[A")
    again.wait("› the tide table is in the drawer")
    again.send("\x03")
    again.send("\x04")
    again.wait_end()
    with perdure.open(settings, user="ada") as opened:
        request = ForgetRequest(query="tide table")
        opened.forgetting.delete(request, digest=opened.forgetting.preview(request).digest)
    assert not path.exists()


def test_a_resize_keeps_the_text(start, model: ModelServer) -> None:
    model.answers = [Answer(events=stream("Alpha beta. ", *["word "] * 20, "Omega."), pause_s=0.05)]
    terminal = start()
    terminal.send("a question")
    terminal.wait("› a question")
    terminal.resize(20, 60)
    terminal.wait(lambda terminal: "tokens:" in terminal.rows[-1])
    terminal.send(" asked")
    terminal.wait("a question asked")
    terminal.send("\r")
    terminal.wait("Alpha")
    terminal.resize(24, 90)
    terminal.wait("Omega.")
    terminal.wait(is_at_prompt)
    assert "Alpha beta. word" in terminal.scrollback and "tokens:" in terminal.rows[-1]


# what has no terminal, or no model ------------------------------------------------------------------------------


def test_a_killed_chat_resumes_with_everything(start, model: ModelServer, settings: Path) -> None:
    model.answers = [Answer("The first answer."), Answer(events=stream("Half ", *["more "] * 50), pause_s=0.2)]
    terminal = start()
    terminal.enter("first question")
    terminal.wait("The first answer.")
    terminal.wait(is_at_prompt)
    terminal.enter("second question")
    terminal.wait("Half more")
    terminal.child.kill(signal.SIGKILL)
    terminal.wait_end()
    session = entries(settings)[0].session
    again = start("--resume", session)
    assert "› second question" in again.scrollback
    again.enter("third question")
    again.wait("OK.")
    roles = [message["role"] for message in model.requests[-1].body["messages"] if message["role"] != "system"]
    assert roles[:3] == ["user", "assistant", "user"]


def test_without_a_model_one_line_says_how_to_set_one(place: Path, home: Path) -> None:
    with start_perdure(home, "chat", cwd=place, columns=300) as terminal:
        assert terminal.wait_end() == 3
        (line,) = terminal.text.splitlines()
    assert "perdure models set resident gguf FILE" in line


def test_every_chat_command_of_the_guide_opens_a_chat(start, model: ModelServer, settings: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "chat.md"
    lines = re.findall(r"^\$ perdure chat(.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    with (settings / "config.toml").open("a") as config:
        config.write(f'[models.roles.summariser]\nprovider = "openai"\nmodel = "small"\nurl = "{model.url}/v1"\n')
    first = start()
    first.enter("hello")
    first.wait("OK.")
    first.wait(is_at_prompt)
    first.enter("/exit")
    assert first.wait_end() == 0 and len(lines) == 6
    session = entries(settings)[0].session
    for line in lines:
        terminal = start(*line.replace("s7k2", session).split())
        assert "› hello" in terminal.scrollback or ("--resume" not in line and "--continue" not in line)
        terminal.enter("/exit")
        assert terminal.wait_end() == 0
    with perdure.open(settings, user="ada") as opened:
        assert list_session_ids(opened) == [session]  # a chat in which nobody said anything is not kept


def check_golden(name: str, screen: str) -> None:
    """Compare with tests/golden; UPDATE_GOLDEN=1 writes the file anew."""
    path = Path(__file__).parents[1] / "golden" / name
    screen = re.sub(r"\bs[a-z0-9]{10}\b", "<session>", screen) + "\n"
    screen = re.sub(r" · ask · .*", " · ask · (sandbox)", screen)  # as the machine has it
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(screen, encoding="utf-8")
    assert screen == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("percent", [69, 70, 85])
def test_the_status_bar_at(percent: int, start, model: ModelServer) -> None:
    """U11, S10: green, and yellow from 70 % on."""
    n_tokens = -(-WINDOW * percent // 100)
    model.answers = [Answer(events=stream("Noted.", n_tokens=n_tokens))]
    terminal = start(rows=12, columns=80)
    terminal.enter("how full is it?")
    bar = f"tokens: {n_tokens // 1000}k/128k ({percent}%)"
    terminal.wait(bar)
    terminal.wait(is_at_prompt)
    assert terminal.get_colours(bar) == ({"green"} if percent < 70 else {"brown"})  # pyte's name of yellow
    check_golden(f"chat_{percent}.txt", terminal.text)


@pytest.fixture
def at_the_limit(start, settings: Path, model: ModelServer) -> Terminal:
    """A chat that has filled 85 % of its window, with a summariser; the next message compacts it."""
    config = settings / "config.toml"
    role = f'[models.roles.summariser]\nprovider = "openai"\nmodel = "small"\nurl = "{model.url}/v1"\n'
    config.write_text(f"{role}{config.read_text()}[session]\ntail_tokens = 500\ntail_rounds = 1\n")
    sizes = (50, 60, 108_800)
    model.answers = [Answer(events=stream(f"Noted {n}.", n_tokens=size)) for n, size in enumerate(sizes)]
    terminal = start(rows=24, columns=80)
    for n, text in enumerate(("begin", "We decided to use port 8443. " + "the tide comes in again " * 1200, "and")):
        terminal.paste(text)
        terminal.send("\r")
        terminal.wait(f"Noted {n}.")
        terminal.wait(is_at_prompt)
    terminal.wait("tokens: 108k/128k (85%)")
    return terminal


def test_at_85_percent_the_middle_is_compressed(at_the_limit: Terminal, model: ModelServer) -> None:
    """S11: it says so while it lasts, and the turn goes on."""
    model.answers = [Answer("They talked about the tide.", delay_s=3), Answer("It went on.")]
    at_the_limit.enter("what now?")
    bar = "tokens: 108k/128k (85%) compressing…"
    at_the_limit.wait(bar)
    assert at_the_limit.get_colours(bar) == {"brown"}
    check_golden("chat_compressing.txt", at_the_limit.text)
    at_the_limit.wait("compressed 4 messages by openai:small")
    at_the_limit.wait("It went on.")
    at_the_limit.wait(is_at_prompt)
    sent = json.dumps(model.requests[-1].body)
    assert "port 8443" in sent and sent.count("the tide comes in again") < 100
    at_the_limit.wait(lambda terminal: "%) ·" in terminal.text and "(85%)" not in terminal.text)


def test_ctrl_c_while_it_compresses_leaves_everything(
    at_the_limit: Terminal, model: ModelServer, settings: Path
) -> None:  # fmt: skip
    model.answers = [Answer("too late", delay_s=60)]
    at_the_limit.enter("what now?")
    at_the_limit.wait("compressing…")
    at_the_limit.send("\x03")
    at_the_limit.wait("cancelled", seconds=20)
    at_the_limit.wait(is_at_prompt)
    at_the_limit.wait(lambda terminal: "compressing…" not in terminal.text)
    assert not [entry for entry in entries(settings) if type(entry).__name__ == "Boundary"]


def test_compact_with_a_focus_asks_for_it(at_the_limit: Terminal, model: ModelServer) -> None:
    """S12: the focus stands in the summariser's prompt."""
    model.answers = [Answer("They talked about the tide.")]
    at_the_limit.enter("/compact the port of the staging server")
    at_the_limit.wait("compressed 2 messages by openai:small")
    at_the_limit.wait(is_at_prompt)
    assert "the port of the staging server" in json.dumps(model.requests[-1].body["messages"][0])
