"""`perdure install`, `uninstall` and what `doctor` says of it, as a person runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.capture import failures
from perdure.clients import entries, setup

FILES = {
    "claude-code": ".claude/settings.json",
    "codex": ".codex/hooks.json",
    "pi": ".pi/agent/extensions/perdure.ts",
    "gemini-cli": ".gemini/settings.json",
    "opencode": ".config/opencode/plugin/perdure.js",
}


@pytest.fixture
def run(tmp_path: Path):
    def run_(*words: str) -> subprocess.CompletedProcess[str]:
        moved = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "PI_CODING_AGENT_DIR", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME")
        env = {name: value for name, value in os.environ.items() if name not in moved}
        env |= {"HOME": str(tmp_path), "PERDURE_HOME": str(tmp_path / "home"), "NO_COLOR": "1"}
        line = [sys.executable, "-m", "perdure.surfaces.cli", *words]
        return subprocess.run(line, env=env, capture_output=True, text=True, timeout=120, check=False)

    return run_


def checks(done: subprocess.CompletedProcess[str], name: str) -> list[dict]:
    return [check for check in json.loads(done.stdout)["result"]["checks"] if check["name"] == name]


@pytest.mark.parametrize("client", setup.CLIENTS)
def test_dry_run_shows_the_change_and_writes_nothing(client: str, run, tmp_path: Path) -> None:
    done = run("install", client, "--dry-run")
    assert done.returncode == 0 and f"+++ {tmp_path / FILES[client]}" in done.stdout
    assert list(tmp_path.iterdir()) == []
    assert json.loads(run("install", client, "--dry-run", "--json").stdout)["result"]["changed"] is True


@pytest.mark.parametrize("client", setup.CLIENTS)
def test_doctor_proves_a_client_by_a_round_trip(client: str, run, tmp_path: Path) -> None:
    assert run("install", client).returncode == 0
    (first, *_) = checks(run("doctor", "--json"), f"{client} hooks")
    assert first["grade"] == "ok" and "captured a turn and recalled it" in first["found"]
    assert list((tmp_path / "home" / "cache").glob("probe*")) == []
    path = tmp_path / FILES[client]
    path.write_text(path.read_text().replace("__main__.py", "moved.py"))
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
