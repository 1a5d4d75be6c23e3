"""The resident home, as a process and in this one: it answers, follows and dies; nothing is lost or said twice."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import perdure
from perdure import log, turn
from perdure.access import fence
from perdure.archive import injections
from perdure.capture import events
from perdure.captures import Captures
from perdure.home import Home
from perdure.index.home_vectors import SlabStatus
from perdure.index.store import IndexConnection, find_current_file
from perdure.jobs import JobLog
from perdure.service import client, clock, lock
from perdure.service.server import HomeServer, Intervals
from perdure.session.session import open_session
from perdure.surfaces.cli import cli
from perdure.testing import FakeEmbedder, ScriptedChat
from perdure.types import Origin, Source

FAST = Intervals(round_s=0.05, prove_s=0.1, tick_s=0.1, stale_s=1.0)


def line(text: str) -> bytes:
    return json.dumps({"role": "user", "content": text, "timestamp": "2026-01-15T09:00:00Z"}).encode() + b"\n"


NOISE = b"".join(line(f"Buoy {n} drifts to the east by the old lighthouse in the fog.") for n in range(30))


def until(ask: Callable[[], Any], *, limit_s: float = 20.0) -> Any:
    """The first answer that is one, asked for again and again."""
    ends_s = time.monotonic() + limit_s
    while not (found := ask()):
        assert time.monotonic() < ends_s, "it did not come"
        time.sleep(0.02)
    return found


def health(home: Path) -> dict[str, Any] | None:
    try:
        return events.ask_resident(home, {"op": "health"}, timeout_s=2)
    except (OSError, ValueError):
        return None


def prompted(home: Path, text: str, session: str = "live", **more: Any) -> dict[str, Any]:
    event = events.HookEvent("pi", "prompt", session, prompt=text, **more)
    return events.ask_resident(home, {"op": "event", "event": event._asdict(), "limit_ms": 5_000}, timeout_s=5)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A home that searches by words only, with one session in it."""
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    (path / "config.toml").write_text(
        'user = "ada"\nmachine = "laptop"\n[models.embedder]\nkind = "off"\n[memories]\nstated = false\n'
    )
    with perdure.open(path) as home:
        home.capture(line("The staging server listens on port 8642."), runtime="messages", session="old")
        home.capture(NOISE, runtime="messages", session="noise")
    return path


@pytest.fixture
def serve(place: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Start `perdure serve` for this home, and wait for it to answer."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "perdure.surfaces.cli", "serve", "--home", str(place)]
        child = subprocess.Popen(words, stderr=subprocess.PIPE, env={**os.environ, "HOME": str(place.parent)})
        started.append(child)
        until(lambda: (said := health(place)) and said["pid"] == child.pid)
        return child

    yield start
    for child in started:
        child.kill()
        child.wait()
        assert child.stderr is not None
        child.stderr.close()


@contextmanager
def serving(home: Home, pace: Intervals = FAST) -> Iterator[HomeServer]:
    """A resident home in this process."""
    made, ready = HomeServer(home, intervals=pace), threading.Event()
    thread = threading.Thread(target=made.run, kwargs={"on_ready": ready.set}, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield made
    finally:
        made.stop_event.set()
        thread.join(20)
        assert not thread.is_alive()


# the process ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_resident_recalls_indexes_new_turns_and_refuses_a_second(serve, place: Path) -> None:
    first = serve()
    assert "port 8642" in prompted(place, "which port does the staging server listen on?")["text"]
    with perdure.open(place) as home:
        home.captures.enqueue(
            Origin("messages", "new", "new"), line("The quay lamp blinks green."), from_offset=0, path=None
        )
    events.ask_resident(place, {"op": "wake"}, timeout_s=2)
    text = until(lambda: prompted(place, "which colour does the quay lamp blink?")["text"])
    assert "blinks green" in text
    second = subprocess.run(
        [sys.executable, "-m", "perdure.surfaces.cli", "serve", "--home", str(place)], capture_output=True, check=False
    )
    assert second.returncode == 5
    assert f"process {first.pid} since ".encode() in second.stderr
    (captured,) = log.read_entries(place, entry_type="captured")
    assert (captured["runtime"], captured["turn_count"], captured["chunk_count"]) == ("messages", 1, 1)
    first.send_signal(signal.SIGTERM)
    assert first.wait(20) == 0
    assert not events.to_socket_path(place).exists()


@pytest.mark.slow
def test_killed_resident_loses_nothing_and_repeats_nothing(serve, place: Path) -> None:
    first = serve()
    assert "port 8642" in prompted(place, "which port does the staging server listen on?")["text"]
    first.kill()
    first.wait()
    assert events.to_socket_path(place).exists()  # it could not tidy up
    assert health(place) is None
    with perdure.open(place, read_only=True) as home:
        recalled = [e for e in home.journal().read(type_=injections.EVENT_TYPE) if not injections.is_floor(e)]
        assert len(recalled) == 1
    serve()
    assert prompted(place, "which port does the staging server listen on?")["text"] == ""
    other = prompted(place, "which port does the staging server listen on?", session="another")
    assert "port 8642" in other["text"]
    compacted = events.HookEvent("pi", "after-compact", "live", cause="auto")
    events.ask_resident(place, {"op": "event", "event": compacted._asdict(), "limit_ms": 5_000}, timeout_s=5)
    assert "port 8642" in prompted(place, "which port does the staging server listen on?")["text"]


def test_command_recalls_the_same_without_a_resident(place: Path) -> None:
    event = events.HookEvent("pi", "prompt", "live", prompt="which port does the staging server listen on?")
    said = turn.answer_alone(place, event, limit_ms=20_000)
    assert "port 8642" in said["text"]
    assert turn.answer_alone(place, event, limit_ms=20_000) == {"text": "", "notice": ""}


_SESSIONS, _KILLS = 6, 3


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_concurrent_sessions_survive_repeated_kills(serve, place: Path, tmp_path: Path) -> None:
    """Each session writes, captures and asks like a client. Then every byte is archived once, no session was given a
    turn twice, and no question took longer than its limit.
    """
    limit_s, over = 2.0, threading.Event()
    slowest: list[float] = []
    n_answers: Counter[bool] = Counter()

    def client(number: int) -> None:
        path = tmp_path / f"c{number}.jsonl"
        with perdure.open(place) as home:
            for n in range(10_000):
                if over.is_set():
                    return
                with path.open("ab") as file:
                    file.write(line(f"Session {number} notes buoy number {n} in harbour log {number}x{n}."))
                home.captures.enqueue_file(Origin("messages", f"c{number}", f"c{number}"), path)
                before = time.monotonic()
                event = events.HookEvent(
                    "messages", "prompt", f"c{number}", prompt="which port does the staging server use?"
                )
                request = {"op": "event", "event": event._asdict(), "limit_ms": int(limit_s * 1000)}
                try:
                    said = events.ask_resident(place, request, timeout_s=limit_s)
                    n_answers["text" in said] += 1
                except (OSError, ValueError):
                    n_answers[False] += 1
                slowest.append(time.monotonic() - before)
                time.sleep(0.05)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(_SESSIONS)]
    child = serve()
    for thread in threads:
        thread.start()
    for _ in range(_KILLS):
        time.sleep(1.0)
        child.kill()
        child.wait()
        child = serve()
    over.set()
    for thread in threads:
        thread.join()
    child.kill()
    child.wait()
    assert n_answers[True] > _SESSIONS
    assert max(slowest) < limit_s + 0.5
    with perdure.open(place) as home:
        home.captures.drain()
        for number in range(_SESSIONS):
            helds = home.archive.ledger.list_source_runs(Source("ada", "messages", f"c{number}"))
            assert home.archive.ledger.get_generation("ada", "messages", f"c{number}") == 0
            assert b"".join(map(home.archive.read, helds)) == (tmp_path / f"c{number}.jsonl").read_bytes()
        given = Counter(
            (event.data["session"], turn)
            for event in home.journal().read(type_=injections.EVENT_TYPE)
            for turn in event.data["turns"]
        )
        assert given and max(given.values()) == 1
        assert home.upkeep.verify().ok


# in this process ------------------------------------------------------------------------------------------------


class Slow(FakeEmbedder):
    """Takes its time for documents, and says which kinds it was asked for, in order."""

    def embed(self, texts, kind):
        if kind == "document":
            time.sleep(0.02 * len(texts))
        return super().embed(texts, kind)


def test_a_recall_does_not_wait_for_bulk_embedding(tmp_path: Path) -> None:
    """Two hundred chunks at 20 ms each are four seconds of work; a recall that comes in then waits for one item."""
    embedder = Slow()
    with perdure.open(tmp_path / "home", user="ada", embedder=embedder) as home:
        home.capture(line("The staging server listens on port 8642."), runtime="messages", session="old")
        far = [line(f"Buoy {n} drifts {'to the east ' * 40}") for n in range(200)]
        home.capture(b"".join(far), runtime="messages", session="far")
        with serving(home):
            until(lambda: slab(home).n_embedded)  # the resident home began by itself
            before = time.monotonic()
            said = events.ask_resident(
                home.path, {"op": "recall", "message": "which port does staging use?"}, timeout_s=10
            )
            took_s = time.monotonic() - before
            assert slab(home).n_missing, "the bulk was over before the question was asked"
            until(lambda: not slab(home).n_missing)
        assert "8642" in said["cues"][0]["text"] and said["degraded"] == []
        assert said["depth"]["bulk"] > 0
        assert took_s < 1.0
        kinds = [kind for _, kind in embedder.asked]
        assert kinds.count("query") >= 1 and kinds[-1] == "document"


def slab(home: Home) -> SlabStatus:
    """The vectors of a home; none before the first."""
    return next(iter(home.upkeep.vector_status().slabs), SlabStatus("", 0, 0, 0, False, False))


def test_an_import_is_embedded_at_once_in_the_background(tmp_path: Path) -> None:
    """More text than a round embeds, and hours to the job's next time: the job starts all the same, and only once."""
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / "config.toml").write_text('user = "ada"\n[jobs]\nembed = "0 0 1 1 *"\n')
    with perdure.open(tmp_path / "home", embedder=FakeEmbedder()) as home:
        with serving(home) as resident:
            with resident.clone_home() as importing:
                lines = b"".join(line(f"Buoy {n} drifts to the east.") for n in range(300))
                importing.capture(lines, runtime="messages", session="far")
            until(lambda: slab(home).n_embedded == 300)
            until(lambda: JobLog(home.path).read_latest("embed").result == "done")
            assert home.search("buoy").n_unembedded == 0
        assert [run.result for run in JobLog(home.path).read_history("embed")] == ["done"]


@pytest.mark.index_file("it locks the file")
def test_a_blocked_index_turns_health_red_and_green_again(place: Path) -> None:
    with perdure.open(place) as home, serving(home):
        until(lambda: health(place)["healthy"])
        path = find_current_file(place)
        assert path
        blocker = IndexConnection(path)
        blocker.db.execute("BEGIN IMMEDIATE")
        said = until(lambda: (found := health(place)) and not found["healthy"] and found)
        assert any("index" in problem for problem in said["problems"]), said
        assert prompted(place, "which port does the staging server listen on?")["text"]  # reading goes on
        blocker.db.execute("ROLLBACK")
        blocker.close()
        until(lambda: health(place)["healthy"])


def test_late_recall_returns_nothing_and_is_not_recorded(place: Path) -> None:
    with perdure.open(place) as home, serving(home) as resident:
        until(lambda: health(place)["healthy"])
        resident.query_worker._queue.put = lambda item: None  # nobody ever takes it
        event = events.HookEvent("pi", "prompt", "live", prompt="which port does the staging server listen on?")
        before = time.monotonic()
        said = events.ask_resident(place, {"op": "event", "event": event._asdict(), "limit_ms": 200}, timeout_s=5)
        assert said == {"text": "", "notice": ""} and time.monotonic() - before < 2
        assert home.journal().read(type_=injections.EVENT_TYPE) == []
        assert health(place)["counts"]["late"] == 1


def test_message_gets_its_memories_when_the_resident_is_late(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine, or with a slow index: the session asks in its own process in the time that is left."""
    monkeypatch.setattr(events, "ask_resident", _answer_too_late)
    with perdure.open(place) as home:
        with open_session(home, chat=ScriptedChat(["Yes."])) as session:
            session.say("which port does the staging server listen on?")
        assert len(home.journal().read(type_=injections.EVENT_TYPE)) == 1


def _answer_too_late(_home: Path, _request: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
    time.sleep(timeout_s)
    return {"text": "", "notice": ""}


@pytest.mark.parametrize(
    "raw",
    [b"\n", b"[]\n", b"{\n", b'{"op": "nonsense"}\n', b'{"op": "event", "event": 7}\n', b'{"op": "recall"}\n', b"x"],
)
def test_invalid_request_gets_an_error_and_stops_nothing(place: Path, raw: bytes) -> None:
    import socket

    with perdure.open(place) as home, serving(home):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as plug:
            plug.connect(str(events.to_socket_path(place)))
            plug.sendall(raw)
            plug.shutdown(socket.SHUT_WR)
            plug.settimeout(10)
            assert b"error" in plug.recv(65536)
        assert prompted(place, "which port does the staging server listen on?")["text"]


def test_a_recall_is_answered_as_data(place: Path) -> None:
    with perdure.open(place) as home, serving(home):
        asked = {"op": "recall", "message": "which port does the staging server listen on?"}
        said = until(lambda: events.ask_resident(place, asked, timeout_s=5))
        (cue,) = said["cues"]
        assert "8642" in cue["text"] and cue["machine"] == "laptop" and said["timings_ms"]


ASKED = "which port does the staging server listen on?"


def test_the_command_prints_the_same_by_the_resident_home(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(place))
    monkeypatch.chdir(place.parent)
    questions = (ASKED, "Which violin did Paganini play?", "where do the buoys drift?")
    by_itself = [_printed(question, "--all-projects") for question in questions]
    assert "8642" in by_itself[0]
    with perdure.open(place) as home, serving(home):
        assert until(lambda: client.ask_recall(place, ASKED, cwd=None, all_projects=True, mode=None))
        monkeypatch.setattr("perdure.home.open_home", _never)
        assert [_printed(question, "--all-projects") for question in questions] == by_itself
        asked, alone = (_facts(_printed("--json", ASKED)), json.loads(_printed("--json", ASKED, "--mode", "keyword")))
        assert asked == _facts(json.dumps(alone))


def test_command_answers_itself_when_the_resident_may_differ(place: Path) -> None:
    how: dict[str, Any] = {"cwd": None, "all_projects": True, "mode": None}
    with perdure.open(place) as home, serving(home, Intervals(round_s=60)) as resident:
        until(lambda: client.ask_recall(place, ASKED, **how))
        resident.query_worker._is_warm.clear()
        assert client.ask_recall(place, ASKED, **how) is None
        assert client.ask_recall(place, ASKED, **{**how, "mode": "keyword"})
        resident.query_worker._is_warm.set()
        (place / "config.toml").write_text(
            'user = "eve"\n[models.embedder]\nkind = "off"\n[memories]\nstated = false\n'
        )
        assert client.ask_recall(place, ASKED, **how) is None
        (place / "config.toml").write_text(
            'user = "ada"\n[models.embedder]\nkind = "off"\n[memories]\nstated = false\n'
        )
        assert client.ask_recall(place, ASKED, **how)
        (place / "outbox").mkdir(exist_ok=True)
        (place / "outbox" / "1.delta").write_bytes(b"")
        assert client.ask_recall(place, ASKED, **how) is None
        (place / "outbox" / "1.delta").unlink()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(events, "ask_resident", partial(_of_another_version, events.ask_resident))
            assert client.ask_recall(place, ASKED, **how) is None
    assert client.ask_recall(place, ASKED, **how) is None


def _of_another_version(ask: Callable[..., dict[str, Any]], *arguments: Any, **more: Any) -> dict[str, Any]:
    return {**ask(*arguments, **more), "version": "0.0.0"}


def _printed(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["recall", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def _facts(answer: str) -> dict[str, Any]:
    """An answer without when it was asked and what it took."""
    found: dict[str, Any] = json.loads(answer)["result"]
    del found["timings_ms"], found["plan"]["asked_at"]
    return found


def _never(*_: Any, **__: Any) -> None:
    raise AssertionError("the home was opened here")


def test_due_job_runs_and_the_socket_is_private(place: Path) -> None:
    (place / "config.toml").write_text(
        'user = "ada"\n[models.embedder]\nkind = "off"\n[memories]\nstated = false\n[jobs]\nhealth = "* * * * *"\n'
    )
    folder = place / "run" / "jobs"
    folder.mkdir(parents=True)
    long_ago = {"job": "pack", "started_at": "2026-01-01T00:00:00+00:00", "trigger": "clock", "result": "running"}
    (folder / "pack.json").write_text(json.dumps(long_ago))
    with perdure.open(place) as home, serving(home):
        ended = until(lambda: json.loads((folder / "pack.json").read_bytes())["result"] in ("done", "nothing"))
        assert ended
        assert events.to_socket_path(place).stat().st_mode & 0o777 == 0o600
    history = [json.loads(item)["result"] for item in (folder / "pack.jsonl").read_text().splitlines()]
    assert history[0] == "interrupted"


def test_injected_block_is_not_found_after_its_capture(place: Path) -> None:
    """The whole circle: recall, the client's file that holds the block, and a search that finds only the source."""
    with perdure.open(place) as home, serving(home):
        text = prompted(place, "which port does the staging server listen on?")["text"]
        assert fence.find_nonces(text)
        entry = {"type": "custom_message", "id": "a1b2c3d4", "parentId": None, "timestamp": "2026-01-15T10:00:00Z"}
        data = json.dumps({**entry, "customType": "perdure", "content": text}).encode() + b"\n"
        home.capture(data, runtime="pi", session="live")
        assert [hit.runtime for hit in home.search("8642").hits] == ["messages"]


def test_home_with_a_path_too_long_for_a_socket_is_served(tmp_path: Path) -> None:
    place = tmp_path / ("deep" * 20) / ("deeper" * 10)
    place.parent.mkdir()
    with perdure.open(place, user="ada") as home, serving(home):
        assert not events.to_socket_path(place).is_relative_to(place)
        assert health(place)["pid"] == os.getpid()
        assert events.to_socket_path(place).parent.stat().st_mode & 0o777 == 0o700


def test_full_outbox_is_a_problem_and_alerts_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "config.toml").write_text(
        'user = "ada"\n[models.embedder]\nkind = "off"\n[capture]\noutbox_alarm_bytes = 10\n[jobs]\nwatchdog = ""\n'
    )
    may_drain, drain = threading.Event(), Captures.drain
    monkeypatch.setattr(Captures, "drain", lambda *args, **named: drain(*args, **named) if may_drain.is_set() else 0)
    with perdure.open(place) as home, serving(home, Intervals(round_s=0.05, prove_s=0.1, tick_s=60)):
        home.captures.enqueue(Origin("messages", "new", "new"), line("waits"), from_offset=0, path=None)
        assert [run_job(home) for _ in range(3)] == ["done", "nothing", "nothing"]
        notices = [prompted(place, "which port does staging use?", session=f"n{n}")["notice"] for n in range(2)]
        assert "outbox" in notices[0] and "outbox" not in notices[1]
        may_drain.set()
        until(lambda: not health(place)["problems"])
        assert run_job(home) == "done"
    assert [item["what"] for item in log.read_entries(place) if item["what"].startswith("alert")] == [
        "alert",
        "alert-over",
    ]


def run_job(home: Home) -> str:
    return clock.run_job(home, "watchdog", trigger="person").result


def test_resident_is_gone_after_serving(place: Path) -> None:
    with perdure.open(place) as home, serving(home):
        assert lock.find_resident(place) is not None
    assert lock.find_resident(place) is None


@pytest.mark.parametrize(("hung_s", "is_alive"), [(60.0, True), (-1.0, False)])
def test_service_manager_hears_of_it_only_while_searches_return(place, tmp_path, monkeypatch, hung_s, is_alive):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(10 if is_alive else 0.5)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with perdure.open(place) as home, serving(home, replace(FAST, alive_s=0.05, hung_s=hung_s)):
            if is_alive:
                assert systemd.recv(100) == b"WATCHDOG=1"
            else:
                with pytest.raises(TimeoutError):
                    systemd.recv(100)
