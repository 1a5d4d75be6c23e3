"""Find lines by a regular expression: with ripgrep where it is installed, else with Python."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perdure.agent.folders import ProjectFolders
from perdure.agent.process import end_process
from perdure.agent.tools.listing import compile_pattern, list_files
from perdure.agent.tools.output import MAX_LINES, take_first
from perdure.errors import ToolError
from perdure.models.chat import ToolSpec
from perdure.session.calls import Tool, ToolOutput

LIMIT_S = 30
MAX_LINE_CHARS = 500  # of a matching line; generated code has lines of megabytes
MAX_FILE_SIZE = "10M"
_SCRIPT = Path(__file__).with_name("line_search.py")


def build_tool(folders: ProjectFolders) -> Tool:
    """Return the tool grep."""
    spec = ToolSpec(
        "grep",
        "Find lines of text files by a regular expression. What git ignores is left out.",
        {
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "minLength": 1},
                "path": {"type": "string", "description": "a file or folder (default: the project)"},
                "files": {"type": "string", "description": "only files whose names match, e.g. *.py"},
                "ignore_case": {"type": "boolean"},
            },
            "required": ["pattern"],
            "additionalProperties": False,
        },
    )
    return Tool(spec, lambda given, cancel: grep_lines(folders, given, cancel))


def grep_lines(folders: ProjectFolders, given: Mapping[str, Any], cancel: threading.Event) -> ToolOutput:
    """Return the matching lines as `path:line: text`, in order of their paths."""
    target = folders.check(given.get("path") or ".")
    if not target.exists():
        raise ToolError(f"{folders.show(target)} does not exist: glob finds files by name")
    folder = target if target.is_dir() else target.parent
    names = list_files(folders, folder) if target.is_dir() else iter([target.name])
    if files := given.get("files"):
        expression = compile_pattern(files)
        names = (name for name in names if expression.matches(name))
    paths = sorted(names)
    is_ignoring_case = bool(given.get("ignore_case"))
    output = _search(folders, given["pattern"], paths, folder, is_ignoring_case, cancel) if paths else b""
    lines = [_show_line(folders, folder, raw) for raw in output.split(b"\n") if b"\0" in raw]
    cut = take_first(lines)
    if not cut.lines:
        n_files = f"{len(paths):,} {'file' if len(paths) == 1 else 'files'}"
        return ToolOutput(f"No line matches in {n_files}.")
    note = ["", "[There are more lines: use a narrower pattern, a path, or files.]"] if cut.is_cut else []
    return ToolOutput("\n".join([*cut.lines, *note]))


def _show_line(folders: ProjectFolders, folder: Path, raw: bytes) -> str:
    path, _, rest = raw.decode("utf-8", "replace").partition("\0")
    number, _, text = rest.partition(":")
    text = text.removesuffix("\r")
    text = text if len(text) <= MAX_LINE_CHARS else f"{text[:MAX_LINE_CHARS]} [the line goes on]"
    return f"{folders.show(folder / path)}:{number}: {text}"


def _search(
    folders: ProjectFolders, pattern: str, paths: Sequence[str], folder: Path, ignores_case: bool,
    cancel: threading.Event,
) -> bytes:  # fmt: skip
    """Return lines `path NUL number:text`. Raises ToolError."""
    rg = folders.find_program("rg")
    if rg is None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ToolError(f"the pattern is no regular expression: {error}. Escape signs with a backslash") from error
        request = {"pattern": pattern, "ignore_case": ignores_case, "folder": str(folder), "paths": list(paths)}
        script = [sys.executable, "-I", str(_SCRIPT)]
        return _run(script, folder, json.dumps({**request, "max_lines": MAX_LINES + 1}).encode(), cancel)
    # "./" before a name, so that none is taken for an option; arguments in pieces, because a system limits them
    options = [rg, "--no-config", "--line-number", "--no-heading", "--with-filename", "--null", "--color=never",
               "--text", "--no-messages", f"--max-filesize={MAX_FILE_SIZE}", "--max-columns=1000000", "--sort=path",
               *(["--ignore-case"] if ignores_case else []), f"--regexp={pattern}", "--"]  # fmt: skip
    output = b""
    for start in range(0, len(paths), 1000):
        names = [f"./{path}" for path in paths[start : start + 1000] if not _is_binary(folder / path)]
        output += _run([*options, *names], folder, b"", cancel) if names else b""
        if output.count(b"\n") > MAX_LINES:
            break
    return b"\n".join(line.removeprefix(b"./") for line in output.split(b"\n"))


def _is_binary(path: Path) -> bool:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY), "rb") as file:
            return b"\0" in file.read(8192)
    except OSError:
        return True


def _run(arguments: Sequence[str], folder: Path, request: bytes, cancel: threading.Event) -> bytes:
    """Return the output of a search. Raises ToolError when it fails, takes too long, or is cancelled."""
    process = subprocess.Popen(
        arguments, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    outcome: dict[str, bytes] = {}
    thread = threading.Thread(
        target=lambda: outcome.update(zip(("out", "err"), process.communicate(request), strict=True))
    )
    thread.start()
    waited_s = 0.0
    while thread.is_alive() and waited_s < LIMIT_S and not cancel.is_set():
        thread.join(0.05)
        waited_s += 0.05
    is_late = thread.is_alive()
    if is_late:
        end_process(process)
        thread.join()
        raise ToolError(
            "cancelled" if cancel.is_set() else f"no result within {LIMIT_S} s: use a simpler pattern, or a path"
        )
    if process.returncode not in (0, 1):
        message = outcome["err"].decode(errors="replace").strip().splitlines()
        raise ToolError(f"the pattern is no regular expression: {message[-1] if message else process.returncode}")
    return outcome["out"]
