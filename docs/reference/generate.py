"""Write docs/reference/cli.md and python.md from the code. `python docs/reference/generate.py [--check]`."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import click

from perdure.captures import Captures
from perdure.errors import PerdureError
from perdure.floor.room import FloorRoom
from perdure.forgetting import Forgetting
from perdure.frameworks.langgraph import PerdureSaver, PerdureStore
from perdure.frameworks.openai_agents import PerdureSession
from perdure.frameworks.pydantic_ai import PerdureMemory
from perdure.home import Home, open_home
from perdure.memories.room import MemoryRoom
from perdure.memories.store import KeepResult, MemoryDraft
from perdure.models.chat import Chat, ChatMessage, ChatReply, TokenUsage, ToolCall, ToolSpec
from perdure.runs import Runs
from perdure.sharing.room import Sharing
from perdure.surfaces.cli import cli
from perdure.types import Cue, Filters, Hit, Live, Memory, Plan, Recalled, RunView, SearchResult, Span, Window
from perdure.upkeep import Upkeep

HERE = Path(__file__).parent
STATUSES = (
    "done",
    "failed, or `verify`, `doctor` or `report` found a problem",
    "the call was wrong",
    "the home or its settings cannot be used",
    "not found",
    "another process is writing",
)
ROOMS: dict[str, type] = {  # of a home, in the order of docs/architecture.md
    "captures": Captures,
    "runs": Runs,
    "memories": MemoryRoom,
    "floor": FloorRoom,
    "forgetting": Forgetting,
    "sharing": Sharing,
    "upkeep": Upkeep,
}
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
    """The public methods of Home and of its rooms, the nouns and the errors."""
    out = [NOTE, "# Python\n\n```python\nimport perdure\n\nwith perdure.open() as home:\n    ...\n```\n"]
    out.append(_function("perdure.open", open_home))
    out.append("\n## Home\n")
    out += _methods(Home)
    for room, kind in ROOMS.items():
        purpose = (inspect.getdoc(kind) or "").partition("\n\n")[0]
        out.append(f"\n## home.{room}\n\n{purpose}\n")
        out += _methods(kind, f"home.{room}.")
    out.append("\n## perdure.frameworks\n\nA home in the shapes of other frameworks: docs/builders.md.\n")
    for shape in (PerdureStore, PerdureSaver, PerdureSession, PerdureMemory):
        out.append(_function(shape.__name__, shape))
        own = (member for name, member in vars(shape).items() if inspect.isfunction(member) and name[0] != "_")
        out += [_function(f"{shape.__name__}.{member.__name__}", member) for member in own]
    for noun in (
        Filters,
        SearchResult,
        Hit,
        RunView,
        Recalled,
        Cue,
        Plan,
        Window,
        Live,
        Chat,
        ChatMessage,
        ToolCall,
        ToolSpec,
        ChatReply,
        TokenUsage,
        Memory,
        Span,
        MemoryDraft,
        KeepResult,
    ):
        source = inspect.getsource(noun)
        out.append(f"\n## {noun.__name__}\n\n```python\n{source.rstrip()}\n```\n")
    out.append("\n## Errors\n\n| code | exit status | meaning |\n|---|---|---|\n")
    out += [f"| `{e('').code}` | {e.exit_code} | {inspect.getdoc(e)} |\n" for e in _errors(PerdureError)]
    return "".join(out)


def _errors(top: type[PerdureError]) -> list[type[PerdureError]]:
    kinds = (kind for kind in top.__subclasses__() if not kind.__name__.startswith("_"))  # those are not for users
    return [top, *(below for kind in kinds for below in _errors(kind))]


def _methods(kind: type, lead: str = "") -> list[str]:
    found = inspect.getmembers(kind, inspect.isfunction)
    return [_function(lead + name, member) for name, member in found if not name.startswith("_")]


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
