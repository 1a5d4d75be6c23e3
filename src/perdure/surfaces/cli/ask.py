"""The command `ask`: one question to the resident model, with its answer on standard output."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from perdure.errors import UsageError
from perdure.surfaces.cli.common import Shell, command


@command(
    "ask",
    epilog="""\
  perdure ask "what did we decide about the port?"
  git diff | perdure ask "review this" -
  perdure ask --resume s7k2 "and why?"     go on with an earlier session
  perdure ask "the release date" --json""",
)
@click.argument("message", nargs=-1)
@click.option("--resume", metavar="ID", default="", help="Go on with this session, or from this entry.")
def ask_command(shell: Shell, message: tuple[str, ...], resume: str) -> None:
    """Ask the model of the role `resident`, with the floor and recall of this home; the answer is kept as a session."""
    from perdure.session.session import TurnListener, open_session

    text = _read_message(message)
    with shell.open_home(create=True) as home, open_session(home, resume, cwd=str(Path.cwd())) as session:
        on_text = None if shell.as_json else lambda piece: click.echo(piece, nl=False)
        answer = session.say(text, listener=TurnListener(on_text=on_text))
        if shell.as_json:
            shell.print_json({"session": session.session, "answer": msgspec.to_builtins(answer)})
        else:
            click.echo()


def _read_message(message: Sequence[str]) -> str:
    """Return the words of the message; a `-` at their end stands for what comes on standard input."""
    words = [word for word in message if word != "-"]
    piped = sys.stdin.buffer.read().decode("utf-8", "replace") if len(words) < len(message) else ""
    text = "\n\n".join(filter(None, (" ".join(words), piped)))
    if not text.strip():
        raise UsageError("give a message, or `-` to read it from standard input")
    return text
