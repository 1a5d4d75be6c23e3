"""Put the hooks and the MCP server of Perdure into the settings of clients, and remove them. Pure: text in, text out.

Everything else in the settings stays as it is, in its order; settings of another shape are refused, never
rewritten. Our hooks are known by the mark in their command, our server by its name and its arguments.
Claude Code, Codex, Gemini CLI and Qwen Code share one shape of hooks:
`{"hooks": {event: [{"hooks": [{"type": "command", …}]}]}}`; `toml_hooks` has Kimi Code's. Files are read and written by
`setup`.
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from perdure.errors import ClientFault

# hooks --------------------------------------------------------------------------------------------------------

HOOK_MARK = "perdure-hook"  # name of the script in the home that hooks run
_OWN_COMMAND = re.compile(rf"(/bin/)?sh\s.*(?<![\w-]){HOOK_MARK}['\"]?\s", re.DOTALL)
_SCRIPT = """\
# Written by `perdure install`. Clients run it for each event: sh {name} CLIENT
python={python} hook={hook}
if [ -x "$python" ] && [ -f "$hook" ]; then
  "$python" -IS "$hook" --home {home} "$@"
elif grep -q '"SessionStart"'; then
  said="Perdure was moved or removed: nothing is captured. Run \\`perdure install $1\\` again."
  printf '{{"systemMessage": "%s"}}' "$said"
fi
exit 0
"""
_TIMEOUT_S = 5  # after which a client ends a hook itself; ours end long before
_LAST_TIMEOUT_S = 3  # the most that Codex gives the end of a session; Claude Code would give 1.5 without it
_EVENTS = ("SessionStart", "UserPromptSubmit", "Stop", "SubagentStop", "PreCompact", "PostCompact", "SessionEnd")
EVENTS = {  # an older version refuses a whole file with an event that it does not know
    "claude-code": (*_EVENTS, "PreToolUse", "PostToolUseFailure"),
    "codex": (*_EVENTS, "PreToolUse", "PostToolUse"),
    "gemini-cli": (  # not PreCompress: at each model call
        *("SessionStart", "BeforeAgent", "AfterAgent", "SessionEnd"),
        "AfterTool",  # what is said at BeforeTool does not reach the model
    ),
    "qwen-code": (
        *("SessionStart", "UserPromptSubmit", "Stop", "SubagentStop", "PreCompact", "SessionEnd"),
        *("PostToolUse", "PostToolUseFailure"),  # what is said at PreToolUse does not reach the model
    ),
    "kimi-code": (  # what is said at a tool call reaches nobody
        *("SessionStart", "UserPromptSubmit", "Stop", "SubagentStop", "PreCompact", "PostCompact", "SessionEnd"),
    ),
}
_TOOLS = {  # client -> its tools that run commands, and read or change files; the hooks of other tools cost nothing
    "claude-code": "Bash|Edit|MultiEdit|Write|Read|NotebookEdit",
    "codex": "Bash|apply_patch",
    "gemini-cli": "run_shell_command|replace|write_file|read_file",
    "qwen-code": "run_shell_command|edit|write_file|read_file|notebook_edit",
}

_TOOL_EVENT_ENDINGS = ("ToolUse", "ToolUseFailure", "AfterTool")

JsonObject = dict[str, Any]


class HookProgram(NamedTuple):
    """The program that a client runs for each hook."""

    python: str  # path of the interpreter
    hook: str  # path of the hook's file
    home: str  # path of the home


def to_script_path(home: str) -> str:
    """Return the path of the script in a home that hooks run."""
    return f"{home.rstrip('/')}/{HOOK_MARK}"


def render_script(program: HookProgram) -> str:
    """Return the script. Its status is 0 even if interpreter or package have moved away since.

    Then nothing is captured or recalled, and the start of each session says so.
    """
    quoted = {name: shlex.quote(value) for name, value in program._asdict().items()}
    return _SCRIPT.format(name=HOOK_MARK, **quoted)


def make_command(home: str, client: str, *, event: str) -> str:
    """Return the line for a client's shell. It is short, because clients show it. Its status is always 0."""
    fallback = "true"
    if event == "SessionStart":
        text = f"The home of Perdure was moved or removed: nothing is captured. `perdure uninstall {client}` ends this."
        fallback = shlex.join(["echo", json.dumps({"systemMessage": text})])
    return f"{shlex.join(['sh', to_script_path(home), client])} || {fallback}"


def change_home(command: str, home: str) -> str:
    """Return the same command for another home. Raises ClientFault if the command is not ours."""
    old_home = get_home(command)
    words, bar, fallback = command.rpartition(" || ")
    if bar:
        return f"{words} {shlex.join(['--home', home])}{bar}{fallback}"
    return shlex.join(home if word == old_home else word for word in shlex.split(command))


def get_home(command: str) -> str:
    """Return the home that one of our commands names. Raises ClientFault if the command is not ours."""
    words = shlex.split(command)
    if "--home" in words[:-1]:
        return words[words.index("--home") + 1]
    if len(words) > 2 and words[0] == "sh" and words[1].endswith(f"/{HOOK_MARK}"):
        return words[1].removesuffix(f"/{HOOK_MARK}") or "/"
    raise ClientFault("a hook of Perdure was changed by hand, or is of another version")


def add_hooks(settings: JsonObject, client: str, home: str) -> JsonObject:
    """Return the settings with our hooks, everything else unchanged. Raises ClientFault for another shape."""
    result = remove_hooks(settings)
    groups = dict(_get_groups(result))
    for event in EVENTS[client]:
        matcher = {"matcher": _TOOLS[client]} if event.endswith(_TOOL_EVENT_ENDINGS) else {}
        groups[event] = [*groups.get(event, []), {**matcher, "hooks": [_make_hook(home, client, event)]}]
    return {**result, "hooks": groups}


def make_plain_hooks(client: str, home: str) -> list[JsonObject]:
    """Return our hooks as a client has them that lists its hooks, each with its event."""
    return [
        {"event": event, "command": make_command(home, client, event=event), "timeout": _get_timeout_s(event)}
        for event in EVENTS[client]
    ]


def _make_hook(home: str, client: str, event: str) -> JsonObject:
    hook = {"type": "command", "command": make_command(home, client, event=event)}
    timeout_s = _get_timeout_s(event)
    if client in ("gemini-cli", "qwen-code"):  # they count in milliseconds, and show the name while the hook runs
        return {"name": "perdure", **hook, "timeout": timeout_s * 1000}
    return {**hook, "timeout": timeout_s}


def _get_timeout_s(event: str) -> int:
    return _LAST_TIMEOUT_S if event == "SessionEnd" else _TIMEOUT_S


def remove_hooks(settings: JsonObject) -> JsonObject:
    """Return the settings without our hooks, and without empty rests of them. Raises ClientFault for another shape."""
    groups = _get_groups(settings)
    remaining = {event: _drop_own_hooks(entries) for event, entries in groups.items()}
    remaining = {event: entries for event, entries in remaining.items() if entries or not groups[event]}
    if remaining or not groups:
        return {**settings, "hooks": remaining} if "hooks" in settings else dict(settings)
    return {name: value for name, value in settings.items() if name != "hooks"}


def find_commands(settings: JsonObject) -> dict[str, str]:
    """Return event -> command of our hooks."""
    return {
        event: hook["command"]
        for event, entries in _get_groups(settings).items()
        for entry in entries
        for hook in (entry["hooks"] if isinstance(entry.get("hooks"), list) else ())
        if is_own_hook(hook)
    }


def parse_settings(text: str, path: str) -> JsonObject:
    """Return the settings in a file's text; {} for an empty one.

    Raises ClientFault for settings that are not understood, so that nobody overwrites them.
    """
    try:
        value = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise ClientFault(f"{path} is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise ClientFault(f"{path} is not a JSON object")
    _get_groups(value, path)
    return value


def render_settings(settings: JsonObject, *, original: str) -> str:
    """Return the settings as text, indented as the original was. Half of a surrogate pair stays an escape."""
    match = re.search(r"\n([ \t]+)\S", original)
    indent = match[1] if match else "  "
    text = json.dumps(settings, indent=indent, ensure_ascii=False)
    text = re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)
    return text + ("\n" if original.endswith("\n") or not original else "")


def _get_groups(settings: JsonObject, path: str = "the settings") -> dict[str, list[JsonObject]]:
    groups = settings.get("hooks", {})
    lists = groups.values() if isinstance(groups, dict) else [None]
    if not all(isinstance(entries, list) and all(isinstance(e, dict) for e in entries) for entries in lists):
        raise ClientFault(f"{path}: `hooks` does not have the expected form")
    return dict(groups)


def _drop_own_hooks(entries: list[JsonObject]) -> list[JsonObject]:
    remaining = []
    for entry in entries:
        hooks = entry.get("hooks")
        if not isinstance(hooks, list) or not any(map(is_own_hook, hooks)):
            remaining.append(entry)
        elif other_hooks := [hook for hook in hooks if not is_own_hook(hook)]:
            remaining.append({**entry, "hooks": other_hooks})
    return remaining


def is_own_hook(hook: Any) -> bool:
    """Return True if Perdure wrote this hook."""
    return isinstance(hook, dict) and _OWN_COMMAND.match(str(hook.get("command", ""))) is not None


# the MCP server -----------------------------------------------------------------------------------------------

SERVER_NAME = "perdure"
CLIENTS = ("claude-code", "codex", "gemini-cli", "opencode", "qwen-code", "kimi-code")
_FOLDER_VARIABLES = {
    "claude-code": "CLAUDE_CONFIG_DIR",
    "codex": "CODEX_HOME",
    "gemini-cli": "GEMINI_CLI_HOME",
    "opencode": "XDG_CONFIG_HOME",
    "qwen-code": "QWEN_HOME",
    "kimi-code": "KIMI_CODE_HOME",
}
SERVER_MARK = "perdure.surfaces.cli"  # stands in the arguments of every server of ours
_OLD_MARK_LINES = ("# perdure begins", "# perdure ends")  # earlier versions put them around our table
_OWN_HEADER = re.compile(
    r"""\s*\[\[?\s*(["']?)mcp_servers\1\s*\.\s*(["']?)perdure\2\s*[.\]]"""
)  # its header, and sub-tables'


class ServerCommand(NamedTuple):
    """The command that a client runs for the MCP server."""

    command: str
    args: tuple[str, ...]


def make_server_command(python: str, home: str) -> ServerCommand:
    """Return this installation's server for a home. -P: imports nothing from the folder that a client works in."""
    return ServerCommand(python, ("-P", "-m", SERVER_MARK, "mcp", "--home", home))


def find_server_settings(client: str, user_home: Path, environment: Callable[[str], str | None]) -> Path:
    """Return the file in which a client looks for MCP servers; a link to it is followed."""
    root = environment(_FOLDER_VARIABLES[client])
    paths = {
        "claude-code": Path(root or user_home) / ".claude.json",
        "codex": (Path(root) if root else user_home / ".codex") / "config.toml",
        "gemini-cli": Path(root or user_home) / ".gemini" / "settings.json",
        "opencode": (Path(root) if root else user_home / ".config") / "opencode" / "opencode.json",
        "qwen-code": (Path(root) if root else user_home / ".qwen") / "settings.json",
        "kimi-code": (Path(root) if root else user_home / ".kimi-code") / "mcp.json",
    }
    return paths[client].expanduser().resolve()


def add_server(client: str, text: str, server_command: ServerCommand, path: str) -> str:
    """Return the settings with our server. Raises ClientFault for settings that are not understood."""
    if client == "codex":
        return _add_to_toml(text, server_command, path)
    settings, key = _parse_with_key(client, text, path)
    servers = settings.get(key, {})
    if servers.get(SERVER_NAME) == _make_entry(client, server_command):
        return text
    _refuse_foreign_server(servers, path)
    return render_settings(
        {**settings, key: {**servers, SERVER_NAME: _make_entry(client, server_command)}}, original=text
    )


def remove_server(client: str, text: str, path: str) -> str:
    """Return the settings without our server and without what that leaves empty. Raises ClientFault."""
    if client == "codex":
        return _remove_from_toml(text, path)
    settings, key = _parse_with_key(client, text, path)
    if not _is_own_server(settings.get(key, {}).get(SERVER_NAME)):
        return text
    remaining = {name: value for name, value in settings[key].items() if name != SERVER_NAME}
    return render_settings(
        {**settings, key: remaining} if remaining else {k: v for k, v in settings.items() if k != key}, original=text
    )


def get_command(client: str, text: str, path: str) -> list[str]:
    """Return the command that the client was set up with; empty when it was not. Raises ClientFault."""
    if client == "codex":
        entry = _get_servers(parse_toml(text, path), path).get(SERVER_NAME, {})
    else:
        settings, key = _parse_with_key(client, text, path)
        entry = settings.get(key, {}).get(SERVER_NAME, {})
    command = entry.get("command", [])
    return list(map(str, command)) if isinstance(command, list) else [str(command), *map(str, entry.get("args", []))]


def _make_entry(client: str, server_command: ServerCommand) -> JsonObject:
    if client == "opencode":
        return {"type": "local", "command": [server_command.command, *server_command.args], "enabled": True}
    entry: JsonObject = {"command": server_command.command, "args": list(server_command.args)}
    return {"type": "stdio", **entry} if client == "claude-code" else entry


def _parse_with_key(client: str, text: str, path: str) -> tuple[JsonObject, str]:
    """Return (the settings, the name of the table of servers in them)."""
    settings, key = parse_settings(text, path), "mcp" if client == "opencode" else "mcpServers"
    if not isinstance(settings.get(key, {}), dict):
        raise ClientFault(f"{path}: `{key}` does not have the expected form")
    return settings, key


def _is_own_server(entry: Any) -> bool:
    values = [entry.get("command"), entry.get("args")] if isinstance(entry, dict) else []
    return any(SERVER_MARK in value for value in values if isinstance(value, list))


def _refuse_foreign_server(servers: JsonObject, path: str) -> None:
    if SERVER_NAME in servers and not _is_own_server(servers[SERVER_NAME]):
        raise ClientFault(f"{path} already has an MCP server `{SERVER_NAME}` that Perdure did not write")


def _add_to_toml(text: str, server_command: ServerCommand, path: str) -> str:
    servers = _get_servers(parse_toml(text, path), path)
    _refuse_foreign_server(servers, path)
    entry = {"command": server_command.command, "args": list(server_command.args)}
    if SERVER_NAME in servers and entry.items() <= servers[SERVER_NAME].items():
        return text
    other_text = _remove_from_toml(text, path)
    arguments = ", ".join(map(_quote_toml, server_command.args))
    own_table = f"[mcp_servers.{SERVER_NAME}]\ncommand = {_quote_toml(server_command.command)}\nargs = [{arguments}]\n"
    return _check_result(
        f"{other_text.rstrip()}\n\n{own_table}" if other_text.strip() else own_table, entry, text, path
    )


def _remove_from_toml(text: str, path: str) -> str:
    """Return the text without our table, if it has one."""
    if not _is_own_server(_get_servers(parse_toml(text, path), path).get(SERVER_NAME)):
        return text
    return _check_result(_drop_own_table(text), None, text, path)


def _drop_own_table(text: str) -> str:
    """Return the text without our table, its sub-tables and marks.

    Comments after the last line of our table belong to the next one.
    """
    kept_lines: list[str] = []
    trailing_lines: list[str] = []
    is_inside = False
    for line in re.split(r"(?<=\n)", text):
        content = line.strip()
        if content in _OLD_MARK_LINES:
            continue
        if content.startswith("["):
            is_inside = _OWN_HEADER.match(line) is not None
        if is_inside:
            trailing_lines = [] if content and not content.startswith("#") else [*trailing_lines, line]
        else:
            kept_lines += [*_trim_blank_lines(kept_lines, trailing_lines), line]
            trailing_lines = []
    result = "".join([*kept_lines, *_trim_blank_lines(kept_lines, trailing_lines)])
    return f"{result.rstrip()}\n" if is_inside and result.strip() else result.lstrip("\r\n")


def _trim_blank_lines(kept_lines: list[str], trailing_lines: list[str]) -> list[str]:
    """Return the lines after our table, without blank ones that would follow a blank one."""
    has_content = [bool(line.strip()) for line in trailing_lines]
    n_blank = has_content.index(True) if True in has_content else len(has_content)
    return trailing_lines[n_blank:] if not kept_lines or not kept_lines[-1].strip() else trailing_lines


def _check_result(new_text: str, own_entry: JsonObject | None, text: str, path: str) -> str:
    """Return the new text, if it differs from the old one only in our table. Raises ClientFault."""
    try:
        new_settings = tomllib.loads(new_text)
    except tomllib.TOMLDecodeError:
        new_settings = {}
    old_settings = tomllib.loads(text)
    expected = {name: entry for name, entry in old_settings.get("mcp_servers", {}).items() if name != SERVER_NAME}
    expected |= {SERVER_NAME: own_entry} if own_entry else {}
    if {**new_settings, "mcp_servers": new_settings.get("mcp_servers", {})} != {
        **old_settings,
        "mcp_servers": expected,
    }:
        raise ClientFault(
            f"{path}: `[mcp_servers.{SERVER_NAME}]` cannot be separated from the text around it; change it by hand"
        )
    return new_text


def _get_servers(settings: JsonObject, path: str) -> JsonObject:
    servers = settings.get("mcp_servers", {})
    if not isinstance(servers, dict):
        raise ClientFault(f"{path}: `mcp_servers` does not have the expected form")
    return servers


def _quote_toml(word: str) -> str:
    """Return a word as a string of TOML, whose escapes are JSON's."""
    return json.dumps(word, ensure_ascii=False)


def parse_toml(text: str, path: str) -> dict[str, Any]:
    """Return the settings in a file's text. Raises ClientFault for settings that are not understood."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ClientFault(f"{path} is not TOML ({error})") from error
