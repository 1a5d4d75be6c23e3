"""Real clients, each with folders of its own, and a scripted model for all of them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perdure.testing.clients import Client, Missing
from perdure.testing.model_server import ModelServer


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that is not below the system's temporary one, where Codex would not run its helpers."""
    found = Path(tempfile.mkdtemp(prefix="perdure-e2e-", dir="/var/tmp"))
    yield found
    shutil.rmtree(found, ignore_errors=True)


@pytest.fixture
def home(place: Path) -> Path:
    return place / "home"


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def client(place: Path, home: Path, model: ModelServer) -> Callable[..., Client]:
    """A client by its name, set up by `perdure install`; skipped, and said so, where it is not to be had."""

    def made(name: str, *, setup: bool = True, **more: str) -> Client:
        try:
            found = Client(name, place, model.url, **more)
        except Missing as missing:
            pytest.skip(f"{name} was not driven: {missing}")
        if setup:
            done = found.perdure("install", name, home=home)
            assert done.status == 0, done.err
        return found

    return made
