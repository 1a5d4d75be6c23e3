"""A recipe only takes away from what its owner's definition gives."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.agent.definition import AgentDefinition, parse_definition
from perdure.agent.envelope import OUTCOMES, format_run
from perdure.agent.spawner import limit_definition, limit_tools
from perdure.agent_queue import AgentRecipe, AgentRun, Outcome
from perdure.models.chat import ToolSpec
from perdure.session.calls import Tool, ToolOutput

PAGE = """
name: ada
tools: [read_file, shell, ask_user]
max_turns: 50
max_tokens: 1000
mode: yolo
mcp_servers: {files: {command: a}, wiki: {command: b}}
"""


def make_run(**recipe: Any) -> AgentRun:
    return AgentRun(
        run="a0123456789", job="agent", user="ada", agent="ada", queued_at=datetime(2026, 1, 1, tzinfo=UTC),
        recipe=AgentRecipe(instruction="Go.", **recipe),
    )  # fmt: skip


def limit(tmp_path: Path, **recipe: Any) -> AgentDefinition:
    with perdure.open(tmp_path / "home") as home:
        return limit_definition(home, parse_definition(PAGE), make_run(**recipe))


def test_a_recipe_without_limits_has_those_of_the_owner(tmp_path: Path) -> None:
    definition = limit(tmp_path)
    assert definition.tools == ("read_file", "shell")  # nobody can be asked
    assert (definition.mode, definition.max_turns, definition.max_tokens, definition.max_s) == ("ask", 50, 1000, 1800)
    assert [server.name for server in definition.mcp_servers] == ["files", "wiki"]


def test_a_recipe_takes_away_and_adds_nothing(tmp_path: Path) -> None:
    names = ("read_file", "write_file", "wiki__read")
    definition = limit(tmp_path, tools=names, max_turns=90, max_tokens=10, max_s=60)
    assert definition.tools == ("read_file",)
    assert (definition.max_turns, definition.max_tokens, definition.max_s) == (50, 10, 60)
    assert [server.name for server in definition.mcp_servers] == ["wiki"]


@pytest.mark.parametrize(("names", "left"), [(None, ["a", "wiki__read"]), (("wiki__read",), ["wiki__read"]), ((), [])])
def test_tools_of_servers_are_limited_too(names: tuple[str, ...] | None, left: list[str]) -> None:
    tools = [Tool(ToolSpec(name, "", {}), lambda *_: ToolOutput("")) for name in ("a", "wiki__read")]
    assert [tool.spec.name for tool in limit_tools(tools, make_run(tools=names))] == left
    assert limit_tools(tools, None) == tools


@pytest.mark.parametrize("outcome", Outcome.__args__)  # type: ignore[attr-defined]
def test_every_outcome_says_what_to_do(outcome: Outcome) -> None:
    page = (Path(__file__).parents[3] / "docs/agent.md").read_text("utf-8")
    assert OUTCOMES[outcome].to_do.endswith(".")
    assert f"| `{outcome}` |" in page and f"`{OUTCOMES[outcome].exit_reason}`" in page


def test_a_long_output_says_how_to_read_on() -> None:
    fields = {
        "run": "a1", "state": "ended", "outcome": "done", "why": "", "n_turns": 1, "n_tokens": 1200, "money": 0.5,
        "session": "s1", "truncated": False, "what_to_do": "Use the output.", "output": "x" * 12, "check_output": "",
    }  # fmt: skip
    assert format_run(fields, max_chars=10) == (
        "run a1: done\n1 turn, 1,200 tokens, 0.5000 money, session s1\nWhat to do: Use the output.\nOutput:\n"
        "xxxxxxxxxx\n[2 more characters: wait_for_agent with this run alone shows more]"
    )
