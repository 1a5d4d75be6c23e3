"""Commands end with all that they started, and their output is kept."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from perdure.agent.folders import ProjectFolders
from perdure.agent.sandbox import Sandbox
from perdure.agent.tools.files import read_file
from perdure.agent.tools.output import KeptOutputs
from perdure.agent.tools.shell import ShellTool
from perdure.session.calls import ToolOutput


@pytest.fixture(name="shell")
def fixture_shell(folders: ProjectFolders) -> ShellTool:
    return ShellTool(folders, Sandbox(problem="a test"), folders.readable[0])


def run(shell: ShellTool, command: str, cancel: threading.Event | None = None, **more: int) -> ToolOutput:
    return shell.run({"command": command, **more}, cancel or threading.Event())


def is_alive(path: Path) -> bool:
    """Return True while the process whose number a file holds is there."""
    try:
        os.kill(int(path.read_text()), 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{path.read_text().strip()}/stat").read_text().rsplit(")")[-1].split()[0]


def wait_until_dead(path: Path) -> bool:
    deadline_s = time.monotonic() + 5
    while time.monotonic() < deadline_s:
        if not is_alive(path):
            return True
        time.sleep(0.01)
    return False


def test_output_and_status_come_back(shell: ShellTool) -> None:
    assert run(shell, "echo a; echo b >&2") == ToolOutput("a\nb")
    assert run(shell, "echo a; exit 4") == ToolOutput("a\n\n[exit status 4]", is_error=True)
    assert run(shell, "true") == ToolOutput("[no output]")
    assert run(shell, "kill -9 $$") == ToolOutput("[no output]\n\n[ended by signal 9]", is_error=True)


def test_the_tail_is_shown_and_the_whole_can_be_read(shell: ShellTool, folders: ProjectFolders) -> None:
    text = run(shell, "seq 1 10000").text
    opening, *lines = text.split("\n")
    assert lines == [str(n) for n in range(8001, 10_001)]
    assert opening.startswith("[The last 2,000 of 10,000 lines. read_file shows all: ")
    path = opening.removesuffix("]").rsplit(" ", 1)[1]
    assert read_file(folders, path, 1, 3).text.startswith("1\n2\n3\n")


def test_a_command_ends_at_its_limit_with_its_children(shell: ShellTool, folders: ProjectFolders) -> None:
    output = run(shell, "sleep 60 & echo $! > child; wait", timeout_s=1)
    assert output == ToolOutput(
        "[no output]\n\n[ended after 1 s: give more timeout_s, or do less at once]", is_error=True
    )
    assert wait_until_dead(folders.root / "child")


def test_a_command_that_ignores_the_request_to_end_is_ended(shell: ShellTool, folders: ProjectFolders) -> None:
    run(shell, "trap '' TERM; echo $$ > child; while true; do sleep 0.1; done", timeout_s=1)
    assert wait_until_dead(folders.root / "child")


def test_a_cancelled_command_ends_at_once(shell: ShellTool, folders: ProjectFolders) -> None:
    cancel = threading.Event()
    threading.Timer(0.3, cancel.set).start()
    started_s = time.monotonic()
    output = run(shell, "echo $$ > child; sleep 60", cancel)
    assert time.monotonic() - started_s < 10
    assert output.text.endswith("[cancelled]")
    assert wait_until_dead(folders.root / "child")


def test_what_a_command_leaves_in_the_background_ends_with_it(shell: ShellTool, folders: ProjectFolders) -> None:
    assert run(shell, "sleep 60 & echo $! > child").text == "[no output]"
    assert wait_until_dead(folders.root / "child")


def test_a_flood_of_output_is_ended(shell: ShellTool) -> None:
    assert "more than 100 MB of output" in run(shell, "yes").text


def test_nothing_can_be_typed(shell: ShellTool) -> None:
    assert run(shell, "cat") == ToolOutput("[no output]")


def test_secrets_of_the_environment_stay_out(shell: ShellTool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVIDER_API_KEY", "sk-1")
    monkeypatch.setenv("HARMLESS", "yes")
    assert run(shell, "echo [$PROVIDER_API_KEY] [$HARMLESS]").text == "[] [yes]"
    shell.keep_variables = ("PROVIDER_API_KEY",)
    assert run(shell, "echo [$PROVIDER_API_KEY]").text == "[sk-1]"


def test_commands_that_only_read_may_run_side_by_side(shell: ShellTool) -> None:
    tool = shell.build_tool()
    assert not tool.is_alone({"command": "ls | head"})
    assert tool.is_alone({"command": "touch a"})


def test_full_outputs_have_a_limit_together(shell: ShellTool) -> None:
    """Each has 500,000 bytes, so two have room in 1.2 MB; the newest stays even if it has no room alone."""
    shell.kept = KeptOutputs(1_200_000)
    for _ in range(3):
        run(shell, "yes | head -c 500000")
    assert sorted(path.name for path in shell.outputs.iterdir()) == ["shell-2.txt", "shell-3.txt"]
    run(shell, "yes | head -c 2000000")
    assert [path.name for path in shell.outputs.iterdir()] == ["shell-4.txt"]
