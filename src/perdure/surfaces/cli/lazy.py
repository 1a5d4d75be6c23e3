"""A group of commands that are imported when they run. Of each it knows only the line that `--help` shows."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from perdure.errors import ClientOnly
from perdure.lazy_module import is_left_out

CommandTable = Mapping[str, tuple[str, str]]  # name: (module in perdure.surfaces.cli, help in one line)


class _LeftOutCommand(click.ClickException):
    """A command of which `perdure-client` has no code."""

    exit_code = ClientOnly.exit_code


class LazyGroup(click.Group):
    """A click group that takes the command `name` from `name_command` in the module that its table names.

    default_command: the command that runs when the command line names none.
    other_names: what other programs call a command, for the hint at it.
    """

    def __init__(
        self,
        *args: Any,
        table: CommandTable,
        default_command: str = "",
        other_names: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.table = table
        self.other_names = other_names or {}
        self.default_command = default_command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does; insert the default command if the arguments name none."""
        if self.default_command and (not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)):
            args = [self.default_command, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of the commands, in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return the command of this name; None if the table has none."""
        if cmd_name not in self.table:
            return None
        try:
            module = importlib.import_module(f"perdure.surfaces.cli.{self.table[cmd_name][0]}")
        except ModuleNotFoundError as error:
            if not is_left_out(error):
                raise
            raise _LeftOutCommand(str(ClientOnly())) from error
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the lines of `--help` without importing a command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_) for name, (_, help_) in self.table.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve as click does; for an unknown name raise UsageError with a hint at a similar one."""
        name = args[0]
        if name not in self.table and not name.startswith("-"):
            from difflib import get_close_matches

            similar = [self.other_names[name]] if name in self.other_names else []
            similar += [known for known in self.table if known.startswith(name)]
            similar += get_close_matches(name, self.table)
            hint = f" Did you mean {similar[0]!r}?" if similar else ""
            raise click.UsageError(f"There is no command {name!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)
