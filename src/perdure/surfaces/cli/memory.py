"""The group of commands about the tiers of workflows; each is imported only when it runs."""

from __future__ import annotations

import click

from perdure.surfaces.cli.lazy import LazyGroup

_TIER_COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("memory_tiers", "Find the servers of the tiers, or bring them up, and write the environment file."),
    "status": ("memory_tiers", "Check every tier; exit status 1 if one is down."),
    "context": ("memory_workflow", "Show what an agent reads before it begins or goes on."),
    "search": ("memory_workflow", "Find turns of workflows by words and meaning."),
    "stop": ("memory_tiers", "Stop the servers that this home brought up; their data stays."),
}


@click.group(
    "memory",
    cls=LazyGroup,
    table=_TIER_COMMANDS,
    epilog="""\b
Examples:
  perdure memory init
  perdure memory context --agent researcher
  perdure memory search --agent researcher --query "market analysis findings"
  perdure memory status

docs/workflow.md describes the tiers. `perdure memories` is about memories.""",
)
def memory_command() -> None:
    """Bring up, check and read the tiers of workflows: scratchpad, ledger and checkpoints, summary, semantic."""
