"""The MCP servers that the page `agent.yaml` names: what is started or reached, and what is believed of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from perdure.errors import DefinitionFault
from perdure.regex import lazy_re

DEFAULT_TIMEOUT_S, MAX_TIMEOUT_S = 60, 1800
_NAME = lazy_re(r"[a-z][a-z0-9]*(?:[_-][a-z0-9]+)*")  # no `__`, which parts the server from its tool
MAX_NAME_CHARS = 32


@dataclass(frozen=True)
class McpServer:
    """A server whose tools an agent has. Each field but the first is a key below its name in `mcp_servers`."""

    name: str
    command: str = ""  # the program to start
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()  # variables that it gets, with their values
    environment: tuple[str, ...] = ()  # variables of ours that it gets; besides them only PATH, HOME and the like
    url: str = ""  # or the address to reach, of the streamable HTTP transport
    key_env: str = ""  # the variable with the bearer token for it
    tools: tuple[str, ...] = ()  # those of its tools that the agent has; () for all
    trust_read_only: bool = False  # run what it says only reads without asking
    timeout_s: float = DEFAULT_TIMEOUT_S  # the longest that a call may take


def parse_servers(value: Any) -> tuple[McpServer, ...]:
    """Return the servers of `mcp_servers`, in their order. Raises DefinitionFault, which names the key."""
    if not isinstance(value, Mapping):
        raise DefinitionFault("mcp_servers: must be a mapping of names to settings")
    return tuple(parse_server(name, settings) for name, settings in value.items())


def parse_server(name: Any, settings: Any) -> McpServer:
    """Return one server. Raises DefinitionFault."""
    key = f"mcp_servers.{name}"
    if not isinstance(name, str) or len(name) > MAX_NAME_CHARS or not _NAME.fullmatch(name):
        raise DefinitionFault(f"{key}: a name has letters a-z, digits, single - and _, at most {MAX_NAME_CHARS}")
    if not isinstance(settings, Mapping):
        raise DefinitionFault(f"{key}: must be a mapping of settings")
    known = {field.name: getattr(McpServer, field.name) for field in fields(McpServer)[1:]}
    if unknown := sorted(str(key) for key in settings if key not in known):
        raise DefinitionFault(f"{key}.{unknown[0]} (known: {', '.join(known)})")
    values = {name: _read_value(f"{key}.{name}", value, known[name]) for name, value in settings.items()}
    server = McpServer(name, **values)
    if bool(server.command) == bool(server.url):
        raise DefinitionFault(f"{key}: needs either command or url")
    if server.url and not server.url.startswith(("http://", "https://")):
        raise DefinitionFault(f"{key}.url: {server.url!r} does not begin with https:// or http://")
    if not 0 < server.timeout_s <= MAX_TIMEOUT_S:
        raise DefinitionFault(f"{key}.timeout_s: must be more than 0 and at most {MAX_TIMEOUT_S}")
    return server


def _read_value(key: str, value: Any, default: Any) -> Any:
    """Return a value with the type of its default. Raises DefinitionFault."""
    if key.endswith(".env"):
        if not isinstance(value, Mapping) or not all(isinstance(item, str) for pair in value.items() for item in pair):
            raise DefinitionFault(f"{key}: must be a mapping of names to texts")
        return tuple(value.items())
    if isinstance(default, tuple):
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise DefinitionFault(f"{key}: must be a list of texts")
        return tuple(value)
    kinds = {bool: "true or false", str: "a text", float: "a number", int: "a number"}
    is_number = isinstance(default, (int, float)) and not isinstance(default, bool)
    is_right = type(value) in (int, float) if is_number else type(value) is type(default)
    if not is_right:
        raise DefinitionFault(f"{key}: {value!r} is not {kinds[type(default)]}")
    return value
