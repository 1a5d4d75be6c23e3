"""`perdure install`, `uninstall` and what `doctor` says of it, as a person runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.capture import failures
from perdure.clients import hooks, setup

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
def test_a_dry_run_shows_it_and_changes_nothing(client: str, run, tmp_path: Path) -> None:
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


def test_doctor_says_that_codex_does_not_trust_yet(run, tmp_path: Path) -> None:
    run("install", "codex")
    (_, trust) = checks(run("doctor", "--json"), "codex hooks")
    assert trust["grade"] == "problem" and "/hooks" in trust["advice"]
    key = f"{tmp_path / FILES['codex']}:user_prompt_submit:0:0"
    (tmp_path / ".codex" / "config.toml").write_text(f'[hooks.state."{key}"]\ntrusted_hash = "sha256:0"\n')
    assert [check["grade"] for check in checks(run("doctor", "--json"), "codex hooks")] == ["ok"]


def test_doctor_says_what_hooks_noted(run, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    failures.note(home, "codex", "prompt", "recall", "TimeoutError")
    (check,) = checks(run("doctor", "--json"), "hook failures")
    assert check["grade"] == "problem" and "1 times recall: TimeoutError; still failing: recall" in check["found"]
    failures.over(home, "recall")
    (check,) = checks(run("doctor", "--json"), "hook failures")
    assert check["grade"] == "notice" and check["found"].endswith("none since")


def test_settings_that_are_not_understood_are_refused_and_kept(run, tmp_path: Path) -> None:
    path = tmp_path / FILES["claude-code"]
    path.parent.mkdir()
    path.write_text("{ // mine\n}")
    done = run("install", "claude-code")
    assert done.returncode == 1 and "no JSON" in done.stderr and path.read_text() == "{ // mine\n}"
    assert json.loads(run("install", "claude-code", "--json").stdout)["error"]["code"] == "client-fault"
    (check,) = checks(run("doctor", "--json"), "claude-code hooks")
    assert check["grade"] == "problem"


def test_the_hooks_of_another_home_are_noticed(run, tmp_path: Path) -> None:
    run("install", "claude-code", "--home", str(tmp_path / "other"))
    found = checks(run("doctor", "--json"), "claude-code hooks")
    assert [check["grade"] for check in found] == ["notice", "ok"] and str(tmp_path / "other") in found[0]["found"]
    commands = setup.commands("claude-code", tmp_path / FILES["claude-code"])
    assert {hooks.home_of(line) for line in commands.values()} == {str(tmp_path / "other")}
