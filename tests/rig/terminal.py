"""A program in a real pseudo-terminal, and the screen that a person would see of it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pexpect
import pyte


class _AnsweringScreen(pyte.HistoryScreen):
    """Answers the questions of a program for the cursor's place, as a terminal does."""

    reply: Callable[[str], object] = staticmethod(lambda _: None)

    def write_process_input(self, data: str) -> None:
        self.reply(data)


class Terminal:
    """Use it as a context: at its end the program is killed."""

    def __init__(
        self, arguments: Sequence[str], *, cwd: Path, env: dict[str, str], rows: int = 30, columns: int = 100
    ) -> None:
        self.screen = _AnsweringScreen(columns, rows, history=5000, ratio=0.5)
        self._stream = pyte.ByteStream(self.screen)
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        whole_env = {**inherited, "TERM": "xterm-256color", "LANG": "C.UTF-8", "TZ": "UTC", **env}
        self.child = pexpect.spawn(
            arguments[0], list(arguments[1:]), cwd=str(cwd), env=whole_env, dimensions=(rows, columns), timeout=30
        )
        self.child.delaybeforesend = None
        self.screen.reply = self.child.send
        self.env = env

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.close(force=True)

    def pump(self, seconds: float = 0.05) -> bool:
        """Show what the program has written; False at its end."""
        try:
            raw = self.child.read_nonblocking(65536, timeout=seconds)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self._stream.feed(raw)
        return True

    @property
    def rows(self) -> list[str]:
        """What is on the screen, without the blanks at the ends."""
        return [row.rstrip() for row in self.screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.rows).rstrip()

    @property
    def scrollback(self) -> str:
        """Everything that was shown and still is, rows that left the screen included."""
        gone = ["".join(row[x].data for x in range(self.screen.columns)).rstrip() for row in self.screen.history.top]
        return "\n".join([*gone, *self.rows]).rstrip()

    def wait(self, condition: Callable[[Terminal], bool] | str, *, seconds: float = 30) -> None:
        """Wait until a text is on the screen, or something is true of it."""
        is_there = (lambda _: condition in self.scrollback) if isinstance(condition, str) else condition
        ends_at = time.monotonic() + seconds
        while not is_there(self):
            if not self.pump():
                assert is_there(self), f"the program ended:\n{self.scrollback}"
                return
            assert time.monotonic() < ends_at, f"not seen: {condition}\n{self.scrollback}"

    def wait_end(self, *, seconds: float = 30) -> int:
        """Wait for the end of the program; its exit status."""
        ends_at = time.monotonic() + seconds
        while self.pump():
            assert time.monotonic() < ends_at, f"it goes on:\n{self.scrollback}"
        self.child.wait()
        return self.child.exitstatus if self.child.exitstatus is not None else -self.child.signalstatus

    def send(self, keys: str) -> None:
        self.child.send(keys)

    def enter(self, line: str) -> None:
        """Type a line, and send it."""
        self.child.send(line)
        self.wait(lambda terminal: line[-20:].strip() in terminal.text)
        self.child.send("\r")

    def paste(self, text: str) -> None:
        """Paste as terminals do, which say where a paste begins and ends."""
        self.child.send(f"\x1b[200~{text}\x1b[201~")

    def resize(self, rows: int, columns: int) -> None:
        self.screen.resize(rows, columns)
        self.child.setwinsize(rows, columns)

    def find_row(self, text: str) -> int:
        return next(number for number, row in enumerate(self.rows) if text in row)

    def get_colours(self, text: str) -> set[str]:
        """The colours of the characters of a text on the screen."""
        number = self.find_row(text)
        start = self.rows[number].index(text)
        return {self.screen.buffer[number][column].fg for column in range(start, start + len(text))}


def start_perdure(home: Path, *arguments: str, cwd: Path, rows: int = 30, columns: int = 100, **env: str) -> Terminal:
    """Start `perdure ARGUMENTS` in a terminal, with a home."""
    env = {"PERDURE_HOME": str(home), "USER": "ada", "LOGNAME": "ada", "HOME": str(home.parent), **env}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    program = [sys.executable, "-m", "perdure.surfaces.cli", *arguments]
    return Terminal(program, cwd=cwd, env=env, rows=rows, columns=columns)
