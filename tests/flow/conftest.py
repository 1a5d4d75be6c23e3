"""What every flow test needs: lines of transcripts, homes, and a search through every byte of a home."""

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.home import Home
from perdure.testing import local_model

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
