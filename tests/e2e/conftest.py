"""Real clients, each with folders of its own, and a scripted model for all of them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.capture import events
from rig.clients import Client, Missing
from rig.model_server import ModelServer


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

    def made(name: str, *, setup: bool = True, **more: Any) -> Client:
        try:
            found = Client(name, place, model.url, **more)
        except Missing as missing:
            pytest.skip(f"{name} was not driven: {missing}")
        if setup:
            done = found.perdure("install", name, home=home)
            assert done.status == 0, done.err
        return found

    return made


@pytest.fixture
def archived() -> Callable[[Path], dict[str, bytes]]:
    """Path of a transcript -> the bytes of it that the archive holds."""

    def read(home: Path) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        with perdure.open(home, user="tester") as opened:
            opened.captures.drain()
            runs = [(opened.archive.read_run(held), held) for held in opened.archive.ledger.list_runs()]
            for run, held in sorted(runs, key=lambda pair: pair[0].from_offset):
                assert len(found.get(str(run.path), b"")) == run.from_offset
                found[str(run.path)] = found.get(str(run.path), b"") + opened.archive.read(held)
        return found

    return read


@pytest.fixture
def serving():
    """Start the resident home; `pid` is its process. It ends with the test."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(home: Path) -> None:
        env = {**os.environ, "PERDURE_HOME": str(home), "USER": "tester", "LOGNAME": "tester"}
        env["PYTHONPATH"] = os.pathsep.join(sys.path)
        line = [sys.executable, "-m", "perdure.surfaces.cli", "serve"]
        processes.append(subprocess.Popen(line, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        start.pid = processes[-1].pid
        ends_at = time.monotonic() + 60
        while not answers(home):
            assert time.monotonic() < ends_at and processes[-1].poll() is None, "it does not answer"
            time.sleep(0.1)

    yield start
    for process in processes:
        process.kill()
        process.wait()


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


@pytest.fixture
def wait_until_known(home: Path) -> Callable[[str], None]:
    """Wait until a capture is found: what one program was told, the resident home knows."""

    def wait(words: str) -> None:
        ends_s = time.monotonic() + 60
        while True:
            with perdure.open(home, user="tester") as opened:
                if opened.search(words).hits:
                    return
            assert time.monotonic() < ends_s, f"{words!r} was not captured"
            time.sleep(0.2)

    return wait


def answers(home: Path) -> bool:
    try:
        events.ask_resident(home, {"op": "health"}, timeout_s=1)
    except (OSError, ValueError):
        return False
    return True
