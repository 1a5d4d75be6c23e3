"""The command `chat`: a conversation with the resident model in the terminal."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perdure.errors import UsageError
from perdure.lazy_module import is_installed
from perdure.surfaces.cli.ask import choose_session
from perdure.surfaces.cli.common import Shell, agent_option, command

if TYPE_CHECKING:
    from perdure.agent.permission import Mode


@command(
    "chat",
    epilog="""\
  perdure chat                       begin a session
  perdure chat --continue            go on with the last one of this project
  perdure chat --resume s7k2         go on with one, or from an entry of one
  perdure chat --resume s7k2 --fork  go on with it as a session of its own
  perdure chat --mode edits          changes of files run unasked; docs/agent.md
  perdure chat --model summariser    with the model of another role, or another model of the same provider""",
)
@click.option("--resume", metavar="ID", default="", help="Go on with this session, or from this entry.")
@click.option("--continue", "is_last", is_flag=True, help="Go on with the last session of this project.")
@click.option("--fork", is_flag=True, help="With --resume: as a session of its own, which leaves that one as it is.")
@click.option("--model", metavar="ROLE|NAME", default="", help="The model that talks (default: of the role resident).")
@agent_option
@click.option(
    "--mode",
    type=click.Choice(("plan", "ask", "edits", "yolo")),
    help="What the model's tools may do unasked (default: `mode` in agent.yaml, or ask).",
)
def chat_command(
    shell: Shell, resume: str, is_last: bool, fork: bool, model: str, agent: str, mode: Mode | None
) -> None:  # fmt: skip
    """Talk with the model of the role `resident`, which has the floor and the recall of this home, and the tools of its
    agent. Every word is kept before it is used, so a chat goes on after a crash, in another place, with another model.
    `/help` lists what a chat can do, docs/chat.md describes it.
    """
    if shell.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("a chat needs a terminal; `perdure ask` answers one message anywhere")
    resume = choose_session(resume, is_last=is_last)
    if fork and not resume:
        raise UsageError("--fork goes with --resume or --continue")
    if not is_installed("prompt_toolkit"):
        shell.open_home().close()  # a machine that only captures: this says so
    from rich.console import Console

    from perdure import config
    from perdure.access import block_cache
    from perdure.surfaces.chat.input_line import InputLine, LineHistory
    from perdure.surfaces.chat.session_thread import SessionHolder
    from perdure.surfaces.chat.terminal_chat import TerminalChat, to_toolbar

    cwd, home_path = Path.cwd(), config.find_home_path(shell.home)
    thread = SessionHolder(lambda: shell.open_home(create=True, agent=agent), cwd=str(cwd), mode=mode)
    history = LineHistory(block_cache.get_history_path(home_path), lambda: thread.is_kept)
    line = InputLine(history, cwd, lambda: to_toolbar(chat.list_status()))
    console = Console(highlight=False, emoji=False)
    chat = TerminalChat(console, thread, line, functools.partial(_run_command, shell))
    opening = functools.partial(thread.submit, functools.partial(thread.open, resume, fork=fork, model=model))
    try:
        if resume or not config.load(home_path).models.roles.resident.provider:
            opening().result()
            chat.show_opening()
            chat.run()
        else:  # the first screen waits for nothing that takes time
            chat.show_greeting("new session")
            chat.run(opening)
    finally:
        if not thread.close():
            shell.note("Something still ran and was left; what was said until then is kept.")


def _run_command(shell: Shell, words: Sequence[str], arguments: Sequence[str]) -> None:
    """Run another command of the command line in the home of this one."""
    from perdure.surfaces.cli import cli

    home = ["--home", shell.home] if shell.home else []
    try:
        cli.main([*words, *home, *arguments], prog_name="perdure", standalone_mode=False)
    except click.ClickException as error:
        error.show()
    except SystemExit:
        pass  # the command has printed its error
