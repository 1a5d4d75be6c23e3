"""One line for what happens in a turn: a call, a recall. Pure."""

from __future__ import annotations

import json
import re

from perdure.formats.perdure import CallEntry
from perdure.text import one_line

CALL_CHARS = 100  # of a call's input and of its output


def format_call(call: CallEntry) -> str:
    """Return a call on one line.

    >>> format_call(CallEntry(id="c1", name="shell", input={"command": "ls"}))
    'shell command="ls"'
    """
    arguments = " ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in call.input.items())
    return f"{call.name} {one_line(arguments, CALL_CHARS)}".strip()


_TOLD = re.compile(r"Perdure remembered (\d+):.*")


def format_recall(notice: str) -> str:
    """Return the notice of a recall in the words of a chat.

    >>> format_recall("Perdure remembered 2: `perdure why` shows it, `--wrong N` marks a wrong one.")
    'recalled 2: /why shows it'
    """
    return _TOLD.sub(r"recalled \1: /why shows it", notice)
