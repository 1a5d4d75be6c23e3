"""What every flow test needs: lines of transcripts, homes, and a search through every byte of a home."""

import contextlib
import http.client
import json
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import perdure
from perdure.home import Home
from perdure.types import Identity
from rig import local_model
from rig.tier_servers import RedisServer

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

START = datetime(2026, 1, 15, 9, tzinfo=UTC)


def make_message(role: str, content: Any, minute: float = 0, **more: Any) -> bytes:
    """One line of a plain message log, said so many minutes after 2026-01-15 09:00 UTC."""
    at = (START + timedelta(minutes=minute)).isoformat()
    return json.dumps({"role": role, "content": content, "timestamp": at, **more}, ensure_ascii=False).encode() + b"\n"


def make_claude(role: str, content: Any, uuid: str, minute: float = 0, session: str = "s", **more: Any) -> bytes:
    """One line of a Claude Code transcript."""
    at = (START + timedelta(minutes=minute)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    message: dict[str, Any] = {"role": role, "content": content}
    if role == "assistant":
        message |= {"id": f"msg_{uuid}", "model": "m", "usage": {"input_tokens": 1, "output_tokens": 2}}
    head = {"type": role, "uuid": uuid, "sessionId": session, "timestamp": at, "cwd": "/w", "isSidechain": False}
    return json.dumps({**head, "message": message, **more}, ensure_ascii=False).encode() + b"\n"


def find_bytes(home: Path, needle: bytes) -> list[str]:
    """Every file under a home that holds these bytes, packs unpacked; names count too."""
    found = []
    for path in sorted(home.rglob("*")):
        if path.is_file() and not path.is_symlink():
            raw = path.read_bytes()
            plain = zstd.decompress(raw) if path.suffix == ".zst" else b""
            if needle in raw or needle in plain or needle in path.name.encode():
                found.append(str(path.relative_to(home)))
    return found


@pytest.fixture
def message() -> Callable[..., bytes]:
    return make_message


@pytest.fixture
def claude() -> Callable[..., bytes]:
    return make_claude


@pytest.fixture
def grep() -> Callable[[Path, bytes], list[str]]:
    return find_bytes


@pytest.fixture
def start() -> datetime:
    return START


@pytest.fixture
def opened(tmp_path: Path):
    """Open homes by name under tmp_path, for a user; all are closed at the end."""
    homes: list[Home] = []

    def open_(name: str = "home", user: str = "ada", **how: Any) -> Home:
        homes.append(perdure.open(tmp_path / name, user=user, **how))
        return homes[-1]

    yield open_
    for home in homes:
        home.close()


@pytest.fixture
def opened_quiet(opened, tmp_path: Path):
    """As `opened`, but nothing that is stated there becomes a memory by itself, unless a test sets its own settings."""

    def open_(name: str = "home", **how: Any) -> Home:
        (tmp_path / name).mkdir(mode=0o700, exist_ok=True)
        settings = tmp_path / name / "config.toml"
        if not settings.exists():
            settings.write_text("[memories]\nstated = false\n")
        return opened(name, **how)

    return open_


@pytest.fixture
def talk() -> Callable[[int], str]:
    """So many words, five characters each with a blank: one word over and over would read like a flood."""
    nouns = ("word", "home", "tree", "door", "moon", "book", "fish", "gate", "hill", "lamp")
    return lambda n: " ".join(nouns[i % len(nouns)] for i in range(n))


@pytest.fixture
def small_model(tmp_path: Path) -> Callable[..., tuple[Path, Any]]:
    """The real small model in a role: (the place of a home with these settings, the model); skipped where it is not."""

    def found(role: str, job: str, settings: str, *, tables: str = "") -> tuple[Path, Any]:
        try:
            model = local_model.file()
        except local_model.Missing as missing:
            pytest.skip(str(missing))
        pytest.importorskip("xllamacpp")
        place = tmp_path / "home"
        place.mkdir(mode=0o700)
        head = f'[models.roles.{role}]\nprovider = "gguf"\nmodel = "{model}"\ntimeout_s = 250\n'
        (place / "config.toml").write_text(f"{head}{settings}\n{tables}")
        with perdure.open(place, user="ada") as first:
            chat = first.chat(role, job=job)
        assert chat is not None
        return place, chat

    return found


@pytest.fixture
def home(opened) -> Home:
    return opened()


@pytest.fixture
def lines(message):
    """What one session said, as a client of the API sends it."""
    return b"".join([
        message("user", "Which port does the staging server use?", 0),
        message("assistant", "It listens on port 8443 behind nginx.", 1),
    ])  # fmt: skip


class Caller:
    """Asks a served home over HTTP with one credential, each time on a connection of its own."""

    def __init__(self, address: str, secret: str = "") -> None:
        self.address, self.secret = address.removeprefix("http://"), secret

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, Any]:
        """(status, body, headers) of the answer. body: bytes are sent as they are, anything else as JSON."""
        line = http.client.HTTPConnection(self.address, timeout=30)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.secret:
            sent.setdefault("Authorization", f"Bearer {self.secret}")
        if body is not None and not isinstance(body, bytes):
            body, sent = json.dumps(body).encode(), {"Content-Type": "application/json", **sent}
        with contextlib.closing(line):
            line.request(method, path, body, sent)
            answer = line.getresponse()
            raw = answer.read()
            is_json = (answer.getheader("content-type") or "").startswith("application/json")
            return answer.status, json.loads(raw) if is_json else raw, answer.headers


class Known:
    """An authority of a test: secrets and whom they stand for."""

    def __init__(self) -> None:
        self.secrets = {
            "ada-laptop": Identity("ada", "laptop", "m-ada-1", is_admin=True),
            "ada-tower": Identity("ada", "tower", "m-ada-2", is_admin=True),
            "bob-phone": Identity("bob", "phone", "m-bob-1"),
        }

    def identify(self, secret: str) -> Identity | None:
        return self.secrets.get(secret)

    def identify_machine(self, user: str, machine_id: str) -> Identity | None:
        return next((one for one in self.secrets.values() if (one.user, one.machine_id) == (user, machine_id)), None)


@pytest.fixture
def served(tmp_path: Path):
    """Serve a home of ada's over HTTP: called with settings, it gives what a test needs of it."""
    running: list[Any] = []

    def serve_(settings: str = "", **how: Any) -> SimpleNamespace:
        from perdure.service.server import HomeServer, Intervals
        from perdure.surfaces.http.server import HttpServer

        place = tmp_path / "home"
        place.mkdir(mode=0o700, exist_ok=True)
        if "[server]" not in settings:
            settings = f"{settings}\n[server]\n"
        (place / "config.toml").write_text(settings.replace("[server]", '[server]\nhttp = "127.0.0.1:0"'))
        home = perdure.open(place, user="ada", embedder=how.pop("embedder", None))
        serving = HomeServer(home, intervals=Intervals(round_s=0.2, prove_s=0.5, tick_s=60, **how))
        thread = threading.Thread(target=serving.run, daemon=True)
        authority = Known()
        served = HttpServer(serving, authority)
        running.append((serving, thread, served, home))
        address = served.start()
        serving.http_address = address
        thread.start()
        callers = {name.replace("-", "_"): Caller(address, name) for name in authority.secrets}
        return SimpleNamespace(
            place=place, serving=serving, served=served, address=address, authority=authority,
            nobody=Caller(address), **callers,
        )  # fmt: skip

    yield serve_
    for serving, thread, served, home in running:
        served.stop()
        serving.stop_event.set()
        thread.join(timeout=10)
        home.close()


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.kill()
    server.client.close()


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    redis_server.client.flushall()
    return redis_server.url
