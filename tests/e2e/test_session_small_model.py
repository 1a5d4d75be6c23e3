"""A session with the real small model: it talks, its window fills, it is compacted and killed, and goes on.

What the model says is of no matter: with 135 million parameters it knows nothing. That it is asked, and that the log
and the window hold, is what these tests show.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.formats.perdure import Boundary, Message
from perdure.session.log import read_path
from rig import local_model

LIMIT_S = 240


@pytest.fixture
def home(tmp_path: Path, small_model: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    (path / "config.toml").write_text(
        'user = "ada"\n\n[models.roles.resident]\nprovider = "gguf"\n'
        f'model = "{small_model}"\nwindow_tokens = 1600\nmax_output_tokens = 24\n'
    )
    return path


@pytest.fixture
def small_model() -> Path:
    try:
        return local_model.file()
    except local_model.Missing as error:
        pytest.skip(str(error))


def ask(home: Path, text: str, *words: str) -> dict[str, Any]:
    line = [sys.executable, "-m", "perdure.surfaces.cli", "ask", *words, "--json", "--home", str(home), text]
    run = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=home.parent)
    assert run.returncode == 0, run.stdout + run.stderr
    answer: dict[str, Any] = json.loads(run.stdout)["result"]
    return answer


def make_page(number: int) -> str:
    lines = [
        f"Page {number}, {hour:02}: the gauge showed {(hour * 37) % 211} cm, wind from the west." for hour in range(14)
    ]
    return "\n".join(["Read this page.", *lines])


def test_a_session_outlives_the_window_of_the_small_model(home: Path) -> None:
    session = ask(home, "We decided: the staging server listens on port 9417.")["session"]
    for number in range(5):
        answer = ask(home, make_page(number), "--continue")
        assert answer["session"] == session
        assert answer["answer"]["text"].strip()
    line = [sys.executable, "-m", "perdure.surfaces.cli", "ask", "--continue", "--home", str(home), "Tell me a story."]
    killed = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=home.parent)
    with perdure.open(home, read_only=True) as opened:
        ends_at = time.monotonic() + 60
        while not any(isinstance(e, Message) and e.text == "Tell me a story." for e in read_path(opened, session)):
            assert time.monotonic() < ends_at
            time.sleep(0.02)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    answer = ask(home, "Which port does the staging server listen on?", "--continue")
    assert (answer["session"], bool(answer["answer"]["text"].strip())) == (session, True)
    with perdure.open(home, read_only=True) as opened:
        path = read_path(opened, session)
    boundaries = [entry for entry in path if isinstance(entry, Boundary)]
    assert boundaries
    assert "9417" in boundaries[-1].summary + path[1].text
    assert [m.text for m in path if isinstance(m, Message) and m.role == "user"][-2:] == [
        "Tell me a story.",
        "Which port does the staging server listen on?",
    ]
