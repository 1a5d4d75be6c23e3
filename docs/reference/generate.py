"""Write docs/reference/cli.md and python.md from the code. `python docs/reference/generate.py [--check]`."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import click

from perdure.errors import PerdureError
from perdure.home import Home, open_home
from perdure.mind.memories import Draft, Kept, Memories
from perdure.models.chat import Call, Chat, Message, Reply, Tool, Usage
from perdure.surfaces.cli import cli
from perdure.types import Cue, Filters, Found, Hit, Live, Memory, Plan, Recalled, RunView, Span, Window

HERE = Path(__file__).parent
STATUSES = (
    "done",
    "failed, or `verify` or `doctor` found a problem",
    "the call was wrong",
    "the home or its settings cannot be used",
    "not found",
    "another process is writing",
)
NOTE = "<!-- made by docs/reference/generate.py: do not edit -->\n\n"


def commands() -> str:
    """The help of every command."""
    out = [NOTE, "# Commands\n\nEvery command takes `--json` (but `completion`) and `--home DIR`.\n"]
    top = click.Context(cli, info_name="perdure", max_content_width=100, terminal_width=100)
    out += [_helps(top, cli, name, "##") for name in cli.list_commands(top)]
    out.append("\n## Exit statuses\n\n| status | meaning |\n|---|---|\n")
    out += [f"| {status} | {meaning} |\n" for status, meaning in enumerate(STATUSES)]
    return "".join(out)


def _helps(parent: click.Context, group: click.Group, name: str, mark: str) -> str:
    """The help of a command, and of those below it."""
    command = group.get_command(parent, name)
    assert command is not None
    context = click.Context(
        command, info_name=name, parent=parent, max_content_width=100, terminal_width=100,
        help_option_names=["-h", "--help"],
    )  # fmt: skip
    title = context.command_path.partition(" ")[2]
    below = command.list_commands(context) if isinstance(command, click.Group) else []
    return f"\n{mark} {title}\n\n```text\n{command.get_help(context)}\n```\n" + "".join(
        _helps(context, command, one, mark + "#") for one in below if isinstance(command, click.Group)
    )


def python() -> str:
    """The public methods of Home, the nouns and the errors."""
    out = [NOTE, "# Python\n\n```python\nimport perdure\n\nwith perdure.open() as home:\n    ...\n```\n"]
    out.append(_function("perdure.open", open_home))
    out.append("\n## Home\n")
    for name, member in inspect.getmembers(Home):
        if not name.startswith("_") and inspect.isfunction(member):
            out.append(_function(name, member))
    out.append("\n## Memories\n\n`home.memories` has them.\n")
    for name, member in inspect.getmembers(Memories):
        if not name.startswith("_") and inspect.isfunction(member):
            out.append(_function(name, member))
    for noun in (
        Filters,
        Found,
        Hit,
        RunView,
        Recalled,
        Cue,
        Plan,
        Window,
        Live,
        Chat,
        Message,
        Call,
        Tool,
        Reply,
        Usage,
        Memory,
        Span,
        Draft,
        Kept,
    ):
        source = inspect.getsource(noun)
        out.append(f"\n## {noun.__name__}\n\n```python\n{source.rstrip()}\n```\n")
    out.append("\n## Errors\n\n| code | exit status | meaning |\n|---|---|---|\n")
    out += [f"| `{e('').code}` | {e.exit_code} | {inspect.getdoc(e)} |\n" for e in _errors(PerdureError)]
    return "".join(out)


def _errors(top: type[PerdureError]) -> list[type[PerdureError]]:
    return [top, *(below for kind in top.__subclasses__() for below in _errors(kind))]


def _function(name: str, member: object) -> str:
    signature = str(inspect.signature(member)).replace("self, ", "").replace("(self)", "()")  # type: ignore[arg-type]
    return f"\n### {name}\n\n```python\n{name}{signature}\n```\n\n{inspect.getdoc(member)}\n"


PAGES = {"cli.md": commands, "python.md": python}

if __name__ == "__main__":
    stale = [name for name, make in PAGES.items() if not (HERE / name).exists() or (HERE / name).read_text() != make()]
    if "--check" in sys.argv:
        sys.exit(f"stale: {', '.join(stale)}; run python docs/reference/generate.py" if stale else 0)
    for name, make in PAGES.items():
        (HERE / name).write_text(make())
