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
from typing import TYPE_CHECKING

import click
import msgspec

from perdure.errors import ModelCancelled, UsageError
from perdure.surfaces.cli.common import Shell, command

if TYPE_CHECKING:
    from perdure.agent.permission import Mode, PermissionAnswer, PermissionRequest
    from perdure.home import Home
    from perdure.session.session import Session, TurnListener

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
  perdure ask --mode edits "make the tests of the cart pass"     with tools; docs/agent.md""",
)
@click.argument("message", nargs=-1)
@click.option("--resume", metavar="ID", default="", help="Go on with this session, or from this entry.")
@click.option("--continue", "is_last", is_flag=True, help="Go on with the last session of this project.")
@click.option("--agent", metavar="NAME", default="", help="Whose floor and memories (default: `agent` of config.toml).")
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

    With --mode the model has the tools of agent.yaml. What needs a permission is asked in a terminal, and denied
    without one.
    """
    text = _read_message(message)
    resume = choose_session(resume, is_last=is_last)
    is_quiet = porcelain or shell.as_json
    with (
        shell.open_home(create=True, agent=agent) as home,
        _open_session(shell, home, resume, model=model, mode=mode, max_turns=max_turns) as session,
    ):
        cancel = threading.Event()
        earlier_handler = signal.signal(signal.SIGINT, lambda *_: _cancel_once(cancel))
        try:
            answer = session.say(text, listener=_make_listener(shell, is_quiet=is_quiet), cancel=cancel)
        except ModelCancelled:
            sys.exit(INTERRUPTED_STATUS)
        finally:
            signal.signal(signal.SIGINT, earlier_handler)
        if shell.as_json:
            shell.print_json({"session": session.session, "answer": msgspec.to_builtins(answer)})
        elif porcelain:
            click.echo(answer.text)
        else:
            click.echo()
            if sys.stderr.isatty():
                shell.note(f'perdure ask --resume {session.session} "…"   goes on from here')


def choose_session(resume: str, *, is_last: bool) -> str:
    """Return the name of the session to go on with; "" for a new one."""
    if resume and is_last:
        raise UsageError("give only one of --resume and --continue")
    return "last" if is_last else resume


@contextlib.contextmanager
def _open_session(
    shell: Shell, home: Home, resume: str, *, model: str, mode: Mode | None, max_turns: int | None
) -> Iterator[Session]:
    """Open a session; with a mode, one with tools."""
    from perdure.session.session import find_chat, open_session
    from perdure.session.turn_budget import TurnBudget

    chat, cwd = find_chat(home, model), str(Path.cwd())
    if mode is None:
        with open_session(home, resume, cwd=cwd, chat=chat, budget=TurnBudget(max_turns=max_turns or 0)) as session:
            yield session
        return
    from perdure.agent.agent import open_agent

    on_ask = functools.partial(_ask_permission, shell) if sys.stdin.isatty() and sys.stderr.isatty() else None
    with open_agent(home, resume, cwd=cwd, chat=chat, mode=mode, max_turns=max_turns, on_ask=on_ask) as agent:
        shell.note(agent.sandbox.summary)
        yield agent.session


def _ask_permission(shell: Shell, request: PermissionRequest) -> PermissionAnswer:
    """Ask in the terminal whether a call may run."""
    from perdure.agent.permission import CHOICES, PermissionAnswer
    from perdure.text import printable

    call = printable(json.dumps(request.call.input, ensure_ascii=False))  # all of it: an end that is not shown may harm
    shell.note(f"{request.call.name} {call}\n  {printable(request.reason)}")
    choice = click.prompt("Allow? once, always, deny", type=click.Choice(CHOICES), default="deny", err=True)
    words = click.prompt("What instead?", default="", show_default=False, err=True) if choice == "deny" else ""
    return PermissionAnswer(choice, words)


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
    )


def _print_piece(piece: str) -> None:
    from perdure.text import printable

    click.echo(printable(piece) if sys.stdout.isatty() else piece, nl=False)


def _read_message(message: Sequence[str]) -> str:
    """Return the words of the message; a `-` among them, or no word at all, stands for standard input."""
    words = [word for word in message if word != "-"]
    is_piped = len(words) < len(message) or not (words or sys.stdin.isatty())
    piped = sys.stdin.buffer.read().decode("utf-8", "replace") if is_piped else ""
    text = "\n\n".join(filter(None, (" ".join(words), piped)))
    if not text.strip():
        raise UsageError("give a message, or `-` to read it from standard input")
    return text
