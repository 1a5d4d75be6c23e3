"""`perdure install`, `uninstall` and what `doctor` says of it, as a person runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.capture import enqueue, failures
from perdure.capture.policy import CaptureRules
from perdure.clients import entries, setup

FILES = {
    "claude-code": ".claude/settings.json",
    "codex": ".codex/hooks.json",
    "pi": ".pi/agent/extensions/perdure.ts",
    "gemini-cli": ".gemini/settings.json",
    "opencode": ".config/opencode/plugin/perdure.js",
    "qwen-code": ".qwen/settings.json",
    "kimi-code": ".kimi-code/config.toml",
}


@pytest.fixture
def run(tmp_path: Path):
    def run_(*words: str, stdin: int = subprocess.DEVNULL) -> subprocess.CompletedProcess[str]:
        moved = (
            *("CLAUDE_CONFIG_DIR", "CODEX_HOME", "PI_CODING_AGENT_DIR", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME"),
            *("QWEN_HOME", "KIMI_CODE_HOME"),
        )
        env = {name: value for name, value in os.environ.items() if name not in moved}
        env |= {"HOME": str(tmp_path), "PERDURE_HOME": str(tmp_path / "home"), "NO_COLOR": "1"}
        line = [sys.executable, "-m", "perdure.surfaces.cli", *words]
        return subprocess.run(line, env=env, stdin=stdin, capture_output=True, text=True, timeout=120, check=False)

    return run_


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A service manager that notes what it is asked; its answer is the status in `systemctl-status`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "systemctl"
    script.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/systemctl-calls\nexit $(cat {tmp_path}/systemctl-status)\n')
    script.chmod(0o700)
    (tmp_path / "systemctl-status").write_text("0")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return tmp_path / "systemctl-calls"


def checks(done: subprocess.CompletedProcess[str], name: str) -> list[dict]:
    return [check for check in json.loads(done.stdout)["result"]["checks"] if check["name"] == name]


@pytest.mark.parametrize("client", setup.CLIENTS)
def test_dry_run_shows_the_change_and_writes_nothing(client: str, run, tmp_path: Path) -> None:
    done = run("install", client, "--dry-run")
    assert done.returncode == 0 and f"+++ {tmp_path / FILES[client]}" in done.stdout
    assert list(tmp_path.iterdir()) == []
    assert json.loads(run("install", client, "--dry-run", "--json").stdout)["result"]["changed"] is True


def test_install_prints_one_line_for_each_file_and_the_diff_on_request(run, tmp_path: Path) -> None:
    path = tmp_path / FILES["claude-code"]
    assert run("install", "claude-code").stdout.splitlines()[0] == f"{path}: created"
    assert "perdure-hook" not in run("uninstall", "claude-code").stdout
    assert f"+++ {path}" in run("install", "claude-code", "--diff").stdout


@pytest.mark.parametrize("client", setup.CLIENTS)
def test_uninstall_restores_all_files_and_names_the_archive(client: str, run, tmp_path: Path) -> None:
    path = tmp_path / FILES[client]
    path.parent.mkdir(parents=True)
    if path.suffix == ".json":
        path.write_text('{"model":\t"opus", "hooks": {}}')
    before = {file: file.read_bytes() for file in path.parent.iterdir()}
    assert run("install", client, "--no-service").returncode == 0 and path.exists()
    done = run("uninstall", client)
    assert {file: file.read_bytes() for file in path.parent.iterdir()} == before
    assert f"archive stays in {tmp_path / 'home'}" in done.stderr and (tmp_path / "home" / "archive").is_dir()


@pytest.mark.skipif(sys.platform != "linux", reason="the service manager of Linux")
def test_service_is_offered_only_on_a_terminal(run, systemctl: Path, tmp_path: Path) -> None:
    unit = tmp_path / ".config/systemd/user/perdure.service"
    assert "perdure service install" in run("install", "claude-code").stderr
    assert "service install" not in run("install", "codex", "--no-service").stderr and not unit.exists()
    keyboard, terminal = os.openpty()
    os.write(keyboard, b"n\n")
    asked = run("install", "pi", stdin=terminal)
    assert "at login" in asked.stderr and "was not started" in asked.stderr and not unit.exists()
    os.write(keyboard, b"\n")
    assert "starts at login" in run("install", "gemini-cli", stdin=terminal).stderr
    assert unit.exists() and "enable --now perdure.service" in systemctl.read_text()
    assert "at login" not in run("install", "opencode", stdin=terminal).stderr  # it is there already


@pytest.mark.skipif(sys.platform != "linux", reason="the service manager of Linux")
def test_service_that_cannot_start_leaves_no_file(run, systemctl: Path, tmp_path: Path) -> None:
    (tmp_path / "systemctl-status").write_text("1")
    done = run("install", "claude-code", "--yes")
    assert done.returncode == 0 and "could not be started (`systemctl --user daemon-reload` failed)" in done.stderr
    assert not (tmp_path / ".config/systemd/user/perdure.service").exists()


def test_doctor_warns_of_captures_that_wait(run, tmp_path: Path) -> None:
    run("install", "claude-code", "--no-service")
    origin = {"runtime": "messages", "session": "s", "conversation": "s", "parent_session": None, "cwd": None}
    rules = CaptureRules(tmp_path / "home", "ada", "laptop", (), tmp_path, 1000)
    enqueue.enqueue_bytes(rules, {**origin, "fork": False}, b'{"role": "user"}\n', from_offset=0, path=None)
    (check,) = checks(run("doctor", "--json"), "outbox")
    assert check["grade"] == "notice" and check["found"] == "1 capture waiting" and "perdure serve" in check["advice"]


@pytest.mark.index_file("it damages the file")
def test_status_fails_with_a_damaged_index(run, tmp_path: Path) -> None:
    assert run("status").returncode == 3  # there is no home yet
    samples = Path(setup.__file__).parents[1] / "samples"
    assert run("import", str(samples)).returncode == 0 and run("status").returncode == 0
    (tmp_path / "home" / "index.db").resolve().write_bytes(b"not a database" * 1000)
    done = run("status")
    assert done.returncode == 1 and "perdure rebuild" in done.stdout


@pytest.mark.parametrize("client", setup.CLIENTS)
def test_doctor_proves_a_client_by_a_round_trip(client: str, run, tmp_path: Path) -> None:
    assert run("install", client).returncode == 0
    (first, *_) = checks(run("doctor", "--json"), f"{client} hooks")
    assert first["grade"] == "ok" and "captured a turn and recalled it" in first["found"]
    assert list((tmp_path / "home" / "cache").glob("probe*")) == []
    path, script = tmp_path / FILES[client], tmp_path / "home" / entries.HOOK_MARK
    for file in (path, script):
        file.write_text(file.read_text().replace("__main__.py", "moved.py"))
    done = run("doctor", "--json")
    assert done.returncode == 1
    assert [check["grade"] for check in checks(done, f"{client} hooks")] == ["problem"]
    assert run("uninstall", client).returncode == 0 and not path.exists()
    assert checks(run("doctor", "--json"), f"{client} hooks") == []


def test_doctor_reports_hooks_that_codex_does_not_trust(run, tmp_path: Path) -> None:
    run("install", "codex")
    (_, trust) = checks(run("doctor", "--json"), "codex hooks")
    assert trust["grade"] == "problem" and "/hooks" in trust["advice"]
    key = f"{tmp_path / FILES['codex']}:user_prompt_submit:0:0"
    (tmp_path / ".codex" / "config.toml").write_text(f'[hooks.state."{key}"]\ntrusted_hash = "sha256:0"\n')
    assert [check["grade"] for check in checks(run("doctor", "--json"), "codex hooks")] == ["ok"]


def test_doctor_reports_recorded_hook_failures(run, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    failures.record_failure(home, "codex", "prompt", "recall", "TimeoutError")
    (check,) = checks(run("doctor", "--json"), "hook failures")
    assert check["grade"] == "problem" and "1 times recall: TimeoutError; still failing: recall" in check["found"]
    failures.end_incident(home, "recall")
    (check,) = checks(run("doctor", "--json"), "hook failures")
    assert check["grade"] == "notice" and check["found"].endswith("none since")


def test_invalid_settings_are_refused_and_kept(run, tmp_path: Path) -> None:
    path = tmp_path / FILES["claude-code"]
    path.parent.mkdir()
    path.write_text("{ // mine\n}")
    done = run("install", "claude-code")
    assert done.returncode == 1 and "not JSON" in done.stderr and path.read_text() == "{ // mine\n}"
    assert json.loads(run("install", "claude-code", "--json").stdout)["error"]["code"] == "client-fault"
    (check,) = checks(run("doctor", "--json"), "claude-code hooks")
    assert check["grade"] == "problem"


def test_the_hooks_of_another_home_are_noticed(run, tmp_path: Path) -> None:
    run("install", "claude-code", "--home", str(tmp_path / "other"))
    found = checks(run("doctor", "--json"), "claude-code hooks")
    assert [check["grade"] for check in found] == ["notice", "ok"] and str(tmp_path / "other") in found[0]["found"]
    commands = setup.read_commands("claude-code", tmp_path / FILES["claude-code"])
    assert {entries.get_home(line) for line in commands.values()} == {str(tmp_path / "other")}


BROKEN = "{ // perdure.surfaces.cli\n"


@pytest.mark.parametrize(
    ("client", "file"), [("opencode", ".config/opencode/opencode.json"), ("claude-code", ".claude.json")]
)
def test_broken_file_does_not_stop_the_other_uninstall(client, file, run, tmp_path: Path) -> None:
    run("install", client)
    (tmp_path / file).write_text(BROKEN)
    done = run("uninstall", client)
    assert done.returncode == 1 and file in done.stderr and not (tmp_path / FILES[client]).exists()
    assert (tmp_path / file).read_text() == BROKEN
    (tmp_path / file).write_text("{ // nothing of ours\n")
    assert run("uninstall", client).returncode == 0


def test_refused_installation_changes_nothing(run, tmp_path: Path) -> None:
    assert run("install", "pi", "--mcp").returncode == 2 and list(tmp_path.iterdir()) == []
    config = tmp_path / ".codex" / "config.toml"
    config.parent.mkdir()
    config.write_text('[mcp_servers.perdure]\ncommand = "other"\n')
    assert run("install", "codex", "--mcp").returncode == 1
    assert list(config.parent.iterdir()) == [config] and list(tmp_path.iterdir()) == [config.parent]


def test_hooks_and_tools_in_one_file_are_one_change(run, tmp_path: Path) -> None:
    path = tmp_path / FILES["gemini-cli"]
    path.parent.mkdir()
    path.write_text('{"mcpServers": {}, "a":1}')
    shown = json.loads(run("install", "gemini-cli", "--mcp", "--dry-run", "--json").stdout)["result"]["files"]
    assert len(shown) == 1 and "mcpServers" in shown[0]["diff"] and "BeforeAgent" in shown[0]["diff"]
    for _ in range(2):
        assert run("install", "gemini-cli", "--mcp").returncode == 0
    assert {"hooks", "mcpServers"} < set(json.loads(path.read_text()))
    assert run("uninstall", "gemini-cli").returncode == 0
    assert path.read_text() == '{"mcpServers": {}, "a":1}' and list(path.parent.iterdir()) == [path]


def test_doctor_checks_whether_the_tools_start(run, tmp_path: Path) -> None:
    assert checks(run("doctor", "--json"), "codex tools") == []
    run("install", "codex", "--mcp")
    assert [check["grade"] for check in checks(run("doctor", "--json"), "codex tools")] == ["ok"]
    path = tmp_path / ".codex" / "config.toml"
    path.write_text(path.read_text().replace(sys.executable, "/moved/python"))
    (check,) = checks(run("doctor", "--json"), "codex tools")
    assert check["grade"] == "problem" and "/moved/python" in check["found"]
