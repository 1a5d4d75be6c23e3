"""Worker processes over one home in a real Postgres: what they do, who waits for whom, and what a kill costs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.archive.archive import Delta
from perdure.config import WorkersConfig
from perdure.errors import ConfigFault
from perdure.home import Home
from perdure.jobs import JobLog
from perdure.service.builtin_jobs import BUILTIN_JOBS
from perdure.service.health import HealthState
from perdure.service.queue_feeder import QueueFeeder
from perdure.service.work_items import ItemWork, list_waiting_items, queue_job
from perdure.service.worker_list import list_workers
from perdure.service.worker_process import WorkerProcess
from perdure.types import Identity, Origin
from perdure.work_queue import WorkItem
from rig.postgres import ROLE, PostgresServer
from rig.waiting import find_free_ports, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with contextlib.closing(PostgresServer()) as server:
        yield server


@pytest.fixture
def folder(server: PostgresServer, tmp_path: Path) -> Path:
    """A home with workers, in a database of its own."""
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    address = server.get_address(server.create_database(), role=ROLE)
    (folder / "config.toml").write_text(
        f'user = "ada"\nmachine = "box"\n[index]\nengine = "postgres"\naddress = "{address}"\n'
        '[workers]\nenabled = true\nmax_waiting = 40\n[models.embedder]\nkind = "static"\n'
    )
    return folder


class Items:
    """A queue in the memory of a test, in order; each item once."""

    def __init__(self) -> None:
        self.items: list[WorkItem] = []
        self.after_s: dict[WorkItem, float] = {}

    def put(self, item: WorkItem, *, after_s: float = 0.0) -> bool:
        if any(item[:3] == other[:3] for other in self.items):
            return False
        self.items.append(item)
        self.after_s[item] = after_s
        return True

    def carry_out(self, work: ItemWork) -> WorkItem:
        item = self.items.pop(0)
        work.carry_out(item)
        return item


@contextlib.contextmanager
def open_work(folder: Path) -> Iterator[tuple[Home, Items, ItemWork]]:
    items = Items()
    with perdure.open(folder) as home:
        work = ItemWork(home.clone_for_thread, items.put, threading.Event())
        with contextlib.closing(work):
            yield home, items, work


def store(home: Home, user: str, *texts: str, first: int = 0, size: int = 0) -> None:
    """Store messages of a user as another machine sends them, each a session."""
    deltas = []
    for number, words in enumerate(texts, start=first):
        line = json.dumps(
            {"role": "user", "content": words + " lorem" * (size // 6), "timestamp": "2026-11-20T10:00:00Z"}
        )
        deltas.append(
            Delta(
                origin=Origin("messages", f"{user}-{number}", f"{user}-{number}"), user=user, machine="laptop",
                agent="default", data=line.encode() + b"\n", from_offset=0, project=None, path=None, tags=(),
            )
        )  # fmt: skip
    home.captures.receive(deltas)


def find(home: Home, user: str, words: str) -> list[str]:
    with home.clone_for_thread(read_only=True, identity=Identity(user, "laptop", "")) as reader:
        return [hit.turn_id for hit in reader.search(words, mode="keyword").hits]


def test_workers_need_an_index_in_postgres(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[workers]\nenabled = true\n")
    with pytest.raises(ConfigFault, match="postgres"):
        perdure.open(tmp_path)


def test_what_is_captured_becomes_items_and_then_hits(folder: Path) -> None:
    with open_work(folder) as (home, items, work):
        assert list(list_waiting_items(home)) == []
        store(home, "ada", "Remember: the kiln stands at 900 degrees.")
        store(home, "bob", "The heron sleeps.")
        for item in list_waiting_items(home):
            items.put(item)
        assert items.items == [WorkItem("capture", "ingest", "ada"), WorkItem("capture", "ingest", "bob")]
        while items.items:
            items.carry_out(work)
        assert list(list_waiting_items(home)) == []
        assert len(find(home, "ada", "kiln")) == 1 and find(home, "bob", "kiln") == []
        assert [memory.text for memory in home.memories.list_by_weight()] == ["the kiln stands at 900 degrees."]
        assert home.upkeep.vector_status().slabs[0].n_missing == 0


def test_an_item_that_is_done_twice_has_its_effect_once(folder: Path) -> None:
    with open_work(folder) as (home, _, work):
        store(home, "ada", "Remember: the kiln stands at 900 degrees.")
        item = WorkItem("capture", "ingest", "ada")
        for _ in range(3):
            assert work.carry_out(item) and work.carry_out(WorkItem("embed", "embed", "ada"))
        digest = home.upkeep.digest()
        assert len(home.memories.list_by_weight()) == 1
        home.upkeep.rebuild()
        assert home.upkeep.digest() == digest


def test_a_backfill_of_one_user_delays_nobody_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """bob waits for one slice of ada's, however much ada has."""
    monkeypatch.setattr("perdure.service.work_items.SLICE_S", 0.0)  # a slice is one transaction
    monkeypatch.setattr("perdure.index.catchup._MAX_USER_BATCH_BYTES", 100_000)
    with open_work(folder) as (home, items, work):
        store(home, "ada", *["The kiln is warm."] * 60, size=10_000)
        for item in list_waiting_items(home):
            items.put(item)
        assert items.carry_out(work).name == "ada"
        assert home.upkeep.list_behind() == ["ada"]
        store(home, "bob", "The heron sleeps.")
        for item in list_waiting_items(home):
            items.put(item)
        done = []
        while not find(home, "bob", "heron"):
            done.append(items.carry_out(work))
        assert done.count(WorkItem("capture", "ingest", "ada")) <= 1 and "ada" in home.upkeep.list_behind()
        while home.upkeep.list_behind():
            items.carry_out(work)
        keys = [key for (key,) in home.connections.index().select("SELECT key FROM meta WHERE key LIKE 'change%'")]
        assert keys == ["change"]  # all have come so far
        assert len(find(home, "ada", "kiln")) > 0


def test_a_failed_item_is_put_in_again_later_each_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_work(folder) as (_, items, work):
        monkeypatch.setattr(ItemWork, "_ingest", lambda *_: (_ for _ in ()).throw(OSError("no")))
        item = WorkItem("capture", "ingest", "ada")
        pauses = []
        for _ in range(3):
            assert not work.carry_out(item)
            item = items.items.pop()
            pauses.append(items.after_s[item])
        assert pauses == [4.0, 8.0, 16.0]


def test_a_job_that_two_clocks_queued_runs_once(folder: Path) -> None:
    with open_work(folder) as (home, items, work):
        queue_job(home, items.put, "consolidate")
        (item,) = items.items
        assert work.carry_out(item) and work.carry_out(item)
        latest = JobLog(home.path).read_latest("consolidate")
        assert latest is not None and latest.result in ("done", "nothing")
        started_at = latest.started_at
        work.carry_out(item)
        assert JobLog(home.path).read_latest("consolidate").started_at == started_at  # type: ignore[union-attr]


def test_every_built_in_job_is_one_that_a_worker_can_run(folder: Path) -> None:
    with open_work(folder) as (home, items, work):
        store(home, "ada", "The kiln is warm.")
        for job in BUILTIN_JOBS:
            queue_job(home, items.put, job.name)
        while items.items:
            items.carry_out(work)
        outcomes = {job.name: JobLog(home.path).read_latest(job.name).result for job in BUILTIN_JOBS}  # type: ignore[union-attr]
        assert set(outcomes.values()) <= {"done", "nothing"}, outcomes


def test_a_user_with_too_much_waiting_is_told_so(folder: Path) -> None:
    with perdure.open(folder) as home:
        feeder = QueueFeeder(home.clone_for_thread, HealthState(datetime.now(UTC)), round_s=1)
        store(home, "ada", *["The kiln is warm."] * 39)
        home.connections.index(create=True)
        assert feeder.find_overload(home, "ada") == 0
        store(home, "ada", "The kiln is hot.", first=50)
        assert (
            QueueFeeder(home.clone_for_thread, HealthState(datetime.now(UTC)), round_s=1).find_overload(home, "ada")
            == 40
        )


def test_the_probe_of_health_leaves_the_index_alone(folder: Path) -> None:
    from perdure.service.health import run_probe

    with perdure.open(folder) as home:
        store(home, "ada", "The kiln is warm.")
        digest, epoch = home.upkeep.digest(), home.connections.index().get_meta("epoch")
        run_probe(home)
        assert home.connections.index().get_meta("epoch") == epoch and home.upkeep.digest() == digest


# processes ------------------------------------------------------------------------------------------------------


class Processes:
    """Processes of Perdure over one home; all that still run are killed at the end."""

    def __init__(self, folder: Path) -> None:
        self._env = {**os.environ, "PERDURE_HOME": str(folder), "NO_COLOR": "1"}
        self.running: list[subprocess.Popen[str]] = []

    def start(self, *words: str) -> subprocess.Popen[str]:
        line = [sys.executable, "-m", "perdure.surfaces.cli", *words]
        process = subprocess.Popen(line, env=self._env, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.running.append(process)
        return process

    def run(self, *words: str) -> Any:
        line = [sys.executable, "-m", "perdure.surfaces.cli", *words, "--json"]
        done = subprocess.run(line, env=self._env, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode in (0, 1), done.stderr
        return json.loads(done.stdout)["result"]

    def close(self) -> None:
        for process in self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture
def processes(folder: Path) -> Iterator[Processes]:
    with contextlib.closing(Processes(folder)) as processes:
        yield processes


def test_a_worker_says_what_it_does_and_stops_cleanly(folder: Path, processes: Processes) -> None:
    worker = processes.start("worker", "--json")
    assert worker.stdout is not None
    began = json.loads(worker.stdout.readline())["result"]
    assert began["state"] == "working" and [state.name for state in list_workers(folder)] == [began["worker"]]
    with perdure.open(folder) as home:
        store(home, "ada", "The kiln is warm.")
        wait_for(lambda: home.connections.has_index() and not home.upkeep.list_behind())
    listed = processes.run("worker", "--list")
    assert [row["name"] for row in listed["workers"]] == [began["worker"]]
    assert {check["name"]: check["grade"] for check in processes.run("doctor")["checks"]}["workers"] == "ok"
    worker.send_signal(signal.SIGTERM)
    output, _ = worker.communicate(timeout=60)
    assert worker.returncode == 0 and json.loads(output.splitlines()[-1])["result"]["state"] == "stopped"
    assert list_workers(folder) == []
    checks = {check["name"]: check for check in processes.run("doctor")["checks"]}
    assert checks["workers"]["grade"] == "problem" and "perdure worker" in checks["workers"]["advice"]


def test_what_a_killed_worker_had_is_done_by_another(folder: Path, processes: Processes) -> None:
    workers = [processes.start("worker") for _ in range(2)]
    wait_for(lambda: len(list_workers(folder)) == 2)
    with perdure.open(folder) as home:
        for number in range(6):
            store(home, "ada", *[f"The kiln {number} is warm."] * 6, first=number * 6, size=3000)
            store(home, "bob", f"The heron {number} sleeps.", first=number)
            if number == 2:
                os.killpg(workers[0].pid, signal.SIGKILL)
        wait_for(lambda: not home.upkeep.list_behind(), limit_s=120)
        assert len(list_workers(folder)) == 1
        with home.connections.index().show_all():
            assert home.connections.index().select("SELECT count(*) FROM run") == [(42,)]
        assert [len(find(home, "bob", f"heron {number}")) for number in range(6)] == [6] * 6


def test_two_web_processes_answer_and_one_takes_over_the_socket(folder: Path, processes: Processes) -> None:
    from perdure.service import lock

    ports = find_free_ports(2)
    webs = [processes.start("serve", "--http", f"127.0.0.1:{port}") for port in ports]
    first = wait_for(lambda: lock.find_resident(folder))
    wait_for(lambda: len([1 for port in ports if _is_open(port)]) == 2)
    killed = next(web for web in webs if web.pid == first.pid)
    os.killpg(killed.pid, signal.SIGKILL)
    second = wait_for(lambda: (now := lock.find_resident(folder)) and now.pid not in (0, first.pid) and now)
    assert second.pid in [web.pid for web in webs]
    health = processes.run("status")["resident"]
    assert health["pid"] == second.pid and health["workers"] == []
    _check_back_pressure(processes, ports[webs.index(next(web for web in webs if web.pid == second.pid))])


def _check_back_pressure(processes: Processes, port: int) -> None:
    """Nobody indexes: after `max_waiting` captures of a user the next is refused, and one of another user is taken."""
    statuses: dict[str, list[int]] = {}
    for user, n_captures in (("ada", 120), ("bob", 1)):
        words = ("machine", "register", "--name", f"{user}-phone", "--user", user, "--no-write-auth")
        secret = processes.run(*words)["secret"]
        for number in range(n_captures):
            status, retry_after = _post(port, secret, f"/api/runs?runtime=messages&session={user}-{number}")
            statuses.setdefault(user, []).append(status)
            if status == 429:
                assert int(retry_after) > 0
                break
            time.sleep(0.02)
    n_taken = statuses["ada"].count(202)
    assert 40 <= n_taken < 120 and statuses["ada"][-1] == 429  # it counts once a second
    assert statuses["bob"] == [202]


def _post(port: int, secret: str, path: str) -> tuple[int, str]:
    body = json.dumps({"role": "user", "content": "The kiln is warm."}).encode() + b"\n"
    headers = {"Authorization": f"Bearer {secret}"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, ""
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Retry-After"]


def _is_open(port: int) -> bool:
    import socket

    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_serve_without_workers_loads_no_queue() -> None:
    program = (
        "import sys, perdure.surfaces.cli.serve_home\n"
        "print([name for name in ('procrastinate', 'psycopg', 'perdure.work_queue') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_worker_refuses_a_home_that_wants_none(folder: Path) -> None:
    with perdure.open(folder) as home:
        home.config = home.config._replace(workers=WorkersConfig())
        with pytest.raises(ConfigFault, match=r"workers\.enabled"):
            WorkerProcess(home)
