"""Find the failures that a session fixed: a check failed, a file was edited, and the same check passed.

Pure, and precise rather than complete. Only commands that test, build or check count, and only where the
exit status is theirs: a pipe or a second command would hide it. A command that was never run (refused,
timed out) did not fail.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from perdure.regex import lazy_re
from perdure.types import Part, Turn

_CHECK = lazy_re(
    r"\b(?:tests?|pytest|check|build|lint|tsc|tsgo|cargo|make|vitest|jest|mypy|ruff|typecheck|compile"
    r"|go (?:test|vet|build))\b"
)
_FOLDER_CHANGE = lazy_re(r"\A(?:cd\s+\S+\s*&&\s*)+")
_HIDDEN_STATUS = lazy_re(r"[|;\n]|&\s*\Z")  # the exit status may be that of another command
_NOT_RUN = lazy_re(
    r"\A\s*(?:<tool_use_error>|The user doesn't want|Claude requested permissions|Command (?:aborted|timed out)"
    r"|denied: the person does not|refused: .* Do not try to reach|not allowed: .*so a person must|not run: a limit of"
    r"|cancelled before it ran|interrupted: unknown whether)"  # Perdure's own
)
_EDIT_TOOL = lazy_re(r"edit|write(?!_stdin)|patch|create", re.IGNORECASE)
_ERROR_LINE = lazy_re(r"error|fail|expected|panic|exception", re.IGNORECASE)
_STATUS_LINE = lazy_re(
    r"\A(?:Exit code:? -?\d+|Chunk ID: .*|Wall time: .*|Process exited .*|Original token .*|Output:)\Z"
)


@dataclass(frozen=True, slots=True)
class Fix:
    """A check that failed in a session and passed later, after an edit."""

    command: str
    error: str  # the line of the failed output that says most
    failed: Turn  # the turn with the failed output
    passed: Turn
    files: tuple[str, ...]  # edited between the two, in order


def find_fixes(turns: Iterable[Turn]) -> list[Fix]:
    """Return the fixed failures of one session, in the order in which they passed."""
    commands: dict[str, str] = {}  # call id -> the command
    failures: dict[str, tuple[Turn, Part, int]] = {}  # command -> its last failure, and the edits before it
    edits: list[tuple[str, ...]] = []
    fixes = []
    for turn in turns:
        for part in turn.parts:
            if part.kind == "call":
                if command := _read_check(part):
                    commands[part.call_id] = command
                elif _EDIT_TOOL.search(part.name) or "*** Begin Patch" in part.text:
                    edits.append(turn.files)
            elif part.kind == "result" and (command := commands.get(part.call_id, "")):
                if part.is_error and not _NOT_RUN.match(part.text):
                    failures[command] = (turn, part, len(edits))
                elif not part.is_error and command in failures:
                    failed, output, n_edits = failures.pop(command)
                    files = tuple(dict.fromkeys(path for paths in edits[n_edits:] for path in paths))
                    if len(edits) > n_edits:
                        fixes.append(Fix(command, _find_error_line(output.text), failed, turn, files))
    return fixes


def _read_check(call: Part) -> str:
    """Return the command of a call, without changes of folder; "" if it is no check or its status is not its own."""
    try:
        fields = json.loads(call.text)
    except ValueError:
        return ""
    command = fields.get("command", fields.get("cmd")) if isinstance(fields, dict) else None
    if isinstance(command, list):
        command = command[-1] if command else None
    if not isinstance(command, str):
        return ""
    command = _FOLDER_CHANGE.sub("", command.strip()).replace("2>&1", "").strip()
    return command if _CHECK.search(command) and not _HIDDEN_STATUS.search(command) else ""


def _find_error_line(output: str) -> str:
    """Return the first line of an output that names an error; the last line if none does.

    >>> _find_error_line("Exit code 1\\n> check\\na.py:3: error: no x\\n")
    'a.py:3: error: no x'
    """
    lines = [line for line in map(str.strip, output.splitlines()) if line and not _STATUS_LINE.match(line)]
    return next(filter(_ERROR_LINE.search, lines), lines[-1] if lines else "")
