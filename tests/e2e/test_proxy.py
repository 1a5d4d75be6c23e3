"""Real clients and SDKs through the proxy: told in one, known in the other, with only a base URL changed."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import perdure
from perdure.types import Filters
from rig.clients import kept_prefix, main_requests
from rig.model_server import ModelServer

TOOL = {
    "claude-code": '@call Bash {"command": "echo from-a-tool"}',
    "codex": '@call exec_command {"cmd": "echo from-a-tool"}',
    "opencode": '@call bash {"command": "echo from-a-tool", "description": "d"}',
}
AGAIN = {"claude-code": ("-c",), "opencode": ("-c",)}
TOLD = "From now on the staging server of tidepool listens on port 9417."
ASKED = "Which port does the staging server of tidepool listen on?"


@pytest.fixture
def proxy(home: Path, model: ModelServer) -> Iterator[Callable[[], str]]:
    """Start `perdure proxy` before the scripted model; return its base URL. It ends with the test."""
    processes: list[subprocess.Popen[str]] = []

    def start() -> str:
        home.mkdir(mode=0o700, exist_ok=True)
        table = f'anthropic = "{model.url}"\nopenai = "{model.url}"\n'
        settings = f'user = "tester"\n[proxy]\nlisten = "127.0.0.1:0"\nlimit_ms = 5000\n[proxy.upstreams]\n{table}'
        (home / "config.toml").write_text(settings)
        env = {
            **os.environ,
            "PERDURE_HOME": str(home),
            "PYTHONPATH": os.pathsep.join(sys.path),
            "HOME": str(home.parent),
        }
        line = [sys.executable, "-m", "perdure.surfaces.cli", "proxy"]
        processes.append(subprocess.Popen(line, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
        first = processes[-1].stdout.readline()
        assert first.startswith("ANTHROPIC_BASE_URL=http://127.0.0.1:"), first
        return first.strip().partition("=")[2]

    yield start
    for process in processes:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        process.stdout.close()


def wait_until_known(home: Path, words: str) -> None:
    """Wait until a capture is found: what one program was told, the resident home knows."""
    ends_s = time.monotonic() + 60
    while True:
        with perdure.open(home, user="tester") as opened:
            if opened.search(words).hits:
                return
        assert time.monotonic() < ends_s, f"{words!r} was not captured"
        time.sleep(0.2)


def use_anthropic(base: str, text: str) -> str:
    anthropic = pytest.importorskip("anthropic")
    message = {"role": "user", "content": text}
    with (
        anthropic.Anthropic(base_url=base, api_key="sk-ant-dummy") as sdk,
        sdk.messages.stream(model="m", max_tokens=50, messages=[message]) as stream,
    ):
        return stream.get_final_text()


def use_chat(base: str, text: str) -> str:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{base}/v1", api_key="sk-proj-dummy") as sdk:
        answer = sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
        return answer.choices[0].message.content


def use_responses(base: str, text: str) -> str:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{base}/v1", api_key="sk-proj-dummy") as sdk:
        return sdk.responses.create(model="m", input=text).output_text


SDKS = {"anthropic": use_anthropic, "openai chat": use_chat, "openai responses": use_responses}


@pytest.mark.parametrize(("teller", "asker"), [("anthropic", "openai chat"), ("openai chat", "openai responses"),
                                               ("openai responses", "anthropic")])  # fmt: skip
def test_what_one_sdk_is_told_the_other_knows(teller, asker, proxy, home, model) -> None:
    base = proxy()
    assert SDKS[teller](base, TOLD) == "OK."
    wait_until_known(home, "9417")
    assert SDKS[asker](base, ASKED) == "OK."
    assert ASKED in json.dumps(model.requests[-1].body)
    assert "9417" in json.dumps(model.requests[-1].body) and "[perdure-recall " in json.dumps(model.requests[-1].body)
    with perdure.open(home, user="tester") as opened:
        assert opened.search("9417", filters=Filters(tags=("proxy",))).hits


@pytest.mark.parametrize("name", TOOL)
def test_a_client_without_hooks_remembers(name, client, proxy, home, model) -> None:
    """Told by a program, known in the client; its requests keep their prefix, and both sides are captured."""
    base = proxy()
    use_chat(base, TOLD)
    wait_until_known(home, "9417")
    tested = client(name, setup=False)
    n_before = len(model.requests)
    tested.url = base
    getattr(tested, f"_prepare_{name.partition('-')[0]}")()
    done = tested.say(f"{ASKED}\n{TOOL[name]}\n@say It is the ninth.")
    assert done.status == 0 and "It is the ninth." in done.out, done
    more = (
        tested.run("exec", "resume", "--last", "And the second one?\n@say Second.")
        if name == "codex"
        else tested.say("And the second one?\n@say Second.", *AGAIN[name])
    )
    assert more.status == 0 and "Second." in more.out, more
    sent = main_requests(model.requests[n_before:])
    assert len(sent) == 3 and all("9417" in json.dumps(body) for body in sent)
    assert all(json.dumps(body).count("begins]") == json.dumps(sent[0]).count("begins]") for body in sent[:2])
    for before, after in itertools.pairwise(sent):
        n_kept, n_before_pieces = kept_prefix(before, after)
        assert n_kept == n_before_pieces
    assert all(
        "[perdure-recall " not in json.dumps(r.body) for r in model.requests[n_before:] if not r.body.get("tools")
    )
    wait_until_known(home, "ninth")
    with perdure.open(home, user="tester") as opened:
        answers = [hit for hit in opened.search("ninth").hits if hit.role == "assistant" and "ninth" in hit.text]
        assert len(answers) == 1 and opened.search("ninth", filters=Filters(tags=("proxy", name))).hits
        assert opened.search("ninth", filters=Filters(projects=(str(tested.project),))).hits


def test_the_same_client_with_hooks_is_not_captured_twice(client, proxy, home, model) -> None:
    base = proxy()
    tested = client("claude-code", setup=False)
    tested.url = base
    settings = home.parent / ".claude" / "settings.json"  # of the person who runs the proxy
    done = tested.perdure("install", "claude-code", "--no-service", home=home)
    assert done.status == 0, done.err
    settings.parent.mkdir(exist_ok=True)
    settings.write_bytes((tested.user_home / ".claude" / "settings.json").read_bytes())
    assert "Seventh." in tested.say("How many?\n@say Seventh.").out
    wait_until_known(home, "Seventh")
    with perdure.open(home, user="tester") as opened:
        hits = opened.search("Seventh").hits
    assert {hit.runtime for hit in hits} == {"claude-code"}
