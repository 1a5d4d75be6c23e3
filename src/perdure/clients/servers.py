"""Perdure among the MCP servers of a client's settings: put in and taken out. Pure; `setup` writes.

Everything else in the file stays as it is. Codex' settings are TOML, which is added to and never written anew: ours
stands between two marks at its end.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from perdure.clients.hooks import Json, parsed, rendered
from perdure.errors import ClientFault

NAME = "perdure"
CLIENTS = ("claude-code", "codex", "gemini-cli", "opencode")
_BEGIN, _END = "# perdure begins", "# perdure ends"
_OURS = re.compile(rf"\n*^{_BEGIN}$.*?^{_END}$\n?", re.DOTALL | re.MULTILINE)


class Server(NamedTuple):
    """What a client is to run."""

    command: str
    args: tuple[str, ...]


def server(python: str, home: str) -> Server:
    """This installation's server for a home. -P: what lies in the folder that a client works in is not imported."""
    return Server(python, ("-P", "-m", "perdure.surfaces.cli", "mcp", "--home", home))


def settings_path(client: str, user_home: Path, environment: Callable[[str], str | None]) -> Path:
    """The file in which a client looks for MCP servers; a link to it is followed."""
    moved = {"claude-code": "CLAUDE_CONFIG_DIR", "codex": "CODEX_HOME", "opencode": "XDG_CONFIG_HOME"}
    root = environment(moved.get(client, "GEMINI_CLI_HOME"))
    places = {
        "claude-code": Path(root or user_home) / ".claude.json",
        "codex": (Path(root) if root else user_home / ".codex") / "config.toml",
        "gemini-cli": Path(root or user_home) / ".gemini" / "settings.json",
        "opencode": (Path(root) if root else user_home / ".config") / "opencode" / "opencode.json",
    }
    return places[client].expanduser().resolve()


def installed(client: str, text: str, what: Server, path: str) -> str:
    """The settings with our server in them. Raises ClientFault for settings that are not understood."""
    if client == "codex":
        return _in_toml(text, what, path)
    settings, key = _settings(client, text, path)
    if settings.get(key, {}).get(NAME) == _entry(client, what):
        return text
    return rendered({**settings, key: {**settings.get(key, {}), NAME: _entry(client, what)}}, like=text)


def removed(client: str, text: str, path: str) -> str:
    """The settings without our server; what that leaves empty goes, too. Raises ClientFault."""
    if client == "codex":
        return _OURS.sub("\n" if _OURS.search(text) and not text.startswith(_BEGIN) else "", text)
    settings, key = _settings(client, text, path)
    if NAME not in settings.get(key, {}):
        return text
    left = {name: value for name, value in settings[key].items() if name != NAME}
    return rendered({**settings, key: left} if left else {k: v for k, v in settings.items() if k != key}, like=text)


def command_of(client: str, text: str, path: str) -> list[str]:
    """The command that the client was set up with; empty when it was not. Raises ClientFault."""
    if client == "codex":
        found = _toml(text, path).get("mcp_servers", {}).get(NAME, {})
    else:
        settings, key = _settings(client, text, path)
        found = settings.get(key, {}).get(NAME, {})
    said = found.get("command", [])
    return list(map(str, said)) if isinstance(said, list) else [str(said), *map(str, found.get("args", []))]


def _entry(client: str, what: Server) -> Json:
    if client == "opencode":
        return {"type": "local", "command": [what.command, *what.args], "enabled": True}
    entry: Json = {"command": what.command, "args": list(what.args)}
    return {"type": "stdio", **entry} if client == "claude-code" else entry


def _settings(client: str, text: str, path: str) -> tuple[Json, str]:
    """(the settings, the name of the table of servers in them)."""
    settings, key = parsed(text, path), "mcp" if client == "opencode" else "mcpServers"
    if not isinstance(settings.get(key, {}), dict):
        raise ClientFault(f"{path}: `{key}` has another shape than expected")
    return settings, key


def _in_toml(text: str, what: Server, path: str) -> str:
    without = _OURS.sub("\n", text) if _OURS.search(text) else text
    if NAME in _toml(without, path).get("mcp_servers", {}):
        raise ClientFault(f"{path} has an MCP server `{NAME}` already that is not ours")
    words = ", ".join(map(_quoted, what.args))
    ours = f"{_BEGIN}\n[mcp_servers.{NAME}]\ncommand = {_quoted(what.command)}\nargs = [{words}]\n{_END}\n"
    made = f"{without.rstrip()}\n\n{ours}" if without.strip() else ours
    _toml(made, path)
    return made


def _quoted(word: str) -> str:
    """A word as a string of TOML, whose escapes are JSON's."""
    return json.dumps(word, ensure_ascii=False)


def _toml(text: str, path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ClientFault(f"{path} is no TOML ({error})") from error
