"""A visitor without a browser: of a real server, over a home with the sample transcripts and a few memories in it."""

from __future__ import annotations

import contextlib
import http.client
import shutil
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from selectolax.lexbor import LexborHTMLParser

import perdure
from perdure.service.server import HomeServer, Intervals
from perdure.surfaces.web.listener import Listener

SAMPLES = Path(perdure.__file__).parent / "samples"
_TURNED = 5  # forms that answer with another address


class Seen:
    """What came back."""

    def __init__(self, status: int, body: bytes, headers: http.client.HTTPMessage, address: str) -> None:
        self.status, self.body, self.headers, self.address = status, body, headers, address

    @property
    def html(self) -> str:
        return self.body.decode()

    @property
    def tree(self) -> LexborHTMLParser:
        return LexborHTMLParser(self.html)

    def texts(self, css: str) -> list[str]:
        """The words of every element that fits, blanks closed up."""
        return [" ".join(node.text().split()) for node in self.tree.css(css)]

    def text(self, css: str = "main") -> str:
        """The words of the first element that fits."""
        return self.texts(css)[0]

    def links(self, css: str = "main a") -> list[str]:
        """Where its links lead."""
        return [node.attributes.get("href") or "" for node in self.tree.css(css)]

    def fields(self, css: str = "form") -> dict[str, str]:
        """What the fields of a form hold."""
        found: dict[str, str] = {}
        for node in self.tree.css(f"{css} input, {css} textarea, {css} select"):
            name = node.attributes.get("name")
            if name and node.tag == "select":
                chosen = node.css_first("option[selected]") or node.css_first("option")
                found[name] = (chosen.attributes.get("value") or "") if chosen else ""
            elif name and not (node.attributes.get("type") == "checkbox" and "checked" not in node.attributes):
                found[name] = (
                    node.text().removeprefix("\n") if node.tag == "textarea" else node.attributes.get("value") or ""
                )
        return found


class Visitor:
    """Somebody with a browser that runs no scripts: it keeps cookies and follows what forms answer with."""

    def __init__(self, address: str, home: Path) -> None:
        self.address, self.home = address, home
        self.cookies: dict[str, str] = {}

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Seen:
        """One request, and no other."""
        line = http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=60)
        sent = {"Accept": "text/html", **{name.replace("_", "-"): value for name, value in headers.items()}}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        with contextlib.closing(line):
            line.request(method, path, body, sent)
            answer = line.getresponse()
            raw = answer.read()
        for said in answer.headers.get_all("set-cookie") or []:
            name, _, value = said.partition(";")[0].partition("=")
            self.cookies[name] = value
            if not value.strip('"') or "Max-Age=0" in said:
                del self.cookies[name]
        return Seen(answer.status, raw, answer.headers, path)

    def get(self, path: str, **headers: str) -> Seen:
        """What stands at an address, wherever that leads."""
        seen = self.ask("GET", path.partition("#")[0], **headers)
        for _ in range(_TURNED):
            if seen.status not in (302, 303, 307):
                break
            seen = self.ask("GET", seen.headers["location"].partition("#")[0], **headers)
        return seen

    def token(self) -> str:
        """What a form of this visitor carries."""
        node = self.get("/").tree.css_first("input[name=token]")
        assert node is not None
        return node.attributes["value"] or ""

    def post(self, path: str, fields: dict[str, str] | list[tuple[str, str]] | None = None, /, **more: str) -> Seen:
        """What a form answers with, wherever that leads."""
        pairs = [*(fields.items() if isinstance(fields, dict) else fields or []), *more.items()]
        seen = self.send(path, [*pairs, ("token", self.token())])
        return self.get(seen.headers["location"]) if seen.status == 303 else seen

    def send(self, path: str, pairs: list[tuple[str, str]], **headers: str) -> Seen:
        """What a form answers with, as it is."""
        kind = "application/x-www-form-urlencoded"
        return self.ask("POST", path, urlencode(pairs).encode(), **{"Content-Type": kind, **headers})


class House:
    """A home that is served, and who comes to it."""

    def __init__(self, place: Path, settings: str) -> None:
        self.place = place
        (place / "config.toml").write_text(settings)
        self.opened = perdure.open(place, user="ada")
        self.opened.upkeep.catch_up()  # a copied home has no index yet if that is in Postgres
        self.serving = HomeServer(self.opened, intervals=Intervals(round_s=0.2, prove_s=5, tick_s=60))
        self.listener = Listener(self.serving)
        self.serving.page_link = self.listener.make_page_link
        self.thread = threading.Thread(target=self.serving.run, daemon=True)
        self.thread.start()

    def link(self) -> str:
        """An address that lets its owner in, once."""
        return self.listener.make_page_link()

    def visitor(self) -> Visitor:
        """The owner, who has come in."""
        link = urlsplit(self.link())
        visitor = Visitor(f"http://{link.netloc}", self.place)
        assert visitor.get(link.path).status == 200
        return visitor

    def stranger(self) -> Visitor:
        """Somebody who has not."""
        return Visitor(f"http://{urlsplit(self.link()).netloc}", self.place)

    def let_in(self, user: str = "bob", name: str = "phone") -> Visitor:
        """Another user, who came in with the secret of a machine."""
        _, secret = self.opened.sharing.machines.register(user, name)
        stranger = self.stranger()
        assert stranger.send("/enter", [("secret", secret), ("to", "/")]).status == 303
        return stranger

    def close(self) -> None:
        self.listener.close()
        self.serving.stop_event.set()
        self.thread.join(timeout=10)
        self.opened.close()


_SETTINGS = '[server]\nhttp = "127.0.0.1:0"\n[models.embedder]\nkind = "off"\n'


@pytest.fixture(scope="session")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the samples in it, which nobody changes: tests get copies."""
    place = tmp_path_factory.mktemp("furnished") / "home"
    place.mkdir(mode=0o700)
    (place / "config.toml").write_text(_SETTINGS)
    with perdure.open(place, user="ada") as home:
        home.import_files(home.captures.transcripts_to_import([SAMPLES]))
        home.upkeep.catch_up()
        home.remember("The tide server listens on port 8642.", kind="fact", path="tide-server/port")
        home.remember("We deploy on Thursdays.", kind="procedure", path="deploy/day")
        home.remember("Mira wants the command first.", kind="preference", path="user/answers")
    return place


@pytest.fixture
def house(furnished: Path, tmp_path: Path) -> Iterator[Callable[..., House]]:
    """Serve a copy of the furnished home; called with settings it is served with those."""
    opened: list[House] = []

    def open_(settings: str = "", *, prepare: Callable[[Any], None] | None = None) -> House:
        place = tmp_path / f"house{len(opened)}"
        shutil.copytree(furnished, place)
        place.chmod(0o700)
        if prepare is not None:
            with perdure.open(place, user="ada") as home:
                prepare(home)
                home.upkeep.catch_up()
        opened.append(House(place, settings or _SETTINGS))
        return opened[-1]

    yield open_
    for one in opened:
        one.close()


@pytest.fixture
def visitor(house: Callable[..., House]) -> Visitor:
    """The owner of a furnished home, who has come in."""
    return house().visitor()


@pytest.fixture
def ago() -> Callable[..., datetime]:
    """An instant so long ago."""
    return lambda **how: datetime.now(UTC) - timedelta(**how)
