"""The twenty tasks of tests/data/agent with the real small model: that the loop, the log and the budget hold.

A model of 135 million parameters does none of these tasks. It talks, calls tools that there are and that there are not,
with inputs that fit and that do not; the loop has to live with all of it.
"""

from __future__ import annotations

import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.agent.agent import open_agent
from perdure.errors import TurnBudgetSpent
from perdure.formats.perdure import Message
from perdure.session.log import read_path
from perdure.session.tree import list_open_calls
from rig import local_model
from rig.agent_project import make_project

pytestmark = pytest.mark.slow

TASKS: list[dict[str, Any]] = tomllib.loads((Path(__file__).parents[1] / "data/agent/tasks.toml").read_text())["task"]
MAX_TURNS = 2
OUTPUT_TOKENS = 32
DEFINITION = f"name: small\ntools: [read_file, edit_file, grep, shell]\nmax_turns: {MAX_TURNS}\nmode: edits\n"


@pytest.fixture
def small_model() -> Path:
    try:
        return local_model.file()
    except local_model.Missing as error:
        pytest.skip(str(error))


def test_the_loop_survives_a_small_model(tmp_path: Path, small_model: Path) -> None:
    project, place = make_project(tmp_path / "shop"), tmp_path / "home"
    place.mkdir(mode=0o700)
    (place / "config.toml").write_text(
        f'[models.roles.resident]\nprovider = "gguf"\nmodel = "{small_model}"\nwindow_tokens = 4096\n'
        f'max_output_tokens = {OUTPUT_TOKENS}\n[models.embedder]\nkind = "off"\n'
    )
    began_s = time.process_time()
    with perdure.open(place, user="ada") as home:
        home.floor.write("agent.yaml", DEFINITION)
        sessions = [run_task(home, project, task) for task in TASKS]
        paths = [[entry for entry in read_path(home, name) if isinstance(entry, Message)] for name in sessions]
    assert len(set(sessions)) == 20
    n_calls = 0
    for path in paths:
        answers = [message for message in path if message.role == "assistant"]
        assert path[0].role == "user" and 1 <= len(answers) <= MAX_TURNS
        assert all(answer.usage and answer.usage.n_output <= OUTPUT_TOKENS for answer in answers)
        assert list_open_calls(path) == []
        n_calls += sum(len(answer.calls) for answer in answers)
    print(f"{n_calls} calls, {time.process_time() - began_s:.0f} s of processor time")


def run_task(home: perdure.Home, project: Path, task: dict[str, Any]) -> str:
    """Give the model one task, and return its session."""
    words = task["name"].partition("-")[2].replace("-", " ")
    files = sorted({str(next(iter(step.values())).get("path", "")) for step in task["calls"]} - {""})
    question = f"Use your tools in this project: {words}. {' '.join(files)}"
    with open_agent(home, cwd=str(project), recall_mode="keyword") as agent:
        assert agent.session.tool_names
        try:
            agent.say(question)
        except TurnBudgetSpent as spent:
            assert "turns" in str(spent)
        return agent.session.session
