"""`perdure chat` with a tool that takes as long as it is told: python -m rig.chat_program HOME"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prompt_toolkit.history import InMemoryHistory
from rich.console import Console

from perdure.home import open_home
from perdure.models.chat import ToolSpec
from perdure.session.calls import Tool, ToolOutput
from perdure.surfaces.chat.input_line import InputLine
from perdure.surfaces.chat.session_thread import SessionHolder
from perdure.surfaces.chat.terminal_chat import TerminalChat, to_toolbar


def wait(arguments: Mapping[str, Any], _: threading.Event) -> ToolOutput:
    if arguments["seconds"] < 0:
        raise ValueError("nobody can wait so long")
    time.sleep(arguments["seconds"])
    return ToolOutput(f"waited {arguments['seconds']} seconds\nand a second row")


def main(home: Path) -> None:
    spec = ToolSpec("wait", "Wait.", {"type": "object", "properties": {"seconds": {"type": "number"}}})
    thread = SessionHolder(lambda: open_home(home), cwd=str(Path.cwd()), tools=[Tool(spec, wait)])
    line = InputLine(InMemoryHistory(), Path.cwd(), lambda: to_toolbar(chat.list_status()))
    chat = TerminalChat(Console(highlight=False, emoji=False), thread, line, lambda words, arguments: None)
    thread.submit(thread.open).result()
    chat.show_opening()
    chat.run()
    thread.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
