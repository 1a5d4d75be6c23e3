"""Put the hooks of Perdure into Kimi Code's `config.toml`, and take them out again. Pure: text in, text out.

Kimi Code has a table `[[hooks]]` for each hook: `event`, `matcher`, `command`, `timeout` in seconds. Our tables are
known by their command. Every other line stays as it is; a text in which our tables cannot be told from the lines
around them is refused.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

from perdure.clients import entries
from perdure.errors import ClientFault

_HEADER = re.compile(r"\s*\[")
_HOOK_HEADER = re.compile(r"\s*\[\[\s*hooks\s*\]\]")


def add_hooks(text: str, client: str, home: str, path: str) -> str:
    """Return the settings with our hooks behind everything else. Raises ClientFault for another shape."""
    own_hooks = entries.make_plain_hooks(client, home)
    if [hook for hook in _read_hooks(text, path) if entries.is_own_hook(hook)] == own_hooks:
        return text
    other_text = remove_hooks(text, path)
    tables = "\n".join(map(_render_table, own_hooks))
    new_text = f"{other_text.rstrip()}\n\n{tables}" if other_text.strip() else tables
    return _check_result(new_text, own_hooks, text, path)


def remove_hooks(text: str, path: str) -> str:
    """Return the settings without our hooks. Raises ClientFault for another shape."""
    if not any(map(entries.is_own_hook, _read_hooks(text, path))):
        return text
    kept_lines: list[str] = []
    for table_lines in _split_tables(text):
        kept_lines += _list_comments_below(table_lines) if _is_own_table(table_lines) else table_lines
    remaining = "".join(kept_lines).rstrip()
    return _check_result(f"{remaining}\n" if remaining else "", [], text, path)


def find_commands(text: str, path: str) -> dict[str, str]:
    """Return event -> command of our hooks. Raises ClientFault for another shape."""
    return {hook["event"]: hook["command"] for hook in _read_hooks(text, path) if entries.is_own_hook(hook)}


def _render_table(hook: dict[str, Any]) -> str:
    """Return a hook as a table; the escapes of TOML's strings are JSON's."""
    rows = (f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in hook.items())
    return f"[[hooks]]\n{''.join(rows)}"


def _split_tables(text: str) -> list[list[str]]:
    """Return the lines of each table, its header first; before them the lines without one."""
    tables: list[list[str]] = [[]]
    for line in text.splitlines(keepends=True):
        if _HEADER.match(line):
            tables.append([])
        tables[-1].append(line)
    return tables


def _is_own_table(table_lines: list[str]) -> bool:
    if not table_lines or not _HOOK_HEADER.match(table_lines[0]):
        return False
    try:
        (hook,) = tomllib.loads("".join(table_lines))["hooks"]
    except (tomllib.TOMLDecodeError, ValueError):
        return False
    return entries.is_own_hook(hook)


def _list_comments_below(table_lines: list[str]) -> list[str]:
    """Return the lines below the last value of a table, which belong to the next one."""
    n_own = max(i for i, line in enumerate(table_lines) if line.strip() and not line.lstrip().startswith("#")) + 1
    below = table_lines[n_own:]
    return below if any(line.strip() for line in below) else []


def _read_hooks(text: str, path: str) -> list[Any]:
    hooks = entries.parse_toml(text, path).get("hooks", [])
    if not isinstance(hooks, list):
        raise ClientFault(f"{path}: `hooks` does not have the expected form")
    return hooks


def _check_result(new_text: str, own_hooks: list[dict[str, Any]], text: str, path: str) -> str:
    """Return the new text, if it differs from the old one only in our hooks. Raises ClientFault."""
    settings = tomllib.loads(text)
    other_hooks = [hook for hook in settings.get("hooks", []) if not entries.is_own_hook(hook)]
    try:
        new_settings = tomllib.loads(new_text)
    except tomllib.TOMLDecodeError:
        new_settings = {}
    expected = {**settings, "hooks": [*other_hooks, *own_hooks]}
    if {**new_settings, "hooks": new_settings.get("hooks", [])} != expected:
        raise ClientFault(
            f"{path}: the hooks of Perdure cannot be separated from the text around them; change it by hand"
        )
    return new_text
