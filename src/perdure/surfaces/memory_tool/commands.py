"""The six commands of Anthropic's memory tool (`memory_20250818`): the answer and the change of each. Pure.

The answers are, to the letter, those of the SDK's own back end for a folder (anthropic 2.12,
`lib/tools/_beta_builtin_memory_tool.py`), because models were trained with them; docs/memory-tool.md
lists the differences. A path is resolved within a tree of names and never becomes a path on a disk. A
refused command changes nothing.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from perdure.errors import ToolError
from perdure.floor import state
from perdure.floor.state import is_within, list_children

ROOT = "/memories"
MAX_LINES = 999_999  # of a file that is shown, as the SDK has it
MAX_NAME_BYTES = 255  # of one part of a path: as on common file systems
MAX_PATH_BYTES = 1024
FOLDER_BYTES = 4096  # that a folder shows as its size: as on ext4
_WIDTH = len(str(MAX_LINES))
_HIDDEN_CATEGORIES = frozenset(
    ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
)  # characters that break a line, turn or hide text
_COMMAND_FIELDS: dict[str, dict[str, type]] = {
    "view": {"path": str},
    "create": {"path": str, "file_text": str},
    "str_replace": {"path": str, "old_str": str, "new_str": str},
    "insert": {"path": str, "insert_line": int, "insert_text": str},
    "delete": {"path": str},
    "rename": {"old_path": str, "new_path": str},
}


@dataclass(frozen=True, slots=True)
class FileTree:
    """The files and folders that a command sees: texts by path, and the folders. Paths are relative to the root."""

    texts: Mapping[str, str]
    folders: Collection[str]

    def is_folder(self, path: str) -> bool:
        """Return True for a folder; the root always is one."""
        return not path or path in self.folders

    def exists(self, path: str) -> bool:
        """Return True if there is a file or a folder at a path."""
        return path in self.texts or self.is_folder(path)


@dataclass(frozen=True, slots=True)
class PutFile:
    """Write a text into a file."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class RemovePath:
    """Remove a file, or a folder with everything in it."""

    path: str


@dataclass(frozen=True, slots=True)
class MovePath:
    """Move a file or a folder to another path."""

    path: str
    new_path: str


TreeChange = PutFile | RemovePath | MovePath


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The answer of a command, and the change that it makes."""

    message: str
    change: TreeChange | None = None


def check_input(tool_input: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a command from the input of a model.

    Raises ToolError if one is unknown, missing or of a wrong type.
    """
    name = tool_input.get("command")
    if not isinstance(name, str) or name not in _COMMAND_FIELDS:
        raise ToolError(f"Unknown command: {name}")
    for field, field_type in _COMMAND_FIELDS[name].items():
        value = tool_input.get(field)
        if not isinstance(value, field_type) or isinstance(value, bool):
            raise ToolError(f"`{field}` of {name} must be {'text' if field_type is str else 'a whole number'}")
    view_range = tool_input.get("view_range")
    if view_range is not None and not (
        isinstance(view_range, list | tuple) and all(type(n) is int for n in view_range)
    ):
        raise ToolError("`view_range` must be two whole numbers")
    return {"command": name, "view_range": view_range, **{field: tool_input[field] for field in _COMMAND_FIELDS[name]}}


def run_command(tree: FileTree, fields: Mapping[str, Any]) -> CommandResult:
    """Run a command on a tree; return its answer and its change. fields: from `check_input`. Raises ToolError."""
    if fields["command"] == "rename":
        return _rename_path(tree, fields["old_path"], fields["new_path"])
    functions = {
        "view": _view_path,
        "create": _create_file,
        "str_replace": _replace_text,
        "insert": _insert_text,
        "delete": _delete_path,
    }
    return functions[fields["command"]](tree, resolve_path(fields["path"]), fields)


def resolve_path(path: str) -> str:
    """Resolve a path that a model wrote, relative to the root. Raises ToolError if it leaves the root.

    >>> resolve_path("/memories/a/../b.md"), resolve_path("/memories/")
    ('b.md', '')
    """
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise ToolError(f"Path must start with {ROOT}, got: {_format_path(path)}")
    parts: list[str] = []
    for part in path[len(ROOT) :].split("/"):
        if part == ".." and not parts:
            raise ToolError(f"Path {_format_path(path)} would escape {ROOT} directory")
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    if fault := _find_path_fault(parts):
        raise ToolError(f"Path {_format_path(path)} {fault}")
    return "/".join(parts)


def _find_path_fault(parts: list[str]) -> str:
    if any(unicodedata.category(char) in _HIDDEN_CATEGORIES for part in parts for char in part):
        return "holds a control character or one that cannot be seen"
    sizes = [len(part.encode()) for part in parts]
    if max(sizes, default=0) > MAX_NAME_BYTES or sum(sizes) + len(parts) > MAX_PATH_BYTES:
        return f"is too long: a name has at most {MAX_NAME_BYTES} bytes, a path {MAX_PATH_BYTES}"
    return ""


def _format_path(path: str) -> str:
    """Format a path for an error: as it was given, unless it is very long or has hidden characters."""
    if len(path) <= MAX_PATH_BYTES and not any(unicodedata.category(char) in _HIDDEN_CATEGORIES for char in path):
        return path
    return ascii(path if len(path) <= 80 else path[:79] + "…")


def format_file_size(n_bytes: int) -> str:
    """Format a size as a listing shows it.

    >>> format_file_size(0), format_file_size(1023), format_file_size(1024), format_file_size(1536)
    ('0B', '1023B', '1K', '1.5K')
    """
    if not n_bytes:
        return "0B"
    step = min((n_bytes.bit_length() - 1) // 10, 3)
    value = n_bytes / 1024**step
    return f"{int(value) if value == int(value) else f'{value:.1f}'}{'BKMG'[step]}"


def number_lines(lines: list[str], start: int = 1) -> str:
    """Put the line number before each line.

    >>> number_lines(["a"], 7)
    '     7\\ta'
    """
    return "\n".join(f"{n:>{_WIDTH}}\t{line}" for n, line in enumerate(lines, start))


# the commands -------------------------------------------------------------------------------------------------


def _view_path(tree: FileTree, relative_path: str, fields: Mapping[str, Any]) -> CommandResult:
    path = fields["path"]
    if relative_path in tree.texts:
        return CommandResult(_format_content(tree.texts[relative_path], path, fields["view_range"]))
    if not tree.is_folder(relative_path):
        raise ToolError(f"The path {path} does not exist. Please provide a valid path.")
    header = f"Here're the files and directories up to 2 levels deep in {path}, excluding hidden items:"
    rows = [(FOLDER_BYTES, ""), *_list_folder(tree, relative_path, 1)]
    return CommandResult("\n".join([header, *(f"{format_file_size(n)}\t{path}{name}" for n, name in rows)]))


def _format_content(text: str, path: str, view_range: Any) -> str:
    lines = text.split("\n")
    if len(lines) > MAX_LINES:
        raise ToolError(f"File {path} exceeds maximum line limit of 999,999 lines.")
    low, high = 0, len(lines)
    if view_range and len(view_range) == 2:
        low = max(1, view_range[0]) - 1
        high = len(lines) if view_range[1] == -1 else view_range[1]
    return f"Here's the content of {path} with line numbers:\n{number_lines(lines[low:high], low + 1)}"


def _list_folder(tree: FileTree, folder: str, depth: int) -> list[tuple[int, str]]:
    """List (size, name) of the entries of a folder, two levels deep; a folder's name ends in a slash."""
    prefix = f"{folder}/" if folder else ""
    entries: list[tuple[int, str]] = []
    names = [
        *((name, False) for name in list_children(tree.texts, folder)),
        *((n, True) for n in list_children(tree.folders, folder)),
    ]
    for name, is_folder in sorted(names):
        if name.startswith("."):
            continue
        if not is_folder:
            entries.append((len(tree.texts[prefix + name].encode()), f"/{name}"))
            continue
        entries.append((FOLDER_BYTES, f"/{name}/"))
        subentries = _list_folder(tree, prefix + name, depth + 1) if depth < 2 else []
        entries += [(n, f"/{name}{subname}") for n, subname in subentries]
    return entries


def _create_file(tree: FileTree, relative_path: str, fields: Mapping[str, Any]) -> CommandResult:
    path = fields["path"]
    if tree.exists(relative_path):
        raise ToolError(f"File {path} already exists")
    _require_folders(tree, relative_path)
    return CommandResult(f"File created successfully at: {path}", PutFile(relative_path, fields["file_text"]))


def _require_folders(tree: FileTree, relative_path: str) -> None:
    """Raise ToolError if something above a path is a file."""
    for folder in state.list_parents(relative_path):
        if folder in tree.texts:
            raise ToolError(f"The path {ROOT}/{folder} is not a directory.")


def _get_text(tree: FileTree, relative_path: str, path: str) -> str:
    """Return the text of a file. Raises ToolError if there is none."""
    if not tree.exists(relative_path):
        raise ToolError(f"The path {path} does not exist. Please provide a valid path.")
    if relative_path not in tree.texts:
        raise ToolError(f"The path {path} is not a file.")
    return tree.texts[relative_path]


def _replace_text(tree: FileTree, relative_path: str, fields: Mapping[str, Any]) -> CommandResult:
    path, old, new = fields["path"], fields["old_str"], fields["new_str"]
    text = _get_text(tree, relative_path, path)
    n_matches = text.count(old)
    if not n_matches:
        raise ToolError(f"No replacement was performed, old_str `{old}` did not appear verbatim in {path}.")
    if n_matches > 1:
        line_numbers = ", ".join(map(str, _find_line_numbers(text, old)))
        raise ToolError(
            f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: {line_numbers}. "
            "Please ensure it is unique"
        )
    new_text = text.replace(old, new)
    line_index, new_lines = text.count("\n", 0, text.find(old)), new_text.split("\n")
    low = max(0, line_index - 2)
    snippet = number_lines(new_lines[low : line_index + 3], low + 1)
    message = f"The memory file has been edited. Here is the snippet showing the change (with line numbers):\n{snippet}"
    return CommandResult(message, PutFile(relative_path, new_text))


def _find_line_numbers(text: str, part: str) -> list[int]:
    """Return the line number, from 1, of every occurrence of a part; occurrences may overlap."""
    line_numbers, line_number, start = [], 1, 0
    offset = text.find(part)
    while offset >= 0:
        line_number += text.count("\n", start, offset)
        line_numbers.append(line_number)
        start, offset = offset, text.find(part, offset + 1)
    return line_numbers


def _insert_text(tree: FileTree, relative_path: str, fields: Mapping[str, Any]) -> CommandResult:
    path, insert_line = fields["path"], fields["insert_line"]
    lines = _get_text(tree, relative_path, path).split("\n")
    if not lines[-1]:
        lines.pop()
    if not 0 <= insert_line <= len(lines):
        raise ToolError(
            f"Invalid `insert_line` parameter: {insert_line}. It should be within the range [0, {len(lines)}]."
        )
    lines.insert(insert_line, fields["insert_text"].rstrip("\n"))
    text = "\n".join(lines)
    return CommandResult(
        f"The file {path} has been edited.", PutFile(relative_path, text if text.endswith("\n") else f"{text}\n")
    )


def _delete_path(tree: FileTree, relative_path: str, fields: Mapping[str, Any]) -> CommandResult:
    path = fields["path"]
    if not relative_path:
        raise ToolError(f"Cannot delete the {ROOT} directory itself")
    if not tree.exists(relative_path):
        raise ToolError(f"The path {path} does not exist")
    return CommandResult(f"Successfully deleted {path}", RemovePath(relative_path))


def _rename_path(tree: FileTree, path: str, new_path: str) -> CommandResult:
    relative_path, new_relative_path = resolve_path(path), resolve_path(new_path)
    if not relative_path:
        raise ToolError(f"Cannot rename the {ROOT} directory itself")
    if tree.exists(new_relative_path):
        raise ToolError(f"The destination {new_path} already exists")
    if not tree.exists(relative_path):
        raise ToolError(f"The path {path} does not exist")
    if is_within(new_relative_path, relative_path):
        raise ToolError(f"The path {path} cannot be moved into itself: {new_path}")
    _require_folders(tree, new_relative_path)
    return CommandResult(f"Successfully renamed {path} to {new_path}", MovePath(relative_path, new_relative_path))
