"""What the chat prints of a turn."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console
from rich.text import Text

from perdure.formats.perdure import CallEntry, Message
from perdure.surfaces.chat.turn_screen import TurnEvent, TurnScreen


@pytest.mark.parametrize("width", [40, 80, 110])
def test_a_call_and_its_output_share_one_row(width: int) -> None:
    """Where both are long, the arrow between them still says where the output begins."""
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    call = CallEntry(id="c1", name="read_file", input={"path": "src/" + "very_long_name" * 10})
    output = Message(
        id="e1", timestamp=datetime(2026, 1, 1, tzinfo=UTC), role="tool", tool="read_file", call_id="c1",
        is_error=True, text="it lies outside the project. " * 20 + "\nmore\nrows",
    )  # fmt: skip
    with TurnScreen(console, lambda: Text("")) as screen:
        screen.show(TurnEvent("call", call))
        screen.show(TurnEvent("output", output))
    rows = [row for row in console.file.getvalue().splitlines() if row.strip()]  # type: ignore[attr-defined]
    (row,) = [row for row in rows if "read_file" in row]
    assert "→ it lies" in row and row.endswith("(+2 rows)") and len(row) <= width
    assert not any("outside" in other for other in rows if other != row)


@pytest.mark.parametrize("answer", ["1984.", "It is this:\n\n8443.", "-"])
def test_an_answer_that_is_an_empty_item_is_shown(answer: str) -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=False)
    with TurnScreen(console, lambda: Text("")) as screen:
        screen.show(TurnEvent("text", answer))
    assert answer.splitlines()[-1] in console.file.getvalue()  # type: ignore[attr-defined]
