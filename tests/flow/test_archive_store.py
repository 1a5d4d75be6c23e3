"""Machines that share an archive in an S3-compatible store: processes and a real server, killed, slow, torn, away."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import StoreFault
from perdure.objects import open_objects
from perdure.service.store_worker import StoreWorker
from rig.slow_line import SlowLine
from rig.store_homes import CONFIG, make_home, make_lines, open_texts, read_everything
from rig.tier_servers import ObjectServer

# Ends its process at the n-th call of the store, before or behind it: kill -9 asks nobody either.
MORTAL = """
import os, sys
from pathlib import Path
from perdure import objects
n_left, is_done = int(sys.argv[1]), sys.argv[2] == "behind"

def mortal(call):
    def run(*arguments):
        global n_left
        n_left -= 1
        if n_left == 0 and not is_done:
            os._exit(9)
        answer = call(*arguments)
        if n_left == 0:
            os._exit(9)
        return answer
    return run

for name in ("put_new", "get", "delete"):
    setattr(objects.S3Objects, name, mortal(getattr(objects.S3Objects, name)))
from perdure.surfaces.cli import main
sys.argv = ["perdure", *sys.argv[3:]]
main()
"""


@pytest.fixture
def transcripts(tmp_path: Path) -> Path:
    """Twelve sessions of four messages."""
    folder = tmp_path / "transcripts"
    folder.mkdir()
    for n in range(12):
        lines = make_lines(*(f"session {n} says {word}" for word in ("alpha", "beta", "gamma", "delta")), day=n + 1)
        (folder / f"s{n}.jsonl").write_bytes(lines)
    return folder


def run(home: Path, *words: str, check: bool = True) -> str:
    """Run a command in a process of its own."""
    result = subprocess.run(
        [sys.executable, "-m", "perdure.surfaces.cli", *words, "--home", str(home)],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert not check or result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


def ask(home: Path, *words: str) -> dict[str, Any]:
    """Run a command in a process of its own, and return what it says to programs."""
    result: dict[str, Any] = json.loads(run(home, *words, "--json"))["result"]
    return result


def list_objects(object_server: ObjectServer, object_address: str) -> list[str]:
    """What is in the store: only a test lists it."""
    import obstore

    prefix = object_address.removeprefix("s3://bucket/") + "/"
    return [meta["path"].removeprefix(prefix) for page in obstore.list(object_server.store, prefix) for meta in page]


def test_two_commands_make_a_new_machine(tmp_path: Path, object_address: str, transcripts: Path):
    one = make_home(tmp_path / "one", object_address)
    assert "12 new runs" in run(one, "import", str(transcripts))
    run(one, "remember", "The door code is heliotrope.")
    two = make_home(tmp_path / "two", object_address)
    assert "session 7 says gamma" in run(two, "search", "gamma 7")
    assert "heliotrope" in run(two, "memories", "list")
    digests = [ask(home, "verify")["digest"] for home in (one, two)]
    assert digests[0] == digests[1]
    rebuilt = ask(two, "rebuild")
    assert rebuilt
    status = ask(two, "store")
    assert (status["n_writers"], status["n_damaged"], status["n_waiting_runs"]) == (2, 0, 0)


def exchange(home: Path) -> None:
    """Collect and publish, as `perdure store` does."""
    with perdure.open(home) as opened:
        opened.upkeep.collect()
        opened.upkeep.publish()
        assert opened.upkeep.verify().findings == []


def forget(home: Path, query: str) -> None:
    with perdure.open(home) as opened:
        opened.upkeep.catch_up()
        memories = [memory.memory_id for memory in opened.forgetting.memories_by_query(query)]
        opened.forgetting.apply(opened.forgetting.plan_by_query(query), memories=memories)


def start_import(
    home: Path, path: Path, *, code: Sequence[str] = ("-m", "perdure.surfaces.cli")
) -> subprocess.Popen[bytes]:
    command = [sys.executable, *code, "import", str(path), "--no-index", "--home", str(home)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


ALL_TEXTS = [f"session {n} says {word}" for n in range(12) for word in ("alpha", "beta", "gamma", "delta")]


def test_two_writers_at_once_lose_and_repeat_nothing(tmp_path: Path, object_address: str, transcripts: Path):
    """Both import all sessions, one of them grown, in processes that run at the same time, and forget a part each."""
    homes = [make_home(tmp_path / name, object_address) for name in ("one", "two")]
    others = tmp_path / "others"
    shutil.copytree(transcripts, others)
    with (others / "s3.jsonl").open("ab") as file:
        file.write(make_lines("session 3 says epsilon", day=20))
    processes = [start_import(home, folder) for home, folder in zip(homes, (transcripts, others), strict=True)]
    assert [process.wait(timeout=300) for process in processes] == [0, 0]
    forget(homes[0], "session 5 beta")
    forget(homes[1], "session 6 beta")
    for home in (*homes, *homes):
        exchange(home)
    wanted = [text for text in ALL_TEXTS if text not in ("session 5 says beta", "session 6 says beta")]
    wanted = sorted([*wanted, "session 3 says epsilon", "forgotten", "forgotten"])
    assert [open_texts(home) for home in homes] == [wanted, wanted]
    assert open_texts(make_home(tmp_path / "three", object_address)) == wanted


def test_what_was_forgotten_is_in_no_object(
    tmp_path: Path, object_server: ObjectServer, object_address: str, transcripts: Path
):
    one = make_home(tmp_path / "one", object_address)
    with perdure.open(one) as home:
        home.import_files([transcripts])
        home.remember("Session 4 is about beta particles.")
    objects = open_objects(object_address)
    assert b"session 4 says beta" in read_everything(objects, list_objects(object_server, object_address))
    forget(one, "4 beta")
    everything = read_everything(objects, list_objects(object_server, object_address))
    assert b"session 4 says beta" not in everything and b"beta particles" not in everything
    assert b"session 4 says alpha" in everything and b"session 5 says beta" in everything


@pytest.mark.parametrize("when", ["before", "behind"])
def test_a_process_killed_at_any_call_loses_nothing(
    tmp_path: Path, object_server: ObjectServer, object_address: str, transcripts: Path, when: str
):
    """Each call that an import makes of the store ends a process, behind what is durable here; the next one goes on."""
    home, sessions = make_home(tmp_path / "one", object_address), sorted(transcripts.iterdir())
    with perdure.open(home) as opened:
        opened.captures.import_files(sessions[:7])
    exit_statuses = []
    for n, session in enumerate(sessions[7:], start=1):
        process = start_import(home, session, code=("-c", MORTAL, str(n), when))
        exit_statuses.append(process.wait(timeout=300))
    assert exit_statuses[:4] == [9, 9, 9, 9]  # two questions, an object, its entry; then what the one before left
    exchange(home)
    assert open_texts(home) == sorted(ALL_TEXTS)
    assert open_texts(make_home(tmp_path / "two", object_address)) == sorted(ALL_TEXTS)
    everything = read_everything(open_objects(object_address), list_objects(object_server, object_address))
    assert [everything.count(b'"session %d says beta"' % n) for n in range(12)] == [1] * 12


@pytest.fixture
def line(object_server: ObjectServer, object_address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowLine]:
    slow_line = SlowLine(int(object_server.endpoint.rpartition(":")[2]))
    monkeypatch.setenv("AWS_ENDPOINT_URL", slow_line.endpoint)
    yield slow_line
    slow_line.close()


def test_uploads_that_are_torn_leave_nothing_half(tmp_path: Path, object_address: str, line: SlowLine):
    """The line is cut after so many bytes sent, again and again, until one call gets through."""
    noise = random.Random(7)
    session, texts = tmp_path / "big.jsonl", []
    with perdure.open(make_home(tmp_path / "one", object_address)) as home:
        for n in range(6):
            texts += [f"{n} " + "".join(noise.choices("abcdefghij ", k=40_000)) for _ in range(3)]
            session.write_bytes(make_lines(*texts))
            line.cut_after = noise.randrange(200, 30_000)
            home.captures.import_files([session])
            line.cut_after = noise.randrange(200, 30_000)
            with contextlib.suppress(StoreFault):
                home.upkeep.publish()
            line.cut_after = None
        assert line.n_cuts >= 5
        home.upkeep.publish()
        assert home.upkeep.verify().findings == []
    assert open_texts(make_home(tmp_path / "two", object_address)) == sorted(texts)


def test_a_slow_store_is_waited_for_by_an_import_and_by_no_hook(
    tmp_path: Path, object_address: str, line: SlowLine, transcripts: Path
):
    line.delay_s = 0.2
    one = make_home(tmp_path / "one", object_address)
    with perdure.open(one) as home:
        home.import_files([transcripts])
        status = home.upkeep.store_status()
        assert status and status.n_waiting_runs == 0
    line.delay_s = 30
    with perdure.open(one, offline=True) as home:  # as a hook opens it
        assert home.connections.exchange() is None
        assert home.search("gamma").hits


def test_a_backup_restores_into_an_empty_home(tmp_path: Path, object_address: str, transcripts: Path):
    one = make_home(tmp_path / "one", object_address)
    with perdure.open(one) as home:
        home.import_files([transcripts])
        _, digest = home.upkeep.backup(tmp_path / "backup.tar.zst")
    again = tmp_path / "again"
    assert ask(again, "restore", str(tmp_path / "backup.tar.zst"), "--no-index")["digest"] == digest
    settings = CONFIG.format(user="ada", machine="again", store=f"{object_address}-new")
    (again / "config.toml").write_text(settings)
    exchange(again)
    assert open_texts(make_home(tmp_path / "two", f"{object_address}-new")) == sorted(ALL_TEXTS)


def test_resident_homes_keep_each_other_up_to_date(tmp_path: Path, object_address: str):
    """An event of one, written while both run, is in the other without a command."""
    stop_event, opened = threading.Event(), []
    for name in ("one", "two"):
        home = perdure.open(make_home(tmp_path / name, object_address))
        home.connections.vectors()
        store_worker = StoreWorker(home.clone_for_thread, publish_s=0.05, collect_s=0.1)
        thread = threading.Thread(target=store_worker.run, args=(stop_event,))
        thread.start()
        opened.append((home, thread))
    try:
        opened[0][0].remember("The door code is heliotrope.")
        deadline_s = time.monotonic() + 60
        while not opened[1][0].memories.list_memories():
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
    finally:
        stop_event.set()
        for home, thread in opened:
            thread.join()
            home.close()


@pytest.mark.slow
def test_what_is_new_waits_while_the_server_is_killed(
    tmp_path: Path, object_server: ObjectServer, object_address: str, transcripts: Path
):
    one, sessions = make_home(tmp_path / "one", object_address), sorted(transcripts.iterdir())
    with perdure.open(one) as home:
        home.captures.import_files(sessions[:1])
    object_server.kill()
    try:
        run(one, "import", *map(str, sessions[1:6]))
        run(one, "remember", "The door code is heliotrope.")
        assert "5 runs and events wait" in run(one, "search", "beta")
        assert "gives no answer" in run(one, "store", check=False)
        with perdure.open(one) as home:
            assert "gives no answer" in home.upkeep.verify().findings[0].what
            home.upkeep.backup(tmp_path / "backup.tar.zst")
    finally:
        object_server.start()
    status = ask(one, "store")
    assert (status["n_waiting_runs"], status["has_waiting_events"], status["warning"]) == (0, False, "")
    exchange(one)
    two = make_home(tmp_path / "two", object_address)
    assert open_texts(two) == open_texts(one)
    assert "heliotrope" in run(two, "memories", "list")
