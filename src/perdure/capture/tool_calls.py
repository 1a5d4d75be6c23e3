"""Read a tool call from a client's event: the command, the files, and the end of the output if it failed.

Only this much of a call is sent to the resident home, however long its input and output are. Standard library only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

MAX_COMMAND_CHARS = 4000
MAX_ERROR_CHARS = 8000  # from the end of an output; errors stand there
_MAX_FILES = 8
_MAX_PATH_CHARS = 1000
_COMMAND_KEYS = ("command", "cmd", "script", "commands")
_PATH_KEYS = ("file_path", "path", "filePath", "notebook_path", "absolute_path")
# Patterns are texts here, compiled at their first use: every hook loads this, and few events are of tools.
_PATCH_FILE = r"(?m)^\*\*\* (?:Add|Update|Delete) File: (.+?)\s*$"
_SHELLS = ("bash", "sh", "zsh")
_STATUS = (
    r"(?m)\A(?:Chunk ID: .*\n)?(?:Wall time: .*\n)?(?:Process exited with code|Exit code:) (-?\d+)"
    r"|^Exit Code: (-?\d+)$"
)
_STATUS_CHARS = 400  # of the start and the end of an output, where a client states the status
_ERROR_WORD = r"(?i)error|fail|not found|no such|cannot|can't|denied|unknown|invalid|unexpected|fatal|panic"
_OUTPUT_KEYS = ("error", "stderr", "output", "stdout", "llmContent", "text", "content")


class ReportedCall(NamedTuple):
    """A call as a client's event reports it."""

    tool: str = ""
    command: str = ""
    files: tuple[str, ...] = ()
    error: str = ""  # "" before the call, or if it worked


NO_CALL = ReportedCall()


def read_call(payload: dict[str, Any]) -> ReportedCall:
    """Return the call in a client's event."""
    tool, tool_input = payload.get("tool_name"), payload.get("tool_input")
    fields = tool_input if isinstance(tool_input, dict) else {"command": tool_input}
    command = read_command(fields)
    files = [value for key in _PATH_KEYS if isinstance(value := fields.get(key), str)]
    files += [path for value in (command, *fields.values()) if isinstance(value, str) for path in _list_patched(value)]
    return ReportedCall(
        tool if isinstance(tool, str) else "",
        "" if "*** Begin Patch" in command or len(command) > MAX_COMMAND_CHARS else command,
        tuple(path for path in dict.fromkeys(files) if len(path) <= _MAX_PATH_CHARS)[:_MAX_FILES],
        _read_error(payload),
    )


def read_command(fields: Mapping[str, Any]) -> str:
    """Return the command line in the input of a call; "" if it has none."""
    value = next((fields[key] for key in _COMMAND_KEYS if fields.get(key)), "")
    if isinstance(value, list):
        words = list(map(str, value))
        is_shell = len(words) > 2 and words[0].rpartition("/")[2] in _SHELLS  # bash -lc COMMAND
        return words[-1] if is_shell else " ".join(words)
    return value if isinstance(value, str) else ""


def _list_patched(text: str) -> list[str]:
    return re.findall(_PATCH_FILE, text) if "*** Begin Patch" in text else []


def _read_error(payload: dict[str, Any]) -> str:
    """Return the end of the output of a call that failed; "" for one that did not, or was stopped by a person.

    Codex gives no status: there an output counts that names an error, and the home compares it with known errors.
    """
    if payload.get("is_interrupt") is True:
        return ""
    error, response = payload.get("error"), payload.get("tool_response")
    text = error if isinstance(error, str) and error else _join_output(response)
    is_without_status = isinstance(response, str) and payload.get("hook_event_name") == "PostToolUse"  # Codex
    has_failed = (
        bool(error) or _has_failed(response, text) or (is_without_status and bool(re.search(_ERROR_WORD, text)))
    )
    return text[-MAX_ERROR_CHARS:] if has_failed else ""


def _has_failed(response: Any, text: str) -> bool:
    """Return True if a client's report of a call, or the status in its output, says that it failed."""
    if isinstance(response, dict):
        if response.get("is_error") is True or response.get("isError") is True or response.get("error"):
            return True
        codes = [response.get(key) for key in ("exit_code", "exitCode", "code")]
        if any(isinstance(code, int) and code != 0 for code in codes):
            return True
    status = re.search(_STATUS, text[:_STATUS_CHARS]) or re.search(_STATUS, text[-_STATUS_CHARS:])
    return status is not None and (status[1] or status[2]) != "0"


def _join_output(response: Any) -> str:
    """Return the text of a report of any shape."""
    if isinstance(response, str):
        if response.startswith("{"):
            try:
                return _join_output(json.loads(response)) or response
            except ValueError:
                return response
        return response
    if isinstance(response, list):
        return "\n".join(filter(None, map(_join_output, response)))
    if isinstance(response, dict):
        return "\n".join(filter(None, (_join_output(response.get(key)) for key in _OUTPUT_KEYS)))
    return ""
