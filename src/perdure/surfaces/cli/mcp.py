"""The command `mcp`, which serves a home over the Model Context Protocol."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from perdure import config as settings
from perdure.errors import PackageMissing
from perdure.surfaces.cli.common import Shell, command

if TYPE_CHECKING:
    from perdure.home import Home


@command(
    "mcp",
    epilog="""\
  perdure mcp                                       the command that a client runs
  perdure install claude-code --mcp                 set up a client to run it
  claude mcp add perdure -- perdure mcp             the same, with the command of the client""",
)
def mcp_command(shell: Shell) -> None:
    """Serve this home to a client over the Model Context Protocol, on standard input and output. The client starts and
    ends the process; several can run at once.
    """
    try:
        from perdure.surfaces.mcp.answers import ThreadedToolRunner
        from perdure.surfaces.mcp.server import build_server
    except ModuleNotFoundError as error:
        raise PackageMissing("pip install 'perdure[mcp]'") from error
    if sys.stdin.isatty():
        shell.note("A client runs this command, and talks to it here: docs/mcp.md. Ctrl-D ends it.")
    with shell.open_home(create=True):
        pass  # raises if the home is unusable, before a client waits for an answer
    worker_pool = ThreadedToolRunner(lambda: _open_home(settings.find_home_path(shell.home)))
    try:
        build_server(worker_pool, cwd=str(Path.cwd())).run("stdio")
    except KeyboardInterrupt:
        pass
    finally:
        worker_pool.close()


def _open_home(home_folder: Path) -> Home:
    from perdure.home import open_home

    return open_home(home_folder, create=False)
