"""The twenty tasks of tests/data/agent with the real small model: that the loop, the log and the budget hold.

A model of 135 million parameters does none of these tasks. Its template knows no tools, so what it would call is asked
for with a schema, as if its answer had called it: the tool and its inputs are the model's own, and seldom make sense.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.agent.agent import open_agent
from perdure.errors import TurnBudgetSpent
from perdure.formats.perdure import Message
from perdure.models.chat import Chat, ChatMessage, ChatReply, ToolCall, ToolSpec
from perdure.session.chat_model import find_chat
from perdure.session.log import read_path
from perdure.session.tree import list_open_calls
from rig import local_model
from rig.agent_project import make_project

pytestmark = pytest.mark.slow

TASKS: list[dict[str, Any]] = tomllib.loads((Path(__file__).parents[1] / "data/agent/tasks.toml").read_text())["task"]
MAX_TURNS = 2
OUTPUT_TOKENS = 96
DEFINITION = (
    f"name: small\ntools: [read_file, write_file, edit_file, grep, shell]\nmax_turns: {MAX_TURNS}\nmode: edits\n"
)
WORDS = {"type": "string", "maxLength": 16}


class CallingChat:
    """The real model; its first answer to a message is a call."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self.name, self.window_tokens = chat.name, chat.window_tokens

    def reply(self, messages: Sequence[ChatMessage], *, tools: Sequence[ToolSpec] = (), **how: Any) -> ChatReply:
        if messages[-1].role == "tool":
            return self._chat.reply(messages, **how)
        names = {spec.name: list(spec.schema["required"]) for spec in tools}
        properties = {"tool": {"type": "string", "enum": list(names)}, "first": WORDS, "second": WORDS}
        schema: dict[str, Any] = {"type": "object", "properties": properties, "required": list(properties)}
        schema["additionalProperties"] = False
        reply = self._chat.reply(messages, schema=schema, cancel=how.get("cancel"))
        value = json.loads(reply.text)
        given = dict(zip(names[value["tool"]], (value["first"], value["second"]), strict=False))
        return replace(reply, text="", value=None, calls=(ToolCall("c1", value["tool"], given),), stop="tool")


@pytest.fixture(scope="module")
def small_model() -> Path:
    pytest.importorskip("xllamacpp")
    try:
        return local_model.file()
    except local_model.Missing as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("is_calling", [True, False], ids=["calling", "talking"])
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task["name"])
def test_the_loop_survives_a_small_model(
    task: dict[str, Any], is_calling: bool, tmp_path: Path, small_model: Path
) -> None:  # fmt: skip
    project, place = make_project(tmp_path / "shop"), tmp_path / "home"
    place.mkdir(mode=0o700)
    (place / "config.toml").write_text(
        f'[models.roles.resident]\nprovider = "gguf"\nmodel = "{small_model}"\nwindow_tokens = 8192\n'
        f'max_output_tokens = {OUTPUT_TOKENS}\n[models.embedder]\nkind = "off"\n[live]\nrecall = false\n'
    )
    words = task["name"].partition("-")[2].replace("-", " ")
    files = sorted({str(next(iter(step.values())).get("path", "")) for step in task["calls"]} - {""})
    with perdure.open(place, user="ada") as home:
        home.floor.write("agent.yaml", DEFINITION)
        chat = find_chat(home)
        with open_agent(home, cwd=str(project), chat=CallingChat(chat) if is_calling else chat) as agent:
            assert len(agent.session.tool_names) == (5 if is_calling else 0)
            name = agent.session.session
            try:
                agent.say(f"Use your tools in this project: {words}. {' '.join(files)}")
            except TurnBudgetSpent as spent:
                assert f"max_turns = {MAX_TURNS}" in str(spent)
        path = [entry for entry in read_path(home, name) if isinstance(entry, Message)]
    answers = [message for message in path if message.role == "assistant"]
    assert path[0].role == "user" and len(answers) == (2 if is_calling else 1)
    assert all(answer.usage and answer.usage.n_output <= OUTPUT_TOKENS for answer in answers)
    assert list_open_calls(path) == [] and [message.role for message in path].count("tool") == is_calling
