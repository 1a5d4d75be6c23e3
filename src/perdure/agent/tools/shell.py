"""Run a shell line in the project: its output goes to a file, and its end to the model."""

from __future__ import annotations

import itertools
import os
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perdure.agent.commands import Risk, judge_line
from perdure.agent.folders import ProjectFolders
from perdure.agent.process import end_process
from perdure.agent.sandbox import Sandbox
from perdure.agent.tools.output import MAX_BYTES, KeptOutputs, take_last
from perdure.environ import copy_variables
from perdure.models.chat import ToolSpec
from perdure.session.calls import Tool, ToolOutput

DEFAULT_S, MAX_S = 120, 1800
MAX_OUTPUT_BYTES = 100_000_000  # of one command; then it is ended
OUTPUT_TOO_LONG = f"more than {MAX_OUTPUT_BYTES // 1_000_000} MB of output"
_POLL_S = 0.02
_TAIL_BYTES = 4 * MAX_BYTES  # what is read of the file to find its last lines
_QUIET = {"TERM": "dumb", "NO_COLOR": "1", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
_MARKER = {"PERDURE_AGENT": "1"}  # the owner's decisions are refused there, see `environ.AGENT_MARKERS`


@dataclass
class ShellTool:
    """Runs the commands of one session."""

    folders: ProjectFolders
    sandbox: Sandbox
    outputs: Path  # the folder of the full outputs
    keep_variables: tuple[str, ...] = ()  # variables that commands get although they look like secrets
    kept: KeptOutputs = field(default_factory=KeptOutputs)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def build_tool(self) -> Tool:
        """Return the tool shell."""
        place = "" if self.sandbox.problem else " It runs in a sandbox: it writes only in the project"
        network = ", without a network." if "--unshare-net" in self.sandbox.arguments else "." if place else ""
        spec = ToolSpec(
            "shell",
            f"Run a shell line in the project, and return the end of its output.{place}{network} Nothing can be typed "
            "into it, and what it leaves in the background ends with it.",
            {
                "type": "object",
                "properties": {
                    "command": {"type": "string", "minLength": 1},
                    "timeout_s": {
                        "type": "integer", "minimum": 1, "maximum": MAX_S,
                        "description": f"seconds after which it is ended (default: {DEFAULT_S})",
                    },
                },
                "required": ["command"],
                "additionalProperties": False,
            },
        )  # fmt: skip
        return Tool(spec, self.run, is_alone=self._is_alone)

    def _is_alone(self, given: Mapping[str, Any]) -> bool:
        return any(risk.risk > Risk.READS for risk in judge_line(given["command"], self.folders))

    def run(self, given: Mapping[str, Any], cancel: threading.Event) -> ToolOutput:
        """Run a line to its end, its limit of time, or until it is cancelled."""
        limit_s = given.get("timeout_s", DEFAULT_S)
        path = self.outputs / f"shell-{next(self._numbers)}.txt"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            process = subprocess.Popen(
                [*self.sandbox.arguments, self.folders.find_program("bash") or "/bin/sh", "-c", given["command"]],
                cwd=self.folders.start,
                env={**copy_variables(keep=self.keep_variables), **_QUIET, **_MARKER},
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                start_new_session=True,  # a group of its own, which is ended as a whole
            )
        finally:
            os.close(descriptor)
        end = _wait(process, path, limit_s, cancel)
        end_process(process)
        return self._report(process.returncode, end, path)

    def _report(self, status: int, end: str, path: Path) -> ToolOutput:
        lines, is_whole = _read_tail(path)
        cut = take_last(lines)
        if cut.is_cut or not is_whole:
            n_lines = _count_lines(path)
            opening = f"[The last {len(cut.lines):,} of {n_lines:,} lines. read_file shows all: {path}]"
            text = "\n".join([opening, *cut.lines])
            self.kept.add(path)
        else:
            path.unlink()
            text = "\n".join(cut.lines) if cut.lines else "[no output]"
        if status < 0 and not end:
            end = f"ended by signal {-status}"
        if end or status:
            return ToolOutput(f"{text}\n\n[{end or f'exit status {status}'}]", is_error=True)
        return ToolOutput(text)


def _wait(process: subprocess.Popen[bytes], path: Path, limit_s: float, cancel: threading.Event) -> str:
    """Wait until a command ends; return why it must be ended before, or ""."""
    deadline_s = time.monotonic() + limit_s
    while process.poll() is None:
        if cancel.wait(_POLL_S):
            return "cancelled"
        if time.monotonic() > deadline_s:
            return f"ended after {limit_s} s: give more timeout_s, or do less at once"
        if path.stat().st_size > MAX_OUTPUT_BYTES:
            return f"ended: {OUTPUT_TOO_LONG}"
    return ""


def _read_tail(path: Path) -> tuple[list[str], bool]:
    """Return the last lines of a file, and whether these are all."""
    with path.open("rb") as file:
        n_bytes = file.seek(0, os.SEEK_END)
        file.seek(max(0, n_bytes - _TAIL_BYTES))
        text = file.read(_TAIL_BYTES).decode("utf-8", "replace")
    lines = text.replace("\r\n", "\n").split("\n")
    return (lines[:-1] if lines[-1] == "" else lines), n_bytes <= _TAIL_BYTES


def _count_lines(path: Path) -> int:
    n_lines, last = 0, b"\n"
    with path.open("rb") as file:
        while block := file.read(1_000_000):
            n_lines, last = n_lines + block.count(b"\n"), block[-1:]
    return n_lines + (last != b"\n")
