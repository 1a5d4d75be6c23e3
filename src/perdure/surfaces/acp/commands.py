"""The commands that a person types after a slash, in an editor.

Those that show something of the home are the commands of the command line, each in a process of its own: what it
prints cannot reach the protocol, and it can be ended.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from acp.schema import AvailableCommand, AvailableCommandInput, UnstructuredCommandInput

from perdure.agent.process import end_process
from perdure.surfaces.chat.slash_commands import COMMANDS, CommandLine, SlashCommand

# The others are what an editor has itself: sessions, modes, and the end.
_LEFT_OUT = ("resume", "clear", "plan", "exit")  # an editor has buttons for them
OFFERED: tuple[SlashCommand, ...] = tuple(command for command in COMMANDS if command.name not in _LEFT_OUT)
_POLL_S = 0.1


def list_commands() -> list[AvailableCommand]:
    """Return the commands as the protocol names them."""
    return [
        AvailableCommand(
            name=command.name,
            description=command.help,
            input=AvailableCommandInput(UnstructuredCommandInput(hint=command.argument)) if command.argument else None,
        )
        for command in OFFERED
    ]


def run_command_line(home: Path, line: CommandLine, cwd: Path, cancel: threading.Event) -> str:
    """Return what a command of the command line prints, its errors too; "" if it is cancelled."""
    process = subprocess.Popen(
        [sys.executable, "-m", "perdure.surfaces.cli", *line.words, "--home", str(home), *line.arguments],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    while True:
        try:
            return process.communicate(timeout=_POLL_S)[0].decode("utf-8", "replace")
        except subprocess.TimeoutExpired:
            if cancel.is_set():
                end_process(process)
                return ""
