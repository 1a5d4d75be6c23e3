"""The command `acp`: the agent of an editor, over the Agent Client Protocol."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from perdure.errors import PackageMissing
from perdure.lazy_module import is_installed
from perdure.surfaces.cli.common import Shell, agent_option, command

if TYPE_CHECKING:
    from perdure.agent.permission import Mode
    from perdure.home import Home


@command(
    "acp",
    epilog="""\
  perdure acp                          the command that an editor runs; docs/editors.md has its settings
  perdure acp --mode edits             edits of files in the project run unasked
  perdure acp --agent mira             with the floor and the memories of another agent""",
)
@click.option("--mode", type=click.Choice(("plan", "ask", "edits", "yolo")), help="What runs unasked in new sessions.")
@click.option("--model", metavar="ROLE|NAME", default="", help="The model that talks (default: of the role resident).")
@agent_option
def acp_command(shell: Shell, mode: Mode | None, model: str, agent: str) -> None:
    """Be the agent of an editor, over the Agent Client Protocol on standard input and output. The editor starts and
    ends the process, and holds any number of sessions in it; several can run at once.
    """
    if not is_installed("acp"):
        raise PackageMissing("pip install 'perdure[acp]'")
    from perdure.surfaces.acp.greeting import build_greeting, is_initialize
    from perdure.surfaces.acp.stdio import MessageStream, take_standard_streams

    if sys.stdin.isatty():
        shell.note("An editor runs this command, and talks to it here: docs/editors.md. Ctrl-D ends it.")
    stream = MessageStream(*take_standard_streams())
    first = stream.read()
    if first is None:
        return
    params = {}
    if is_initialize(first):
        params = first["params"]
        stream.write({"jsonrpc": "2.0", "id": first["id"], "result": build_greeting()})
    else:
        stream.unread(first)
    from perdure.surfaces.acp.server import serve

    def open_home() -> Home:
        return shell.open_home(create=True, agent=agent)

    serve(stream, open_home, params=params, mode=mode, model=model)
