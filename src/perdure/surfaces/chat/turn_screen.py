"""What a person sees of a turn while it goes on: finished blocks once, below them the unfinished one and the status.

Text of a model is untrusted: control characters never reach the terminal, and the address of a link stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment
from rich.text import Text

from perdure.formats.perdure import Message
from perdure.surfaces.chat.markdown_blocks import escape_empty_items, split_finished
from perdure.surfaces.chat.notices import CALL_CHARS, format_call
from perdure.surfaces.chat.request_text import format_diff
from perdure.text import one_line, printable

FRAME_S = 1 / 15  # between two drawings of what is not finished
FOLDED_ROWS = 30  # of a change that are shown, where the person was not asked about it
_MIN_CALL_CHARS = 12  # of a call, and of its output, on a narrow screen
_RESERVED_ROWS = 3  # of the terminal, for the status and a margin
_CHANGING_TOOLS = ("write_file", "edit_file")


class TurnEvent(NamedTuple):
    """Something that happens in a turn."""

    kind: Literal["text", "thought", "note", "call", "output", "question"]
    value: Any  # a str; of a call a CallEntry, of an output a Message, of a question a PersonQuestion


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
        self._asked: set[str] = set()  # ids of calls that the person was asked about, and has seen
        self._is_first = True
        self._live = _make_live(console)

    def __enter__(self) -> TurnScreen:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end_live()
        self._finish_text()

    def _end_live(self) -> None:
        self._live.update(Text(""))
        self._live.stop()

    @contextmanager
    def interrupt(self, call_id: str = "") -> Iterator[None]:
        """Leave the terminal to a question. call_id: of the call that it is about, which it shows in full."""
        self._finish_text()
        self._asked.add(call_id)
        self._end_live()
        self._console.print()
        try:
            yield
        finally:
            self._live = _make_live(self._console)
            self._live.start()

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
        return Markdown(escape_empty_items(piece), hyperlinks=False)

    def _print_output(self, message: Message) -> None:
        style = "red" if message.is_error else "cyan"
        rows = message.text.splitlines() or [""]
        call_text = self._running.pop(message.call_id, message.tool)  # a call that was refused never ran
        summary, change = _split_change(message, rows)
        more = f" (+{len(rows) - 1} rows)" if len(rows) > 1 and not change else ""
        line = Text(f"● {call_text}", style=style, no_wrap=True, overflow="ellipsis")
        line.truncate(max(_MIN_CALL_CHARS, self._console.width - min(len(summary), CALL_CHARS) - len(more) - 3))
        n_left = max(_MIN_CALL_CHARS, self._console.width - line.cell_len - len(more) - 3)
        self._print(line.append(f" → {one_line(summary, min(CALL_CHARS, n_left))}{more}"))
        if change and message.call_id not in self._asked:
            folded = len(change) - FOLDED_ROWS
            self._console.print(format_diff(change[:FOLDED_ROWS]))
            if folded > 0:
                self._console.print(Text(f"… {folded} more rows", style="dim"))

    def _print(self, renderable: RenderableType) -> None:
        if not self._is_first:
            self._console.print()
        self._is_first = False
        self._console.print(renderable)


def _make_live(console: Console) -> Live:
    return Live(
        console=console,
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        vertical_overflow="crop",
    )


def _split_change(message: Message, rows: list[str]) -> tuple[str, list[str]]:
    """Return the first row of an output, and the rows of the change behind it; none if it is no change of a file."""
    is_change = message.tool in _CHANGING_TOOLS and not message.is_error and rows[1:2] and rows[1].startswith("--- ")
    return rows[0], rows[1:] if is_change else []


def _split_paragraphs(thoughts: str) -> tuple[str, str]:
    finished, border, rest = thoughts.rpartition("\n\n")
    return finished + border, rest
