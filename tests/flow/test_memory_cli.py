"""`perdure memory` with real servers: rows W26, W27, W28 and U15."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import PackageMissing, TierFault
from perdure.workflow.memory import WorkflowMemory
from perdure.workflow.tier_programs import TierProgram
from perdure.workflow.tier_setup import VARIABLES, find_back_ends
from rig.terminal import Terminal
from rig.tier_servers import RedisServer

Done = subprocess.CompletedProcess[str]
KEY = "sk-ant-api03-Qm7dV2xR9tLw4KpZ8sBn3HyG6cJf1TaE5uXoWiMvNr0PqYkDhSgCbUeOlFjA"


class Project:
    """A folder with a program of workflows, and a home beside it."""

    def __init__(self, place: Path) -> None:
        self.home, self.folder, self.env_file = place / ".perdure", place / "project", place / "project" / ".env"
        self.folder.mkdir()
        self.env = {name: value for name, value in os.environ.items() if name not in VARIABLES}
        self.env |= {"PERDURE_HOME": str(self.home), "HOME": str(place), "NO_COLOR": "1", "COLUMNS": "200"}

    def run(self, *words: str, **variables: str) -> Done:
        command = [sys.executable, "-m", "perdure.surfaces.cli", "memory", *words]
        env = self.env | variables
        return subprocess.run(
            command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=120, check=False
        )

    def answer(self, *words: str, status: int = 0) -> dict[str, Any]:
        done = self.run(*words, "--json")
        assert done.returncode == status, done.stdout + done.stderr
        result: dict[str, Any] = json.loads(done.stdout)["result"]
        return result

    def states(self, *, status: int) -> dict[str, str]:
        return {row["tiers"]: row["state"] for row in self.answer("status", status=status)["tiers"]}

    def pid(self, server: str) -> int:
        return int((self.home / "tiers" / server / "server.lock").read_text())

    def kill(self, server: str) -> None:
        """End a server as a power cut does."""
        os.kill(self.pid(server), signal.SIGKILL)

    def write(self, workflow: str, agent: str, texts: list[str]) -> None:
        """Do what the person's program does, with the back ends of its environment file."""
        stores = {back_end.name: back_end.store for back_end in find_back_ends(self.home, self.env_file)}
        with perdure.open(self.home) as home:
            memory = WorkflowMemory(
                workflow, "s1", agent, redis_store=stores["redis"], blob_storage=stores["blobs"], home=home
            )
            for number, text in enumerate(texts):
                memory.log_turn(f"t{number}", text, "http_get", "200 OK", 7)
            memory.save_checkpoint({"next": len(texts), "key": KEY})
            assert memory.flush(), memory.status()
            memory.close()


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    yield made
    for lock in (made.home / "tiers").glob("*/server.lock"):
        try:
            os.kill(int(lock.read_text()), signal.SIGKILL)
        except (ProcessLookupError, ValueError):
            continue


def list_open_ports(pid: int) -> set[tuple[str, int]]:
    """(address, port) on which a process listens, as the kernel says."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        target = str(link.readlink())
        if target.startswith("socket:"):
            inodes.add(target[8:-1])
    rows = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()
    ]
    listening = [row[1].split(":") for row in rows if len(row) > 9 and row[3] == "0A" and row[9] in inodes]
    return {(address, int(port, 16)) for address, port in listening}


def get_start_limit() -> float:
    """Ten seconds, on a machine that has nothing else to do; more by the load on each of its processors."""
    return 10 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads /proc")
def test_init_brings_up_servers_of_the_home(project: Project) -> None:
    """W26, W27: first and second start, loopback alone, keys of its own; killed, named, and back with its data."""
    pytest.importorskip("redis")
    obstore: Any = pytest.importorskip("obstore")
    first = project.answer("init", "--redis", "--blobs", "s3", "--own")
    assert [row["state"] for row in first["back_ends"]] == ["started", "started"]
    assert set(first["added"]) == set(VARIABLES) - {"AWS_REGION"}
    before = project.env_file.read_text()
    started_s = time.monotonic()
    second = project.answer("init")
    assert time.monotonic() - started_s < get_start_limit()
    assert [row["state"] for row in second["back_ends"]] == ["running", "running"] and second["added"] == []
    assert project.env_file.read_text() == before

    secrets = {before.split(f"{name}=")[1].split()[0] for name in ("AWS_SECRET_ACCESS_KEY", "REDIS_URL")}
    assert not any(secret in json.dumps(first) + json.dumps(second) for secret in secrets)
    for path in [project.env_file, *project.home.glob("tiers/**/*.json"), *project.home.glob("tiers/**/*.conf")]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    for server, n_ports in (("redis", 1), ("objects", 8)):
        ports = list_open_ports(project.pid(server))
        assert {address for address, _ in ports} == {"0100007F"} and len(ports) == n_ports, "127.0.0.1 alone"
        arguments = Path(f"/proc/{project.pid(server)}/cmdline").read_text()
        assert not any(secret.partition(":///")[0] in arguments for secret in secrets)
    redis: Any = pytest.importorskip("redis")
    (redis_back_end, blob_back_end) = find_back_ends(project.home, project.env_file)
    port = int(redis_back_end.address.rpartition(":")[2][:-2])
    with redis.Redis(port=port) as stranger, pytest.raises(redis.exceptions.AuthenticationError):
        stranger.ping()
    strange = dict(blob_back_end.variables) | {"AWS_SECRET_ACCESS_KEY": "other"}
    with pytest.raises(Exception, match="403"):
        obstore.get(type(blob_back_end)("blobs", blob_back_end.address, strange).store, "check")

    project.write("report-7", "researcher", ["The ferry market grows."])
    for server, down in (("redis", "ledger, checkpoint"), ("objects", "scratchpad")):
        project.kill(server)
        states = project.states(status=1)
        assert {name for name, state in states.items() if state == "down"} == {down, "summary"}
        shown = project.run("status")
        assert shown.returncode == 1 and "`perdure memory init` starts it again" in shown.stdout
        started_s = time.monotonic()
        rows = {row["tiers"]: row["state"] for row in project.answer("init")["back_ends"]}
        assert time.monotonic() - started_s < get_start_limit()
        assert rows[down] == "started" and set(project.states(status=0).values()) == {"up"}
    found = project.answer("context", "--agent", "researcher")
    bundle = found["bundle"]
    assert bundle["recent_turns"][0]["thought"] == "The ferry market grows." and found["failures"] == {}
    assert "The ferry market grows." in bundle["scratchpad"] and json.loads(bundle["checkpoint"])["next"] == 1


def test_context_and_search_are_of_one_agent(project: Project) -> None:
    """W28, U15."""
    pytest.importorskip("redis")
    assert project.answer("init", "--own")["back_ends"][0]["state"] == "started"
    project.write("report-7", "researcher", ["Market analysis: the ferry market grows.", "It grew by four percent."])
    project.write("report-7", "writer", ["The outline has a part about the market."])
    project.write("report-8", "researcher", ["The harbour fee rises."])

    shown = project.run("context", "--agent", "researcher").stdout
    titles = [line for line in shown.splitlines() if line.startswith("## ")]
    assert [title.split()[1] for title in titles] == ["Summary", "Newest", "Checkpoint", "Notes", "From"]
    of_step, _, of_agent = shown.partition("## From all workflows of this agent")
    assert "researcher in report-8, step s1" in of_step and "harbour fee" in of_step and "ferry" not in of_step
    assert "ferry market" in of_agent and "outline" not in of_agent
    assert KEY not in shown and "[secret:anthropic]" in shown
    older = project.answer("context", "--agent", "researcher", "--workflow", "report-7")
    assert older["step"] == "s1" and len(older["bundle"]["recent_turns"]) == 3
    assert list(older["bundle"]) == ["ltm_summary", "recent_turns", "checkpoint", "scratchpad", "athena_context"]
    assert KEY not in json.dumps(older)
    unknown = project.run("context", "--agent", "nobody")
    assert unknown.returncode == 2 and "name --workflow" in unknown.stderr

    def search(*words: str) -> list[str]:
        return [hit["text"] for hit in project.answer("search", "--query", *words)["hits"]]

    assert {"outline" in text for text in search("market")} == {True, False}
    assert search("market", "--agent", "writer") == ["The outline has a part about the market."]
    assert search("market", "--agent", "researcher", "--workflow", "report-8") == []
    assert search("harbour", "--workflow", "report-8", "--step", "s1") == ["The harbour fee rises."]
    assert project.run("search", "-q", " ").returncode == 2

    project.kill("redis")
    down = project.run("context", "--agent", "researcher")
    assert down.returncode == 0 and "The ledger gave no answer" in down.stderr and "harbour fee" in down.stdout
    assert json.loads(project.run("stop", "--json").stdout)["result"] == {"stopped": []}


def test_init_takes_the_server_that_a_person_named(project: Project, tmp_path: Path) -> None:
    """The person's lines stay as they are, also where they lead nowhere."""
    (tmp_path / "server").mkdir()
    server = RedisServer(tmp_path / "server")
    server.start()
    lines = f"# mine\nexport REDIS_URL='{server.url}'  # of the team\nDEBUG=1"
    project.env_file.write_text(lines)
    try:
        found = project.answer("init", "--blobs", str(tmp_path / "my notes"))
        assert found["added"] == ["PERDURE_BLOBS"] and not found["back_ends"][0]["own"]
        assert project.env_file.read_text().startswith(lines + "\n\n#")
        assert not (project.home / "tiers" / "redis").exists()
        assert project.states(status=0)["ledger, checkpoint"] == "up"
        for variables in ({}, {"REDIS_URL": server.url}):
            conflict = project.run("init", "--own", "--env-file", "other.env" if variables else ".env", **variables)
            assert conflict.returncode == 2 and "REDIS_URL" in conflict.stderr and "not changed" in conflict.stderr
        assert not (project.folder / "other.env").exists()
    finally:
        server.kill()
        server.client.close()
    assert "start it" in project.run("status").stdout
    refused = project.run("init")
    assert refused.returncode == 1 and "gave no answer in 5 s" in refused.stderr and "`--own`" in refused.stderr
    assert project.env_file.read_text().startswith(lines)


@pytest.mark.parametrize(
    ("script", "says"), [("sleep 60", "gave no answer in 1 s"), ("echo no room; exit 1", "no room")]
)
def test_init_says_that_a_server_does_not_come_up(script: str, says: str, project: Project, tmp_path: Path) -> None:
    """W26: the wait is bounded, the message names the log, and nothing stays behind."""
    pytest.importorskip("redis")
    program = tmp_path / "bin" / "valkey-server"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    path = f"{program.parent}:{os.environ['PATH']}"
    done = project.run("init", "--own", "--wait", "1", PATH=path)
    assert done.returncode == 1 and says in done.stderr and "server.log" in done.stderr
    assert "perdure memory init` tries again" in done.stderr and not project.env_file.exists()
    assert project.run("stop").stdout.startswith("No server")


def test_init_asks_at_a_terminal(project: Project, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "perdure.surfaces.cli", "memory", "init"]
    with Terminal(command, cwd=project.folder, env={**project.env, "COLUMNS": "100"}) as terminal:
        terminal.child.expect("Redis-compatible server")
        terminal.child.sendline("n")
        terminal.child.expect("Where do scratchpad")
        terminal.child.sendline("folder")
        terminal.child.expect("1 line added")
    assert "PERDURE_BLOBS=" in project.env_file.read_text() and "REDIS_URL" not in project.env_file.read_text()
    assert project.states(status=0) == {
        "ledger, checkpoint": "off", "scratchpad": "up", "summary": "off", "archive, semantic": "up",
    }  # fmt: skip
    shutil.rmtree(project.home / "tiers" / "blobs")
    assert project.states(status=1)["scratchpad"] == "down"


def test_status_names_a_damaged_index(project: Project) -> None:
    project.answer("init", "--no-redis")
    with perdure.open(project.home) as home:
        home.remember("The staging server listens on port 8443")
    for path in project.home.glob("index*.db"):
        path.write_bytes(path.read_bytes()[:4096] + b"x" * 200_000)
    assert project.states(status=1)["archive, semantic"] == "down"
    assert "perdure rebuild" in project.run("status").stdout


def test_thin_machine_is_told_where_the_home_is(project: Project) -> None:
    project.home.mkdir(mode=0o700)
    (project.home / "config.toml").write_text('[remote]\nurl = "http://127.0.0.1:9"\n')
    for words in (("init",), ("status",), ("context", "--agent", "a"), ("stop",)):
        done = project.run(*words)
        assert done.returncode == 3 and f"(there: `perdure memory {words[0]}" in done.stderr, done.stderr
    assert not (project.home / "tiers").exists()


def test_program_that_is_missing_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By pip, from a registry: here a folder with a wheel."""
    wheel = tmp_path / "tinyserver-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        script = zipfile.ZipInfo("tinyserver-1.0.data/scripts/tiny-server")
        script.external_attr = 0o100755 << 16
        archive.writestr(script, "#!/bin/sh\n")
        archive.writestr("tinyserver-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tinyserver\nVersion: 1.0\n")
        archive.writestr(
            "tinyserver-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tinyserver-1.0.dist-info/RECORD", "")
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_EXTRA_INDEX_URL": ""}.items():
        monkeypatch.setenv(name, value)
    program = TierProgram(("tiny-server",), "", "tinyserver", "1 kB")
    packages = tmp_path / "packages"
    assert program.find(packages) is None
    assert program.download(packages) == program.find(packages) and (packages / "tiny-server/bin/tiny-server").exists()
    with pytest.raises(PackageMissing, match="pip install 'noserver'"):
        TierProgram(("no-server",), "", "noserver", "1 kB").download(packages)


def test_a_server_that_runs_is_not_started_again(tmp_path: Path) -> None:
    from perdure.errors import Busy
    from perdure.workflow.tier_servers import RedisTierServer

    server = RedisTierServer(tmp_path / "redis")
    process = server.start(["sleep", "60"])
    try:
        assert server.is_running and RedisTierServer(tmp_path / "redis").keys == server.keys
        with pytest.raises(Busy):
            server.start(["sleep", "60"])
        assert server.stop() and not server.is_running and not server.stop()
    finally:
        process.kill()
        process.wait()
    with pytest.raises(TierFault, match="does not start"):
        server.start([str(tmp_path / "nothing")])
    assert not server.is_running
