"""The conversation itself: read a message, show the turn, until the person leaves.

Ctrl-C during a turn cancels it: the prompt is back at once, whatever the session's thread still has to end, and what
came of the answer is kept.
"""

from __future__ import annotations

import functools
import queue
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
from perdure.surfaces.chat.input_line import InputLine
from perdure.surfaces.chat.markdown_blocks import escape_empty_items
from perdure.surfaces.chat.notices import format_call, format_recall
from perdure.surfaces.chat.person_question import ModelQuestion, PersonQuestion, TurnLink
from perdure.surfaces.chat.question_line import QuestionLine
from perdure.surfaces.chat.request_text import format_request
from perdure.surfaces.chat.session_thread import SessionHolder
from perdure.surfaces.chat.slash_commands import COMMANDS, NAMES, find_command_line, find_nearest, parse_command
from perdure.surfaces.chat.status_bar import list_pieces
from perdure.surfaces.chat.turn_screen import FRAME_S, TurnEvent, TurnScreen
from perdure.text import one_line, printable

if TYPE_CHECKING:
    from perdure.agent.permission import Mode, PermissionAnswer, PermissionRequest
    from perdure.session.session import TurnListener

CANCEL_S = 0.15  # after Ctrl-C a turn has so long to end before the prompt is back
RunCommand = Callable[[Sequence[str], Sequence[str]], None]  # (words of a `perdure` command, its arguments)
TurnWork = Callable[[TurnLink], Any]


class TerminalChat:
    """One person, one terminal, one session after the other."""

    def __init__(self, console: Console, thread: SessionHolder, line: InputLine, run_command: RunCommand) -> None:
        """run_command: runs a command of the command line in this home, and prints its answer."""
        self._console, self._thread, self._line, self._run_command = console, thread, line, run_command
        self._questions = QuestionLine(lambda: to_toolbar(self.list_status()))
        self._mode_before_plan: Mode = "ask"
        thread.on_change = line.redraw
        self._actions: dict[str, Callable[[str], None]] = {
            "resume": self._resume,
            "clear": self._clear,
            "compact": self._compact,
            "plan": self._toggle_planning,
            "model": self._change_model,
            "mode": self._change_mode,
            "approve": self._approve,
            "reject": self._reject,
            "cost": self._show_cost,
            "help": self._show_help,
        }

    def run(self, opening: Callable[[], Future[Any]] | None = None) -> None:
        """Hold the conversation. opening: opens the session in its thread, unless it is open.

        Raises what kept the session from being opened.
        """
        while True:
            try:
                text, typed = self._line.read(opening, typed_ahead=self._questions.take_typed_ahead())
            except EOFError:
                break
            opening = None
            command = parse_command(text)
            if command is None:
                self._run_turn(functools.partial(self._thread.say, text, typed))
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
        link = self._make_link(events, cancel)
        future = self._thread.submit(lambda: work(link))
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
                event = events.get(timeout=FRAME_S / 2)
                if event.kind == "question":
                    self._answer(event.value, cancel, screen)
                else:
                    screen.show(event)
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

    def _answer(self, question: PersonQuestion, cancel: threading.Event, screen: TurnScreen) -> None:
        """Ask the person. Ctrl-C gives no answer, which denies a call, and cancels the turn."""
        subject = question.subject
        answer = None
        with screen.interrupt("" if isinstance(subject, ModelQuestion) else subject.call.id):
            self._questions.drain(cancel)
            try:
                answer = self._ask(subject, cancel)
            except KeyboardInterrupt:
                cancel.set()
        question.answer(answer)

    def _ask(
        self, subject: PermissionRequest | ModelQuestion, cancel: threading.Event
    ) -> PermissionAnswer | str | None:
        if isinstance(subject, ModelQuestion):
            return self._ask_words(subject, cancel)
        return self._ask_permission(subject, cancel)

    def _ask_permission(self, request: PermissionRequest, cancel: threading.Event) -> PermissionAnswer:
        from perdure.agent.permission import PermissionAnswer

        for row in format_request(request):
            self._console.print(row)
        label = f"Allow it? y: once · a: {request.always_scope}, in this session · n: no "
        choice: Any = self._questions.ask_key(label, {"y": "once", "a": "always", "n": "deny"}, cancel)
        words = self._questions.ask_words("No. What instead? (Enter: nothing) ", cancel) if choice == "deny" else ""
        shown = {"once": "allowed once", "always": f"allowed in this session: {request.always_scope}"}
        self._print(f"  {shown.get(choice, f'denied: {words}' if words else 'denied')}", style="dim")
        return PermissionAnswer(choice, words)

    def _ask_words(self, question: ModelQuestion, cancel: threading.Event) -> str | None:
        """Return the answer to the model's question; the number of a choice stands for it."""
        self._print(f"? {printable(question.question)}", style="bold cyan")
        for number, choice in enumerate(question.choices, start=1):
            self._print(f"  {number}  {printable(choice)}")
        words = self._questions.ask_words("Answer: ", cancel)
        choices = {str(number): choice for number, choice in enumerate(question.choices, start=1)}
        answer = choices.get(words, words)
        self._print(f"  {printable(answer) or 'no answer'}", style="dim")
        return answer or None

    def _make_link(self, events: queue.SimpleQueue[TurnEvent], cancel: threading.Event) -> TurnLink:
        def ask(subject: PermissionRequest | ModelQuestion) -> Any:
            question = PersonQuestion(subject)
            events.put(TurnEvent("question", question))
            return question.wait(cancel)

        return TurnLink(
            self._make_listener(events), cancel, ask, lambda words: events.put(TurnEvent("note", printable(words)))
        )

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
        if action is None and name not in NAMES:
            nearest = find_nearest(name)
            hint = f"did you mean /{nearest}?" if nearest else "/help lists them"
            self._print(f"There is no command /{name}: {hint}", style="yellow")
            return
        command = next(command for command in COMMANDS if command.name == name)
        if not argument and command.argument and not command.argument.startswith("["):
            self._print(f"/{name} {command.argument}: {command.help}", style="yellow")
            return
        try:
            if action:
                action(argument)
            elif line := find_command_line(name, argument, self._get_session()):
                self._run_command(*line)
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

    def show_opening(self) -> None:
        """Print which session this is, and the end of what was said in it."""
        messages = [
            entry for entry in self._thread.submit(self._thread.read_path).result() if isinstance(entry, Message)
        ]
        self.show_greeting(f"session {self._get_session()}")
        last_user = max((n for n, message in enumerate(messages) if message.role == "user"), default=None)
        if last_user is None:
            return
        self._print(f"› {one_line(messages[last_user].text, 200)}", style="bold")
        for message in messages[last_user + 1 :]:
            for call in message.calls:
                self._print(f"● {format_call(call)}", style="cyan")
            if message.role == "assistant" and message.text:
                self._console.print(Markdown(escape_empty_items(printable(message.text)), hyperlinks=False))

    def _compact(self, focus: str) -> None:
        def work(link: TurnLink) -> bool:
            return self._thread.compact(focus, link) is not None

        if self._run_turn(work) is False:
            self._print("Nothing was left out: the session is as it was.", style="dim")

    def _toggle_planning(self, _: str) -> None:
        mode = self._thread.submit(lambda: self._thread.agent.gate.mode).result()
        if mode == "plan":
            self._use_mode(self._mode_before_plan)
        else:
            self._mode_before_plan = mode
            self._use_mode("plan")

    def _approve(self, proposal: str) -> None:
        self._print(self._thread.submit(lambda: self._thread.decide_edit(proposal, is_approved=True)).result())

    def _reject(self, proposal: str) -> None:
        self._print(self._thread.submit(lambda: self._thread.decide_edit(proposal, is_approved=False)).result())

    def _change_mode(self, name: str) -> None:
        from perdure.agent.permission import MODES

        mode = next((mode for mode in MODES if mode == name), None)
        if mode:
            self._use_mode(mode)
        elif name:
            self._print(f"There is no mode {name}: {', '.join(MODES)}", style="yellow")
        else:
            self._show_mode()

    def _use_mode(self, mode: Mode) -> None:
        self._thread.submit(lambda: self._thread.use_mode(mode)).result()
        self._show_mode()

    def _show_mode(self) -> None:
        from perdure.agent.permission import MODE_MEANINGS

        agent = self._thread.submit(lambda: self._thread.agent).result()
        mode, names = agent.gate.mode, agent.session.tool_names
        self._print(f"Mode {mode}: {MODE_MEANINGS[mode]}. /mode MODE changes it, /plan begins and ends planning.")
        self._print(
            f"The model may call: {', '.join(names)}. {agent.sandbox.summary}"
            if names
            else (f"The model has no tools: {agent.tools_problem or 'agent.yaml gives none'}.")
        )

    def _change_model(self, model: str) -> None:
        if model:
            self._thread.submit(lambda: self._thread.use_model(model)).result()
        status = self._thread.status
        if status:
            self._print(f"{status.model}, {status.window_tokens:,} tokens of context")

    def _show_cost(self, _: str) -> None:
        from perdure.surfaces.session_costs import list_costs

        for line in list_costs(self._thread.submit(self._thread.sum_cost).result()):
            self._print(line)

    def _print(self, text: str, *, style: str = "") -> None:
        self._console.print(Text(text, style=style))


def to_toolbar(pieces: Sequence[tuple[str, str]]) -> StyleAndTextTuples:
    """Return the pieces of the status bar as prompt_toolkit takes them."""
    return [(f"fg:ansi{colour}" if colour else "", text) for text, colour in pieces]


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
