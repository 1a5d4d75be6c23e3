"""The six commands of Anthropic's memory tool (`memory_20250818`): what each says, and what it changes. Pure.

What it says is, to the letter, what the SDK's own back end for a folder says (anthropic 2.12,
`lib/tools/_beta_builtin_memory_tool.py`), because that is what models were trained with; docs/memory-tool.md names the
differences. A path is resolved within a tree of names and never becomes a place on a disk. A command that is refused
changes nothing.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from perdure.errors import ToolError
from perdure.floor import tree
from perdure.floor.tree import children, is_within

ROOT = "/memories"
MAX_LINES = 999_999  # of a file that is shown, as the SDK has it
MAX_NAME_BYTES = 255  # of one part of a path: as on common file systems
MAX_PATH_BYTES = 1024
FOLDER_BYTES = 4096  # that a folder shows as its size: as on ext4
_WIDTH = len(str(MAX_LINES))
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))  # characters that break a line, turn or hide text
_FIELDS: dict[str, dict[str, type]] = {
    "view": {"path": str},
    "create": {"path": str, "file_text": str},
    "str_replace": {"path": str, "old_str": str, "new_str": str},
    "insert": {"path": str, "insert_line": int, "insert_text": str},
    "delete": {"path": str},
    "rename": {"old_path": str, "new_path": str},
}


@dataclass(frozen=True, slots=True)
class Tree:
    """What there is: texts by path, and the folders that they are in or were. Paths are relative to the root."""

    texts: Mapping[str, str]
    folders: Collection[str]

    def is_folder(self, path: str) -> bool:
        """Whether this is a folder; the root always is."""
        return not path or path in self.folders

    def has(self, path: str) -> bool:
        """Whether there is anything at a path."""
        return path in self.texts or self.is_folder(path)


@dataclass(frozen=True, slots=True)
class Put:
    """A file gets a text."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Remove:
    """A file goes, or a folder with all that is in it."""

    path: str


@dataclass(frozen=True, slots=True)
class Move:
    """A file or a folder gets another path."""

    path: str
    to: str


Change = Put | Remove | Move


@dataclass(frozen=True, slots=True)
class Done:
    """What a command says, and what it changes."""

    said: str
    change: Change | None = None


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a command as a model gave them. Raises ToolError for one that is unknown, missing or of a wrong
    type.
    """
    name = given.get("command")
    if not isinstance(name, str) or name not in _FIELDS:
        raise ToolError(f"Unknown command: {name}")
    for field, kind in _FIELDS[name].items():
        value = given.get(field)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ToolError(f"`{field}` of {name} must be {'text' if kind is str else 'a whole number'}")
    shown = given.get("view_range")
    if shown is not None and not (isinstance(shown, list | tuple) and all(type(n) is int for n in shown)):
        raise ToolError("`view_range` must be two whole numbers")
    return {"command": name, "view_range": shown, **{field: given[field] for field in _FIELDS[name]}}


def done(known: Tree, given: Mapping[str, Any]) -> Done:
    """What a command says and changes, by what there is. given: as `checked` returns it. Raises ToolError."""
    if given["command"] == "rename":
        return _rename(known, given["old_path"], given["new_path"])
    act = {"view": _view, "create": _create, "str_replace": _str_replace, "insert": _insert, "delete": _delete}
    return act[given["command"]](known, place(given["path"]), given)


def place(path: str) -> str:
    """A path as a model writes it, relative to the root. Raises ToolError for one that leaves it.

    >>> place("/memories/a/../b.md"), place("/memories/")
    ('b.md', '')
    """
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise ToolError(f"Path must start with {ROOT}, got: {_shown(path)}")
    parts: list[str] = []
    for part in path[len(ROOT) :].split("/"):
        if part == ".." and not parts:
            raise ToolError(f"Path {_shown(path)} would escape {ROOT} directory")
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    if fault := _fault(parts):
        raise ToolError(f"Path {_shown(path)} {fault}")
    return "/".join(parts)


def _fault(parts: list[str]) -> str:
    if any(unicodedata.category(char) in _HIDDEN for part in parts for char in part):
        return "holds a control character or one that cannot be seen"
    sizes = [len(part.encode()) for part in parts]
    if max(sizes, default=0) > MAX_NAME_BYTES or sum(sizes) + len(parts) > MAX_PATH_BYTES:
        return f"is too long: a name has at most {MAX_NAME_BYTES} bytes, a path {MAX_PATH_BYTES}"
    return ""


def _shown(path: str) -> str:
    """A path as an error shows it: as it was given, unless it is very long or could not be read."""
    if len(path) <= MAX_PATH_BYTES and not any(unicodedata.category(char) in _HIDDEN for char in path):
        return path
    return ascii(path if len(path) <= 80 else path[:79] + "…")


def size(n_bytes: int) -> str:
    """A size as a listing shows it.

    >>> size(0), size(1023), size(1024), size(1536)
    ('0B', '1023B', '1K', '1.5K')
    """
    if not n_bytes:
        return "0B"
    step = min((n_bytes.bit_length() - 1) // 10, 3)
    value = n_bytes / 1024**step
    return f"{int(value) if value == int(value) else f'{value:.1f}'}{'BKMG'[step]}"


def numbered(lines: list[str], start: int = 1) -> str:
    """Lines with their numbers.

    >>> numbered(["a"], 7)
    '     7\\ta'
    """
    return "\n".join(f"{n:>{_WIDTH}}\t{line}" for n, line in enumerate(lines, start))


# the commands -------------------------------------------------------------------------------------------------


def _view(known: Tree, at: str, given: Mapping[str, Any]) -> Done:
    path = given["path"]
    if at in known.texts:
        return Done(_content(known.texts[at], path, given["view_range"]))
    if not known.is_folder(at):
        raise ToolError(f"The path {path} does not exist. Please provide a valid path.")
    head = f"Here're the files and directories up to 2 levels deep in {path}, excluding hidden items:"
    rows = [(FOLDER_BYTES, ""), *_listed(known, at, 1)]
    return Done("\n".join([head, *(f"{size(n)}\t{path}{name}" for n, name in rows)]))


def _content(text: str, path: str, shown: Any) -> str:
    lines = text.split("\n")
    if len(lines) > MAX_LINES:
        raise ToolError(f"File {path} exceeds maximum line limit of 999,999 lines.")
    low, high = 0, len(lines)
    if shown and len(shown) == 2:
        low = max(1, shown[0]) - 1
        high = len(lines) if shown[1] == -1 else shown[1]
    return f"Here's the content of {path} with line numbers:\n{numbered(lines[low:high], low + 1)}"


def _listed(known: Tree, folder: str, depth: int) -> list[tuple[int, str]]:
    """(size, name) of what is in a folder, two levels deep; a folder's name ends in a slash."""
    lead = f"{folder}/" if folder else ""
    found: list[tuple[int, str]] = []
    names = [*((name, False) for name in children(known.texts, folder)), *((n, True) for n in _folders(known, folder))]
    for name, is_folder in sorted(names):
        if name.startswith("."):
            continue
        if not is_folder:
            found.append((len(known.texts[lead + name].encode()), f"/{name}"))
            continue
        found.append((FOLDER_BYTES, f"/{name}/"))
        below = _listed(known, lead + name, depth + 1) if depth < 2 else []
        found += [(n, f"/{name}{rest}") for n, rest in below]
    return found


def _folders(known: Tree, folder: str) -> list[str]:
    return children(known.folders, folder)


def _create(known: Tree, at: str, given: Mapping[str, Any]) -> Done:
    path = given["path"]
    if known.has(at):
        raise ToolError(f"File {path} already exists")
    _need_folders(known, at)
    return Done(f"File created successfully at: {path}", Put(at, given["file_text"]))


def _need_folders(known: Tree, at: str) -> None:
    """Raise ToolError where something above a path is a file."""
    for folder in tree.parents(at):
        if folder in known.texts:
            raise ToolError(f"The path {ROOT}/{folder} is not a directory.")


def _text(known: Tree, at: str, path: str) -> str:
    """What the file at a path says. Raises ToolError where there is none."""
    if not known.has(at):
        raise ToolError(f"The path {path} does not exist. Please provide a valid path.")
    if at not in known.texts:
        raise ToolError(f"The path {path} is not a file.")
    return known.texts[at]


def _str_replace(known: Tree, at: str, given: Mapping[str, Any]) -> Done:
    path, old, new = given["path"], given["old_str"], given["new_str"]
    text = _text(known, at, path)
    n_found = text.count(old)
    if not n_found:
        raise ToolError(f"No replacement was performed, old_str `{old}` did not appear verbatim in {path}.")
    if n_found > 1:
        lines = ", ".join(map(str, _lines_of(text, old)))
        raise ToolError(
            f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: {lines}. "
            "Please ensure it is unique"
        )
    changed = text.replace(old, new)
    line, lines_now = text.count("\n", 0, text.find(old)), changed.split("\n")
    low = max(0, line - 2)
    shown = numbered(lines_now[low : line + 3], low + 1)
    said = f"The memory file has been edited. Here is the snippet showing the change (with line numbers):\n{shown}"
    return Done(said, Put(at, changed))


def _lines_of(text: str, part: str) -> list[int]:
    """The line of every place where a part begins, counted from 1; places may overlap."""
    found, line, start = [], 1, 0
    at = text.find(part)
    while at >= 0:
        line += text.count("\n", start, at)
        found.append(line)
        start, at = at, text.find(part, at + 1)
    return found


def _insert(known: Tree, at: str, given: Mapping[str, Any]) -> Done:
    path, line = given["path"], given["insert_line"]
    lines = _text(known, at, path).split("\n")
    if not lines[-1]:
        lines.pop()
    if not 0 <= line <= len(lines):
        raise ToolError(f"Invalid `insert_line` parameter: {line}. It should be within the range [0, {len(lines)}].")
    lines.insert(line, given["insert_text"].rstrip("\n"))
    text = "\n".join(lines)
    return Done(f"The file {path} has been edited.", Put(at, text if text.endswith("\n") else f"{text}\n"))


def _delete(known: Tree, at: str, given: Mapping[str, Any]) -> Done:
    path = given["path"]
    if not at:
        raise ToolError(f"Cannot delete the {ROOT} directory itself")
    if not known.has(at):
        raise ToolError(f"The path {path} does not exist")
    return Done(f"Successfully deleted {path}", Remove(at))


def _rename(known: Tree, path: str, to: str) -> Done:
    at, target = place(path), place(to)
    if not at:
        raise ToolError(f"Cannot rename the {ROOT} directory itself")
    if known.has(target):
        raise ToolError(f"The destination {to} already exists")
    if not known.has(at):
        raise ToolError(f"The path {path} does not exist")
    if is_within(target, at):
        raise ToolError(f"The path {path} cannot be moved into itself: {to}")
    _need_folders(known, target)
    return Done(f"Successfully renamed {path} to {to}", Move(at, target))
