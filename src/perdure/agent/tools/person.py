"""Ask the person a question in the middle of a turn."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perdure.errors import ToolError
from perdure.models.chat import ToolSpec
from perdure.session.calls import Tool, ToolOutput

OnQuestion = Callable[[str, Sequence[str]], str | None]  # (question, choices) -> the answer, or None for none


def build_tool(on_question: OnQuestion | None) -> Tool:
    """Return the tool ask_user. on_question: asks the person; without it nobody can answer."""
    spec = ToolSpec(
        "ask_user",
        "Ask the person one question, when the work cannot go on without the answer.",
        {
            "type": "object",
            "properties": {
                "question": {"type": "string", "minLength": 1},
                "choices": {"type": "array", "items": {"type": "string"}, "description": "answers to choose from"},
            },
            "required": ["question"],
            "additionalProperties": False,
        },
    )
    lock = threading.Lock()  # one question at a time

    def ask(given: Mapping[str, Any], _: threading.Event) -> ToolOutput:
        if on_question is None:
            raise ToolError("nobody can answer here. Decide yourself, and say what you assumed")
        with lock:
            answer = on_question(given["question"], given.get("choices", []))
        return ToolOutput("The person gave no answer." if answer is None else answer)

    return Tool(spec, ask)
