"""The command `ask`: one question to the resident model, with its answer on standard output."""

from __future__ import annotations

import contextlib
import functools
import json
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import click
import msgspec

from perdure.errors import ModelCancelled, UsageError
from perdure.surfaces.cli.common import Shell, agent_option, command

if TYPE_CHECKING:
    from perdure.agent.agent import Agent
    from perdure.agent.permission import Mode, PermissionAnswer, PermissionRequest
    from perdure.home import Home
    from perdure.session.session import TurnListener

INTERRUPTED_STATUS = 130  # of a process that Ctrl-C ended, as shells count it


@command(
    "ask",
    epilog="""\
  perdure ask "what did we decide about the port?"
  git diff | perdure ask "review this" -
  perdure ask < question.txt
  perdure ask --resume s7k2 "and why?"     go on with an earlier session
  perdure ask --continue "and when?"       with the last one of this project
  perdure ask "the release date" --json
  perdure ask --agent mira --max-turns 20 --porcelain < mail.txt
  perdure ask "what does @src/shop/cart.py do?"                  the file goes with the message
  perdure ask --mode edits "make the tests of the cart pass"     with tools; docs/agent.md""",
)
@click.argument("message", nargs=-1)
@click.option("--resume", metavar="ID", default="", help="Go on with this session, or from this entry.")
@click.option("--continue", "is_last", is_flag=True, help="Go on with the last session of this project.")
@agent_option
@click.option(
    "--model", metavar="ROLE|NAME", default="", help="The model that answers (default: of the role resident)."
)
@click.option(
    "--max-turns", type=click.IntRange(1), metavar="N", help="At most N answers of the model (tools between)."
)
@click.option(
    "--mode",
    type=click.Choice(("plan", "ask", "edits", "yolo")),
    help="Give the model tools, and say what runs unasked.",
)
@click.option("--porcelain", is_flag=True, help="Print the answer alone, as plain text, at its end, in any terminal.")
def ask_command(
    shell: Shell,
    message: tuple[str, ...],
    resume: str,
    is_last: bool,
    agent: str,
    model: str,
    max_turns: int | None,
    mode: Mode | None,
    porcelain: bool,
) -> None:
    """Ask the model of the role `resident`, with the floor and recall of this home; the answer is kept as a session.

    Standard output gets the answer alone; in a terminal, standard error tells what was recalled and which session it
    is. docs/chat.md lists the exit statuses.

    `@PATH` in a word that is typed attaches a file of the project: its text, or an image. With --mode the model has the
    tools of agent.yaml. What needs a permission is asked in a terminal, and denied without one.
    """
    typed, text = _read_message(message)
    resume = choose_session(resume, is_last=is_last)
    is_quiet = porcelain or shell.as_json
    cancel = threading.Event()
    with (
        shell.open_home(create=True, agent=agent) as home,
        _open_agent(shell, home, resume, model=model, mode=mode, max_turns=max_turns, cancel=cancel) as opened,
    ):
        if sys.stderr.isatty() and not is_quiet:
            for notice in home.floor.find_notices().values():
                shell.note(notice)
        attachments = opened.attach(typed)
        for problem in attachments.problems:
            shell.note(problem)
        earlier_handler = signal.signal(signal.SIGINT, lambda *_: _cancel_once(cancel))
        try:
            listener = _make_listener(shell, is_quiet=is_quiet)
            answer = opened.say(text, attachments, listener=listener, cancel=cancel)
        except ModelCancelled:
            sys.exit(INTERRUPTED_STATUS)
        finally:
            signal.signal(signal.SIGINT, earlier_handler)
        if shell.as_json:
            shell.print_json({"session": opened.session.session, "answer": msgspec.to_builtins(answer)})
        elif porcelain:
            click.echo(answer.text)
        else:
            click.echo()
            if sys.stderr.isatty():
                shell.note(f'perdure ask --resume {opened.session.session} "…"   goes on from here')


def choose_session(resume: str, *, is_last: bool) -> str:
    """Return the name of the session to go on with; "" for a new one."""
    if resume and is_last:
        raise UsageError("give only one of --resume and --continue")
    return "last" if is_last else resume


def _open_agent(
    shell: Shell, home: Home, resume: str, *, model: str, mode: Mode | None, max_turns: int | None, cancel: Event
) -> Agent:  # fmt: skip
    """Open a session; without a mode, one without tools."""
    from perdure.agent.agent import open_agent
    from perdure.floor.platforms import CONSOLE
    from perdure.session.chat_model import find_chat

    is_attended = sys.stdin.isatty() and sys.stderr.isatty()
    agent = open_agent(
        home,
        resume,
        cwd=str(Path.cwd()),
        chat=find_chat(home, model) if model else None,  # else the one of agent.yaml
        mode=mode,
        max_turns=max_turns,
        on_ask=functools.partial(_ask_permission, shell, cancel) if is_attended else None,
        on_question=functools.partial(_ask_question, shell, cancel) if is_attended else None,
        has_tools=mode is not None,
        platform=CONSOLE,
    )
    if mode is not None:
        for text in (agent.tools_problem or agent.sandbox.summary, *agent.notices):
            shell.note(text)
    return agent


def _ask_permission(shell: Shell, cancel: Event, request: PermissionRequest) -> PermissionAnswer:
    """Ask in the terminal whether a call may run. Ctrl-C denies it and ends the turn."""
    from perdure.agent.permission import CHOICES, PermissionAnswer
    from perdure.text import spell_out

    shown = request.change.diff if request.change else json.dumps(request.call.input, ensure_ascii=False)
    shell.note(spell_out(f"{request.call.name} {shown}\n  {request.reason}"))  # all of it: what is left out may harm
    with _end_turn(cancel):
        choice = click.prompt("Allow? once, always, deny", type=click.Choice(CHOICES), default="deny", err=True)
        words = click.prompt("What instead?", default="", show_default=False, err=True) if choice == "deny" else ""
        return PermissionAnswer(choice, words)
    return PermissionAnswer("deny")


def _ask_question(shell: Shell, cancel: Event, question: str, choices: Sequence[str]) -> str | None:
    """Ask in the terminal what the model wants to know; None for no answer."""
    from perdure.text import printable

    shell.note(printable("\n  - ".join([question, *choices])))
    with _end_turn(cancel):
        answer: str = click.prompt("Answer", default="", show_default=False, err=True)
        return answer or None
    return None


@contextlib.contextmanager
def _end_turn(cancel: Event) -> Iterator[None]:
    """Let Ctrl-C at a question end the turn."""
    handler = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if is_main:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except (click.Abort, KeyboardInterrupt):
        cancel.set()
    finally:
        if is_main:
            signal.signal(signal.SIGINT, handler)


def _cancel_once(cancel: threading.Event) -> None:
    """Cancel the call; the next Ctrl-C ends the process."""
    cancel.set()
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _make_listener(shell: Shell, *, is_quiet: bool) -> TurnListener:
    from perdure.session.session import TurnListener

    if is_quiet:
        return TurnListener()
    if not sys.stderr.isatty():
        return TurnListener(on_text=_print_piece)
    from perdure.surfaces.chat.notices import format_call, format_recall

    return TurnListener(
        on_text=_print_piece,
        on_recall=lambda reply: shell.note(format_recall(reply.notice)) if reply.notice else None,
        on_call=lambda call: shell.note(format_call(call)),
        on_compact=shell.note,
    )


def _print_piece(piece: str) -> None:
    from perdure.text import printable

    click.echo(printable(piece) if sys.stdout.isatty() else piece, nl=False)


def _read_message(message: Sequence[str]) -> tuple[str, str]:
    """Return (the words that were typed, the message).

    A `-` among the words, or no word at all, stands for standard input.
    """
    words = [word for word in message if word != "-"]
    is_piped = len(words) < len(message) or not (words or sys.stdin.isatty())
    piped = sys.stdin.buffer.read().decode("utf-8", "replace") if is_piped else ""
    typed = " ".join(words)
    text = "\n\n".join(filter(None, (typed, piped)))
    if not text.strip():
        raise UsageError("give a message, or `-` to read it from standard input")
    return typed, text
