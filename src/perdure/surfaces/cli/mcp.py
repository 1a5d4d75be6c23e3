"""The command that serves MCP."""

from __future__ import annotations

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
  perdure mcp                                       what a client runs: speaks on stdin and stdout
  perdure install claude-code --mcp                 have a client run it
  claude mcp add perdure -- perdure mcp             the same by the client's own command""",
)
def mcp_command(shell: Shell) -> None:
    """Serve this home to a client over the Model Context Protocol, on standard input and output. A client starts it and
    ends it; several may run at once.
    """
    try:
        from perdure.surfaces.mcp.desk import Desk
        from perdure.surfaces.mcp.server import build
    except ModuleNotFoundError as error:
        raise PackageMissing("pip install 'perdure[mcp]'") from error
    with shell.open(create=True):
        pass  # what is wrong with the home is said before a client waits for an answer
    desk = Desk(lambda: _opened(settings.home_path(shell.home)))
    try:
        build(desk, cwd=str(Path.cwd())).run("stdio")
    except KeyboardInterrupt:
        pass
    finally:
        desk.close()


def _opened(place: Path) -> Home:
    from perdure.home import open_home

    return open_home(place, create=False)
