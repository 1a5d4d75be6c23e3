"""The tables of docs/agent.md say what the code does."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

import perdure
from perdure.agent.definition import TOOLS, AgentDefinition, parse_definition
from perdure.agent.envelope import OUTCOMES
from perdure.agent.folders import ProjectFolders
from perdure.agent.mcp_settings import McpServer
from perdure.agent.permission import MODES, Mode, PermissionAnswer, PermissionGate, PermissionRequest
from perdure.agent.spawner import Spawner
from perdure.formats.perdure import CallEntry

PAGE = (Path(__file__).parents[3] / "docs/agent.md").read_text("utf-8")
EXAMPLES = {"> file": "echo x > file", ".git/": "touch .git/x"}  # shell lines for examples that are none


def read_table(title: str, number: int = 0) -> list[list[str]]:
    """Return the cells of a table below a title; the head is its first row."""
    section = PAGE.split(f"\n{title}\n")[1].split("\n## ")[0]
    lines = re.findall(r"(?m)(?:^\|.*\n)+", section)[number].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if not line.startswith("|--")]


def read_names(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def read_first_column(title: str) -> list[str]:
    return [name for row in read_table(title)[1:] for name in read_names(row[0])]


def test_every_tool_is_described() -> None:
    assert sorted(read_first_column("## The tools")) == sorted(TOOLS)


@pytest.mark.parametrize(
    ("title", "known"), [("## agent.yaml", fields(AgentDefinition)), ("## MCP servers", fields(McpServer)[1:])]
)
def test_every_key_is_described_with_its_default(title: str, known: tuple[object, ...]) -> None:
    defaults = {field.name: field.default for field in known}  # type: ignore[attr-defined]
    assert read_first_column(title) == list(defaults)
    for names, shown, *_ in read_table(title)[1:]:
        values = [defaults[name] for name in read_names(names)]
        words = ["all" if value == TOOLS else f"`{value or 0}`" for value in values if value not in ("", ())]
        assert all(shown in (word, word.replace("`0`", "`false`").replace("True", "true")) for word in words), names


def test_the_rules_of_the_page_are_understood() -> None:
    rules, servers = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert parse_definition(rules).rules.allow[0].pattern == "pytest *"
    assert [server.name for server in parse_definition(servers).mcp_servers] == ["files", "wiki"]


def test_every_outcome_is_described_with_its_exit_reason() -> None:
    rows = [(read_names(row[0])[0], read_names(row[2])[0]) for row in read_table("## Sub-agents", 1)[1:]]
    assert rows == [(outcome, advice.exit_reason) for outcome, advice in OUTCOMES.items()]


def test_every_key_of_a_recipe_is_described(folders: ProjectFolders, tmp_path: Path) -> None:
    with perdure.open(tmp_path / "home") as home:
        queue_agent = Spawner(home, folders, AgentDefinition(), None).build_tools()[0]
    text = PAGE.split("A **recipe** says")[1].split("(`model`")[0]
    keys = [*read_names(text), "model", *read_first_column("## Sub-agents")]
    assert sorted(keys) == sorted(queue_agent.spec.schema["properties"])


def to_call(example: str) -> CallEntry:
    """Return a call of the tool of this name, or of the shell with this line."""
    if example in TOOLS:
        return CallEntry(id="c1", name=example, input={"path": "a.txt", "text": "x", "old": "a", "new": "b"})
    return CallEntry(id="c1", name="shell", input={"command": EXAMPLES.get(example, example)})


def decide(example: str, mode: Mode, folders: ProjectFolders) -> str:
    """Return what the table says of a call: it runs, is refused, or the person is asked."""
    requests: list[PermissionRequest] = []

    def ask(request: PermissionRequest) -> PermissionAnswer:
        requests.append(request)
        return PermissionAnswer("once")

    is_allowed = PermissionGate(folders, mode=mode, on_ask=ask).decide(to_call(example)).is_allowed
    return "asks" if requests else "runs" if is_allowed else "refused"


def test_each_example_may_run_as_the_table_says(folders: ProjectFolders) -> None:
    head, *rows = read_table("## What may run")
    assert [read_names(cell)[0] for cell in head[1:]] == list(MODES)
    for what, *verdicts in rows:
        assert read_names(what), what
        for example in read_names(what):
            assert [decide(example, mode, folders) for mode in MODES] == verdicts, example
