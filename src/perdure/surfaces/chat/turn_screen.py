"""What a person sees of a turn while it goes on: finished blocks once, below them the unfinished one and the status.

Text of a model is untrusted: control characters never reach the terminal, and the address of a link stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment
from rich.text import Text

from perdure.formats.perdure import Message
from perdure.surfaces.chat.markdown_blocks import split_finished
from perdure.surfaces.chat.notices import CALL_CHARS, format_call
from perdure.text import one_line, printable

FRAME_S = 1 / 15  # between two drawings of what is not finished
_RESERVED_ROWS = 3  # of the terminal, for the status and a margin


class TurnEvent(NamedTuple):
    """Something that happens in a turn."""

    kind: Literal["text", "thought", "note", "call", "output"]
    value: Any  # a str; of a call a CallEntry, of an output a Message


class LastRows:
    """The last rows of something longer than the terminal."""

    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield as many rows as the terminal has room for."""
        rows = console.render_lines(self._renderable, options.update(height=None), pad=False)
        for row in rows[-max(1, console.height - _RESERVED_ROWS) :]:
            yield from row
            yield Segment.line()


class TurnScreen:
    """Shows one turn, from the message until its answer is there. Use it as a context, in one thread."""

    def __init__(self, console: Console, make_status: Callable[[], Text]) -> None:
        """make_status: the line below everything."""
        self._console, self._make_status = console, make_status
        self._kind: Literal["text", "thought"] = "text"
        self._pending = ""  # text that is not finished
        self._running: dict[str, str] = {}  # id of a call that goes on -> what it says
        self._is_first = True
        self._live = Live(
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )

    def __enter__(self) -> TurnScreen:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.update(Text(""))
        self._live.stop()
        self._finish_text()

    def show(self, event: TurnEvent) -> None:
        """Take an event; the text of it is drawn with the next `draw`."""
        if event.kind in ("text", "thought"):
            if event.kind != self._kind:
                self._finish_text()
                self._kind = "text" if event.kind == "text" else "thought"
            self._pending += printable(event.value)
            return
        self._finish_text()
        if event.kind == "note":
            self._print(Text(printable(event.value), style="dim"))
        elif event.kind == "call":
            self._running[event.value.id] = format_call(event.value)
        elif event.kind == "output":
            self._print_output(event.value)

    def draw(self) -> None:
        """Print the blocks that are finished, and draw the rest anew."""
        split = split_finished if self._kind == "text" else _split_paragraphs
        finished, self._pending = split(self._pending)
        if finished.strip():
            self._print(self._render(finished))
        parts: list[RenderableType] = [LastRows(self._render(self._pending))] if self._pending.strip() else []
        for call_text in self._running.values():
            parts.append(Text(f"● {call_text} …", style="cyan", no_wrap=True, overflow="ellipsis"))
        self._live.update(Group(*parts, self._make_status()), refresh=True)

    def _finish_text(self) -> None:
        if self._pending.strip():
            self._print(self._render(self._pending))
        self._pending = ""

    def _render(self, piece: str) -> RenderableType:
        if self._kind == "thought":
            return Text(piece.strip("\n"), style="dim italic")
        return Markdown(piece, hyperlinks=False)

    def _print_output(self, message: Message) -> None:
        style = "red" if message.is_error else "cyan"
        first_row = one_line(message.text, CALL_CHARS)
        call_text = self._running.pop(message.call_id, message.tool)  # a call that was refused never ran
        self._print(Text(f"● {call_text} → {first_row}", style=style, no_wrap=True, overflow="ellipsis"))

    def _print(self, renderable: RenderableType) -> None:
        if not self._is_first:
            self._console.print()
        self._is_first = False
        self._console.print(renderable)


def _split_paragraphs(thoughts: str) -> tuple[str, str]:
    finished, border, rest = thoughts.rpartition("\n\n")
    return finished + border, rest
