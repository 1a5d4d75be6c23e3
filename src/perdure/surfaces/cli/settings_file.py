"""Change single settings in the text of config.toml; comments and all other settings stay.

A text in a form that cannot be changed line by line is refused: the result must parse to exactly what was asked for.
"""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from perdure import config, disk
from perdure.errors import ConfigFault

FILE_NAME = "config.toml"
Values: TypeAlias = "Mapping[str, str | bool | float | None]"  # None removes a key
TablePath: TypeAlias = "tuple[str, ...]"
_HEADER = re.compile(r"\s*\[")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")


def read_settings(home: Path) -> str:
    """Return the text of a home's config.toml; "" if there is none. Raises ConfigFault."""
    try:
        return (home / FILE_NAME).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigFault(f"{home / FILE_NAME}: {error}") from error


def write_settings(home: Path, changes: Mapping[TablePath, Values]) -> None:
    """Set values in config.toml, table by table: all of them or, if one is refused, none. Raises ConfigFault."""
    text = read_settings(home)
    for table, values in changes.items():
        text = set_values(text, table, values)
    config.check_text(text)
    disk.replace_file(home / FILE_NAME, text.encode())


def set_values(text: str, table: TablePath, values: Values) -> str:
    r"""Return the text with these values in one table.

    >>> set_values("agent = 'a'\n[live]  # mine\nfloor = true  # why\n", ("live",), {"floor": False, "shadow": True})
    "agent = 'a'\n[live]  # mine\nshadow = true\nfloor = false  # why\n"

    Raises ConfigFault if the result would mean anything else.
    """
    earlier = _parse(text)
    expected = _merge(earlier, table, values)
    rows, replaced_keys = _replace_rows(text, table, values)
    new_rows = [
        f"{_quote_key(key)} = {_format(value)}"
        for key, value in values.items()
        if value is not None and key not in replaced_keys
    ]
    name = ".".join(map(_quote_key, table))
    header = next((number for number, row in enumerate(rows) if _read_header(row) == table), None)
    if header is not None and _get(expected, table) is None:
        del rows[header]
    elif header is not None:
        rows[header + 1 : header + 1] = new_rows
    elif isinstance(_get(earlier, table), dict):  # it has settings of the form `table.key = value`
        rows[:0] = [f"{name}.{row}" for row in new_rows]
    elif new_rows:
        rows += [*([""] if rows else []), f"[{name}]", *new_rows]
    new_text = "\n".join(rows).rstrip("\n") + "\n" if any(rows) else ""
    try:
        if tomllib.loads(new_text) == expected:
            return new_text
    except tomllib.TOMLDecodeError:
        pass
    raise ConfigFault(
        f"config.toml has `{name}` in a form that this command cannot change: "
        f"write it as a [{name}] table, or remove it"
    )


def _replace_rows(text: str, table: TablePath, values: Values) -> tuple[list[str], set[str]]:
    """Return (the rows with the values that they set already replaced or removed, the keys that were set)."""
    rows: list[str] = []
    keys: set[str] = set()
    section: TablePath | None = ()
    for row in text.splitlines():
        if _HEADER.match(row):
            section = _read_header(row)
        path = (*section, *_read_path(row)) if section is not None and "=" in row else ()
        if path[:-1] != table or path[-1] not in values:
            rows.append(row)
        elif (value := values[path[-1]]) is not None:
            keys.add(path[-1])
            rows.append(f"{row.partition('=')[0].rstrip()} = {_format(value)}{_find_comment(row)}")
    return rows, keys


def _read_header(row: str) -> TablePath | None:
    """Return the path of the table that a row opens, or None."""
    return _walk(row) if _HEADER.match(row) else None


def _read_path(row: str) -> TablePath:
    """Return the keys that a row sets, as ("a", "b") for `a.b = 1`; () for a row that is no setting by itself."""
    return _walk(row) or ()


def _walk(row: str) -> TablePath | None:
    try:
        node: Any = tomllib.loads(row)
    except tomllib.TOMLDecodeError:
        return None
    path: list[str] = []
    while isinstance(node, dict) and len(node) == 1:
        ((key, node),) = node.items()
        path.append(key)
    return None if isinstance(node, list) and _HEADER.match(row) else tuple(path)


def _find_comment(row: str) -> str:
    """Return the comment after a setting, with the spaces before it."""
    meaning = tomllib.loads(row)
    for sign in re.finditer(r"\s*#", row):
        try:
            if tomllib.loads(row[: sign.start()]) == meaning:
                return row[sign.start() :]
        except tomllib.TOMLDecodeError:  # the sign stands in a text
            continue
    return ""


def _merge(settings: Mapping[str, Any], table: TablePath, values: Values) -> dict[str, Any]:
    """Return the settings with these values; a table that has none left goes."""
    merged = copy.deepcopy(dict(settings))
    nodes: list[Any] = [merged]
    for name in table:
        nodes.append(nodes[-1].setdefault(name, {}) if isinstance(nodes[-1], dict) else {})
    if not all(isinstance(node, dict) for node in nodes):
        raise ConfigFault(f"config.toml: `{'.'.join(table)}` is no table")
    for key, value in values.items():
        nodes[-1].pop(key, None)
        if value is not None:
            nodes[-1][key] = value
    for parent, name in zip(reversed(nodes[:-1]), reversed(table), strict=True):
        if not parent[name]:
            del parent[name]
    return merged


def _get(settings: Mapping[str, Any], table: Sequence[str]) -> Any:
    node: Any = settings
    for name in table:
        node = node.get(name) if isinstance(node, dict) else None
    return node


def _quote_key(key: str) -> str:
    return key if _BARE_KEY.match(key) else json.dumps(key, ensure_ascii=False)


def _format(value: str | bool | float) -> str:
    return json.dumps(value, ensure_ascii=False)


def _parse(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigFault(f"config.toml: {error}") from error
