"""`perdure start`, as a person runs it: three things from this person's own history, one answer, the clients."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

PERDURE = ("-m", "perdure.surfaces.cli")
SESSION = "11111111-1111-4111-8111-111111111111"


@pytest.fixture
def run(tmp_path: Path):
    def run_(*words: str, cwd: Path | None = None, stdin: int = subprocess.DEVNULL, program=PERDURE):
        moved = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "PI_CODING_AGENT_DIR", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME")
        env = {name: value for name, value in os.environ.items() if name not in (*moved, "XDG_DATA_HOME")}
        env |= {"HOME": str(tmp_path), "PERDURE_HOME": str(tmp_path / "home"), "NO_COLOR": "1"}
        line = [sys.executable, *program, "start", "--no-service", *words]
        return subprocess.run(
            line, env=env, cwd=cwd or tmp_path, stdin=stdin, capture_output=True, text=True, timeout=120, check=False
        )

    return run_


@pytest.fixture
def project(tmp_path: Path, claude) -> Path:
    """A repository with one session of Claude Code: a decision, and a test that failed and was fixed."""
    folder = tmp_path / "work"
    (folder / ".git").mkdir(parents=True)

    def use(name: str, number: int, **fields: str) -> list[dict]:
        return [{"type": "tool_use", "id": f"c{number}", "name": name, "input": fields}]

    def result(number: int, output: str, *, failed: bool = False) -> list[dict]:
        return [{"type": "tool_result", "tool_use_id": f"c{number}", "content": output, "is_error": failed}]

    steps = [
        ("user", "We decided to use SQLite instead of Postgres for the tide tables."),
        ("assistant", use("Bash", 1, command="make test")),
        ("user", result(1, "Exit code 2\ntide.py:9: AssertionError: 3 != 4", failed=True)),
        ("assistant", use("Edit", 2, file_path=str(folder / "tide.py"), old_string="3", new_string="4")),
        ("user", result(2, "edited")),
        ("assistant", use("Bash", 3, command="make test")),
        ("user", result(3, "7 passed")),
    ]
    lines = [
        claude(role, content, f"u{number}", number, SESSION, cwd=str(folder))
        for number, (role, content) in enumerate(steps)
    ]
    transcripts = tmp_path / ".claude/projects/work"
    transcripts.mkdir(parents=True)
    (transcripts / f"{SESSION}.jsonl").write_bytes(b"".join(lines))
    return folder


def findings(done: subprocess.CompletedProcess[str]) -> dict[str, dict]:
    return {finding["title"]: finding for finding in json.loads(done.stdout)["result"]["findings"]}


def test_start_shows_three_things_of_this_project(run, project: Path, tmp_path: Path) -> None:
    done = run("--json", "--question", "which database holds the tide tables?", cwd=project)
    found = findings(done)
    assert list(found) == ["A decision", "A failure that was fixed", "What a client will delete"]
    assert "SQLite" in found["A decision"]["text"] and found["A decision"]["show"].startswith("mem-")
    fix = found["A failure that was fixed"]
    assert fix["text"] == "make test: tide.py:9: AssertionError: 3 != 4"
    assert fix["detail"] == "passed after a change of tide.py"
    assert all((finding["client"], finding["session"]) == ("claude-code", SESSION) for finding in found.values())
    assert "30 days after its last use" in found["What a client will delete"]["detail"]
    answer = json.loads(done.stdout)["result"]["answer"]
    assert any("SQLite" in cue["text"] for cue in answer["cues"])
    for finding in found.values():
        line = [sys.executable, "-m", "perdure.surfaces.cli", "show", finding["show"]]
        env = {**os.environ, "PERDURE_HOME": str(tmp_path / "home")}
        assert subprocess.run(line, env=env, capture_output=True, check=False).returncode == 0


def test_start_changes_no_client_without_a_yes(run, project: Path, tmp_path: Path) -> None:
    done = run(cwd=project)
    assert done.returncode == 0 and "`perdure install claude-code` sets it up" in done.stderr
    assert "? " not in done.stderr and not (tmp_path / ".claude/settings.json").exists()
    assert json.loads(run("--json", cwd=project).stdout)["result"]["changed"] == []


def test_start_sets_up_the_clients_with_yes(run, project: Path, tmp_path: Path) -> None:
    changed = json.loads(run("--yes", "--json", cwd=project).stdout)["result"]["changed"]
    assert changed == [{"client": "claude-code", "path": str(tmp_path / ".claude/settings.json")}]
    assert "Claude Code is set up." in run("--yes", cwd=project).stderr


def test_start_asks_on_a_terminal(run, project: Path, tmp_path: Path) -> None:
    keyboard, terminal = os.openpty()
    os.write(keyboard, b"which database holds the tide tables?\nn\n")
    done = run(cwd=project, stdin=terminal)
    assert "Set up Claude Code" in done.stderr and "From your history" in done.stdout
    assert not (tmp_path / ".claude/settings.json").exists()
    os.write(keyboard, b"\ny\ny\n")
    assert "From your history" not in run(cwd=project, stdin=terminal).stdout
    assert (tmp_path / ".claude/settings.json").exists()


def test_start_in_a_foreign_folder_says_whose_history_it_shows(run, project: Path) -> None:
    done = run("--no-install")
    assert f"busiest one: {project}" in done.stderr and "SQLite" in done.stdout


def test_start_without_transcripts_says_what_to_do(run) -> None:
    done = run()
    assert done.returncode == 0 and "`perdure import PATH`" in done.stdout


def test_start_imports_the_rest_in_the_background(run, project: Path, tmp_path: Path) -> None:
    """No time for the first import: everything is left, and is found soon after the command has ended."""
    patched = "from perdure.surfaces.cli import main, start; start._FIRST_IMPORT_S = -1; main()"
    done = run("--no-install", cwd=project, program=("-c", patched))
    assert done.returncode == 0 and "1 older transcript: the import goes on in the background" in done.stderr
    line = [sys.executable, "-m", "perdure.surfaces.cli", "search", "postgres", "--json"]
    env = {**os.environ, "PERDURE_HOME": str(tmp_path / "home")}
    for _ in range(60):
        found = subprocess.run(line, env=env, capture_output=True, check=False)
        if b"SQLite" in found.stdout:
            return
        time.sleep(0.5)
    raise AssertionError((tmp_path / "home/run/import.log").read_text())


def test_client_that_start_sets_up_can_run_its_hook(run, project: Path, tmp_path: Path) -> None:
    assert run("--yes", cwd=project).returncode == 0
    with (tmp_path / "home/config.toml").open("a") as file:
        file.write("[hooks]\nlimit_ms = 30_000\n")  # a second is short on a busy machine
    settings = json.loads((tmp_path / ".claude/settings.json").read_text())
    (hook,) = settings["hooks"]["UserPromptSubmit"][0]["hooks"]
    event = {
        "hook_event_name": "UserPromptSubmit", "session_id": SESSION.replace("1", "2"), "cwd": str(project),
        "prompt": "Which database holds the tide tables?",
    }  # fmt: skip
    done = subprocess.run(
        ["sh", "-c", hook["command"]], input=json.dumps(event), env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "SQLite instead of Postgres" in json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"]


def test_shadow_is_set_before_clients_speak(run, project: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o700)
    config = tmp_path / "home/config.toml"
    config.write_text('user = "ada"  # me\n')
    done = run("--yes", "--shadow", cwd=project)
    assert done.returncode == 0 and "After 20 messages: `perdure review`" in " ".join(done.stderr.split())
    assert config.read_text() == 'user = "ada"  # me\n\n[live]\nshadow = true\n'
    assert json.loads(run("--json", cwd=project).stdout)["result"]["shadow"] is True


@pytest.mark.parametrize(("answer", "is_shadow"), [("y", False), ("n", True)])
def test_terminal_offers_to_record_only(run, project: Path, tmp_path: Path, answer: str, is_shadow: bool) -> None:
    terminal, its_side = os.openpty()
    os.write(terminal, f"\ny\n{answer}\n".encode())  # no question, set up Claude Code, speak at once?
    try:
        done = run(cwd=project, stdin=its_side)
    finally:
        os.close(its_side)
        os.close(terminal)
    assert done.returncode == 0 and "Should recall speak from the first message on?" in done.stderr
    config = tmp_path / "home/config.toml"
    assert (config.is_file() and "shadow = true" in config.read_text()) == is_shadow
