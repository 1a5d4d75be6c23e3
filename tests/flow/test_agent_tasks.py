"""Twenty small tasks in a repository, by a scripted model: what the tools return, byte for byte (J01)."""

from __future__ import annotations

import json
import os
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.agent.agent import open_agent
from perdure.models.chat import ChatReply, ToolCall
from perdure.testing import ScriptedChat
from rig.agent_project import make_project

TESTS = Path(__file__).parents[1]
TASKS: list[dict[str, Any]] = tomllib.loads((TESTS / "data/agent/tasks.toml").read_text())["task"]
GOLDEN = TESTS / "golden/agent"


def call(number: int, step: dict[str, Any]) -> ToolCall:
    ((name, given),) = step.items()
    return ToolCall(f"call-{number}", name, given)


def run_task(task: dict[str, Any], tmp_path: Path) -> str:
    """Return what the model reads of the tools, as text."""
    project = make_project(tmp_path / "shop")
    calls = [call(number, step) for number, step in enumerate(task["calls"])]
    answers = [calls] if task.get("side_by_side") else [[one] for one in calls]
    script = [ChatReply("", calls=tuple(group), stop="tool") for group in answers]
    with (
        perdure.open(tmp_path / "home", user="ada") as home,
        open_agent(
            home, cwd=str(project), chat=ScriptedChat([*script, "Done."]), mode="yolo", recall_mode="keyword"
        ) as agent,
    ):
        agent.session.say("Go.")
        messages = [entry for entry in agent.session.log.find_path() if getattr(entry, "role", "") == "tool"]
    lines: list[str] = []
    for one, message in zip(calls, messages, strict=True):
        assert message.call_id == one.id
        lines += [f">>> {one.name} {json.dumps(one.input, ensure_ascii=False)}", message.text]
        lines += [f"[image {image.media_type} {len(image.data)}]" for image in message.images]
        lines += ["[error]"] if message.is_error else []
    text = "\n".join([*lines, ""]).replace(str(tmp_path), "TMP")
    return re.sub(r"\S*perdure-agent-\w+", "OUTPUTS", text)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task["name"])
def test_a_task_gets_its_answers(task: dict[str, Any], tmp_path: Path) -> None:
    text = run_task(task, tmp_path)
    path = GOLDEN / f"{task['name']}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def test_there_are_twenty_tasks() -> None:
    assert len(TASKS) == 20
    assert {path.stem for path in GOLDEN.glob("*.txt")} == {task["name"] for task in TASKS}


@pytest.mark.parametrize("name", ["02-find-a-definition", "04-rename-everywhere", "16-long-lines", "17-ignored-files"])
def test_search_answers_the_same_without_ripgrep(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of search are compared with the same golden file, where ripgrep is there."""
    if shutil.which("rg") is None:
        pytest.skip("ripgrep is not installed: the tasks above have searched without it")
    folder = tmp_path / "bin"
    folder.mkdir()
    for program in ("git", "bash", "python3", "cat", "od", "head"):
        (folder / program).symlink_to(str(shutil.which(program)))
    monkeypatch.setenv("PATH", str(folder))
    (task,) = [task for task in TASKS if task["name"] == name]
    assert run_task(task, tmp_path) == (GOLDEN / f"{name}.txt").read_text()
