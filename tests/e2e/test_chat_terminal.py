"""`perdure chat` in a real pseudo-terminal: what a person sees, and what their keys do."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import sys
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
    ("/plan", "Planning: the model is asked for plans alone."),
    ("/plan", "Planning ended."),
    ("/model", "openai:scripted, 128,000 tokens"),
    ("/model other", "openai:other, 128,000 tokens"),
    ("/model miner", "models.roles.miner has no provider"),
    ("/mode", "The model has no tools in this chat"),
    ("/cost", "1 answer: "),
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


def test_planning_stands_beside_the_message_until_it_ends(start, model: ModelServer, settings: Path) -> None:
    terminal = start()
    terminal.enter("/plan")
    terminal.wait("· plan")
    terminal.enter("move the port")
    terminal.wait("OK.")
    assert "The person is planning." in model.requests[-1].body["messages"][-1]["content"]
    said = next(entry for entry in entries(settings) if getattr(entry, "role", "") == "user")
    assert said.text == "move the port"


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


@pytest.fixture
def with_tool(settings: Path, place: Path) -> Iterator[Terminal]:
    env = {"USER": "ada", "LOGNAME": "ada", "HOME": str(place), "PYTHONPATH": ":".join(sys.path)}
    with Terminal([sys.executable, "-m", "rig.chat_program", str(settings)], cwd=place, env=env) as terminal:
        terminal.wait("tokens:")
        yield terminal


def test_a_tool_call_is_one_line_and_ctrl_c_leaves_it(with_tool: Terminal, model: ModelServer, settings: Path) -> None:
    """The prompt is there while the tool still runs; the next message waits for it."""
    model.answers = [
        Answer(calls=[("wait", {"seconds": 0})]),
        Answer(calls=[("wait", {"seconds": -1})]),
        Answer("All waited."),
        Answer(calls=[("wait", {"seconds": 8}), ("wait", {"seconds": 0})]),
    ]
    with_tool.enter("wait twice")
    with_tool.wait("All waited.")
    assert "● wait seconds=0 → waited 0 seconds and a second row" in with_tool.rows
    assert "● wait seconds=-1 → ValueError: nobody can wait so long" in with_tool.rows
    with_tool.wait(is_at_prompt)
    with_tool.enter("wait long")
    with_tool.wait("● wait seconds=8 …")
    with_tool.send("\x03")
    with_tool.wait("cancelled; what came is kept", seconds=6)
    with_tool.wait(is_at_prompt)
    with_tool.enter("go on")
    with_tool.wait("OK.")
    outputs = [entry.text for entry in entries(settings) if getattr(entry, "role", "") == "tool"]
    assert len(outputs) == 4 and outputs[-2].startswith(("waited 8 seconds", "cancelled"))


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
    assert first.wait_end() == 0 and len(lines) == 5
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
