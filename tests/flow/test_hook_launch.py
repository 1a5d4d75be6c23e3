"""The first step of the hook's process: the resident home does the work, and whatever it does not do is still done."""

from __future__ import annotations

import json
import os
import socketserver
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import perdure
from perdure.capture import enqueue, events, failures, hook, launch
from perdure.service.server import HomeServer
from rig.resident import ScriptedResident

HOOK = Path(perdure.__file__).parent / "capture" / "__main__.py"
HEAVY = ("json", "re", "pathlib", "typing", "perdure.capture.hook")
ANSWER = b'{"text": "MARK", "notice": ""}\n'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    with perdure.open(tmp_path / "home"):
        return tmp_path / "home"


def prompt(**more: object) -> dict:
    return {"hook_event_name": "UserPromptSubmit", "session_id": "s1", "cwd": "/w", "prompt": "the port?", **more}


def call(home: Path, event: object, *flags: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    line = [sys.executable, "-IS", *flags, str(HOOK), "claude-code", "--home", str(home)]
    around = {**os.environ, **variables}
    return subprocess.run(
        line, input=json.dumps(event).encode(), capture_output=True, timeout=60, check=True, env=around
    )


def text_of(done: subprocess.CompletedProcess[bytes]) -> str:
    return json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"] if done.stdout else ""


def modules_of(done: subprocess.CompletedProcess[bytes]) -> set[str]:
    return {row.rpartition("|")[2].strip() for row in done.stderr.decode().splitlines() if "import time" in row}


def grown(tmp_path: Path) -> Path:
    path = tmp_path / "t.jsonl"
    said = {
        "type": "user",
        "uuid": "u1",
        "sessionId": "s1",
        "message": {"role": "user", "content": "The port is 4242."},
    }
    path.write_bytes(json.dumps(said).encode() + b"\n")
    return path


class Resident(socketserver.ThreadingUnixStreamServer):
    """A resident home on the real socket that answers a handed-over event with fixed bytes, and other requests well."""

    daemon_threads = True

    def __init__(self, home: Path, first: bytes, *, delay_s: float = 0) -> None:
        class Door(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                request = json.loads(self.rfile.readline())
                if request["op"] != "hook":
                    self.wfile.write(ANSWER)
                    return
                self.wfile.write(first)
                self.wfile.flush()
                time.sleep(delay_s)

        path = events.to_socket_path(home)
        path.parent.mkdir(exist_ok=True, mode=0o700)
        super().__init__(str(path), Door)

    def __enter__(self) -> Resident:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


def test_resident_home_does_the_work_of_the_process(home: Path, tmp_path: Path) -> None:
    path = grown(tmp_path)
    with ScriptedResident(home, "MARK"):
        done = call(home, prompt(transcript_path=str(path)), "-X", "importtime")
    assert text_of(done) == "MARK" and not modules_of(done) & set(HEAVY)
    assert [delta.data for delta in enqueue.read_deltas(home / "outbox")] == [path.read_bytes()]


def test_real_resident_captures_and_answers(home: Path, tmp_path: Path) -> None:
    path = grown(tmp_path)
    ready = threading.Event()
    with perdure.open(home) as opened:
        server = HomeServer(opened)
        thread = threading.Thread(target=server.run, kwargs={"on_ready": ready.set}, daemon=True)
        thread.start()
        assert ready.wait(30)
        done = call(home, {**prompt(), "hook_event_name": "Stop", "transcript_path": str(path)}, "-X", "importtime")
        assert done.stdout == b"" and not modules_of(done) & set(HEAVY)
        deadline = time.monotonic() + 30
        while not (hits := opened.search("4242", mode="keyword").hits) and time.monotonic() < deadline:
            time.sleep(0.1)
        server.stop_event.set()
        thread.join(30)
    assert hits


@pytest.mark.parametrize(
    "first",
    [
        b'{"error": {"code": "usage-error"}}\n',  # of an earlier version
        b"-",  # it declines
        b"",  # it ends at once
        b"1000\n",  # it ends after it has taken the event
        b'1000\n{"cut',  # and amid its answer
    ],
)
def test_process_does_what_the_resident_home_does_not(first: bytes, home: Path, tmp_path: Path) -> None:
    path = grown(tmp_path)
    with Resident(home, first):
        done = call(home, prompt(transcript_path=str(path)))
    assert text_of(done) == "MARK"
    assert [delta.data for delta in enqueue.read_deltas(home / "outbox")] == [path.read_bytes()]


@pytest.mark.parametrize(("first", "longest_s"), [(b"", 1.0), (b"400\n", 0.4)])
def test_stuck_resident_home_is_not_awaited(first: bytes, longest_s: float, home: Path) -> None:
    """One that never takes the event is asked again by the whole hook; one that took it has the limit it named."""
    began_s = time.monotonic()
    with Resident(home, first, delay_s=30):
        done = call(home, prompt())
    assert time.monotonic() - began_s < longest_s + 1.5
    if first:
        assert "recall failed for this message (TimeoutError)" in json.loads(done.stdout)["systemMessage"]
        assert [item["stage"] for item in failures.read_failures(home)] == ["recall"]
    else:
        assert text_of(done) == "MARK"


def test_another_user_or_another_folder_is_not_handed_over(home: Path, tmp_path: Path) -> None:
    """The process captures for the user that its variables name, as without a resident home."""
    path = grown(tmp_path)
    with ScriptedResident(home, "MARK"):
        done = call(home, prompt(transcript_path=str(path)), LOGNAME="somebody-else")
        started = {**prompt(), "hook_event_name": "SessionStart", "source": "startup"}
        elsewhere = call(home, started, "-X", "importtime", CLAUDE_CONFIG_DIR=str(tmp_path / "other"))
    assert text_of(done) == "MARK" and "perdure.capture.hook" in modules_of(elsewhere)
    assert [delta.header["user"] for delta in enqueue.read_deltas(home / "outbox")] == ["somebody-else"]


def make_request(home: Path, event: object, *, client: str = "claude-code") -> dict:
    arguments = "\0".join((client, "--home", str(home)))
    return {
        "op": "hook", "age_ms": 1, "arguments": arguments.encode().hex(), "user": launch.describe_user().hex(),
        "folders": launch.describe_folders().hex(), "payload": json.dumps(event).encode().hex(),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("event", "client"),
    [
        (prompt(), "opencode"),  # its database is read by an adapter
        (prompt(), "unknown"),
        (prompt(transcript_path="here.jsonl"), "claude-code"),  # relative to the folder of another process
        (["no", "object"], "claude-code"),
    ],
)
def test_event_that_only_its_process_understands_is_declined(event: object, client: str, home: Path) -> None:
    assert list(hook.serve_event(make_request(home, event, client=client), ask_home=lambda _: {})) == [b"-"]


def test_settings_of_a_thin_machine_or_damaged_ones_are_declined(home: Path) -> None:
    (home / "config.toml").write_text('[remote]\nurl = "https://home.example"\n')
    assert list(hook.serve_event(make_request(home, prompt()), ask_home=lambda _: {})) == [b"-"]
    (home / "config.toml").write_text("no toml")
    assert list(hook.serve_event(make_request(home, prompt()), ask_home=lambda _: {})) == [b"-"]


@pytest.mark.parametrize("request_fields", [{}, {"payload": "xyz"}, {"payload": 1, "arguments": None}])
def test_damaged_request_is_declined(request_fields: dict, home: Path) -> None:
    assert list(hook.serve_event({**make_request(home, prompt()), **request_fields, "user": ""}, ask_home=dict)) == [
        b"-"
    ]


def test_late_work_goes_on_after_the_answer_at_the_limit(home: Path, tmp_path: Path) -> None:
    (home / "config.toml").write_text("[hooks]\nlimit_ms = 200\n")
    path, is_over = grown(tmp_path), threading.Event()

    def ask_slowly(_: dict) -> dict:
        is_over.wait(10)
        return {"text": "too late", "notice": ""}

    parts = list(hook.serve_event(make_request(home, prompt(transcript_path=str(path))), ask_home=ask_slowly))
    assert parts[0] == b"200\n" and b"recall failed" in parts[1] and b"too late" not in parts[1]
    assert enqueue.list_deltas(home / "outbox") == []
    is_over.set()
    deadline = time.monotonic() + 10
    while not enqueue.list_deltas(home / "outbox") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(enqueue.list_deltas(home / "outbox")) == 1
