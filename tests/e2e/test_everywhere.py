"""One memory on every surface: one question in a terminal, on the page, in Claude Code, in Telegram and by mail."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urljoin

import pytest

import perdure
from perdure.capture import events
from perdure.home import Home
from rig.bot_api import TOKEN, BotApiServer
from rig.mail_home import make_mail, put_mail, write_mail_settings
from rig.mail_server import MailServer
from rig.model_server import Answer, ModelServer, Request
from rig.waiting import find_free_ports, wait_for

TOLD = "We decided: the staging server of tidepool listens on port 9417."
ASKED = "Which port does the staging server of tidepool listen on? The {} asks."
ANSWER = "It listens on port 9417."
LIMIT_S = 60.0


class PortReader(ModelServer):
    """A model that knows nothing but what it reads: it repeats the port that stands there."""

    def keep(self, request: Request) -> Answer:
        super().keep(request)
        port = re.search(r"listens on port (\d{4})", json.dumps(request.body))
        return Answer(f"It listens on port {port[1]}." if port else "I do not know.")


class Everywhere:
    """A home with all its surfaces, served by one process as a person would serve it."""

    def __init__(self, place: Path, model: ModelServer, bot: BotApiServer, mail: MailServer) -> None:
        self.home, self.model, self.bot, self.mail = place / "home", model, bot, mail
        http_port, proxy_port = find_free_ports(2)
        self.spool = write_mail_settings(
            self.home, mail.port, "poll_s = 1", "[server]", f'http = "127.0.0.1:{http_port}"',
            "[proxy]", f'listen = "127.0.0.1:{proxy_port}"', "limit_ms = 5000",
            "[proxy.upstreams]", f'anthropic = "{model.url}"',
            "[telegram]", 'token_env = "BOT_TOKEN"', f'url = "{bot.url}"', 'users = ["11"]', f'folder = "{place}"',
            "[models.roles.resident]", 'provider = "openai"', 'model = "scripted"', f'url = "{model.url}/v1"',
            "window_tokens = 32000",
        )  # fmt: skip
        self.env = {
            **os.environ, "PERDURE_HOME": str(self.home), "USER": "tester", "LOGNAME": "tester", "NO_COLOR": "1",
            "PYTHONPATH": os.pathsep.join(sys.path), "BOT_TOKEN": TOKEN, "HOME": str(place),
        }  # fmt: skip
        line = [sys.executable, "-m", "perdure.surfaces.cli", "serve"]
        self.process = subprocess.Popen(line, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(self.is_answering, "a resident home that answers", limit_s=LIMIT_S)

    def is_answering(self) -> bool:
        assert self.process.poll() is None, "it has ended"
        try:
            return "error" not in events.ask_resident(self.home, {"op": "health"}, timeout_s=2)
        except (OSError, ValueError):
            return False

    def run(self, *words: str) -> str:
        line = [sys.executable, "-m", "perdure.surfaces.cli", *words]
        done = subprocess.run(line, env=self.env, cwd=self.home.parent, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def find_proxy_url(self) -> str:
        url = re.search(r"ANTHROPIC_BASE_URL=(\S+)", self.run("proxy", "--show"))
        assert url
        return url[1]

    # the surfaces ------------------------------------------------------------------------------------------

    def ask_in_terminal(self, text: str) -> str:
        return self.run("ask", text)

    def ask_on_page(self, text: str) -> str:
        link = re.search(r"http://\S+", self.run("page"))
        assert link
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        first = browser.open(link[0])
        page = browser.open(urljoin(first.url, "/chat")).read().decode()
        token = re.search(r'name="token" value="([^"]+)"', page)
        assert token
        form = urlencode({"text": text, "token": token[1]}).encode()
        chat = browser.open(urljoin(first.url, "/chat"), form).url
        return str(
            wait_for(
                lambda: self.find_answer(browser.open(chat).read().decode()), "an answer on the page", limit_s=LIMIT_S
            )
        )

    def find_answer(self, text: str) -> str:
        found = re.search(r"It listens on port \d{4}\.|I do not know\.", text)
        return found[0] if found else ""

    def ask_in_telegram(self, text: str) -> str:
        self.bot.add_message(text)
        found = lambda: next(filter(None, map(self.find_answer, self.bot.list_texts(11))), "")  # noqa: E731
        return str(wait_for(found, "an answer in Telegram", limit_s=LIMIT_S))

    def ask_by_mail(self, text: str) -> str:
        put_mail(self.spool, "1", make_mail(text))
        reply = wait_for(lambda: self.mail.messages, "an answer by mail", limit_s=LIMIT_S)[0][1]
        return str(reply.get_content())


def find_first(home: Home, words: str) -> str:
    """Return the text of the first turn that a search finds."""
    hits = home.search(words).hits
    return hits[0].text if hits else ""


@pytest.fixture(name="everywhere")
def fixture_everywhere(place: Path) -> Iterator[Everywhere]:
    with PortReader() as model, BotApiServer() as bot, MailServer() as mail:
        everywhere = Everywhere(place, model, bot, mail)
        try:
            yield everywhere
        finally:
            everywhere.process.kill()
            everywhere.process.wait()


def test_the_same_fact_is_known_on_every_surface(everywhere: Everywhere, client: Callable[..., Any]) -> None:
    assert "I do not know." in everywhere.ask_in_terminal(ASKED.format("gull"))
    everywhere.ask_in_terminal(TOLD)
    claude = client("claude-code", setup=False)
    claude.url = everywhere.find_proxy_url()

    def ask_through_proxy(text: str) -> str:
        done = claude.say(text)
        assert done.status == 0, done
        return str(done.out)

    surfaces = {
        "heron": everywhere.ask_in_terminal,
        "otter": everywhere.ask_on_page,
        "cormorant": ask_through_proxy,
        "puffin": everywhere.ask_in_telegram,
        "limpet": everywhere.ask_by_mail,
    }
    assert {name: ANSWER in ask(ASKED.format(name)) for name, ask in surfaces.items()} == dict.fromkeys(surfaces, True)
    with perdure.open(everywhere.home, user="tester") as opened:
        for name in surfaces:
            wait_for(
                lambda name=name: name in find_first(opened, name), f"{name} at the top of a search", limit_s=LIMIT_S
            )
