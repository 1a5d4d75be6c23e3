"""The hooks that Perdure puts into the settings of Claude Code, Codex and Gemini CLI, and their command. Pure.

These clients know the same shape: `{"hooks": {event: [{"hooks": [{"type": "command", …}]}]}}`. Whatever else stands in
there stays as it is, in its order. Ours are known by the mark in their command.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Any, NamedTuple

from perdure.errors import ClientFault

MARK = "perdure-hook"  # the script's name in a list of processes
_SCRIPT = 'if [ -x "$1" ] && [ -f "$2" ]; then "$1" -IS "$2" "$3" --home "$4"; else printf %s "$5"; fi; exit 0'
_TIMEOUT_S = 5  # after which a client ends a hook itself; ours end long before
_LAST_TIMEOUT_S = 3  # the most that Codex gives the end of a session; Claude Code would give 1.5 without it
_EVENTS = ("SessionStart", "UserPromptSubmit", "Stop", "SubagentStop", "PreCompact", "PostCompact", "SessionEnd")
EVENTS = {  # none that an older version refuses, with the whole file
    "claude-code": _EVENTS,
    "codex": _EVENTS,
    "gemini-cli": ("SessionStart", "BeforeAgent", "AfterAgent", "SessionEnd"),  # not PreCompress: each call of a model
}

Json = dict[str, Any]


class Program(NamedTuple):
    """What a client is to run."""

    python: str  # path of the interpreter
    hook: str  # path of the hook's file
    home: str  # path of the home


def command(program: Program, client: str, *, event: str) -> str:
    """The line for a client's shell. Its status is 0 even where interpreter or package have moved away since.

    Then nothing is captured or recalled, which the start of each session says.
    """
    words = ["/bin/sh", "-c", _SCRIPT, MARK, program.python, program.hook, client, program.home]
    if event == "SessionStart":
        text = f"Perdure is not where it was set up: nothing is captured. Run `perdure install {client}` again."
        words.append(json.dumps({"systemMessage": text}))
    return shlex.join(words)


def at_home(line: str, home: str) -> str:
    """The same command for another home. Raises ClientFault for what is none of our commands."""
    words = shlex.split(line)
    words[_at(words)] = home
    return shlex.join(words)


def home_of(line: str) -> str:
    """The home that one of our commands names. Raises ClientFault for what is none of them."""
    words = shlex.split(line)
    return words[_at(words)]


def _at(words: list[str]) -> int:
    """Where the home stands: behind the script's four other words, or behind its flag."""
    at = words.index(MARK) + 4 if MARK in words else words.index("--home") + 1 if "--home" in words else len(words)
    if at >= len(words):
        raise ClientFault("a hook of ours was changed by hand")
    return at


def installed(settings: Json, client: str, program: Program) -> Json:
    """The settings with our hooks in them, and everything else as it was. Raises ClientFault for another shape."""
    result = removed(settings)
    groups = dict(_groups(result))
    for event in EVENTS[client]:
        groups[event] = [*groups.get(event, []), {"hooks": [_hook(program, client, event)]}]
    return {**result, "hooks": groups}


def _hook(program: Program, client: str, event: str) -> Json:
    hook = {"type": "command", "command": command(program, client, event=event)}
    timeout = _LAST_TIMEOUT_S if event == "SessionEnd" else _TIMEOUT_S
    if client == "gemini-cli":  # it counts in milliseconds, and shows the name while the hook runs
        return {"name": "perdure", **hook, "timeout": timeout * 1000}
    return {**hook, "timeout": timeout}


def removed(settings: Json) -> Json:
    """The settings without our hooks; what they leave empty goes, too. Raises ClientFault for another shape."""
    given = _groups(settings)
    kept = {event: _without_ours(entries) for event, entries in given.items()}
    kept = {event: entries for event, entries in kept.items() if entries or not given[event]}
    if kept or not given:
        return {**settings, "hooks": kept} if "hooks" in settings else dict(settings)
    return {name: value for name, value in settings.items() if name != "hooks"}


def found(settings: Json) -> dict[str, str]:
    """Event -> command, of the hooks that are ours."""
    return {
        event: hook["command"]
        for event, entries in _groups(settings).items()
        for entry in entries
        for hook in (entry["hooks"] if isinstance(entry.get("hooks"), list) else ())
        if _is_ours(hook)
    }


def parsed(text: str, path: str) -> Json:
    """The settings in a file's text; {} for none. Raises ClientFault, so that nothing is written over what is not
    understood.
    """
    try:
        value = json.loads(text) if text.strip() else {}
    except ValueError as error:
        raise ClientFault(f"{path} is no JSON ({error})") from error
    if not isinstance(value, dict):
        raise ClientFault(f"{path} holds no object")
    _groups(value, path)
    return value


def rendered(settings: Json, *, like: str) -> str:
    """The settings as text, indented as they were."""
    match = re.search(r"\n([ \t]+)\S", like)
    indent = match[1] if match else "  "
    return json.dumps(settings, indent=indent, ensure_ascii=False) + ("\n" if like.endswith("\n") or not like else "")


def _groups(settings: Json, path: str = "the settings") -> dict[str, list[Json]]:
    groups = settings.get("hooks", {})
    lists = groups.values() if isinstance(groups, dict) else [None]
    if not all(isinstance(entries, list) and all(isinstance(e, dict) for e in entries) for entries in lists):
        raise ClientFault(f"{path}: `hooks` has another shape than expected")
    return dict(groups)


def _without_ours(entries: list[Json]) -> list[Json]:
    kept = []
    for entry in entries:
        hooks = entry.get("hooks")
        if not isinstance(hooks, list) or not any(map(_is_ours, hooks)):
            kept.append(entry)
        elif rest := [hook for hook in hooks if not _is_ours(hook)]:
            kept.append({**entry, "hooks": rest})
    return kept


def _is_ours(hook: Any) -> bool:
    return isinstance(hook, dict) and f" {MARK} " in str(hook.get("command", ""))
