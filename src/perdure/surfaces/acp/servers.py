"""The MCP servers that a client has for a session, as the agent takes them. Pure.

The client's person chose them in their editor. They come after those of the agent's definition, and their calls are
asked about like any call of which nothing is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from acp.schema import AcpMcpServer, HttpMcpServer, McpServerStdio, SseMcpServer

from perdure.agent.mcp_settings import McpServer

ClientServer = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio


class ServerChoice(NamedTuple):
    """The servers that can be used, and why others cannot."""

    servers: tuple[McpServer, ...] = ()
    problems: tuple[str, ...] = ()


NO_SERVERS = ServerChoice()


def read_servers(given: Sequence[ClientServer]) -> ServerChoice:
    """Return the servers of a client: programs, and addresses without headers of their own."""
    servers: list[McpServer] = []
    problems: list[str] = []
    for server in given:
        if isinstance(server, McpServerStdio):
            variables = tuple((variable.name, variable.value) for variable in server.env)
            servers.append(McpServer(server.name, server.command, tuple(server.args), variables))
        elif isinstance(server, HttpMcpServer) and not server.headers:
            servers.append(McpServer(server.name, url=server.url))
        else:
            why = "its headers" if isinstance(server, HttpMcpServer) else "its transport"
            problems.append(
                f"The MCP server {server.name} of the editor is not used, because of {why}. "
                "`mcp_servers` in agent.yaml can name it."
            )
    return ServerChoice(tuple(servers), tuple(problems))
