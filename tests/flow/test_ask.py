"""`perdure ask` in a pipe, `perdure models set`, and the commands of docs/chat.md."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.models.chat import ChatReply, ToolCall, ToolSpec
from perdure.session.calls import Tool, ToolOutput
from perdure.session.log import create_log
from perdure.session.session import open_session
from perdure.session.turn_budget import TurnBudget
from perdure.testing import ScriptedChat
from rig.model_server import Answer, ModelServer

ROOT = Path(__file__).parents[2]


def begin(home: Path, *words: str, **more: Any) -> subprocess.Popen[str]:
    env = {
        **os.environ,
        "PERDURE_HOME": str(home),
        "HOME": str(home.parent),
        "USER": "ada",
        "LOGNAME": "ada",
        "TZ": "UTC",
    }
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    program = [sys.executable, "-m", "perdure.surfaces.cli", *words]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(program, env=env, cwd=home.parent, text=True, **pipes, **more)


def run(home: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    process = begin(home, *words)
    out, err = process.communicate(stdin, timeout=120)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def model(home: Path):
    with ModelServer() as server:
        done = run(home, "models", "set", "resident", "openai", "scripted", "--url", f"{server.url}/v1")
        assert done.returncode == 0, done.stderr
        yield server


def test_models_set_writes_the_settings_and_replaces_the_old_ones(home: Path) -> None:
    done = run(home, "models", "set", "resident", "anthropic", "claude-x", "--key-env", "MY_KEY", "--window", "200000")
    assert done.returncode == 0 and "anthropic:claude-x, window 200,000, no key in MY_KEY" in done.stdout
    (home.parent / "small.gguf").touch()
    done = run(home, "models", "set", "resident", "gguf", "small.gguf", "--json")
    assert done.returncode == 0, done.stdout
    text = (home / "config.toml").read_text()
    assert text == f'[models.roles.resident]\nprovider = "gguf"\nmodel = "{home.parent}/small.gguf"\n'


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("set", "resident"), 2, "`perdure models set ROLE PROVIDER MODEL`"),
        (("set", "nobody", "openai", "m"), 2, "ROLE is one of resident"),
        (("set", "resident", "gguf", "/nope"), 2, "there is no file /nope"),
        (("set", "resident", "gguf", "/"), 2, "there is no file /"),
        (("set", "resident", "nobody", "m"), 3, "provider = 'nobody'"),
        (("set", "resident", "openai", "m"), 3, "key_env must be set"),
        (("list", "--url", "http://a"), 2, "only `perdure models set"),
    ],
)
def test_models_set_refuses_what_makes_no_sense(words: tuple[str, ...], status: int, message: str, home: Path) -> None:
    done = run(home, "models", *words)
    assert done.returncode == status and message in done.stderr
    assert not (home / "config.toml").exists()


def test_the_answer_alone_is_on_standard_output(home: Path, model: ModelServer) -> None:
    """U06: standard input in, plain text out."""
    model.answers = [Answer("**8443**, behind nginx.\n\n- yes"), Answer("Because.")]
    done = run(home, "ask", "--porcelain", stdin="which port?\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "**8443**, behind nginx.\n\n- yes\n", "")
    assert model.requests[0].body["messages"][-1]["content"].startswith("which port?\n")
    done = run(home, "ask", "review", "this", "-", stdin="a diff")
    assert (done.returncode, done.stdout) == (0, "Because.\n")
    assert model.requests[1].body["messages"][-1]["content"].startswith("review this\n\na diff")


def test_a_session_goes_on_and_json_tells_its_id(home: Path, model: ModelServer) -> None:
    first = json.loads(run(home, "ask", "the lighthouse is green", "--json").stdout)["result"]
    assert first["answer"]["text"] == "OK." and first["answer"]["usage"]["n_output"] == 7
    again = json.loads(run(home, "ask", "--resume", first["session"][:7], "and the door?", "--json").stdout)["result"]
    assert again["session"] == first["session"]
    assert [m["role"] for m in model.requests[-1].body["messages"]][-3:] == ["user", "assistant", "user"]


def test_another_model_and_another_agent_answer(home: Path, model: ModelServer) -> None:
    """The notes of one agent are not read by the other; its floor stands before its own sessions."""
    assert run(home, "floor", "note", "the default agent's note").returncode == 0
    run(home, "ask", "hello", "--model", "larger")
    run(home, "ask", "hello", "--agent", "mira")
    larger, mira = model.requests
    assert larger.body["model"] == "larger" and "the default agent's note" in json.dumps(larger.body)
    assert mira.body["model"] == "scripted" and "the default agent's note" not in json.dumps(mira.body)
    with perdure.open(home, user="ada", agent="mira") as opened:
        runs = [opened.archive.read_run(entry) for entry in opened.archive.ledger.list_runs()]
        assert sorted(run.agent for run in runs) == ["default", "mira"]


def test_surface_and_model_of_the_agent_reach_the_model(home: Path, model: ModelServer) -> None:
    """U02; `--model` comes before the model of agent.yaml."""
    settings = "name: a\ntools: [propose_change]\nmax_turns: 3\nmodel: larger\neffort: low\n"
    assert run(home, "floor", "write", "system", "You are on {{platform}}.").returncode == 0
    assert run(home, "floor", "write", "agent", "-", stdin=settings).returncode == 0
    for words in ((), ("--mode", "edits"), ("--mode", "edits", "--model", "largest")):
        assert run(home, "ask", "hello", *words).returncode == 0
    plain, with_tools, chosen = (request.body for request in model.requests)
    for body in (plain, with_tools, chosen):
        assert "You are on console (standard output" in json.dumps(body["messages"][0])
    assert [body["model"] for body in (plain, with_tools, chosen)] == ["larger", "larger", "largest"]
    assert plain["reasoning_effort"] == with_tools["reasoning_effort"] == "low" and "reasoning_effort" not in chosen


@pytest.mark.parametrize(
    ("words", "stdin", "answers", "status", "message"),
    [
        (("ask", ""), "", [], 2, "give a message"),
        (("ask", "--resume", "zzz", "hi"), "", [], 4, "There is no session or entry of this name"),
        (("ask", "--model", "miner", "hi"), "", [], 3, "models.roles.miner has no provider"),
        (("ask", "hi"), "", [Answer("no such model", status=404)], 1, "The endpoint refused the request"),
        (("chat",), "", [], 2, "a chat needs a terminal; `perdure ask`"),
    ],
)
def test_exit_statuses(
    words: tuple[str, ...], stdin: str, answers: list[Answer], status: int, message: str, home: Path, model: ModelServer
) -> None:  # fmt: skip
    model.answers = answers
    done = run(home, *words, stdin=stdin)
    assert (done.returncode, done.stdout) == (status, "") and message in done.stderr


def test_without_a_model_the_error_says_how_to_set_one(home: Path) -> None:
    done = run(home, "ask", "hi")
    assert done.returncode == 3 and "perdure models set resident gguf FILE" in done.stderr
    answer = json.loads(run(home, "ask", "hi", "--json").stdout)
    assert answer["error"]["code"] == "model-missing"


def test_a_session_that_another_process_holds(home: Path, model: ModelServer) -> None:
    with perdure.open(home, user="ada") as opened:
        log = create_log(opened, cwd=None)
        done = run(home, "ask", "--resume", log.session, "hi")
        log.close()
    assert done.returncode == 5 and "--fork" in done.stderr


def test_an_interrupt_ends_with_status_130(home: Path, model: ModelServer) -> None:
    model.answers = [Answer("too late", delay_s=60)]
    process = begin(home, "ask", "hi")
    ends_at = time.monotonic() + 60
    while not model.requests:
        assert time.monotonic() < ends_at
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "")


def test_calls_are_not_run_after_the_last_answer(home: Path) -> None:
    """--max-turns: what the model wanted is answered in the log, so that the session can go on."""
    calls = [ChatReply("", calls=(ToolCall(f"c{n}", "look", {}),), stop="tool") for n in range(3)]
    chat, n_looks = ScriptedChat([*calls, "Done."]), []
    tool = Tool(ToolSpec("look", "Look.", {"type": "object"}), lambda *_: n_looks.append(1) or ToolOutput("seen"))
    with (
        perdure.open(home, user="ada") as opened,
        open_session(opened, chat=chat, tools=[tool], budget=TurnBudget(max_turns=2)) as session,
    ):
        with pytest.raises(perdure.errors.TurnBudgetSpent):
            session.say("look three times")
        assert len(chat.asked) == 2 and len(n_looks) == 1
        assert session.say("go on").text == "Done."
        shown = [message.text for message in chat.asked[-1].messages if message.role == "tool"]
    assert [text.partition(":")[0] for text in shown] == ["seen", "not run", "seen"]


def test_every_command_of_the_guide_runs(home: Path, model: ModelServer) -> None:
    """Those of `perdure chat` run in a terminal: tests/e2e/test_chat_terminal.py."""
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / "docs/chat.md").read_text(encoding="utf-8"), re.DOTALL)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    session = json.loads(run(home, "ask", "hi", "--json").stdout)["result"]["session"]
    asks = [line for line in lines if line.startswith("perdure ask")]
    sets = [line for line in lines if line.startswith("perdure models set")]
    assert len(asks) > 3 and len(sets) == 3
    (home.parent / "models").mkdir()
    (home.parent / "models/small.gguf").touch()
    for line in [*asks, *sets]:
        done = run(home, *shlex.split(line.replace("s7k2", session))[1:])
        assert done.returncode == 0, f"{line}\n{done.stderr}"


def test_a_mode_gives_tools_and_nobody_to_ask_denies(home: Path, model: ModelServer) -> None:
    question = '@call write_file {"path": "a.txt", "text": "hi"}\n@call shell {"command": "cat a.txt"}\n@say Done.'
    denied = run(home, "ask", "--mode", "ask", question)
    assert (denied.returncode, denied.stdout.strip()) == (0, "Done.")
    assert "Commands run" in denied.stderr
    assert not (home.parent / "a.txt").exists()
    assert "nobody can be asked here" in str(model.requests[1].body)
    allowed = run(home, "ask", "--mode", "edits", question)
    assert (allowed.returncode, allowed.stdout.strip()) == (0, "Done.")
    assert (home.parent / "a.txt").read_text() == "hi"
    run(home, "ask", "hello")
    assert not model.requests[-1].body.get("tools")


def test_a_call_with_a_huge_input_is_refused_and_the_turn_goes_on(home: Path, model: ModelServer) -> None:
    model.answers = [Answer(calls=[("write_file", {"path": "a.txt", "text": "x " * 10_000_000})]), Answer("Done.")]
    done = run(home, "ask", "--mode", "edits", "write it")
    assert (done.returncode, done.stdout.strip()) == (0, "Done."), done.stderr
    assert not (home.parent / "a.txt").exists()
    sent = json.dumps(model.requests[1].body)
    assert "input has more than 200,000 bytes: give a long text in parts" in sent and len(sent) < 100_000


def test_a_file_goes_with_the_words_and_not_with_what_is_piped(home: Path, model: ModelServer) -> None:
    (home.parent / "notes.md").write_text("the port is 8443\n")
    (home.parent / "other.md").write_text("the tide is low\n")
    done = run(home, "ask", "what is in @notes.md?", "-", stdin="see @other.md")
    sent = model.requests[-1].body["messages"][-1]["content"]
    assert done.returncode == 0 and "the port is 8443" in sent and "the tide is low" not in sent
    done = run(home, "ask", "and in @../secret.md?")
    assert done.returncode == 0 and "@../secret.md?: there is no such file" in done.stderr
    shown = run(home, "sessions", "show", "2")
    assert shown.returncode == 0, shown.stderr
    exported = json.loads(run(home, "sessions", "export", "1", "--json").stdout)
    assert exported["messages"][0]["files"] == [{"path": "notes.md", "text": "the port is 8443"}]


def test_the_examples_of_the_guide_to_the_agent_run(
    home: Path, model: ModelServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs/agent.md").read_text(encoding="utf-8")
    line = re.findall(r"```console\n\$ (.*?)\n```", page)[0]
    done = run(home, *shlex.split(line)[1:])
    assert (done.returncode, done.stdout.strip()) == (0, "OK.")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.setenv("PERDURE_HOME", str(home))
    exec(code.replace("/srv/shop", str(home.parent)), {})
    summary, answer = capsys.readouterr().out.splitlines()
    assert summary.startswith("Commands run ") and answer == "OK."
