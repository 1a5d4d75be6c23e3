"""The conversation itself: read a message, show the turn, until the person leaves.

Ctrl-C during a turn cancels it: the prompt is back at once, whatever the session's thread still has to end, and what
came of the answer is kept.
"""

from __future__ import annotations

import functools
import queue
import shlex
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from prompt_toolkit.formatted_text import StyleAndTextTuples
from rich.console import Console
from rich.markdown import Markdown
from rich.text import Text

from perdure.errors import ModelCancelled, PerdureError
from perdure.formats.perdure import Message
from perdure.session.spending import sum_spending
from perdure.surfaces.chat.input_line import InputLine
from perdure.surfaces.chat.notices import format_call, format_recall
from perdure.surfaces.chat.session_thread import SessionHolder
from perdure.surfaces.chat.slash_commands import COMMANDS, find_nearest, parse_command
from perdure.surfaces.chat.status_bar import list_pieces
from perdure.surfaces.chat.turn_screen import FRAME_S, TurnEvent, TurnScreen
from perdure.surfaces.units import format_count
from perdure.text import one_line, printable

if TYPE_CHECKING:
    from perdure.session.session import TurnListener

CANCEL_S = 0.15  # after Ctrl-C a turn has so long to end before the prompt is back
RunCommand = Callable[[Sequence[str], Sequence[str]], None]  # (words of a `perdure` command, its arguments)
TurnWork = Callable[["TurnListener", threading.Event], Any]


class TerminalChat:
    """One person, one terminal, one session after the other."""

    def __init__(self, console: Console, thread: SessionHolder, line: InputLine, run_command: RunCommand) -> None:
        """run_command: runs a command of the command line in this home, and prints its answer."""
        self._console, self._thread, self._line, self._run_command = console, thread, line, run_command
        thread.on_change = line.redraw
        self._actions: dict[str, Callable[[str], None]] = {
            "search": lambda text: self._run_command(["search"], _split_words(text)),
            "recall": lambda text: self._run_command(["recall"], ["--", text]),
            "why": lambda _: self._run_command(["why"], ["--session", self._get_session()]),
            "history": lambda _: self._run_command(["sessions", "tree"], [self._get_session()]),
            "resume": self._resume,
            "clear": self._clear,
            "compact": self._compact,
            "plan": self._toggle_planning,
            "notes": self._note,
            "profile": lambda _: self._run_command(["floor", "show"], ["profile"]),
            "model": self._change_model,
            "mode": self._show_mode,
            "cost": self._show_cost,
            "help": self._show_help,
        }

    def run(self, opening: Callable[[], Future[Any]] | None = None) -> None:
        """Hold the conversation. opening: opens the session in its thread, unless it is open.

        Raises what kept the session from being opened.
        """
        while True:
            try:
                text = self._line.read(opening)
            except EOFError:
                break
            if opening is not None:
                self._show_notices()
            opening = None
            command = parse_command(text)
            if command is None:
                self._run_turn(functools.partial(self._thread.say, text))
            elif command[0] in ("exit", "quit"):
                break
            else:
                self._run_slash_command(*command)
        if self._thread.status and self._has_messages():
            self._print(f"perdure chat --resume {self._thread.status.session}   goes on from here", style="dim")

    def _has_messages(self) -> bool:
        return any(isinstance(entry, Message) for entry in self._thread.submit(self._thread.read_path).result())

    # a turn -----------------------------------------------------------------------------------------------

    def _run_turn(self, work: TurnWork) -> Any:
        """Show what happens until the work in the session's thread has ended or was cancelled."""
        events: queue.SimpleQueue[TurnEvent] = queue.SimpleQueue()
        cancel = threading.Event()
        future = self._thread.submit(lambda: work(self._make_listener(events), cancel))
        self._console.print()
        with _catch_interrupt(cancel), _silence_keys(), TurnScreen(self._console, self._make_status) as screen:
            self._follow_turn(future, events, cancel, screen)
        if not future.done():  # it ends by itself; the next message waits for it
            self._print("cancelled; what came is kept", style="yellow")
            return None
        try:
            return future.result()
        except ModelCancelled:
            self._print("cancelled; what came is kept", style="yellow")
        except PerdureError as error:
            self._print(str(error), style="red")
        finally:
            self._console.print()
        return None

    def _follow_turn(
        self,
        future: Future[Any],
        events: queue.SimpleQueue[TurnEvent],
        cancel: threading.Event,
        screen: TurnScreen,
    ) -> None:
        cancelled_s, drawn_s = None, 0.0
        while not (future.done() and events.empty()):
            try:
                screen.show(events.get(timeout=FRAME_S / 2))
            except queue.Empty:
                pass
            now_s = time.monotonic()
            if cancel.is_set():
                cancelled_s = cancelled_s or now_s
                if now_s - cancelled_s > CANCEL_S:
                    return
            if now_s - drawn_s >= FRAME_S:
                drawn_s = now_s
                screen.draw()

    def _make_listener(self, events: queue.SimpleQueue[TurnEvent]) -> TurnListener:
        from perdure.session.session import TurnListener

        def tell_activity(text: str) -> None:
            is_going_on = text.endswith("…")
            self._thread.refresh(text if is_going_on else "")
            if not is_going_on:
                events.put(TurnEvent("note", text))

        return TurnListener(
            on_text=lambda piece: events.put(TurnEvent("text", piece)),
            on_thought=lambda piece: events.put(TurnEvent("thought", piece)),
            on_recall=lambda reply: (
                events.put(TurnEvent("note", format_recall(reply.notice))) if reply.notice else None
            ),
            on_call=lambda call: events.put(TurnEvent("call", call)),
            on_output=lambda message: events.put(TurnEvent("output", message)),
            on_compact=tell_activity,
        )

    def _make_status(self) -> Text:
        return Text.assemble(*self.list_status(), no_wrap=True, overflow="ellipsis")

    def list_status(self) -> list[tuple[str, str]]:
        """Return the pieces of the status bar, as (text, colour)."""
        status = self._thread.status
        return [(text, colour) for colour, text in list_pieces(status)] if status else []

    # commands ---------------------------------------------------------------------------------------------

    def _run_slash_command(self, name: str, argument: str) -> None:
        action = self._actions.get(name)
        if action is None:
            nearest = find_nearest(name)
            hint = f"did you mean /{nearest}?" if nearest else "/help lists them"
            self._print(f"There is no command /{name}: {hint}", style="yellow")
            return
        command = next(command for command in COMMANDS if command.name == name)
        if not argument and command.argument and not command.argument.startswith("["):
            self._print(f"/{name} {command.argument}: {command.help}", style="yellow")
            return
        try:
            action(argument)
        except PerdureError as error:
            self._print(str(error), style="red")

    def _get_session(self) -> str:
        return self._thread.submit(lambda: self._thread.session.session).result()

    def _show_help(self, _: str) -> None:
        for command in COMMANDS:
            self._print(f"/{command.name} {command.argument}".ljust(22) + command.help)
        self._print("")
        self._print("Enter sends, Alt-Enter begins a new row. Ctrl-C cancels the answer, clears the line, then leaves.")

    def _resume(self, prefix: str) -> None:
        if not prefix:
            self._run_command(["sessions", "list"], [])
            return
        self._thread.submit(lambda: self._thread.open(prefix)).result()
        self.show_opening()

    def _clear(self, _: str) -> None:
        self._thread.submit(self._thread.open).result()
        self.show_opening()

    def show_greeting(self, name: str) -> None:
        """Print which session this is, and where to find more."""
        self._print(f"{name} · /help lists the commands", style="dim")

    def _show_notices(self) -> None:
        for notice in self._thread.submit(self._thread.list_notices).result():
            self._print(notice, style="yellow")

    def show_opening(self) -> None:
        """Print which session this is, and the end of what was said in it."""
        messages = [
            entry for entry in self._thread.submit(self._thread.read_path).result() if isinstance(entry, Message)
        ]
        self.show_greeting(f"session {self._get_session()}")
        self._show_notices()
        last_user = max((n for n, message in enumerate(messages) if message.role == "user"), default=None)
        if last_user is None:
            return
        self._print(f"› {one_line(messages[last_user].text, 200)}", style="bold")
        for message in messages[last_user + 1 :]:
            for call in message.calls:
                self._print(f"● {format_call(call)}", style="cyan")
            if message.role == "assistant" and message.text:
                self._console.print(Markdown(printable(message.text), hyperlinks=False))

    def _compact(self, focus: str) -> None:
        def work(listener: TurnListener, cancel: threading.Event) -> bool:
            return self._thread.compact(focus, listener, cancel) is not None

        if self._run_turn(work) is False:
            self._print("Nothing was left out: the session is as it was.", style="dim")

    def _toggle_planning(self, _: str) -> None:
        is_planning = not self._thread.is_planning
        self._thread.set_planning(is_planning=is_planning)
        self._print(
            "Planning: the model is asked for plans alone. /plan again ends it." if is_planning else "Planning ended."
        )

    def _note(self, text: str) -> None:
        if text:
            self._run_command(["floor", "note"], ["--", text])
        else:
            self._run_command(["floor", "show"], ["notes"])

    def _change_model(self, model: str) -> None:
        if model:
            self._thread.submit(lambda: self._thread.use_model(model)).result()
        status = self._thread.status
        if status:
            self._print(f"{status.model}, {status.window_tokens:,} tokens of context")

    def _show_mode(self, _: str) -> None:
        names = self._thread.submit(lambda: self._thread.session.tool_names).result()
        if names:
            self._print(f"The model may call: {', '.join(names)}.")
        else:
            self._print("The model has no tools in this chat, so there is nothing to allow or to refuse.")

    def _show_cost(self, _: str) -> None:
        spent = sum_spending(self._thread.submit(self._thread.read_path).result())
        money_text = "price unknown" if spent.money is None else f"{spent.money:.4f}"
        self._print(
            f"{format_count(spent.n_answers, 'answer')}: {spent.n_input:,} tokens read, {spent.n_cached:,} from the "
            f"cache, {spent.n_cache_write:,} into it, {spent.n_output:,} written; {money_text}"
        )
        if spent.n_unpriced and spent.money is not None:
            self._print(f"Without {format_count(spent.n_unpriced, 'answer')} of unknown price.", style="dim")

    def _print(self, text: str, *, style: str = "") -> None:
        self._console.print(Text(text, style=style))


def to_toolbar(pieces: Sequence[tuple[str, str]]) -> StyleAndTextTuples:
    """Return the pieces of the status bar as prompt_toolkit takes them."""
    return [(f"fg:ansi{colour}" if colour else "", text) for text, colour in pieces]


def _split_words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


@contextmanager
def _catch_interrupt(cancel: threading.Event) -> Iterator[None]:
    """Let Ctrl-C set an event, instead of raising anywhere."""
    earlier = signal.signal(signal.SIGINT, lambda *_: cancel.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, earlier)


@contextmanager
def _silence_keys() -> Iterator[None]:
    """Do not show keys on the screen while an answer is drawn; what is typed waits for the prompt."""
    if not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()
    earlier = termios.tcgetattr(descriptor)
    silent = termios.tcgetattr(descriptor)
    silent[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(descriptor, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, earlier)
