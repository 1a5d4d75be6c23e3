"""A group of commands that are imported when they are needed. It knows of each only what `--help` says in a line."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

Table = Mapping[str, tuple[str, str]]  # name: (module of perdure.surfaces.cli, what it does)


class LazyGroup(click.Group):
    """A group whose command `name` is `name_command` in the module that its table names.

    usual: the command that is meant where none is named.
    """

    def __init__(self, *args: Any, table: Table, usual: str = "", **more: Any) -> None:
        super().__init__(*args, **more)
        self.table = table
        self.usual = usual

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does; without the name of a command the usual one is meant."""
        if self.usual and (not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)):
            args = [self.usual, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names of its commands, in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of a name, imported now; None when there is none."""
        if cmd_name not in self.table:
            return None
        module = importlib.import_module(f"perdure.surfaces.cli.{self.table[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the lines of `--help`, without importing a command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_) for name, (_, help_) in self.table.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with a hint for a name that there is not."""
        name = args[0]
        if name not in self.table and not name.startswith("-"):
            near = [known for known in self.table if known.startswith(name) or set(name) == set(known)]
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"There is no command {name!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)
