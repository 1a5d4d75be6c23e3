"""Errors end in a sentence that helps: each says what is wrong and the command that mends it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import perdure
from perdure.capture import events
from perdure.service import lock, server
from rig.index_rows import START

SAMPLES = Path(perdure.__file__).parent / "samples"


def run(home: Path, *words: str, prelude: str = "") -> subprocess.CompletedProcess[str]:
    code = f"import sys\n{prelude}\nfrom perdure.surfaces.cli import main\nmain()"
    env = {**os.environ, "PERDURE_HOME": str(home), "HOME": str(home.parent), "NO_COLOR": "1", "COLUMNS": "200"}
    line = [sys.executable, "-c", code, *words]
    return subprocess.run(line, capture_output=True, text=True, env=env, timeout=60, check=False)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    with perdure.open(tmp_path / "home") as opened:
        opened.import_files([SAMPLES])
    return tmp_path / "home"


def test_unknown_command_suggests_the_nearest(home: Path) -> None:
    for wrong, right in (("serch", "search"), ("recal", "recall"), ("docter", "doctor")):
        done = run(home, wrong)
        assert done.returncode == 2 and f"Did you mean {right!r}?" in done.stderr


def test_import_of_a_device_or_a_pipe_fails(home: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    for path in (tmp_path / "pipe.jsonl", Path("/dev/zero")):
        done = run(home, "import", str(path))
        assert done.returncode == 1 and "cannot be read" in done.stderr


def test_doctor_finds_a_killed_resident_until_it_is_stopped(home: Path) -> None:
    (home / "run").mkdir(exist_ok=True)
    (home / "run" / "serve.json").write_text('{"pid": 4242, "since_at": "2026-01-15T09:00:00+00:00"}')
    done = run(home, "doctor")
    assert done.returncode == 1 and "killed or crashed" in done.stdout and "perdure serve --detach" in done.stdout
    assert run(home, "serve", "--stop").returncode == 0
    assert "killed or crashed" not in run(home, "doctor").stdout


@pytest.mark.index_file("it damages the file")
def test_doctor_finds_a_damaged_index(home: Path) -> None:
    """Pages in the middle of the file are overwritten; the first page, and so the version, is good."""
    assert "✓ index" in run(home, "doctor").stdout
    path = (home / "index.db").resolve()
    with perdure.open(home) as opened:
        opened.index().checkpoint()
    n_pages = path.stat().st_size // 4096
    with path.open("r+b") as file:
        file.seek(n_pages // 2 * 4096)
        file.write(b"\xa5" * 4096 * 8)
    done = run(home, "doctor")
    assert done.returncode == 1 and "✗ index" in done.stdout and "perdure rebuild" in done.stdout
    path.write_bytes(b"garbage" * 4096)
    assert run(home, "status").returncode == 1


def test_why_before_any_recall_says_when_there_is_one(home: Path) -> None:
    done = run(home, "why")
    assert done.returncode == 4 and "no session has had a recall yet" in done.stderr
    assert "perdure search" not in done.stderr, "the advice for an id that was not found"


def test_embed_without_an_embedder_names_the_reason(home: Path) -> None:
    (home / "config.toml").write_text('[models.embedder]\nkind = "off"\n')
    done = run(home, "embed")
    assert done.returncode == 4 and "perdure doctor" in done.stderr and "show ids" not in done.stderr


def test_import_of_a_file_that_is_no_transcript_fails(home: Path, tmp_path: Path) -> None:
    (tmp_path / "passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
    done = run(home, "import", str(tmp_path / "passwd"))
    assert done.returncode == 1 and "not captured" in done.stderr
    mixed = tmp_path / "folder"
    mixed.mkdir()
    (mixed / "passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
    assert run(home, "import", str(mixed)).returncode == 0, "a folder may hold other files"


def test_page_without_its_packages_starts_no_process(home: Path) -> None:
    done = run(home, "page", prelude="sys.modules['uvicorn'] = None")
    assert done.returncode == 1 and "pip install 'perdure[server]'" in done.stderr
    assert lock.find_resident(home) is None


def test_stop_waits_for_a_resident_that_ends_before_it_answers(home: Path) -> None:
    """The first request finds the process busy, the second is heard and not answered: it ends, and that is success."""
    with lock.hold_lock(home, now=START), server.open_socket(events.to_socket_path(home)) as listener:
        stopping = subprocess.Popen(
            [sys.executable, "-m", "perdure.surfaces.cli", "serve", "--stop", "--home", str(home)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        listener.settimeout(30)
        for _ in range(2):
            connection, _ = listener.accept()
            with connection:
                assert server.read_request(connection) == {"op": "stop"}
    said, complaint = stopping.communicate(timeout=30)
    assert (stopping.returncode, complaint) == (0, "") and said.startswith("Stopped"), complaint


# the end of a process -----------------------------------------------------------------------------------------


def test_process_ends_after_its_handlers_threads_and_output(home: Path) -> None:
    """It takes nothing apart at its end, and still does all that others wait for."""
    handler = "import atexit, threading, time\natexit.register(print, 'handled')\n"
    done = run(home, "--version", prelude=handler)
    assert done.returncode == 0 and done.stdout.endswith("handled\n")
    thread = (
        "def work():\n    time.sleep(0.5)\n    print('worked', flush=True)\nthreading.Thread(target=work).start()\n"
    )
    done = run(home, "--version", prelude=handler + thread)
    assert done.returncode == 0 and {"worked", "handled"} < set(done.stdout.split())
    assert run(home, "show", "nothing-like-it", prelude=handler).returncode == 4
    assert run(home, "no-such-command", prelude=handler).returncode == 2
