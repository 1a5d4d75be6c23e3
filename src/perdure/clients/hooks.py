"""The hooks that Perdure puts into the settings of Claude Code, Codex and Gemini CLI, and their command. Pure.

These clients share one shape: `{"hooks": {event: [{"hooks": [{"type": "command", …}]}]}}`. Everything
else in the settings stays as it is, in its order. Our hooks are known by the mark in their command.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Any, NamedTuple

from perdure.errors import ClientFault

HOOK_MARK = "perdure-hook"  # also the script's name in a list of processes
_SCRIPT = 'if [ -x "$1" ] && [ -f "$2" ]; then "$1" -IS "$2" "$3" --home "$4"; else printf %s "$5"; fi; exit 0'
_TIMEOUT_S = 5  # after which a client ends a hook itself; ours end long before
_LAST_TIMEOUT_S = 3  # the most that Codex gives the end of a session; Claude Code would give 1.5 without it
_EVENTS = ("SessionStart", "UserPromptSubmit", "Stop", "SubagentStop", "PreCompact", "PostCompact", "SessionEnd")
EVENTS = {  # an older version refuses a whole file with an event that it does not know
    "claude-code": _EVENTS,
    "codex": _EVENTS,
    "gemini-cli": ("SessionStart", "BeforeAgent", "AfterAgent", "SessionEnd"),  # not PreCompress: at each model call
}

JsonObject = dict[str, Any]


class HookProgram(NamedTuple):
    """The program that a client runs for each hook."""

    python: str  # path of the interpreter
    hook: str  # path of the hook's file
    home: str  # path of the home


def make_command(program: HookProgram, client: str, *, event: str) -> str:
    """Return the line for a client's shell. Its status is 0 even if interpreter or package have moved away since.

    Then nothing is captured or recalled, and the start of each session says so.
    """
    words = ["/bin/sh", "-c", _SCRIPT, HOOK_MARK, program.python, program.hook, client, program.home]
    if event == "SessionStart":
        text = f"Perdure is not where it was set up: nothing is captured. Run `perdure install {client}` again."
        words.append(json.dumps({"systemMessage": text}))
    return shlex.join(words)


def change_home(command: str, home: str) -> str:
    """Return the same command for another home. Raises ClientFault if the command is not ours."""
    words = shlex.split(command)
    words[_find_home_index(words)] = home
    return shlex.join(words)


def get_home(command: str) -> str:
    """Return the home that one of our commands names. Raises ClientFault if the command is not ours."""
    words = shlex.split(command)
    return words[_find_home_index(words)]


def _find_home_index(words: list[str]) -> int:
    """Return the index of the home: after the script's four other words, or after its flag."""
    index = (
        words.index(HOOK_MARK) + 4
        if HOOK_MARK in words
        else words.index("--home") + 1
        if "--home" in words
        else len(words)
    )
    if index >= len(words):
        raise ClientFault("a hook of Perdure was changed by hand")
    return index


def add_hooks(settings: JsonObject, client: str, program: HookProgram) -> JsonObject:
    """Return the settings with our hooks, everything else unchanged. Raises ClientFault for another shape."""
    result = remove_hooks(settings)
    groups = dict(_get_groups(result))
    for event in EVENTS[client]:
        groups[event] = [*groups.get(event, []), {"hooks": [_make_hook(program, client, event)]}]
    return {**result, "hooks": groups}


def _make_hook(program: HookProgram, client: str, event: str) -> JsonObject:
    hook = {"type": "command", "command": make_command(program, client, event=event)}
    timeout = _LAST_TIMEOUT_S if event == "SessionEnd" else _TIMEOUT_S
    if client == "gemini-cli":  # it counts in milliseconds, and shows the name while the hook runs
        return {"name": "perdure", **hook, "timeout": timeout * 1000}
    return {**hook, "timeout": timeout}


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
        if _is_own_hook(hook)
    }


def parse_settings(text: str, path: str) -> JsonObject:
    """Return the settings in a file's text; {} for an empty one.

    Raises ClientFault for settings that are not understood, so that nobody overwrites them.
    """
    try:
        value = json.loads(text) if text.strip() else {}
    except ValueError as error:
        raise ClientFault(f"{path} is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise ClientFault(f"{path} holds no JSON object")
    _get_groups(value, path)
    return value


def render_settings(settings: JsonObject, *, original: str) -> str:
    """Return the settings as text, indented as the original was."""
    match = re.search(r"\n([ \t]+)\S", original)
    indent = match[1] if match else "  "
    return json.dumps(settings, indent=indent, ensure_ascii=False) + (
        "\n" if original.endswith("\n") or not original else ""
    )


def _get_groups(settings: JsonObject, path: str = "the settings") -> dict[str, list[JsonObject]]:
    groups = settings.get("hooks", {})
    lists = groups.values() if isinstance(groups, dict) else [None]
    if not all(isinstance(entries, list) and all(isinstance(e, dict) for e in entries) for entries in lists):
        raise ClientFault(f"{path}: `hooks` has another shape than expected")
    return dict(groups)


def _drop_own_hooks(entries: list[JsonObject]) -> list[JsonObject]:
    remaining = []
    for entry in entries:
        hooks = entry.get("hooks")
        if not isinstance(hooks, list) or not any(map(_is_own_hook, hooks)):
            remaining.append(entry)
        elif other_hooks := [hook for hook in hooks if not _is_own_hook(hook)]:
            remaining.append({**entry, "hooks": other_hooks})
    return remaining


def _is_own_hook(hook: Any) -> bool:
    return isinstance(hook, dict) and f" {HOOK_MARK} " in str(hook.get("command", ""))
