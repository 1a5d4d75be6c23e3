"""The key mcp_servers of agent.yaml."""

from __future__ import annotations

import pytest

from perdure.agent.definition import parse_definition
from perdure.agent.mcp_settings import McpServer
from perdure.errors import DefinitionFault


def test_every_key_is_read() -> None:
    page = (
        "mcp_servers:\n  files:\n    command: npx\n    args: [-y, server, .]\n    env: {LEVEL: debug}\n"
        "    environment: [A_TOKEN]\n"
        "    tools: [read]\n    trust_read_only: true\n    timeout_s: 5\n"
        "  wiki:\n    url: https://wiki.example/mcp\n    key_env: WIKI\n"
    )
    assert parse_definition(page).mcp_servers == (
        McpServer(
            "files", "npx", ("-y", "server", "."), (("LEVEL", "debug"),), ("A_TOKEN",), "", "", ("read",), True, 5
        ),
        McpServer("wiki", url="https://wiki.example/mcp", key_env="WIKI"),
    )
    assert parse_definition("name: a").mcp_servers == ()


@pytest.mark.parametrize(("settings", "why"), [
    ("[]", "mcp_servers: must be a mapping"), ("{a: 1}", "mcp_servers.a: must be a mapping"),
    ("{a__b: {command: x}}", "a__b: a name"),
    ("{A: {command: x}}", "A: a name"), ("{1: {command: x}}", "1: a name"),
    (f"{{{'a' * 33}: {{command: x}}}}", "at most 32"),
    ("{a: {}}", "either command or url"), ("{a: {command: x, url: 'http://x'}}", "either command or url"),
    ("{a: {comand: x}}", "comand"), ("{a: {command: [x]}}", "a.command"), ("{a: {command: x, args: y}}", "a.args"),
    ("{a: {command: x, env: [y]}}", "a.env"), ("{a: {command: x, env: {y: 1}}}", "a.env"),
    ("{a: {url: 'ftp://x'}}", "a.url"),
    ("{a: {command: x, timeout_s: 0}}", "timeout_s"), ("{a: {command: x, timeout_s: true}}", "timeout_s"),
    ("{a: {command: x, trust_read_only: 1}}", "trust_read_only"),
])  # fmt: skip
def test_a_wrong_server_names_its_key(settings: str, why: str) -> None:
    with pytest.raises(DefinitionFault) as caught:
        parse_definition(f"mcp_servers: {settings}")
    assert why in caught.value.detail
