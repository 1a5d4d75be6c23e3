"""docs/agent.md names every tool and every key."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from perdure.agent.definition import TOOLS, AgentDefinition, parse_definition
from perdure.agent.mcp_settings import McpServer

PAGE = (Path(__file__).parents[3] / "docs/agent.md").read_text()


def list_names(title: str) -> list[str]:
    """Return the names in the first column of the table below a title."""
    rows = PAGE.split(title)[1].split("\n## ")[0].splitlines()
    return [name for row in rows if row.startswith("| `") for name in re.findall(r"`(\w+)`", row.split("|")[1])]


def test_every_tool_is_described() -> None:
    assert sorted(list_names("## The tools")) == sorted(TOOLS)


def test_every_key_is_described_with_its_default() -> None:
    assert list_names("## agent.yaml") == [field.name for field in fields(AgentDefinition)]
    assert AgentDefinition().max_turns == 100


def test_the_rules_of_the_page_are_understood() -> None:
    rules, servers = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert parse_definition(rules).rules.allow[0].pattern == "pytest *"
    assert [server.name for server in parse_definition(servers).mcp_servers] == ["files", "wiki"]


def test_every_key_of_a_server_is_described() -> None:
    assert list_names("## MCP servers") == [field.name for field in fields(McpServer)[1:]]
