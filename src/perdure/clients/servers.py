"""Perdure among the MCP servers of a client's settings: put in and taken out. Pure; `setup` writes.

Everything else in the file stays as it is. Codex' settings are TOML, which is added to and never written anew: Codex
moves comments about, so ours is known by its table alone, and what is left must mean what it meant.
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
MARK = "perdure.surfaces.cli"  # in the arguments of every server of ours
_LINES = ("# perdure begins", "# perdure ends")  # which stood round our table once
_OURS = re.compile(
    r"""\s*\[\[?\s*(["']?)mcp_servers\1\s*\.\s*(["']?)perdure\2\s*[.\]]"""
)  # its header, and sub-tables'


class Server(NamedTuple):
    """What a client is to run."""

    command: str
    args: tuple[str, ...]


def server(python: str, home: str) -> Server:
    """This installation's server for a home. -P: what lies in the folder that a client works in is not imported."""
    return Server(python, ("-P", "-m", MARK, "mcp", "--home", home))


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
    there = settings.get(key, {})
    if there.get(NAME) == _entry(client, what):
        return text
    _refuse_strangers(there, path)
    return rendered({**settings, key: {**there, NAME: _entry(client, what)}}, like=text)


def removed(client: str, text: str, path: str) -> str:
    """The settings without our server; what that leaves empty goes, too. Raises ClientFault."""
    if client == "codex":
        return _out_of_toml(text, path)
    settings, key = _settings(client, text, path)
    if not _is_ours(settings.get(key, {}).get(NAME)):
        return text
    left = {name: value for name, value in settings[key].items() if name != NAME}
    return rendered({**settings, key: left} if left else {k: v for k, v in settings.items() if k != key}, like=text)


def command_of(client: str, text: str, path: str) -> list[str]:
    """The command that the client was set up with; empty when it was not. Raises ClientFault."""
    if client == "codex":
        found = _tables(_toml(text, path), path).get(NAME, {})
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


def _is_ours(entry: Any) -> bool:
    words = [entry.get("command"), entry.get("args")] if isinstance(entry, dict) else []
    return any(MARK in said for said in words if isinstance(said, list))


def _refuse_strangers(there: Json, path: str) -> None:
    if NAME in there and not _is_ours(there[NAME]):
        raise ClientFault(f"{path} has an MCP server `{NAME}` already that is not ours")


def _in_toml(text: str, what: Server, path: str) -> str:
    there = _tables(_toml(text, path), path)
    _refuse_strangers(there, path)
    wanted = {"command": what.command, "args": list(what.args)}
    if NAME in there and wanted.items() <= there[NAME].items():
        return text
    without = _out_of_toml(text, path)
    words = ", ".join(map(_quoted, what.args))
    ours = f"[mcp_servers.{NAME}]\ncommand = {_quoted(what.command)}\nargs = [{words}]\n"
    return _checked(f"{without.rstrip()}\n\n{ours}" if without.strip() else ours, wanted, text, path)


def _out_of_toml(text: str, path: str) -> str:
    """The text without our table, where it has one."""
    if not _is_ours(_tables(_toml(text, path), path).get(NAME)):
        return text
    return _checked(_without_table(text), None, text, path)


def _without_table(text: str) -> str:
    """The text without our table, its sub-tables and marks; comments behind its last line belong to what follows."""
    left: list[str] = []
    behind: list[str] = []
    inside = False
    for line in re.split(r"(?<=\n)", text):
        word = line.strip()
        if word in _LINES:
            continue
        if word.startswith("["):
            inside = _OURS.match(line) is not None
        if inside:
            behind = [] if word and not word.startswith("#") else [*behind, line]
        else:
            left += [*_spaced(left, behind), line]
            behind = []
    whole = "".join([*left, *_spaced(left, behind)])
    return f"{whole.rstrip()}\n" if inside and whole.strip() else whole.lstrip("\r\n")


def _spaced(left: list[str], behind: list[str]) -> list[str]:
    """The lines behind our table, without blank ones that would follow a blank one."""
    words = [bool(line.strip()) for line in behind]
    n_blank = words.index(True) if True in words else len(words)
    return behind[n_blank:] if not left or not left[-1].strip() else behind


def _checked(made: str, ours: Json | None, text: str, path: str) -> str:
    """What was made of the text, if it differs in our table alone. Raises ClientFault."""
    try:
        now = tomllib.loads(made)
    except tomllib.TOMLDecodeError:
        now = {}
    was = tomllib.loads(text)
    expected = {name: entry for name, entry in was.get("mcp_servers", {}).items() if name != NAME}
    expected |= {NAME: ours} if ours else {}
    if {**now, "mcp_servers": now.get("mcp_servers", {})} != {**was, "mcp_servers": expected}:
        raise ClientFault(f"{path}: `[mcp_servers.{NAME}]` cannot be told from what stands round it; change it by hand")
    return made


def _tables(settings: Json, path: str) -> Json:
    there = settings.get("mcp_servers", {})
    if not isinstance(there, dict):
        raise ClientFault(f"{path}: `mcp_servers` has another shape than expected")
    return there


def _quoted(word: str) -> str:
    """A word as a string of TOML, whose escapes are JSON's."""
    return json.dumps(word, ensure_ascii=False)


def _toml(text: str, path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ClientFault(f"{path} is no TOML ({error})") from error
