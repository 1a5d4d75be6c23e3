"""The command `completion`, for shells."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from perdure.surfaces.cli import cli


@click.command(
    "completion",
    epilog="""\b
Examples:
  eval "$(perdure completion bash)"                      in ~/.bashrc
  eval "$(perdure completion zsh)"                       in ~/.zshrc
  perdure completion fish > ~/.config/fish/completions/perdure.fish""",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> None:
    """Print the script that completes commands and options in your shell."""
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "perdure", "_PERDURE_COMPLETE").source())
