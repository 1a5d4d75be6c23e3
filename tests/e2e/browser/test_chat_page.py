"""SillyTavern, a chat page, through the proxy: told in one conversation, known in the next, only a base URL changed."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.types import Filters
from rig.clients import Missing, kept_prefix, program
from rig.model_server import ModelServer
from rig.tap import assert_only_blocks_added, tap

TOLD = "From now on the staging server of tidepool listens on port 9417."
ASKED = "Which port does the staging server of tidepool listen on?"
BLOCK = "[perdure-recall "
START_LIMIT_S = 120


class ChatPage:
    """A conversation in the page."""

    def __init__(self, page: Any, address: str, model: ModelServer) -> None:
        self.page, self.address, self.model = page, address, model
        self.begin()

    def begin(self) -> None:
        """Begin a new conversation."""
        self.page.goto(self.address)
        self.page.wait_for_selector("#send_textarea:not([disabled])[placeholder^='Type a message']")
        self.page.wait_for_selector("#chat .mes >> text=connected to an API")  # its greeting, which belongs to the chat

    def say(self, text: str) -> str:
        """Send a message, or a command that asks the model; return the newest answer on the page."""
        n_asked, ends_s = len(self.model.requests), time.monotonic() + 60
        self.page.fill("#send_textarea", text)
        self.page.click("#send_but")
        while len(self.model.requests) == n_asked:
            assert time.monotonic() < ends_s, f"the model was not asked at {text!r}"
            self.page.wait_for_timeout(50)
        self.page.wait_for_function("!document.body.dataset.generating")
        self.page.wait_for_timeout(500)  # it writes its files
        return str(self.page.locator("#chat .mes:not([is_user=true]) .mes_text").last.inner_text())


@pytest.fixture
def chat_page(place: Path, browser: Any, model: ModelServer) -> Iterator[Callable[[str], ChatPage]]:
    """Start SillyTavern with a base URL, and open its page; skipped, and said so, where it is not to be had."""
    processes: list[subprocess.Popen[bytes]] = []
    contexts: list[Any] = []

    def start(base_url: str) -> ChatPage:
        try:
            server, node = program("sillytavern"), program("node")
        except Missing as missing:
            pytest.skip(f"SillyTavern was not driven: {missing}")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        data = place / "tavern"
        write_settings(server.parent, data, base_url)
        more = {"port": port, "dataRoot": data, "configPath": place / "tavern.yaml", "browserLaunchEnabled": "false"}
        line = [str(node), str(server), *(word for name, value in more.items() for word in (f"--{name}", str(value)))]
        env = {"HOME": str(place), "PATH": f"{node.parent}:/usr/local/bin:/usr/bin:/bin"}
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        processes.append(subprocess.Popen(line, cwd=place, env=env, **quiet))
        wait_for_page(f"http://127.0.0.1:{port}/", processes[-1])
        contexts.append(browser.new_context())
        contexts[-1].set_default_timeout(60_000)
        return ChatPage(contexts[-1].new_page(), f"http://127.0.0.1:{port}/", model)

    yield start
    for context in contexts:
        context.close()
    for process in processes:
        process.kill()
        process.wait()


def write_settings(package: Path, data: Path, base_url: str) -> None:
    """What its owner sets once: an endpoint like OpenAI's, and summaries by the same model."""
    settings = json.loads((package / "default/content/settings.json").read_bytes())
    settings |= {"firstRun": False, "main_api": "openai"}
    settings["oai_settings"] |= {"chat_completion_source": "custom", "custom_model": "m", "stream_openai": True}
    settings["oai_settings"]["custom_url"] = base_url
    settings["power_user"]["auto_connect"] = True
    settings["extension_settings"]["memory"] |= {"source": "main"}
    (data / "default-user").mkdir(parents=True)
    (data / "default-user/settings.json").write_text(json.dumps(settings))


def wait_for_page(address: str, process: subprocess.Popen[bytes]) -> None:
    ends_s = time.monotonic() + START_LIMIT_S
    while True:
        try:
            with urllib.request.urlopen(address, timeout=10):
                return
        except OSError:
            assert process.poll() is None and time.monotonic() < ends_s, "its server does not answer"
            time.sleep(0.3)


def test_a_chat_page_remembers(chat_page, proxy, home, model, wait_until_known) -> None:
    with tap(proxy()) as listening:
        chat = chat_page(f"{listening.url}/v1")
        assert chat.say(TOLD) == "OK."
        wait_until_known("9417")
        chat.begin()
        n_before = len(model.requests)
        for text in (ASKED, "And who told you?", "/regenerate", "/summarize", "Since when?"):
            chat.say(text)
        sent = [request for request in listening.sent if request.method == "POST"]
    received = model.requests
    assert_only_blocks_added([request.body for request in sent], [request.raw for request in received])
    assert received[0].headers["user-agent"] == sent[0].header("user-agent")
    asked, more, again, summary, last = received[n_before:]
    first = asked.body["messages"][-1]["content"]
    assert first.startswith(ASKED) and BLOCK in first and "9417" in first
    assert kept_prefix(asked.body, more.body) == (len(asked.body["messages"]),) * 2
    assert again.raw == more.raw
    assert "Summarize" in summary.body["messages"][-1]["content"] and summary.raw == sent[-2].body
    said = [[m["content"] for m in request.body["messages"] if m["role"] == "user"] for request in (more, last)]
    assert len(said[1]) == 3 and said[1][:2] == said[0]  # the summary stands before them now: the page put it there
    with perdure.open(home, user="tester") as opened:
        opened.captures.drain()
        hits = opened.search("staging server tidepool", filters=Filters(tags=("proxy",))).hits
        assert {TOLD, ASKED} <= {hit.text for hit in hits}
        assert not any("Ignore" in hit.text for hit in opened.search("Ignore previous instructions").hits)
